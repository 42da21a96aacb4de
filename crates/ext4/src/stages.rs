//! Words for what ext4 and jbd2 write.

use wp_base::stage::{Kind, Purpose, Server, Shared, Stages};

/// Classes of metadata at home.
const METADATA: &[&str] = &[
    "superblock",
    "gdt",
    "reserved_gdt",
    "block_bitmap",
    "inode_bitmap",
    "inode_table",
    "directory",
    "map_node",
    "xattr",
    "symlink",
    "orphan_file",
];

/// What requests, tasks and shared work of ext4 are called.
///
/// A journal block is a descriptor, a copy of metadata (with `data=journal` of data too), or a list
/// of revokes: one request has several. Metadata goes home when the log's copy is durable.
pub static STAGES: Stages = Stages {
    kinds: &[
        Kind::all(&["journal_commit"], "commit record", Purpose::Record),
        Kind::all(&["journal_super"], "journal super block", Purpose::Home),
        Kind::any(&["fast_commit"], "fast commit", Purpose::Record),
        Kind::any(&["i_transaction"], "i-transaction", Purpose::Record),
        Kind::any(&["journal", "journal_commit"], "journal blocks", Purpose::Meta),
        Kind::all(METADATA, "checkpoint writes", Purpose::Home),
        Kind::any(&["data"], "data", Purpose::Data),
    ],
    unclassified: ["commit record", "journal blocks", "checkpoint writes", "data"],
    others_data: Some("ordered data of other files"),
    servers: &[
        Server { name: "jbd2cp/", what: "the journal flush thread" },
        Server { name: "jbd2/", what: "the journal thread" },
        Server { name: "ext4lazyinit", what: "the thread that zeroes inode tables" },
    ],
    shared: &[Shared { work: "commit", one: "transaction" }],
};
