//! The table of verbs: what each must have done to say yes, and its exit codes.
//!
//! `docs/exit-codes.md` is generated from it, [`Out`](crate::output::Out) keeps verbs to it, and
//! the test `contract` runs every verb that clap knows against it.

use serde_json::Value;

use crate::output::Exit;

/// What comes before the command in a report of a bug.
pub const REPORT: &str = "this is a bug of Writepath; please report it with this command";
/// The hint where a verb had nothing to do.
pub const NOTHING: &str = "use inputs that are not empty, and counts above 0";

/// What is counted before a verb may say yes.
pub enum Work {
    /// A count. The document has it at the first of these JSON pointers that exists: a number, a
    /// list, an object, or a text, which counts as one.
    Counted {
        /// What is counted.
        of: &'static str,
        /// Where.
        at: &'static [&'static str],
    },
    /// The verb itself sees to it, in this way.
    Own(&'static str),
}

/// What a verb promises.
pub struct Contract {
    /// The verb with its subcommand: `kernels waits`.
    pub verb: &'static str,
    /// What exit code 0 says.
    pub yes: &'static str,
    /// What must have been done for it.
    pub work: Work,
    /// Further exit codes beside [`ALWAYS`], with what each says.
    pub exits: &'static [(Exit, &'static str)],
    /// Is `--json` a stream: one object a line, of which the last has `ok`?
    pub is_stream: bool,
}

impl Contract {
    /// May it end so?
    pub fn allows(&self, exit: Exit) -> bool {
        exit == Exit::Ok || self.codes().any(|(code, _)| code == exit)
    }

    /// Its exit codes other than 0, in order, with what each says.
    pub fn codes(&self) -> impl Iterator<Item = (Exit, &'static str)> {
        // What a verb says itself of a code is more than what all say.
        let own = |code: Exit| self.exits.iter().any(|(c, _)| *c == code);
        let of_all = ALWAYS.iter().filter(|(code, _)| !own(*code));
        let mut all: Vec<(Exit, &str)> = of_all.chain(self.exits).copied().collect();
        all.sort_by_key(|(code, _)| *code as u8);
        all.into_iter()
    }

    /// What is counted, in words.
    pub fn counted(&self) -> String {
        match &self.work {
            Work::Counted { of, at } => format!("{of} (`{}`)", at.join("`, `")),
            Work::Own(how) => (*how).to_owned(),
        }
    }
}

/// Exit codes of every verb.
pub const ALWAYS: [(Exit, &str); 4] = [
    (Exit::Usage, "the command line or a file that it names is wrong, or there is nothing to do"),
    (Exit::Bug, "a bug of Writepath; the error says what to report"),
    (Exit::HostIo, "the host's I/O failed: a file that cannot be read or written, a full stdout"),
    (Exit::Interrupted, "a signal ended the verb before its result (130, 143 or 129)"),
];

const fn counted(of: &'static str, at: &'static [&'static str]) -> Work {
    Work::Counted { of, at }
}

const fn verb(
    verb: &'static str,
    yes: &'static str,
    work: Work,
    exits: &'static [(Exit, &'static str)],
) -> Contract {
    Contract { verb, yes, work, exits, is_stream: false }
}

const STOPPED: (Exit, &str) = (Exit::Interrupted, "interrupted; what was done is kept");
const NO_GUEST: (Exit, &str) =
    (Exit::Unsupported, "no guest kernel, or a tool is missing on the host");
const DIFFERS: (Exit, &str) = (Exit::No, "a difference is not listed, or a listed one is gone");
const SIMULATED: (Exit, &str) = (Exit::Simulated, "the simulated file system or device failed");
const FEATURE: (Exit, &str) = (Exit::Unsupported, "a feature that is not supported");
const DAMAGED: (Exit, &str) =
    (Exit::No, "the image is damaged, truncated, or holds no file system");

