//! Power cuts of generated programs on ext4: nothing that is promised is lost, in any era and mode,
//! but where the kernel of that era lost it.

use wp_crash::{Profile, Rule};
use wp_lab::crash::wild::Extras;
use wp_lab::crash::{Bench, Campaign, Cut, Findings, Found, Source, Space, play, run, sequences};
use wp_vfs::Options;
use wp_workload::program::Program;

fn bench(options: &str, kernel: (u16, u16)) -> Bench {
    let fs = &wp_ext4::ENTRY;
    Bench {
        fs,
        fs_options: Options::parse(options, fs.options).expect("options"),
        device: "fixed".to_owned(),
        device_params: vec![("capacity_bytes".to_owned(), 64 << 20)],
        elevator: String::new(),
        kernel,
        settle_s: 60,
        stale: true,
        model: false,
    }
}

/// The paper's phone, with little memory: the flusher is at work while others sync.
fn phone(era: &str, kernel: (u16, u16)) -> Bench {
    Bench {
        device: "emmc-16".to_owned(),
        elevator: "cfq".to_owned(),
        ..bench(&format!("era={era},dirty_background_bytes=262144"), kernel)
    }
}

fn wild(seed: u64) -> Source {
    Source::Wild { seed, calls: 40, extras: Extras::ALL }
}

fn broken(f: &Findings, rule: Rule) -> u64 {
    f.totals.broken[rule as usize]
}

fn assert_clean(what: &str, f: &Findings) {
    assert!(f.not_played.is_empty(), "{what}: {:?}", f.not_played);
    assert_eq!(f.totals.broken.iter().sum::<u64>(), 0, "{what}: {:#?}", f.found);
    assert!(f.totals.distinct > 20, "{what}: {:?}", f.totals);
}

#[test]
fn sequences_of_one_operation_break_no_rule_in_any_mode() {
    let modes = [
        ("era=3.4", (3, 4)),
        ("era=4.6", (4, 6)),
        ("era=6.18", (6, 18)),
        ("era=6.18,data=journal", (6, 18)),
        ("era=6.18,nodelalloc", (6, 18)),
        ("era=5.10,block_size=1024", (5, 10)),
    ];
    for (i, (options, kernel)) in modes.into_iter().enumerate() {
        // Some of the sequences each, not always the same.
        let first = i as u64 * 19;
        let end = (first + 6).min(sequences::count(1));
        let c = Campaign {
            check: true,
            second_cuts: 12,
            ..Campaign::new(bench(options, kernel), Source::Sequences(1), (first, end))
        };
        let f = run(&c, 2, &|_| true);
        // Until 3.11 `syncfs` flushed the cache only if it committed something.
        let known = |x: &&Found| options == "era=3.4" && x.violation.expected.contains("`syncfs");
        let found: Vec<&Found> = f.found.iter().filter(|x| !known(x)).collect();
        assert!(found.is_empty(), "{options}: {found:#?}");
        assert!(f.not_played.is_empty(), "{options}: {:?}", f.not_played);
        assert!(f.totals.raw > 100 && f.totals.second > 10, "{options}: {:?}", f.totals);
    }
}

#[test]
fn the_hole_of_ordered_mode_is_in_3_8_and_lengths_run_ahead_since() {
    let profile = Profile { size_with_data: true, ..Profile::EXT4 };
    let campaign = |era: &str, kernel| Campaign {
        profile,
        ..Campaign::new(phone(era, kernel), wild(10), (0, 12))
    };
    let go = |era: &str, kernel| run(&campaign(era, kernel), 2, &|_| true);
    let old = go("3.4", (3, 4));
    assert_eq!((broken(&old, Rule::Exposure), broken(&old, Rule::SizeAhead)), (0, 0));
    let fixed = go("4.6", (4, 6));
    assert_eq!(broken(&fixed, Rule::Exposure), 0, "{:#?}", fixed.found);
    assert!(broken(&fixed, Rule::SizeAhead) > 0, "{:?}", fixed.totals);
    assert_eq!(broken(&fixed, Rule::LostSync), 0, "{:#?}", fixed.found);
    let hole = go("3.8", (3, 8));
    assert!(broken(&hole, Rule::Exposure) > 0, "{:?}", hole.totals);
    told(&campaign("3.8", (3, 8)), &hole);
}

