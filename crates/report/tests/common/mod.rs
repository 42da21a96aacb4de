//! Real runs to look at.

use std::collections::BTreeMap;

use wp_base::event::{Class, Record};
use wp_base::{Rng, Sector};
use wp_machine::profile;
use wp_machine::registry;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_report::run::Run;
use wp_vfs::{OpenFlags, Options, Vfs};

/// A machine with a partition of 512 MiB.
pub fn machine(era: &str, elevator: &str, device: &str) -> Machine {
    let fs = registry::FILE_SYSTEMS[0];
    let profile = profile::PROFILES.iter().find(|p| p.name == "i7-4770").expect("a profile");
    let (major, minor) = era.split_once('.').expect("major.minor");
    let spec = MachineSpec {
        seed: 1,
        cpu: profile.model(),
        device: device.to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: elevator.to_owned(),
        start: Sector(2048),
        sectors: Some(512 << 11),
        fs,
        fs_options: Options::parse(&format!("era={era}"), fs.options).expect("an era"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (major.parse().expect("a number"), minor.parse().expect("a number")),
    };
    Machine::new(spec, None).expect("builds")
}

/// Every event of the paper's program with ten files.
pub fn records(era: &str, case: &str) -> Vec<Record> {
    let workload = registry::WORKLOADS[0];
    let options = Options::parse(&format!("n=10,case={case}"), workload.options).expect("known");
    let elevator = if era == "6.18" { "mq-deadline" } else { "cfq" };
    let machine = machine(era, elevator, "ssd-128");
    let vfs = machine.mount().expect("mounts");
    machine.record(Class::ALL);
    let run = async move { (workload.run)(&vfs, &options).await };
    machine.block_on("w2", run).expect("it ends").expect("it works");
    machine.rt.probe().take()
}

/// Every event of four tasks that write, read and sync at once: one appends much, three overwrite
/// at random.
pub fn busy(era: &str, elevator: &str, device: &str) -> Vec<Record> {
    let machine = machine(era, elevator, device);
    let vfs = machine.mount().expect("mounts");
    machine.record(Class::ALL);
    let rt = machine.rt.clone();
    let all = async move {
        let tasks: Vec<_> =
            (0..4).map(|i| rt.spawn(format!("task{i}"), one_of_four(vfs.clone(), i))).collect();
        for task in tasks {
            task.await;
        }
    };
    machine.block_on("main", all).expect("it ends");
    machine.rt.probe().take()
}

async fn one_of_four(vfs: Vfs, i: u64) {
    let mut rng = Rng::stream(i, "busy");
    let fd = vfs.open(&format!("file{i}"), OpenFlags::CREATE, 0o644).await.expect("made");
    for round in 0..12 {
        let key = i * 100 + round;
        if i == 0 {
            // No bio is larger than a request may be: btt knows nothing of bios that were split.
            let bytes = 384 << 10;
            let data = [Slice::pattern(key, 0, bytes)];
            vfs.pwrite(fd, round * u64::from(bytes), &data).await.expect("room");
            vfs.fsync(fd).await.expect("written");
            continue;
        }
        for _ in 0..20 {
            let at = rng.below(200) * 4096;
            vfs.pwrite(fd, at, &[Slice::pattern(key, at, 4096)]).await.expect("room");
        }
        let synced = if round % 2 == 0 { vfs.fdatasync(fd).await } else { vfs.fsync(fd).await };
        synced.expect("written");
        vfs.pread(fd, rng.below(200) * 4096, 8192).await.expect("there");
    }
}

/// A run of ext4 of whose blocks nothing is known, on a device with a volatile cache.
pub fn run(records: &[Record]) -> Run<'_> {
    static NONE: BTreeMap<usize, String> = BTreeMap::new();
    let stages = registry::FILE_SYSTEMS[0].stages;
    Run { records, classes: &NONE, stages, survives: false, zone_sectors: None }
}
