//! A bio's first steps: checks, remap, split; and the ways to wait for it.
//!
//! Source: behaviour of `generic_make_request_checks()`, `blk_partition_remap()`,
//!         `blk_queue_split()`.

use std::collections::VecDeque;
use std::rc::Rc;

use wp_base::event::{BlockAction, Flags, Op, ZoneOp};
use wp_base::{SECTOR_BYTES, Sector};
use wp_medium::Slice;
use wp_rt::{Completion, CpuOp};

use crate::bio::{Bio, BioEnd, bytes_of, split_front};
use crate::device::{Limits, Status};
use crate::dispatch::segments_of;
use crate::end::End;
use crate::engine::{Ready, Whole};
use crate::pool::NO_EPOCH;
use crate::pool::{BioInfo, is_sync};
use crate::queue::BlockQueue;
use crate::site;
use crate::waiters::NO_SLOT;

/// Part of a device, as its submitter sees it.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub start: Sector,
    pub sectors: u64,
}

/// What became of a bio after the checks.
enum Entered {
    /// It will end by itself.
    Ended,
    One(Ready),
    /// It was split.
    Many(VecDeque<Ready>),
}

impl BlockQueue {
    pub(crate) fn submit_in(&self, mut bio: Bio, range: Range) {
        let end = bio.end.take().map_or(End::Nobody, End::Call).telling(bio.dispatched.take());
        self.start(bio, end, range);
    }

    fn start(&self, bio: Bio, end: End, range: Range) {
        match self.enter(bio, end, range) {
            Entered::Ended => {}
            Entered::One(ready) => self.place(ready),
            Entered::Many(parts) => parts.into_iter().for_each(|ready| self.place(ready)),
        }
    }

    /// Merges it or makes it a request.
    fn place(&self, ready: Ready) {
        let mut core = self.core.borrow_mut();
        let joined = if ready.info.flags.has(Flags::ORDERED) {
            core.join_epoch(&self.cx, ready)
        } else {
            core.join(&self.cx, ready)
        };
        if let Err(ready) = joined
            && let Some(ready) = core.hold_in_zone(&self.cx, ready)
        {
            core.add(&self.cx, &mut **self.device.borrow_mut(), ready);
            self.settle(&mut core);
        }
    }

    pub(crate) async fn submit_wait_in(
        &self,
        bio: Bio,
        range: Range,
    ) -> Result<Vec<Slice>, Status> {
        self.cx.rt.cpu(CpuOp::BioSubmit, 1).await;
        self.send_in(bio, range).wait().await
    }

    pub(crate) async fn submit_end_in(&self, bio: Bio, range: Range) -> BioEnd {
        self.cx.rt.cpu(CpuOp::BioSubmit, 1).await;
        self.send_in(bio, range).end().await
    }

    pub(crate) fn send_in(&self, mut bio: Bio, range: Range) -> InFlight {
        assert!(bio.end.is_none(), "whoever waits for a bio is its end");
        let (slot, done) = self.waiters.borrow_mut().start(&self.cx.rt);
        let sent = InFlight { queue: self.rc(), slot, done };
        let end = End::Waiter(slot).telling(bio.dispatched.take());
        self.start(bio, end, range);
        sent
    }

    pub(crate) async fn submit_throttled_in(&self, mut bio: Bio, range: Range) {
        self.cx.rt.cpu(CpuOp::BioSubmit, 1).await;
        let end = bio.end.take().map_or(End::Nobody, End::Call).telling(bio.dispatched.take());
        let parts = match self.enter(bio, end, range) {
            Entered::Ended => return,
            Entered::One(ready) => VecDeque::from([ready]),
            Entered::Many(parts) => parts,
        };
        for ready in parts {
            let joined = if ready.info.flags.has(Flags::ORDERED) {
                self.core.borrow_mut().join_epoch(&self.cx, ready)
            } else {
                self.core.borrow_mut().join(&self.cx, ready)
            };
            let Err(ready) = joined else { continue };
            let free = self.core.borrow_mut().hold_in_zone(&self.cx, ready);
            let Some(ready) = free else { continue };
            self.wait_room(is_sync(ready.info.op, ready.info.flags)).await;
            let mut core = self.core.borrow_mut();
            core.add(&self.cx, &mut **self.device.borrow_mut(), ready);
            self.settle(&mut core);
        }
    }

