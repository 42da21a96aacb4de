//! `recover`.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::{SECTOR_BYTES, Sector, Zone, plain, zone_report};
use wp_machine::host::output::commit_all;
use wp_machine::host::{Output, Shape};
use wp_machine::recover::{InPlace, Stopped, copy, write};
use wp_vfs::{Inspection, RecoveryPlan};

use crate::images::{Images, Part, recovery_options};
use crate::output::{Exit, Out};
use crate::outputs;

/// What to do about a recovery that ended early.
const AGAIN: &str = "the image can still be recovered: run the same command again";

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath recover crashed.img --to recovered.img\n\
    \x20 writepath recover disk.img --era 4.6\n\
    \x20 writepath recover conv.img zns.img --zones report.txt --zones-to new.txt")]
pub struct Args {
    /// Image files: all devices of one file system, in its order
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// Write the recovered raw image to a new file; once for each image
    #[arg(long)]
    to: Vec<PathBuf>,
    /// Kernel version whose recovery rules apply [default: the newest]
    #[arg(long)]
    era: Option<String>,
    #[command(flatten)]
    part: Part,
    /// Output of `blkzone report` for the last device, after the crash
    #[arg(long, value_name = "REPORT")]
    zones: Option<PathBuf>,
    /// Use order-preserving recovery (F2FS on zoned devices)
    ///
    /// Leaves out nodes whose data was not written; Linux would accept them with stale data.
    #[arg(long, requires = "zones")]
    oprw: bool,
    /// Write the zone states that the recovered image needs to a new file
    ///
    /// Resets, finishes and write pointers, as `blkzone report` prints them.
    #[arg(long, value_name = "FILE", requires = "zones")]
    zones_to: Option<PathBuf>,
}

/// What recovery makes of an image.
struct Recovered {
    fs: &'static str,
    plan: RecoveryPlan,
    /// What was left out, and why.
    inspection: Inspection,
}

/// Runs the verb. Exit 1 if the recovered image is damaged.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    recover(a, out).unwrap_or_else(|e| e)
}

fn recover(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    if !a.to.is_empty() && a.to.len() != a.images.len() {
        let message = format!("--to: {} files for {} images", a.to.len(), a.images.len());
        return Err(out.fail(Exit::Usage, "to", &message, "give --to once for each image"));
    }
    // Whatever cannot be written ends it before any work.
    let copies =
        a.to.iter().map(|to| outputs::new(to, Shape::Image, out)).collect::<Result<_, _>>()?;
    let zones = outputs::asked(a.zones_to.as_deref(), Shape::Text, out)?;
    let in_place = if a.to.is_empty() { open_in_place(&a.images, out)? } else { Vec::new() };
    let images = Images::open(&a.images, &a.part, a.zones.as_deref(), out)?;
    if a.to.is_empty() && images.is_unpacked() {
        let message = format!("{}: an image in a container is not written", images.name());
        return Err(out.fail(Exit::Usage, "to", &message, "give --to NEW for the raw image"));
    }
    let done = in_memory(a, &images, out)?;
    let stop = out.interrupt();
    if a.to.is_empty() {
        write_in_place((in_place, zones), &images, &done.plan, &stop, out)?;
    } else {
        write_copies(a, (copies, zones), &images, &done.plan, &stop, out)?;
    }
    Ok(answer(if a.to.is_empty() { &a.images } else { &a.to }, &done, out))
}

/// Recovers without writing anything. Errors: reported to the user.
fn in_memory(a: &Args, images: &Images, out: &Out) -> Result<Recovered, ExitCode> {
    let done = images.with(out, |view, fs| {
        let mut options = recovery_options(fs, a.era.as_deref(), out)?;
        if a.oprw {
            let set = options.set("oprw", "true", fs.options);
            let help = "see `writepath list fs` for the options of a file system";
            set.map_err(|e| out.fail(Exit::Usage, "oprw", &e.to_string(), help))?;
        }
        let plan = (fs.recover)(view, &options);
        let done = plan.and_then(|plan| {
            let inspection = (fs.inspect)(view, &options, false)?;
            Ok(Recovered { fs: fs.name, plan, inspection })
        });
        Ok::<_, ExitCode>(done)
    })??;
    done.map_err(|e| out.fs_error(&images.name(), &e))
}

fn open_in_place(paths: &[PathBuf], out: &Out) -> Result<Vec<InPlace>, ExitCode> {
    let open = |path: &PathBuf| {
        InPlace::open(path).map_err(|e| {
            let message = format!("{}: cannot be recovered in place: {e}", path.shown());
            let help = "nothing was written; --to NEW writes the recovered image to a new file";
            out.fail(Exit::HostIo, "host-io", &message, help)
        })
    };
    paths.iter().map(open).collect()
}

