//! Known bugs: each is found by a few generated programs where it is, and not where it was fixed.
//! All of them with more programs, and those that take long: `writepath crash bug all`.

use std::ops::Range;
use std::rc::Rc;

use wp_campaign::bugs::{self, ZONES, show};
use wp_campaign::programs::publish;
use wp_campaign::{Bench, Campaign, Of, Source, play, run};
use wp_crash::{Outcome, Profile, Rule, Survivor, judge};
use wp_vfs::FileType;
use wp_workload::program::Program;

/// Bugs, and which programs are enough for a look.
const FEW: [(&str, Range<u64>); 101] = [
    ("A2", 0..3),
    ("A4", 0..20),
    ("A9", 0..24),
    ("A10", 0..2),
    ("A13", 0..64),
    ("A13.moved", 0..64),
    ("A14", 0..8),
    ("A15", 0..128),
    ("A16", 64..96),
    ("A17", 0..64),
    ("A18.34", 0..32),
    ("A18.39", 40..72),
    ("A19", 0..8),
    ("A20.6", 0..64),
    ("A20.7", 0..64),
    ("A20.8", 0..32),
    ("N16", 0..8),
    ("N17", 0..8),
    ("N18", 0..8),
    ("N19", 536..560),
    ("N20", 0..16),
    ("N21", 0..16),
    ("N22", 0..16),
    ("N23", 0..16),
    ("N24", 0..16),
    ("N25", 0..16),
    ("N26", 0..32),
    ("N28", 0..1),
    ("N29", 0..1),
    ("N30", 0..1),
    ("N70", 0..1),
    ("N31", 0..1),
    ("A21.9", 0..3),
    ("A21.10", 0..8),
    ("A22", 0..3),
    ("A26", 0..12),
    ("A32", 0..3),
    ("A27", 0..6),
    ("N1", 0..16),
    ("N2", 0..132),
    ("N3", 0..132),
    ("N4", 0..40),
    ("N5", 0..16),
    ("N6", 0..132),
    ("N9", 0..24),
    ("N10", 0..32),
    ("N11", 0..24),
    ("N12", 0..16),
    ("N13", 0..32),
    ("R1", 0..132),
    ("R2", 0..132),
    ("V1", 0..8),
    ("V2", 0..8),
    ("V3", 0..4),
    ("V4", 0..8),
    ("V5", 0..4),
    ("V6", 0..8),
    ("V7", 0..8),
    ("V8", 0..8),
    ("V9", 0..8),
    ("V10", 0..8),
    ("V11", 0..1),
    ("V12", 0..1),
    ("V13", 0..1),
    ("V14", 0..1),
    ("V15", 0..1),
    ("V16", 0..1),
    ("V17", 0..1),
    ("V18", 0..1),
    ("V19", 0..1),
    ("V20", 0..1),
    ("V21", 0..1),
    ("V22", 0..1),
    ("V23", 0..1),
    ("V24", 0..1),
    ("V25", 0..1),
    ("V26", 0..1),
    ("V27", 0..1),
    ("V28", 0..1),
    ("A36", 0..1),
    ("H1", 0..1),
    ("N32", 0..1),
    ("N33", 0..1),
    ("N34", 0..1),
    ("N35", 0..1),
    ("N36", 0..1),
    ("N37", 0..1),
    ("N38", 0..1),
    ("N39", 0..40),
    ("N40", 0..1),
    ("N41", 0..1),
    ("N44", 0..1),
    ("N45", 0..40),
    ("N50", 0..1),
    ("N55", 0..1),
    ("H4", 0..1),
    ("N42", 0..1),
    ("N43", 0..1),
    ("N60", 0..1),
    ("N61", 0..1),
    ("N62", 0..1),
];

#[test]
fn bugs_are_found_where_they_are_and_not_where_they_were_mended() {
    for (id, among) in FEW {
        let bug = bugs::find(id).expect("it is in the list");
        let shown =
            show(bug, among, 2, &|_| {}, &|| true).expect("played").expect("not interrupted");
        assert!(shown.holds(), "{shown:#?}");
        // Each fsync of this one sends a write or two, so little is in doubt.
        let least = if id == "N70" { 20 } else { 100 };
        assert!(shown.fixed.raw > least || shown.fixed.refused.is_some(), "{shown:#?}");
    }
}

