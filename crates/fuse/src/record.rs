//! A program of the host on a file system of ours, once: what it did.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Child;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use fuser::{Session, SessionACL};
use wp_lab::EPOCH_SECS;
use wp_lab::crash::{Bench, live_with_faults};
use wp_lab::host::Scratch;
use wp_lab::machine::{Machine, MachineError, describe};
use wp_vfs::Vfs;

use crate::control::Control;
use crate::door::{Door, config};
use crate::live::{Live, Obey};
use crate::private::spawn;
use crate::recording::Recording;
use crate::serve::{Pace, serve};

/// A run of a program.
#[derive(Debug)]
pub struct Recorded {
    /// What it did.
    pub recording: Recording,
    /// How it ended, as a shell has it: its exit code, or 128 and the signal that killed it.
    pub code: i32,
}

/// Why there is no recording.
#[derive(Debug)]
pub enum RecordError {
    /// The machine or the file system.
    Machine(MachineError),
    /// This host.
    Host(io::Error),
    /// Somebody stopped it.
    Interrupted,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Machine(e) => e.fmt(f),
            RecordError::Host(e) => e.fmt(f),
            RecordError::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl From<MachineError> for RecordError {
    fn from(e: MachineError) -> RecordError {
        RecordError::Machine(e)
    }
}

impl From<io::Error> for RecordError {
    fn from(e: io::Error) -> RecordError {
        RecordError::Host(e)
    }
}

/// The program ends with whoever waits for it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // What it has started goes with it. Both fail of one that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command` (its name and arguments) in a new file system of `bench`, mounted for it alone,
/// and records its calls. Its standard output goes where errors go. Lines that are written to
/// `$WRITEPATH_FAULT` have the drive fail.
///
/// Errors: a machine that cannot be, namespaces or FUSE that this host does not allow, a command
/// that is not there, `interrupted`.
pub fn record(
    bench: &Bench,
    command: &[OsString],
    interrupted: &AtomicBool,
) -> Result<Recorded, RecordError> {
    let mut done = None;
    live_with_faults(bench, |machine, vfs, faults| {
        let faults = faults.clone();
        let obey: Obey = Rc::new(move |step| faults.obey(step));
        done = Some(record_with((machine, vfs, true), Some(obey), command, interrupted));
        Ok(())
    })?;
    done.unwrap_or(Err(RecordError::Interrupted))
}

/// The same in a mounted file system of a machine. `is_new`: nobody has made files there yet.
/// Errors: as [`record`].
pub fn record_on(
    (machine, vfs, is_new): (&Machine, &Vfs, bool),
    command: &[OsString],
    interrupted: &AtomicBool,
) -> Result<Recorded, RecordError> {
    record_with((machine, vfs, is_new), None, command, interrupted)
}

/// The same; the program can have the drive fail.
fn record_with(
    (machine, vfs, is_new): (&Machine, &Vfs, bool),
    obey: Option<Obey>,
    command: &[OsString],
    interrupted: &AtomicBool,
) -> Result<Recorded, RecordError> {
    let scratch = Scratch::new("writepath-program")?;
    // The program may be another user's.
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o711))?;
    let (dir, socket) = (scratch.path().join("mount"), scratch.path().join("socket"));
    fs::create_dir(&dir)?;
    let mut environment = vec![("WRITEPATH_DIR", dir.clone().into_os_string())];
    let mut controls = vec![Control::Ack];
    controls.extend(obey.is_some().then_some(Control::Fault));
    let of = |c: Control| (c.variable(), dir.join(c.name()).into_os_string());
    environment.extend(controls.into_iter().map(of));
    let program = std::env::current_exe()?;
    let (child, connection, mut begin) = spawn(&program, (&dir, &socket), command, &environment)?;
    let mut running = Running(child);
    let (door, requests) = Door::new(is_new);
    let session = Session::from_fd(door, connection, SessionACL::All, config("writepath"))?;
    let session =
        std::thread::Builder::new().name("fuse".to_owned()).spawn(move || session.run())?;
    begin.write_all(b"g")?;
    let live = Live::new(vfs.clone(), EPOCH_SECS, true);
    let live = Rc::new(match obey {
        Some(obey) => live.with_faults(obey),
        None => live,
    });
    let is_interrupted = || interrupted.load(Ordering::SeqCst);
    let served = serve(&machine.rt, &live, (&requests, Pace::Free), is_interrupted);
    // Whatever asks now is answered with an error.
    drop(requests);
    if served.is_err() || is_interrupted() {
        running.0.kill()?;
    }
    let status = running.0.wait()?;
    // It ends with the mount.
    drop(session.join());
    served.map_err(|outcome| MachineError::Stall(describe(&outcome)))?;
    if is_interrupted() {
        return Err(RecordError::Interrupted);
    }
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().unwrap_or(128 + signal.unwrap_or(0));
    Ok(Recorded { recording: live.end(), code })
}
