//! Words for what btrfs writes.

use wp_base::stage::{Kind, Purpose, Server, Shared, Stages};

/// Classes of blocks of the trees that a commit writes.
const TREES: &[&str] = &[
    "root_tree",
    "extent_tree",
    "chunk_tree",
    "dev_tree",
    "csum_tree",
    "uuid_tree",
    "free_space_tree",
    "fs_tree",
    "other_tree",
];

/// What requests, tasks and shared work of btrfs are called.
pub static STAGES: Stages = Stages {
    kinds: &[
        Kind::all(&["superblock"], "super block", Purpose::Record),
        Kind::all(&["log_root_tree"], "root of log trees", Purpose::Meta),
        Kind::any(&["log_tree", "log_root_tree"], "log tree", Purpose::Meta),
        Kind::any(TREES, "trees of the commit", Purpose::Meta),
        Kind::any(&["data"], "data", Purpose::Data),
    ],
    unclassified: ["super block", "log tree", "trees of the commit", "data"],
    others_data: None,
    servers: &[
        Server { name: "btrfs-transacti", what: "the committer" },
        Server { name: "btrfs-cleaner", what: "the cleaner" },
        Server { name: "kworker/u4:2", what: "the ordered extent worker" },
    ],
    shared: &[
        Shared { work: "commit", one: "transaction" },
        Shared { work: "log", one: "log sync" },
    ],
};
