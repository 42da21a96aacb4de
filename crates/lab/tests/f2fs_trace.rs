//! What an fsync sends on a real F2FS (Linux 6.18, loop device), and on ours: every bio of it, with
//! flags, length and block.

use serde::Deserialize;
use wp_base::Sector;
use wp_base::event::{BlockAction, Class, Event, Op, Record, rwbs};
use wp_lab::machine::{Machine, MachineSpec};
use wp_lab::testing::shared;
use wp_lab::workload::fsync_create::{CASES, Moment, Plan, play};
use wp_vfs::Options;

/// A recorded fsync: (flags, block or -1 for a flush, blocks, task).
#[derive(Deserialize)]
struct Recorded {
    seq: Vec<(String, i64, u32, String)>,
}

/// MiB of the recorded images.
const IMAGE_MIB: u64 = 512;

/// The modes, and our options for them.
const MODES: [(&str, &str); 4] = [
    ("posix", ""),
    ("strict", "fsync_mode=strict"),
    ("nobarrier", "nobarrier"),
    ("lfs", "mode=lfs"),
];

/// The bio that was queued, if that is what the record tells of.
fn bio(r: &Record) -> Option<(String, i64, u32)> {
    match &r.event {
        Event::Block { action: BlockAction::Queue, op, flags, at, sectors, .. } => {
            // An empty bio that asks for a flush is shown as the kernel shows it.
            let place = if *sectors == 0 { -1 } else { at.0 as i64 / 8 };
            let text = if *op == Op::Flush { "FWS".to_owned() } else { rwbs(*op, *flags) };
            Some((text, place, sectors / 8))
        }
        _ => None,
    }
}

/// Bios queued between two marks.
fn bios(records: &[Record], case: usize) -> Vec<(String, i64, u32)> {
    let at = |moment: Moment| {
        let is_it =
            |r: &Record| matches!(&r.event, Event::Mark { text } if **text == *moment.mark(case));
        records.iter().position(is_it).expect("the mark is in the trace")
    };
    records[at(Moment::Fsync)..at(Moment::Return)].iter().filter_map(bio).collect()
}

/// The bios of a binary trace of two CPUs, in the order of their times, from the first write on:
/// the tracer ran from before the files were opened (which reads the directory) to after the fsync.
fn recorded(name: &str, check: &str) -> Option<Vec<(String, i64, u32)>> {
    let mut all = Vec::new();
    for cpu in 0..2 {
        let path = shared(&format!("reference/otherfs-fsync-trace/{name}.{cpu}.zst"), check)?;
        let packed = std::fs::read(&path).expect("readable");
        let bytes = zstd::decode_all(packed.as_slice()).expect("zstd");
        all.extend(wp_trace::blktrace::records(&bytes).expect("a trace"));
    }
    all.sort_by_key(|r| r.at);
    Some(all.iter().filter_map(bio).skip_while(|(flags, ..)| flags == "R").collect())
}

/// Both parts of the recorded program in one mode.
fn ours(options: &str, files: u32, bytes: u32) -> Vec<Vec<(String, i64, u32)>> {
    let fs = &wp_f2fs::ENTRY;
    let spec = MachineSpec {
        seed: 1,
        cpu: wp_lab::profile::PROFILES[0].model(),
        device: "sata-disk-nofua".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: "noop".to_owned(),
        start: Sector(0),
        sectors: Some(IMAGE_MIB * 2048),
        fs,
        fs_options: Options::parse(&format!("era=6.18,{options}"), fs.options).expect("options"),
        disk: "loop0".to_owned(),
        device_number: (7, 0),
        kernel: (6, 18),
    };
    let machine = Machine::new(spec, None).expect("a machine");
    let vfs = machine.mount().expect("a mount");
    machine.record(Class(Class::BLOCK.0 | Class::MARK.0));
    let plan = Plan { files, bytes, watch_ms: [70_000, 1_000], syncs_ms: [Vec::new(), Vec::new()] };
    let v = vfs.clone();
    machine
        .block_on("wl", async move { play(&v, &plan).await })
        .expect("it ends")
        .expect("it succeeds");
    let records = machine.rt.probe().take();
    machine.unmount(&vfs).expect("an unmount");
    (0..CASES.len()).map(|case| bios(&records, case)).collect()
}

#[test]
fn an_fsync_sends_what_linux_6_18_sends() {
    let check = "bios of F2FS's fsync";
    for (name, bytes) in [("summary_2k.json", 2048), ("summary_4k.json", 4096)] {
        let Some(path) = shared(&format!("reference/otherfs-fsync-trace/{name}"), check) else {
            return;
        };
        let text = std::fs::read_to_string(&path).expect("readable");
        let all: std::collections::BTreeMap<String, Recorded> =
            serde_json::from_str(&text).expect("summaries");
        let mut compared = 0;
        for (mode, options) in MODES {
            for files in [1, 100] {
                let found = ours(options, files, bytes);
                for (case, ours) in CASES.iter().zip(found) {
                    let Some(theirs) = all.get(&format!("f2fs-{mode}-N{files}-{case}")) else {
                        continue;
                    };
                    let theirs: Vec<_> =
                        theirs.seq.iter().map(|(f, at, n, _)| (f.clone(), *at, *n)).collect();
                    assert_eq!(ours, theirs, "{name}: {mode}, {files} files, {case}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 16, "{name}");
    }
}

/// Of ten files there are binary traces only.
#[test]
fn an_fsync_of_one_in_ten_files_sends_what_linux_6_18_sends() {
    let check = "bios of F2FS's fsync, ten files";
    let mut compared = 0;
    for (size, bytes) in [("2k", 2048), ("4k", 4096)] {
        for (mode, options) in MODES {
            let found = ours(options, 10, bytes);
            for (case, ours) in CASES.iter().zip(found) {
                let name = format!("{size}.f2fs-{mode}-N10-{case}.tr.blktrace");
                let Some(theirs) = recorded(&name, check) else { return };
                assert!(!theirs.is_empty(), "{name}");
                assert_eq!(ours, theirs, "{name}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 16);
}
