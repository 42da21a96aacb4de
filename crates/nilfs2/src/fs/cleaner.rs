//! The cleaner: a thread that makes segments free again.
//!
//! Picture:    every `clean_check_interval` until free segments are few -> the segments that were
//!             written longest ago -> [`Nilfs::examine`] -> a log with what is kept of them, and a
//!             checkpoint in which they are free -> `cleaning_interval` -> again, until free
//!             segments are many.
//! Invariants: 1. no segment is freed whose logs recovery may follow.
//!             2. with `secure`, and barriers, a segment is used again when a checkpoint in which
//!                it is free is durable. Linux uses it when that is written; a power cut that keeps
//!                the new use and loses the checkpoint then leaves older checkpoints without their
//!                blocks.
//! Left out:   the daemon's own processor time; commands to it; its retry after too little memory.
//! Source:     nilfs-utils 2.2: sbin/cleanerd.c, etc/nilfs_cleanerd.conf; fs/nilfs2/segment.c
//!             (`nilfs_clean_segments`), ioctl.c (`nilfs_ioctl_clean_segments`).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use wp_base::{FsError, FsResult, Span, Time};
use wp_rt::{Either, Rt, WaitQueue, race};

use super::Nilfs;
use super::victims::{Found, Limits};
use crate::disk::SegmentUsage;

/// A number of segments or blocks, or a part of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// An absolute number.
    Count(u64),
    /// A percentage of all.
    Percent(u64),
}

impl Share {
    fn of(self, all: u64) -> u64 {
        match self {
            Share::Count(n) => n,
            Share::Percent(p) => all.saturating_mul(p).div_ceil(100),
        }
    }
}

/// Numbers of the cleaner, named as in nilfs_cleanerd.conf.
#[derive(Clone, Debug)]
pub struct CleanerOptions {
    /// Seconds for which every checkpoint stays.
    pub protection_period: u64,
    /// The cleaner starts below this number of free segments; 0: it never pauses.
    pub min_clean_segments: Share,
    /// The cleaner pauses above this number of free segments.
    pub max_clean_segments: Share,
    /// Seconds between checks of the number of free segments.
    pub clean_check_interval: u64,
    /// Segments at a time, and below `min_clean_segments`.
    pub nsegments_per_clean: [u64; 2],
    /// Seconds between two cleanings, and below `min_clean_segments`.
    pub cleaning_interval: [u64; 2],
    /// Blocks that a segment is to give at least, and below `min_clean_segments`.
    pub min_reclaimable_blocks: [Share; 2],
    /// Is the device flushed before a freed segment is used again? Linux does not.
    pub secure: bool,
    /// Do calls that find no room wait for it, as long as it finds something to clean? In Linux
    /// they fail.
    pub awaited: bool,
}

impl Default for CleanerOptions {
    fn default() -> CleanerOptions {
        CleanerOptions {
            protection_period: 3600,
            min_clean_segments: Share::Percent(10),
            max_clean_segments: Share::Percent(20),
            clean_check_interval: 10,
            nsegments_per_clean: [2, 4],
            cleaning_interval: [5, 1],
            min_reclaimable_blocks: [Share::Percent(10), Share::Percent(1)],
            secure: true,
            awaited: false,
        }
    }
}

/// Who cleans.
pub(super) struct Cleaner {
    wake: Rc<WaitQueue>,
    /// A pass has ended, or the thread has.
    finished: WaitQueue,
    is_stopped: Cell<bool>,
    is_over: Cell<bool>,
    /// Somebody waits for room.
    is_asked: Cell<bool>,
    /// Passes that have ended.
    passes: Cell<u64>,
    /// Did the last find something to do, or put it off?
    goes_on: Cell<bool>,
    state: RefCell<State>,
}

/// What the thread knows from one pass to the next.
struct State {
    is_running: bool,
    /// Few segments are free: it hurries.
    hurries: bool,
    /// When the last log was written that was not its own, as it began to run.
    nongc_ctime: Option<u64>,
    /// Not before this is the next pass.
    target: Time,
    /// Did it just make more segments free to be cleaned, by new super blocks?
    has_retried: bool,
}

