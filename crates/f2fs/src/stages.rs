//! Words for what F2FS writes.

use wp_base::stage::{Kind, Purpose, Server, Shared, Stages};

/// What requests, tasks and shared work of F2FS are called.
///
/// With PREFLUSH or FUA goes the last block of a checkpoint pack, and in strict mode the last node.
pub static STAGES: Stages = Stages {
    kinds: &[
        Kind::all(&["inode", "node"], "node", Purpose::Meta),
        Kind::all(&["data"], "data", Purpose::Data),
        // Directories, and files of which few pages are dirty (`FI_HOT_DATA`).
        Kind::all(&["directory"], "data of the hot log", Purpose::Data),
        Kind::all(&["checkpoint"], "checkpoint pack", Purpose::Record),
        Kind::all(&["sit"], "SIT blocks", Purpose::Meta),
        Kind::all(&["nat"], "NAT blocks", Purpose::Meta),
        Kind::all(&["sit", "nat"], "SIT and NAT blocks", Purpose::Meta),
        Kind::all(&["ssa"], "segment summaries", Purpose::Meta),
        Kind::all(&["superblock"], "super block", Purpose::Record),
        Kind::any(&["inode", "node"], "node", Purpose::Meta),
        Kind::any(&["data", "directory"], "data", Purpose::Data),
        Kind::any(&["checkpoint", "sit", "nat", "ssa"], "checkpoint's tables", Purpose::Meta),
    ],
    unclassified: ["node", "node", "checkpoint's tables", "data"],
    others_data: None,
    servers: &[
        Server { name: "f2fs_ckpt", what: "the checkpoint thread" },
        Server { name: "f2fs_flush", what: "the flush thread" },
        Server { name: "f2fs_gc", what: "the garbage collection thread" },
        Server { name: "f2fs_discard", what: "the discard thread" },
    ],
    shared: &[
        Shared { work: "checkpoint", one: "checkpoint" },
        Shared { work: "garbage collection", one: "garbage collection" },
    ],
};
