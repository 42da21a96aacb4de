//! `serve`: simulated drives over NBD and vhost-user.

mod clients;
mod control;
mod nbd;
mod vhost;

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_base::{SECTOR_BYTES, Sector};
use wp_machine::files::{load, save_as};
use wp_machine::host::{Output, Shape};
use wp_machine::make_device;
use wp_machine::spec::device;
use wp_medium::write_log::write_log;
use wp_serve::drive::Log;
use wp_serve::drive::freeze::Loss;
use wp_serve::{ClockKind, Drive};

use crate::images::refuse_container;
use crate::output::{Exit, Out, path};
use crate::outputs;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath serve nbd --device ssd-p16 --socket nbd.sock\n\
    \x20 writepath serve nbd --image disk.img --socket nbd.sock\n\
    \x20 writepath serve control control.sock status")]
pub struct Args {
    #[command(subcommand)]
    how: How,
}

#[derive(clap::Subcommand)]
enum How {
    /// Serve the drive over NBD, for nbd-client, QEMU, libnbd and fio.
    ///
    /// Speaks the fixed newstyle protocol.
    Nbd(nbd::Args),
    /// Serve the drive as a vhost-user-blk disk, for QEMU and User-Mode Linux.
    ///
    /// A User-Mode Linux guest can also run in virtual time (--calendar).
    VhostUserBlk(vhost::Args),
    /// Send commands to a server: status, freeze, thaw, save, quit.
    Control(control::Args),
}

/// What stands behind a drive.
#[derive(clap::Args, Clone)]
struct DriveArgs {
    /// Device preset and parameters: ssd-p16,gc_low_superblocks=8
    ///
    /// `writepath list devices` lists presets and parameters.
    #[arg(long, value_name = "PRESET", required_unless_present = "image")]
    device: Option<String>,
    /// Serve this image file in place, without a device model
    ///
    /// Requests take no virtual time, and a power failure loses nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "load", "save"])]
    image: Option<PathBuf>,
    /// Start with the contents of this image
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// Save the contents at exit to a new image, or to --load's
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// What a power failure loses
    ///
    /// model: the writes that the device model has not made durable. contract: every write that
    /// neither a flush nor FUA covers, which is what the specification allows.
    #[arg(long, value_name = "model|contract", default_value = "model")]
    loss: String,
    /// Write requests and completions to a new file, as blkparse text
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write all writes at exit to a new file, a dm-log-writes log
    ///
    /// `replay` and the kernel's replay-log read it. The server keeps the writes in memory until it
    /// ends.
    #[arg(long, value_name = "FILE")]
    log_writes: Option<PathBuf>,
    /// Refuse all writes
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
        How::Control(a) => control::run(a, out),
    }
}

/// What is written when a server has ended.
struct Outputs {
    save: Option<Output>,
    trace: Option<Output>,
    log_writes: Option<Output>,
}

impl Outputs {
    /// Tries them; on failure says why and with which code to end.
    fn begin(a: &DriveArgs, out: &Out) -> Result<Outputs, ExitCode> {
        let real = |path: &Option<PathBuf>| path.as_ref().and_then(|p| p.canonicalize().ok());
        let is_loaded = real(&a.save).is_some_and(|save| Some(save) == real(&a.load));
        let save = |path: &Path| {
            let help = "name a new file, or that of --load";
            outputs::forced(path, (Shape::Image, is_loaded), help, out)
        };
        Ok(Outputs {
            save: a.save.as_deref().map(save).transpose()?,
            trace: outputs::asked(a.trace.as_deref(), Shape::Text, out)?,
            log_writes: outputs::asked(a.log_writes.as_deref(), Shape::Text, out)?,
        })
    }
}

/// Makes the drive that the arguments tell of, and tries its outputs; on failure says why and with
/// which code to end.
fn drive(a: &DriveArgs, out: &Out) -> Result<(Drive, Outputs), ExitCode> {
    let outputs = Outputs::begin(a, out)?;
    Ok((made(a, &outputs, out)?, outputs))
}

