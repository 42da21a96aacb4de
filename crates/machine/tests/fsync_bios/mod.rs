//! The bios of an fsync: of a recorded run of Linux 6.18 (loop device,
//! `testdata/reference/otherfs-fsync-trace`), and of ours.

use std::collections::BTreeMap;

use serde::Deserialize;
use wp_base::Sector;
use wp_base::event::{BlockAction, Class, Event, Op, Record, rwbs};
use wp_machine::testing::reference;
use wp_machine::workload::fsync_create::{CASES, Moment, Plan, play};
use wp_machine::{Machine, MachineSpec};
use wp_vfs::{FsEntry, Options};

/// Flags, block or -1 for a flush, blocks.
pub type Bio = (String, i64, u32);

/// A recorded fsync: (flags, block or -1 for a flush, blocks, task).
#[derive(Deserialize)]
struct Recorded {
    seq: Vec<(String, i64, u32, String)>,
}

/// MiB of the recorded images.
const IMAGE_MIB: u64 = 512;
/// Where the recorded runs are.
const FOLDER: &str = "otherfs-fsync-trace";

/// The bio that was queued, if that is what the record tells of.
fn bio(r: &Record) -> Option<Bio> {
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
fn bios(records: &[Record], case: usize) -> Vec<Bio> {
    let at = |moment: Moment| {
        let is_it =
            |r: &Record| matches!(&r.event, Event::Mark { text } if **text == *moment.mark(case));
        records.iter().position(is_it).expect("the mark is in the trace")
    };
    records[at(Moment::Fsync)..at(Moment::Return)].iter().filter_map(bio).collect()
}

/// The summaries of a length of write, by name (`f2fs-posix-N1-alloc`).
pub fn summaries(name: &str) -> BTreeMap<String, Vec<Bio>> {
    let text = std::fs::read_to_string(reference(&format!("{FOLDER}/{name}"))).expect("reads");
    let all: BTreeMap<String, Recorded> = serde_json::from_str(&text).expect("summaries");
    let bios = |r: Recorded| r.seq.into_iter().map(|(f, at, n, _)| (f, at, n)).collect();
    all.into_iter().map(|(name, r)| (name, bios(r))).collect()
}

/// The bios of a binary trace of two CPUs, in the order of their times, from the first write on:
/// the tracer ran from before the files were opened (which reads the directory) to after the fsync.
pub fn recorded(name: &str) -> Vec<Bio> {
    let mut all = Vec::new();
    for cpu in 0..2 {
        let path = reference(&format!("{FOLDER}/{name}.{cpu}.zst"));
        let packed = std::fs::read(&path).expect("readable");
        let bytes = zstd::decode_all(packed.as_slice()).expect("zstd");
        all.extend(wp_trace::blktrace::records(&bytes).expect("a trace"));
    }
    all.sort_by_key(|r| r.at);
    all.iter().filter_map(bio).skip_while(|(flags, ..)| flags == "R").collect()
}

/// Both parts of the recorded program, with block layer 6.18.
pub fn ours(fs: &'static FsEntry, options: &str, files: u32, bytes: u32) -> Vec<Vec<Bio>> {
    let spec = MachineSpec {
        seed: 1,
        cpu: wp_machine::profile::PROFILES[0].model(),
        device: "sata-disk-nofua".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: "noop".to_owned(),
        start: Sector(0),
        sectors: Some(IMAGE_MIB * 2048),
        fs,
        fs_options: Options::parse(options, fs.options).expect("options"),
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
