//! Garbage collection.
//!
//! Source: Linux `fs/f2fs/gc.c`.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use wp_base::event::{Class, Event, FS_BEGIN, FS_END};
use wp_base::{FsError, FsResult, Span};
use wp_rt::{Rt, WaitQueue};

use super::balance::IDLE_INTERVAL;
use super::checkpoint::Reason;
use super::io::Kind;
use super::meta::show;
use super::mount::F2fs;
use super::node::footer;
use crate::disk::{Inode, Summary, SummaryBlock, addr};

/// Sleep between two looks of the thread, least and most, and when there was nothing to do
/// (`DEF_GC_THREAD_MIN_SLEEP_TIME` and its kin).
const MIN_SLEEP: Span = Span::secs(30);
const MAX_SLEEP: Span = Span::secs(60);
const NO_GC_SLEEP: Span = Span::secs(300);
/// Sections that a checkpoint in the middle of it needs (`NR_GC_CHECKPOINT_SECS`).
const CP_SECTIONS: u32 = 3;
/// Rounds that direct I/O kept from blocks, after which it is left at that (`MAX_SKIP_GC_COUNT`).
const SKIPPED_MOST: u32 = 16;

/// State of garbage collection.
pub(crate) struct GcState {
    wake: Rc<WaitQueue>,
    stopped: Cell<bool>,
    /// Blocks moved in all.
    pub(super) moved: Cell<u64>,
    /// Did direct I/O keep this round from a block (`skipped_gc_rwsem`)?
    pub(super) has_skipped: Cell<bool>,
}

impl GcState {
    pub(super) fn new(rt: &Rt) -> GcState {
        let wake = Rc::new(WaitQueue::new(rt, "garbage collection"));
        GcState {
            wake,
            stopped: Cell::new(false),
            moved: Cell::new(0),
            has_skipped: Cell::new(false),
        }
    }
}

/// What is asked of one collection (`struct f2fs_gc_control`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Collect {
    /// Begins in the background: marks blocks dirty, and writes nothing itself.
    pub background: bool,
    /// If it is not needed in the foreground, nothing is done.
    pub not_background: bool,
    /// Sections to be freed.
    pub sections: u32,
}

impl F2fs {
    /// Starts the thread (`f2fs_start_gc_thread`).
    pub(super) fn start_gc_thread(self: &Rc<Self>) {
        let (major, minor) = self.opts.device;
        let name = format!("f2fs_gc-{major}:{minor}");
        let wake = self.gc.wake.clone();
        self.rt.spawn_daemon(name.as_str(), serve(Rc::downgrade(self), wake));
    }

    /// Ends it at its next look.
    pub(super) fn stop_gc_thread(&self) {
        self.gc.stopped.set(true);
        self.gc.wake.wake_all();
    }

    /// Is there much to be gained (`has_enough_invalid_blocks`)?
    fn much_is_invalid(&self) -> bool {
        let space = self.space.borrow();
        let user = self.counts.user.get();
        let invalid = user.saturating_sub(space.sit.written);
        let free: u64 = (0..self.g.segments)
            .filter(|s| !space.segs.in_use.test(*s))
            .map(|s| u64::from(space.usable(s)))
            .sum();
        let spare = u64::from(self.cp.borrow().head().overprov_segment_count.get()) * 512;
        invalid > user * 40 / 100 && free.saturating_sub(spare) < invalid * 40 / 100
    }

    /// Collects (`f2fs_gc`; the caller has `gc_lock`). No: nothing was found to be collected.
    pub(super) async fn collect(self: &Rc<Self>, how: Collect) -> bool {
        let tell = |step, why| {
            let (work, id) = ("garbage collection", self.cp_version());
            self.rt.emit(Class::FS, || Event::Fs { work, step, id, why });
        };
        tell(FS_BEGIN, if how.background { "in the background" } else { "free segments run out" });
        let found = self.collect_rounds(how).await;
        tell(FS_END, "");
        found
    }