fn made(a: &DriveArgs, outputs: &Outputs, out: &Out) -> Result<Drive, ExitCode> {
    let Some(loss) = Loss::find(&a.loss) else {
        let message = format!("--loss {}: no such loss contract (model, contract)", a.loss);
        return Err(out.fail(Exit::Usage, "loss", &message, "--loss model"));
    };
    let mut drive = match (&a.image, &a.device) {
        (Some(path), _) => {
            refuse_container(path, out)?;
            Drive::of_file(path, a.read_only).map_err(|e| out.host_error(path, &e))?
        }
        (None, Some(text)) => {
            let wrong = |e: String| out.fail(Exit::Usage, "device", &e, "writepath list devices");
            let (name, params) = device(text).map_err(wrong)?;
            let model = make_device(&name, &params).map_err(|e| out.machine_error(&e))?;
            Drive::new(&name, model, loss)
        }
        (None, None) => {
            let message = "no drive is given";
            return Err(out.fail(
                Exit::Usage,
                "device",
                message,
                "--device PRESET or --image FILE",
            ));
        }
    };
    if let Some(path) = &a.load {
        refuse_container(path, out)?;
        let (medium, bytes) = load(path).map_err(|e| out.host_error(path, &e))?;
        let room = drive.limits().sectors * SECTOR_BYTES;
        if bytes > room {
            let message =
                format!("{}: {bytes} bytes do not fit on the drive ({room} bytes)", path.shown());
            return Err(out.fail(Exit::Usage, "load", &message, "set its capacity_bytes"));
        }
        drive.load(&medium).map_err(|e| {
            let message = format!("{}: {e}", path.shown());
            out.fail(Exit::Usage, "load", &message, "raise its max_active_zones and max_open_zones")
        })?;
    }
    if a.read_only {
        drive.set_read_only();
    }
    if a.log_writes.is_some() {
        drive.keep_writes();
    }
    if let Some(trace) = &outputs.trace {
        let file = trace.file().try_clone().map_err(|e| out.host_error(trace.path(), &e))?;
        drive.record(Log::new(Box::new(file)));
    }
    Ok(drive)
}

/// The clock of this name; on failure says why and with which code to end.
fn clock(name: &str, out: &Out) -> Result<ClockKind, ExitCode> {
    ClockKind::find(name).ok_or_else(|| {
        let message = format!("--clock {name}: no such clock (free, paced)");
        out.fail(Exit::Usage, "clock", &message, "--clock free")
    })
}

/// What went wrong, told when all is done that can be done.
struct Problem {
    exit: Exit,
    code: &'static str,
    message: String,
    help: &'static str,
}

impl Problem {
    fn of_host(path: &Path, e: &std::io::Error) -> Problem {
        let message = format!("{}: {e}", path.shown());
        let (exit, code) = match e.kind() {
            std::io::ErrorKind::AlreadyExists => (Exit::Usage, "exists"),
            _ => (Exit::HostIo, "host-io"),
        };
        Problem { exit, code, message, help: "" }
    }

    fn tell(&self, out: &Out) -> ExitCode {
        out.fail(self.exit, self.code, &self.message, self.help)
    }
}

/// What is left to do when a server has ended, well or not: the image first, then what it was
/// asked; what the drive has done, and what failed. One that fails keeps none of the others.
fn end((mut drive, outputs): (Drive, Outputs)) -> (Value, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut saved = outputs.save.as_ref().map(|save| save.path().to_owned());
    if let (Some(save), Some(medium)) = (outputs.save, drive.medium()) {
        let (bytes, path) = (drive.limits().sectors * SECTOR_BYTES, save.path().to_owned());
        if let Err(e) = save_as(&medium, Sector(0), bytes, save) {
            problems.push(Problem::of_host(&path, &e));
            saved = None;
        }
    }
    if let Some(trace) = outputs.trace {
        let path = trace.path().to_owned();
        let done = drive.end_record().and_then(|()| trace.commit());
        problems.extend(done.err().map(|e| Problem::of_host(&path, &e)));
    }
    if let Some(file) = outputs.log_writes {
        let (unit, path) = (drive.limits().logical_bytes, file.path().to_owned());
        let mut file = BufWriter::new(file);
        let logged = write_log(&mut file, unit, drive.written())
            .and_then(|()| file.into_inner().map_err(|e| e.into_error())?.commit());
        problems.extend(logged.err().map(|e| Problem::of_host(&path, &e)));
    }
    let mut status = wp_serve::control::status(&drive);
    status["saved"] = json!(saved.as_deref().map(path));
    (status, problems)
}

/// What a drive has done, for people.
fn summary(status: &Value) -> String {
    let counts = &status["counts"];
    let (writes, forced) = (counts["writes"].as_u64(), counts["forced_writes"].as_u64());
    // Writes of such a client are never unpersisted once they complete.
    let all_forced = match writes.filter(|n| *n > 0 && writes == forced) {
        Some(_) => "every write used FUA: a power failure loses none of them\n",
        None => "",
    };
    format!(
        "{}: {} reads, {} writes ({} FUA), {} flushes, {} discards, {} zone commands; virtual \
         time {}.{:09} s\n{all_forced}",
        status["drive"].as_str().unwrap_or_default(),
        counts["reads"],
        counts["writes"],
        counts["forced_writes"],
        counts["flushes"],
        counts["discards"],
        counts["zone_commands"],
        status["now_ns"].as_u64().unwrap_or(0) / 1_000_000_000,
        status["now_ns"].as_u64().unwrap_or(0) % 1_000_000_000,
    )
}

/// Says where clients find something.
fn ready(out: &Out, what: &str, place: &Path) {
    out.note(&format!("{what}: {}", place.shown()));
}
