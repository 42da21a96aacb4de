//! Kernel versions, and the rules of ext4 that changed between them.
//!
//! One code base; what differs is asked of [`Era`]. Each policy names its commit and the versions
//! it holds for, and is listed by `list eras`.

use wp_base::kernel::Version;
use wp_base::policies;

/// Parses a version as ext4's options have it: `4.6` is the paper's name for the repaired era and
/// means 4.6.2, the first release with the repair; write `4.6.0` for the unrepaired one.
pub fn version(text: &str) -> Option<Version> {
    if text == "4.6" { Some(Version(4, 6, 2)) } else { Version::parse(text) }
}

policies! { FileSystem:
    /// `write()` that moves the size inside a mapped block files the inode for ordered data.
    files_extending_write = "ext4: remove calls to ext4_jbd2_file_inode() from delalloc write path",
        None, Some(Version(3, 8, 0)),
        "a delalloc write() that moves i_disksize inside an allocated block puts the inode on the ordered list";
    /// Allocating writeback files the inode, through the delalloc path.
    files_allocating_writeback = "ext4: remove calls to ext4_jbd2_file_inode() from delalloc write path",
        None, Some(Version(3, 8, 0)),
        "writeback that allocates puts the inode on the ordered list (mpage_da_map_and_submit)";
    /// Allocation files the inode, in the mapping function.
    files_in_map_blocks = "06bd3c36a733 ext4: fix data exposure after a crash",
        Some(Version(4, 7, 0)), None,
        backported &[Version(4, 6, 2)],
        "ext4_map_blocks puts the inode on the ordered list when it allocates initialised blocks";
    /// Without delayed allocation every write files the inode.
    files_every_nodelalloc_write = "06bd3c36a733 ext4: fix data exposure after a crash",
        None, Some(Version(4, 7, 0)),
        backported &[Version(4, 6, 2)],
        "under nodelalloc every write(), overwrites too, puts the inode on the ordered list";
    /// A delayed write that moves the size marks the inode at each page.
    size_change_dirties_inode = "generic_write_end() calls mark_inode_dirty()",
        None, Some(Version(6, 8, 0)),
        "each page of an extending delayed write() adds the unchanged inode to its transaction (gone in 6.12's source; the version is from memory)";
    /// Home writes of metadata carry META and PRIO.
    marks_metadata = "ext4: mark metadata blocks using bh flags",
        Some(Version(3, 11, 0)), None,
        "checkpoint writes carry META and PRIO (blktrace: WM)";
    /// Writeback without anything to allocate still starts a handle.
    writeback_starts_handle = "ext4: avoid unnecessary transaction starts during writeback",
        None, Some(Version(5, 8, 0)),
        "ext4_writepages starts a handle even if nothing is to be allocated; the empty transaction commits";
    /// The rest of the last block is zeroed when the size moves beyond it.
    zeroes_tail_on_extension = "c7fc0366c656 ext4: partial zero eof block on unaligned inode size extension",
        Some(Version(6, 13, 0)), None,
        backported &[Version(6, 6, 70), Version(6, 12, 5)],
        "an extension over a gap zeroes the partial blocks at its edges and logs the inode";
    /// `fallocate` updates the file's times before it looks at what it is to do.
    fallocate_updates_times_first = "ext4: move out common parts into ext4_fallocate()",
        Some(Version(6, 14, 0)), None,
        backported &[Version(6, 12, 41)],
        "fallocate changes mtime and ctime even if it changes nothing else, as for a hole beyond EOF";
    /// Punching a hole first writes what is dirty in it.
    punch_writes_back = "ext4: don't write back data before punch hole in nojournal mode",
        None, Some(Version(6, 14, 0)),
        backported &[Version(6, 12, 31)],
        "FALLOC_FL_PUNCH_HOLE writes the range's dirty blocks and waits before it drops them";
    /// A write that only promises blocks starts no handle.
    delalloc_write_without_handle = "ext4: drop unnecessary journal handle in delalloc write",
        Some(Version(5, 15, 0)), None,
        "a delayed write() starts no handle, and so no transaction, unless i_disksize moves";
    /// Block bitmaps are read in the background after the mount.
    prefetches_bitmaps = "ext4: make prefetch_block_bitmaps default",
        Some(Version(5, 13, 0)), None,
        "ext4lazyinit reads the block bitmaps within five seconds of the mount";
    /// Allocating writeback asks the journal to wait for the data, not to write it.
    delalloc_data_waits_only = "ext4: do not ask jbd2 to write data for delalloc buffers",
        Some(Version(4, 7, 0)), None,
        "a commit only waits for an inode that writeback added to its list: writeback has submitted the data";
    /// Buffered writes are allocated unwritten by default.
    dioread_nolock_default = "ext4: make dioread_nolock the default",
        Some(Version(5, 6, 0)), None,
        "writeback allocates unwritten extents and converts them when the data completes (mount option dioread_nolock)";
    /// That default is for blocks of any size; else for blocks of a page only.
    dioread_nolock_default_small_early = "ext4: don't set dioread_nolock by default for blocksize < pagesize",
        Some(Version(5, 6, 0)), Some(Version(5, 8, 0)),
        "dioread_nolock is the default for blocks smaller than a page too";
    /// The same again, later.
    dioread_nolock_default_small = "ext4: enable dioread_nolock as default for bs < ps case",
        Some(Version(6, 8, 0)), None,
        "dioread_nolock is the default for blocks smaller than a page too, again";
    /// The option can be had with blocks smaller than a page.
    dioread_nolock_small = "ext4: Add support for blocksize < pagesize in dioread_nolock",
        Some(Version(5, 6, 0)), None,
        "dioread_nolock is allowed with blocks smaller than a page";
    /// Without delayed allocation nothing is allocated unwritten.
    dioread_needs_delalloc = "ext4: disable dioread_nolock whenever delayed allocation is disabled",
        Some(Version(5, 6, 0)), None,
        "dioread_nolock has no effect under nodelalloc";
    /// Conversion runs in a reserved handle, and writeback ends after it.
    reserved_conversion = "ext4: defer clearing of PageWriteback after extent conversion",
        Some(Version(3, 11, 0)), None,
        "pages stay under writeback until their unwritten extents were converted, in a handle reserved before";
    /// fsync takes the inode's mutex.
    fsync_takes_mutex = "ext4: remove i_mutex from ext4_file_sync()",
        None, Some(Version(3, 11, 0)),
        "fsync holds i_mutex while it waits for the commit: a write to the same file waits too";
    /// Extents whose write failed stay unwritten.
    keeps_failed_unwritten = "e856f93e0fb2 ext4: do not convert the unwritten extents if data writeback fails",
        Some(Version(6, 15, 0)), None,
        backported &[Version(6, 6, 93), Version(6, 12, 31)],
        "an unwritten extent is not converted if its data could not be written";
    /// A synchronous write to the end of a file syncs where it was asked to write.
    append_syncs_elsewhere = "d311d79de305 fix O_SYNC|O_APPEND syncing the wrong range on write()",
        None, Some(Version(3, 14, 0)),
        "write() to an O_APPEND|O_SYNC descriptor syncs the bytes at its old position, not those that it wrote at the end";
    /// What is zeroed rather than split off is 32 KiB, not 7 blocks.
    zeroes_by_kib = "ext4: make the zero-out chunk size tunable",
        Some(Version(3, 8, 0)), None,
        "pieces of an unwritten extent up to 32 KiB (before: 7 blocks) are zeroed, not split off";
    /// Inodes with blocks beyond their end carry a flag.
    eofblocks_flag = "ext4: remove EXT4_EOFBLOCKS_FL and associated code",
        None, Some(Version(5, 7, 0)),
        "fallocate beyond the end of a file sets EXT4_EOFBLOCKS_FL";
    /// Direct writes that need no metadata go out with FUA.
    direct_dsync_fua = "ext4: introduce direct I/O write using iomap infrastructure",
        Some(Version(5, 5, 0)), None,
        "an O_DIRECT|O_DSYNC write to written blocks is one FUA write where the device has FUA";
    /// Direct writes of one block can be untorn.
    has_untorn_writes = "ext4: Support setting FMODE_CAN_ATOMIC_WRITE",
        Some(Version(6, 13, 0)), None,
        "pwritev2 with RWF_ATOMIC writes one block past the cache, where the drive keeps it whole; before, EOPNOTSUPP";
    /// Untorn writes can be as long as a cluster.
    untorn_by_clusters = "07d5172c26a9 ext4: Add multi-fsblock atomic write support with bigalloc",
        Some(Version(6, 16, 0)), None,
        "with bigalloc an untorn write has up to a cluster; a range that is neither all written nor one hole or unwritten extent is zeroed, and that committed, before the data goes";
    /// Removed directory entries are zeroed.
    wipes_dirents = "ext4: wipe ext4_dir_entry2 upon file deletion",
        Some(Version(5, 13, 0)), None,
        "the bytes of a removed directory entry are zeroed";
    /// `sync` flushes the device's cache itself if no commit will.
    sync_flushes = "ext4: fix data integrity for ext4_sync_fs",
        Some(Version(3, 11, 0)), None,
        "sync() without a transaction to commit flushes the device's cache";
    /// Metadata checksums bring checksums of the journal, of version 3.
    journal_checksums = "ext4: enable journal checksum when metadata checksum feature enabled",
        Some(Version(3, 18, 0)), None,
        "an image with metadata_csum gets a journal with checksums of version 3 at mount";
    /// Orphans are listed in a file where the image has one.
    orphan_file = "ext4: Speedup ext4 orphan inode handling",
        Some(Version(5, 15, 0)), None,
        "orphan_file images list orphans in the orphan file, and in the orphan list when it is full";
    /// The first open of a file journals the super block, which remembers the mount point.
    samples_mount_point = "ext4: convert last user of ext4_mark_super_dirty() to ext4_handle_dirty_super()",
        Some(Version(3, 6, 0)), None,
        "the first open writes s_last_mounted through the journal (ext4_sample_last_mounted)";
    /// A journalled block makes its page dirty at once, and writeback of it waits for the commit;
    /// before, the commit made it dirty and fsync only forced that.
    journalled_data_home = "ext4: Convert data=journal writeback to use ext4_writepages()",
        Some(Version(6, 4, 0)), None,
        "writeback of journalled data waits for its commit and then writes it to its place";
    /// The entries of an extent tree's only leaf move into the inode when they fit.
    leaf_into_inode = "ext4: collapse a single extent tree block into the inode if possible",
        Some(Version(3, 7, 0)), None,
        "when a merge leaves four or fewer extents, they move into the inode and the leaf block is freed";
    /// Groups that were never used are made ready with the others after the mount.
    prefetches_unused_groups = "ext4: Don't skip prefetching BLOCK_UNINIT groups",
        Some(Version(6, 5, 0)), None,
        "the thread that reads block bitmaps after the mount also initializes those of unused groups (without a read)";
    /// A change of the length alone is what `fdatasync` waits for.
    size_counts_for_fdatasync = "b71fc079b5d8 ext4: fix fdatasync() for files with only i_size changes",
        Some(Version(3, 7, 0)), None,
        "a changed i_disksize moves i_datasync_tid; before, fdatasync of a file whose length alone changed (ftruncate, a write into an allocated block) returns without a commit";
    /// So is a hole.
    holes_count_for_fdatasync = "67a7d5f561f4 ext4: fix fdatasync(2) after extent manipulation operations",
        Some(Version(4, 12, 0)), None,
        backported &[Version(4, 4, 72), Version(4, 9, 32), Version(4, 11, 5)],
        "PUNCH_HOLE moves i_datasync_tid; before, fdatasync leaves the old bytes to come back (ZERO_RANGE always moved it)";
    /// So is space that was only asked for.
    space_counts_for_fdatasync = "c894aa97577e ext4: fix fdatasync(2) after fallocate(2) operation",
        Some(Version(4, 15, 0)), None,
        backported &[Version(4, 4, 107), Version(4, 9, 71), Version(4, 14, 8)],
        "fallocate moves i_datasync_tid; before, fdatasync after fallocate with KEEP_SIZE returns without a commit";
    /// Space that was asked for counts towards the length on disk wherever it ends beyond it.
    space_moves_disksize = "51e3ae81ec58 ext4: fix interaction between i_size, fallocate, and delalloc after a crash",
        Some(Version(4, 15, 0)), None,
        backported &[Version(4, 4, 103), Version(4, 9, 66), Version(4, 14, 3)],
        "fallocate of a range between i_disksize and i_size moves i_disksize; before, a commit before writeback leaves blocks beyond EOF, and the space that O_SYNC promised behind it";
    /// `fallocate` through a synchronous descriptor is durable when it returns.
    space_is_synchronous = "ext4: honor O_(D)SYNC semantic in ext4_fallocate()",
        Some(Version(3, 6, 0)), None,
        "fallocate through an O_SYNC or O_DSYNC descriptor waits for the commit; before, it returns at once";
    /// `fallocate` can make zeroes.
    zeroes_ranges = "b8a8684502a0 ext4: Introduce FALLOC_FL_ZERO_RANGE flag for ext4",
        Some(Version(3, 15, 0)), None,
        "fallocate has FALLOC_FL_ZERO_RANGE; before, it answers EOPNOTSUPP";
    /// `fallocate` can take a range out of a file.
    collapses_ranges = "9eb79482a971 ext4: Add support FALLOC_FL_COLLAPSE_RANGE for fallocate",
        Some(Version(3, 15, 0)), None,
        "fallocate has FALLOC_FL_COLLAPSE_RANGE; before, it answers EOPNOTSUPP";
    /// `fallocate` can put a hole into a file.
    inserts_ranges = "331573febb6a ext4: Add support FALLOC_FL_INSERT_RANGE for fallocate",
        Some(Version(4, 2, 0)), None,
        "fallocate has FALLOC_FL_INSERT_RANGE; before, it answers EOPNOTSUPP";
    /// Files can be made without a name.
    has_tmpfile = "af51a2ac36d1 ext4: ->tmpfile() support",
        Some(Version(3, 11, 0)), None,
        "open with O_TMPFILE makes a file without a name; before, it opens the directory, which cannot be written (EISDIR)";
    /// `renameat2` with `RENAME_NOREPLACE` and `RENAME_EXCHANGE`.
    has_renameat2 = "0a7c3937a1f2, bd42998a6bcb ext4: add cross rename support",
        Some(Version(3, 15, 0)), None,
        "there is renameat2; before, it answers ENOSYS";
    /// A rename can leave a whiteout.
    has_whiteout = "cd808deced43 ext4: support RENAME_WHITEOUT",
        Some(Version(3, 18, 0)), None,
        "renameat2 has RENAME_WHITEOUT; before, it answers EINVAL";
    /// `copy_file_range`.
    has_copy_file_range = "29732938a628 vfs: add copy_file_range syscall and vfs helper",
        Some(Version(4, 5, 0)), None,
        "there is copy_file_range; before, it answers ENOSYS";
    /// A direct write moves the length on disk wherever it ends beyond it.
    direct_moves_disksize = "45d8ec4d9fd5 ext4: update i_disksize if direct write past ondisk size",
        Some(Version(4, 17, 0)), None,
        "a direct write that ends beyond i_disksize moves it; before, only one that ends beyond i_size, and O_DSYNC behind a delayed write loses its data";
    /// The sync of an extending direct write comes before its new length.
    direct_syncs_before_size = "91562895f803 ext4: properly sync file size update after O_SYNC direct IO",
        Some(Version(5, 5, 0)), Some(Version(6, 7, 0)),
        backported &[
            Version(5, 10, 227), Version(5, 15, 168), Version(6, 1, 64), Version(6, 5, 13),
            Version(6, 6, 3),
        ],
        "an extending O_DIRECT|O_DSYNC write syncs first and then moves the length, which a power failure takes back";
    /// A direct write whose lengths writeback has moved takes its orphan off the list last.
    direct_cleans_up_last = "619f75dae2cf ext4: fix warning in ext4_dio_write_end_io()",
        Some(Version(6, 7, 0)), None,
        backported &[Version(6, 1, 68), Version(6, 6, 7)],
        "a direct write over delayed blocks removes its orphan after its O_DSYNC (stable versions from memory)";
    /// An asynchronous write syncs when it was submitted.
    async_syncs_early = "02afc27faec9 direct-io: Handle O_(D)SYNC AIO",
        None, Some(Version(3, 12, 0)),
        "io_submit of an O_DIRECT|O_DSYNC write syncs before its data arrive, and nothing syncs behind them";
    /// What is zeroed rather than split off lies before the length on disk, not before the length.
    zeroes_before_disksize = "801674f34ecf ext4: do not zeroout extents beyond i_disksize",
        Some(Version(5, 7, 0)), None,
        backported &[
            Version(4, 4, 220), Version(4, 9, 220), Version(4, 14, 177), Version(4, 19, 117),
            Version(5, 4, 34), Version(5, 5, 19), Version(5, 6, 6),
        ],
        "pieces of an unwritten extent are zeroed only before i_disksize; before, up to i_size, and a power failure leaves written blocks beyond EOF";
    /// Files of up to 16 blocks share a space even if nobody has them open.
    small_closed_files_together = "ext4: use locality group preallocation for small closed files",
        Some(Version(6, 0, 0)), None,
        "blocks of a closed small file also come from the locality group preallocation";
    /// How many directories make a flex group full depends on its groups.
    dir_debt_by_flex = "ext4: make directory inode spreading reflect flexbg size",
        Some(Version(6, 0, 0)), None,
        "a flex group takes directories above the mean up to 1/16 of its own inodes (before: of one group's inodes)";
    /// Groups whose bitmaps are not in memory are passed over at first.
    skips_unread_groups = "ext4: skip non-loaded groups at cr=0/1",
        Some(Version(5, 9, 0)), None,
        "a search skips groups whose bitmaps are not loaded until its last criteria, then reads those from its goal on in the flex group (ext4_mb_prefetch)";
    /// On 16 groups and more a search goes by lists of groups.
    groups_by_order = "ext4: improve cr 0 / cr 1 group scanning",
        Some(Version(5, 13, 0)), None,
        "with 16 groups or more, groups are searched by their largest buddy or mean free run, not by number (mb_optimize_scan)";
    /// Those of a list in the order of their numbers, not of their last change.
    groups_in_order = "ext4: convert free groups order lists to xarrays",
        Some(Version(6, 17, 0)), None,
        backported &[Version(6, 12, 77)],
        "groups of a list are searched by number from the goal on, not in the order in which they joined it";
    /// A shortened goal before a slow search.
    five_criteria = "ext4: Add allocation criteria 1.5 (CR1_5)",
        Some(Version(6, 5, 0)), None,
        "if no group's average free run suffices, the goal is reduced by up to three orders before groups are searched in full";
    /// Quick searches do not count runs that are too short.
    skips_short_runs = "ext4: Avoid scanning smaller extents in CR1",
        Some(Version(6, 5, 0)), None,
        "free runs shorter than the goal are skipped in quick searches and do not count towards the limit of 200";
    /// What is set aside for a file stays inside the goal.
    spaces_inside_goal = "ext4: Fix best extent lstart adjustment logic in ext4_mb_new_inode_pa()",
        Some(Version(6, 4, 0)), None,
        "a preallocation shorter than the goal ends at the end of the goal, if it covers the request (before: aligned to its own length)";
    /// Large files stream to several groups.
    stream_goals = "ext4: utilize multiple global goals to reduce contention",
        Some(Version(6, 17, 0)), None,
        "large files have one goal per four groups, up to the number of CPUs, chosen by inode number";
    /// Each open file is told once of a failed write of its data; before, who asked first was.
    errors_by_open_file = "fs: new infrastructure for writeback error handling and reporting",
        Some(Version(4, 13, 0)), None,
        "fsync reports a failed data write once to every open file (errseq_t), not once in total (AS_EIO)";
    /// A file that is opened later too, if nobody has been told yet.
    errors_wait_for_a_file = "errseq: Always report a writeback error once",
        Some(Version(4, 17, 0)), None,
        "an unreported failed write is also reported to files opened afterwards (in 4.16's stable series as well)";
    /// `sync` and `syncfs` take the flag of failed writes and tell nobody.
    sync_clears_errors = "mm/filemap.c: make global sync not clear error status of individual inodes",
        None, Some(Version(4, 4, 0)),
        "sync() and syncfs() clear the write errors that fsync would report";
    /// `syncfs` tells of failed writes.
    syncfs_tells_errors = "vfs: track per-sb writeback errors and report them to syncfs",
        Some(Version(5, 8, 0)), None,
        "syncfs returns EIO once per open file after a failed write of any file's data, or of metadata by writeback";
    /// `syncfs` answers what the journal answered.
    syncfs_tells_commit = "vfs: make sync_filesystem return errors from ->sync_fs",
        Some(Version(5, 17, 0)), None,
        "syncfs fails if the commit that it waits for fails";
    /// fsync on a file system that was stopped fails.
    fsync_knows_abort = "ext4: Fix fsync error handling after filesystem abort",
        Some(Version(3, 11, 0)), None,
        "fsync returns EROFS after the file system detects an aborted journal; before, 0";
    /// A super block written outside the journal asks for FUA. The version is from memory.
    super_fua = "ext4, jbd2: Add REQ_FUA flag when recording an error in the superblock",
        Some(Version(4, 3, 0)), None,
        "the super block of mount, unmount and errors is written with FUA; before, it could stay in the drive's cache";
    /// `discard` goes to the device in one go, and the commit waits for all of it.
    discards_together = "ext4: send parallel discards on commit completions",
        Some(Version(4, 14, 0)), None,
        "a commit sends all discards of the blocks that it freed and waits for them; before, one after the other";
    /// `discard` does not hold up the commit.
    discards_in_background = "ext4: get discard out of jbd2 commit kthread contex",
        Some(Version(5, 15, 0)), None,
        "blocks that a commit freed are reusable at once, and a worker later discards those still free";
    /// A piece of free space is discarded whole. The version is from memory.
    trims_beyond = "ext4: move setting of trimmed bit into ext4_try_to_trim_range()",
        Some(Version(6, 6, 0)), None,
        backported &[Version(5, 15, 134), Version(6, 1, 56)],
        "a free run that begins in the range to discard (fstrim, discard worker) is discarded to its end";
    /// An image with the feature gets fast commits.
    fast_commits = "6866d7b3f2bb ext4 / jbd2: add fast commit initialization",
        Some(Version(5, 10, 0)), None,
        "fsync on an image with fast_commit writes a fast commit where one will do";
    /// Every block of a fast commit is flushed and forced; then its tail alone (hole H1).
    fast_flushes_every_block = "e9f53353e166 ext4: remove expensive flush on fast commit",
        Some(Version(5, 10, 0)), Some(Version(5, 11, 0)),
        "each block of a fast commit carries PREFLUSH and FUA; since then only its last one, which does not wait for the others (H1)";
    /// A truncate tracks up to the last block that a file can have, not up to its old length.
    fast_tracks_to_the_end = "9725958bb75c ext4: fast commit may miss tracking unwritten range during ftruncate",
        Some(Version(5, 17, 0)), None,
        backported &[Version(5, 10, 94), Version(5, 15, 17), Version(5, 16, 3)],
        "a fast commit of a truncated file names the blocks behind its old length, which fallocate with KEEP_SIZE left there";
    /// What changes beside a full commit is tracked apart, and survives its end.
    fast_stages_beside_full = "bdc8a53a6f2f ext4: fast commit may miss file actions",
        Some(Version(5, 17, 0)), None,
        backported &[Version(5, 15, 27), Version(5, 16, 13)],
        "changes made during a full commit are in the next fast commit (stable versions from memory)";
    /// An ineligible change is remembered until its own transaction has committed.
    fast_remembers_ineligible = "e85c81ba8859 ext4: fast commit may not fallback for ineligible commit",
        Some(Version(5, 17, 0)), None,
        backported &[Version(5, 15, 27), Version(5, 16, 13)],
        "an ineligible change made during a full commit makes the next commit a full one (stable versions from memory)";
    /// A file that changes beside a full commit, and was tracked before, stays tracked.
    fast_requeues_newer = "6db3c1575a75 ext4: fix fast commit inode enqueueing during a full journal commit",
        Some(Version(6, 11, 0)), None,
        backported &[Version(6, 1, 103), Version(6, 6, 44), Version(6, 10, 3)],
        "a tracked file that changes during a full commit is in the next fast commit (seen in 6.1.192 and 6.12.117; versions from memory)";
    /// Its blocks have the flags of the log's.
    fast_writes_as_log = "ext4: increase IO priority of fastcommit",
        Some(Version(6, 18, 0)), None,
        backported &[Version(6, 1, 160), Version(6, 6, 117), Version(6, 12, 58), Version(6, 17, 8)],
        "blocks of a fast commit carry META and IDLE besides SYNC (seen in 6.1.192 and 6.12.117; versions from memory)";
    /// It keeps every handle from starting.
    fast_locks_updates = "857d32f26181 ext4: rework fast commit commit path",
        Some(Version(5, 10, 0)), Some(Version(6, 16, 0)),
        "no handle starts while a fast commit is under way; since then only while its files are marked";
    /// `journal_async_commit` is not for ordered data.
    refuses_async_ordered = "ext4: forbid journal_async_commit in data=ordered mode",
        Some(Version(3, 19, 0)), None,
        "a mount with journal_async_commit and data=ordered is refused: one flush for record and data cannot order them";
    /// What a hole or a zeroed range ends at is the length on disk at least.
    punch_moves_disksize = "9d80eaa1a1d3 ext4: increase i_disksize to offset + len in ext4_update_disksize_before_punch()",
        Some(Version(6, 18, 0)), None,
        backported &[
            Version(5, 4, 301), Version(5, 10, 246), Version(5, 15, 195), Version(6, 1, 156),
            Version(6, 6, 112), Version(6, 12, 53), Version(6, 17, 3),
        ],
        "punch hole and zero range inside of a file set the length on disk to their end, if it is less; before, only those that reach the end of the file (seen in 6.1.192 and 6.12.117; stable versions from memory)";
    /// An inode has `i_projid`.
    has_projects = "ext4: adds project ID support",
        Some(Version(4, 5, 0)), None,
        "a new inode has room for a project, 32 bytes behind the first 128 rather than 28";
    /// mke2fs of its time gives `metadata_csum` and `64bit`. A rule of e2fsprogs 1.43 (May 2016),
    /// not of Linux, which could mount them from 3.6 on.
    mkfs_has_checksums = "e2fsprogs 1.43: enable metadata_csum and 64bit by default",
        Some(Version(4, 7, 0)), None,
        "mke2fs makes metadata_csum and 64bit, if features= does not say otherwise (e2fsprogs 1.43)";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_eras_file_inodes_as_their_sources_do() {
        let of = |v: &str| Era::of(version(v).expect("a version"));
        for v in ["3.4", "3.7.10"] {
            assert!(of(v).files_extending_write() && of(v).files_allocating_writeback());
        }
        for v in ["3.8", "4.4.6", "4.6.1"] {
            let e = of(v);
            assert!(
                !e.files_extending_write()
                    && !e.files_allocating_writeback()
                    && !e.files_in_map_blocks(),
                "{v}"
            );
        }
        for v in ["4.6", "4.6.2", "4.7.4", "6.18"] {
            assert!(!of(v).files_extending_write() && of(v).files_in_map_blocks(), "{v}");
        }
        assert!(!of("4.6.0").files_in_map_blocks(), "4.6.0 is spelled out: the unrepaired release");
    }
}
