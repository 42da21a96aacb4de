//! Bugs of extended attributes on F2FS, found by random programs.

use wp_crash::Rule;

use super::table::{F2FS, F2FS_BUG, mends};
use super::{Bug, Programs, Side};

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "N29",
        what: "F2FS: attributes that the inode and a node share are damaged if an fsync loses the node alone",
        affected: F2FS,
        fixed: Side { fs: "f2fs,noinline_xattr", ..F2FS },
        rule: Rule::Metadata,
        programs: Programs::Text(
            "open 0 a rw,creat\nsetxattr a user.b 1065 6\nfsync 0\nopen 1 b rw,creat\n\
             setxattr b user.c 1100 7\npwrite 1 20480 0 1\nfsync 1\n",
        ),
        ..F2FS_BUG
    },
    Bug {
        id: "N30",
        what: "F2FS: fsync_mode=strict brings the length into the last node alone: it is lost where that holds attributes",
        affected: Side { fs: concat!("f2fs,fsync_mode=strict,", mends!()), ..F2FS },
        fixed: Side { fs: concat!("f2fs,", mends!()), ..F2FS },
        programs: Programs::Text(
            "open 0 . r\nopen 1 a rw,creat\nfsync 0\nsetxattr a user.b 1343 13\n\
             pwrite 1 20480 0 1\nfsync 1\n",
        ),
        ..F2FS_BUG
    },
    Bug {
        id: "N70",
        what: "F2FS: an attribute is set in the tick of the change before: the fsync behind it takes the inode for unchanged and sends nothing",
        affected: Side { fs: "f2fs,noinline_xattr,wait_first_node", ..F2FS },
        fixed: Side { fs: "f2fs,noinline_xattr,wait_first_node,sync_attributes", ..F2FS },
        programs: Programs::Text(
            "open 0 a rw,creat\nsetxattr a user.b 8 3\npwrite 0 4096 5414912 1\nfdatasync 0\n\
             pwrite 0 4096 5427200 2\nfsync 0\nsetxattr a user.a 569 23\nfsync 0\n",
        ),
        ..F2FS_BUG
    },
];
