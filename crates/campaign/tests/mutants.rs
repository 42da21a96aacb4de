//! Steps that a crash is safe by are missed when they are left out.

use wp_campaign::mutate::{Fate, SETTINGS, Search, WITNESSES_TOML, Which, run, sites};

/// Those that everything hangs on; all of them are for `writepath crash mutate all`.
const STEPS: [&str; 9] = [
    "block/flush/preflush",
    "block/flush/fua",
    "jbd2/commit/preflush",
    "jbd2/commit/record-fua",
    "jbd2/commit/record-wait",
    "ext4/fsync/commit-wait",
    "ext4/fsync/flush",
    "ext4/inode/sync-tid",
    "ext4/checksum/inode",
];

#[test]
fn each_of_the_most_important_steps_is_missed_when_it_is_left_out() {
    let chosen: Vec<_> = sites().into_iter().filter(|s| STEPS.contains(&s.name)).collect();
    assert_eq!(chosen.len(), STEPS.len());
    let all = ("", Search::default());
    let mutants =
        run(&chosen, &SETTINGS[..1], all, 2, &|_| {}, &|| true).expect("the setting can be");
    for m in &mutants {
        assert!(matches!(m.fate, Fate::Killed { .. }), "{}: {:?}", m.site.name, m.fate);
    }
    // What comes out does not depend on who did it.
    let again =
        run(&chosen, &SETTINGS[..1], all, 1, &|_| {}, &|| true).expect("the setting can be");
    assert_eq!(format!("{mutants:?}"), format!("{again:?}"));
}

/// iJournaling leaves the truncate of one file to the transaction, and logs the other: a block that
/// it got from the first would be of both. The device is full but for what was freed.
#[test]
fn a_block_that_is_reused_before_its_commit_breaks_ijournaling() {
    use std::fmt::Write;
    let mut steps = "open 0 a rw,creat\npwrite 0 1048576 0 1\nopen 1 b rw,creat\n\
                     open 2 c rw,creat\n"
        .to_owned();
    let mut at = 0;
    let pieces = (0..13).flat_map(|n| [(16 << 20) >> n; 2]);
    for bytes in pieces {
        writeln!(steps, "fallocate 2 keep {at} {bytes}").expect("a string takes it");
        at += bytes;
    }
    steps += "fsync 0\nftruncate 0 0\n";
    for n in 0..40 {
        writeln!(steps, "pwrite 1 65536 {} {}", n * 65536, n + 2).expect("a string takes it");
    }
    let list = format!(
        "[[setting]]\nname = \"full\"\nlike = \"6.18 wild\"\natomic = 4096\n\
         fs = \"era=6.12,ijournal,nodelalloc\"\n[[witness]]\nsite = \"ext4/free/after-commit\"\n\
         setting = \"full\"\nsteps = \"\"\"\n{steps}fsync 1\n\"\"\"\n"
    );
    let chosen: Vec<_> =
        sites().into_iter().filter(|s| s.name == "ext4/free/after-commit").collect();
    let search = Search { survivor: 0, open: 0 };
    let mutants = run(&chosen, &[], (&list, search), 2, &|_| {}, &|| true).expect("it can be");
    assert!(matches!(mutants[0].fate, Fate::Killed { .. }), "{mutants:?}");
    assert!(mutants[0].without.is_empty(), "with the step it is sound: {mutants:?}");
}

/// Some of each kind of setting for programs that were written for their site.
const DIRECTED: [&str; 24] = [
    "block/untorn/never-split",
    "ext4/untorn/commit-first",
    "jbd2/commit/async-flush",
    "jbd2/access/frozen-copy",
    "jbd2/ordered/before-truncate",
    "jbd2/recovery/scan-control-checksum",
    "jbd2/recovery/block-checksum",
    "ext4/sync/data-write",
    "ext4/initialise/zero-out-wait",
    "ext4/lazy-init/wait",
    "ext4/replace/auto-da-alloc",
    "ext4/direct/size-after-data",
    "ext4/data-journal/commit-first",
    "ext4/super-block/wait",
    "ext4/create/datasync-tid",
    "jbd2/dual/record-dispatch",
    "jbd2/dual/durable-wait",
    "ext4/fsync/data-dispatch",
    "f2fs/atomic/one-checkpoint",
    "f2fs/atomic/data-wait",
    "ext4/fast/staging",
    "ext4/ijournal/sequence",
    "ext4/ijournal/one-at-a-time",
    "ext4/recovery/i-transaction-newer",
];

#[test]
fn programs_that_were_written_for_a_step_miss_it_and_are_sound_with_it() {
    let chosen: Vec<_> = sites().into_iter().filter(|s| DIRECTED.contains(&s.name)).collect();
    assert_eq!(chosen.len(), DIRECTED.len());
    let witnessed = (WITNESSES_TOML, Search { survivor: 0, open: 0 });
    let mutants = run(&chosen, &[], witnessed, 2, &|_| {}, &|| true).expect("settings can be");
    for m in &mutants {
        let killed = matches!(&m.fate, Fate::Killed { by, .. } if by.program == Which::Directed);
        assert!(killed && !m.stale && m.without.is_empty(), "{}: {m:?}", m.site.name);
    }
}

#[test]
fn a_list_of_witnesses_that_cannot_be_is_refused() {
    let site = "[[witness]]\nsite = \"ext4/sync/flush\"\nsetting = \"6.18 wild\"\n";
    for (bad, why) in [
        ("[[witness]]\nsite = \"no/such\"\nsetting = \"x\"\nprogram = 0".to_owned(), "no/such"),
        (format!("{site}program = 0\nsteps = \"sync\""), "`program` or `steps`"),
        (site.to_owned(), "`program` or `steps`"),
        (format!("{site}steps = \"fly 0\""), "line 1"),
        ("[[setting]]\nname = \"a\"\nlike = \"b\"".to_owned(), "unknown setting `b`"),
        ("[[setting]]\nname = \"6.18 wild\"\nlike = \"6.18 wild\"".to_owned(), "two settings"),
    ] {
        let none = Search { survivor: 0, open: 0 };
        let e = run(&[], SETTINGS, (&bad, none), 1, &|_| {}, &|| true).expect_err(&bad);
        assert!(e.contains(why), "{e}");
    }
}
