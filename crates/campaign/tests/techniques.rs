//! Techniques of the literature under power failures: nothing is broken where they promise, and
//! what is known to be broken shows in the same programs.
//!
//! The same with 100,000 distinct recoveries and more: the commands of `docs/techniques.md`.

use wp_campaign::programs::untorn;
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Campaign, Findings, Source, Space, run};
use wp_crash::{Profile, Rule};
use wp_vfs::FsEntry;
use wp_workload::program::Call;

/// A machine whose drive has these parameters as well.
fn bench(fs: &'static FsEntry, options: &str, params: &[(&str, u64)]) -> Bench {
    let fresh = Bench::new(fs, options).expect("options");
    let more = params.iter().map(|(key, value)| ((*key).to_owned(), *value));
    let device_params = fresh.device_params.iter().cloned().chain(more).collect();
    Bench { device_params, ..fresh }
}

fn cut(campaign: &Campaign) -> Findings {
    let f = run(campaign, 2, &|_| true);
    assert!(f.not_played.is_empty(), "{:?}", f.not_played);
    f
}

/// F2FS with the bugs of an fsync fixed that are not of its flush.
const FSYNC_FIXED: &str = "era=6.18,mode=lfs,direct=log,noinline_xattr,wait_first_node,\
                           size_before_sync,fsync_alone,sync_attributes";

fn flushes_sets(options: &str, count: u64) -> Findings {
    let fs = &wp_f2fs::ENTRY;
    let bench = bench(fs, &format!("{FSYNC_FIXED},{options}"), &[("range_flush", 1)]);
    let source = Source::Wild { seed: 1, calls: 20, extras: Extras::ALL.on(fs) };
    let profile = Profile::mounted(fs, &bench.fs_options);
    cut(&Campaign { profile, ..Campaign::new(bench, source, (0, count)) })
}

/// A node of `posix` may be durable before its data whatever a flush holds (A8), so no set makes
/// this mode sound; behind a flush of the data the published set alone loses files (H2).
#[test]
fn a_flush_of_a_set_is_sound_where_data_is_durable_before_nodes() {
    let sound = flushes_sets("fsync_mode=posix_fixed,rflush=log", 60);
    assert_eq!(sound.totals.broken.iter().sum::<u64>(), 0, "{:#?}", sound.found);
    assert!(sound.totals.distinct > 600, "{:?}", sound.totals);
    let published = flushes_sets("fsync_mode=posix_fixed,rflush=data", 60);
    let broken = published.totals.broken;
    assert!(broken[Rule::LostSync as usize] > 0, "{broken:?}");
    for options in ["rflush=log", ""] {
        let posix = flushes_sets(options, 25).totals.broken;
        assert!(posix[Rule::Exposure as usize] > 0, "`{options}`: {posix:?}");
    }
}

/// Clusters on a drive that keeps a cluster whole and tears all else at sectors.
fn untorn_pages(options: &str, count: u64) -> Findings {
    let fs = &wp_ext4::ENTRY;
    let options = format!("era=6.18,cluster=16k,size_before_sync{options}");
    let bench = bench(fs, &options, &[("atomic_bytes", 16 << 10)]);
    let source = Source::Made { seed: 1, make: untorn::pages };
    let Space::Permitted { lying_flush, lost_fua, faulty_plp, .. } = Space::HONEST else {
        panic!("what a contract permits")
    };
    let space = Space::Permitted { lying_flush, lost_fua, faulty_plp, atomic: Some(512) };
    let profile = Profile::mounted(fs, &bench.fs_options);
    cut(&Campaign { space, profile, ..Campaign::new(bench, source, (0, count)) })
}

#[test]
fn random_untorn_writes_are_whole_and_without_the_commit_some_are_not() {
    let is_untorn = |c: &Call| matches!(c, Call::Pwrite { atomic: true, .. });
    let programs: Vec<_> = (0..60).map(untorn::pages).collect();
    assert!(programs.iter().filter(|p| p.calls().any(is_untorn)).count() > 50);
    let fixed = untorn_pages(",untorn_commit", 60);
    assert_eq!(fixed.totals.broken.iter().sum::<u64>(), 0, "{:#?}", fixed.found);
    assert!(fixed.totals.distinct > 1500, "{:?}", fixed.totals);
    // N50: a map that is not durable yet counts as written.
    let linux = untorn_pages("", 400).totals.broken;
    assert!(linux[Rule::MixedVersions as usize] > 0, "{linux:?}");
}
