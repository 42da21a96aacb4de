//! A part of a device, addressed from 0.

use std::rc::Rc;

use wp_base::event::{Flags, ZoneOp};
use wp_base::{Sector, Zone};
use wp_medium::Slice;

use crate::atomic::AtomicLimits;
use crate::bio::Bio;
use crate::device::{Limits, Status};
use crate::entry::{InFlight, Range};
use crate::flush_set::FlushSet;
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

    /// See [`BlockQueue::atomic_limits`]; none if it begins within a unit.
    pub fn atomic_limits(&self) -> Option<AtomicLimits> {
        self.queue.atomic_limits_in(self.range)
    }

    /// See [`BlockQueue::submit`].
    pub fn submit(&self, bio: Bio) {
        self.queue.submit_in(bio, self.range);
    }

    /// See [`BlockQueue::send`].
    pub fn send(&self, bio: Bio) -> InFlight {
        self.queue.send_in(bio, self.range)
    }

    /// See [`BlockQueue::submit_wait`].
    pub fn submit_wait(&self, bio: Bio) -> impl Future<Output = Result<Vec<Slice>, Status>> {
        self.queue.submit_wait_in(bio, self.range)
    }

    /// See [`BlockQueue::submit_throttled`].
    pub async fn submit_throttled(&self, bio: Bio) {
        self.queue.submit_throttled_in(bio, self.range).await;
    }

    /// See [`BlockQueue::report_zones`]: the zones that lie in it whole, addressed as it is.
    pub async fn report_zones(&self) -> Result<Vec<Zone>, Status> {
        let zones = self.queue.report_zones().await?;
        Ok(Zone::within(&zones, self.range.start, self.range.sectors))
    }

    /// See [`BlockQueue::manage_zone`]; a reset of all is one of the whole device.
    pub async fn manage_zone(&self, op: ZoneOp, at: Sector) -> Result<(), Status> {
        self.submit_wait(Bio::zone(op, at)).await.map(|_| ())
    }

    /// See [`BlockQueue::append`].
    pub async fn append(
        &self,
        at: Sector,
        segs: Vec<Slice>,
        flags: Flags,
    ) -> Result<Sector, Status> {
        let end = self.queue.submit_end_in(Bio::append(at, segs, flags), self.range).await;
        let own = |s: Sector| Sector(s.0 - self.range.start.0);
        end.status.map(|()| end.appended.map_or(at, own))
    }

    /// See [`BlockQueue::plug`].
    pub fn plug(&self) -> PlugGuard {
        self.queue.plug()
    }

    /// See [`BlockQueue::close_epoch`].
    pub fn close_epoch(&self) -> bool {
        self.queue.close_epoch()
    }

    /// See [`BlockQueue::flush_set`]; sectors count from the start of the partition.
    pub async fn flush_set(&self, set: &FlushSet) -> Result<(), Status> {
        self.queue.flush_set(&set.moved(self.range.start.0)).await
    }

    /// See [`BlockQueue::flush`].
    pub async fn flush(&self) -> Result<(), Status> {
        self.queue.flush().await
    }
}