/// What began to be lost at some time: the last release without it and the first with it.
const BEGINS: [(&str, &str, &str); 5] = [
    ("V9", "ext4,era=5.4", "ext4,era=5.5"),
    ("V11", "btrfs,era=5.15", "btrfs,era=5.16"),
    ("V12", "btrfs,era=6.0", "btrfs,era=6.1"),
    ("V14", "btrfs,era=6.15.2", "btrfs,era=6.15.3"),
    ("V15", "btrfs,era=6.15.2", "btrfs,era=6.15.3"),
];

#[test]
fn what_versions_lose_begins_where_the_table_of_versions_says() {
    for (id, keeps, loses) in BEGINS {
        let bug = bugs::find(id).expect("it is in the list");
        let (campaign, rule) = bugs::affected(bug).expect("a machine");
        let broken = |fs: &str| {
            let (fs, options) = wp_machine::spec::file_system(fs).expect("known");
            let old = campaign.bench.clone();
            let bench = Bench { fs, fs_options: options, ..old };
            let programs = (0, campaign.programs.1.min(8));
            let f = run(&Campaign { bench, programs, ..campaign.clone() }, 2, &|_| true);
            assert!(f.totals.raw > 100, "{id}: {:?}", f.totals);
            f.totals.broken[rule as usize]
        };
        assert_eq!(broken(keeps), 0, "{id} on {keeps}");
        assert!(broken(loses) > 0, "{id} on {loses}");
    }
}

/// Space behind a file that a direct write makes longer: the orphan list cuts it in every version,
/// and nobody promised it then.
#[test]
fn space_behind_a_file_is_promised_until_a_direct_write_makes_the_file_longer() {
    let lost = |grows: &str| {
        let fresh = Bench::new(&wp_ext4::ENTRY, "era=6.18").expect("options of ext4");
        let bench = Bench { company_us: 50, ..fresh };
        let calls = format!(
            "open 0 f rw,creat\npwrite 0 4096 0 1\nfallocate 0 keep 4096 131072\nfsync 0\n\
             open 1 f rw,direct\n{grows}"
        );
        let program = Program::parse(&calls).expect("a program");
        let f = run(&Campaign::new(bench, Source::Text(program), (0, 1)), 2, &|_| true);
        assert!(f.totals.raw > 100, "{:?}", f.totals);
        f.totals.broken[Rule::LostSync as usize]
    };
    let grows: String =
        (0..4).map(|n| format!("pwrite 1 16384 {} 2\n", 4096 + n * 16384)).collect();
    assert_eq!(lost(&grows), 0);
    assert_eq!(lost("pwrite 1 4096 0 2\n"), 0);
}

/// N26, in three calls beside another process that syncs.
#[test]
fn an_fsync_of_nilfs2_returns_before_anothers_flush_has_ended_unless_it_awaits_it() {
    let lost = |await_flush: &str| {
        let options = format!("sync_inodes,flush_segments,blocks_per_segment=64{await_flush}");
        let fresh = Bench::new(&wp_nilfs2::ENTRY, &options).expect("options of NILFS2");
        let bench = Bench { company_us: 300, ..fresh };
        let calls = "open 0 a rw,creat\nnap 3000\npwrite 0 4096 0 1\nnap 300\nfsync 0\n";
        let program = Program::parse(calls).expect("a program");
        let f = run(&Campaign::new(bench, Source::Text(program), (0, 1)), 2, &|_| true);
        assert!(f.totals.raw > 1000, "{:?}", f.totals);
        f.totals.broken[Rule::LostSync as usize]
    };
    assert!(lost("") > 0);
    assert_eq!(lost(",await_flush"), 0);
}

/// Order-preserving recovery that is cut and done again: since 6.9 a mount finishes zones, and what
/// was left out as behind a write pointer is no longer behind it.
#[test]
fn oprw_that_is_cut_must_leave_write_pointers_as_they_were() {
    let broken = |options: &str| {
        let options = format!("wait_first_node,fsync_mode=posix,oprw,{options}");
        let fresh = Bench::new(&wp_f2fs::ENTRY, &options).expect("options of F2FS");
        let bench = Bench {
            device: ZONES.0.to_owned(),
            device_params: ZONES.1.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            elevator: "mq-deadline".to_owned(),
            ..fresh
        };
        let c = Campaign {
            second_cuts: 24,
            ..Campaign::new(bench, Source::Sequences(Of::Ace, 1), (0, 60))
        };
        let f = run(&c, 2, &|_| true);
        assert!(f.totals.second > 1000, "{:?}", f.totals);
        f.totals.broken[Rule::Recoverable as usize]
    };
    let [old, today, mended] = ["era=5.14", "era=6.18", "era=6.18,recover_aside"].map(broken);
    // The old era has N6 only.
    assert!(old > 0 && today > old && mended == 0, "{old}, {today}, {mended}");
}

