//! Holes of ext4's fast commits. H1 was reasoned from the source, the others were found here by
//! `crash wild` and then seen in Linux 6.12 (`wp-parity`'s `found` tests); A36 is a report about
//! 5.10. N41 is FastCommit of ATC'24 taken at its word. N32, of a direct write, is there without
//! them: `crash direct` found it.

use wp_crash::Rule;

use super::versions::{LOST, ext4};
use super::{BUG, Bug, PLAIN, Programs, Side};
use crate::programs::fast;

/// Linux 6.12 with fast commits, and these options.
macro_rules! fast {
    ($options:literal) => {
        Side { fs: concat!("ext4,era=6.12,fast_commit", $options), elevator: "", ..PLAIN }
    };
}

/// A file that is synced is lost.
const FAST: Bug = Bug { affected: fast!(""), rule: Rule::LostSync, ..BUG };

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "N32",
        what: "a direct O_DSYNC write beyond the length on disk uses FUA for its data only: the length is lost",
        affected: ext4!("6.18"),
        fixed: ext4!("6.18,size_before_sync"),
        programs: Programs::Text(
            "open 0 a rw,creat,direct,dsync\nopen 1 a rw\npwrite 1 11776 0 1\nfdatasync 0\n\
            pwrite 1 4096 12288 2\npwrite 0 8192 4096 3\n",
        ),
        ..LOST
    },
    Bug {
        id: "H1",
        what: "ext4, fast commits: the last block does not wait for those before it, which stay in the volatile cache",
        fixed: fast!(",fast_fix=blocks"),
        programs: Programs::Made(fast::names, 8),
        ..FAST
    },
    Bug {
        id: "N33",
        what: "ext4, fast commits: power fails during the first one after a full commit: the mount fails",
        fixed: fast!(",fast_fix=head"),
        rule: Rule::Recoverable,
        programs: Programs::Made(fast::names, 8),
        ..FAST
    },
    Bug {
        id: "N34",
        what: "ext4, fast commits: a file made by O_TMPFILE gets a name and is fsynced: it is gone",
        fixed: fast!(",fast_fix=unnamed"),
        programs: Programs::Text(
            "open 0 a rw,creat\nfsync 0\nopen 1 . rw,tmpfile\npwrite 1 4096 0 1\nlinkat 1 b\nfsync 1",
        ),
        ..FAST
    },
    Bug {
        id: "N35",
        what: "ext4, fast commits: an open file loses its last name and is fsynced: the mount fails",
        fixed: fast!(",fast_fix=unlinked"),
        rule: Rule::Recoverable,
        programs: Programs::Text(
            "open 0 a rw,creat,dsync\npwrite 0 4096 0 1\nunlink a\npwrite 0 4096 4096 2",
        ),
        ..FAST
    },
    Bug {
        id: "N36",
        what: "ext4, fast commits: a file changes while a transaction commits that set an attribute: its fdatasync logs nothing",
        fixed: fast!(",fast_fix=ineligible"),
        programs: Programs::Text(
            "open 0 a rw,creat\nfsync 0\nopen 0 b rw,creat\nnap 6000000\nsetxattr a user.a 23 11\n\
             pwrite 0 4096 0 1\nfdatasync 0",
        ),
        ..FAST
    },
    Bug {
        id: "N37",
        what: "ext4, fast commits: an attribute is set, then a hole is written and overwritten with O_DIRECT|O_DSYNC: only the data are durable",
        fixed: fast!(",fast_fix=untracked"),
        programs: Programs::Text(
            "open 0 a rw,creat\nopen 1 a rw,direct,dsync\nftruncate 0 8192\nopen 2 b rw,creat\n\
             fsync 0\nsetxattr b user.a 20 3\npwrite 0 4096 0 1\npwrite 1 4096 0 3",
        ),
        ..FAST
    },
    Bug {
        id: "N38",
        what: "ext4, fast commits: a new directory is replayed without its block and its links: fsck finds damage",
        fixed: fast!(",fast_fix=directories"),
        rule: Rule::Metadata,
        programs: Programs::Text(
            "open 0 a rw,creat,dsync\npwrite 0 4096 0 1\nmkdir b\nopen 1 c rw,creat\nfdatasync 1",
        ),
        ..FAST
    },
    Bug {
        id: "N39",
        what: "ext4, fast commits: an fsync waits for another's fast commit and returns, its data behind that one's FLUSH",
        fixed: fast!(",fast_fix=company"),
        programs: Programs::Threads(
            "open 0 a rw,creat\nopen 1 b rw,creat\nopen 2 c rw,creat\npwrite 0 4096 0 1\n\
             pwrite 1 4096 0 2\npwrite 2 4096 0 5\nsync\ndrop_caches\nnap 20000\njoin\n\
             thread 1: pwrite 0 4096 4096 3\nthread 1: fsync 0\nthread 2: pwrite 1 4096 0 4\n\
             thread 2: pread 2 4096 0\nthread 2: fsync 1",
        ),
        ..FAST
    },
    Bug {
        id: "N40",
        what: "ext4, fast commits: a file with a block of attributes is replayed without it in its count: fsck finds damage",
        fixed: fast!(",fast_fix=attributes"),
        rule: Rule::Metadata,
        programs: Programs::Text(
            "open 0 a rw,creat,sync\nsetxattr a user.b 971 5\npwrite 0 4096 0 1\n\
             pwrite 0 4096 4096 2",
        ),
        ..FAST
    },
    Bug {
        id: "N44",
        what: "ext4, fast commits: power fails when the last block of their area is written: the mount fails",
        fixed: fast!(",fast_fix=area"),
        rule: Rule::Recoverable,
        programs: Programs::Made(fast::appends, 1),
        ..FAST
    },
    Bug {
        id: "N45",
        what: "ext4, fast commits: one beside an extending direct write has its blocks, not its length, and no orphan: fsck finds damage",
        fixed: fast!(",fast_fix=orphans"),
        rule: Rule::Metadata,
        programs: Programs::Threads(
            "open 0 a rw,creat\nopen 1 a rw,direct\nopen 2 b rw,creat\nsync\njoin\n\
             thread 1: pwrite 1 8192 8192 1\nthread 2: pwrite 2 4096 0 2\nthread 2: fsync 2",
        ),
        ..FAST
    },
    Bug {
        id: "N55",
        what: "ext4, fast commits: blocks that are zeroed beside a write into fallocated space are not tracked: what is written there next is lost",
        affected: fast!(",nodelalloc"),
        fixed: fast!(",nodelalloc,fast_fix=zeroed"),
        programs: Programs::Text(
            "open 0 a rw,creat\nfallocate 0 extend 0 12288\nopen 1 a rw,dsync\nfsync 0\n\
             pwrite 1 4096 4096 1\npwrite 1 4096 0 2",
        ),
        ..FAST
    },
    Bug {
        id: "N41",
        what: "FastCommit's selective flush: a fast commit of one block sends no FLUSH, and the data stay in the volatile cache",
        affected: fast!(",fast_fix=all,fast_selective_flush"),
        fixed: fast!(",fast_fix=all"),
        programs: Programs::Text("open 0 a rw,creat\nfsync 0\npwrite 0 4096 0 1\nfsync 0"),
        ..FAST
    },
    Bug {
        id: "A36",
        rule_name: Some("fast_stages_beside_full"),
        what: "ext4, fast commits: a file is truncated while a transaction commits, and fsynced: the length is lost (until 5.16.12)",
        affected: ext4!("5.16.12,fast_commit"),
        fixed: ext4!("5.16.13,fast_commit"),
        programs: Programs::Text(
            "open 0 a rw,creat\nfsync 0\nopen 1 b rw,creat\nnap 6000000\nchmod b 600\nnap 20\n\
             ftruncate 0 8192\nfsync 0",
        ),
        ..LOST
    },
    Bug {
        id: "V27",
        rule_name: Some("fast_remembers_ineligible"),
        what: "ext4, fast commits: an attribute is set while a transaction commits, and the file is fsynced: its data are lost (until 5.16.12)",
        affected: ext4!("5.16.12,fast_commit,fix=fast_stages_beside_full+fast_requeues_newer"),
        fixed: ext4!("5.16.13,fast_commit,fix=fast_requeues_newer"),
        programs: Programs::Text(
            "open 0 a rw,creat\nfsync 0\nopen 1 b rw,creat\nnap 6000000\nchmod b 600\nnap 20\n\
             setxattr a user.a 20 3\npwrite 0 4096 0 1\nfsync 0",
        ),
        ..LOST
    },
    Bug {
        id: "V28",
        rule_name: Some("fast_requeues_newer"),
        what: "ext4, fast commits: a file changes before and while a transaction commits, and is fdatasynced: its data are lost (until 6.10.2, 6.1.102)",
        affected: ext4!("6.10.2,fast_commit"),
        fixed: ext4!("6.10.3,fast_commit"),
        programs: Programs::Text(
            "open 0 a rw,creat\nfsync 0\nchmod a 600\nnap 6000000\npwrite 0 4096 0 1\n\
             fdatasync 0",
        ),
        ..LOST
    },
];
