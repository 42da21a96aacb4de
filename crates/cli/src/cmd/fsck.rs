//! `fsck`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain;
use wp_base::plain::Shown as _;
use wp_medium::Sound;
use wp_vfs::Fault;

use crate::images::{Images, Part, recovery_options};
use crate::output::{Exit, Out, path};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath fsck disk.img\n\
    \x20 writepath fsck crashed.img --recover")]
pub struct Args {
    /// Image file, raw or in a container (gzip, xz, zstd, qcow2, simg)
    image: PathBuf,
    /// Recover in memory first, and check the result
    #[arg(long)]
    recover: bool,
    /// Kernel version whose recovery rules apply [default: the newest]
    #[arg(long)]
    era: Option<String>,
    #[command(flatten)]
    part: Part,
}

/// Runs the verb. Exit 1 if the image is wrong.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    fsck(a, out).unwrap_or_else(|e| e)
}

fn fsck(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    let images = Images::open(std::slice::from_ref(&a.image), &a.part, None, out)?;
    let (fs, report) = images.with(out, |view, fs| {
        let options = recovery_options(fs, a.era.as_deref(), out)?;
        Ok::<_, ExitCode>((fs, (fs.check)(view, &options, a.recover, &Sound::default())))
    })??;
    let report = report.map_err(|e| out.fs_error(&a.image.shown(), &e))?;
    let is_replayed = |f: &Fault| f.severity == "fixed-by-replay";
    let state = match (report.is_clean, report.recovered) {
        (true, false) if report.faults.iter().any(is_replayed) => "clean once it is recovered",
        (true, false) => "clean",
        (true, true) => "clean after recovery in memory",
        (false, false) => "not clean",
        (false, true) => "not clean after recovery in memory",
    };
    let mut text = format!("{}: {}, {state}\n", plain::name(&a.image.to_string_lossy()), fs.name);
    for f in &report.faults {
        let fault = format!(
            "{}: {} ({}): {}: found {}, expected {}",
            f.severity, f.kind, f.structure, f.place, f.found, f.expected
        );
        writeln!(text, "  {}", plain::name(&fault)).expect("a string takes it");
    }
    if report.left_out > 0 {
        writeln!(text, "  and {} more", report.left_out).expect("a string takes it");
    }
    if !report.not_checked.is_empty() {
        let all = report.not_checked.join("; ");
        writeln!(text, "  not checked: {all}").expect("a string takes it");
    }
    let doc = json!({
        "schema": "writepath.fsck/1", "image": path(&a.image), "fs": fs.name,
        "clean": report.is_clean,
        "recovered": report.recovered, "left_out": report.left_out,
        "not_checked": report.not_checked,
        "findings": report.faults.iter().map(fault_json).collect::<Vec<_>>(),
    });
    Ok(out.answer(if report.is_clean { Exit::Ok } else { Exit::No }, &doc, &text))
}

fn fault_json(f: &Fault) -> Value {
    json!({
        "kind": f.kind, "structure": f.structure, "severity": f.severity, "place": f.place,
        "found": f.found, "expected": f.expected,
    })
}
