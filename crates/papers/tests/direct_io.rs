//! Who moves blocks under direct writes, ours beside real kernels (`testdata/reference/direct-io`:
//! ext4 and btrfs of 6.18, F2FS of 6.12, NILFS2 of 6.1), and that NILFS2's user is told.

use wp_machine::Machine;
use wp_machine::testing::reference;
use wp_medium::Slice;
use wp_papers::direct_io::mechanism::{self, Case, Mechanism};
use wp_papers::direct_io::{Plan, System};
use wp_vfs::OpenFlags;
use wp_workload::mobibench::MobiBench;

/// A line of the reference's summary.
struct Line {
    has_moved: bool,
    /// Pages that the writing program sent.
    own_pages: u64,
}

fn line(text: &str, name: &str) -> Line {
    let found = text.lines().find(|l| l.starts_with(name)).expect("a line of that run");
    let own = found.split("[fio]:").nth(1).and_then(|t| t.split_whitespace().next());
    Line {
        has_moved: found.contains(" MOVED "),
        own_pages: own.and_then(|n| n.parse().ok()).expect("a number"),
    }
}

fn ours(system: System, case: Case) -> Mechanism {
    mechanism::mechanism(system, case, 1).expect("runs")
}

#[test]
fn blocks_move_where_they_do_in_linux_and_as_many_are_written() {
    let path = reference("direct-io/summary.txt");
    let text = std::fs::read_to_string(path).expect("reads");
    let systems = [
        ("ext4", System::Ext4Today),
        ("btrfs", System::BtrfsToday),
        ("btrfs-nodatacow", System::BtrfsInPlaceToday),
        ("f2fs", System::F2fsToday),
        ("f2fs-lfs", System::F2fsLogToday),
        ("nilfs2", System::Nilfs2Today),
    ];
    for (name, system) in systems {
        for (bytes, size, writes) in [(4096, "4k", 256), (1 << 20, "1m", 16)] {
            for (at_random, how) in [(false, "write"), (true, "randwrite")] {
                let theirs = line(&text, &format!("{name} bs={size} {how} "));
                let case = Case { extends: false, bytes, writes, at_random };
                let ours = ours(system, case);
                let place = format!("{name} {size} {how}");
                assert_eq!(ours.moved, Some(f64::from(u8::from(theirs.has_moved))), "{place}");
                let (ours, theirs) = (ours.own_blocks(), theirs.own_pages);
                // Of NILFS2's 16 x 258 one falls to the thread, as there: the fifteenth finds logs
                // that are open, for more than 3600 blocks had changed.
                assert_eq!(ours, theirs, "{place}");
            }
        }
    }
}

/// A machine with NILFS2 or another, one file, and this many writes of it.
fn notes(system: System, direct: bool, writes: u64) -> Vec<String> {
    let mut plan = Plan::paper(system, MobiBench::default(), 1);
    plan.bytes = Some(256 << 20);
    let machine = Machine::new(plan.spec().expect("options"), None).expect("a machine");
    let vfs = machine.mount().expect("mounts");
    let v = vfs.clone();
    let task = async move {
        let fd = v.open("/a", OpenFlags { direct, ..OpenFlags::CREATE }, 0o644).await?;
        for i in 0..writes {
            v.pwrite(fd, i * 4096, &[Slice::pattern(i, 0, 4096)]).await?;
        }
        v.close(fd).await
    };
    machine.block_on("writer", task).expect("goes on").expect("writes");
    let notes = vfs.fs().notes();
    machine.unmount(&vfs).expect("unmounts");
    notes
}

#[test]
fn the_user_of_nilfs2_is_told_once_that_direct_writes_are_none() {
    let told = notes(System::Nilfs2, true, 3);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("no direct writes: 3 with O_DIRECT"), "{told:?}");
    assert!(notes(System::Nilfs2, false, 3).is_empty(), "nobody asked for direct writes");
    assert!(notes(System::Nilfs2, true, 0).is_empty(), "nothing was written");
    assert!(notes(System::Ext4, true, 3).is_empty(), "those were direct");
}

/// In place nothing is logged; in a log the file's blocks have new places, of which an fsync tells.
#[test]
fn a_log_of_direct_writes_is_told_of_by_the_next_sync() {
    let (place, log) = (ours(System::F2fs, Case::OVER), ours(System::F2fsLog, Case::OVER));
    assert_eq!((place.moved, log.moved), (Some(0.0), Some(1.0)));
    assert_eq!((place.writes.metadata(), log.writes.metadata()), (0, 0));
    assert_eq!(place.fdatasync.metadata(), 0, "no block moved, no length");
    assert!(log.fdatasync.metadata() > 0, "where the blocks are now");
}
