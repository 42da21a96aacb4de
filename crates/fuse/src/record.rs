//! A program of the host on a file system of ours, once: what it did.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Child;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{fmt, io};

use fuser::{Session, SessionACL};
use wp_campaign::{Bench, live_with_faults};
use wp_machine::EPOCH_SECS;
use wp_machine::host::Scratch;
use wp_machine::{Machine, MachineError, describe};
use wp_vfs::Vfs;

use crate::control::Control;
use crate::door::{Door, config};
use crate::live::{Live, Obey};
use crate::private::{empty_directory, spawn};
use crate::recording::Recording;
use crate::serve::{Here, Pace, serve};

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

/// A program that runs in a file system of its own, and the session that serves it.
struct Started {
    running: Running,
    session: std::thread::JoinHandle<io::Result<()>>,
    /// The directory that is mounted on, if it was made.
    _scratch: Option<Scratch>,
}

impl Started {
    /// Starts `command` on what is behind `door`; `controls`: its control files.
    fn new(door: Door, command: &[OsString], controls: &[Control]) -> io::Result<Started> {
        let (dir, scratch) = match empty_directory() {
            Some(dir) => (dir, None),
            None => {
                let scratch = Scratch::new("writepath-program")?;
                // The program may be another user's.
                fs::set_permissions(scratch.path(), Permissions::from_mode(0o711))?;
                (scratch.path().to_owned(), Some(scratch))
            }
        };
        let mut environment = vec![("WRITEPATH_DIR", dir.clone().into_os_string())];
        let of = |c: &Control| (c.variable(), dir.join(c.name()).into_os_string());
        environment.extend(controls.iter().map(of));
        let program = wp_machine::host::program::command();
        let (child, connection, mut begin) = spawn(program, &dir, command, &environment)?;
        let running = Running(child);
        let session = Session::from_fd(door, connection, SessionACL::All, config("writepath"))?;
        let thread = std::thread::Builder::new().name("fuse".to_owned());
        let session = thread.spawn(move || session.run())?;
        begin.write_all(b"g")?;
        Ok(Started { running, session, _scratch: scratch })
    }

    /// Waits for the end of the program, which is killed if `is_over`. Its exit code.
    fn end(mut self, is_over: bool) -> io::Result<i32> {
        if is_over {
            self.running.0.kill()?;
        }
        let status = self.running.0.wait()?;
        // It ends with the mount.
        drop(self.session.join());
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        Ok(status.code().unwrap_or(128 + signal.unwrap_or(0)))
    }
}

/// How often an interrupt is looked for.
const LOOK: Duration = Duration::from_millis(20);

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
    let bench = bench.clone();
    let make = move || {
        let (machine, vfs, faults) = live_with_faults(&bench)?;
        let obey: Obey = Rc::new(move |step| faults.obey(step));
        Ok(Here::new(machine, Live::new(vfs, EPOCH_SECS, true).with_faults(obey)))
    };
    let (ended, told) = channel();
    let door = Door::here(Box::new(make), ended);
    let mut started = Started::new(door, command, &[Control::Ack, Control::Fault])?;
    let mut is_interrupted = false;
    let ended = loop {
        match told.recv_timeout(LOOK) {
            Ok(ended) => break Some(ended),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        is_interrupted = interrupted.load(Ordering::SeqCst);
        // Nobody can say what was recorded if the process that mounts was killed.
        if is_interrupted || started.running.0.try_wait()?.is_some() {
            break told.try_recv().ok();
        }
    };
    let code = started.end(is_interrupted || matches!(ended, Some(Err(_))))?;
    match ended {
        _ if is_interrupted => Err(RecordError::Interrupted),
        Some(recording) => Ok(Recorded { recording: recording?, code }),
        None => {
            let name = command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            let what = format!("{name}: exit {code}; the process that mounts for it was killed");
            Err(io::Error::other(what).into())
        }
    }
}

/// The same in a mounted file system of a machine. `is_new`: nobody has made files there yet.
/// Errors: as [`record`].
pub fn record_on(
    (machine, vfs, is_new): (&Machine, &Vfs, bool),
    command: &[OsString],
    interrupted: &AtomicBool,
) -> Result<Recorded, RecordError> {
    let (door, requests) = Door::new(is_new);
    let started = Started::new(door, command, &[Control::Ack])?;
    let live = Rc::new(Live::new(vfs.clone(), EPOCH_SECS, true));
    let is_interrupted = || interrupted.load(Ordering::SeqCst);
    let served = serve(&machine.rt, &live, (&requests, Pace::Free), is_interrupted);
    // Whatever asks now is answered with an error.
    drop(requests);
    let code = started.end(served.is_err() || is_interrupted())?;
    served.map_err(|outcome| MachineError::Stall(describe(&outcome)))?;
    if is_interrupted() {
        return Err(RecordError::Interrupted);
    }
    Ok(Recorded { recording: live.end(), code })
}
