//! `write_lat_log`, `write_bw_log`, `write_iops_log`: what a job did over time, in fio's files.
//!
//! Source: fio's manual, "Log File Formats"; observed with fio 3.33: without `log_avg_msec` one
//! line for each operation, whose bandwidth is its bytes over its latency in thousands per second;
//! with it one line for each direction and period, with the mean of the latencies, or the rate of
//! the period in KiB or operations per second, and a length of 0.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::job::Job;
use super::result::JobResult;

/// One operation, as a log has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// When it ended, since the job began.
    pub at_ns: u64,
    /// 0: a read, 1: a write, 2: a trim.
    pub direction: u8,
    /// How long it took.
    pub latency_ns: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where in its file.
    pub offset: u64,
}

/// The logs that a job writes: the end of a file's name, and what it logs.
const KINDS: [(&str, Kind); 5] = [
    ("bw", Kind::Bandwidth),
    ("iops", Kind::Rate),
    ("lat", Kind::Latency),
    ("clat", Kind::Latency),
    ("slat", Kind::Nothing),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bandwidth,
    Rate,
    Latency,
    /// Synchronous engines have no submission latency: fio leaves the file empty.
    Nothing,
}

/// Does a job log anything?
pub fn is_logged(job: &Job) -> bool {
    job.bw_log.is_some() || job.iops_log.is_some() || job.lat_log.is_some()
}

/// The files of a job's logs, by name.
fn files(job: &Job, all: &[Logged]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (end, kind) in KINDS {
        let prefix = match kind {
            Kind::Bandwidth => &job.bw_log,
            Kind::Rate => &job.iops_log,
            Kind::Latency | Kind::Nothing => &job.lat_log,
        };
        let Some(prefix) = prefix else { continue };
        let prefix = if prefix.is_empty() { &job.name } else { prefix };
        let name = match job.per_job_logs {
            true => format!("{prefix}_{end}.{}.log", job.thread_number),
            false => format!("{prefix}_{end}.log"),
        };
        let text = match (kind, job.log_period_ns) {
            (Kind::Nothing, _) => String::new(),
            (kind, 0) => each(job, kind, all),
            (kind, period_ns) => by_period(job, (kind, period_ns), all),
        };
        files.push((name, text));
    }
    files
}

/// All files of several jobs: of one name, one behind the other.
pub fn all_files(results: &[JobResult]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for r in results {
        let iolog = r.iolog.clone().and_then(|log| log.file(&r.job));
        for (name, text) in files(&r.job, &r.logged).into_iter().chain(iolog) {
            all.entry(name).or_default().push_str(&text);
        }
    }
    all
}

/// A line: time in milliseconds, value, direction, length, offset if asked for, priority.
fn line(text: &mut String, job: &Job, at_ns: u64, value: u64, l: &Logged) {
    let offset = if job.log_offset { format!("{}, ", l.offset) } else { String::new() };
    writeln!(text, "{}, {value}, {}, {}, {offset}0", at_ns / 1_000_000, l.direction, l.bytes)
        .expect("a string takes everything");
}

fn each(job: &Job, kind: Kind, all: &[Logged]) -> String {
    let mut text = String::new();
    for l in all {
        let value = match kind {
            Kind::Bandwidth => {
                let per_ms = u128::from(l.bytes) * 1_000_000 / u128::from(l.latency_ns.max(1));
                u64::try_from(per_ms).unwrap_or(u64::MAX)
            }
            Kind::Rate => 1,
            Kind::Latency | Kind::Nothing => l.latency_ns,
        };
        line(&mut text, job, l.at_ns, value, l);
    }
    text
}

/// What was summed up of a direction in a period.
#[derive(Clone, Copy, Default)]
struct Sum {
    operations: u64,
    bytes: u64,
    latency_ns: u128,
    longest_ns: u64,
}

fn by_period(job: &Job, (kind, period_ns): (Kind, u64), all: &[Logged]) -> String {
    let mut text = String::new();
    let mut sums = [Sum::default(); 3];
    let mut from = 0;
    let mut end = |sums: &mut [Sum; 3], from: u64| {
        for (direction, sum) in (0u8..).zip(sums.iter_mut()) {
            let sum = std::mem::take(sum);
            if sum.operations == 0 {
                continue;
            }
            let per_second = |n: u64| {
                let n = u128::from(n) * 1_000_000_000 / u128::from(period_ns);
                u64::try_from(n).unwrap_or(u64::MAX)
            };
            let value = match kind {
                Kind::Bandwidth => per_second(sum.bytes) / 1024,
                Kind::Rate => per_second(sum.operations),
                _ if job.log_max => sum.longest_ns,
                _ => (sum.latency_ns / u128::from(sum.operations)) as u64,
            };
            let none = Logged { at_ns: 0, direction, latency_ns: 0, bytes: 0, offset: 0 };
            line(&mut text, job, from + period_ns, value, &none);
        }
    };
    for l in all {
        if l.at_ns >= from + period_ns {
            end(&mut sums, from);
            from = l.at_ns / period_ns * period_ns;
        }
        if let Some(sum) = sums.get_mut(usize::from(l.direction)) {
            sum.operations += 1;
            sum.bytes += l.bytes;
            sum.latency_ns += u128::from(l.latency_ns);
            sum.longest_ns = sum.longest_ns.max(l.latency_ns);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::{Variables, parse};

    /// The lines are those of fio 3.33 for these latencies.
    #[test]
    fn lines_are_fios() {
        let job = |more: &str| {
            let text =
                format!("[a]\nsize=1m\nwrite_bw_log=l\nwrite_lat_log=l\nwrite_iops_log\n{more}");
            let file = parse("t.fio", text.as_bytes(), &|_| None, &Variables::default());
            assert!(!file.has_errors(), "{}", file.rendered());
            file.jobs.into_iter().next().expect("a job")
        };
        let ms = 1_000_000;
        let l = |at_ns, direction, latency_ns| Logged {
            at_ns,
            direction,
            latency_ns,
            bytes: 4096,
            offset: 8192,
        };
        let all = [l(ms, 0, 211_004), l(163 * ms, 1, 10_635), l(450 * ms, 0, 1000)];
        let files_of = |more: &str| files(&job(more), &all);
        let plain = files_of("");
        let names: Vec<&str> = plain.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(
            names,
            ["l_bw.1.log", "a_iops.1.log", "l_lat.1.log", "l_clat.1.log", "l_slat.1.log"]
        );
        assert!(plain[0].1.starts_with("1, 19411, 0, 4096, 0\n163, 385143, 1, 4096, 0\n"));
        assert!(plain[1].1.starts_with("1, 1, 0, 4096, 0\n"));
        assert_eq!(plain[4].1, "");
        let with = files_of("log_avg_msec=200\nlog_offset=1\nper_job_logs=0\n");
        assert_eq!(with[2].0, "l_lat.log");
        assert_eq!(with[2].1, "200, 211004, 0, 0, 0, 0\n200, 10635, 1, 0, 0, 0\n");
        assert_eq!(with[0].1, "200, 20, 0, 0, 0, 0\n200, 20, 1, 0, 0, 0\n");
    }
}