/// What a pass did.
struct Pass {
    chosen: usize,
    done: u64,
    /// When the oldest segment was written that is in use.
    oldest: Option<u64>,
    /// It was only put off, so that the next one follows at once.
    is_deferred: bool,
}

impl Cleaner {
    pub fn new(rt: &Rt) -> Cleaner {
        Cleaner {
            wake: Rc::new(WaitQueue::new(rt, "nilfs_cleanerd")),
            finished: WaitQueue::new(rt, "nilfs2 cleaning"),
            is_stopped: Cell::new(false),
            is_over: Cell::new(true),
            is_asked: Cell::new(false),
            passes: Cell::new(0),
            goes_on: Cell::new(false),
            state: RefCell::new(State {
                is_running: false,
                hurries: false,
                nongc_ctime: None,
                target: Time::default(),
                has_retried: false,
            }),
        }
    }
}

impl Nilfs {
    pub(super) fn start_cleaner(self: &Rc<Self>) {
        let Some(options) = &self.opts.cleaner else { return };
        let mut state = self.cleaner.state.borrow_mut();
        // With a pause it sleeps first.
        state.is_running = options.min_clean_segments.of(self.g.segments) == 0;
        let pause = if state.is_running { 0 } else { options.clean_check_interval };
        drop(state);
        self.cleaner.is_over.set(false);
        let wake = self.cleaner.wake.clone();
        let task = serve(self.rt.clone(), Rc::downgrade(self), wake, Span::secs(pause));
        self.rt.spawn_daemon("nilfs_cleanerd", task);
    }

    /// Ends the cleaner. Waits: for the pass that is under way.
    pub(super) async fn stop_cleaner(&self) {
        self.cleaner.is_stopped.set(true);
        self.cleaner.wake.wake_all();
        while !self.cleaner.is_over.get() {
            self.cleaner.finished.wait().await;
        }
    }

    /// Waits until there is room for a change, if the cleaner is to be waited for and makes some.
    pub(super) async fn wait_for_room(&self) {
        if !self.opts.cleaner.as_ref().is_some_and(|c| c.awaited) {
            return;
        }
        // What it frees may be what its own logs have taken: as many passes as there are segments,
        // and no more segments free than before, is no room.
        let (mut vain, mut most) = (0, 0);
        while self.check_room() == Err(FsError::NoSpace) && !self.cleaner.is_over.get() {
            let before = self.cleaner.passes.get();
            self.cleaner.is_asked.set(true);
            self.cleaner.wake.wake_all();
            while self.cleaner.passes.get() == before && !self.cleaner.is_over.get() {
                self.cleaner.finished.wait().await;
            }
            let Ok(free) = self.store.borrow_mut().segments_free() else { return };
            let gains = free > most;
            most = most.max(free);
            vain = if gains { 0 } else { vain + 1 };
            if !self.cleaner.goes_on.get() || vain > self.g.segments {
                return;
            }
        }
    }

    /// May the cleaner look at it? `nilfs_suinfo_reclaimable`.
    pub(super) fn is_reclaimable(&self, segment: u64, usage: &SegmentUsage) -> bool {
        let place = self.store.borrow().place();
        let is_active = segment == place.segment || segment == place.next_segment;
        usage.is_dirty() && !usage.is_bad() && !is_active
    }

    /// A freed segment may be used from here on.
    pub(super) async fn secure_cleaning(&self) -> FsResult<()> {
        match &self.opts.cleaner {
            Some(c) if c.secure => self.flush_now().await,
            _ => Ok(()),
        }
    }

