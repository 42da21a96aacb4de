//! Which metrics a point will have, as far as it can be told without running it.

use std::collections::BTreeSet;

use wp_crash::Rule;
use wp_jbd2::Conflict;
use wp_machine::make_device;
use wp_machine::registry;
use wp_parity::reference::Phase;
use wp_workload::program::Step;

use super::read::suggest;
use super::resolve::Setup;
use super::table::Row;
use super::work::Kind;

/// Numbers of the registry's workloads. A test runs each of them.
pub const NUMBERS: &[(&str, &[&str])] = &[
    ("fsync-last", &["write_ns", "fsync_ns"]),
    ("create-delete", &["files", "elapsed_ns"]),
    ("fsync-create", &["fsync_ns", "over_fsync_ns"]),
    (
        "mobibench",
        &[
            "records",
            "bytes",
            "elapsed_ns",
            "kib_per_s",
            "iops",
            "record_p50_ns",
            "record_p99_ns",
            "mib_per_s",
            "records_per_s",
        ],
    ),
    (
        "oltp-insert",
        &[
            "inserts",
            "elapsed_ns",
            "inserts_per_s",
            "insert_p50_ns",
            "insert_p99_ns",
            "log_writes_512",
            "log_writes_1024",
            "fdatasyncs",
            "table_growths",
        ],
    ),
    ("wl-varmail", &["loops", "fsyncs", "fsync_p50_ns", "fsync_p99_ns"]),
    ("varmail", FILEBENCH),
    ("filebench", FILEBENCH),
    (
        "fio",
        &[
            "iops",
            "read_ios",
            "read_bytes",
            "read_runtime_ns",
            "read_iops",
            "read_p50_ns",
            "read_p99_ns",
            "write_ios",
            "write_bytes",
            "write_runtime_ns",
            "write_iops",
            "write_p50_ns",
            "write_p99_ns",
            "sync_ios",
            "sync_p50_ns",
            "sync_p99_ns",
        ],
    ),
];

const FILEBENCH: &[&str] = &[
    "operations",
    "elapsed_ns",
    "operations_per_s",
    "loops",
    "written_bytes",
    "read_bytes",
    "files",
    "ops_per_s",
];

/// What is told of each flowop of filebench, and of each call of a program.
const OF_OP: [&str; 3] = ["count", "p50_ns", "p99_ns"];
const OF_CALL: [&str; 6] = ["count", "sum_ns", "mean_ns", "p50_ns", "p99_ns", "max_ns"];
/// Families that come as a run has them: they are not known by name before.
const FAMILIES: [&str; 2] = ["fs.", "conflicts."];

/// The metric of a rule that cuts broke: `lost_sync` of `O4-lost-sync`.
pub fn of_rule(rule: Rule) -> String {
    let name = rule.name();
    let short = name.split_once('-').map_or(name, |(_, rest)| rest);
    format!("crash.{}", short.replace('-', "_"))
}

/// What `phase.` and `pages.` call data and flushes, and blocks that no file system's table names.
const CLASSES: [&str; 6] = ["data_last", "data_others", "flush", "unowned", "free", "outside"];
/// Counts of `phase.` that are of no class.
const OF_FILES: [&str; 4] =
    ["files_with_data", "files_with_inode_block", "files_with_size", "metadata_logged"];
/// Types of blocks in journal conflicts.
const TYPES: [&str; 6] = ["S", "G", "DB", "IB", "IT", "D"];

/// Is it a count that there may be: one that some run of the experiment has, or of a class that a
/// file system's table names? Any other count was not nought times met: it is no count at all.
pub fn is_count(name: &str, rows: &[Row]) -> bool {
    let is_class = |class: &str| {
        let kinds = registry::FILE_SYSTEMS.iter().flat_map(|f| f.stages.kinds);
        CLASSES.contains(&class) || kinds.flat_map(|k| k.classes).any(|c| *c == class)
    };
    let parts: Vec<&str> = name.split('.').collect();
    let may_be = match parts[..] {
        // Behind a class may be who wrote it.
        ["phase", phase, class, ..] => {
            Phase::SYNCED.iter().any(|p| p.name() == phase) && is_class(class)
        }
        ["phase", one] => OF_FILES.contains(&one),
        ["pages", "valid" | "discarded", class] => is_class(class),
        ["pages", one] => one == "valid",
        ["conflicts", "calls" | "lost_ns"] => true,
        ["conflicts", "block", kind] | ["conflicts", "program", "block", kind] => {
            TYPES.contains(&kind)
        }
        ["conflicts", "case", case] => Conflict::ALL.iter().any(|c| c.name() == case),
        ["conflicts", "program", one] => ["calls", "thread_least", "thread_most"].contains(&one),
        // What is in no family is looked up as it is.
        [family, ..] => !["phase", "pages", "conflicts"].contains(&family),
        [] => false,
    };
    may_be || rows.iter().any(|r| r.outcome.metrics.contains_key(name))
}

