//! Kernel versions, and the rules of ext4 that changed between them.
//!
//! One code base; what differs is asked of [`Era`]. Each [`Policy`] names its commit and the
//! versions it holds for, and is listed by `list eras`.

use std::fmt;

/// A kernel version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u16, pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Parses `3.4`, `3.4.2`. `4.6` is the paper's name for the repaired era and means 4.6.2, the
    /// first release with the repair; write `4.6.0` for the unrepaired one.
    pub fn parse(text: &str) -> Option<Version> {
        if text == "4.6" {
            return Some(Version(4, 6, 2));
        }
        let mut parts = text.split('.').map(|p| p.parse::<u16>().ok());
        let v = Version(parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
        parts.next().is_none().then_some(v)
    }
}

/// A rule that held for a range of versions.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Short name.
    pub name: &'static str,
    /// What the kernel does while it holds.
    pub what: &'static str,
    /// Title of the commit that introduced it, or what is known.
    pub commit: &'static str,
    /// First version; `None`: as far back as our evidence goes (3.4).
    pub from: Option<Version>,
    /// First version without it; `None`: still so.
    pub until: Option<Version>,
}

impl Policy {
    /// Does it hold in `v`?
    pub fn holds(&self, v: Version) -> bool {
        self.from.is_none_or(|f| v >= f) && self.until.is_none_or(|u| v < u)
    }
}

macro_rules! policies {
    ($(
        $(#[$doc:meta])*
        $field:ident = $commit:literal, $from:expr, $until:expr, $what:literal;
    )*) => {
        /// Every policy, in the order of the code that asks.
        pub static POLICIES: &[Policy] = &[$(Policy {
            name: stringify!($field), what: $what, commit: $commit, from: $from, until: $until,
        }),*];

        /// What a kernel version resolves to.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Era {
            /// The version asked for.
            pub version: Version,
            $($(#[$doc])* pub $field: bool,)*
        }

        impl Era {
            /// The rules of `version`.
            pub fn of(version: Version) -> Era {
                let holds =
                    |name: &str| POLICIES.iter().any(|p| p.name == name && p.holds(version));
                Era { version, $($field: holds(stringify!($field)),)* }
            }
        }
    };
}

policies! {
    /// `write()` that moves the size inside a mapped block files the inode for ordered data.
    files_extending_write = "ext4: remove calls to ext4_jbd2_file_inode() from delalloc write path",
        None, Some(Version(3, 8, 0)),
        "a delalloc write() that moves i_disksize inside an allocated block puts the inode on the ordered list";
    /// Allocating writeback files the inode, through the delalloc path.
    files_allocating_writeback = "ext4: remove calls to ext4_jbd2_file_inode() from delalloc write path",
        None, Some(Version(3, 8, 0)),
        "writeback that allocates puts the inode on the ordered list (mpage_da_map_and_submit)";
    /// Allocation files the inode, in the mapping function.
    files_in_map_blocks = "ext4: fix data exposure after a crash",
        Some(Version(4, 6, 2)), None,
        "ext4_map_blocks puts the inode on the ordered list when it allocates initialised blocks";
    /// Without delayed allocation every write files the inode.
    files_every_nodelalloc_write = "ext4: fix data exposure after a crash",
        None, Some(Version(4, 6, 2)),
        "under nodelalloc every write(), overwrites too, puts the inode on the ordered list";
    /// A writer waits while the page is under writeback.
    stable_pages = "mm: only enforce stable page writes if the backing device requires it",
        None, Some(Version(3, 9, 0)),
        "write() waits for writeback of the page it changes, on every device";
    /// Home writes of metadata carry META and PRIO.
    marks_metadata = "ext4: mark metadata blocks using bh flags",
        Some(Version(3, 11, 0)), None,
        "checkpoint writes carry META and PRIO (blktrace: WM)";
    /// The flusher plugs across files.
    plugs_across_inodes = "writeback: plug writeback at a high level",
        Some(Version(4, 3, 0)), None,
        "the flusher holds one plug for a whole pass, so that neighbouring files share a request";
    /// Writeback without anything to allocate still starts a handle.
    writeback_starts_handle = "not known; the lone commit is seen on 3.4.2, 3.8.0 and 4.6.2 and gone in 5.10",
        None, Some(Version(4, 7, 0)),
        "ext4_writepages starts a handle even if nothing is to be allocated; the empty transaction commits";
    /// Removed directory entries are zeroed.
    wipes_dirents = "ext4: wipe ext4_dir_entry2 upon file deletion",
        Some(Version(5, 13, 0)), None,
        "the bytes of a removed directory entry are zeroed";
    /// `sync` flushes the device's cache itself if no commit will.
    sync_flushes = "ext4: fix data integrity for ext4_sync_fs",
        Some(Version(3, 11, 0)), None,
        "sync() without a transaction to commit flushes the device's cache";
    /// The flusher is a kworker, not `flush-8:16`.
    flusher_is_kworker = "writeback: replace custom worker pool implementation with unbound workqueue",
        Some(Version(3, 10, 0)), None,
        "the flusher's task is called kworker/uN:M";
}

/// The eras that the paper names, and the version that stands for each.
pub const PAPER_ERAS: [(&str, Version); 3] =
    [("3.4", Version(3, 4, 2)), ("3.8", Version(3, 8, 0)), ("4.6", Version(4, 6, 2))];

/// Oldest and newest versions whose behaviour was held against a real kernel.
pub const EVIDENCE: (Version, Version) = (Version(3, 4, 0), Version(4, 6, 99));

impl Version {
    /// Was the behaviour of such kernels held against a real one? If not, policies may be missing.
    pub fn has_evidence(self) -> bool {
        (EVIDENCE.0..=EVIDENCE.1).contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_eras_file_inodes_as_their_sources_do() {
        let of = |v: &str| Era::of(Version::parse(v).expect("a version"));
        for v in ["3.4", "3.7.10"] {
            assert!(of(v).files_extending_write && of(v).files_allocating_writeback);
        }
        for v in ["3.8", "4.4.6", "4.6.1"] {
            let e = of(v);
            assert!(
                !e.files_extending_write && !e.files_allocating_writeback && !e.files_in_map_blocks,
                "{v}"
            );
        }
        for v in ["4.6", "4.6.2", "4.7.4", "6.18"] {
            assert!(!of(v).files_extending_write && of(v).files_in_map_blocks, "{v}");
        }
        assert!(!of("4.6.0").files_in_map_blocks, "4.6.0 is spelled out: the unrepaired release");
    }

    #[test]
    fn nonsense_is_not_a_version() {
        for bad in ["", "4", "x.y", "4.6.2.1", "3.4-rc1"] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }
}
