//! `kernel-lab`: a real kernel's file system on a modelled drive, and power failures.
//!
//! Picture: [`args`] (what clap reads) -> [`plan`] (the same, typed; every usage error) -> a
//!          [`Session`] with the guest, which runs a campaign, the rows of a [`suite`] or a
//!          [`program`].

mod args;
mod both;
mod compare;
mod explore;
mod fstests;
mod kernel_states;
mod plan;
mod program;
mod report;
mod setup;
mod suite;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wp_machine::host::{Scratch, Shape};
use wp_parity::kernel_lab::{Keep, Kernel, Report, fsyncs, run as lab};
use wp_serve::drive::Log;

pub use self::args::Args;
use self::plan::{Asked, Campaign, Guest};
use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match asked(a, out) {
        Ok(code) | Err(code) => code,
    }
}

fn asked(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    match Asked::new(a).map_err(|wrong| wrong.told(out))? {
        Asked::Setup(asked) => setup::run(&asked, out),
        Asked::Suite(guest, suite) => suite::run(&Session::new(&guest, out)?, &suite, out),
        Asked::Fstests(guest, asked) => fstests::run(&Session::new(&guest, out)?, &asked, out),
        Asked::Program(guest, asked) => {
            program::run(&Session::new(&guest, out)?, &asked, &a.states, out)
        }
        Asked::Campaign(guest, campaign) => {
            let report = Session::new(&guest, out)?.campaign(&campaign, "")?;
            Ok(report::print(&campaign, &report, out))
        }
    }
}

/// What campaigns have in common.
struct Session<'a> {
    kernel: Kernel,
    out: &'a Out,
    stop: Arc<AtomicBool>,
}

impl Session<'_> {
    fn new<'a>(guest: &Guest, out: &'a Out) -> Result<Session<'a>, ExitCode> {
        let found = Kernel::find(guest.kernel.as_deref(), guest.root.as_deref());
        let kernel = found.map_err(|e| {
            out.fail(
                Exit::Unsupported,
                "guest",
                &e,
                "kernel-lab --setup build; or --kernel FILE --root DIR, or GUEST=DIR",
            )
        })?;
        let kernel = Kernel { memory_mib: guest.memory_mib, ..kernel };
        Ok(Session { kernel, out, stop: out.interrupt() })
    }

    /// Runs one. `of` says in its progress which.
    fn campaign(&self, c: &Campaign, of: &str) -> Result<Report, ExitCode> {
        let (out, plan) = (self.out, &c.plan);
        let scratch = scratch(out)?;
        let recorded = outputs::asked(c.trace.as_deref(), Shape::Text, out)?;
        let trace = recorded.as_ref().map(|file| file.file().try_clone()).transpose();
        let trace = trace.map_err(|e| out.host_error(scratch.path(), &e))?;
        let trace = trace.map(|file| Log::new(Box::new(file)));
        let said = outputs::asked(c.messages.as_deref(), Shape::Text, out)?;
        let shown = Progress::new("kernel-lab");
        let mut progress = |done: u64| {
            shown.at(done, plan.cycles, format_args!("{of}power failures"));
            self.stop.load(Ordering::Relaxed)
        };
        if let Some(folder) = &c.keep {
            outputs::empty_folder(folder, out)?;
        }
        let keep = Keep { trace, images: c.keep.as_deref(), messages: said };
        let done = lab(&self.kernel, plan, scratch.path(), keep, &mut progress);
        drop(shown);
        // The report is what is kept.
        drop(scratch);
        // What has failed is looked for in it.
        if let Some(file) = recorded {
            outputs::finish(file, &[], out)?;
        }
        let mut report = done.map_err(|e| out.fail(Exit::Simulated, "guest", &e, ""))?;
        if c.beside {
            let rounds: Vec<u64> = report.cycles.iter().map(|c| c.fsyncs).collect();
            match fsyncs::play(plan, &report.kernel, &rounds) {
                Ok(ours) => report.ours_fsyncs = Some(ours),
                Err(why) => out.note(&format!("{of}Writepath's file system cannot run it: {why}")),
            }
        }
        Ok(report)
    }
}

/// A directory for what a guest and we share.
fn scratch(out: &Out) -> Result<Scratch, ExitCode> {
    let made = Scratch::new("writepath-kernel-lab");
    made.map_err(|e| {
        out.fail(Exit::HostIo, "host-io", &e.to_string(), "set TMPDIR to a writable folder")
    })
}
