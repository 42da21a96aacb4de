//! Fast commits: what changed since the last full commit, as records of its own, so that an fsync
//! writes one block where a full commit writes six.
//!
//! Picture:    every change of an inode, a range of its blocks or a name is tracked ([`track`] in
//!             memory) -> `fsync` ([`Ext4::fast_commit`], in `commit`) -> records (in `records`)
//!             behind the journal's ring -> a full commit forgets all of it.
//! Invariants: 1. what is tracked is all that changed since the last full commit, or the file
//!                system is ineligible and the next commit is a full one.
//!             2. while a commit is under way, changes are tracked apart: they are not in it.
//!             With iJournaling (`ijournal`) an fsync takes only its file out of what is tracked.
//! Left out:   eviction of a tracked inode (it stays in memory), encryption, resizing; since 7.2
//!             snapshots of the inodes.
//! Source:     Linux 6.12 `fs/ext4/fast_commit.c`.
//!
//! [`track`]: Ext4::fast_track_inode

mod commit;
mod ijournal;
mod records;

use std::cell::{Cell, OnceCell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_jbd2::{FastKind, Handle};
use wp_rt::{MaybeReady, Rt, WaitQueue};

use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::{SuperBlock, compat, fast_commit::tag};
use crate::site;

/// What a mount does beside what kernels do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FastOptions {
    /// Holes that are fixed. No kernel does.
    pub fixes: Fixes,
    /// A fast commit of one block without ordered data sends no FLUSH (FastCommit of ATC'24; posted
    /// as patches in 2024 and dropped).
    pub selective_flush: bool,
    /// iJournaling of ATC'17: an fsync logs its file alone, in the area of its core.
    pub ijournal: bool,
}

/// Holes of fast commits that a mount does not have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fixes {
    /// H1: the tail waits for the blocks before it.
    pub blocks: bool,
    /// N33: the first block after a full commit, which names the transaction, is written when the
    /// others are durable: a recovery never finds half a commit behind it.
    pub head: bool,
    /// N34: the first name of a file made by `O_TMPFILE` is logged as that of a new file.
    pub unnamed: bool,
    /// N35: whoever takes the last name of a file makes the next commit a full one, and a file
    /// without names is not logged.
    pub unlinked: bool,
    /// N36: what changes in a transaction behind the ineligible one is tracked.
    pub ineligible: bool,
    /// N37: a file is not taken for synced because nothing was tracked.
    pub untracked: bool,
    /// N38: a directory that comes or goes makes the next commit a full one.
    pub directories: bool,
    /// N44: the last block of the area stays unused: recovery reads on until a block ends it, and
    /// behind the last there is none.
    pub area: bool,
    /// N55: unwritten blocks that are zeroed beside a write, and are written from then on, are
    /// tracked: what is written there later changes no map.
    pub zeroed: bool,
    /// N45: a file that joins the list of orphans makes the next commit a full one.
    pub orphans: bool,
    /// N40: a change of a file with a block of attributes makes the next commit a full one.
    pub attributes: bool,
    /// N39: whoever has waited for another's fast commit writes one of its own.
    pub company: bool,
}

/// The field of a fix.
type Fix = fn(&mut Fixes) -> &mut bool;

impl Fixes {
    /// The names, and what each turns on.
    const NAMES: [(&'static str, Fix); 12] = [
        ("blocks", |f| &mut f.blocks),
        ("head", |f| &mut f.head),
        ("unnamed", |f| &mut f.unnamed),
        ("unlinked", |f| &mut f.unlinked),
        ("ineligible", |f| &mut f.ineligible),
        ("untracked", |f| &mut f.untracked),
        ("directories", |f| &mut f.directories),
        ("company", |f| &mut f.company),
        ("attributes", |f| &mut f.attributes),
        ("area", |f| &mut f.area),
        ("orphans", |f| &mut f.orphans),
        ("zeroed", |f| &mut f.zeroed),
    ];

    /// All of them.
    pub fn all() -> Fixes {
        Fixes::parse("all").expect("a name")
    }

    /// Names joined by `+`, or `all`. `None`: there is no such name.
    pub fn parse(text: &str) -> Option<Fixes> {
        let mut fixes = Fixes::default();
        for name in text.split('+').filter(|n| !n.is_empty()) {
            let mut known = false;
            for (own, field) in Fixes::NAMES {
                if name == "all" || name == own {
                    *field(&mut fixes) = true;
                    known = true;
                }
            }
            if !known {
                return None;
            }
        }
        Some(fixes)
    }
}

/// Why the next commit must be a full one. `enum EXT4_FC_REASON_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) enum Ineligible {
    /// An extended attribute was set or removed.
    Xattr,
    /// `RENAME_EXCHANGE`.
    CrossRename,
    /// The flag that sends a file's data through the journal was changed.
    JournalFlag,
    /// A directory moved.
    RenameDir,
    /// `FALLOC_FL_COLLAPSE_RANGE` or `FALLOC_FL_INSERT_RANGE`.
    FallocateRange,
    /// A directory was made or removed. No kernel minds: fixes N38.
    Directory,
    /// A file lost its last name. No kernel minds: fixes N35.
    Unlinked,
    /// A file joined the list of orphans. No kernel minds: fixes N45.
    Orphan,
    /// A file changed whose data go through the journal, as does what is neither a regular file
    /// nor a directory (`ext4_inode_journal_mode`).
    JournalData,
}

