//! Programs played on any file system, with the classes of what they wrote.

use std::collections::BTreeMap;

use wp_base::event::{Class, Event, Record};
use wp_base::{FsResult, Sector};
use wp_machine::classify::Classifier;
use wp_machine::profile;
use wp_machine::spec;
use wp_machine::{Machine, MachineSpec};
use wp_report::run::Run;
use wp_vfs::{FsEntry, Vfs};

/// A run with the classes of its blocks.
pub struct Recorded {
    /// All events.
    pub records: Vec<Record>,
    /// Classes of block events, by record index.
    pub classes: BTreeMap<usize, String>,
    /// Its file system.
    pub fs: &'static FsEntry,
    /// Is what its device has completed safe from power cuts?
    pub survives: bool,
}

impl Recorded {
    /// For views.
    pub fn run(&self) -> Run<'_> {
        Run {
            records: &self.records,
            classes: &self.classes,
            stages: self.fs.stages,
            survives: self.survives,
            zone_sectors: None,
        }
    }
}

/// What a program does on a machine, with every event: `fs` as on a command line, 256 MiB of a
/// device (all of a zoned one).
pub fn play<P, F>(fs: &str, device: &str, program: P) -> Recorded
where
    P: FnOnce(Vfs) -> F,
    F: Future<Output = FsResult<()>> + 'static,
{
    let (fs, fs_options) = spec::file_system(fs).expect("known options");
    let (device, device_params) = spec::device(device).expect("a device");
    let era = fs_options.get("era", fs.options).unwrap_or("4.6");
    let mut era = era.split('.').map(|n| n.parse().expect("a number"));
    let kernel = (era.next().expect("major"), era.next().unwrap_or(0));
    // 32 zones of 2 GiB, the first two conventional.
    let is_zoned = device.starts_with("zn540");
    let (start, sectors) = if is_zoned { (0, 64 << 21) } else { (2048, 256 << 11) };
    let spec = MachineSpec {
        seed: 1,
        cpu: profile::PROFILES.iter().find(|p| p.name == "i7-4770").expect("a profile").model(),
        device,
        device_params,
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(start),
        sectors: Some(sectors),
        fs,
        fs_options,
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel,
    };
    let machine = Machine::new(spec, None).expect("builds");
    let vfs = machine.mount().expect("mounts");
    machine.record(Class::ALL);
    machine.block_on("w", program(vfs.clone())).expect("it ends").expect("it works");
    let records = machine.rt.probe().take();
    machine.record(Class(0));
    let survives = !machine.queue.with_device(|d| d.limits().volatile_cache);
    machine.unmount(&vfs).expect("unmounts");
    let spec = machine.spec();
    let named = Classifier::of_writes(fs, &spec.fs_options, machine.view(), spec.start);
    let named = named.expect("an image");
    let class = |(i, r): (usize, &Record)| match r.event {
        Event::Block { at, sectors, .. } if sectors > 0 => Some((i, named.range(at, sectors))),
        _ => None,
    };
    let classes = records.iter().enumerate().filter_map(class).collect();
    Recorded { records, classes, fs, survives }
}