    /// Checks a bio, remaps and splits it (`generic_make_request_checks()`).
    fn enter(&self, bio: Bio, end: End, range: Range) -> Entered {
        let Bio { mut op, mut flags, at, segs, sectors, .. } = bio;
        let limits = &self.cx.limits;
        let sectors = match op {
            Op::Write | Op::Zone(ZoneOp::Append) => {
                let bytes = bytes_of(&segs);
                assert!(
                    bytes.is_multiple_of(SECTOR_BYTES),
                    "a write of {bytes} bytes is not of whole sectors"
                );
                (bytes / SECTOR_BYTES) as u32
            }
            Op::Flush | Op::Zone(_) => 0,
            Op::Read | Op::Discard => sectors,
        };
        let is_flush =
            op == Op::Flush || (op == Op::Write && sectors == 0 && flags.has(Flags::PREFLUSH));
        let may_be_empty = is_flush || (!op.writes() && matches!(op, Op::Zone(_)));
        assert!(sectors > 0 || may_be_empty, "an empty bio that is no flush");
        if is_flush {
            (op, flags) = (Op::Flush, flags.without(Flags::ORDERED) | Flags::PREFLUSH);
        } else if flags.any(Flags::ORDERED | Flags::BARRIER) {
            // Writes only; a barrier is ordered.
            let ordered = if flags.has(Flags::BARRIER) { Flags::ORDERED } else { Flags::NONE };
            flags = match op {
                Op::Write => flags | ordered,
                _ => flags.without(Flags::ORDERED | Flags::BARRIER),
            };
        }
        if at.0.checked_add(u64::from(sectors)).is_none_or(|end| end > range.sectors) {
            return self.end_soon(end, Err(Status::Io));
        }
        if op == Op::Discard && !limits.discard {
            return self.end_soon(end, Err(Status::NotSupported));
        }
        if let Op::Zone(zone_op) = op
            && let Err(status) = self.check_zone(zone_op, range.start.advance(at.0), sectors)
        {
            return self.end_soon(end, Err(status));
        }
        if !limits.volatile_cache {
            flags = flags.without(Flags::PREFLUSH | Flags::FUA);
            if is_flush {
                return self.end_soon(end, Ok(()));
            }
        }
        let absolute = if is_flush { Sector(0) } else { range.start.advance(at.0) };
        if self.cx.config.habits.remap_event && range.start != Sector(0) && !is_flush {
            self.cx.event(BlockAction::Remap, op, flags, absolute, sectors, at.0);
        }
        self.cx.event(BlockAction::Queue, op, flags, absolute, sectors, 0);
        {
            let counters = &mut self.core.borrow_mut().counters;
            counters.bios += 1;
            if op == Op::Write {
                counters.sectors_written += u64::from(sectors);
            }
        }
        let segments = segments_of(op, &segs, sectors);
        let task = self.cx.rt.current();
        let core = self.cx.rt.core();
        let class = self.core.borrow().class_of(task);
        let (at, epoch) = (absolute, NO_EPOCH);
        let info = BioInfo { op, flags, at, sectors, segments, task, core, class, epoch };
        self.whole_or_split(Ready { info, segs, end }, range)
    }

    /// A bio that is small enough as it is, or its parts.
    fn whole_or_split(&self, ready: Ready, range: Range) -> Entered {
        let (info, limits) = (ready.info, &self.cx.limits);
        if info.flags.has(Flags::ATOMIC) {
            return match self.check_untorn(&info, range) {
                Err(status) => self.end_soon(ready.end, Err(status)),
                Ok(()) if site::UNTORN_WHOLE.on() => Entered::One(ready),
                Ok(()) => Entered::Many(self.split(ready, info.sectors.div_ceil(2))),
            };
        }
        let too_large = info.sectors > limits.max_sectors || info.segments > limits.max_segments;
        let crosses = limits.zones.is_some_and(|z| !z.is_within_one(info.at, info.end()));
        if !matches!(info.op, Op::Zone(_)) && (crosses || (too_large && info.op != Op::Discard)) {
            Entered::Many(self.split(ready, u32::MAX))
        } else {
            Entered::One(ready)
        }
    }