/// What is kept of an inode for the next fast commit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::fs) struct Tracked {
    /// First logical block that changed (`i_fc_lblk_start`).
    start: u32,
    /// Blocks from there on, 0 for none (`i_fc_lblk_len`). One range: the hull of all changes.
    len: u32,
    /// It is in a queue.
    queued: bool,
    /// A queue has its [`tag::CREAT`].
    created: bool,
    /// A fast commit reads it (`EXT4_STATE_FC_COMMITTING`, from 6.16 on): changes wait.
    committing: bool,
    /// An i-transaction of it is being written.
    logging: bool,
}

impl Tracked {
    /// May it change now, or does a fast commit read it?
    pub fn may_change(&self) -> Option<()> {
        (!self.committing).then_some(())
    }

    /// Must it stay in memory?
    pub fn is_queued(&self) -> bool {
        self.queued || self.created || self.logging
    }
}

/// A change of a directory. `struct ext4_fc_dentry_update`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct NameChange {
    /// [`tag::CREAT`], [`tag::LINK`] or [`tag::UNLINK`].
    op: u16,
    parent: u32,
    ino: u32,
    name: Vec<u8>,
    /// The transaction that it is of.
    tid: u32,
    /// An i-transaction tells of it.
    logged: bool,
}

#[derive(Default)]
struct Queue {
    inodes: Vec<u32>,
    names: Vec<NameChange>,
}

/// What a mounted file system tracks.
pub(in crate::fs) struct FastCommits {
    on: Cell<bool>,
    /// What the next fast commit writes (`FC_Q_MAIN`).
    main: RefCell<Queue>,
    /// What changes while a commit is under way (`FC_Q_STAGING`).
    staging: RefCell<Queue>,
    /// `EXT4_MF_FC_INELIGIBLE`, and the transaction until which (`s_fc_ineligible_tid`).
    ineligible: Cell<bool>,
    ineligible_tid: Cell<u32>,
    /// No fast commit was written since the last full one.
    is_first: Cell<bool>,
    /// Fast commits so far (`s_fc_subtid`).
    done: Cell<u32>,
    /// Those who wait to change an inode that is being committed.
    changes: WaitQueue,
    /// With iJournaling.
    files: OnceCell<ijournal::Files>,
}

impl FastCommits {
    pub fn new(rt: &Rt) -> FastCommits {
        FastCommits {
            on: Cell::new(false),
            main: RefCell::default(),
            staging: RefCell::default(),
            ineligible: Cell::new(false),
            ineligible_tid: Cell::new(0),
            is_first: Cell::new(true),
            done: Cell::new(0),
            changes: WaitQueue::new(rt, "fast commit of an inode"),
            files: OnceCell::new(),
        }
    }

    /// Are fast commits written?
    pub fn is_on(&self) -> bool {
        self.on.get()
    }
}

