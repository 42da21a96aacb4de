//! Making room: garbage collection and checkpoints when too little is left.
//!
//! Source: Linux `fs/f2fs/segment.c` (`f2fs_balance_fs`, `f2fs_balance_fs_bg`), `segment.h`
//!         (`has_not_enough_free_secs`).

use std::rc::Rc;

use wp_base::Span;

use super::counts::Dirty;
use super::gc::Collect;
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::Log;

/// Age of the last checkpoint at which the background writes one (`DEF_CP_INTERVAL`).
const CP_INTERVAL: Span = Span::secs(60);
/// How long after a request the file system counts as idle (`DEF_IDLE_INTERVAL`).
pub(super) const IDLE_INTERVAL: Span = Span::secs(5);
/// Most emptied segments before a checkpoint is due (`DEF_MAX_RECLAIM_PREFREE_SEGMENTS`).
const EMPTIED_MOST: u32 = 4096;

impl F2fs {
    /// Before an operation that takes space, and after one that made something dirty (`need`)
    /// (`f2fs_balance_fs`). Waits: for garbage collection, if free sections run out. Not to be
    /// called with [`F2fs::lock_op`] held.
    pub(crate) async fn balance_fs(self: &Rc<Self>, need: bool) {
        if need && self.nat.is_full() {
            self.balance_bg().await;
        }
        if self.lacks_sections(0) {
            self.submit_merged(Kind::Data);
            self.submit_all_ipu();
            let _gc = self.cps.gc_lock.lock().await;
            let how = Collect { background: true, not_background: true, sections: 1 };
            Box::pin(self.collect(how)).await;
        }
    }

    /// Sections that what is dirty will take: at least, at most, and whether the logs have room for
    /// the rest (`__get_secs_required`).
    pub(super) fn sections_required(&self) -> (u32, u32, bool) {
        let space = self.space.borrow();
        let cap = u64::from(space.cap);
        let dirty = |kind| self.counts.dirty(kind);
        let dents = dirty(Dirty::Dents);
        let nodes = dirty(Dirty::Nodes) + dents + dirty(Dirty::Inodes);
        let data = if space.lfs { dirty(Dirty::Data) } else { 0 };
        let all = [nodes, dents, data];
        let lower: u64 = all.iter().map(|n| n / cap).sum();
        let upper = lower + all.iter().filter(|n| *n % cap > 0).count() as u64;
        let room = |log: Log| {
            let segment = space.log(log).segment;
            u64::from(space.cap.saturating_sub(space.section_ckpt_valid(segment)))
        };
        let fits = Log::NODE.iter().all(|l| nodes % cap <= room(*l))
            && Log::DATA.iter().all(|l| data % cap <= room(*l))
            && dents % cap <= room(Log::HotData);
        (lower as u32, upper as u32, fits)
    }

    /// Are there too few free sections for what is dirty, with `freed` more
    /// (`has_not_enough_free_secs`)?
    pub(super) fn lacks_sections(&self, freed: u32) -> bool {
        let (lower, upper, fits) = self.sections_required();
        let space = self.space.borrow();
        let free = space.segs.free_sections() + freed;
        let reserved = self.reserved_sections(&space);
        if free > upper + reserved {
            return false;
        }
        free <= lower + reserved || !fits
    }

    /// Is so much dirty that a checkpoint is due (`excess_dirty_threshold`)?
    fn much_is_dirty(&self) -> bool {
        let factor = if self.cp_rwsem.available() < super::checkpoint::ALL { 3 } else { 2 };
        // `DEFAULT_DIRTY_THRESHOLD` is 4.
        let most = 512 * factor * 4;
        let kinds = [Dirty::Dents, Dirty::Nodes, Dirty::Meta, Dirty::Inodes];
        let all = kinds.map(|k| self.counts.dirty(k));
        all.iter().any(|n| *n >= most) || all.iter().sum::<u64>() > most * 3 / 2
    }

    fn many_are_emptied(&self) -> bool {
        let most = (self.g.segments * 5 / 100).min(EMPTIED_MOST);
        self.space.borrow().segs.emptied.ones() > most
    }

    /// What is done in the background (`f2fs_balance_fs_bg`): free numbers are looked for, and a
    /// checkpoint is written if much is dirty, or if the last is old and nobody is at work.
    pub(super) async fn balance_bg(self: &Rc<Self>) {
        self.shrink_nat();
        // Without free numbers whoever needs one finds the error.
        drop(self.build_free_nids(false).await);
        let due = self.nat.is_full()
            || self.much_is_dirty()
            || self.many_are_emptied()
            || !self.space_for_roll_forward();
        if !due {
            let now = self.rt.now();
            let busy = self.cp_rwsem.available() < super::checkpoint::ALL;
            let idle = now.since(self.cps.used_at.get()) >= IDLE_INTERVAL;
            if self.is_busy() || (!idle && (busy || !self.opts.era.checkpoints_when_busy())) {
                return;
            }
            if now.since(self.cps.written_at.get()) < CP_INTERVAL {
                return;
            }
        }
        // An error is the next caller's, who finds writing stopped.
        drop(self.sync_checkpoint().await);
    }
}
