//! A machine whose drive's contents are in a temporary file does what one does that holds them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::Sector;
use wp_base::event::{Class, Record};
use wp_machine::profile::PROFILES;
use wp_machine::registry::FILE_SYSTEMS;
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Medium, Spill, held_and_spilled, spill_to};
use wp_vfs::{FsEntry, Options};
use wp_workload::filebench::{self, RunLength};

struct Temporary(File);

impl Spill for Temporary {
    fn write(&self, at: u64, bytes: &[u8]) -> bool {
        self.0.write_all_at(bytes, at).is_ok()
    }
    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        self.0.read_exact_at(out, at).is_ok()
    }
}

/// What a run has done, and bytes in the file at its end.
struct Ran {
    medium: Medium,
    records: Vec<Record>,
    counters: Vec<(&'static str, u64)>,
    spilled: u64,
}

/// A mail server on `fs`, with memory of `budget` bytes for contents.
fn run(fs: &'static FsEntry, budget: usize) -> Ran {
    let spec = MachineSpec {
        seed: 1,
        cpu: PROFILES[0].model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(2048),
        sectors: Some((2 << 30) / 512),
        fs,
        fs_options: Options::parse("", fs.options).expect("options"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 12),
    };
    let machine = Machine::new(spec, None).expect("builds");
    spill_to(Box::new(Temporary(tempfile::tempfile().expect("a file"))), budget);
    let vfs = machine.mount().expect("mounts");
    machine.record(Class::ALL);
    let v = vfs.clone();
    let mail = filebench::varmail(4);
    machine
        .block_on("mail", async move {
            filebench::run(&v, &mail, RunLength::Loops(100), 7).await.expect("it runs")
        })
        .expect("it ends");
    let records = machine.rt.probe().take();
    let counters = vfs.fs().counters();
    machine.unmount(&vfs).expect("unmounts");
    let spilled = held_and_spilled().1;
    Ran { medium: machine.medium(), records, counters, spilled }
}

#[test]
fn results_do_not_depend_on_memory() {
    for fs in FILE_SYSTEMS.iter().copied().filter(|fs| fs.mount.is_some()) {
        let whole = run(fs, usize::MAX);
        let spilled = run(fs, 1 << 20);
        assert_eq!(whole.spilled, 0);
        assert!(spilled.spilled > 0, "{}: nothing was spilled", fs.name);
        assert!(!whole.records.is_empty() && whole.records == spilled.records, "{}", fs.name);
        assert_eq!(whole.counters, spilled.counters, "{}", fs.name);
        let mut places = 0;
        whole.medium.diff(&spilled.medium, &mut |_, _| places += 1);
        assert_eq!(places, 0, "{}", fs.name);
        assert!(whole.medium.runs().eq(spilled.medium.runs()), "{}", fs.name);
    }
}
