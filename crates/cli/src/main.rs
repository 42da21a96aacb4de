//! The `writepath` command: argument parsing and printing only.

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic where nobody reads: `output`.

mod cmd;
mod contract;
#[cfg(test)]
mod documented;
mod images;
mod internal;
mod output;
mod outputs;
mod signals;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use contract::Contract;
use output::{Exit, Out};

#[global_allocator]
static ALLOCATOR: wp_lab::memory::Allocator = wp_lab::memory::Allocator;

/// The write path from a system call to the flash page, as one deterministic program.
///
/// Exit codes: 0 ok · 1 the answer is no (claim not met, difference, corruption found) · 2 usage or
/// syntax · 3 unsupported · 4 simulated error that the experiment did not expect · 5 internal bug ·
/// 6 not the same when run again · 74 host I/O error · 130 interrupted, 143 by SIGTERM, 129 by
/// SIGHUP (what is done is kept).
#[derive(Parser)]
#[command(name = "writepath", version, max_term_width = 100)]
struct Cli {
    /// One JSON document on stdout instead of text; of a campaign of `crash`, one object a line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Reproduce a paper: runs, tables, and a verdict for each claim.
    Reproduce(cmd::reproduce::Args),
    /// Run one workload on one file system, elevator and device; or an experiment file, point by
    /// point.
    Run(cmd::run::Args),
    /// Check an experiment file, a fio job or a filebench text; of an experiment show what it says
    /// in full.
    Check(cmd::experiment::CheckArgs),
    /// Put the results of an experiment's shards together.
    Merge(cmd::experiment::MergeArgs),
    /// fio job files: what of them is exact here.
    Fio(cmd::fio::Args),
    /// filebench texts: what of them is exact here, and those that come with it.
    Filebench(cmd::filebench::Args),
    /// Show what a run did: its events as blkparse prints them, in the paper's format, as CSV, or
    /// as a file for blktrace's tools or the Perfetto viewer.
    Trace(cmd::trace::Args),
    /// Why an fsync of a run took its time: its critical path, through the device too, in shares
    /// that add up to 100 %.
    Explain(cmd::explain::Args),
    /// What two runs did differently, event by event. Exit code 1 if they differ.
    Diff(cmd::diff::Args),
    /// Results as one HTML file that needs nothing else: figures, tables, claims and reasons. What
    /// `reproduce` finds it makes such a file of by itself.
    Report(cmd::report::Args),
    /// From measurements of a real drive (fio) a preset of its class, with the error of what was
    /// held out.
    Calibrate(cmd::calibrate::Args),
    /// A recorded block trace beside a simulated one: kinds, order, distributions of times and
    /// depths. Exit code 1 if they are further apart than allowed.
    Compare(cmd::compare::Args),
    /// A modelled drive beside measurements of the real one: errors by regime.
    Device(cmd::device::Args),
    /// Ours beside real kernels: device waits of every call of the same program.
    Kernels(cmd::kernels::Args),
    /// Take the power away everywhere in a program, or in thousands: recover every state that the
    /// drive may be left with, and say which rule each breaks.
    Crash(Box<cmd::crash::Args>),
    /// Techniques of the papers together: every combination on the same drives and workloads, how
    /// quick, how much is flushed and written, and what power cuts leave of it. Exit code 1 if one
    /// breaks a rule in a way that nobody knows.
    Matrix(cmd::matrix::Args),
    /// The papers' figures on flash that programs twice as long, with half the buffer, and both:
    /// what the mechanism predicts, and what they do. Exit code 1 if one goes against it and nobody
    /// has said why.
    Perturb(cmd::perturb::Args),
    /// Make a file system in an image file.
    Mkfs(cmd::mkfs::Args),
    /// List what an image holds, after recovering in memory. Never writes.
    Inspect(cmd::inspect::Args),
    /// Check all of an image: structures, claims, names, links, bitmaps, counts. Never writes.
    Fsck(cmd::fsck::Args),
    /// Replay an image's journal, in place or into a copy.
    Recover(cmd::recover::Args),
    /// A block trace of another machine, replayed onto a device model; or what a device held at a
    /// moment of a dm-log-writes log, as an image.
    Replay(cmd::replay::Args),
    /// A modelled drive, or an image, for real clients: a block device over NBD or vhost-user.
    Serve(Box<cmd::serve::Args>),
    /// A real kernel's file system on a modelled drive, in virtual time: power cuts, thousands in
    /// one boot, and what each has lost. Exit code 1 if one has lost something.
    KernelLab(Box<cmd::kernel_lab::Args>),
    /// List what there is: file systems, devices, elevators, workloads, papers, techniques, eras,
    /// CPU profiles, verbs with their exit codes.
    List(cmd::list::Args),
    /// Manual pages, of the program and of each verb.
    Man(cmd::man::Man),
    /// Completions of verbs and options for a shell.
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
    contract::find(&names.join(" "))
}

fn main() -> ExitCode {
    wp_lab::memory::keep_freed();
    // What clap does not understand may be an answer for a program, too.
    Out::new(std::env::args_os().any(|a| a == "--json"));
    internal::caught(parsed)
}

/// Reads the command line, and runs the verb.
fn parsed() -> ExitCode {
    let read = Cli::command().try_get_matches().and_then(|m| Ok((Cli::from_arg_matches(&m)?, m)));
    match read {
        Ok((cli, matches)) => {
            let out = Out::of(cli.json, contract_of(&matches));
            if let Err(e) = signals::install() {
                out.note(&format!("note: a signal will end this at once ({e})"));
            }
            run(cli.verb, &out)
        }
        Err(e) if e.use_stderr() => {
            // As the errors of verbs: what, and the way out. clap's colours stay away.
            let text = e.render().to_string();
            let text = text.trim_end().strip_prefix("error: ").unwrap_or(text.trim_end());
            let (what, help) = text.split_once("\n\n").unwrap_or((text, ""));
            let help = if help.is_empty() { "writepath --help" } else { help };
            Out::of_this_process().fail(Exit::Usage, "usage", what, help)
        }
        Err(help) => output::help(&help.render().to_string()),
    }
}

/// All that clap knows of the program.
fn built() -> clap::Command {
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
        Verb::Perturb(a) => cmd::perturb::run(&a, out),
        Verb::Mkfs(a) => cmd::mkfs::run(&a, out),
        Verb::Inspect(a) => cmd::inspect::run(&a, out),
        Verb::Fsck(a) => cmd::fsck::run(&a, out),
        Verb::Recover(a) => cmd::recover::run(&a, out),
        Verb::Replay(a) => cmd::replay::run(&a, out),
        Verb::Serve(a) => cmd::serve::run(&a, out),
        Verb::KernelLab(a) => cmd::kernel_lab::run(&a, out),
        Verb::List(a) => cmd::list::run(&a, &built(), out),
        Verb::Man(a) => cmd::man::man(&a, Cli::command(), out),
        Verb::Completions(a) => cmd::man::completions(&a, Cli::command(), out),
    }
}
