//! A mount that everybody on this host sees.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::Session;
use rustix::mount::{UnmountFlags, unmount};
use wp_machine::EPOCH_SECS;
use wp_machine::{Machine, MachineError, describe};
use wp_vfs::Vfs;

use crate::door::{Door, config};
use crate::live::Live;
use crate::record::RecordError;
use crate::serve::{Pace, serve};

/// How a mount ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// Calls that changed something, made something durable, or opened and closed files.
    pub calls: u64,
    /// Processes used it when it was to end: they keep it, and all that they ask for fails.
    pub was_busy: bool,
}

/// Mounts `vfs` at `dir` until somebody unmounts it or `interrupted` is set; `is_mounted` is called
/// when it is there. `is_new`: nobody has made files there yet. Who is not root needs
/// `fusermount3`.
///
/// Errors: this host does not mount it there; the simulation cannot go on.
pub fn mount(
    machine: &Machine,
    vfs: &Vfs,
    (dir, pace, is_new): (&Path, Pace, bool),
    interrupted: &AtomicBool,
    is_mounted: impl FnOnce(),
) -> Result<Mounted, RecordError> {
    let (door, requests) = Door::new(is_new);
    let session = Session::new(door, dir, &config("writepath"));
    let mut session = session.map_err(|e| io::Error::new(e.kind(), format!("FUSE: {e}")))?;
    let mut unmounter = session.unmount_callable();
    let thread = std::thread::Builder::new().name("fuse".to_owned());
    let running = thread.spawn(move || session.run())?;
    is_mounted();
    let live = Rc::new(Live::new(vfs.clone(), EPOCH_SECS, false));
    let serving = |is_over: &dyn Fn() -> bool| {
        serve(&machine.rt, &live, (&requests, pace), is_over)
            .map_err(|outcome| MachineError::Stall(describe(&outcome)))
    };
    let served = serving(&|| interrupted.load(Ordering::SeqCst));
    let mut was_busy = false;
    if !running.is_finished() {
        // The kernel may still send what a mapping has changed: it is served meanwhile.
        let dir = dir.to_owned();
        let thread = std::thread::Builder::new().name("umount".to_owned());
        let unmounting = thread.spawn(move || {
            let done = unmounter.unmount();
            // Processes that are in there keep it, and see errors from now on.
            done.is_err() && unmount(dir, UnmountFlags::DETACH).is_ok()
        })?;
        if served.is_ok() {
            serving(&|| unmounting.is_finished())?;
        }
        was_busy = unmounting.join().unwrap_or(true);
    }
    drop(requests);
    if !was_busy {
        drop(running.join());
    }
    served?;
    let (calls, _) = live.progress();
    Ok(Mounted { calls, was_busy })
}