/// Every verb, in the order of `--help`.
pub static CONTRACTS: &[Contract] = &[
    verb(
        "reproduce",
        "every claim of the papers has its pinned verdict",
        counted("claims", &["/claims"]),
        &[
            (Exit::No, "a verdict is not the pinned one; with --strict, a claim differs"),
            FEATURE,
            SIMULATED,
            STOPPED,
        ],
    ),
    verb(
        "run",
        "the workload ran to its end and every claim of the experiment holds",
        counted("system calls or points", &["/points", "/rows", "/calls", "/runs"]),
        &[
            (Exit::No, "a claim does not hold, or the image to start from is damaged"),
            FEATURE,
            (Exit::Simulated, "the workload failed, or the storage failed one of its calls"),
            (Exit::NotSame, "--verify: the results are not the same"),
            STOPPED,
        ],
    ),
    verb(
        "check",
        "the file has no errors",
        counted("runs, jobs or words", &["/runs", "/jobs", "/words"]),
        &[
            (Exit::No, "the file system that a machine needs is damaged"),
            (Exit::Unsupported, "an option or a feature that is not supported"),
            SIMULATED,
        ],
    ),
    verb(
        "merge",
        "the shards form one experiment, and every claim of it holds",
        counted("points", &["/points"]),
        &[(Exit::No, "a claim does not hold")],
    ),
    verb(
        "fio check",
        "the job file has jobs, and every option in it is supported",
        counted("jobs, files or options", &["/jobs", "/files", "/options"]),
        &[(Exit::Unsupported, "an option or value that is not supported")],
    ),
    verb(
        "fio run",
        "the jobs ran to their end and every byte was written",
        counted("jobs, or a version", &["/jobs", "/version"]),
        &[
            (Exit::No, "the image to start from is damaged"),
            (Exit::Unsupported, "an option or value that is not supported"),
            (Exit::Simulated, "the storage failed a job, or wrote less than it was given"),
        ],
    ),
    verb(
        "filebench check",
        "the model has a workload, and every word in it is supported",
        counted("words", &["/words"]),
        &[(Exit::Unsupported, "a word that is not supported")],
    ),
    verb("filebench show", "the workload model was printed", counted("models", &["/text"]), &[]),
    verb("trace", "the events were printed or written", counted("events", &["/events"]), &[]),
    verb(
        "explain",
        "the call was explained, or the calls were listed",
        counted("calls", &["/calls", "/call", "/flow", "/file"]),
        &[],
    ),
    verb(
        "diff",
        "both runs have events, and they are the same",
        counted("events compared", &["/events"]),
        &[(Exit::No, "the runs differ, or an image is damaged"), FEATURE, SIMULATED],
    ),
    verb("report", "the page was written", counted("papers and runs", &["/results"]), &[]),
    verb(
        "calibrate",
        "the model was fitted to the loads",
        counted("fitted loads", &["/fitted_loads"]),
        &[STOPPED],
    ),
    verb(
        "compare",
        "both traces have requests, and they are within the limits",
        counted("requests", &["/real/requests"]),
        &[(Exit::No, "the traces differ by more than the limits")],
    ),
    verb(
        "device",
        "the model was compared with measured points, or the tests ran",
        counted("points or tests", &["/compared", "/tests"]),
        &[],
    ),
    verb(
        "kernels waits",
        "every difference from Linux 6.12 is listed",
        counted("calls", &["/calls"]),
        &[DIFFERS, FEATURE, SIMULATED],
    ),
    verb(
        "kernels random",
        "every difference from Linux 6.12 is listed",
        counted("programs", &["/programs"]),
        &[DIFFERS, NO_GUEST, SIMULATED, STOPPED],
    ),
    verb(
        "kernels blocks",
        "every difference from Linux 6.18 is listed",
        counted("runs", &["/runs"]),
        &[DIFFERS, FEATURE, SIMULATED, STOPPED],
    ),
    verb(
        "kernels recovery",
        "every image is recovered as Linux recovered it",
        counted("images", &["/rows"]),
        &[DIFFERS],
    ),
    verb(
        "kernels crash",
        "every crash state is recovered as the real kernel recovers it",
        counted("states", &["/total/states"]),
        &[DIFFERS, NO_GUEST, (Exit::Simulated, "a program could not run"), STOPPED],
    ),
    verb(
        "kernels mounts",
        "the guest and Writepath both read and changed every image",
        counted("images", &["/images"]),
        &[DIFFERS, NO_GUEST, SIMULATED],
    ),
    Contract {
        verb: "crash run",
        yes: "crash states were recovered, and none breaks a rule",
        work: Work::Own("programs run and states recovered, in `totals` of the summary"),
        exits: &[
            (Exit::No, "a rule is broken"),
            FEATURE,
            (
                Exit::Simulated,
                "a program could not run, an `expect` is not met, or a call of a fio job failed",
            ),
            STOPPED,
        ],
        is_stream: true,
    },
    Contract {
        verb: "crash log",
        yes: "crash states of the log were recovered, and none breaks a rule",
        work: Work::Own("states recovered, in `totals` of the summary"),
        exits: &[
            (Exit::No, "a rule is broken, or the log is damaged"),
            FEATURE,
            (Exit::Simulated, "the log could not be explored"),
            STOPPED,
        ],
        is_stream: true,
    },
    verb(
        "crash show",
        "the crash state was recovered, and breaks no rule",
        Work::Own("one crash state"),
        &[(Exit::No, "a rule is broken"), FEATURE, SIMULATED],
    ),
    verb(
        "crash bug",
        "every bug was found where it is, and not where it was fixed",
        Work::Own("bugs tried, in `bugs`"),
        &[(Exit::No, "a bug is not found, or its fix does not help"), FEATURE, SIMULATED, STOPPED],
    ),
    verb(
        "crash mutate",
        "an oracle detects every removed step, or a reason is listed",
        Work::Own("programs run, in `mutants`"),
        &[(Exit::No, "a removed step is undetected, or a listed reason is wrong"), STOPPED],
    ),
    verb(
        "crash compare",
        "both settings can leave the same trees",
        Work::Own("programs run in both settings, in `programs`"),
        &[
            (Exit::No, "a tree can be left in one setting only"),
            FEATURE,
            (Exit::Simulated, "a program could not run, or all of its calls failed"),
            STOPPED,
        ],
    ),
    verb(
        "matrix",
        "combinations ran, and known bugs explain every broken rule",
        counted("combinations that ran", &["/ran"]),
        &[
            (Exit::No, "a combination breaks a rule and no known bug explains it"),
            FEATURE,
            SIMULATED,
            STOPPED,
        ],
    ),
    verb(
        "techniques",
        "every claim was judged, with the pinned verdict; what has no claim was measured",
        counted("claims, or numbers without one", &["/numbers", "/claims"]),
        &[(Exit::No, "a verdict is not the pinned one"), FEATURE, SIMULATED, STOPPED],
    ),
    verb(
        "perturb",
        "every figure changes as predicted, or a reason is listed; every claim needs what is pinned",
        counted("figures or claims", &["/figures", "/claims"]),
        &[
            (
                Exit::No,
                "a figure changes against its prediction, and no reason is listed, or a claim \
                 needs other times of the drive than pinned",
            ),
            FEATURE,
            SIMULATED,
            STOPPED,
        ],
    ),
    verb(
        "mkfs",
        "the image was written",
        counted("bytes of an image", &["/size_bytes"]),
        &[FEATURE, SIMULATED, (Exit::No, "the image that was made is damaged")],
    ),
    verb(
        "mount",
        "the file system was mounted and unmounted, and a requested image is saved",
        Work::Own("a mount served until it is unmounted or interrupted; `calls` counts its calls"),
        &[FEATURE, SIMULATED],
    ),
    verb(
        "inspect",
        "every image was read, and what was read is undamaged; `fsck` checks all of it",
        counted("images", &["/images", "/image"]),
        &[DAMAGED, FEATURE, SIMULATED],
    ),
    verb(
        "fsck",
        "the whole image was checked, and is clean",
        counted("images", &["/image"]),
        &[DAMAGED, FEATURE, SIMULATED],
    ),
    verb(
        "recover",
        "the journal was replayed",
        counted("images", &["/images", "/image"]),
        &[DAMAGED, FEATURE, SIMULATED, STOPPED],
    ),
    verb(
        "replay",
        "every request of the trace completed; or the image was written, or the entries listed",
        counted("requests, bytes or entries", &["/requests", "/entries", "/size_bytes"]),
        &[
            (Exit::No, "the log is damaged or truncated"),
            FEATURE,
            (Exit::Simulated, "the device failed a request"),
            STOPPED,
        ],
    ),
    verb(
        "serve nbd",
        "the drive was served to its end, and every requested file is written",
        Work::Own(
            "a drive served until `quit`, an interrupt or --once; `connections` counts clients",
        ),
        &[FEATURE, SIMULATED, STOPPED],
    ),
    verb(
        "serve vhost-user-blk",
        "the drive was served to its end, and every requested file is written",
        Work::Own("a drive served until `quit`, an interrupt or --once"),
        &[FEATURE, SIMULATED, STOPPED],
    ),
    verb(
        "serve control",
        "the server executed every command",
        counted("lines", &["/answers"]),
        &[(Exit::No, "the server refused a command")],
    ),
    verb(
        "kernel-lab",
        "no power failure lost data that the guest had fsynced; with --run the program ended with 0, \
         and no crash state that was explored breaks a rule; with --suite fstests-GROUP a test \
         passed, and none failed",
        counted(
            "power failures, requests, crash states or passed tests",
            &[
                "/report/cycles",
                "/rows",
                "/guest",
                "/requests",
                "/totals/raw_states",
                "/mounted",
                "/passed",
            ],
        ),
        &[
            (
                Exit::No,
                "a power failure lost fsynced data, the program of --run failed, a crash state \
                 breaks a rule, or the kernel recovers one to other files; a test of xfstests \
                 failed, panicked or took too long, or none passed",
            ),
            NO_GUEST,
            SIMULATED,
            STOPPED,
        ],
    ),
    verb("list", "the list was printed", counted("entries", &["/count"]), &[]),
    verb(
        "clean",
        "the results were removed, or listed with --dry-run",
        counted("results", &["/results"]),
        &[],
    ),
    verb("man", "the pages were printed or written", counted("pages", &["/pages", "/page"]), &[]),
    verb("completions", "the script was printed", counted("scripts", &["/script"]), &[]),
];

/// The contract of a verb.
pub fn find(verb: &str) -> Option<&'static Contract> {
    CONTRACTS.iter().find(|c| c.verb == verb)
}

/// What a document counts, at the first of some pointers that it has. `None`: it has none of them.
pub fn count(document: &Value, at: &[&str]) -> Option<u64> {
    let found = at.iter().find_map(|pointer| document.pointer(pointer))?;
    Some(match found {
        Value::Null => 0,
        Value::Bool(b) => u64::from(*b),
        Value::Number(n) => n.as_u64().unwrap_or(0),
        Value::String(text) => u64::from(!text.is_empty()),
        Value::Array(all) => all.len() as u64,
        // Counts by kind are added up; of other objects each entry counts.
        Value::Object(all) => match all.values().map(Value::as_u64).collect::<Option<Vec<u64>>>() {
            Some(counts) => counts.iter().sum(),
            None => all.len() as u64,
        },
    })
}

#[cfg(test)]
mod page;
