//! The kernel thread of a queue, and how the queue learns that the power is gone.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use wp_rt::{Rt, WaitQueue};

use crate::queue::BlockQueue;

/// The kernel thread that runs the queue when a task's wait flushed its plug. Its end tells the
/// queue of a power cut.
struct Kblockd(Weak<BlockQueue>);

impl Drop for Kblockd {
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade() {
            queue.power_cut();
        }
    }
}

/// What kblockd is to do. Apart from the queue, which may go while kblockd waits.
pub(crate) struct Work {
    wanted: Cell<bool>,
    line: WaitQueue,
}

async fn kblockd(me: Kblockd, work: Rc<Work>) {
    loop {
        work.line.wait_until(|| work.wanted.take()).await;
        let Some(queue) = me.0.upgrade() else { return };
        queue.run_by_kblockd();
    }
}

/// Starts it for a queue.
pub(crate) fn start(rt: &Rt, queue: &Rc<BlockQueue>, work: Rc<Work>) {
    rt.spawn_daemon("kworker/0:1H", kblockd(Kblockd(Rc::downgrade(queue)), work));
}

impl Work {
    /// Nothing to do yet.
    pub fn new(rt: &Rt) -> Work {
        Work { wanted: Cell::new(false), line: WaitQueue::new(rt, "kblockd") }
    }
    /// The queue is to be run.
    pub fn want(&self) {
        self.wanted.set(true);
        self.line.wake_one();
    }
}