/// Numbers of power failures, besides those of rules.
pub const CRASH: [&str; 6] = [
    "crash.instants",
    "crash.states",
    "crash.recoveries",
    "crash.broken",
    "crash.calls",
    "crash.failed_calls",
];

/// Metrics of a point.
pub struct ExpectedMetrics {
    names: BTreeSet<String>,
    families: Vec<&'static str>,
    /// Ends of names that are made of flowops or jobs.
    ends: Vec<&'static str>,
}

impl ExpectedMetrics {
    /// Of a point.
    pub fn of(setup: &Setup) -> ExpectedMetrics {
        let mut known =
            ExpectedMetrics { names: BTreeSet::new(), families: Vec::new(), ends: Vec::new() };
        if setup.crash.is_some() {
            known.names.extend(CRASH.map(str::to_owned));
            known.names.extend(Rule::ALL.into_iter().map(of_rule));
            return known;
        }
        known.names.insert("virtual_time_ns".to_owned());
        known.families.extend(FAMILIES);
        if setup.measure.phases {
            known.families.push("phase.");
        }
        if setup.measure.pages {
            known.families.push("pages.");
        }
        known.device(setup);
        match &setup.work.kind {
            Kind::Entry(entry, _) => {
                let own = NUMBERS.iter().find(|(name, _)| *name == entry.name);
                let own = own.map_or(&[][..], |(_, numbers)| numbers);
                known.names.extend(own.iter().map(|n| (*n).to_owned()));
                match entry.name {
                    "fio" => known.ends.extend(own),
                    "filebench" | "varmail" => known.ends.extend(OF_OP),
                    _ => {}
                }
            }
            Kind::Program(program) => {
                let own = ["calls", "failed_calls", "elapsed_ns"];
                known.names.extend(own.map(str::to_owned));
                for step in &program.0 {
                    let name = match step {
                        Step::Call(by, call) => by.label.as_ref().map_or(call.name(), |l| &l.op),
                        Step::Begin(label) => &label.op,
                        _ => continue,
                    };
                    known.names.extend(OF_CALL.iter().map(|end| format!("{name}.{end}")));
                }
            }
        }
        known
    }

    fn device(&mut self, setup: &Setup) {
        let spec = &setup.machine;
        let first = (&spec.device, &spec.device_params);
        let all = std::iter::once(first).chain(spec.more.iter().map(|(n, p)| (n, p)));
        for (number, (name, params)) in (1..).zip(all) {
            let Ok(device) = make_device(name, params) else { continue };
            let prefix = if number == 1 { "device".to_owned() } else { format!("device{number}") };
            let names = device.counters().into_iter().map(|(key, _)| format!("{prefix}.{key}"));
            self.names.extend(names);
            if number == 1 && !device.flash_blocks().is_empty() {
                self.names.insert("device.flash_blocks_without_valid".to_owned());
            }
        }
    }

    /// Has the point such a metric, as far as can be told? Errors: it has not, and what it has.
    pub fn has(&self, name: &str) -> Result<(), String> {
        let is_of_family = self.families.iter().any(|f| name.starts_with(f));
        let end = name.rsplit_once('.').map(|(_, end)| end);
        let is_made = end.is_some_and(|end| self.ends.contains(&end));
        if is_of_family || is_made || self.names.contains(name) {
            return Ok(());
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let what = format!("no metric called `{name}`; {}", suggest("there are", &names, name));
        let family = ["phase.", "pages."].iter().find(|f| name.starts_with(**f));
        Err(match family {
            Some(f) => {
                let key = f.trim_end_matches('.');
                format!("`{name}` is not measured; write `{key} = true` in [measure]")
            }
            None => what,
        })
    }
}
