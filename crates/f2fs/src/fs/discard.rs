//! Discards and zone resets.
//!
//! Picture:    a checkpoint that is durable without some blocks queues them here; the thread sends
//!             them when nobody is at work. A zone that was freed is reset: by the checkpoint
//!             itself, or later by the thread, or by who writes there first.
//! Left out:   discards by size classes: the largest go first.
//! Source:     Linux `fs/f2fs/segment.c` (`f2fs_clear_prefree_segments`, `issue_discard_thread`,
//!             `__f2fs_issue_discard_zone`, `__submit_zone_reset_cmd`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use wp_base::event::{Flags, ZoneOp};
use wp_base::{FsError, FsResult, Span};
use wp_block::Bio;
use wp_rt::{Rt, WaitQueue};

use super::balance::IDLE_INTERVAL;
use super::io::SECTORS;
use super::mount::F2fs;
use crate::disk::{SEGMENT_BLOCKS, bits};
use crate::site;

/// Discards of a round (`DEF_MAX_DISCARD_REQUEST`).
const ROUND: usize = 8;
/// Sleep after a round that sent some, when others are at work, and when there is nothing
/// (`DEF_MIN_DISCARD_ISSUE_TIME` and its kin).
const MIN_SLEEP: Span = Span::millis(50);
const MID_SLEEP: Span = Span::millis(500);
const MAX_SLEEP: Span = Span::secs(60);
/// Blocks of the least discard on volumes that are not small (`DEFAULT_DISCARD_GRANULARITY`).
const GRANULARITY: u32 = 16;

/// Discards to be sent.
pub(crate) struct Discards {
    /// Blocks in use at the last checkpoint and not in the one that is written
    /// (`entry_list`): first block, length.
    small: RefCell<Vec<(u32, u32)>>,
    /// To be sent: first block, length; no two touch.
    queue: RefCell<BTreeMap<u32, u32>>,
    /// Zones to be reset, by their first block.
    resets: RefCell<BTreeSet<u32>>,
    /// Under way.
    in_flight: Rc<Cell<u32>>,
    resetting: Rc<RefCell<BTreeSet<u32>>>,
    idle: Rc<WaitQueue>,
    wake: Rc<WaitQueue>,
    stopped: Cell<bool>,
}

impl Discards {
    pub(super) fn new(rt: &Rt) -> Discards {
        Discards {
            small: RefCell::default(),
            queue: RefCell::default(),
            resets: RefCell::default(),
            in_flight: Rc::new(Cell::new(0)),
            resetting: Rc::default(),
            idle: Rc::new(WaitQueue::new(rt, "discards")),
            wake: Rc::new(WaitQueue::new(rt, "discard thread")),
            stopped: Cell::new(false),
        }
    }

    /// Queues blocks, joined with what touches them.
    fn put(&self, start: u32, len: u32) {
        let mut queue = self.queue.borrow_mut();
        let (mut start, mut end) = (start, start + len);
        if let Some((s, l)) = queue.range(..=start).next_back().map(|(s, l)| (*s, *l))
            && s + l >= start
        {
            queue.remove(&s);
            (start, end) = (s, end.max(s + l));
        }
        while let Some((s, l)) = queue.range(start..=end).next().map(|(s, l)| (*s, *l)) {
            queue.remove(&s);
            end = end.max(s + l);
        }
        queue.insert(start, end - start);
    }

    /// A block is written again: it is not discarded (`f2fs_wait_discard_bio`).
    fn punch(&self, addr: u32) {
        let mut queue = self.queue.borrow_mut();
        let Some((s, l)) = queue.range(..=addr).next_back().map(|(s, l)| (*s, *l)) else { return };
        if s + l <= addr {
            return;
        }
        queue.remove(&s);
        if addr > s {
            queue.insert(s, addr - s);
        }
        if s + l > addr + 1 {
            queue.insert(addr + 1, s + l - addr - 1);
        }
    }

    fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty() && self.resets.borrow().is_empty()
    }
}

impl F2fs {
    /// Are discards sent as blocks become free (`f2fs_realtime_discard_enable`)?
    pub(super) fn discards_now(&self) -> bool {
        (self.opts.discard && self.can_discard()) || self.g.is_zoned
    }

    /// Does any device take discards (`f2fs_hw_support_discard`)?
    pub(super) fn can_discard(&self) -> bool {
        self.io.parts().iter().any(|p| p.limits().discard)
    }

