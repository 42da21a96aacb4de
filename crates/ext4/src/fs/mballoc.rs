//! Which blocks are given out: what is asked for, and what it is made into; `search` finds it.
//!
//! Picture:    a request -> what is set aside for the file or for small files -> else a goal of a
//!             good size (normalisation) -> the search. What is found beyond the request is set
//!             aside.
//! Invariants: blocks are taken in memory before anything waits, so two tasks never get the same.
//! Units:      clusters, which are blocks without bigalloc; logical blocks are blocks.
//! Left out:   stripes (`s_stripe`).
//! Source:     Linux `fs/ext4/mballoc.c` (`ext4_mb_new_blocks`, `ext4_mb_normalize_request`).

use wp_base::FsResult;

use super::inode::Inode;
use super::mount::Ext4;
use super::prealloc::Space;
use super::search::Criteria;

/// Files up to this many blocks are small (`s_mb_stream_request`).
const STREAM_REQUEST: u64 = 16;
/// Blocks set aside at a time for small files (`s_mb_group_prealloc`).
const GROUP_PREALLOC: u32 = 512;
/// The least of that in clusters (`ext4_mb_init`).
const GROUP_PREALLOC_LEAST: u32 = 32;
/// Groups in a flex group from which on its first is left to metadata
/// (`EXT4_FLEX_SIZE_DIR_ALLOC_SCHEME`).
pub(super) const FLEX_SIZE_DIRS: u32 = 4;
/// Searches for one request; what is set aside is given back between them.
const TRIES: u32 = 3;

/// What the blocks are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A file's data (`EXT4_MB_HINT_DATA`).
    Data,
    /// The same, and no more than asked for is to be taken (`EXT4_MB_HINT_NOPREALLOC`).
    DataExact,
    /// Anything else: nothing is set aside for it.
    Meta,
}

/// What is asked for.
pub(super) struct Request<'a> {
    pub inode: &'a Inode,
    pub purpose: Purpose,
    /// First logical block, the first of a cluster; for data.
    pub logical: u64,
    /// Preferred first block.
    pub goal: u64,
    /// Clusters wanted; fewer may be given.
    pub want: u32,
    /// The last block before `logical` that has a place: (logical, place).
    pub left: Option<(u64, u64)>,
    /// The first one after it.
    pub right: Option<(u64, u64)>,
    /// The space was promised to the caller, or a promise cannot be kept without it (a tree's
    /// node): others' promises do not stand in the way.
    pub promised: bool,
}

impl<'a> Request<'a> {
    /// One block of metadata near `goal`.
    pub(super) fn meta(inode: &'a Inode, goal: u64) -> Request<'a> {
        Request {
            inode,
            purpose: Purpose::Meta,
            logical: 0,
            goal,
            want: 1,
            left: None,
            right: None,
            promised: true,
        }
    }
}

/// A run of a group: group, first cluster in it, clusters.
pub(super) type Found = (u32, u32, u32);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Continue,
    Found,
    /// Looked long enough.
    Break,
}

/// A search under way (`ext4_allocation_context`).
pub(super) struct Search<'a> {
    pub rq: &'a Request<'a>,
    /// What was asked for, in clusters.
    pub want: u32,
    /// The goal: first logical block, group, cluster in it, clusters; and its length at first.
    pub logical: u64,
    pub group: u32,
    pub start: u32,
    pub len: u32,
    pub full_len: u32,
    /// The goal continues something: take it if all of it is free.
    pub try_goal: bool,
    /// Small files' blocks come from a common space.
    pub small: bool,
    /// Begin in the group where the last such search ended.
    pub stream: bool,
    pub take_first: bool,
    pub order: u32,
    pub criteria: Criteria,
    pub status: Status,
    pub seen: u32,
    pub best: Option<Found>,
    pub got: Option<(u64, u32)>,
    /// Where the search last began to go through groups, if bitmaps from there on are to be read.
    pub unread: Option<u32>,
}

impl Search<'_> {
    pub(super) fn is_data(&self) -> bool {
        self.rq.purpose != Purpose::Meta
    }
}

impl Ext4 {
    pub(super) fn max_order(&self) -> u32 {
        self.bs().bits() + 1
    }

    /// Chooses clusters for a request of `want` and marks them busy in memory: (first block, how
    /// many clusters).
    pub(super) async fn choose(&self, rq: &Request<'_>, want: u32) -> FsResult<Option<(u64, u32)>> {
        let want = want.min(self.geo.blocks_per_group >> self.geo.cluster_bits);
        let goal = if self.geo.holds(rq.goal, 1) { rq.goal } else { self.geo.group_start(0) };
        let (group, start) = self.geo.locate_cluster(goal).unwrap_or((0, 0));
        let mut s = Search {
            rq,
            want,
            logical: rq.logical,
            group,
            start,
            len: want,
            full_len: want,
            try_goal: false,
            small: false,
            stream: false,
            take_first: false,
            order: 0,
            criteria: Criteria::GoalFast,
            status: Status::Continue,
            seen: 0,
            best: None,
            got: None,
            unread: None,
        };
        if s.is_data() {
            let exact = self.group_or_file(&mut s);
            let mut kept = self.groups.prealloc.borrow_mut();
            if let Some(run) = kept.take_for(rq.inode.ino, rq.logical, want) {
                return Ok(Some(run));
            }
            if s.small
                && let Some((start, gone)) = kept.take_small(goal, want)
            {
                drop(kept);
                self.free_spaces(gone);
                return Ok(Some((start, want)));
            }
            drop(kept);
            if !exact {
                self.normalise(&mut s);
            }
        }
        for _ in 0..TRIES {
            self.search(&mut s).await?;
            if let Some(first) = s.unread.take() {
                // What cannot be read now is found out by whoever needs it.
                drop(self.read_groups_from(first).await);
            }
            if s.got.is_some() || self.discard_for(want) == 0 {
                break;
            }
            s.status = Status::Continue;
        }
        Ok(s.got)
    }