impl Ext4 {
    /// What does a mount of this image use the area of fast commits for? Errors: `Invalid` and
    /// `Unsupported` for options that cannot be together with it.
    pub(in crate::fs) fn wants_fast_commits(&self, sb: &SuperBlock) -> FsResult<FastKind> {
        let fast = &self.opts.fast;
        let wanted = sb.has_compat(compat::FAST_COMMIT) && self.opts.era.fast_commits();
        if !wanted && fast.ijournal {
            let what = "ijournal on an image without an area for fast commits: make it with \
                        ijournal or fast_commit, and an era from 5.10 on";
            return Err(FsError::Unsupported(what.into()));
        }
        if !wanted && *fast != FastOptions::default() {
            let what = "fast_fix, fast_selective_flush without fast commits: \
                        add fast_commit, and an era from 5.10 on";
            return Err(FsError::Unsupported(what.into()));
        }
        let l = &self.opts.literature;
        if wanted && (self.opts.dual.is_some() || l.optr) {
            let what = "journaling=barrier, optr with fast_commit or ijournal: use one of them";
            return Err(FsError::Invalid(what));
        }
        if wanted && l.iomap.on {
            // No published text says which of a file's lengths a fast commit is to log.
            let what = "buffered_iomap with fast_commit or ijournal: use one of them";
            return Err(FsError::Invalid(what));
        }
        Ok(match (wanted, fast.ijournal, NonZeroU32::new(self.opts.cpus)) {
            (false, ..) => FastKind::Off,
            (true, true, Some(cores)) => FastKind::Cores(cores),
            (true, ..) => FastKind::Linux,
        })
    }

    /// Begins to track, if the journal has an area.
    pub(in crate::fs) fn start_fast_commits(self: &Rc<Self>) {
        if self.journal().options().fast == FastKind::Off {
            return;
        }
        self.fast.on.set(true);
        self.fast.files.get_or_init(|| ijournal::Files::new(&self.rt, self.journal().fast_parts()));
        let fs = Rc::downgrade(self);
        self.journal().on_fast_cleanup(Rc::new(move |full, tid| {
            if let Some(fs) = fs.upgrade() {
                fs.fast_cleanup(full, tid);
            }
        }));
    }

    /// Remembers that the commit of the transaction of `h` must be a full one
    /// (`ext4_fc_mark_ineligible`).
    pub(in crate::fs) fn fast_ineligible(&self, h: &Handle, why: Ineligible) {
        let fast = &self.fast;
        let of_one =
            matches!(why, Ineligible::Directory | Ineligible::Unlinked | Ineligible::Orphan);
        if !fast.on.get() || !site::FAST_INELIGIBLE.on() || (self.opts.fast.ijournal && of_one) {
            return;
        }
        let tid = h.tid();
        let newer = wp_jbd2::disk::tid_after(tid, fast.ineligible_tid.get());
        if !fast.ineligible.get() || newer {
            fast.ineligible_tid.set(tid);
        }
        fast.ineligible.set(true);
        self.journal().emit_fast("fc_ineligible", tid, why as u64);
    }

    /// Does `fdatasync` need no commit of this file's metadata (`ext4_inode_datasync_dirty`)? A
    /// fast commit has taken it out of the queue.
    pub(in crate::fs) fn is_datasync_clean(&self, inode: &Inode) -> bool {
        let committed = self.journal().is_committed(inode.datasync_tid.get());
        let (fast, knows) = (&self.fast, self.opts.fast.fixes.untracked);
        // While the file system is ineligible nothing is in the queue (N37).
        let tracked = inode.fast.get();
        let is_in = tracked.queued || tracked.logging || (knows && fast.ineligible.get());
        committed || (fast.is_on() && !is_in)
    }

    /// The part of tracking that all kinds have in common: a change in a new transaction begins
    /// anew (`ext4_fc_track_template`).
    fn fast_track(&self, h: &Handle, inode: &Inode, change: impl FnOnce(&mut Tracked, bool)) {
        let tid = h.tid();
        let mut tracked = inode.fast.get();
        let again = inode.sync_tid.get() == tid;
        if !again {
            (tracked.start, tracked.len) = (0, 0);
            inode.sync_tid.set(tid);
        }
        change(&mut tracked, again);
        inode.fast.set(tracked);
    }

    /// The queue that a change joins now.
    fn fast_queue(&self) -> &RefCell<Queue> {
        let journal = self.journal();
        if self.opts.fast.ijournal {
            // Each name has its transaction, and so has each inode.
            return &self.fast.main;
        }
        let beside = match self.opts.era.fast_stages_beside_full() {
            true => journal.commits_now(),
            false => journal.fast_commits_now(),
        };
        if beside && site::FAST_STAGING.on() { &self.fast.staging } else { &self.fast.main }
    }