    /// One pass; how long to sleep then. `nilfs_cleanerd_clean_loop`.
    async fn pass(&self, o: &CleanerOptions) -> FsResult<Span> {
        let free = self.store.borrow_mut().segments_free()?;
        let is_asked = self.cleaner.is_asked.get();
        if !self.wants_cleaning(o, free) {
            self.cleaner.goes_on.set(false);
            return Ok(Span::secs(o.clean_check_interval));
        }
        let now = self.secs();
        let (segments, oldest) = {
            // No log is on its way: what is chosen is on the device as memory has it, and stays so
            // until it is cleaned. (`ns_segctor_sem`, which Linux takes to tell of segments.)
            let _sem = self.sem.lock().await;
            self.choose(o, (free, is_asked), now)?
        };
        let mut pass = Pass { chosen: segments.len(), done: 0, oldest, is_deferred: false };
        if segments.is_empty() && is_asked {
            self.shrink_protected().await?;
        } else if segments.is_empty() {
            self.cleaner.state.borrow_mut().has_retried = false;
        } else {
            self.clean(o, &segments, &mut pass).await?;
        }
        let has_retried = self.cleaner.state.borrow().has_retried;
        self.cleaner.goes_on.set(pass.done > 0 || pass.is_deferred || has_retried);
        Ok(self.next_pass(o, &pass, now))
    }

    /// Is there reason for a pass? `nilfs_cleanerd_check_state`.
    fn wants_cleaning(&self, o: &CleanerOptions, free: u64) -> bool {
        let (all, reserved) = (self.g.segments, self.g.reserved_segments());
        let least = o.min_clean_segments.of(all);
        let is_asked = self.cleaner.is_asked.take();
        let mut s = self.cleaner.state.borrow_mut();
        s.hurries = is_asked || free < least + reserved;
        if least > 0 && !is_asked {
            if s.is_running && free > o.max_clean_segments.of(all) + reserved {
                s.is_running = false;
                return false;
            }
            if !s.is_running {
                if free >= least + reserved {
                    return false;
                }
                s.is_running = true;
                s.target = self.rt.now();
            }
        }
        if !s.is_running {
            let last = Some(self.store.borrow().nongc_ctime());
            // Nothing was written that it did not write itself.
            if s.nongc_ctime == last && !is_asked {
                return false;
            }
            (s.is_running, s.nongc_ctime) = (true, last);
        }
        true
    }

    /// The segments that were written longest ago, before the protected time; and when the oldest
    /// of all was written. `nilfs_cleanerd_select_segments`.
    fn choose(
        &self,
        o: &CleanerOptions,
        (free, is_asked): (u64, bool),
        now: u64,
    ) -> FsResult<(Vec<u64>, Option<u64>)> {
        let hurries = usize::from(self.cleaner.state.borrow().hurries);
        let most = o.nsegments_per_clean.get(hurries).copied().unwrap_or(1).min(free);
        // Who waits for room cannot wait until others write.
        let newest = if is_asked { u64::MAX } else { self.store.borrow().nongc_ctime() };
        let protected = now.saturating_sub(o.protection_period) + u64::from(is_asked);
        let (mut found, mut oldest) = (Vec::new(), None::<u64>);
        for segment in 0..self.g.segments {
            let usage = self.store.borrow_mut().usage(segment)?;
            if !self.is_reclaimable(segment, &usage) {
                continue;
            }
            let written = usage.lastmod.get();
            // Those of the future are taken for old.
            let age = if written <= now { written } else { newest.saturating_sub(1) };
            if age >= newest {
                continue;
            }
            oldest = Some(oldest.map_or(written, |o| o.min(written)));
            if written < protected || written > now {
                found.push((age, segment));
            }
        }
        found.sort_unstable();
        found.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok((found.into_iter().map(|(_, segment)| segment).collect(), oldest))
    }

    /// The first checkpoint that is protected by its age. `nilfs_cnormap_track_back`.
    fn protected_cno(&self, o: &CleanerOptions) -> FsResult<u64> {
        let from = self.secs().saturating_sub(o.protection_period);
        let mut store = self.store.borrow_mut();
        let mut out = u64::MAX;
        if o.protection_period == 0 {
            return Ok(out);
        }
        for cno in (1..store.cno()).rev() {
            match store.checkpoint(cno)? {
                Some(cp) if cp.create.get() < from => break,
                Some(_) => out = cno,
                None => {}
            }
        }
        Ok(out)
    }