/// A failure is told as a timeline.
fn told(c: &Campaign, f: &Findings) {
    let found = f.found.iter().find(|x| x.violation.rule == Rule::Exposure).expect("the hole");
    let played = play(&c.bench, &c.source.program(found.program)).expect("played");
    let history = c.space.history(&played);
    let cut = Cut {
        fs: (c.bench.fs, &c.bench.fs_options),
        played: &played,
        history: &history,
        frame: found.frame,
        lost: &found.lost,
    };
    let text = cut.tell(8);
    for word in ["the power may have gone", "journal_commit", "returned: "] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    assert!(cut.files().contains(&found.violation.path));
}

#[test]
fn the_same_comes_out_whoever_does_it_and_with_or_without_pruning() {
    // More than a chunk of programs, on a drive that lies, so that there is something to find.
    let space =
        Space::Permitted { lying_flush: true, lost_fua: true, faulty_plp: false, atomic: None };
    let machine = bench("era=6.18", (6, 18));
    let base = Campaign { space, ..Campaign::new(machine, Source::Sequences(1), (0, 18)) };
    let (one, three) = (run(&base, 1, &|_| true), run(&base, 3, &|_| true));
    assert_eq!(format!("{one:?}"), format!("{three:?}"));
    let few = Campaign { programs: (0, 3), ..base };
    let pruned = run(&few, 2, &|_| true);
    let full = run(&Campaign { prune: false, ..few }, 2, &|_| true);
    assert_eq!(full.totals.distinct, full.totals.raw);
    assert!(pruned.totals.distinct * 10 < full.totals.distinct, "{:?}", pruned.totals);
    assert_eq!(pruned.totals.broken, full.totals.broken);
    assert_eq!(format!("{:?}", pruned.found), format!("{:?}", full.found));
}

#[test]
fn what_the_model_leaves_is_part_of_what_the_contract_permits() {
    for device in ["fixed", "emmc-16"] {
        let bench = Bench {
            device: device.to_owned(),
            model: true,
            ..bench("era=4.6,dirty_background_bytes=262144", (4, 6))
        };
        let permitted = Campaign::new(bench, wild(1), (0, 2));
        let modelled = Campaign { space: Space::Modelled, ..permitted.clone() };
        let (p, m) = (run(&permitted, 2, &|_| true), run(&modelled, 2, &|_| true));
        assert_clean(device, &p);
        assert_eq!(m.totals.broken.iter().sum::<u64>(), 0, "{device}: {:#?}", m.found);
        assert!(m.totals.raw > 0 && m.totals.programs == 2, "{device}: {:?}", m.totals);
    }
}

#[test]
fn a_drive_that_lies_is_found_out() {
    let c = Campaign {
        space: Space::Permitted {
            lying_flush: true,
            lost_fua: true,
            faulty_plp: false,
            atomic: None,
        },
        ..Campaign::new(bench("era=6.18", (6, 18)), Source::Sequences(1), (0, 6))
    };
    let f = run(&c, 2, &|_| true);
    assert!(broken(&f, Rule::LostSync) > 0, "{:?}", f.totals);
}

/// Programs that once broke a rule.
#[test]
fn what_was_found_stays_mended() {
    for (options, kernel, text) in [
        // syncfs returned while the flusher had the files in hand.
        (
            "era=4.6,dirty_background_bytes=262144",
            (4, 6),
            "open 63 . r\nopen 0 a rw,creat\npwrite 0 327680 0 1\nopen 1 b rw,creat\n\
             pwrite 1 8192 0 2\nsyncfs 63\npwrite 1 16384 0 3\nfsync 1\n",
        ),
        // The length moved within a block, and the write went out with FUA alone.
        (
            "era=6.18",
            (6, 18),
            "open 0 a rw,creat\npwrite 0 1024 0 1\nopen 1 a rw,direct,dsync\nfsync 0\n\
             nap 31000000\nfsync 1\npwrite 1 4096 0 2\nopen 2 b rw,creat\nfsync 2\n",
        ),
    ] {
        let program = Program::parse(text).expect("a program");
        let c = Campaign::new(bench(options, kernel), Source::Text(program), (0, 1));
        let f = run(&c, 1, &|_| true);
        assert_eq!(f.totals.broken.iter().sum::<u64>(), 0, "{text}: {:#?}", f.found);
        assert!(f.totals.raw > 50, "{:?}", f.totals);
    }
}
