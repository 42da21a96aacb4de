//! Requests of a run, each with its dispatch and its completion.

use serde::{Deserialize, Serialize};
use wp_parity::reference::{Issuer, TraceLine};
use wp_report::document::nullable;

use super::RunOutcome;

/// Files of the runs whose traces results hold: the paper's number.
const FILES: u32 = 10;

/// A request of a trace. Times are nanoseconds from the fsync's call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When it was dispatched.
    pub from_ns: i64,
    /// When it was complete.
    pub to_ns: i64,
    /// Who dispatched it.
    pub by: String,
    /// Letters of its flags.
    pub rwbs: String,
    /// First sector; none of a flush.
    #[serde(deserialize_with = "nullable")]
    pub sector: Option<u64>,
    /// Sectors; 0 of a flush.
    pub sectors: u32,
    /// What its blocks are.
    pub class: String,
}

/// Which files have what on disk when the fsync returns, by file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Is its data on disk?
    pub data: Vec<bool>,
    /// Is its inode-table block in the journal?
    pub table: Vec<bool>,
    /// Has its logged inode this write's size?
    pub size: Vec<bool>,
}

/// The trace of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Era.
    pub era: String,
    /// Case.
    pub case: String,
    /// Files.
    pub files: u32,
    /// Duration of the fsync.
    pub fsync_ns: u64,
    /// Its requests, by dispatch.
    pub requests: Vec<Request>,
    /// What is on disk when the fsync returns.
    pub on_disk: Logged,
}

/// Flushes of which no completion is told (kernels before 3.9 trace a flush's `D` and no `C`), each
/// with the moment when it is over: what waited for it is dispatched by its interrupt, or ends (a
/// completion without sectors).
fn flushes_without_end(r: &RunOutcome) -> Vec<(&TraceLine, i64)> {
    let is_flush = |l: &TraceLine| l.action == 'D' && l.sectors == 0;
    let ends_own = |l: &TraceLine| l.action == 'C' && l.sectors == 0 && l.rwbs.starts_with('F');
    if r.lines.iter().any(ends_own) {
        return Vec::new();
    }
    let shows_end = |l: &&TraceLine| match l.action {
        'D' => Issuer::of(&l.comm) == Issuer::Swapper,
        'C' => l.sectors == 0,
        _ => false,
    };
    let flushes = r.lines.iter().enumerate().filter(|(_, l)| is_flush(l));
    let ended = flushes.filter_map(|(n, sent)| {
        let end = r.lines[n + 1..].iter().find(shows_end)?;
        Some((sent, end.ns_from_fsync_start))
    });
    ended.collect()
}

/// The traces of the runs with ten files.
pub(super) fn traces(runs: &[RunOutcome]) -> Vec<Trace> {
    runs.iter().filter(|r| r.plan.files == FILES).map(trace).collect()
}

fn trace(r: &RunOutcome) -> Trace {
    let mut open: Vec<&TraceLine> = Vec::new();
    let mut done = Vec::new();
    for line in &r.lines {
        match line.action {
            'D' => open.push(line),
            'C' => {
                let is_it = |d: &&TraceLine| d.sector == line.sector && d.rwbs == line.rwbs;
                let Some(at) = open.iter().position(is_it) else { continue };
                let sent = open.remove(at);
                done.push((sent, line.ns_from_fsync_start));
            }
            _ => {}
        }
    }
    done.extend(flushes_without_end(r));
    done.sort_by_key(|(sent, end)| (sent.ns_from_fsync_start, *end));
    let request = |(sent, to_ns): (&TraceLine, i64)| Request {
        from_ns: sent.ns_from_fsync_start,
        to_ns,
        by: Issuer::of(&sent.comm).to_string(),
        rwbs: sent.rwbs.clone(),
        sector: sent.sector,
        sectors: sent.sectors,
        class: sent.class.clone(),
    };
    Trace {
        era: r.plan.era.clone(),
        case: r.plan.case.clone(),
        files: r.plan.files,
        fsync_ns: r.fsync_ns,
        requests: done.into_iter().map(request).collect(),
        on_disk: Logged {
            data: r.data_on_disk.clone(),
            table: r.table_logged.clone(),
            size: r.size_logged.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext4_fsync::{RunPlan, run};

    #[test]
    fn the_flushes_of_an_fsync_are_in_the_trace_of_every_era() {
        for era in ["3.4", "3.8", "4.6"] {
            let plan = RunPlan { watch: 3, ..RunPlan::paper(era, "extend", 10, 1) };
            let trace = trace(&run(&plan).expect("it runs"));
            let end = trace.fsync_ns as i64;
            let flushes: Vec<[i64; 2]> = trace
                .requests
                .iter()
                .filter(|r| r.class == "flush")
                .map(|r| [r.from_ns, r.to_ns])
                .filter(|[from, _]| *from <= end)
                .collect();
            assert!(flushes.len() >= 2, "{era}: before the record and behind it: {flushes:?}");
            assert!(flushes.iter().all(|[from, to]| from < to && *to <= end), "{era}: {flushes:?}");
        }
    }
}