    /// Notes blocks of a segment that the checkpoint under way does not have any more
    /// (`add_discard_addrs`).
    pub(super) fn note_small_discards(&self, segment: u32) {
        if self.g.is_zoned || !self.discards_now() {
            return;
        }
        let space = self.space.borrow();
        let se = space.seg(segment);
        let Some(maps) = &se.maps else { return };
        if se.valid == 0 || se.valid == SEGMENT_BLOCKS {
            return;
        }
        let gone = |n: u32| bits::test(&maps.ckpt, n) && !bits::test(&maps.cur, n);
        let mut n = 0;
        let mut small = self.discards.small.borrow_mut();
        while n < SEGMENT_BLOCKS {
            let run = (n..SEGMENT_BLOCKS).take_while(|n| gone(*n)).count() as u32;
            if run > 0 {
                small.push((self.g.block(segment, n), run));
            }
            n += run + 1;
        }
    }

    /// After a checkpoint: what it does not have is discarded, or its zone reset
    /// (`f2fs_clear_prefree_segments`).
    pub(super) async fn clear_prefree(&self) {
        let runs = self.emptied_runs(true);
        self.discard_runs(runs).await;
        for (addr, len) in self.discards.small.take() {
            self.issue_discard(addr, len).await;
        }
        if !self.discards.is_empty() {
            self.discards.wake.wake_all();
        }
    }

    /// Discards segments, or resets the zones that they leave empty, unless that is for `fstrim`.
    async fn discard_runs(&self, runs: Vec<(u32, u32)>) {
        if !self.discards_now() {
            return;
        }
        let sections = self.is_lfs() && (self.g.section_segments > 1 || self.g.is_zoned);
        for (start, end) in runs {
            if !sections {
                let (addr, len) = (self.g.block(start, 0), (end - start) * SEGMENT_BLOCKS);
                self.issue_discard(addr, len).await;
                continue;
            }
            let per = self.g.section_segments;
            for section in start / per..end.div_ceil(per) {
                let empty = {
                    let space = self.space.borrow();
                    !space.is_cursec(section) && space.section_valid(section * per) == 0
                };
                if empty {
                    let len = per * SEGMENT_BLOCKS;
                    self.issue_discard(self.g.block(section * per, 0), len).await;
                }
            }
        }
    }

    /// Runs of segments that were emptied; with `clear` they are not any more.
    fn emptied_runs(&self, clear: bool) -> Vec<(u32, u32)> {
        let mut space = self.space.borrow_mut();
        let align = space.lfs && space.is_large();
        let (all, per) = (self.g.segments, self.g.section_segments);
        let mut out = Vec::new();
        let mut from = 0;
        while let Some(first) = space.segs.emptied.next(true, from, all) {
            let mut start = first;
            let mut end = space.segs.emptied.next(false, start + 1, all).unwrap_or(all);
            if align {
                start = start / per * per;
                end = end.next_multiple_of(per).min(all);
            }
            if clear {
                (start..end).for_each(|s| {
                    space.segs.emptied.put(s, false);
                });
            }
            out.push((start, end));
            from = end;
        }
        out
    }

    /// Queues blocks to be discarded, or resets their zone (`f2fs_issue_discard`).
    async fn issue_discard(&self, addr: u32, len: u32) {
        {
            let mut space = self.space.borrow_mut();
            let trimmed = space.sit.trimmed;
            let mut known = 0;
            for block in addr..addr.saturating_add(len) {
                let Some((segment, offset)) = self.g.place(block) else { continue };
                let maps = space.seg_mut(segment).maps(trimmed);
                known += u64::from(!bits::set(&mut maps.discard, offset, true));
            }
            space.sit.discard_blocks = space.sit.discard_blocks.saturating_sub(known);
        }
        if !self.g.is_zoned {
            self.discards.put(addr, len);
            return;
        }
        if self.is_sequential(addr) {
            self.discards.resets.borrow_mut().insert(addr);
            if !self.opts.era.async_zone_reset() {
                // Nobody can be told: who writes there next finds the zone as it is.
                drop(self.reset_zone(addr).await);
            }
        } else if self.io.target(&self.g, addr).0.limits().discard {
            self.discards.put(addr, len);
        }
    }

    /// Does a block lie in a zone that is written in order only?
    pub(super) fn is_sequential(&self, addr: u32) -> bool {
        let (part, at) = self.io.target(&self.g, addr);
        let at = part.start().advance(at.0);
        part.queue().limits().zones.is_some_and(|z| z.is_sequential(at))
    }

    /// Resets a zone that is to be. Waits: for the command. Errors: `Io`.
    async fn reset_zone(&self, addr: u32) -> FsResult<()> {
        if !self.discards.resets.borrow_mut().remove(&addr) {
            return Ok(());
        }
        self.discards.resetting.borrow_mut().insert(addr);
        let (part, at) = self.io.target(&self.g, addr);
        let done = part.manage_zone(ZoneOp::Reset, at).await;
        self.discards.resetting.borrow_mut().remove(&addr);
        self.discards.idle.wake_all();
        done.map_err(|_| FsError::Io)
    }

