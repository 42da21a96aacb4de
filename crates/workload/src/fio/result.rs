//! What jobs did.

use wp_base::{FsError, errno_number};

use super::iolog::IoLog;
use super::job::Job;
use super::logs::Logged;
use super::stats::Stat;
use super::steady::Steadiness;

/// What one direction did.
#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    /// Operations.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
    /// Operations that gave less than was asked.
    pub short: u64,
    /// Time in which this direction could run, in nanoseconds.
    pub runtime_ns: u64,
    /// Latency of submission, of asynchronous engines.
    pub slat: Stat,
    /// Latency of completion: the system call; of asynchronous engines from the submission's end
    /// until the job has taken the event.
    pub clat: Stat,
    /// Both together.
    pub lat: Stat,
    /// Samples of the bandwidth, in KiB per second.
    pub bw: Stat,
    /// Samples of the rate, in operations per second.
    pub iops: Stat,
    /// Jobs that these are the numbers of; 0: one.
    pub jobs: u64,
}

/// How deep the queue was, in fio's classes.
#[derive(Clone, Debug, Default)]
pub struct DepthCounts {
    /// Operations by the depth at which they were issued: 1, 2, 4, 8, 16, 32, 64 and more.
    pub levels: [u64; 7],
    /// Submissions by their size: 0, up to 4, 8, 16, 32, 64, more.
    pub submits: [u64; 7],
    /// As `submits`, of taking what has ended.
    pub completes: [u64; 7],
}

/// What a job did.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// The job.
    pub job: Job,
    /// Reads, writes, trims.
    pub directions: [DirectionResult; 3],
    /// Syncs among the operations; fio neither counts nor measures those at the end of a round and
    /// before a close.
    pub syncs: u64,
    /// Those of them that are no `fdatasync`: fio's report has only these as `total_ios`.
    pub full_syncs: u64,
    /// Latency of syncs.
    pub sync: Stat,
    /// How deep its queue was.
    pub depth: DepthCounts,
    /// Zones that were reset before they were written again, or as a trim.
    pub zone_resets: u64,
    /// `invalidate` was asked for, and the file system cannot drop a file's pages.
    pub stays_cached: bool,
    /// From the job's beginning to its end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Operations that failed, and that the job went on after.
    pub errors: u64,
    /// The `errno` of the first of them, or of what ended the job; 0: none.
    pub error: i32,
    /// Every operation, for a job that writes logs.
    pub logged: Vec<Logged>,
    /// What it did, for a job with `write_iolog`.
    pub iolog: Option<IoLog>,
    /// The error of the file system that ended the job.
    pub failed: Option<FsError>,
    /// What else ended it with an error, in words.
    pub unmet: Option<String>,
    /// Depth that `latency_target` came to.
    pub latency_depth: u64,
    /// How far it came to the steady state that it asked for.
    pub steadiness: Option<Steadiness>,
}

impl JobResult {
    /// Of a job that has done nothing.
    pub(super) fn new(job: &Job) -> JobResult {
        JobResult {
            job: job.clone(),
            directions: std::array::from_fn(|_| DirectionResult {
                jobs: 1,
                ..DirectionResult::default()
            }),
            syncs: 0,
            full_syncs: 0,
            sync: Stat::default(),
            depth: DepthCounts::default(),
            zone_resets: 0,
            stays_cached: false,
            elapsed_ns: 0,
            errors: 0,
            error: 0,
            logged: Vec::new(),
            iolog: IoLog::new(job),
            failed: None,
            unmet: None,
            latency_depth: job.iodepth,
            steadiness: None,
        }
    }

    /// What ended the job, or the first error it met, in words; `None`: no error.
    pub fn error_text(&self) -> Option<String> {
        match (self.error, &self.unmet) {
            (0, _) => None,
            (n, None) => Some(format!("errno {n}")),
            (n, Some(what)) => Some(format!("errno {n}: {what}")),
        }
    }

    /// An error of the file system ends the job, as in fio: others go on.
    pub(super) fn end_with(&mut self, e: FsError) {
        self.error = errno(&e);
        self.failed = Some(e);
    }
}

/// Linux' number of an error.
pub(super) fn errno(e: &FsError) -> i32 {
    e.number()
}

/// The number of an error that `ignore_error` names: fio knows those up to 34.
pub(super) fn errno_of(name: &str) -> Option<i32> {
    errno_number(name).filter(|n| *n <= 34)
}
