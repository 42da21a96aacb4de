//! What differs between the page caches of kernel versions. `list eras` prints it.

use wp_base::kernel::Version;
use wp_base::policies;

policies! { Cache:
    /// A writer waits while the page is under writeback.
    stable_pages = "mm: only enforce stable page writes if the backing device requires it",
        None, Some(Version(3, 9, 0)),
        "write() waits for writeback of the page it changes, on every device";
    /// The flusher is a kworker, not `flush-8:16`, a thread of its own that sleeps between two
    /// looks by `schedule_timeout`, which knows no slack.
    flusher_is_kworker = "writeback: replace custom worker pool implementation with unbound workqueue",
        Some(Version(3, 10, 0)), None,
        "the flusher's task is called kworker/uN:M";
    /// One plug around all inodes of a pass rather than one an inode.
    plugs_across_inodes = "writeback: plug writeback at a high level",
        Some(Version(4, 3, 0)), None,
        "the flusher holds one plug for a whole pass, so that neighbouring files share a request";
    /// Timers of 5 s fire up to a quarter of a second late, not up to 16 ms: see `wp_rt::Ticks`.
    wheel_timers = "timers: Switch to a non-cascading wheel",
        Some(Version(4, 8, 0)), None,
        "timeouts of seconds (flusher, commit) are rounded up to the granularity of the timer wheel";
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

impl Default for Era {
    /// Linux 6.12, which all of it was compared with.
    fn default() -> Era {
        Era::of(Version(6, 12, 0))
    }
}