    /// A block is given out that may be to be discarded (`f2fs_wait_discard_bio`). Waits: for the
    /// reset of its zone.
    pub(super) async fn before_use(&self, addr: u32) -> FsResult<()> {
        if self.g.is_zoned {
            let per = self.g.section_blocks();
            let start = addr - (addr - self.g.main) % per;
            if start == addr {
                self.reset_zone(start).await?;
                while self.discards.resetting.borrow().contains(&start) {
                    self.discards.idle.wait().await;
                }
            }
        }
        self.discards.punch(addr);
        Ok(())
    }

    /// Sends up to `most` discards and resets, the largest first. How many.
    async fn send_discards(&self, most: usize, least: u32) -> usize {
        let mut sent = 0;
        let zones: Vec<u32> = self.discards.resets.borrow().iter().copied().take(most).collect();
        for zone in zones {
            drop(self.reset_zone(zone).await);
            sent += 1;
        }
        let mut found: Vec<(u32, u32)> = {
            let queue = self.discards.queue.borrow();
            queue.iter().map(|(s, l)| (*s, *l)).filter(|(_, l)| *l >= least).collect()
        };
        found.sort_by_key(|(s, l)| (std::cmp::Reverse((*l).min(SEGMENT_BLOCKS)), *s));
        let plug = self.io.part().plug();
        for (start, len) in found.into_iter().take(most.saturating_sub(sent)) {
            self.discards.queue.borrow_mut().remove(&start);
            let on_one = self.io.on_one(&self.g, start, len);
            if on_one < len {
                self.discards.queue.borrow_mut().insert(start + on_one, len - on_one);
            }
            let len = on_one;
            let (part, at) = self.io.target(&self.g, start);
            let (n, idle) = (self.discards.in_flight.clone(), self.discards.idle.clone());
            n.set(n.get() + 1);
            part.submit(Bio::discard(at, len * SECTORS, Flags::NONE).on_end(move |_| {
                n.set(n.get() - 1);
                idle.wake_all();
            }));
            sent += 1;
        }
        drop(plug);
        sent
    }

    async fn wait_discards(&self) {
        while self.discards.in_flight.get() > 0 {
            self.discards.idle.wait().await;
        }
    }

    /// Starts the thread (`f2fs_start_discard_thread`).
    pub(super) fn start_discard_thread(self: &Rc<Self>) {
        if self.discards_now() {
            let (major, minor) = self.opts.device;
            let name = format!("f2fs_discard-{major}:{minor}");
            let wake = self.discards.wake.clone();
            self.rt.spawn_daemon(name.as_str(), serve(Rc::downgrade(self), wake));
        }
    }

    /// Ends it.
    pub(super) fn stop_discard_thread(&self) {
        self.discards.stopped.set(true);
        self.discards.wake.wake_all();
    }

    /// At unmount: sends all that is queued (`f2fs_issue_discard_timeout`).
    pub(super) async fn finish_discards(&self) {
        while !self.discards.is_empty() && self.send_discards(ROUND, 1).await > 0 {
            self.wait_discards().await;
        }
        self.wait_discards().await;
    }

    fn discard_granularity(&self) -> u32 {
        if self.is_small_volume() { 1 } else { GRANULARITY }
    }
}

/// The thread (`issue_discard_thread`).
async fn serve(fs: Weak<F2fs>, wake: Rc<WaitQueue>) {
    let mut sleep = MIN_SLEEP;
    loop {
        wp_rt::wait_timeout(&wake, sleep).await;
        let Some(fs) = fs.upgrade() else { return };
        if fs.discards.stopped.get() {
            return;
        }
        if fs.discards.is_empty() {
            sleep = MAX_SLEEP;
            continue;
        }
        let since = fs.rt.now().since(fs.cps.used_at.get());
        if since < IDLE_INTERVAL || fs.is_busy() {
            sleep = if since < IDLE_INTERVAL { Span(IDLE_INTERVAL.0 - since.0) } else { MID_SLEEP };
            continue;
        }
        if !site::DISCARD_LATER.on() {
            fs.discard_runs(fs.emptied_runs(false)).await;
        }
        let sent = fs.send_discards(ROUND, fs.discard_granularity()).await;
        fs.wait_discards().await;
        sleep = if sent > 0 { MIN_SLEEP } else { MAX_SLEEP };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one_and_what_is_used_again_is_left_out() {
        let d = Discards::new(&Rt::new(1));
        d.put(10, 5);
        d.put(20, 5);
        d.put(15, 5);
        d.put(40, 1);
        let all = |d: &Discards| d.queue.borrow().clone().into_iter().collect::<Vec<_>>();
        assert_eq!(all(&d), [(10, 15), (40, 1)]);
        d.punch(12);
        d.punch(40);
        d.punch(30);
        assert_eq!(all(&d), [(10, 2), (13, 12)]);
        d.put(11, 3);
        assert_eq!(all(&d), [(10, 15)]);
    }
}
