//! The command line: what clap reads, and which verb runs.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cmd::crash::CrashParts;
use crate::contract::{self, Contract};
use crate::output::{Exit, Out};
use crate::session::Failure;
use crate::{cmd, internal, overview, renamed, signals, usage};

/// The exit codes, and what each says of every verb.
pub fn exit_codes() -> Vec<(u8, &'static str)> {
    Exit::ALL.into_iter().map(|e| (e as u8, e.means())).collect()
}

/// The Linux write path, from a system call to the flash page, as one deterministic program
///
/// `writepath --help` lists verbs by purpose; `writepath list verbs` the exit codes of each.
#[derive(Parser)]
#[command(name = "writepath", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print JSON instead of text: one document, or one object a line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Reproduce the papers: runs, figures, a verdict for each claim.
    ///
    /// Runs five papers in parallel, each in its own process, and keeps finished ones. Exit code 1
    /// if a verdict is not the pinned one.
    Reproduce(cmd::reproduce::Args),
    /// Run a workload, a fio job or an experiment file.
    ///
    /// One workload on one file system, elevator and device; or every point of an experiment file.
    Run(cmd::run::Args),
    /// Check an experiment file, a fio job or a filebench model.
    ///
    /// Prints an experiment with every default filled in, and each error with its line.
    Check(cmd::experiment::CheckArgs),
    /// Merge the results of an experiment's shards.
    Merge(cmd::experiment::MergeArgs),
    /// Run fio's command lines and job files, and check them.
    ///
    /// `writepath fio --name=x --rw=randwrite --bs=4k --size=64m` takes fio's arguments and prints
    /// its report; `fio check` lists exact, approximated and refused options.
    Fio(cmd::fio::Args),
    /// Check filebench models, and list the built-in ones.
    Filebench(cmd::filebench::Args),
    /// Export a run's events: blkparse, blktrace, CSV, Perfetto.
    Trace(cmd::trace::Args),
    /// Show where the time of an fsync went, down to the flash page.
    ///
    /// The critical path of a call, through the device too, in shares that add up to 100 %.
    Explain(cmd::explain::Args),
    /// Compare two runs: stages, events, requests.
    ///
    /// Exit code 1 if they differ.
    Diff(cmd::diff::Args),
    /// Write results as one HTML file.
    ///
    /// Figures, tables, claims and reasons, without anything from the network. `reproduce` writes
    /// such a file by itself.
    Report(cmd::report::Args),
    /// Fit a drive model to measurements of your drive.
    ///
    /// Reads fio reports, lists of points and block traces; prints the error on held-out loads.
    Calibrate(cmd::calibrate::Args),
    /// Compare a recorded block trace with a simulated one.
    ///
    /// Compares request kinds, their order, and distributions of latencies and queue depths. Exit
    /// code 1 if they differ by more than the limits.
    Compare(cmd::compare::Args),
    /// Compare a drive model with measurements of the real drive.
    ///
    /// Prints the error of the model in each regime.
    Device(cmd::device::Args),
    /// Validate the file systems against real Linux kernels.
    ///
    /// Compares with recorded runs, running guests and the kernel of this host.
    Kernels(cmd::kernels::Args),
    /// Explore every crash state of a workload.
    ///
    /// Runs a program, a fio job or thousands of generated programs, recovers every state that a
    /// power failure may leave at any instant, and reports every broken promise.
    Crash(Box<cmd::crash::Args>),
    /// Compare techniques on the same drives and workloads.
    ///
    /// Prints speed, flushes, write amplification and crash results of every combination. Exit code
    /// 1 if a combination breaks a rule and no known bug explains it.
    Matrix(cmd::matrix::Args),
    /// Judge published claims about techniques of the literature.
    ///
    /// Runs the experiments of each technique and judges claims whose bands were fixed before it
    /// was built. Exit code 1 if a verdict is not the pinned one.
    Techniques(cmd::technique_claims::Args),
    /// Repeat the papers' figures on slower flash and smaller buffers.
    ///
    /// Doubles program times, halves the buffer, does both, and compares each figure with what its
    /// mechanism predicts. Exit code 1 if a figure contradicts its prediction and no reason is
    /// listed.
    Perturb(cmd::perturb::Args),
    /// Make a file system in an image file.
    Mkfs(cmd::mkfs::Args),
    /// Mount a simulated file system on this host (FUSE).
    ///
    /// Every program of this host can use it, in virtual or real time, until `umount` or Ctrl-C.
    Mount(cmd::mount::Args),
    /// List the files of an image, recovered in memory; never writes.
    Inspect(cmd::inspect::Args),
    /// Check an image (structures, names, links, counts); never writes.
    Fsck(cmd::fsck::Args),
    /// Replay the journal of an image, in place or into a copy.
    ///
    /// Writes in stages, each durable before the next, as the kernel does.
    Recover(cmd::recover::Args),
    /// Replay a block trace on a modelled drive, or a dm-log-writes log.
    ///
    /// Replays a trace on a device model; turns a log into the image of its device at a mark.
    Replay(cmd::replay::Args),
    /// Serve a simulated drive or an image over NBD or vhost-user.
    Serve(Box<cmd::serve::Args>),
    /// Crash-test the file systems of a real kernel in virtual time.
    ///
    /// Runs the file system of a real kernel on a modelled drive, with thousands of power failures
    /// in one boot. Exit code 1 if one of them lost data that an fsync had made durable.
    KernelLab(Box<cmd::kernel_lab::Args>),
    /// List file systems, devices, workloads, papers, eras and more.
    ///
    /// File systems, devices, elevators, workloads, papers, claims, techniques, kernel versions
    /// (eras), CPU profiles, results, verbs with their exit codes.
    List(cmd::list::Args),
    /// Remove the results below a folder.
    ///
    /// Removes the files that a result's manifest names, and nothing else. `list results` shows
    /// what there is.
    Clean(cmd::clean::Args),
    /// Print or write manual pages.
    Man(cmd::man::Man),
    /// Print completions of verbs and options for a shell.
    Completions(cmd::man::Completions),
}