    async fn collect_rounds(self: &Rc<Self>, how: Collect) -> bool {
        let mut foreground = !how.background;
        let mut freed = 0;
        let (mut rounds, mut skipped) = (0, 0);
        loop {
            if self.cp_error() || !self.is_mounted() {
                return false;
            }
            if !foreground && self.lacks_sections(0) {
                // Emptied segments may be all that is needed.
                let emptied = self.space.borrow().segs.emptied.ones();
                if emptied > 0 && self.write_checkpoint(Reason::Sync).await.is_err() {
                    return false;
                }
                foreground = self.lacks_sections(0);
            }
            if !foreground && how.not_background {
                return false;
            }
            let victim = self.space.borrow_mut().gc_victim(foreground);
            let Some(victim) = victim else { return rounds > 0 };
            self.gc.has_skipped.set(false);
            let whole = self.collect_section(victim, foreground).await;
            freed += u32::from(whole);
            rounds += 1;
            if foreground {
                self.space.borrow_mut().segs.victim = None;
            }
            if !how.background || !self.lacks_sections(if foreground { freed } else { 0 }) {
                if foreground && freed < how.sections && rounds < self.g.sections * 2 {
                    continue;
                }
                return true;
            }
            skipped += u32::from(foreground && self.gc.has_skipped.get());
            if skipped > SKIPPED_MOST && skipped * 2 >= rounds {
                return self.write_checkpoint(Reason::Sync).await.is_ok();
            }
            if rounds > self.g.sections * 2 {
                // Cleaning frees nothing: every section is as full as it can be.
                return true;
            }
            let (_, upper, _) = self.sections_required();
            let (free, emptied) = {
                let space = self.space.borrow();
                (space.segs.free_sections(), space.segs.emptied.ones())
            };
            let due = free <= upper + CP_SECTIONS && emptied > 0;
            if due && self.write_checkpoint(Reason::Sync).await.is_err() {
                return false;
            }
        }
    }

    /// Moves what is in use out of a section, from `start` on (`do_garbage_collect`). Yes: all of
    /// its segments are empty.
    async fn collect_section(self: &Rc<Self>, start: u32, foreground: bool) -> bool {
        let per = self.g.section_segments;
        let section = self.g.section_of(start);
        let end = section * per + self.space.borrow().usable_segments();
        let sums = (start..end).map(|s| self.g.summary_block(s)).collect::<Vec<u32>>();
        self.read_ahead_meta(sums.into_iter());
        let plug = self.io.part().plug();
        let mut freed = 0;
        let mut sent = [false; 2];
        let mut migrated = 0;
        for segment in start..end {
            let (valid, is_node) = {
                let space = self.space.borrow();
                (space.seg(segment).valid, space.seg(segment).log.is_node())
            };
            // Of a large section the background moves one segment at a time.
            let enough = !foreground && per > 1 && migrated > 0;
            if valid > 0 && !enough {
                let Ok(entries) = self.summaries_of(segment, is_node).await else { continue };
                let moved = if is_node {
                    self.collect_nodes(segment, &entries, foreground).await
                } else {
                    self.collect_data(segment, &entries, foreground).await
                };
                sent[usize::from(is_node)] |= moved;
                migrated += 1;
            }
            let mut space = self.space.borrow_mut();
            if space.seg(segment).valid == 0 {
                freed += 1;
            }
            if per > 1 && !enough {
                let next = (segment + 1 < end).then_some(segment + 1);
                space.segs.next_victim[usize::from(foreground)] = next;
            }
        }
        for (is_node, sent) in [false, true].into_iter().zip(sent) {
            if sent {
                self.submit_merged(if is_node { Kind::Node } else { Kind::Data });
            }
        }
        drop(plug);
        foreground && freed == self.space.borrow().usable_segments()
    }

    /// Summaries of a segment. Errors: `Corrupt` if they are not of its kind; `Io`.
    async fn summaries_of(&self, segment: u32, is_node: bool) -> FsResult<Vec<Summary>> {
        let at = self.g.summary_block(segment);
        let buf = self.meta_block(at).await?;
        let block = show(&buf, SummaryBlock::load);
        if (block.footer.entry_type == SummaryBlock::NODE) != is_node {
            self.set_need_fsck();
            self.stop_checkpoint();
            let expected = if is_node { "1, of nodes" } else { "0, of data" };
            let found = u64::from(block.footer.entry_type);
            let at = crate::disk::Geometry::byte_of(at);
            return Err(FsError::corrupt("f2fs summary", "entry_type", at, found, expected));
        }
        Ok(block.entries.to_vec())
    }

    fn is_valid(&self, segment: u32, offset: u32) -> bool {
        self.space.borrow().seg(segment).is_valid(offset)
    }

