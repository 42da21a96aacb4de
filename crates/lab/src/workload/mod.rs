//! Workloads: programs that make system calls.

pub mod fsync_last;

use wp_base::FsResult;
use wp_cache::Fut;
use wp_vfs::{OptionError, OptionSpec, Options, Vfs};

/// What a workload tells about its run, besides the trace.
#[derive(Clone, Debug, Default)]
pub struct WorkloadReport {
    /// Named numbers, in order.
    pub numbers: Vec<(String, u64)>,
}

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
    /// Runs it.
    pub run: for<'a> fn(&'a Vfs, &'a Options) -> Fut<'a, WorkloadReport>,
}

/// The outcome of a workload.
pub type WorkloadResult = FsResult<WorkloadReport>;
