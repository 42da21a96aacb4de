//! A part of a device, addressed from 0.

use std::rc::Rc;

use wp_base::Sector;
use wp_medium::Slice;

use crate::bio::Bio;
use crate::device::{Limits, Status};
use crate::entry::Range;
use crate::plug::PlugGuard;
use crate::queue::BlockQueue;

/// Part of a device. Remaps and checks what is submitted to it; otherwise it is the queue.
#[derive(Clone)]
pub struct Partition {
    queue: Rc<BlockQueue>,
    range: Range,
}

impl Partition {
    pub(crate) fn new(queue: Rc<BlockQueue>, start: Sector, sectors: u64) -> Partition {
        let end = start.0.checked_add(sectors);
        assert!(
            end.is_some_and(|end| end <= queue.limits().sectors),
            "sectors {start:?} + {sectors} are beyond the device's {}",
            queue.limits().sectors
        );
        Partition { queue, range: Range { start, sectors } }
    }

    /// Its first sector on the device.
    pub fn start(&self) -> Sector {
        self.range.start
    }

    /// Its length in sectors.
    pub fn sectors(&self) -> u64 {
        self.range.sectors
    }

    /// The device's queue.
    pub fn queue(&self) -> &Rc<BlockQueue> {
        &self.queue
    }

    /// The device's limits, with the partition's length.
    pub fn limits(&self) -> Limits {
        Limits { sectors: self.range.sectors, ..self.queue.limits() }
    }

    /// See [`BlockQueue::submit`].
    pub fn submit(&self, bio: Bio) {
        self.queue.submit_in(bio, self.range);
    }

    /// See [`BlockQueue::submit_wait`].
    pub async fn submit_wait(&self, bio: Bio) -> Result<Vec<Slice>, Status> {
        self.queue.submit_wait_in(bio, self.range).await
    }

    /// See [`BlockQueue::submit_throttled`].
    pub async fn submit_throttled(&self, bio: Bio) {
        self.queue.submit_throttled_in(bio, self.range).await;
    }

    /// See [`BlockQueue::plug`].
    pub fn plug(&self) -> PlugGuard {
        self.queue.plug()
    }

    /// See [`BlockQueue::flush`].
    pub async fn flush(&self) -> Result<(), Status> {
        self.queue.flush().await
    }
}
