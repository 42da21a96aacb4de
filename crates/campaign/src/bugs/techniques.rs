//! Holes of published techniques, as Writepath builds them. Numbers H; each was reasoned from the
//! source before it was found here.

use wp_crash::{Profile, Rule};

use super::table::{F2FS, F2FS_KEEPS};
use super::{BUG, Bug, PLAIN, Programs, Side};

/// A drive that flushes sets of sectors.
const RANGES: &[(&str, u64)] = &[("range_flush", 1)];

/// What a cut took away stays away.
const CUT: Profile = Profile { cut_stays_cut: true, ..Profile::EXT4 };
/// A length is not ahead of its data.
const SIZE: Profile = Profile { size_with_data: true, ..Profile::EXT4 };

/// ext4 with the patches for iomap and these options.
macro_rules! iomap {
    ($options:literal) => {
        Side { fs: concat!("ext4,era=next,buffered_iomap", $options), elevator: "", ..PLAIN }
    };
}

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "H2",
        what: "RFLUSH as published: an fsync flushes the file's data, and its nodes stay in the volatile cache",
        affected: Side { fs: "f2fs,rflush=data", params: RANGES, ..F2FS },
        fixed: Side { fs: "f2fs,rflush=log,wait_first_node", params: RANGES, ..F2FS },
        rule: Rule::LostSync,
        profile: F2FS_KEEPS,
        programs: Programs::Text("open 0 a rw,creat\npwrite 0 4096 0 1\nfsync 0"),
        ..BUG
    },
    Bug {
        id: "H3",
        what: "RFLUSH of one file's blocks: a volatile node of another file, earlier in the log, hides the synced one from recovery",
        affected: Side { fs: "f2fs,mode=lfs,wait_first_node,rflush=file", params: RANGES, ..F2FS },
        fixed: Side { fs: "f2fs,mode=lfs,wait_first_node,rflush=log", params: RANGES, ..F2FS },
        rule: Rule::LostSync,
        profile: F2FS_KEEPS,
        programs: Programs::Threads(
            "open 0 a rw,creat\nopen 1 b rw,creat\nfsync 0\nfsync 1\nftruncate 0 8192\n\
             ftruncate 1 8192\nslow flush any 0 1 500\njoin\nthread 1: fsync 1\n\
             thread 2: fsync 0",
        ),
        ..BUG
    },
    Bug {
        id: "H4",
        what: "F2FS COMMIT_ATOMIC_WRITE: it returns before its last node has arrived, and what was committed is lost",
        affected: Side { fs: "f2fs,wait_first_node", ..F2FS },
        fixed: Side { fs: "f2fs,wait_first_node,wait_last_node", ..F2FS },
        rule: Rule::LostSync,
        profile: Profile { commits_hold: true, ..F2FS_KEEPS },
        programs: Programs::Text(
            "open 0 a rw,creat\npwrite 0 16384 0 1\nsync\natomic_start 0\npwrite 0 4096 0 2\n\
             pwrite 0 4096 4096 3\npwrite 0 4096 8192 4\npwrite 0 4096 12288 5\n\
             atomic_commit 0\nnap 100000",
        ),
        ..BUG
    },
    Bug {
        id: "N60",
        what: "ext4, buffered_iomap: a cut file grows by a write: its length is durable before the zeroed rest of its old last block, and cut bytes are back",
        affected: iomap!(",dirty_background_bytes=4096"),
        fixed: iomap!(",dirty_background_bytes=4096,iomap_fix=tail"),
        rule: Rule::SizeAhead,
        profile: CUT,
        programs: Programs::Text(
            "open 0 a rw,creat\npwrite 0 4096 0 1\nfsync 0\nopen 2 z rw,creat\n\
             pwrite 2 4096 0 9\nfsync 2\nftruncate 0 100\nslow write data 1 1 50000\n\
             pwrite 0 12188 100 2\nnap 1000\nopen 1 b rw,creat\nfsync 1",
        ),
        ..BUG
    },
    Bug {
        id: "N61",
        what: "ext4, buffered_iomap: the zeroed block of a growth arrives, and the length on disk moves over data that has not",
        affected: iomap!(",dirty_background_bytes=4096"),
        fixed: iomap!(",dirty_background_bytes=4096,iomap_fix=length"),
        rule: Rule::SizeAhead,
        profile: SIZE,
        programs: Programs::Text(
            "open 0 a rw,creat\npwrite 0 4096 0 1\nfsync 0\nftruncate 0 100\n\
             slow write data 1 1 50000\npwrite 0 4096 8192 2\nnap 1000\nopen 1 b rw,creat\n\
             fsync 1",
        ),
        ..BUG
    },
    Bug {
        id: "N62",
        what: "ext4, buffered_iomap: a write of data fails, an fsync tells, the next answers 0, and the length that the file shows is in no commit",
        affected: iomap!(""),
        fixed: iomap!(",iomap_fix=errors"),
        rule: Rule::Errors,
        programs: Programs::Text(
            "open 0 a rw,creat\npwrite 0 4096 0 1\nfail write data 0 always\nfsync 0\nfsync 0",
        ),
        ..BUG
    },
];