/// The contract of the verb that was asked for, down to its last subcommand.
fn contract_of(matches: &ArgMatches) -> Option<&'static Contract> {
    let mut names = Vec::new();
    let mut at = matches;
    while let Some((name, inner)) = at.subcommand() {
        names.push(name);
        at = inner;
    }
    // `crash PROGRAMS` is `crash run PROGRAMS`.
    if names == ["crash"] {
        names.push("run");
    }
    contract::find(&names.join(" "))
}

/// Runs the command: its words, with the program's name first. To be called before the program has
/// threads.
pub fn main(words: Vec<OsString>) -> ExitCode {
    // Before there are threads, and before the words are read as a user's.
    if let Some(code) = wp_fuse::entered(words.get(1..).unwrap_or_default()) {
        return ExitCode::from(code);
    }
    wp_machine::memory::keep_freed();
    cmd::reproduce::end_with_parent();
    // What clap does not understand may be an answer for a program, too.
    Out::new(words.iter().any(|a| a == "--json"));
    let command = internal::line(words.get(1..).unwrap_or_default());
    let run = || {
        parsed(words, |out| {
            if let Err(e) = signals::install() {
                out.note(&format!(
                    "note: no signal handler ({e}): a signal ends the command at once"
                ));
            }
        })
    };
    internal::caught(&command, run)
}

/// Reads the command line, and runs the verb; `before` is called in between.
pub(crate) fn parsed(words: Vec<OsString>, before: impl FnOnce(&Out)) -> ExitCode {
    let program = Cli::command();
    let overview = overview::text(&program);
    let said: Vec<String> = words.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let read = program
        .override_help(overview)
        .try_get_matches_from(cmd::fio::with_verb(words))
        .and_then(|m| Ok((Cli::from_arg_matches(&m)?, m)));
    match read {
        Ok((cli, matches)) => {
            let out = Out::of(cli.json, contract_of(&matches));
            before(&out);
            run(cli.verb, &out)
        }
        Err(e) if e.use_stderr() => {
            if let Some((what, help)) = renamed::hint(&said, &e) {
                return Out::of_this_process().fail(Exit::Usage, "renamed", &what, &help);
            }
            // As the errors of verbs: what, and a hint. clap's colours stay away.
            let text = e.render().to_string();
            let text = text.trim_end().strip_prefix("error: ").unwrap_or(text.trim_end());
            let (what, help) = text.split_once("\n\n").unwrap_or((text, ""));
            let fix = usage::fix(&e, &built(), said.get(1..).unwrap_or(&[]));
            let help = match (&fix, help) {
                (Some(fix), _) => fix,
                (None, "") => "writepath --help",
                (None, help) => help.trim_start().strip_prefix("tip: ").unwrap_or(help),
            };
            Out::of_this_process().fail(Exit::Usage, "usage", what, help)
        }
        Err(help) => Out::of_this_process().help(&help.render().to_string()),
    }
}