    /// `gc_node_segment`.
    async fn collect_nodes(
        self: &Rc<Self>,
        segment: u32,
        entries: &[Summary],
        foreground: bool,
    ) -> bool {
        let mut sent = false;
        let usable = self.space.borrow().usable(segment);
        for phase in 0..3 {
            for (offset, entry) in (0..usable).zip(entries) {
                if !foreground && self.lacks_sections(0) {
                    return sent;
                }
                if !self.is_valid(segment, offset) {
                    continue;
                }
                let nid = entry.nid.get();
                if self.check_nid(nid).is_err() {
                    continue;
                }
                match phase {
                    0 => {
                        let addr = self.nat_block_addr(self.g.nat_place(nid).0);
                        self.read_ahead_meta(std::iter::once(addr));
                    }
                    1 => self.ra_node(nid).await,
                    _ => {
                        let at = self.g.block(segment, offset);
                        let is_here = |i: super::nat::NodeInfo| i.blk_addr == at;
                        if self.nat(nid).await.is_ok_and(is_here)
                            && let Ok(wrote) = self.move_node(nid, foreground).await
                        {
                            sent |= wrote;
                            self.gc.moved.set(self.gc.moved.get() + 1);
                        }
                    }
                }
            }
        }
        sent
    }

    /// `gc_data_segment`.
    async fn collect_data(
        self: &Rc<Self>,
        segment: u32,
        entries: &[Summary],
        foreground: bool,
    ) -> bool {
        let mut sent = false;
        let usable = self.space.borrow().usable(segment);
        for phase in 0..4 {
            for (offset, entry) in (0..usable).zip(entries) {
                let full = {
                    let space = self.space.borrow();
                    space.section_valid(segment) == space.cap
                };
                if (!foreground && self.lacks_sections(0)) || full {
                    return sent;
                }
                let nid = entry.nid.get();
                if !self.is_valid(segment, offset) || self.check_nid(nid).is_err() {
                    continue;
                }
                if phase == 0 {
                    let addr = self.nat_block_addr(self.g.nat_place(nid).0);
                    self.read_ahead_meta(std::iter::once(addr));
                    continue;
                }
                if phase == 1 {
                    self.ra_node(nid).await;
                    continue;
                }
                let at = self.g.block(segment, offset);
                let Some((ino, node_ofs)) = self.is_alive(entry, at).await else { continue };
                if phase == 2 {
                    self.ra_node(ino).await;
                    continue;
                }
                let slot = u32::from(entry.ofs_in_node.get());
                let moved = self.gc_data_page(ino, node_ofs, slot, at, foreground).await;
                if let Ok(wrote) = moved {
                    sent |= wrote;
                    self.gc.moved.set(self.gc.moved.get() + 1);
                }
            }
        }
        sent
    }

    /// Has the node of the summary this block still? Its inode, and its place in the tree
    /// (`is_alive`).
    async fn is_alive(&self, entry: &Summary, at: u32) -> Option<(u32, u32)> {
        let nid = entry.nid.get();
        let buf = self.node(nid).await.ok()?;
        let info = self.nat(nid).await.ok()?;
        if info.version != entry.version {
            self.set_need_fsck();
        }
        let f = footer(&buf);
        let mut slot = u32::from(entry.ofs_in_node.get());
        if f.is_inode() {
            slot += show(&buf, |b| Inode::of(b).extra_bytes() / 4) + Inode::WORDS_AT as u32 / 4;
        }
        if slot >= 1018 {
            return None;
        }
        let found = self.node_word(&buf, slot);
        (addr::is_block(found) && found == at).then(|| (info.ino, f.offset()))
    }
}

/// The thread that collects in the background (`gc_thread_func`).
async fn serve(fs: Weak<F2fs>, wake: Rc<WaitQueue>) {
    let mut sleep = MIN_SLEEP;
    loop {
        wp_rt::wait_timeout(&wake, sleep).await;
        let Some(fs) = fs.upgrade() else { return };
        if fs.gc.stopped.get() {
            return;
        }
        let longer = |s: Span| if s == NO_GC_SLEEP { s } else { (s + MIN_SLEEP).min(MAX_SLEEP) };
        let Some(gc) = fs.cps.gc_lock.try_lock() else { continue };
        let idle = fs.rt.now().since(fs.cps.used_at.get()) >= IDLE_INTERVAL && !fs.is_busy();
        if !idle {
            sleep = longer(sleep);
            continue;
        }
        sleep = if fs.much_is_invalid() {
            let s = if sleep == NO_GC_SLEEP { MAX_SLEEP } else { sleep };
            if s < MIN_SLEEP + MIN_SLEEP { MIN_SLEEP } else { MIN_SLEEP.max(shorter(s)) }
        } else {
            longer(sleep)
        };
        let how = Collect { background: true, not_background: false, sections: 0 };
        if !fs.collect(how).await {
            sleep = NO_GC_SLEEP;
        }
        drop(gc);
        fs.balance_bg().await;
    }
}

fn shorter(s: Span) -> Span {
    Span(s.0.saturating_sub(MIN_SLEEP.0))
}
