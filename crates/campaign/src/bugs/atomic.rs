//! Bugs of atomic writes in Linux: of F2FS', found by [`crate::programs::atomic`], and of ext4's
//! untorn writes of several blocks. N50 was read in the source, and no drive here shows it in a
//! real kernel.

use wp_crash::Rule;

use super::table::{F2FS, F2FS_KEEPS};
use super::{BUG, Bug, PLAIN, Programs, Side};

/// ext4 with clusters, on a drive that keeps one whole.
macro_rules! clusters {
    ($options:literal) => {
        Side {
            fs: concat!("ext4,era=6.18,cluster=16k", $options),
            params: &[("atomic_bytes", 16 << 10)],
            elevator: "",
            ..PLAIN
        }
    };
}

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "N50",
        what: "ext4, bigalloc: an untorn write over blocks whose map is not committed goes to the drive at once: new data beside zeroes",
        affected: clusters!(""),
        fixed: clusters!(",untorn_commit"),
        rule: Rule::MixedVersions,
        programs: Programs::Text(
            "open 0 a rw,creat,direct\nftruncate 0 49152\npwrite 0 4096 0 1\n\
             pwrite 0 8192 16384 2\npwrite 0 4096 40960 3\nfsync 0\npwrite 0 12288 4096 4\n\
             pwrite 0 8192 24576 5\npwrite 0 8192 32768 6\npwrite 0 16384 0 7 atomic\n\
             pwrite 0 16384 16384 8 atomic\npwrite 0 16384 32768 9 atomic\n\
             pwrite 0 8192 0 10\npwrite 0 8192 16384 11",
        ),
        ..BUG
    },
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