    /// Splits a bio into parts within the limits, and of at most `most` sectors
    /// (`blk_queue_split()`). Kernels before 4.3 had no such thing: there whoever makes bios keeps
    /// to the limits.
    fn split(&self, bio: Ready, most: u32) -> VecDeque<Ready> {
        let limits = &self.cx.limits;
        let Ready { mut info, mut segs, end } = bio;
        let mut parts = VecDeque::new();
        while info.sectors > 0 {
            let mut take = info.sectors.min(most);
            if info.op != Op::Discard {
                take = take.min(most_from(info.at, limits));
            }
            if let Some(zones) = limits.zones {
                // `chunk_sectors` is the zone size.
                let left = zones.zone_sectors - info.at.0 % zones.zone_sectors;
                take = take.min(u32::try_from(left).unwrap_or(u32::MAX));
            }
            if info.segments > limits.max_segments {
                take = take.min(sectors_within(&info, &segs, limits.max_segments));
            }
            let mut front = info;
            front.sectors = take;
            let data = match info.op {
                Op::Write => split_front(&mut segs, u64::from(take) * SECTOR_BYTES),
                _ => Vec::new(),
            };
            front.segments = segments_of(info.op, &data, take);
            info.at = info.at.advance(u64::from(take));
            info.sectors -= take;
            info.segments = segments_of(info.op, &segs, info.sectors);
            if info.sectors > 0 {
                // The last part closes the epoch. A part of an untorn write is none.
                front.flags = front.flags.without(Flags::BARRIER | Flags::ATOMIC);
                self.cx.event(BlockAction::Split, front.op, front.flags, front.at, take, info.at.0);
            }
            parts.push_back(Ready { info: front, segs: data, end: End::Nobody });
        }
        let left = parts.len() as u32;
        let data = vec![Vec::new(); parts.len()];
        let (dispatched, end) = end.told_apart();
        let whole = Whole { left, status: Ok(()), data, end, unsent: left, dispatched };
        let whole = self.core.borrow_mut().wholes.put(whole);
        for (i, part) in (0u32..).zip(&mut parts) {
            part.end = End::Part(whole, i);
        }
        parts
    }

    /// May this be done with the zone at `at` of the device (`blkdev_zone_mgmt()`,
    /// `blk_check_zone_append()`)?
    fn check_zone(&self, op: ZoneOp, at: Sector, sectors: u32) -> Result<(), Status> {
        let Some(zones) = self.cx.limits.zones else { return Err(Status::NotSupported) };
        if matches!(op, ZoneOp::ResetAll | ZoneOp::Report) {
            return Ok(());
        }
        let at_start = at == zones.start_of(zones.zone_of(at));
        let most = zones.append_max_sectors;
        match op {
            ZoneOp::Append if most == 0 => Err(Status::NotSupported),
            ZoneOp::Append if sectors > most => Err(Status::Io),
            _ if !at_start || !zones.is_sequential(at) => Err(Status::Io),
            _ => Ok(()),
        }
    }

    /// Ends a bio that did not get into the queue.
    fn end_soon(&self, end: End, status: Result<(), Status>) -> Entered {
        self.core.borrow_mut().ended_soon.push_back((end, BioEnd::without_data(status)));
        self.arm_soon();
        Entered::Ended
    }
}

/// Most sectors from the start of a bio that have no more than `most` segments.
fn sectors_within(info: &BioInfo, segs: &[Slice], most: u32) -> u32 {
    if info.op == Op::Read {
        return most.saturating_mul(8);
    }
    let (mut bytes, mut count) = (0u64, 0u32);
    for (i, seg) in segs.iter().enumerate() {
        count += u32::from(i == 0 || !segs[i - 1].continues_with(seg));
        if count > most {
            break;
        }
        bytes += u64::from(seg.len());
    }
    let sectors = (bytes / SECTOR_BYTES) as u32;
    assert!(sectors > 0, "{most} segments of a bio are not a sector");
    sectors
}

/// A bio that its submitter can wait for. Dropped before the end: nobody waits for the bio any
/// more, and it goes on alone.
#[must_use = "the bio's end is waited for with it"]
pub struct InFlight {
    queue: Rc<BlockQueue>,
    /// Of [`Waiters`](crate::waiters::Waiters); [`NO_SLOT`] once the end was seen.
    slot: u32,
    done: Rc<Completion>,
}

impl InFlight {
    /// Waits: for the bio.
    /// Returns: what a read found.
    pub async fn wait(self) -> Result<Vec<Slice>, Status> {
        let end = self.end().await;
        end.status.map(|()| end.data)
    }

    async fn end(mut self) -> BioEnd {
        self.done.wait().await;
        let slot = std::mem::replace(&mut self.slot, NO_SLOT);
        self.queue.waiters.borrow_mut().finish(slot)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.slot != NO_SLOT {
            self.queue.waiters.borrow_mut().abandon(self.slot);
        }
    }
}

/// Sectors of a request from `at` on, at most: a part ends with a physical block, if one fits
/// (`get_max_io_size()` as it is since 5.4; before, with a logical block).
fn most_from(at: Sector, limits: &Limits) -> u32 {
    let [physical, logical] = [limits.physical_bytes, limits.logical_bytes]
        .map(|bytes| (bytes / SECTOR_BYTES as u32).max(1));
    let start = (at.0 % u64::from(physical)) as u32;
    let end = (start + limits.max_sectors) / physical * physical;
    match end.checked_sub(start) {
        Some(n @ 1..) => n,
        _ => limits.max_sectors / logical * logical,
    }
}
