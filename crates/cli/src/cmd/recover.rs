//! `recover`.

use std::fmt::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use wp_base::{FsError, SECTOR_BYTES, Sector, Zone, zone_report};
use wp_medium::{Overlay, Slice, View};
use wp_vfs::{FsEntry, Inspection, Options};

use crate::images::Images;
use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Image file; of a file system on several devices all of them, in its order.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// Write the recovered image to this new file and leave the original alone; once for each
    /// image.
    #[arg(long)]
    to: Vec<PathBuf>,
    /// Kernel whose recovery rules apply.
    #[arg(long, default_value = "6.18")]
    era: String,
    /// The zones of the (last) device after the crash, as `blkzone report` printed them.
    #[arg(long, value_name = "REPORT")]
    zones: Option<PathBuf>,
    /// Order-preserving recovery (F2FS on zones): leaves out nodes whose data was not written,
    /// which Linux would take with whatever stands there.
    #[arg(long, requires = "zones")]
    oprw: bool,
    /// Write the zones as they are with the recovered image to this new file: resets, finishes and
    /// write pointers that the device must have.
    #[arg(long, value_name = "FILE", requires = "zones")]
    zones_to: Option<PathBuf>,
}

/// What recovery makes of an image.
struct Recovered {
    fs: &'static str,
    writes: Vec<(Sector, Slice)>,
    /// The zones with them.
    zones: Vec<Zone>,
    /// What was left out, and why.
    inspection: Inspection,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    recover(a, out).unwrap_or_else(|e| e)
}

fn recover(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    let images = Images::open(&a.images, a.zones.as_deref(), out)?;
    if !a.to.is_empty() && a.to.len() != a.images.len() {
        let message = format!("--to: {} files for {} images", a.to.len(), a.images.len());
        return Err(out.fail(Exit::Usage, "to", &message, "give it once for each image"));
    }
    let done = images.with(out, |view, fs| in_memory(a, view, fs, out))??;
    let done = done.map_err(|e| out.fs_error(&images.name(), &e))?;
    for new in a.to.iter().chain(&a.zones_to) {
        if new.exists() {
            let message = format!("{} exists", new.display());
            return Err(out.fail(Exit::Usage, "exists", &message, "name a new file"));
        }
    }
    for (from, to) in a.images.iter().zip(&a.to) {
        std::fs::copy(from, to).map_err(|e| out.host_error(to, &e))?;
    }
    let targets = if a.to.is_empty() { &a.images } else { &a.to };
    write(targets, &images.lengths(), &done.writes).map_err(|(p, e)| out.host_error(p, &e))?;
    if let Some(file) = &a.zones_to {
        // Addressed from the last device's start again.
        let first = done.zones.first().map_or(0, |z| z.start.0);
        let bytes = images.lengths().last().copied().unwrap_or(0);
        let zones = Zone::within(&done.zones, Sector(first), bytes / SECTOR_BYTES);
        std::fs::write(file, zone_report::text(&zones)).map_err(|e| out.host_error(file, &e))?;
    }
    let target: Vec<String> = targets.iter().map(|p| p.display().to_string()).collect();
    let doc = json!({
        "schema": "writepath.recover/1", "image": targets[0], "images": targets, "fs": done.fs,
        "pages_written": done.writes.len(), "left_out": done.inspection.left_out,
        "findings": done.inspection.findings,
    });
    let mut text = format!("{}: {} pages written\n", target.join(" + "), done.writes.len());
    for line in &done.inspection.left_out {
        writeln!(text, "  left out: {line}").expect("a string takes it");
    }
    for line in &done.inspection.findings {
        writeln!(text, "  finding: {line}").expect("a string takes it");
    }
    Ok(out.result(&doc, &text))
}

/// Recovers without writing anything. Errors: of options, told to the user already; of the image.
fn in_memory(
    a: &Args,
    view: &dyn View,
    fs: &'static FsEntry,
    out: &Out,
) -> Result<Result<Recovered, FsError>, ExitCode> {
    let mut options = Options::default();
    let mut set = |key: &str, value: &str| {
        options.set(key, value, fs.options).map_err(|e| {
            let help = "see `writepath list fs` for what this file system knows";
            out.fail(Exit::Usage, key, &e.to_string(), help)
        })
    };
    set("era", &a.era)?;
    if a.oprw {
        set("oprw", "true")?;
    }
    let recover = || {
        let writes = (fs.recover)(view, &options)?;
        let inspection = (fs.inspect)(view, &options, false)?;
        let overlay = Overlay::new(view);
        if a.zones_to.is_some() {
            (fs.survey)(&overlay, &options)?;
        }
        Ok(Recovered { fs: fs.name, writes, zones: overlay.zones(), inspection })
    };
    Ok(recover())
}

/// Writes what lies on each of the devices. Errors: which file, and the host's.
fn write<'a>(
    targets: &'a [PathBuf],
    lengths: &[u64],
    writes: &[(Sector, Slice)],
) -> Result<(), (&'a Path, std::io::Error)> {
    let mut start = 0;
    for (path, len) in targets.iter().zip(lengths) {
        let on_it = writes.iter().filter(|(at, _)| (start..start + len).contains(&at.bytes()));
        let all = || -> std::io::Result<()> {
            let file = std::fs::OpenOptions::new().write(true).open(path)?;
            for (at, data) in on_it {
                file.write_all_at(&data.to_vec(), at.bytes() - start)?;
            }
            file.sync_all()
        };
        all().map_err(|e| (path.as_path(), e))?;
        start += len;
    }
    Ok(())
}