    fn fast_enqueue(&self, inode: &Inode) {
        let tracked = inode.fast.get();
        if !tracked.queued {
            inode.fast.set(Tracked { queued: true, ..tracked });
            self.fast_queue().borrow_mut().inodes.push(inode.ino);
        }
    }

    /// Is nothing tracked until the ineligible transaction has committed? Not even what a newer one
    /// changes, of which the next fast commit then knows nothing (N36).
    fn fast_waits(&self, h: &Handle) -> bool {
        let fast = &self.fast;
        let newer = wp_jbd2::disk::tid_after(h.tid(), fast.ineligible_tid.get());
        fast.ineligible.get() && !(newer && self.opts.fast.fixes.ineligible)
    }

    /// Waits until no fast commit reads the inode: it is about to change.
    pub(in crate::fs) fn fast_settled<'a>(&'a self, inode: &'a Inode) -> MaybeReady<'a, ()> {
        if !inode.fast.get().committing {
            return MaybeReady::now(());
        }
        MaybeReady::later(async {
            self.fast.changes.wait_until(|| !inode.fast.get().committing).await;
        })
    }

    /// An inode changes (`ext4_fc_track_inode`). Directories are not tracked: their names are.
    pub(in crate::fs) fn fast_track_inode(&self, h: &Handle, inode: &Inode) {
        if !self.fast.on.get() || inode.is_dir() {
            return;
        }
        if !inode.disk.borrow().is_file() || self.journals_data(inode) {
            return self.fast_ineligible(h, Ineligible::JournalData);
        }
        if self.opts.fast.fixes.attributes && inode.disk.borrow().file_acl() != 0 {
            // A replay counts the blocks of the map alone.
            return self.fast_ineligible(h, Ineligible::Xattr);
        }
        if self.fast_waits(h) {
            return;
        }
        self.fast_track(h, inode, |t, again| {
            if !again {
                t.len = 0;
            }
        });
        self.fast_enqueue(inode);
    }

    /// The places of blocks `first..=last` change (`ext4_fc_track_range`).
    pub(in crate::fs) fn fast_track_range(
        &self,
        h: &Handle,
        inode: &Inode,
        (first, last): (u64, u64),
    ) {
        if !self.fast.on.get() || inode.is_dir() || self.fast_waits(h) {
            return;
        }
        // `EXT_MAX_BLOCKS - 1` is the last block of a file.
        let end = |block: u64| u32::try_from(block).map_or(u32::MAX - 1, |b| b.min(u32::MAX - 1));
        let (first, last) = (end(first), end(last));
        self.fast_track(h, inode, |t, again| {
            let (mut start, mut to) = (first, last);
            if again && t.len > 0 {
                (start, to) = (start.min(t.start), to.max(t.start + (t.len - 1)));
            }
            (t.start, t.len) = (start, to.wrapping_sub(start).wrapping_add(1));
        });
        self.fast_enqueue(inode);
    }

    /// A name of `inode` in `dir` comes or goes (`ext4_fc_track_create`, `_link`, `_unlink`).
    pub(in crate::fs) fn fast_track_name(
        &self,
        h: &Handle,
        op: u16,
        dir: &Inode,
        inode: &Inode,
        name: &[u8],
    ) {
        if !self.fast.on.get() {
            return;
        }
        if self.opts.fast.fixes.unlinked && inode.nlink() == 0 {
            // A replay refuses its inode, and may find it on the list of orphans.
            self.fast_ineligible(h, Ineligible::Unlinked);
        }
        if self.opts.fast.fixes.directories && inode.is_dir() {
            // A replay counts neither its links nor its block.
            self.fast_ineligible(h, Ineligible::Directory);
        }
        if self.fast_waits(h) {
            return;
        }
        self.fast_track(h, inode, |t, _| t.created |= op == tag::CREAT);
        let (parent, ino, name) = (dir.ino, inode.ino, name.to_vec());
        let change = NameChange { op, parent, ino, name, tid: h.tid(), logged: false };
        self.fast_queue().borrow_mut().names.push(change);
    }

