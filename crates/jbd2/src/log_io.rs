//! Writes to the log, and waiting for them.
//!
//! Picture:    each log block is a bio of its own (neighbours merge under the commit's plug); a
//!             slot remembers how it ended; the commit waits for the slots from the last to the
//!             first, so that it is woken once. In dual mode it first waits until all of them were
//!             dispatched.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::event::Flags;
use wp_block::Bio;
use wp_cache::{BufFlag, Buffer};
use wp_medium::Slice;
use wp_rt::{Rt, WaitQueue};

use crate::journal::Journal;

/// How a write stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    InFlight,
    Done { ok: bool },
}

/// A batch of writes.
pub(crate) struct LogWrites {
    slots: RefCell<Vec<Slot>>,
    waited: Cell<usize>,
    wake: WaitQueue,
    /// Not yet with the device (dual mode).
    undispatched: Cell<usize>,
}

impl LogWrites {
    pub fn new(rt: &Rt) -> Rc<LogWrites> {
        Rc::new(LogWrites {
            slots: RefCell::default(),
            waited: Cell::new(usize::MAX),
            wake: WaitQueue::new(rt, "journal write"),
            undispatched: Cell::new(0),
        })
    }

    fn add(&self) -> usize {
        let mut slots = self.slots.borrow_mut();
        slots.push(Slot::InFlight);
        slots.len() - 1
    }

    fn end(&self, slot: usize, ok: bool) {
        self.slots.borrow_mut()[slot] = Slot::Done { ok };
        if self.waited.get() == slot {
            self.wake.wake_all();
        }
    }

    fn dispatched(&self) {
        self.undispatched.set(self.undispatched.get() - 1);
        if self.undispatched.get() == 0 {
            self.wake.wake_all();
        }
    }

    /// Waits until the device has all of them.
    pub async fn wait_dispatched(&self) {
        while self.undispatched.get() > 0 {
            self.wake.wait().await;
        }
    }

    pub fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Waits for one write; did it succeed?
    pub async fn wait(&self, slot: usize) -> bool {
        loop {
            if let Slot::Done { ok } = self.slots.borrow()[slot] {
                return ok;
            }
            self.waited.set(slot);
            self.wake.wait().await;
        }
    }
}

/// A block on its way to the log.
pub(crate) struct LogBlock {
    /// Its place in the log.
    pub log: u32,
    pub data: Slice,
    /// The buffer that it shows, for metadata.
    pub shadow: Option<Rc<Buffer>>,
}

impl Journal {
    /// Submits a block to the log. False if the log has a hole there.
    ///
    /// At completion a metadata block's buffer leaves the shadow, unless the era keeps it there
    /// longer.
    pub(crate) fn submit_log(&self, writes: &Rc<LogWrites>, block: LogBlock, extra: Flags) -> bool {
        self.submit_log_as(writes, block, self.opts.era.log_flags() | extra)
    }

    /// [`Journal::submit_log`] with these flags.
    pub(crate) fn submit_log_as(
        &self,
        writes: &Rc<LogWrites>,
        block: LogBlock,
        flags: Flags,
    ) -> bool {
        let slot = writes.add();
        let Some(at) = self.log.block(block.log) else {
            writes.end(slot, false);
            return false;
        };
        let bio = Bio::write(self.bs.sector_of(at), vec![block.data], flags);
        let bio = if self.opts.mode.dual().is_some() {
            writes.undispatched.set(writes.undispatched.get() + 1);
            let writes = writes.clone();
            bio.on_dispatch(move || writes.dispatched())
        } else {
            bio
        };
        let writes = writes.clone();
        let shadow = block.shadow.filter(|_| !self.opts.era.shadow_until_processed());
        self.bdev.queue().submit(bio.on_end(move |end| {
            if let Some(b) = shadow {
                b.clear(BufFlag::Shadow);
                b.wake();
            }
            writes.end(slot, end.status.is_ok());
        }));
        true
    }
}
