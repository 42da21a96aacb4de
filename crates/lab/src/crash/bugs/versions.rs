//! What versions of file systems forgot to make durable: the last that does, and the first that
//! does not, each without the other faults of its age that the same programs would meet.

use wp_crash::{Profile, Rule};

use super::{BUG, Bug, PLAIN, Programs, Side};
use crate::crash::programs::durable;

/// ext4 by one version's rules, on its own scheduler.
macro_rules! ext4 {
    ($options:literal) => {
        Side { fs: concat!("ext4,era=", $options), elevator: "", ..PLAIN }
    };
}

/// NILFS2 with small blocks, which syncs what a later call than its own changed.
macro_rules! nilfs2 {
    ($version:literal) => {
        Side {
            fs: concat!("nilfs2,block_size=1024,sync_inodes,flush_segments,era=", $version),
            elevator: "",
            params: &[("capacity_bytes", 64 << 20)],
            ..PLAIN
        }
    };
}

/// What was synced is lost.
const LOST: Bug = Bug { rule: Rule::LostSync, profile: Profile::EXT4, ..BUG };

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "V1",
        rule_name: Some("space_is_synchronous"),
        what: "fallocate through an O_DSYNC descriptor returns before its commit (until 3.5)",
        affected: ext4!("3.5,sync_flushes"),
        // A delayed write behind the space is V6.
        fixed: ext4!("4.15,sync_flushes"),
        programs: Programs::Made(durable::asked, 32),
        ..LOST
    },
    Bug {
        id: "V2",
        rule_name: Some("size_counts_for_fdatasync"),
        what: "fdatasync ignores a change of the length alone (until 3.6)",
        affected: ext4!("3.6"),
        fixed: ext4!("3.7"),
        programs: Programs::Made(durable::lengths, 32),
        ..LOST
    },
    Bug {
        id: "V3",
        rule_name: Some("async_syncs_early"),
        what: "io_submit of an O_DSYNC write syncs before the data, and never after them (until 3.11)",
        affected: ext4!("3.11"),
        fixed: ext4!("3.12"),
        programs: Programs::Made(durable::queued, 32),
        ..LOST
    },
    Bug {
        id: "V4",
        rule_name: Some("append_syncs_elsewhere"),
        what: "write() to an O_APPEND|O_SYNC descriptor syncs other bytes than it wrote (until 3.13)",
        affected: ext4!("3.13"),
        fixed: ext4!("3.14"),
        programs: Programs::Made(durable::at_the_end, 32),
        ..LOST
    },
    Bug {
        id: "V5",
        rule_name: Some("holes_count_for_fdatasync"),
        what: "fdatasync ignores a hole (until 4.11.4)",
        affected: ext4!("4.11.4"),
        fixed: ext4!("4.11.5"),
        programs: Programs::Made(durable::holes, 32),
        ..LOST
    },
    Bug {
        id: "V6",
        rule_name: Some("space_moves_disksize"),
        what: "fallocate through an O_DSYNC descriptor before a delayed write leaves the length where it was (until 4.14.2)",
        affected: ext4!("4.14.2"),
        fixed: ext4!("4.14.3"),
        programs: Programs::Made(durable::asked, 32),
        ..LOST
    },
    Bug {
        id: "V7",
        rule_name: Some("space_counts_for_fdatasync"),
        what: "fdatasync ignores space asked for beyond EOF (generic/468, until 4.14.7)",
        affected: ext4!("4.14.7"),
        fixed: ext4!("4.14.8"),
        programs: Programs::Made(durable::space, 32),
        ..LOST
    },
    Bug {
        id: "V8",
        rule_name: Some("direct_moves_disksize"),
        what: "a direct O_DSYNC write before a delayed one leaves the length where it was (until 4.16)",
        affected: ext4!("4.16"),
        fixed: ext4!("4.17"),
        programs: Programs::Made(durable::behind, 32),
        ..LOST
    },
    Bug {
        id: "V9",
        rule_name: Some("direct_syncs_before_size"),
        what: "an extending O_DIRECT|O_DSYNC write syncs before the new length (generic/737, 5.5 to 6.6.2, 6.1.63)",
        affected: ext4!("6.1.63"),
        fixed: ext4!("6.1.64"),
        programs: Programs::Made(durable::appended, 32),
        ..LOST
    },
    Bug {
        id: "V10",
        rule_name: Some("recovery_misplaces"),
        what: "NILFS2 with blocks of 1 KiB: recovery copies the data of an fdatasync to another place of its page (until 6.7, 6.1.78)",
        affected: nilfs2!("6.1.78"),
        fixed: nilfs2!("6.1.79"),
        profile: Profile::of(&wp_nilfs2::ENTRY.promises),
        programs: Programs::Made(durable::parts, 32),
        ..LOST
    },
];