/// A22, the other half: a new file that was synced and whose directory was not.
#[test]
fn ext4_keeps_the_name_of_a_new_file_that_was_synced_and_posix_need_not() {
    let bench = Bench::new(&wp_ext4::ENTRY, "era=6.18").expect("options of ext4");
    let marks = Profile { marks_hold: true, ..Profile::EXT4 };
    let source = Source::Made { seed: 1, make: publish::created };
    let c = Campaign { profile: marks, ..Campaign::new(bench.clone(), source, (0, 4)) };
    let f = run(&c, 2, &|_| true);
    assert_eq!(f.totals.broken.iter().sum::<u64>(), 0, "{:#?}", f.found);
    assert!(f.totals.raw > 1000, "{:?}", f.totals);
    // What POSIX allows: the directory, synced before, and nothing in it.
    let played = play(&bench, &publish::created(1)).expect("played");
    let dir = Survivor {
        path: "db".to_owned(),
        kind: FileType::Dir,
        ino: 12,
        nlink: 2,
        size: 4096,
        stat: None,
        target: None,
        xattrs: Some(Vec::new()),
        blocks: Vec::new(),
        tail: None,
        allocated: None,
    };
    let left = Outcome { files: vec![Rc::new(dir)], ..Outcome::default() };
    let calls = played.dids.len() as u32;
    let broken = |profile: Profile| -> Vec<Rule> {
        let all = judge(&played.ledger, &left, (calls, calls), &profile);
        all.iter().map(|v| v.rule).collect()
    };
    assert_eq!(broken(Profile::POSIX), []);
    assert!(broken(Profile { marks_hold: true, ..Profile::POSIX }).contains(&Rule::LostSync));
    assert!(broken(Profile::EXT4).contains(&Rule::LostSync));
}

/// docs/model/versions.md has a line for each bug of one version or another, and none besides.
#[test]
fn every_bug_of_a_version_stands_on_the_page_of_versions() {
    let page = wp_machine::testing::repository("docs/model/versions.md");
    let page = std::fs::read_to_string(page).expect("readable");
    let rows = page.lines().filter_map(|l| l.strip_prefix("| V"));
    let listed: Vec<String> =
        rows.map(|r| format!("V{}", r.split(' ').next().unwrap_or_default())).collect();
    let known: Vec<&str> = bugs::all().map(|b| b.id).filter(|id| id.starts_with('V')).collect();
    assert_eq!(listed, known);
}

/// docs/findings.md has a line for each bug of Linux that was found here, with the command that
/// shows it, and none that is not among [`bugs::all`]. N27 needs a second life and has
/// `kernel-lab`.
#[test]
fn every_finding_is_listed_with_the_command_that_shows_it() {
    let page = wp_machine::testing::repository("docs/findings.md");
    let page = std::fs::read_to_string(page).expect("readable");
    let is_found_here = |id: &str| id.starts_with(['N', 'R']);
    let rows: Vec<&str> =
        page.lines().filter(|l| l.strip_prefix("| ").is_some_and(is_found_here)).collect();
    let mut listed = Vec::new();
    for row in &rows {
        let id = row[2..].split(' ').next().expect("a first word");
        let shown = format!("`writepath crash bug {id}`");
        assert!(row.contains(&shown) || (id == "N27" && row.contains("kernel-lab")), "{row}");
        listed.push(id);
    }
    let mut known: Vec<&str> = bugs::all().map(|b| b.id).filter(|id| is_found_here(id)).collect();
    known.push("N27");
    known.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, known);
}

/// The list of orphans may be a file: the fix of N45 is of both.
#[test]
fn an_orphan_of_the_orphan_file_makes_the_next_commit_a_full_one() {
    let (mut campaign, rule) =
        bugs::affected(bugs::find("N45").expect("known")).expect("a machine");
    campaign.stop_at.clear();
    let broken = |fs: &str| {
        let (_, options) = wp_machine::spec::file_system(fs).expect("known");
        let mut campaign = campaign.clone();
        campaign.bench.fs_options = options;
        let found = run(&campaign, 2, &|_| true);
        assert!(found.unplayed().is_none() && found.totals.distinct > 10, "{fs}");
        found.totals.broken[rule as usize]
    };
    const FS: &str = "ext4,era=6.12,fast_commit,features=today+orphan_file";
    assert!(broken(FS) > 0, "a file of orphans alone fixes nothing");
    assert_eq!(broken(&format!("{FS},fast_fix=orphans")), 0);
}
