//! What differs between the block layers of kernel versions. `list eras` prints it.

use wp_base::kernel::Version;
use wp_base::policies;

policies! { Block:
    /// A plug's requests are sorted by sector when it is flushed.
    sorts_plug = "blk_flush_plug_list() (commit not looked up)",
        Some(Version(3, 9, 0)), Some(Version(5, 0, 0)),
        "the requests of a plug are sorted by sector (order of I after a checkpoint's Q in traces: not in 3.8.0, in 4.6.2; blk-mq sorts the plugs of several queues alone)";
    /// Completion of the flush machine's own FLUSH has an event.
    completes_flush_event = "blk_update_request() (commit not looked up)",
        Some(Version(3, 9, 0)), None,
        "blktrace has a C for the FLUSH of a flush sequence (not in 3.8.0, in 4.6.2)";
    /// A plug with a large request is flushed before the next one is added.
    limits_plug_bytes = "block: immediately dispatch big size request",
        Some(Version(4, 10, 0)), None,
        "a plug whose last request has 128 KiB or more is flushed before the next one";
    /// mq-deadline, or blk-mq for a zone, lets one write at a time into a zone: the elevator.
    locks_zones = "mq-deadline: Introduce zone locking support",
        Some(Version(4, 16, 0)), Some(Version(6, 10, 0)),
        "mq-deadline locks the zone of each write that it dispatches";
    /// Disks of SCSI, ATA and MMC have blk-mq.
    is_multi_queue = "scsi: kill off the legacy IO path",
        Some(Version(5, 0, 0)), None,
        "disks have blk-mq, with mq-deadline; before, one locked queue, with cfq";
    /// mq-deadline serves classes of priority apart.
    has_io_classes = "block/mq-deadline: Prioritize high-priority requests",
        Some(Version(5, 14, 0)), None,
        "mq-deadline serves real-time before best-effort before idle, and goes on where a batch of the class ended";
    /// The idle class is served in the end.
    ages_io_classes = "prio_aging_expire of mq-deadline (commit not looked up)",
        Some(Version(5, 17, 0)), None,
        "mq-deadline dispatches what has waited 10 s, whatever its class";
    /// A plug holds 32 requests, not 16.
    has_large_plugs = "block: bump max plugged deferred size from 16 to 32",
        Some(Version(5, 16, 0)), None,
        "a plug is flushed at 32 requests, before at 16";
    /// A bio is compared with the newest request of the plug alone.
    compares_newest = "block: only check previous entry for plug merge attempt",
        Some(Version(5, 16, 0)), None,
        "a bio joins the newest request of its task's plug or none; before, any";
    /// The task issues the data of a flush sequence that need no FLUSH.
    issues_flush_data = "blk_mq_submit_bio() (commit not looked up)",
        Some(Version(5, 16, 0)), None,
        "the task issues the data of a flush sequence that need no FLUSH (6.1); before, kblockd (5.10)";
    /// Bios for a zone that is being written wait before there is a request.
    plugs_zones = "block: Introduce zone write plugging",
        Some(Version(6, 10, 0)), None,
        "bios for a zone that is being written wait in the zone's plug, whatever the elevator";
    /// Writes can be untorn.
    has_untorn_writes = "block: Add core atomic write support",
        Some(Version(6, 11, 0)), None,
        "there is REQ_ATOMIC, and RWF_ATOMIC for block devices, where the drive keeps writes whole; before, EOPNOTSUPP";
}
