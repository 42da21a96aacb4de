//! `mount`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_fuse::{Mounted, Pace, RecordError};
use wp_machine::Machine;
use wp_machine::host::Shape;

use super::run::{Setup, machine_spec};
use crate::output::{Exit, Out};
use crate::{outputs, signals};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath mount --fs ext4,era=3.4 /mnt\n\
    \x20 writepath mount --fs f2fs --device ssd-128 --clock paced --save after.img /mnt\n\
    \x20 writepath mount --image before.img --fs ext4 /mnt")]
pub struct Args {
    /// Directory to mount at
    dir: PathBuf,
    /// File system and options: ext4,nodelalloc
    ///
    /// The option `era` is the kernel version whose rules the file system follows.
    #[arg(long, value_name = "NAME", default_value = "ext4,era=6.18")]
    fs: String,
    /// Device preset and parameters; join several by +
    #[arg(long, value_name = "PRESET", default_value = "ssd-128")]
    device: String,
    /// I/O scheduler [default: the one of the kernel version]
    #[arg(long, value_name = "NAME")]
    elevator: Option<String>,
    /// CPU cost profile: one of `list cpus`
    #[arg(long, value_name = "PROFILE", default_value = "i7-4770")]
    cpu: String,
    /// Start from this image instead of a new file system; it is not changed
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Save the partition to this new file after the unmount
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// free: calls return at once; paced: after the modelled time
    #[arg(long, value_name = "CLOCK", default_value = "free", value_parser = ["free", "paced"])]
    #[arg(hide_possible_values = true)]
    clock: String,
}

/// Mounts until it is unmounted or interrupted.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match mounted(a, out) {
        Ok(code) | Err(code) => code,
    }
}

fn mounted(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    let help = "`writepath list fs` and `list devices` list names and options";
    let setup = Setup::of(&a.device, a.elevator.as_deref(), &a.cpu);
    let spec = machine_spec(&a.fs, &setup);
    let spec = spec.map_err(|e| out.fail(Exit::Usage, "config", &e, help))?;
    if !a.dir.is_dir() {
        let what = format!("{}: not a directory", a.dir.shown());
        return Err(out.fail(Exit::Usage, "mount", &what, &format!("mkdir {}", a.dir.shown())));
    }
    let save = outputs::asked(a.save.as_deref(), Shape::Image, out)?;
    let image = match &a.image {
        Some(path) => Some(crate::images::load(path, out)?.0),
        None => None,
    };
    let interrupted = out.interrupt();
    let pace = if a.clock == "paced" { Pace::Paced } else { Pace::Free };
    let machine = Machine::new(spec, image).map_err(|e| out.machine_error(&e))?;
    let vfs = machine.mount().map_err(|e| out.machine_error(&e))?;
    let dir = a.dir.shown();
    let ready = || {
        out.note(&format!(
            "{dir}: {} on {}, clock {}; `umount {dir}` or Ctrl-C ends it",
            a.fs, a.device, a.clock
        ));
    };
    let done =
        wp_fuse::mount(&machine, &vfs, (&a.dir, pace, a.image.is_none()), &interrupted, ready);
    let Mounted { calls, was_busy } = match done {
        Ok(done) => done,
        Err(RecordError::Machine(e)) => return Err(out.machine_error(&e)),
        Err(e) => {
            let what = format!("{dir}: {e}");
            let help = "mounting needs root, or fusermount3 (Debian: fuse3)";
            return Err(out.fail(Exit::HostIo, "mount", &what, help));
        }
    };
    if was_busy {
        out.note(&format!("{dir}: was in use; processes that use it get errors from now on"));
    }
    machine.unmount(&vfs).map_err(|e| out.machine_error(&e))?;
    if let Some(file) = save {
        let (view, path) = (machine.view(), file.path().to_owned());
        wp_machine::files::save_as(&view.medium, view.start, view.bytes, file)
            .map_err(|e| out.host_error(&path, &e))?;
    }
    let ns = machine.rt.now().0;
    let document = json!({
        "calls": calls,
        "virtual_ns": ns,
        "was_busy": was_busy,
        "saved": a.save.as_ref().map(|path| path.shown().to_string()),
    });
    let text = format!(
        "{dir}: unmounted after {calls} system calls, {:.3} s of virtual time\n",
        ns as f64 / 1e9
    );
    if signals::has_come() && a.save.is_none() && calls > 0 {
        out.note("nothing was saved: --save FILE keeps the partition");
    }
    Ok(out.answer(Exit::Ok, &document, &text))
}
