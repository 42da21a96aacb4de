//! Views of real runs: held against blktrace's own tools, and against what must be true of a path.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::{busy, machine, records, run};
use wp_base::event::{Class, Flags, Record};
use wp_base::{Rng, Sector, Span};
use wp_block::Bio;
use wp_block::trace::{TraceDevice, blkparse};
use wp_machine::testing::skipped;
use wp_medium::Slice;
use wp_report::run::{SYNCS, Seen};
use wp_report::{explain, latency, perfetto};
use wp_trace::blktrace;

const ERAS: [&str; 3] = ["3.4", "3.8", "4.6"];
const ELEVATORS: [&str; 3] = ["noop", "deadline", "cfq"];

/// Every event of bios that are sent to the queue at random: neighbours in any order, plugged and
/// not, flushes, FUA, reads.
fn bios(era: &str, elevator: &str, device: &str) -> Vec<Record> {
    let machine = machine(era, elevator, device);
    machine.record(Class::ALL);
    let (rt, part) = (machine.rt.clone(), machine.part.clone());
    let all = async move {
        let mut rng = Rng::stream(7, "bios");
        for round in 0..300 {
            let plug = (rng.below(3) > 0).then(|| part.queue().plug());
            let mut places: Vec<u64> = (0..16).collect();
            for _ in 0..1 + rng.below(8) {
                // Neighbours are frequent, and no sector comes twice: btt finds bios by sector.
                let place = places.remove(rng.below(places.len() as u64) as usize);
                let at = Sector(round * 1024 + place * 8);
                let data = || vec![Slice::pattern(round, at.0 * 512, 4096)];
                let bio = match rng.below(12) {
                    0 => Bio::flush(),
                    1 => Bio::write(at, data(), Flags::PREFLUSH | Flags::FUA | Flags::SYNC),
                    2 => Bio::read(at, 8, Flags::NONE),
                    3 | 4 => Bio::write(at, data(), Flags::SYNC),
                    _ => Bio::write(at, data(), Flags::NONE),
                };
                part.submit_throttled(bio).await;
            }
            drop(plug);
            if rng.below(3) > 0 {
                rt.sleep(Span::micros(rng.below(400))).await;
            }
        }
        while part.queue().pending() > 0 {
            rt.sleep(Span::micros(50)).await;
        }
    };
    machine.block_on("w", all).expect("it ends");
    machine.rt.probe().take()
}

/// Output of a program, or nothing after the check was skipped by name.
fn tool(check: &str, dir: &Path, program: &str, args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).current_dir(dir).output() {
        Ok(out) => {
            let errors = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{program}: {errors}");
            Some(String::from_utf8(out.stdout).expect("text"))
        }
        Err(_) => {
            skipped(check, &format!("{program} is not installed (package blktrace)"));
            None
        }
    }
}

#[test]
fn blkparse_prints_of_our_binary_trace_what_we_print() {
    for era in ERAS {
        let records = records(era, "extend");
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = blktrace::write(&records, TraceDevice::default());
        std::fs::write(dir.path().join("t.blktrace.0"), &bytes).expect("written");
        let ours = blkparse(&records, TraceDevice::default());
        let again = blktrace::records(&bytes).expect("undamaged");
        assert_eq!(blkparse(&again, TraceDevice::default()), ours);
        let check = "blkparse reads our binary traces";
        let Some(text) = tool(check, dir.path(), "blkparse", &["-i", "t"]) else { return };
        // Behind the events stands a summary; before them, our message at time 0.
        let theirs: Vec<&str> = text
            .lines()
            .take_while(|l| !l.starts_with("CPU"))
            .filter(|l| l.starts_with("  8,16") && !l.contains(" m   N writepath"))
            .collect();
        let ours: Vec<&str> = ours.lines().collect();
        for (n, (o, t)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(o, t, "era {era}, line {n}");
        }
        assert_eq!(ours.len(), theirs.len(), "era {era}");
    }
}

