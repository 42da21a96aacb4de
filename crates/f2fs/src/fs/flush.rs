//! Cache flushes of fsync, merged between tasks.
//!
//! Picture:    who comes first flushes itself; who comes while somebody flushes waits for the
//!             thread, which sends one flush for all who wait then.
//! Source:     Linux `fs/f2fs/segment.c` (`f2fs_issue_flush`, `issue_flush_thread`).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use wp_base::{FsError, FsResult};
use wp_rt::{Completion, CpuOp, Rt, WaitQueue};

use super::mount::F2fs;
use super::range_flush::{RangeFlush, Unflushed};
use crate::site;

/// Who waits for the thread's flush.
struct Command {
    ino: u32,
    done: Rc<Completion>,
    failed: Rc<Cell<bool>>,
}

/// Flushes under way (`struct flush_cmd_control`).
pub(crate) struct Flusher {
    /// Who wants one or waits for one (`queued_flush`).
    queued: Cell<u32>,
    commands: RefCell<Vec<Command>>,
    wake: Rc<WaitQueue>,
    /// With `rflush`, what may not be durable.
    pub(super) unflushed: Unflushed,
}

impl Flusher {
    pub(super) fn new(rt: &Rt) -> Flusher {
        let wake = Rc::new(WaitQueue::new(rt, "flush thread"));
        let unflushed = Unflushed::default();
        Flusher { queued: Cell::new(0), commands: RefCell::default(), wake, unflushed }
    }

    pub(super) fn stop(&self) {
        self.wake.wake_all();
    }
}

impl F2fs {
    /// Starts the thread that flushes for several (`f2fs_create_flush_cmd_control`).
    pub(super) fn start_flush_thread(self: &Rc<Self>) {
        if self.opts.flush_merge {
            let (major, minor) = self.opts.device;
            let name = format!("f2fs_flush-{major}:{minor}");
            let wake = self.flusher.wake.clone();
            self.rt.spawn_daemon(name.as_str(), serve(Rc::downgrade(self), wake));
        }
    }

    /// Empties the device's cache (`f2fs_issue_flush`); nothing if mounted with `nobarrier`.
    /// Waits: for the flush. Errors: `Io`.
    pub(crate) async fn issue_flush(&self, ino: u32) -> FsResult<()> {
        if !self.opts.barrier || !site::FSYNC_FLUSH.on() {
            return Ok(());
        }
        if self.opts.range_flush != RangeFlush::Off {
            return self.issue_range_flush(ino).await;
        }
        self.rt.cpu(CpuOp::FlushIssue, 1).await;
        let f = &self.flusher;
        f.queued.set(f.queued.get() + 1);
        let alone = !self.opts.flush_merge || f.queued.get() == 1 || self.io.parts().len() > 1;
        let done = if alone {
            self.flush_devices(ino).await
        } else {
            let done = Rc::new(Completion::new(&self.rt, "flush"));
            let failed = Rc::new(Cell::new(false));
            f.commands.borrow_mut().push(Command {
                ino,
                done: done.clone(),
                failed: failed.clone(),
            });
            f.wake.wake_all();
            done.wait().await;
            if failed.get() { Err(FsError::Io) } else { Ok(()) }
        };
        f.queued.set(f.queued.get() - 1);
        done
    }

    /// The devices that hold something of the file (`submit_flush_wait`).
    async fn flush_devices(&self, ino: u32) -> FsResult<()> {
        let parts = self.io.parts();
        for (n, part) in parts.iter().enumerate() {
            if parts.len() > 1 && !self.inos.is_dirty_device(ino, n) {
                continue;
            }
            part.flush().await.map_err(|_| FsError::Io)?;
        }
        Ok(())
    }

    /// Flushes the devices but the first that were written since, before the last block of a
    /// checkpoint goes to that (`f2fs_flush_device_cache`).
    pub(super) async fn flush_other_devices(&self) -> FsResult<()> {
        if !self.opts.barrier || !site::CP_OTHER_DEVICES.on() {
            return Ok(());
        }
        for (n, part) in self.io.parts().iter().enumerate().skip(1) {
            if self.take_dirty(n) {
                part.flush().await.map_err(|_| FsError::Io)?;
            }
        }
        Ok(())
    }

    async fn serve_flushes(&self) {
        let commands = self.flusher.commands.take();
        let Some(first) = commands.first() else { return };
        let failed = self.flush_devices(first.ino).await.is_err();
        for c in commands {
            c.failed.set(failed);
            c.done.done();
        }
    }
}

async fn serve(fs: Weak<F2fs>, wake: Rc<WaitQueue>) {
    loop {
        {
            let Some(fs) = fs.upgrade() else { return };
            if !fs.flusher.commands.borrow().is_empty() {
                fs.serve_flushes().await;
                continue;
            }
            if !fs.is_mounted() {
                return;
            }
        }
        wake.wait().await;
    }
}
