//! Steps that a crash is safe by are missed when they are left out.

use wp_lab::crash::mutate::{Fate, SETTINGS, run, sites};

/// Those that everything hangs on; all of them are for `writepath crash --mutate all`.
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
    let mutants =
        run(&chosen, &SETTINGS[..1], "", 2, &|_| {}, &|| true).expect("the setting can be");
    for m in &mutants {
        assert!(matches!(m.fate, Fate::Killed { .. }), "{}: {:?}", m.site.name, m.fate);
    }
    // What comes out does not depend on who did it.
    let again = run(&chosen, &SETTINGS[..1], "", 1, &|_| {}, &|| true).expect("the setting can be");
    assert_eq!(format!("{mutants:?}"), format!("{again:?}"));
}
