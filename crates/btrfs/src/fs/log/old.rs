//! Rules that logs of older kernels lacked, each by itself: without it files or names were lost;
//! and rules that Linux 6.12 lacks.
//!
//! Laws:   1. without any of them a log is that of Linux 6.12.
//!         2. each is one rule that is left out, or one more; no other behaviour.
//! Source: comments of fs/btrfs/tree-log.c in 6.12, which say what each rule is for; the reports in
//!         CrashMonkey's `newBugs.md` (1 to 8) and `reproducedBugs.md` (1 to 3).

/// What is left out. The option `old_log` names them with `+` in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OldLog {
    /// That a directory was logged only to exist counts as its fsync (until 4.16 and later):
    /// `last_log_commit` moves with `LOG_INODE_EXISTS`, and directories above are logged so again
    /// whenever they have changed.
    pub exists: bool,
    /// The same where a new name is what is logged: a later fsync of a directory above finds all
    /// done, and syncs nothing (until d4682ba03ef6).
    pub names: bool,
    /// A directory that an inode had a name in at the last commit, and that is gone, is passed over
    /// (until 0f375eed92b5).
    pub gone_parents: bool,
    /// New directories above an inode's first name are logged, those above others are not (until
    /// 41bd60676923).
    pub one_parent: bool,
    /// A directory that was there before is logged without its own names: one that was renamed and
    /// synced has its old name (CrashMonkey's bug 4; which rule it was is assumed).
    pub dir_refs: bool,
    /// Directories that an inode has lost a name in are not logged with it
    /// (`btrfs_log_all_parents`).
    pub parents: bool,
    /// A directory that a name moved away from is logged as any other (`last_unlink_trans`).
    pub moves: bool,
    /// Space that was allocated behind the end of a file is not logged (until 471d557afed1).
    pub prealloc: bool,
}

impl OldLog {
    /// Reads names with `+` in between. `None`: one is not known.
    pub fn parse(text: &str) -> Option<OldLog> {
        let mut old = OldLog::default();
        for name in text.split('+').filter(|n| !n.is_empty()) {
            match name {
                "exists" => old.exists = true,
                "names" => old.names = true,
                "gone_parents" => old.gone_parents = true,
                "one_parent" => old.one_parent = true,
                "dir_refs" => old.dir_refs = true,
                "parents" => old.parents = true,
                "moves" => old.moves = true,
                "prealloc" => old.prealloc = true,
                _ => return None,
            }
        }
        Some(old)
    }
}

/// Rules that Linux 6.12 has not. The option `fix` names them with `+` in between; `all` is each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mend {
    /// An fsync of a file that has no name any more is a commit. In Linux it is nothing
    /// (`BTRFS_NO_LOG_SYNC`), though the name comes back with a power cut, as its removal is not
    /// durable.
    pub nameless: bool,
    /// An fsync below a directory that was renamed in this transaction is a commit. In Linux such a
    /// directory is not logged, as it is not new (`log_new_ancestors`): the file is durable below
    /// the old name. So is one that has not changed, of which ext4 makes nothing either.
    pub renamed: bool,
    /// An fsync of a file that has lost one of its names in this transaction, otherwise than by its
    /// own rename, is a commit; so is one of the directory that had the name. In Linux only
    /// directories that have it now are logged with the file (`btrfs_log_all_parents`): the lost
    /// name may come back. And with the directory only that the name is gone: if it was the only
    /// one that is durable, replay deletes the file (`btrfs_record_unlink_dir` is for renames).
    pub unlinked: bool,
    /// Space behind the end of a file is logged also with a file that is logged only to exist, and
    /// where it belongs to an extent whose front is written and on its way. In Linux it is not, and
    /// replay drops what is behind the end of every file in the log.
    pub space: bool,
    /// An inode that was forgotten and read again has changed since the last sync of the log, if it
    /// has in this transaction. In Linux it has not (`btrfs_alloc_inode` sets `last_sub_trans` and
    /// `last_log_commit` to 0): once another's rename has logged that it exists, its own fsync
    /// takes it for durable.
    pub reloaded: bool,
    /// The name of a symbolic link that was renamed after it was logged is logged with it. In Linux
    /// 6.12 it is not, as links are logged like files whose names have not changed; replay goes by
    /// the old name. 6.18 does.
    pub symlinks: bool,
    /// A file's last block is written before the file becomes longer within it, with zeroes behind
    /// the old end. In Linux the new length is in the running transaction at once, and the zeroes
    /// only in memory: a commit shows what a truncate had taken away, though that was synced.
    pub cut: bool,
    /// An fsync of a directory that has lost the name of a subvolume which is not there is a
    /// commit. In Linux it writes a log (`btrfs_rmdir`, which takes no note of it, unlike of a
    /// subvolume that is deleted), and replay takes the number of the subvolume for an inode's: the
    /// mount fails.
    pub placeholder: bool,
}

impl Mend {
    /// Every rule.
    pub const ALL: Mend = Mend {
        nameless: true,
        renamed: true,
        unlinked: true,
        space: true,
        reloaded: true,
        symlinks: true,
        cut: true,
        placeholder: true,
    };

    /// Reads names with `+` in between. `None`: one is not known.
    pub fn parse(text: &str) -> Option<Mend> {
        let mut mend = Mend::default();
        for name in text.split('+').filter(|n| !n.is_empty()) {
            match name {
                "nameless" => mend.nameless = true,
                "renamed" => mend.renamed = true,
                "unlinked" => mend.unlinked = true,
                "space" => mend.space = true,
                "reloaded" => mend.reloaded = true,
                "symlinks" => mend.symlinks = true,
                "cut" => mend.cut = true,
                "placeholder" => mend.placeholder = true,
                "all" => mend = Mend::ALL,
                _ => return None,
            }
        }
        Some(mend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_refused() {
        let old = OldLog { exists: true, moves: true, ..OldLog::default() };
        assert_eq!(OldLog::parse("exists+moves"), Some(old));
        assert_eq!(OldLog::parse(""), Some(OldLog::default()));
        assert_eq!(OldLog::parse("exist"), None);
        assert_eq!(Mend::parse("renamed"), Some(Mend { renamed: true, ..Mend::default() }));
        assert_eq!(Mend::parse("renamed,nameless"), None);
        let each = "nameless+renamed+unlinked+space+reloaded+symlinks+cut+placeholder";
        assert_eq!(Mend::parse(each), Mend::parse("all"));
    }
}
