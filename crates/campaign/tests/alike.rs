//! Campaigns that share what does not depend on the kernel version.

use std::collections::BTreeSet;

use wp_campaign::alike::{versions, versions_from};
use wp_campaign::{Alike, Bench, Campaign, Findings, Of, Source, run};
use wp_machine::registry;

/// Versions of a file system, two of each `step`.
fn some_versions(fs: &str, step: usize) -> Vec<Campaign> {
    let entry = registry::find_fs(fs).expect("a file system");
    let all = versions(entry);
    let wanted = all.iter().enumerate().filter(|(n, _)| n % step < 2);
    let campaign = |era: &String| {
        let mut bench = Bench::new(entry, &format!("era={era}")).expect("a machine");
        // NILFS2 needs so much.
        bench.device_params = vec![("capacity_bytes".to_owned(), 256 << 20)];
        Campaign { check: true, ..Campaign::new(bench, Source::Sequences(Of::Further, 1), (0, 48)) }
    };
    wanted.map(|(_, era)| campaign(era)).collect()
}

fn explore(c: &Campaign) -> Findings {
    run(c, 1, &|_| true)
}

/// What is shared is what each comes to alone, to the number, on every file system.
#[test]
fn what_is_shared_is_what_each_version_comes_to_alone() {
    for (fs, step) in [("ext4", 20), ("f2fs", 10), ("nilfs2", 5), ("btrfs", 9)] {
        let alone = some_versions(fs, step);
        let mut shared = alone.clone();
        Alike::share(&mut shared.iter_mut().collect::<Vec<_>>());
        let mut taken = 0;
        for (alone, shared) in alone.iter().zip(&shared) {
            let era = alone.bench.fs_options.get("era", alone.bench.fs.options);
            let found = explore(shared);
            assert!(found.totals.programs > 0, "{fs} {era:?}: {:?}", found.not_played);
            assert_eq!(explore(alone), found, "{fs} {era:?}");
            taken += shared.alike.as_ref().expect("it shares").taken();
        }
        assert!(taken > 0, "{fs}: some programs ask for no rule that differs");
    }
}

/// What differs in more than the version is not shared.
#[test]
fn another_option_or_elevator_shares_nothing() {
    let entry = registry::find_fs("ext4").expect("a file system");
    let campaign = |options: &str| {
        let bench = Bench::new(entry, options).expect("a machine");
        Campaign::new(bench, Source::Sequences(Of::Further, 1), (0, 16))
    };
    let mut none = campaign("era=6.12");
    none.bench.elevator = "none".to_owned();
    let mut all =
        [campaign("era=6.12"), campaign("era=6.12,nobarrier"), none, campaign("era=6.12")];
    Alike::share(&mut all.iter_mut().collect::<Vec<_>>());
    let found: Vec<Findings> = all.iter().map(explore).collect();
    let taken = all.each_ref().map(|c| c.alike.as_ref().expect("it shares").taken());
    assert_eq!(taken, [0, 0, 0, found[0].totals.programs]);
    assert_eq!(found[0], found[3]);
    assert_ne!(found[0], found[1], "no flush is another tape");
}

/// No two of the versions have the same rules, and all of them are modelled.
#[test]
fn versions_differ_in_a_rule() {
    for entry in registry::FILE_SYSTEMS {
        let all = versions(entry);
        assert!(all.iter().all(|era| entry.check_era(era).is_ok()), "{}", entry.name);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{}", entry.name);
        assert_eq!(all.first().map(String::as_str), Some(entry.kernels[0]), "{}", entry.name);
    }
}

/// A version stands in the row of the oldest one with its rules, and that is where it begins.
#[test]
fn versions_begin_with_the_rules_of_one() {
    for fs in ["ext4", "f2fs", "nilfs2", "btrfs"] {
        let entry = registry::find_fs(fs).expect("a file system");
        let all = versions(entry);
        assert_eq!(versions_from(entry, &all[0]).as_ref(), Some(&all), "{fs}");
        assert_eq!(versions_from(entry, &all[7]).as_deref(), Some(&all[7..]), "{fs}");
        let newest = versions_from(entry, entry.newest()).expect("it has these rules");
        assert!(!newest.is_empty() && all.ends_with(&newest), "{fs}: {newest:?}");
        assert_eq!(versions_from(entry, "never"), None, "{fs}");
    }
    let ext4 = registry::find_fs("ext4").expect("a file system");
    let from = versions_from(ext4, "5.5.3").expect("it has these rules");
    assert_eq!(from[0], "5.5", "{from:?}");
}