/// Compares our averages with those of btt; false if it had to be skipped. Adds the names of what
/// was compared, and how many intervals of each there were.
fn same_as_btt(run: &str, records: &[Record], compared: &mut BTreeMap<String, u64>) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = blktrace::write(records, TraceDevice::default());
    std::fs::write(dir.path().join("t.blktrace.0"), bytes).expect("written");
    let check = "btt agrees with our averages";
    let parse = ["-i", "t", "-d", "t.bin", "-O", "-q"];
    if tool(check, dir.path(), "blkparse", &parse).is_none() {
        return false;
    }
    let Some(text) = tool(check, dir.path(), "btt", &["-i", "t.bin"]) else { return false };
    let ours = latency::stages(records);
    for line in text.lines().skip_while(|l| !l.contains("All Devices")) {
        if line.contains("Device Overhead") {
            break;
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, least, average, most, n] = fields[..] else { continue };
        let Some(sum) = ours.get(name) else { continue };
        let nanos = |text: &str| -> u64 {
            text.replace('.', "").parse().expect("seconds with nine places")
        };
        let ns = nanos(average);
        assert_eq!((sum.n.to_string().as_str(), name), (n, name), "{run}\n{text}");
        assert_eq!((sum.least, sum.most), (nanos(least), nanos(most)), "{run} {name}\n{text}");
        // Equal to the nanosecond; halfway between two, its floating point goes either way.
        let doubled = u128::from(2 * ns * sum.n);
        let near = doubled.abs_diff(2 * sum.ns) <= u128::from(sum.n);
        assert!(near, "{run} {name}: {sum:?}, btt {ns}");
        *compared.entry(name.to_owned()).or_default() += sum.n;
    }
    true
}

#[test]
fn btt_finds_the_averages_that_we_find() {
    for era in ERAS {
        let mut compared = BTreeMap::new();
        if !same_as_btt(era, &records(era, "alloc"), &mut compared) {
            return;
        }
        for elevator in ELEVATORS {
            for device in ["ssd-128", "fixed", "sata-disk-nofua"] {
                let run = format!("{era} {elevator} {device}");
                same_as_btt(&format!("files, {run}"), &busy(era, elevator, device), &mut compared);
                same_as_btt(&format!("bios, {run}"), &bios(era, elevator, device), &mut compared);
            }
        }
        for name in ["Q2Q", "Q2G", "G2I", "Q2M", "I2D", "M2D", "D2C", "Q2C"] {
            let n = compared.get(name).copied().unwrap_or(0);
            assert!(n > 1000, "era {era}, {name}: {n} intervals");
        }
    }
}

