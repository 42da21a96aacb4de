//! The rules of NILFS2 that changed between kernels.

use wp_base::kernel::Version;
use wp_base::policies;

policies! {
    /// Roll-forward puts a block of a file where its block of the log stands in a page.
    recovery_misplaces = "67b8bcbaed47 nilfs2: fix data corruption in dsync block recovery for small block sizes",
        None, Some(Version(6, 8, 0)),
        backported &[
            Version(4, 19, 307), Version(5, 4, 269), Version(5, 10, 210), Version(5, 15, 149),
            Version(6, 1, 79), Version(6, 6, 18),
        ],
        "with blocks smaller than a page recovery copies the data of an fdatasync to the offset that the log's block has in its page, which need not be the file's";
    /// A renamed directory's `..` is written even if its parent stays.
    rename_writes_dotdot = "e30ccbb9c022 nilfs2: do not update mtime of renamed directory that is not moved",
        None, Some(Version(6, 14, 0)),
        "a rename of a directory writes its `..` and changes its times, even within one parent";
    /// One call may read as much at once as a request of the device may have.
    reads_io_pages = "mm: don't cap request size based on read-ahead setting",
        Some(Version(4, 10, 0)), None,
        "readahead: a call longer than a window reads up to the device's largest request at once";
    /// A window that its own first page would start takes the next one along. Titles and versions
    /// of this and the next two are from memory; only 6.12 was compared with a kernel.
    window_starts_itself = "readahead: disentangle async and sync readahead",
        None, Some(Version(6, 11, 0)),
        "readahead: a window whose first page starts the next one grows by it; since, its middle starts it (title and version are from memory)";
    /// That stays within the longest window.
    window_has_limit = "readahead: stricter check for bdi io_pages",
        Some(Version(4, 19, 0)), Some(Version(6, 11, 0)),
        "readahead: what a window grows by stays within the longest one (version from memory)";
    /// The page last read is remembered, not the one behind it.
    remembers_last_page = "mm/filemap: fix and rework generic_file_buffered_read()",
        None, Some(Version(5, 12, 0)),
        "readahead: a read that skips one page is random; since, one page after a whole one is in order (title and version are from memory)";
}
