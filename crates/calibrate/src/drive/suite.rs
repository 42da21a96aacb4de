//! The usual tests of a drive, on its bare block device: `examples/drive-benchmark.fio`.

use wp_base::Sector;
use wp_device::Rated;
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::spec;
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_vfs::Options;
use wp_workload::fio::JobResult;

use crate::bench;

/// The job file.
const JOBS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/drive-benchmark.fio"));
/// The test that only writes what the others read.
const FILL: &str = "fill";

/// A test and what it gave.
#[derive(Clone, Debug)]
pub struct Tested {
    /// The job's name.
    pub test: String,
    /// Operations per second.
    pub iops: f64,
    /// Megabytes (10^6 bytes) per second.
    pub mb_s: f64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
    /// 99th percentile of the latency in nanoseconds.
    pub p99_ns: u64,
    /// What the drive is rated at, if it is.
    pub rated: Option<Rated>,
}

impl Tested {
    /// What was measured, in the unit of the rated value.
    pub fn value(&self) -> f64 {
        match self.rated {
            Some(Rated { unit: "MB/s", .. }) => self.mb_s,
            _ => self.iops,
        }
    }
}

/// Runs the tests on a device with some of its numbers replaced, with a profile of CPU costs.
///
/// Errors: a device that cannot be made, or that has zones, which these jobs do not write in order;
/// what the device answers.
pub fn suite(
    name: &str,
    replaced: &[(String, u64)],
    cpu: &Profile,
    seed: u64,
) -> Result<Vec<Tested>, MachineError> {
    let ((device, own), more) = spec::devices(name).map_err(MachineError::Config)?;
    if !more.is_empty() {
        return Err(MachineError::Config(format!("{name}: several devices; the tests are of one")));
    }
    let own = own.into_iter().filter(|(key, _)| replaced.iter().all(|(k, _)| k != key));
    let params = own.chain(replaced.iter().cloned()).collect();
    let entry = wp_device::find(&device);
    let spec = MachineSpec {
        seed,
        cpu: cpu.model(),
        device,
        device_params: params,
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs: registry::NONE,
        fs_options: Options::default(),
        disk: "sdb".to_owned(),
        device_number: (8, 16),
        kernel: (6, 12),
    };
    let machine = Machine::new(spec, None)?;
    if machine.part.limits().zones.is_some() {
        return Err(MachineError::Config(format!(
            "{name} is a zoned drive, and the tests write anywhere: use fio with zonemode=zbd"
        )));
    }
    let results = bench::fio(&machine, "drive-benchmark.fio", JOBS)?;
    let rated = entry.map_or(&[][..], |e| e.rated);
    let tests = results.iter().filter(|r| r.job.name != FILL);
    Ok(tests.map(|r| tested(r, rated)).collect())
}

fn tested(r: &JobResult, rated: &[Rated]) -> Tested {
    let d = &r.directions[usize::from(r.job.writes)];
    let seconds = d.runtime_ns.max(1) as f64 / 1e9;
    Tested {
        test: r.job.name.clone(),
        iops: d.ios as f64 / seconds,
        mb_s: d.bytes as f64 / seconds / 1e6,
        mean_ns: d.lat.mean(),
        p99_ns: d.lat.histogram.percentile(99_000_000).unwrap_or(0),
        rated: rated.iter().find(|rated| rated.test == r.job.name).copied(),
    }
}