    /// A file joins the list of orphans, which no record tells: a replay finds blocks behind its
    /// length, and nothing cuts it there.
    pub(in crate::fs) fn fast_orphan(&self, h: &Handle, ino: u32) {
        if self.opts.fast.ijournal {
            self.file_joins_orphans(h, ino);
        }
        if self.opts.fast.fixes.orphans {
            self.fast_ineligible(h, Ineligible::Orphan);
        }
    }

    /// A name of a new inode comes (`ext4_create`, `ext4_mkdir`, `ext4_mknod`; `ext4_symlink`
    /// tracks nothing).
    pub(in crate::fs) fn fast_track_new(
        &self,
        h: &Handle,
        dir: &Inode,
        inode: &Inode,
        name: &[u8],
    ) {
        if !inode.disk.borrow().is_symlink() {
            self.fast_track_name(h, tag::CREAT, dir, inode, name);
        }
    }

    /// What a rename does to names: `replaced` loses `to`, `inode` gets it and loses `from`, where
    /// `left` stays as a whiteout (`ext4_rename`).
    pub(in crate::fs) fn fast_track_rename(
        &self,
        h: &Handle,
        inode: &Inode,
        (from_dir, from): (&Inode, &[u8]),
        (to_dir, to): (&Inode, &[u8]),
        (replaced, left): (&Option<Rc<Inode>>, &Option<Rc<Inode>>),
    ) {
        if inode.is_dir() {
            return self.fast_ineligible(h, Ineligible::RenameDir);
        }
        if let Some(replaced) = replaced {
            self.fast_track_name(h, tag::UNLINK, to_dir, replaced, to);
        }
        self.fast_track_name(h, tag::LINK, to_dir, inode, to);
        self.fast_track_name(h, tag::UNLINK, from_dir, inode, from);
        if let Some(device) = left {
            self.fast_track_name(h, tag::CREAT, from_dir, device, from);
        }
    }

    /// An inode is freed: no record names it any more but that its name went
    /// (`ext4_fc_del`).
    pub(in crate::fs) fn fast_forget(&self, inode: &Inode) {
        let tracked = inode.fast.replace(Tracked::default());
        for queue in [&self.fast.main, &self.fast.staging] {
            let mut queue = queue.borrow_mut();
            if tracked.queued {
                queue.inodes.retain(|i| *i != inode.ino);
            }
            if tracked.created && !self.opts.fast.ijournal {
                queue.names.retain(|n| n.op != tag::CREAT || n.ino != inode.ino);
            }
        }
    }

    /// A commit is over: the next one begins with what was tracked beside it (`ext4_fc_cleanup`).
    fn fast_cleanup(&self, full: bool, tid: u32) {
        let (fast, era) = (&self.fast, &self.opts.era);
        if self.opts.fast.ijournal {
            self.files_committed(tid);
            return self.fast_eligible_after(tid);
        }
        let main = std::mem::take(&mut *fast.main.borrow_mut());
        let inode_of = |ino: u32| self.inodes.borrow().get(u64::from(ino)).cloned();
        for ino in main.inodes {
            let Some(inode) = inode_of(ino) else { continue };
            let mut tracked = Tracked { queued: false, committing: false, ..inode.fast.get() };
            let is_over = wp_jbd2::disk::tid_at_least(tid, inode.sync_tid.get());
            if is_over || !era.fast_stages_beside_full() {
                (tracked.start, tracked.len) = (0, 0);
            } else if full && era.fast_requeues_newer() {
                tracked.queued = true;
                fast.staging.borrow_mut().inodes.push(ino);
            }
            inode.fast.set(tracked);
        }
        for change in main.names.iter().filter(|n| n.op == tag::CREAT) {
            if let Some(inode) = inode_of(change.ino) {
                inode.fast.set(Tracked { created: false, ..inode.fast.get() });
            }
        }
        fast.changes.wake_all();
        *fast.main.borrow_mut() = std::mem::take(&mut *fast.staging.borrow_mut());
        self.fast_eligible_after(tid);
        if full {
            fast.is_first.set(true);
        }
    }

    /// A commit of transaction `tid` is over: may the next be a fast one?
    fn fast_eligible_after(&self, tid: u32) {
        let fast = &self.fast;
        let is_past = wp_jbd2::disk::tid_at_least(tid, fast.ineligible_tid.get());
        if is_past || !self.opts.era.fast_remembers_ineligible() {
            fast.ineligible_tid.set(0);
            fast.ineligible.set(false);
        }
    }
}
