//! Bugs of F2FS' atomic writes in Linux, found by [`crate::programs::atomic`].

use wp_crash::Rule;

use super::table::{F2FS, F2FS_KEEPS};
use super::{BUG, Bug, Programs, Side};

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "N42",
        what: "F2FS: an fsync between START_ATOMIC_WRITE and COMMIT writes nodes with the blocks that a write reserved behind the end, and recovery makes the file longer",
        affected: Side { fs: "f2fs,wait_first_node", ..F2FS },
        fixed: Side { fs: "f2fs,wait_first_node,atomic_all_apart", ..F2FS },
        rule: Rule::LostSync,
        profile: F2FS_KEEPS,
        programs: Programs::Text(
            "open 0 a rw,creat\npwrite 0 16384 0 1\nsync\natomic_start 0\n\
             pwrite 0 4096 40960 2\nfsync 0",
        ),
        ..BUG
    },
    Bug {
        id: "N43",
        what: "F2FS: an fsync of another thread sends nodes in the middle of COMMIT_ATOMIC_WRITE, and a part of it survives",
        affected: Side { fs: "f2fs,era=6.17,wait_first_node", ..F2FS },
        fixed: Side { fs: "f2fs,era=6.17,wait_first_node,fsync_alone", ..F2FS },
        rule: Rule::MixedVersions,
        profile: F2FS_KEEPS,
        programs: Programs::Text(
            "in_order\nopen 0 a rw,creat\npwrite 0 4096 0 1\npwrite 0 4096 8000000 2\nsync\n\
             atomic_start 0\npwrite 0 4096 0 3\npwrite 0 4096 8000000 4\nsync\ndrop_caches\n\
             slow read any 0 9 2000\njoin\nthread 1: atomic_commit 0\nnap 5000\nfsync 0\n\
             nap 100000",
        ),
        ..BUG
    },
];
