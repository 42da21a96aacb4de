//! Everything that must not outlive the program, so that a signal's handler can remove it.
//!
//! Invariant: a thing is made and registered under one lock, and [`end_all`] keeps that lock: no
//!            thread makes anything after it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, RwLock};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process_group};

/// Attempts to remove a directory in which a thread is still making files.
const TRIES: u32 = 50;

/// A thing that must not outlive the program. The order of the variants is the order of removal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Leftover {
    /// A process group.
    Group(i32),
    /// What is mounted at this directory.
    Mount(PathBuf),
    /// A loop device.
    Loop(String),
    /// A file, or a socket.
    File(PathBuf),
    /// A directory and all that is in it.
    Directory(PathBuf),
}

impl Leftover {
    fn remove(&self) {
        match self {
            Leftover::Group(leader) => {
                if let Some(leader) = Pid::from_raw(*leader) {
                    // Its processes may have ended by themselves.
                    let _ = kill_process_group(leader, Signal::KILL);
                }
            }
            // As a rule nothing is mounted; what is busy goes when its users do.
            Leftover::Mount(at) => while unmount(at.as_path(), UnmountFlags::DETACH).is_ok() {},
            // A device that stays attached is seen in `losetup`; nothing more can be done here.
            Leftover::Loop(device) => {
                let mut command = Command::new("losetup");
                drop(command.args(["--detach", device]).process_group(0).status());
            }
            // Somebody may have removed it; nothing is lost by that.
            Leftover::File(path) => drop(std::fs::remove_file(path)),
            Leftover::Directory(path) => remove_directory(path),
        }
    }
}

fn remove_directory(path: &Path) {
    for _ in 0..TRIES {
        match std::fs::remove_dir_all(path) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}

#[derive(Default)]
struct Registry {
    next: u64,
    things: BTreeMap<u64, Leftover>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { next: 0, things: BTreeMap::new() });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(|e| e.into_inner())
}

/// Held while something is done that [`end_all`] must not overlook.
static GATE: RwLock<()> = RwLock::new(());

/// Does what may take its time to a thing that is registered: a mount at its place.
pub fn pass<T>(f: impl FnOnce() -> T) -> T {
    let _pass = GATE.read().unwrap_or_else(|e| e.into_inner());
    f()
}

/// A registered thing; it is removed with this.
#[derive(Debug)]
pub struct Held {
    id: u64,
}

/// Makes something with `make` and registers what must not outlive the program.
///
/// Errors: those of `make`; then nothing is registered.
pub fn hold<T>(make: impl FnOnce() -> io::Result<(T, Leftover)>) -> io::Result<(T, Held)> {
    let mut registry = registry();
    let (made, thing) = make()?;
    let id = registry.next;
    registry.next += 1;
    registry.things.insert(id, thing);
    Ok((made, Held { id }))
}

impl Held {
    /// Does `last`, after which the thing may stay: a rename to its final name.
    ///
    /// Errors: those of `last`; then the thing is removed.
    pub fn release<T>(self, last: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut registry = registry();
        let done = last()?;
        registry.things.remove(&self.id);
        Ok(done)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut registry = registry();
        if let Some(thing) = registry.things.remove(&self.id) {
            thing.remove();
        }
    }
}

/// Ends the processes that are registered; whoever waits for one sees that it has ended.
pub fn end_processes() {
    let registry = registry();
    let groups = registry.things.values().filter(|t| matches!(t, Leftover::Group(_)));
    groups.for_each(Leftover::remove);
}

/// Removes everything that is registered. The program must end now: whoever makes, keeps or
/// removes such a thing after this waits forever.
pub fn end_all() {
    let gate = GATE.write().unwrap_or_else(|e| e.into_inner());
    let mut registry = registry();
    let mut things: Vec<Leftover> = std::mem::take(&mut registry.things).into_values().collect();
    things.sort();
    things.iter().for_each(Leftover::remove);
    std::mem::forget((gate, registry));
}
