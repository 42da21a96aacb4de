//! The `writepath` command: argument parsing and printing only.

mod cmd;
mod images;
mod output;

use clap::{Parser, Subcommand};

use output::{Exit, Out};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The write path from a system call to the flash page, as one deterministic program.
///
/// Exit codes: 0 ok · 1 the answer is no (claim not met, difference, corruption found) · 2 usage or
/// syntax · 3 unsupported · 4 simulated error that the experiment did not expect · 5 internal bug ·
/// 74 host I/O error · 130 interrupted (what is done is kept).
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
    /// Run one workload on one file system, elevator and device.
    Run(cmd::run::Args),
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
    /// List what there is: file systems, devices, elevators, workloads, papers, techniques, eras,
    /// CPU profiles.
    List(cmd::list::Args),
}

fn main() -> std::process::ExitCode {
    wp_lab::memory::keep_freed();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // clap's own text goes where it belongs: help to stdout, errors to stderr.
            let code = if e.use_stderr() { Exit::Usage } else { Exit::Ok };
            let json = std::env::args().any(|a| a == "--json");
            if json && e.use_stderr() {
                return Out::new(true).fail(
                    Exit::Usage,
                    "usage",
                    &e.to_string(),
                    "writepath --help",
                );
            }
            let printed = e.print();
            return if printed.is_ok() { code.into() } else { Exit::HostIo.into() };
        }
    };
    let out = Out::new(cli.json);
    match cli.verb {
        Verb::Reproduce(a) => cmd::reproduce::run(&a, &out),
        Verb::Run(a) => cmd::run::run(&a, &out),
        Verb::Fio(a) => cmd::fio::run(&a, &out),
        Verb::Filebench(a) => cmd::filebench::run(&a, &out),
        Verb::Trace(a) => cmd::trace::run(&a, &out),
        Verb::Explain(a) => cmd::explain::run(&a, &out),
        Verb::Diff(a) => cmd::diff::run(&a, &out),
        Verb::Device(a) => cmd::device::run(&a, &out),
        Verb::Kernels(a) => cmd::kernels::run(&a, &out),
        Verb::Crash(a) => cmd::crash::run(&a, &out),
        Verb::Matrix(a) => cmd::matrix::run(&a, &out),
        Verb::Perturb(a) => cmd::perturb::run(&a, &out),
        Verb::Mkfs(a) => cmd::mkfs::run(&a, &out),
        Verb::Inspect(a) => cmd::inspect::run(&a, &out),
        Verb::Fsck(a) => cmd::fsck::run(&a, &out),
        Verb::Recover(a) => cmd::recover::run(&a, &out),
        Verb::Replay(a) => cmd::replay::run(&a, &out),
        Verb::List(a) => cmd::list::run(&a, &out),
    }
}
