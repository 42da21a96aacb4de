//! A guest from its boot to its end: a drive and a control disk behind sockets, one virtual clock,
//! and a folder that it shares with the host.

use std::io;
use std::path::{Path, PathBuf};

use wp_base::Time;
use wp_base::plain::Shown as _;
use wp_machine::profile::Profile;
use wp_serve::drive::Drive;
use wp_serve::vhost::cpu::{Charged, Cpu};
use wp_serve::vhost::{Guest, Machine};

use super::{DATE, Kernel, trouble};
use crate::vtime::guest::compile;

/// What programs in a guest share.
const CONTROL_C: &str = include_str!("control.c");
/// The same of those that run commands of the host.
const HOST_C: &str = include_str!("host.c");

/// Sockets in the folder above the one that is shared.
const DISK: &str = "disk";
const CONTROL: &str = "control";
const SCRATCH: &str = "scratch";
const CALENDAR: &str = "calendar";

/// The folder that a guest and the host share. Its `run.sh` is what the guest does.
pub(super) struct Share {
    scratch: PathBuf,
    path: PathBuf,
}

impl Share {
    /// An empty one in `scratch`: what stands there from before would be seen by the guest.
    /// Errors: the host's.
    pub fn new(scratch: &Path) -> Result<Share, String> {
        let share = Share { scratch: scratch.to_owned(), path: scratch.join("share") };
        let made = match share.path.exists() {
            true => std::fs::remove_dir_all(&share.path),
            false => Ok(()),
        };
        made.and_then(|()| std::fs::create_dir_all(&share.path)).map_err(|e| share.error(&e))?;
        Ok(share)
    }

    /// The file or folder of a name in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the program `name` of C for the guest, behind what all of them share. Errors: no C
    /// compiler, and what it says.
    pub fn compile(&self, name: &str, source: &str) -> Result<(), String> {
        compile(&format!("{CONTROL_C}\n{source}"), &self.join(name))
    }

    /// The same of a program that runs commands of the host.
    pub fn compile_with_host(&self, name: &str, source: &str) -> Result<(), String> {
        self.compile(name, &format!("{HOST_C}\n{source}"))
    }

    /// Writes a file. Errors: the host's.
    pub fn write(&self, name: &str, text: &[u8]) -> Result<(), String> {
        std::fs::write(self.join(name), text).map_err(|e| self.error(&e))
    }

    /// A file as text; nothing if it is not there.
    pub fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Has the script come to its end, and well? The end of the guest may be seen before that of
    /// its channel: what counts is what it has written down last.
    pub fn is_whole(&self) -> bool {
        self.read("rc").trim() == "0"
    }

    /// Why the guest has failed: what its programs and its console have said.
    pub fn failure(&self) -> String {
        format!("the guest failed: {}", trouble::of(&self.path))
    }

    /// What its kernel said when it panicked. `None`: it did not.
    pub fn panic(&self) -> Option<String> {
        trouble::panic(&self.read("console.txt"))
    }

    /// An error of the host's, with its place.
    pub fn error(&self, e: &io::Error) -> String {
        format!("{}: {e}", self.scratch.shown())
    }
}

/// What a guest has left.
pub(super) struct Ended {
    /// Its drive.
    pub drive: Drive,
    /// Was it stopped before its end?
    pub stopped: bool,
    /// How long it took for the guest, in nanoseconds.
    pub virtual_ns: u64,
    /// What its CPU was charged with.
    pub charged: Option<Charged>,
}

/// Boots a guest with `drive`, and serves it until it has ended or `stop` says so, which is asked
/// often. Errors: it does not start, or breaks a protocol; the host's.
pub(super) fn serve(
    kernel: &Kernel,
    share: &Share,
    drive: Drive,
    cpu: &Profile,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Ended, String> {
    serve_with(kernel, share, (drive, None), cpu, &mut |_, _| stop())
}

/// Asked with the guest's time and the drives whether the guest is to be ended.
pub(super) type Stop<'a> = &'a mut dyn FnMut(Time, &mut [Drive]) -> bool;

/// The same with another drive, if there is one: the guest's third disk.
pub(super) fn serve_with(
    kernel: &Kernel,
    share: &Share,
    (drive, scratch): (Drive, Option<Drive>),
    cpu: &Profile,
    stop: Stop<'_>,
) -> Result<Ended, String> {
    let at = |e: io::Error| share.error(&e);
    let mut machine = Machine::new();
    let costs = cpu.model().profile;
    if !costs.is_zero() {
        machine.charge(Cpu::new(costs));
    }
    machine.add(drive, &share.scratch.join(DISK), 1).map_err(at)?;
    machine.add_control(&share.scratch.join(CONTROL)).map_err(at)?;
    let mut guest = Guest::listen(&share.scratch.join(CALENDAR), DATE).map_err(at)?;
    let mut disks = vec![DISK, CONTROL];
    if let Some(scratch) = scratch {
        machine.add(scratch, &share.scratch.join(SCRATCH), 1).map_err(at)?;
        disks.push(SCRATCH);
    }
    let mut running = kernel.boot(&share.path, CALENDAR, &disks)?;
    let mut stopped = false;
    let mut is_over = |now: Time, drives: &mut [Drive]| {
        stopped |= stop(now, drives);
        stopped || running.has_ended()
    };
    machine.serve_guest(&mut guest, &mut is_over)?;
    running.end();
    let mut drives = machine.drives.drain(..);
    let mut drive = drives.next().ok_or("the machine has no drive")?;
    drop(drives);
    drive.end_record().map_err(at)?;
    Ok(Ended { drive, stopped, virtual_ns: guest.now().0, charged: machine.charged() })
}
