//! `serve`: modelled drives for real clients.

mod nbd;
mod vhost;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::{SECTOR_BYTES, Sector};
use wp_lab::files::{load, save};
use wp_lab::machine::make_device;
use wp_lab::spec::device;
use wp_medium::write_log::write_log;
use wp_serve::drive::Log;
use wp_serve::drive::freeze::Loss;
use wp_serve::{ClockKind, Drive, control};

use crate::output::{Exit, Out, path};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    how: How,
}

#[derive(clap::Subcommand)]
enum How {
    /// As a network block device (fixed newstyle), for qemu, nbd-client, libnbd, fio.
    Nbd(nbd::Args),
    /// As a virtio disk of a guest (vhost-user-blk): User-Mode Linux, also in virtual time; QEMU.
    VhostUserBlk(vhost::Args),
}

/// What stands behind a drive.
#[derive(clap::Args, Clone)]
struct DriveArgs {
    /// The device: a preset of `list devices`, with parameters: ssd-p16,gc_low_superblocks=8.
    #[arg(long, value_name = "PRESET", required_unless_present = "image")]
    device: Option<String>,
    /// An image file, read and written in place: no model, no time, no loss contract.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "load", "save"])]
    image: Option<PathBuf>,
    /// Begin with what this image holds.
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// At the end write what the drive holds to this image.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// What a power cut may take: what the model has not made durable, or all that neither a flush
    /// nor a forced write has covered.
    #[arg(long, value_name = "model|contract", default_value = "model")]
    loss: String,
    /// Write down every request and answer, as blkparse prints them.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// At the end write everything that was written as a log of dm-log-writes, which `replay` and
    /// the kernel's tools read; it is kept in memory until then.
    #[arg(long, value_name = "FILE")]
    log_writes: Option<PathBuf>,
    /// Refuse all writes.
    #[arg(long)]
    read_only: bool,
}

impl DriveArgs {
    /// Those of a further drive of this preset: the loss contract is the same, files are not.
    fn of_another(&self, preset: &str) -> DriveArgs {
        let device = Some(preset.to_owned());
        DriveArgs {
            device,
            image: None,
            load: None,
            save: None,
            trace: None,
            log_writes: None,
            ..self.clone()
        }
    }
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match &a.how {
        How::Nbd(a) => nbd::run(a, out),
        How::VhostUserBlk(a) => vhost::run(a, out),
    }
}

/// Makes the drive that the arguments tell of; on failure says why and with which code to end.
fn drive(a: &DriveArgs, out: &Out) -> Result<Drive, ExitCode> {
    let Some(loss) = Loss::find(&a.loss) else {
        let message = format!("--loss {}: there are model and contract", a.loss);
        return Err(out.fail(Exit::Usage, "loss", &message, "--loss model"));
    };
    let mut drive = match (&a.image, &a.device) {
        (Some(path), _) => {
            Drive::of_file(path, a.read_only).map_err(|e| out.host_error(path, &e))?
        }
        (None, Some(text)) => {
            let wrong = |e: String| out.fail(Exit::Usage, "device", &e, "writepath list devices");
            let (name, params) = device(text).map_err(wrong)?;
            let model = make_device(&name, &params).map_err(|e| out.machine_error(&e))?;
            Drive::new(&name, model, loss)
        }
        (None, None) => {
            let message = "no drive is named";
            return Err(out.fail(
                Exit::Usage,
                "device",
                message,
                "--device PRESET or --image FILE",
            ));
        }
    };
    if let Some(path) = &a.load {
        let (medium, bytes) = load(path).map_err(|e| out.host_error(path, &e))?;
        let room = drive.limits().sectors * SECTOR_BYTES;
        if bytes > room {
            let message = format!("{}: {bytes} bytes, the drive has {room}", path.display());
            return Err(out.fail(Exit::Usage, "load", &message, "set its capacity_bytes"));
        }
        drive.load(&medium).map_err(|e| {
            let message = format!("{}: {e}", path.display());
            out.fail(Exit::Usage, "load", &message, "raise its max_active_zones and max_open_zones")
        })?;
    }
    if a.read_only {
        drive.set_read_only();
    }
    if a.log_writes.is_some() {
        drive.keep_writes();
    }
    if let Some(path) = &a.trace {
        let file = std::fs::File::create(path).map_err(|e| out.host_error(path, &e))?;
        drive.record(Log::new(Box::new(file)));
    }
    Ok(drive)
}

/// The clock of this name; on failure says why and with which code to end.
fn clock(name: &str, out: &Out) -> Result<ClockKind, ExitCode> {
    ClockKind::find(name).ok_or_else(|| {
        let message = format!("--clock {name}: there are free and paced");
        out.fail(Exit::Usage, "clock", &message, "--clock free")
    })
}

/// What is left to do when a server has ended: the record, the image; what it has done.
fn end(a: &DriveArgs, mut drive: Drive, out: &Out) -> Result<Value, ExitCode> {
    if let Some(path) = &a.trace {
        drive.end_record().map_err(|e| out.host_error(path, &e))?;
    }
    if let Some(path) = &a.log_writes {
        let file = std::fs::File::create(path).map(BufWriter::new);
        let unit = drive.limits().logical_bytes;
        let logged = file.and_then(|mut file| {
            write_log(&mut file, unit, drive.written())?;
            file.flush()
        });
        logged.map_err(|e| out.host_error(path, &e))?;
    }
    if let (Some(path), Some(medium)) = (&a.save, drive.medium()) {
        let bytes = drive.limits().sectors * SECTOR_BYTES;
        save(&medium, Sector(0), bytes, path).map_err(|e| out.host_error(path, &e))?;
    }
    let mut status = control::status(&drive);
    status["saved"] = json!(a.save.as_deref().map(path));
    Ok(status)
}

/// What a drive has done, for people.
fn summary(status: &Value) -> String {
    let counts = &status["counts"];
    format!(
        "{}: {} reads, {} writes, {} flushes, {} discards, {} commands for zones; virtual time {}.{:09} s\n",
        status["drive"].as_str().unwrap_or_default(),
        counts["reads"],
        counts["writes"],
        counts["flushes"],
        counts["discards"],
        counts["zone_commands"],
        status["now_ns"].as_u64().unwrap_or(0) / 1_000_000_000,
        status["now_ns"].as_u64().unwrap_or(0) % 1_000_000_000,
    )
}

/// Says where clients find something.
fn ready(out: &Out, what: &str, place: &Path) {
    out.note(&format!("{what}: {}", place.display()));
}