    /// Whose space the request comes from (`ext4_mb_group_or_file`). `true`: no more than asked for
    /// is to be taken.
    fn group_or_file(&self, s: &mut Search) -> bool {
        let inode = s.rq.inode;
        let end = s.rq.logical + u64::from(self.blocks_in(s.want.into()));
        let isize = inode.size.get().div_ceil(u64::from(self.bs().bytes()));
        // A file that nobody has open for writing, allocated to its very end, grows no more.
        let closed = end == isize && inode.writers.get() == 0;
        let exact = s.rq.purpose == Purpose::DataExact;
        let large = end.max(isize) > STREAM_REQUEST;
        if closed && (large || !self.opts.era.small_closed_files_together()) {
            return true;
        }
        if large {
            s.stream = true;
        } else {
            s.small = true;
        }
        exact
    }

    /// Makes a good size and place of the request (`ext4_mb_normalize_request`).
    fn normalise(&self, s: &mut Search) {
        if s.small {
            s.len = match self.geo.cluster_bits {
                0 => GROUP_PREALLOC,
                bits => (GROUP_PREALLOC >> bits).max(GROUP_PREALLOC_LEAST),
            };
            return;
        }
        let (rq, bits) = (s.rq, self.bs().bits());
        let logical = rq.logical;
        let want = u64::from(self.blocks_in(s.want.into()));
        let bytes = ((logical + want) << bits).max(rq.inode.size.get());
        // Blocks of the longest buddy.
        let max = 2u64 << bits;
        let (mut start, mut size) = if bytes <= 1 << 20 {
            (0, bytes.next_power_of_two().max(16 << 10) >> bits)
        } else if bytes <= 4 << 20 || max <= 2048 {
            (logical >> (21 - bits) << (21 - bits), (2 << 20) >> bits)
        } else if bytes <= 8 << 20 || max <= 4096 {
            (logical >> (22 - bits) << (22 - bits), (4 << 20) >> bits)
        } else if want <= (8 << 20) >> bits || max <= 8192 {
            (logical >> (23 - bits) << (23 - bits), (8 << 20) >> bits)
        } else {
            (logical, want)
        };
        let per = u64::from(self.geo.blocks_per_group);
        start = start.max(logical / per * per);
        let mut end = (start + size).min(u64::from(u32::MAX));
        if let Some((l, _)) = rq.left {
            start = start.max(l + 1);
        }
        if let Some((r, _)) = rq.right {
            end = end.min(r);
        }
        end = end.min(start + per);
        (start, end) = self.groups.prealloc.borrow().around(rq.inode.ino, logical, start, end);
        if start > logical || end <= logical {
            return;
        }
        size = end - start;
        s.logical = start;
        s.len = self.geo.clusters_of(size) as u32;
        s.full_len = s.len;
        let mut aim = |at: u64| {
            if let Some(place) = self.geo.locate_cluster(at) {
                (s.group, s.start) = place;
                s.try_goal = true;
            }
        };
        if let Some((r, place)) = rq.right
            && r == end
            && place >= size + self.geo.group_start(0)
        {
            aim(place - size);
        }
        if let Some((l, place)) = rq.left
            && l + 1 == start
        {
            aim(place + 1);
        }
    }

    /// Takes a run, and preallocates its blocks beyond the request (`ext4_mb_use_best_found`).
    pub(super) fn use_found(&self, s: &mut Search, (group, start, len): Found) {
        let len = len.min(s.len);
        self.groups.mark(group, start, len, true);
        s.status = Status::Found;
        s.best = Some((group, start, len));
        if s.stream {
            self.groups.stream_group(s.rq.inode.ino).set(group);
        }
        let first = self.geo.cluster_start(group, start);
        if s.want >= len {
            s.got = Some((first, len));
            return;
        }
        let mut kept = self.groups.prealloc.borrow_mut();
        if s.small {
            let gone = kept.put_small(Space::new(0, first, len), s.want);
            s.got = Some((first, s.want));
            drop(kept);
            self.free_spaces(gone);
            return;
        }
        let logical = if len < s.full_len { self.covering(s, len) } else { s.logical };
        kept.put_for(s.rq.inode.ino, Space::new(logical, first, len));
        s.got = kept.take_for(s.rq.inode.ino, s.rq.logical, s.want);
    }

    /// The first logical block of a space shorter than the goal (`ext4_mb_new_inode_pa`).
    fn covering(&self, s: &Search, len: u32) -> u64 {
        let blocks = |clusters: u32| u64::from(clusters) << self.geo.cluster_bits;
        let (asked, len) = (s.rq.logical, blocks(len));
        if !self.opts.era.spaces_inside_goal() {
            let window = (asked - s.logical).min(len - blocks(s.want));
            let off = asked % len;
            return asked - if off > 0 { window.min(off) } else { window };
        }
        let goal_end = s.logical + blocks(s.full_len);
        if asked >= goal_end - len {
            goal_end - len
        } else if asked + blocks(s.want) <= s.logical + len {
            s.logical
        } else {
            asked
        }
    }
}