fn write_in_place(
    (mut devices, zones): (Vec<InPlace>, Option<Output>),
    images: &Images,
    plan: &RecoveryPlan,
    stop: &AtomicBool,
    out: &Out,
) -> Result<(), ExitCode> {
    let places = images.places();
    let failed = |devices: &[InPlace], device: usize, e: &io::Error, help: &str| {
        let name = devices.get(device).map_or(Path::new(""), InPlace::path);
        out.fail(Exit::HostIo, "host-io", &format!("{}: {e}", name.shown()), help)
    };
    InPlace::reserve(&devices, places, plan).map_err(|(device, e)| {
        failed(&devices, device, &e, "nothing was written; free some space first")
    })?;
    // Before the image: of one that is recovered nobody can tell them any more.
    let zones_to = zones.as_ref().map(|zones| zones.path().to_owned());
    if let Some(zones) = zones {
        outputs::finish(zones, zones_text(images, plan).as_bytes(), out)?;
    }
    let done = write(&mut devices, places, plan, stop);
    // They tell of an image that is not recovered; a pipe or a terminal stays.
    if let (Err(_), Some(file)) = (&done, &zones_to)
        && std::fs::symlink_metadata(file).is_ok_and(|m| m.is_file())
    {
        drop(std::fs::remove_file(file));
    }
    done.map_err(|stopped| match stopped {
        Stopped::Failed { device, error } => failed(&devices, device, &error, AGAIN),
        Stopped::Interrupted => interrupted(&images.name(), AGAIN, out),
    })
}

fn write_copies(
    a: &Args,
    (mut copies, zones): (Vec<Output>, Option<Output>),
    images: &Images,
    plan: &RecoveryPlan,
    stop: &AtomicBool,
    out: &Out,
) -> Result<(), ExitCode> {
    let ended = |path: &Path, e: &io::Error| match e.kind() {
        io::ErrorKind::Interrupted => interrupted(&images.name(), "no file was written", out),
        io::ErrorKind::AlreadyExists => {
            let help = "another process created it; name a new file";
            out.fail(Exit::Usage, "exists", &format!("{} exists", path.shown()), help)
        }
        _ => out.host_error(path, e),
    };
    for ((to, from), image) in copies.iter().zip(&a.images).zip(images.files()) {
        copy(image, from, to, stop).map_err(|e| ended(to.path(), &e))?;
    }
    write(&mut copies, images.places(), plan, stop).map_err(|stopped| match stopped {
        Stopped::Failed { device, error } => {
            ended(copies.get(device).map_or(Path::new(""), Output::path), &error)
        }
        Stopped::Interrupted => ended(Path::new(""), &io::ErrorKind::Interrupted.into()),
    })?;
    if let Some(mut zones) = zones {
        let path = zones.path().to_owned();
        let text = zones_text(images, plan);
        io::Write::write_all(&mut zones, text.as_bytes()).map_err(|e| ended(&path, &e))?;
        copies.push(zones);
    }
    commit_all(copies).map_err(|(path, e)| ended(&path, &e))
}

/// The zones of the recovered image, addressed from the last device's start again.
fn zones_text(images: &Images, plan: &RecoveryPlan) -> String {
    let first = plan.zones.first().map_or(0, |z| z.start.0);
    let bytes = images.lengths().last().copied().unwrap_or(0);
    zone_report::text(&Zone::within(&plan.zones, Sector(first), bytes / SECTOR_BYTES))
}

fn interrupted(image: &str, help: &str, out: &Out) -> ExitCode {
    out.fail(Exit::Interrupted, "interrupted", &format!("{image}: interrupted"), help)
}

fn answer(targets: &[PathBuf], done: &Recovered, out: &Out) -> ExitCode {
    let (pages, found) = (done.plan.pages(), &done.inspection);
    let doc = json!({
        "schema": "writepath.recover/1", "image": targets[0], "images": targets, "fs": done.fs,
        "pages_written": pages, "left_out": found.left_out, "findings": found.findings,
    });
    let target: Vec<String> = targets.iter().map(|p| p.display().to_string()).collect();
    let mut text = format!("{}: {pages} pages written", plain::name(&target.join(" + ")));
    let exit = match found.findings.len() {
        0 => Exit::Ok,
        n => {
            let findings = if n == 1 { "finding" } else { "findings" };
            write!(text, "; still damaged, {n} {findings}").expect("a string takes it");
            Exit::No
        }
    };
    text.push('\n');
    for line in &found.left_out {
        writeln!(text, "  left out: {}", plain::name(line)).expect("a string takes it");
    }
    for line in &found.findings {
        writeln!(text, "  finding: {}", plain::name(line)).expect("a string takes it");
    }
    out.answer(exit, &doc, &text)
}