/// The parts of a campaign: `words` are those of `crash run` behind the program's name, a part has
/// about `step` programs. Errors: as the command tells them.
pub fn crash_parts(words: Vec<OsString>, step: u64) -> Result<CrashParts, Failure> {
    match verb_of(words)? {
        Verb::Crash(a) => CrashParts::new(&a, step),
        _ => Err(Failure::usage("only `crash run` has parts", "writepath crash run --help")),
    }
}

/// The papers that `reproduce` with these words would run: those that no earlier run has kept.
/// Errors: as the command tells them.
pub fn missing_papers(words: Vec<OsString>) -> Result<Vec<&'static str>, Failure> {
    match verb_of(words)? {
        Verb::Reproduce(a) => cmd::reproduce::missing(&a),
        _ => Err(Failure::usage("only `reproduce` has papers", "writepath reproduce --help")),
    }
}

/// The verb of a command line without the program's name.
fn verb_of(words: Vec<OsString>) -> Result<Verb, Failure> {
    let words = std::iter::once(OsString::from("writepath")).chain(words);
    let read = Cli::try_parse_from(words).map(|cli| cli.verb);
    read.map_err(|e| Failure::usage(e.to_string().trim_end(), "writepath --help"))
}

/// All that clap knows of the program.
pub(crate) fn built() -> clap::Command {
    let mut program = Cli::command();
    program.build();
    program
}

fn run(verb: Verb, out: &Out) -> ExitCode {
    match verb {
        Verb::Reproduce(a) => cmd::reproduce::run(&a, out),
        Verb::Run(a) => cmd::run::run(&a, out),
        Verb::Check(a) => cmd::experiment::check(&a, out),
        Verb::Merge(a) => cmd::experiment::merge(&a, out),
        Verb::Fio(a) => cmd::fio::run(&a, out),
        Verb::Filebench(a) => cmd::filebench::run(&a, out),
        Verb::Trace(a) => cmd::trace::run(&a, out),
        Verb::Explain(a) => cmd::explain::run(&a, out),
        Verb::Diff(a) => cmd::diff::run(&a, out),
        Verb::Report(a) => cmd::report::run(&a, out),
        Verb::Calibrate(a) => cmd::calibrate::run(&a, out),
        Verb::Compare(a) => cmd::compare::run(&a, out),
        Verb::Device(a) => cmd::device::run(&a, out),
        Verb::Kernels(a) => cmd::kernels::run(&a, out),
        Verb::Crash(a) => cmd::crash::run(&a, out),
        Verb::Matrix(a) => cmd::matrix::run(&a, out),
        Verb::Techniques(a) => cmd::technique_claims::run(&a, out),
        Verb::Perturb(a) => cmd::perturb::run(&a, out),
        Verb::Mkfs(a) => cmd::mkfs::run(&a, out),
        Verb::Mount(a) => cmd::mount::run(&a, out),
        Verb::Inspect(a) => cmd::inspect::run(&a, out),
        Verb::Fsck(a) => cmd::fsck::run(&a, out),
        Verb::Recover(a) => cmd::recover::run(&a, out),
        Verb::Replay(a) => cmd::replay::run(&a, out),
        Verb::Serve(a) => cmd::serve::run(&a, out),
        Verb::KernelLab(a) => cmd::kernel_lab::run(&a, out),
        Verb::List(a) => cmd::list::run(&a, &built(), out),
        Verb::Clean(a) => cmd::clean::run(&a, out),
        Verb::Man(a) => cmd::man::man(&a, Cli::command(), out),
        Verb::Completions(a) => cmd::man::completions(&a, Cli::command(), out),
    }
}
