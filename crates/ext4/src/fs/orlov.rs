//! Which group a new inode goes to.
//!
//! Picture:    a directory in the root is spread over the flex groups, from one that its name says;
//!             any other stays in its parent's flex group as long as that has room and not too many
//!             directories. Everything else goes to its directory's flex group.
//! Source:     Linux `fs/ext4/ialloc.c` (`find_group_orlov`, `find_group_other`).

use super::mount::Ext4;
use crate::disk::hash::DirHash;
use crate::disk::htree::hash_version;
use crate::disk::inode::flag;
use crate::disk::{GroupDesc, ino};

/// What a flex group (or a group, without them) has (`struct orlov_stats`).
#[derive(Default)]
struct Stats {
    inodes: u64,
    blocks: u64,
    dirs: u64,
}

/// What is known of a directory that a new inode gets its name in.
#[derive(Clone, Copy)]
pub(super) struct Parent {
    pub ino: u32,
    /// `i_flags`.
    pub flags: u32,
}

impl Ext4 {
    fn group_of(&self, ino: u32) -> u32 {
        self.geo.inode_slot(ino).map_or(0, |s| s.group)
    }

    fn free_inodes(&self, group: u32) -> u32 {
        self.group_desc(group).free_inodes_count()
    }

    /// Groups of flex group `unit` (or group, without them).
    fn groups_of(&self, unit: u32) -> std::ops::Range<u32> {
        let flex = self.geo.groups_per_flex;
        let first = unit.saturating_mul(flex).min(self.geo.groups);
        first..first.saturating_add(flex).min(self.geo.groups)
    }

    fn stats_of(&self, unit: u32) -> Stats {
        self.groups_of(unit).fold(Stats::default(), |s, g| {
            let d: GroupDesc = self.group_desc(g);
            Stats {
                inodes: s.inodes + u64::from(d.free_inodes_count()),
                blocks: s.blocks + u64::from(d.free_blocks_count()),
                dirs: s.dirs + u64::from(d.used_dirs_count()),
            }
        })
    }

    /// The group for a new inode. `name` is a directory's. `None`: no group has a free inode.
    pub(super) fn group_for(
        &self,
        parent: Parent,
        is_dir: bool,
        name: Option<&[u8]>,
    ) -> Option<u32> {
        let group =
            if is_dir { self.group_for_dir(parent, name) } else { self.group_for_other(parent) }?;
        self.groups.last_inode_group.borrow_mut().insert(parent.ino, group);
        Some(group)
    }

    fn last_group(&self, dir: u32) -> Option<u32> {
        self.groups.last_inode_group.borrow().get(&dir).copied()
    }

    /// `find_group_orlov`. Without a name the spreading of top directories is left out.
    fn group_for_dir(&self, parent: Parent, name: Option<&[u8]>) -> Option<u32> {
        let (geo, rough) = (&self.geo, &self.groups.rough);
        let flex = u64::from(geo.groups_per_flex);
        let units = geo.groups.div_ceil(geo.groups_per_flex);
        let n = u64::from(units);
        let per = u64::from(geo.inodes_per_group);
        let (inodes, blocks) = (rough.inodes.read() / n, rough.blocks.read() / n);
        let home = self.group_of(parent.ino) / geo.groups_per_flex;
        let unit = if let Some(name) =
            name.filter(|_| parent.ino == ino::ROOT || parent.flags & flag::TOPDIR != 0)
        {
            // Half MD4 with signed characters, whatever directories are hashed with.
            let seed = self.sb.borrow().hash_seed.map(|w| w.get());
            let hash =
                DirHash::new(hash_version::HALF_MD4, true, seed).map_or(0, |h| h.hash(name).major);
            let mut fewest = per;
            let mut best = None;
            for unit in (0..units).map(|i| (hash % units + i) % units) {
                let s = self.stats_of(unit);
                if s.inodes > 0 && s.dirs < fewest && s.inodes >= inodes && s.blocks >= blocks {
                    (fewest, best) = (s.dirs, Some(unit));
                }
            }
            best
        } else {
            let debt = if self.opts.era.dir_debt_by_flex() { per * flex } else { per };
            let most_dirs = rough.dirs.read() / n + debt / 16;
            let least_inodes = inodes.saturating_sub(per * flex / 4).max(1);
            let least_blocks = blocks
                .saturating_sub(u64::from(geo.blocks_per_group >> geo.cluster_bits) * flex / 4);
            let from = self.last_group(parent.ino).map_or(home, |g| g / geo.groups_per_flex);
            (0..units).map(|i| (from + i) % units).find(|unit| {
                let s = self.stats_of(*unit);
                s.dirs < most_dirs && s.inodes >= least_inodes && s.blocks >= least_blocks
            })
        };
        // A flex group's inodes are taken from its first tables on.
        if let Some(unit) = unit
            && let Some(group) = match flex {
                1 => Some(unit),
                _ => self.groups_of(unit).find(|g| self.free_inodes(*g) > 0),
            }
        {
            return Some(group);
        }
        let mean = rough.inodes.read() / u64::from(geo.groups);
        let start = self.group_of(parent.ino);
        let all = || (0..geo.groups).map(|i| (start + i) % geo.groups);
        let has = |g: &u32, least: u64| u64::from(self.free_inodes(*g)) >= least.max(1);
        all().find(|g| has(g, mean)).or_else(|| all().find(|g| has(g, 1)))
    }

    /// `find_group_other`.
    fn group_for_other(&self, parent: Parent) -> Option<u32> {
        let (n, flex) = (self.geo.groups, self.geo.groups_per_flex);
        let home = self.group_of(parent.ino);
        if flex > 1 {
            let near = |group| self.groups_of(group / flex).find(|g| self.free_inodes(*g) > 0);
            return near(home)
                .or_else(|| near(self.last_group(parent.ino)?))
                .or_else(|| self.group_for_dir(parent, None));
        }
        let good = |g: u32| {
            let d = self.group_desc(g);
            d.free_inodes_count() > 0 && d.free_blocks_count() > 0
        };
        if good(home) {
            return Some(home);
        }
        // Files of one directory stay together, apart from those of another in the same group.
        let mut group = (home + parent.ino) % n;
        let mut step = 1;
        while step < n {
            group = (group + step) % n;
            if good(group) {
                return Some(group);
            }
            step <<= 1;
        }
        (1..=n).map(|i| (home + i) % n).find(|g| self.free_inodes(*g) > 0)
    }
}
