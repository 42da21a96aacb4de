//! Recorded runs of Linux 5.10 (mq-deadline, a disk without FUA) played again through our block
//! layer: the same bios by the same tasks must merge, be issued and complete in the same order, by
//! the same tasks.
//!
//! What is taken from the recording: bios (`Q`), who submits them and when, what belongs to one
//! plug, the disk's largest request, and that a task waits for what it sent before it goes on. What
//! is compared: `M`, `I`, `D` and `C` with flags, place, length and issuer, for as long as the
//! order does not depend on how fast the disk is.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use wp_base::event::{Class, Flags};
use wp_base::{Sector, Span};
use wp_block::{Bio, BlockQueue, QueueConfig, trace};
use wp_medium::Slice;
use wp_parity::reference::{TraceLine, parse_tsv};
use wp_rt::Rt;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference/linux-5.10")
}

fn flags(rwbs: &str) -> Flags {
    let mut flags = Flags::NONE;
    let (before, after) = rwbs.split_once('W').expect("only writes are recorded");
    for (there, flag) in [
        (before.contains('F'), Flags::PREFLUSH),
        (after.contains('F'), Flags::FUA),
        (after.contains('S'), Flags::SYNC),
        (after.contains('M'), Flags::META),
    ] {
        if there {
            flags |= flag;
        }
    }
    flags
}

/// Bios that a task sends under one plug.
struct Batch {
    comm: String,
    bios: Vec<(Flags, u64, u32)>,
    at_ns: i64,
}

/// One plug ends where another task submits, at a flush (never plugged), and after a second.
fn batches(lines: &[TraceLine]) -> Vec<Batch> {
    let mut out: Vec<Batch> = Vec::new();
    for l in lines.iter().filter(|l| l.action == 'Q') {
        let bio = (flags(&l.rwbs), l.sector.unwrap_or(0), l.sectors);
        let at_ns = l.ns_from_fsync_start;
        let same = |b: &&mut Batch| {
            let alone = bio.0.has(Flags::PREFLUSH) || b.bios[0].0.has(Flags::PREFLUSH);
            b.comm == l.comm && !alone && at_ns - b.at_ns < 1_000_000_000
        };
        match out.last_mut().filter(same) {
            Some(batch) => batch.bios.push(bio),
            None => out.push(Batch { comm: l.comm.clone(), bios: vec![bio], at_ns }),
        }
    }
    out
}

/// Short lines of a recording. A completion has no task of interest: whichever was interrupted.
fn shape(lines: &[TraceLine]) -> Vec<String> {
    let of = |l: &TraceLine| {
        let comm = if l.action == 'C' {
            "-"
        } else if l.comm.starts_with("kworker/") && l.comm.ends_with('H') {
            "kblockd"
        } else {
            l.comm.as_str()
        };
        // The end of a sequence and a flush have no place worth the name.
        let at = if l.sectors == 0 { 0 } else { l.sector.unwrap_or(0) };
        format!("{} {} {at} {} {comm}", l.action, l.rwbs, l.sectors)
    };
    lines.iter().filter(|l| "QMIDC".contains(l.action)).map(of).collect()
}

/// The same of ours.
fn ours(text: &str) -> Vec<String> {
    let of = |line: &str| {
        let f: Vec<&str> = line.split(' ').collect();
        let comm = match (f[0], f[4]) {
            ("C", _) => "-",
            (_, "kworker/0:1H") => "kblockd",
            (_, other) => other,
        };
        let at = if f[3] == "0" { "0" } else { f[2] };
        format!("{} {} {at} {} {comm}", f[0], f[1], f[3])
    };
    text.lines().map(of).collect()
}

fn play(batches: Vec<Batch>) -> Vec<String> {
    let rt = Rt::new(1);
    let device = wp_device::find("sata-disk-nofua")
        .expect("a preset")
        // No request of any recorded kernel is longer on that disk.
        .make(&[("max_request_sectors", 256)])
        .expect("possible");
    let queue = BlockQueue::new(&rt, QueueConfig::linux(5, 10), device);
    rt.probe().set_mask(Class::BLOCK);
    let mut at_ns = 0;
    for batch in batches {
        let pause = Span((batch.at_ns - at_ns).max(0) as u64);
        at_ns = batch.at_ns.max(at_ns);
        rt.run_until(rt.now() + pause);
        let q = queue.clone();
        let task = async move {
            let left = Rc::new(std::cell::Cell::new(batch.bios.len()));
            let plug = q.plug();
            for (flags, at, sectors) in batch.bios {
                let left = left.clone();
                let data = vec![Slice::zero(sectors * 512)];
                q.submit(
                    Bio::write(Sector(at), data, flags).on_end(move |_| left.set(left.get() - 1)),
                );
            }
            drop(plug);
            left
        };
        let left = rt.block_on(&batch.comm, task).expect("submits");
        while left.get() > 0 {
            rt.run_until(rt.now() + Span::millis(1));
        }
    }
    let records = rt.probe().take();
    ours(&trace::shape(&records, "QMIDC"))
}

#[test]
fn recorded_bios_take_the_same_way_through_our_blk_mq() {
    let entries = std::fs::read_dir(folder()).expect("a checkout has it");
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "tsv"));
    files.sort();
    assert!(files.len() >= 9, "{} recordings", files.len());
    let (mut same, mut all) = (0, 0);
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("readable");
        let recorded = parse_tsv(&text).expect("a recording");
        let theirs = shape(&recorded.lines);
        let ours = play(batches(&recorded.lines));
        // Who is issued by whom, and as what, whatever completes in between.
        let key = |lines: &[String], what: &str| -> Vec<String> {
            lines.iter().filter(|l| what.contains(&l[..1])).cloned().collect()
        };
        for what in ["QM", "I", "D", "C"] {
            all += 1;
            let (a, b) = (key(&ours, what), key(&theirs, what));
            if a == b {
                same += 1;
            } else {
                let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
                let show = |v: &[String]| v[at..v.len().min(at + 4)].join(" | ");
                println!("{name} {what}: ours {} theirs {}", show(&a), show(&b));
            }
        }
    }
    println!("{same} of {all} sequences the same");
    assert_eq!(same, all);
}
