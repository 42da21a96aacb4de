//! Kernel versions, and the rules of F2FS that changed between them.
//!
//! One code base; what differs is asked of [`Era`]. Each policy names its commit and the versions
//! it holds for, and is listed by `list eras`.

use wp_base::kernel::Version;
use wp_base::policies;

policies! { FileSystem:
    /// A log fills holes with data where another file's newer data was since the checkpoint.
    ssr_overwrites = "86f35dc39e94 f2fs: fix to avoid data corruption by forbidding SSR overwrite",
        None, Some(Version(5, 4, 0)),
        backported &[Version(4, 14, 325), Version(4, 19, 222)],
        "holes of segments are filled with data again before the checkpoint: a synced node may lead to the data of another file";
    /// Roll-forward recovers owners.
    recovers_owners = "19c73a691cce f2fs: fix to recover inode's uid/gid during POR",
        Some(Version(4, 20, 0)), None,
        backported &[Version(4, 19, 222)],
        "chown survives fsync and a power failure; before, roll-forward leaves the owner of the checkpoint";
    /// Roll-forward writes inodes of which nothing but their own fields changed.
    recovery_writes_inodes = "ca597bddedd9 f2fs: fix to dirty inode for i_mode recovery",
        Some(Version(5, 1, 0)), None,
        backported &[Version(4, 19, 222)],
        "roll-forward writes recovered modes, owners and times; before, only with a new length, blocks or name";
    /// Roll-forward looks whether something else has a block before it takes it.
    check_destination = "f2fs: fix to do sanity check on destination blkaddr during recovery",
        Some(Version(6, 1, 0)), None,
        backported &[
            Version(5, 4, 220), Version(5, 10, 150), Version(5, 15, 75), Version(5, 19, 17),
            Version(6, 0, 3),
        ],
        "a block with another owner stops roll-forward";
    /// After a crash every log leaves its zone.
    leave_zones = "f2fs: fix write pointers all the time",
        Some(Version(6, 9, 0)), None,
        "after a crash every log starts a new zone";
    /// An unmount writes the whole NAT to its blocks, and makes bitmaps of free numbers. Reverted
    /// in 6.15.
    umount_flushes_nat = "f2fs: rebuild nat_bits during umount",
        Some(Version(5, 15, 0)), Some(Version(6, 15, 0)),
        backported &[
            Version(6, 6, 88), Version(6, 12, 24), Version(6, 13, 12), Version(6, 14, 3),
        ],
        "unmount flushes the NAT journal, and writes nat_bits if all free nids are known";
    /// Zones are reset by the discard thread, not by the checkpoint.
    async_zone_reset = "f2fs: add async reset zone command support",
        Some(Version(6, 5, 0)), None,
        "a freed zone is reset by the discard thread, or before the first write to it";
    /// Direct writes go past the cache; before, through it, written back and waited for. (In
    /// mainline 3.14; the paper on direct I/O has it in its 3.13-rc2.)
    direct_writes = "f2fs: introduce a new direct_IO write path",
        Some(Version(3, 13, 0)), None,
        "direct writes bypass the page cache, in place for allocated blocks";
    /// Holes inside the file are given blocks before a direct write, which fills them; before, they
    /// were left to the cache, as of every file system without extents (`DIO_SKIP_HOLES`). With
    /// iomap it is so too. (4.1 has it, 3.18 has not.)
    direct_fills_holes = "f2fs: allocate data blocks in advance for f2fs_direct_IO",
        Some(Version(4, 1, 0)), None,
        "direct writes also fill holes; nodes point to the new blocks before the data is written";
    /// With `mode=lfs` direct writes go past the cache to new places; before, through it.
    direct_out_of_place = "f2fs: allow out-place-update for direct IO in LFS mode",
        Some(Version(4, 20, 0)), None,
        "mode=lfs: direct writes go to new blocks, and nodes point to them before the data is written";
    /// Direct I/O by iomap: an `O_DSYNC` overwrite is forced to the medium by itself.
    direct_iomap = "f2fs: use iomap for direct I/O",
        Some(Version(5, 17, 0)), None,
        "direct overwrites with O_DSYNC carry FUA, and lengths are set after the sync";
    /// An fsync below a directory whose attributes changed is a checkpoint; before, every fsync was
    /// one until then.
    xattr_dir_checkpoint = "f2fs: reduce expensive checkpoint trigger frequency",
        Some(Version(6, 12, 0)), None,
        backported &[
            Version(5, 4, 285), Version(5, 10, 227), Version(5, 15, 168), Version(6, 1, 113),
            Version(6, 6, 54),
        ],
        "changed attributes of a directory turn fsync into a checkpoint only for its files";
    /// A checkpoint takes the times of directories whose names changed, and of a renamed file.
    /// (Its mainline version is not known here; 6.19 has it not.)
    checkpoint_takes_dir_times = "f2fs: dirty directory inodes on mtime/ctime update",
        Some(Version(7, 0, 0)), None,
        backported &[Version(6, 12, 112)],
        "a checkpoint writes the new times of directories; before, only the flusher and syncfs did";
    /// Direct writes that have to go through the cache leave nothing dirty there, and nothing
    /// cached.
    direct_through_cache_waits = "f2fs: preserve direct write semantics when buffering is forced",
        Some(Version(6, 4, 0)), None,
        "O_DIRECT writes through the page cache (zoned devices) are written back and waited for";
    /// The same, as long as the generic path wrote back what a file system had left to the cache.
    direct_through_cache_generic = "f2fs: use iomap for direct I/O",
        None, Some(Version(5, 17, 0)),
        "O_DIRECT writes through the page cache are written back and waited for, as on every file system";
    /// On zoned devices an atomic fsync flushes behind its last node, which is not forced. (From
    /// 5.19; the paper on order-preserving recovery describes it so too.)
    zoned_flush_not_fua = "f2fs: use flush command instead of FUA for zoned device",
        Some(Version(5, 19, 0)), Some(Version(6, 12, 0)),
        "on zoned devices strict mode flushes after the last node; later it uses FUA, as on other devices";
    /// What lies in the cache behind the end of a file is zeroed or dropped before it grows.
    zero_beyond_end = "f2fs: fix to zero post-eof page",
        Some(Version(6, 16, 0)), None,
        backported &[Version(6, 6, 97), Version(6, 12, 36)],
        "a file that grows from within a block waits for that block's writeback";
    /// In strict mode the zeroes behind the old end are written before the file grows.
    /// (Its mainline version is not known here; 6.19 has it not.)
    strict_writes_zeroes = "f2fs: fix to zero post-EOF data when extending file size",
        Some(Version(7, 0, 0)), None,
        backported &[Version(6, 12, 110)],
        "with fsync_mode=strict a file that grows from within a block writes that block and waits";
    /// Strict mode has the last node flushed and forced, behind the data.
    strict_is_atomic = "278799151646 f2fs: fix to force keeping write barrier for strict fsync mode",
        Some(Version(5, 15, 0)), None,
        backported &[Version(5, 10, 219)],
        "fsync_mode=strict writes the last node with PREFLUSH and FUA; before, nodes and data go as with posix and one flush follows";
    /// Atomic writes go to the blocks of an inode apart, which COMMIT gives to the file.
    atomic_cow = "f2fs: change the current atomic write way",
        Some(Version(5, 19, 0)), None,
        "START_ATOMIC_WRITE makes an unnamed inode that holds the blocks until COMMIT; before, dirty pages stay in memory until then (not modelled: refused)";
    /// An atomic write that replaces all of the file.
    atomic_replace = "f2fs: introduce F2FS_IOC_START_ATOMIC_REPLACE",
        Some(Version(6, 2, 0)), None,
        "START_ATOMIC_REPLACE begins with an empty file; before, ENOTTY";
    /// Checkpoints that fsyncs ask for are written by a thread, several at once.
    thread_writes_checkpoints = "f2fs: set checkpoint_merge by default",
        Some(Version(5, 13, 0)), None,
        "a thread writes one checkpoint for all that wait for one; before, each writes its own (the default since 5.13)";
    /// A checkpoint that failed is the last.
    failed_checkpoint_stops = "91803392c732 f2fs: fix to stop filesystem update once CP failed",
        Some(Version(5, 15, 0)), None,
        "an error while a checkpoint is written stops all writing; before, only one of its last block does";
    /// The background writes a checkpoint that is due though somebody is at work.
    checkpoints_when_busy = "493720a48543 f2fs: fix to avoid REQ_TIME and CP_TIME collision",
        Some(Version(5, 11, 0)), None,
        backported &[Version(5, 10, 150)],
        "a checkpoint that is a minute old is written if no operation is under way; before, only after five idle seconds";
    /// A block with PREFLUSH and FUA joins the bio before it, which goes without them.
    flush_flags_merge = "44749759d5e6 f2fs: merge FUA command with the existing writes",
        Some(Version(6, 18, 0)), None,
        "a last node that follows others in its log is merged into their bio and loses PREFLUSH and FUA: strict fdatasync sends no flush (read in 6.18.9, 6.18.35 and 6.19.0)";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_resolves_to_its_rules() {
        let v = |t| Era::of(Version::parse(t).expect("a version"));
        assert!(!v("5.14").check_destination() && v("6.1.115").check_destination());
        let direct = |t| {
            let e = v(t);
            let past = [e.direct_writes(), e.direct_fills_holes(), e.direct_out_of_place()];
            (
                past,
                e.direct_iomap(),
                e.direct_through_cache_generic(),
                e.direct_through_cache_waits(),
            )
        };
        assert_eq!(direct("3.12"), ([false; 3], false, true, false));
        assert_eq!(direct("3.13"), ([true, false, false], false, true, false));
        assert_eq!(direct("4.19"), ([true, true, false], false, true, false));
        assert_eq!(direct("5.14"), ([true; 3], false, true, false));
        assert_eq!(direct("5.17"), ([true; 3], true, false, false));
        assert_eq!(direct("6.18"), ([true; 3], true, false, true));
        assert!(!v("6.1").leave_zones() && v("6.18").leave_zones());
        let strict = ["5.10.218", "5.10.219", "5.14", "5.15"].map(|t| v(t).strict_is_atomic());
        assert_eq!(strict, [false, true, false, true]);
        let nat = ["5.14", "5.15", "6.12.23", "6.12.24", "6.14", "6.15"];
        let nat = nat.map(|t| v(t).umount_flushes_nat());
        assert_eq!(nat, [false, true, true, false, true, false]);
        let of = |rule: fn(&Era) -> bool| {
            ["4.19.221", "4.19.222", "4.20", "5.1", "5.3", "5.4"].map(|t| rule(&v(t)))
        };
        assert_eq!(of(|e| e.ssr_overwrites()), [true, false, true, true, true, false]);
        assert_eq!(of(|e| e.recovers_owners()), [false, true, true, true, true, true]);
        assert_eq!(of(|e| e.recovery_writes_inodes()), [false, true, false, true, true, true]);
        assert!(!v("5.10").thread_writes_checkpoints() && v("5.14").thread_writes_checkpoints());
    }
}