/// The paths of the paper's eras and of today's: lengths and shares add up, and the stages come in
/// the order of the journal's protocol.
#[test]
fn the_critical_path_of_an_fsync_is_whole_and_in_the_protocols_order() {
    let eras = ERAS.into_iter().chain(["6.18"]);
    for (era, case) in eras.flat_map(|e| [(e, "alloc"), (e, "extend")]) {
        let records = records(era, case);
        let seen = Seen::new(run(&records));
        let call = seen.call(SYNCS, 1).expect("it has an fsync");
        let e = explain::explain(&seen, call);
        let text = e.text();
        assert_eq!(e.links.iter().map(|l| l.ns).sum::<u64>(), e.total_ns, "{era} {case}\n{text}");
        assert_eq!(e.stages.iter().map(|s| s.share).sum::<u64>(), 10_000, "{era} {case}");
        assert_eq!(e.links.iter().map(|l| l.share).sum::<u64>(), 10_000, "{era} {case}");
        let mut at = 0;
        for l in &e.links {
            assert_eq!(l.from_ns, at, "{era} {case}\n{text}");
            at += l.ns;
        }
        for s in &e.stages {
            // What was waited for in the device, and nothing else, has parts; they are the whole.
            assert_eq!(s.name.starts_with("wait: "), !s.parts.is_empty(), "{era} {case}\n{text}");
            if !s.parts.is_empty() {
                let sum = s.parts.iter().fold((0, 0), |a, p| (a.0 + p.ns, a.1 + p.share));
                assert_eq!(sum, (s.ns, s.share), "{era} {case} {}\n{text}", s.name);
            }
        }
        // tPROG and the channel's time for a unit of 16 KiB, as `list devices` has them.
        for name in ["wait: pre-flush", "wait: post-flush"] {
            let stage = e.stages.iter().find(|s| s.name == name).expect("it is there");
            let part = |name: &str| stage.parts.iter().find(|p| p.name == name).map(|p| p.ns);
            assert_eq!(part("program"), Some(630_000), "{era} {case}\n{text}");
            // A unit that the journal's blocks have filled may be on its way before the flush
            // comes.
            let transfer = part("transfer to die").expect("it is there");
            assert!((1..=40_960).contains(&transfer), "{era} {case}\n{text}");
            assert!(name == "wait: pre-flush" || transfer == 40_960, "{era} {case}\n{text}");
        }
        let place = |stage: &str| {
            let found = e.links.iter().position(|l| l.stage == stage);
            found.unwrap_or_else(|| panic!("{era} {case}: no `{stage}`\n{text}"))
        };
        let mut order = vec!["wait: journal blocks", "wait: pre-flush"];
        order.extend(["wait: commit record", "wait: post-flush"]);
        // In era 3.4 the data of other files is on the path, and may hide the journal's blocks.
        if era == "3.4" && case == "extend" {
            order.remove(0);
        }
        let places: Vec<usize> = order.iter().map(|s| place(s)).collect();
        assert!(places.is_sorted(), "{era} {case}\n{text}");
        // There are more cores than tasks.
        let idle = ["other wait", "sleep", "runnable, no CPU free"];
        assert!(!e.stages.iter().any(|s| idle.contains(&&*s.name)), "{era} {case}\n{text}");
    }
}

/// Four tasks on three devices: whatever was waited for, the parts are the whole.
#[test]
fn every_fsync_of_a_busy_device_is_explained_to_the_last_nanosecond() {
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for device in ["ssd-128", "fixed", "sata-disk-nofua"] {
        let records = busy("4.6", "cfq", device);
        let seen = Seen::new(run(&records));
        let all: Vec<_> =
            seen.calls(SYNCS).into_iter().map(|call| explain::explain(&seen, call)).collect();
        assert_eq!(all.len(), 12 * 4, "{device}");
        let mut unexplained = 0;
        for e in all {
            let text = e.text();
            assert_eq!(e.links.iter().map(|l| l.ns).sum::<u64>(), e.total_ns, "{device}\n{text}");
            assert_eq!(e.stages.iter().map(|s| s.share).sum::<u64>(), 10_000, "{device}\n{text}");
            let gap = |p: &[explain::Link]| p[0].from_ns + p[0].ns != p[1].from_ns;
            assert!(!e.links.windows(2).any(gap), "{device}\n{text}");
            unexplained += usize::from(text.contains("other wait") || text.contains("sleep"));
            for l in e.links {
                *parts.entry(l.part).or_default() += l.ns;
            }
        }
        assert_eq!(unexplained, 0, "{device}: of 48, so many have an unexplained wait");
    }
    for part in [
        "decode",
        "queue for controller",
        "transfer to buffer",
        "queue for die",
        "transfer to die",
        "program",
        "queue before device",
        "queue in device",
        "serve",
        "write back",
    ] {
        assert!(parts.contains_key(part), "{part}: {parts:?}");
    }
}

/// Nobody but the program decides: not the order of memory, not a clock.
#[test]
fn the_same_run_leaves_the_same_bytes() {
    let play = || busy("4.6", "deadline", "ssd-128");
    let (one, two) = (play(), play());
    assert_eq!(one, two);
    let bytes = |records| perfetto::write(&Seen::new(run(records)));
    assert_eq!(bytes(&one), bytes(&two));
}