    /// Cleans segments. `nilfs_cleanerd_clean_segments`.
    async fn clean(&self, o: &CleanerOptions, segments: &[u64], pass: &mut Pass) -> FsResult<()> {
        let hurries = usize::from(self.cleaner.state.borrow().hurries);
        let least = o.min_reclaimable_blocks.get(hurries).copied().unwrap_or(Share::Count(0));
        let limits = Limits {
            seq: self.supers.borrow().protected_seq,
            cno: self.protected_cno(o)?,
            reclaimed: least.of(self.g.segment_blocks),
        };
        match self.examine(segments, &limits).await? {
            Found::Work(cleaning) => {
                self.consider_super();
                match self.construct(Some(&cleaning)).await {
                    // It goes on when there is room again.
                    Ok(()) | Err(FsError::NoSpace) => {}
                    Err(e) => return Err(e),
                }
                pass.done = cleaning.segments.len() as u64;
            }
            Found::TooFull(segments) => {
                // They are considered again after the others.
                let _sem = self.sem.lock().await;
                self.check_writable()?;
                let now = self.secs();
                for segment in &segments {
                    self.store.borrow_mut().set_written(*segment, now)?;
                }
                self.changed();
                (pass.done, pass.is_deferred) = (segments.len() as u64, true);
            }
            Found::Protected => return self.shrink_protected().await,
        }
        self.cleaner.state.borrow_mut().has_retried = false;
        Ok(())
    }

    /// A checkpoint, which both super blocks name, so that recovery needs less; every second time,
    /// as it was no help then.
    async fn shrink_protected(&self) -> FsResult<()> {
        let has_retried = self.cleaner.state.borrow().has_retried;
        if !has_retried {
            self.write_all().await?;
            self.flush_device().await?;
            let _sem = self.sem.lock().await;
            self.check_writable()?;
            self.catch_up_supers().await?;
        }
        self.cleaner.state.borrow_mut().has_retried = !has_retried;
        Ok(())
    }

    /// How long to sleep after a pass that began at second `now`.
    /// `nilfs_cleanerd_recalc_interval`.
    fn next_pass(&self, o: &CleanerOptions, pass: &Pass, now: u64) -> Span {
        let mut s = self.cleaner.state.borrow_mut();
        let protected = now.saturating_sub(o.protection_period);
        if pass.chosen == 0 || pass.done == 0 && !s.has_retried {
            let secs = match pass.oldest {
                None => {
                    s.is_running = false;
                    o.protection_period
                }
                Some(oldest) => oldest.min(self.secs()).saturating_sub(protected) + 1,
            };
            return Span::secs(secs.max(o.clean_check_interval));
        }
        let interval = o.cleaning_interval.get(usize::from(s.hurries)).copied().unwrap_or(1);
        let now = self.rt.now();
        if now >= s.target || pass.is_deferred {
            s.target = now + Span::secs(interval);
            return Span::secs(0);
        }
        let wait = s.target.since(now);
        s.target += Span::secs(interval);
        wait
    }
}

/// `nilfs_cleanerd`.
async fn serve(rt: Rt, fs: Weak<Nilfs>, wake: Rc<WaitQueue>, first: Span) {
    let mut next = rt.now() + first;
    loop {
        let woken = wake.wait();
        let Some(up) = fs.upgrade() else { return };
        let c = &up.cleaner;
        let is_over = c.is_stopped.get() || up.check_writable().is_err();
        if is_over {
            c.is_over.set(true);
            c.finished.wake_all();
            return;
        }
        if !c.is_asked.get() && rt.now() < next {
            drop(up);
            match race(woken, rt.sleep_until(next)).await {
                Either::Left(()) | Either::Right(()) => {}
            }
            continue;
        }
        drop(woken);
        let Some(options) = up.opts.cleaner.clone() else { return };
        match up.pass(&options).await {
            Ok(pause) => next = rt.now() + pause,
            // The daemon gives up.
            Err(_) => c.is_stopped.set(true),
        }
        c.passes.set(c.passes.get() + 1);
        c.finished.wake_all();
    }
}
