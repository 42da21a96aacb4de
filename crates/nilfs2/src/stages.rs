//! Words for what NILFS2 writes.

use wp_base::stage::{Kind, Purpose, Server, Shared, Stages};

/// Classes of blocks of a log behind its summary.
const PAYLOAD: &[&str] =
    &["summary", "data", "directory", "btree", "ifile", "cpfile", "sufile", "dat"];

/// What requests, tasks and shared work of NILFS2 are called.
///
/// A log is one run of blocks: a summary, then data and the metadata files, and at the end of a
/// checkpoint a super root. So data and metadata are one request, unless the log is longer than a
/// bio.
pub static STAGES: Stages = Stages {
    kinds: &[
        Kind::all(&["superblock"], "super block", Purpose::Record),
        Kind::any(&["super_root"], "log with its super root", Purpose::Record),
        Kind::any(&["summary"], "log without a super root", Purpose::Meta),
        Kind::all(&["data"], "data blocks of a log", Purpose::Data),
        Kind::any(PAYLOAD, "more blocks of a log", Purpose::Meta),
    ],
    unclassified: ["super block", "log", "log", "log"],
    others_data: None,
    servers: &[
        Server { name: "segctord", what: "the segment constructor" },
        Server { name: "nilfs_cleanerd", what: "the cleaner" },
    ],
    shared: &[
        Shared { work: "checkpoint", one: "checkpoint" },
        Shared { work: "cleaning", one: "cleaning" },
    ],
};
