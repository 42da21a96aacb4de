//! Workloads: programs that make system calls.

pub mod create_delete;
pub mod filebench;
pub mod fio;
pub mod fsync_create;
pub mod fsync_last;
pub mod mobibench;
pub mod oltp_insert;
pub mod program;
pub mod varmail;
pub mod wl_varmail;

use wp_base::{FsError, FsResult};
use wp_cache::Fut;
use wp_vfs::{FsEntry, OptionError, OptionSpec, Options, Vfs, When};

/// What a workload tells about its run, besides the trace.
#[derive(Clone, Debug, Default)]
pub struct WorkloadReport {
    /// Named numbers, in order.
    pub numbers: Vec<(String, u64)>,
    /// Documents, by file name.
    pub documents: Vec<(String, serde_json::Value)>,
    /// Texts, by file name.
    pub files: Vec<(String, String)>,
    /// What its user should know.
    pub notes: Vec<String>,
}

/// Host files that an entry's options name: file name, and bytes.
pub type Inputs = Vec<(String, Vec<u8>)>;

/// A workload, as the registry has it.
pub struct WorkloadEntry {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Are its options possible?
    pub check: fn(&Options) -> Result<(), OptionError>,
    /// Host files that its options name; their hashes are part of a result's name.
    pub inputs: fn(&Options) -> Result<Inputs, OptionError>,
    /// Bytes that its files take before it begins, by what they are of (`job r`, `fileset v`), with
    /// options that [`WorkloadEntry::check`] has passed, on that file system. What it writes later
    /// is not in it.
    pub room: fn(&Options, &FsEntry) -> Vec<(String, u64)>,
    /// Runs it.
    pub run: for<'a> fn(&'a Vfs, &'a Options) -> Fut<'a, WorkloadReport>,
}

impl WorkloadEntry {
    /// Can it run on a file system, or on devices without one ([`crate::registry::NONE`])?
    ///
    /// Errors: what to change.
    pub fn check_on(&self, options: &Options, fs: &FsEntry) -> Result<(), String> {
        let is_raw = fs.name == crate::registry::NONE.name;
        let device = if self.name == fio::ENTRY.name { fio::device(options)? } else { None };
        match (is_raw, device) {
            (true, None) => Err(format!(
                "workload {} has files, and --fs none has block devices only: give --fs ext4, or \
                 a fio job with filename=/dev/nvme0n1",
                self.name
            )),
            (false, Some(device)) => Err(format!(
                "the job uses the block device {device}, and the drive has a file system: give \
                 --fs none"
            )),
            _ => Ok(()),
        }
    }
}

/// The outcome of a workload.
pub type WorkloadResult = FsResult<WorkloadReport>;

/// The option of a workload's own seed.
const SEED: OptionSpec = OptionSpec {
    key: "seed",
    when: When::Always,
    default: "",
    help: "seed of its random numbers [default: drawn from the run's seed]",
};

/// The seed that [`SEED`] gives, or one drawn for `label` from the run's. Errors: it is no number.
fn seed(vfs: &Vfs, o: &Options, label: &str) -> FsResult<u64> {
    match o.get(SEED.key, &[SEED]) {
        None => Ok(vfs.rt().rng(label).next_u64()),
        Some(text) => text.parse().map_err(|_| FsError::Invalid("workload options")),
    }
}

/// Can the seed be one? Errors: it is no number.
fn check_seed(o: &Options) -> Result<(), OptionError> {
    match o.get(SEED.key, &[SEED]) {
        None => Ok(()),
        Some(_) => number(o, &[SEED], SEED.key, 0..=u64::MAX).map(drop),
    }
}

/// An option that is a whole number in a range. Errors: another value.
fn number(
    o: &Options,
    specs: &[OptionSpec],
    key: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, OptionError> {
    let text = o.get(key, specs).unwrap_or_default();
    text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| OptionError {
        key: key.to_owned(),
        value: text.to_owned(),
        why: format!("a whole number from {} to {}", range.start(), range.end()),
    })
}
