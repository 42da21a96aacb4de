//! Power failures of generated programs on ext4: nothing that is promised is lost, in any era and
//! mode, but where the kernel of that era lost it.

use std::sync::Arc;

use wp_base::FsError;
use wp_campaign::lives::Lives;
use wp_campaign::programs;
use wp_campaign::wild::Extras;
use wp_campaign::{
    Bench, Campaign, Cut, Findings, Found, KnownFailure, KnownFailures, Of, Source, Space, play,
    run, sequences,
};
use wp_crash::{Plan, Profile, Rule};
use wp_workload::program::Program;

fn bench(options: &str) -> Bench {
    Bench::new(&wp_ext4::ENTRY, options).expect("options of ext4")
}

/// The paper's phone, with little memory: the flusher is at work while others sync.
fn phone(era: &str) -> Bench {
    Bench {
        device: "emmc-16".to_owned(),
        elevator: "cfq".to_owned(),
        ..bench(&format!("era={era},dirty_background_bytes=262144"))
    }
}

fn wild(seed: u64) -> Source {
    Source::Wild { seed, calls: 40, extras: Extras::ALL }
}

/// Another file's sync while 8 MiB are being written back.
const HOLE: &str = include_str!("../../../papers/ext4-fsync/hole.txt");

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
        "era=3.4",
        "era=4.6",
        "era=6.18",
        "era=6.18,data=journal",
        "era=6.18,nodelalloc",
        "era=5.10,block_size=1024",
    ];
    for (i, options) in modes.into_iter().enumerate() {
        // Some of the sequences each, not always the same.
        let first = i as u64 * 19;
        let end = (first + 3).min(sequences::count(Of::Ace, 1));
        let c = Campaign {
            check: true,
            second_cuts: 12,
            ..Campaign::new(bench(options), Source::Sequences(Of::Ace, 1), (first, end))
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

/// An honest drive, or one that neither flushes nor heeds FUA.
fn permitted(lies: bool) -> Space {
    Space::Permitted { lying_flush: lies, lost_fua: lies, faulty_plp: false, atomic: None }
}

/// What recovery brought back has to stay, and what the second life syncs.
#[test]
fn a_life_after_a_power_failure_keeps_what_the_one_before_left() {
    let text = "mkdir d\nopen 0 d/a rw,creat\npwrite 0 9000 0 1\nchmod d/a 600\nfsync 0\n\
                open 1 d/b rw,creat\npwrite 1 4096 0 2\npower_failure\n\
                open 0 d/a rw\npwrite 0 4096 0 3\nfsync 0\nlink d/a d/c\nopen 1 d r\nfsync 1\n\
                power_failure\nunlink d/a\nsync\n";
    let program = Program::parse(text).expect("a program");
    let mended =
        "fsync_mode=strict_fixed,wait_first_node,wait_last_node,wait_earlier_nodes,mode=lfs";
    for (fs, options, capacity) in [
        (&wp_ext4::ENTRY, "era=6.18", 64),
        (&wp_f2fs::ENTRY, mended, 64),
        (&wp_btrfs::ENTRY, "", 128),
        (&wp_nilfs2::ENTRY, "sync_inodes,flush_segments,blocks_per_segment=64", 64),
    ] {
        let mut bench = Bench::new(fs, options).expect("options");
        bench.device_params[0].1 = capacity << 20;
        let space = permitted(false);
        let lives = Lives::of(&bench, space, &program, (16, 1)).expect("plays").expect("has lives");
        assert_eq!(lives.whole(0), (program.clone(), 0), "{}", fs.name);
        assert!(lives.count() >= 3, "{}: {}", fs.name, lives.count());
        let last = lives.describe(lives.count() - 1);
        assert!(last.starts_with("life 3, after state "), "{last}");
        let (source, count) = (Source::Lives(Arc::new(lives.clone())), lives.count());
        let c = Campaign { check: true, space, ..Campaign::new(bench.clone(), source, (0, count)) };
        let f = run(&c, 2, &|_| true);
        assert!(f.found.is_empty(), "{}: {:#?}", fs.name, f.found);
        assert!(f.not_played.is_empty(), "{}: {:?}", fs.name, f.not_played);
        // A drive that lies loses what fsync promised. NILFS2 promises no names: a file that is
        // gone with its name breaks no rule there.
        if fs.name == "nilfs2" {
            continue;
        }
        let f = run(&Campaign { space: permitted(true), ..c }, 2, &|_| true);
        assert!(!f.found.is_empty(), "{}: nothing", fs.name);
    }
    let none = Program::parse("sync\n").expect("a program");
    let bench = bench("era=6.18");
    assert_eq!(Lives::of(&bench, permitted(false), &none, (16, 1)).expect("plays"), None);
}

/// What calls leave that fail half-way, with devices that fail, and at the ends of what a file may
/// have: nothing is promised that the program cannot know.
#[test]
fn calls_that_fail_and_ranges_at_the_ends_promise_what_they_do() {
    let programs = [
        // A huge hole comes in, and blocks of a file that is nearly all hole move.
        "open 0 a rw,creat\npwrite 0 8192 0 1\nfsync 0\nfallocate 0 insert 0 1099511627776\nfsync 0\n",
        "open 0 a rw,creat\nopen 1 b rw,creat\npwrite 0 8192 0 1\n\
         copy_file_range 0 0 1 1099511627776 8192\nfsync 1\nfallocate 1 insert 0 4096\nfsync 1\n",
        "open 0 a rw,creat\nmsync 0 18446744073709551615 5\nmsync 0 5 18446744073709551615\nfsync 0\n",
        // Who is told of a failed write by one call is not told again.
        "open 0 a rw,creat\npwrite 0 8192 0 1\nfsync 0\nmmap_write 0 4096 0 5\nfail write data 0 1\n\
         msync 0 0 4096\nheal\nfsync 0\n",
        "open 0 a rw,creat\npwrite 0 8192 0 1\nfsync 0\nmmap_write 0 4096 0 5\nfail write data 0 1\n\
         sync_file_range 0 0 0\nheal\nfsync 0\n",
        // The page of which nothing could be read comes after others.
        "open 0 a rw,creat\npwrite 0 65536 0 1\nfsync 0\nfadvise 0 random\ndrop_caches\npread 0 8192 0\n\
         fail read data 0 99\nmmap_write 0 12288 0 5\nheal\nfsync 0\n",
        // Nothing could be read of what is copied.
        "open 0 a rw,creat\npwrite 0 8192 0 1\nfsync 0\nopen 1 b rw,creat\ndrop_caches\nfail read data 0 99\n\
         copy_file_range 0 0 1 0 8192\nheal\nfsync 1\n",
        // The time changes before the space is missing.
        "open 0 a rw,creat\nutimensat a 1000 1000\nfallocate 0 extend 0 1073741824\nfsync 0\n",
    ];
    for text in programs {
        let program = Program::parse(text).expect(text);
        let source = Source::Text(program);
        let c = Campaign { check: true, ..Campaign::new(bench("era=6.18"), source, (0, 1)) };
        let f = run(&c, 2, &|_| true);
        assert!(f.found.is_empty(), "{text}: {:#?}", f.found);
        assert!(f.not_played.is_empty() && f.totals.raw > 0, "{text}: {:?}", f.not_played);
    }
}

/// What is no file and no directory is not opened, and nothing comes of what cannot be.
#[test]
fn pipes_devices_and_lost_files_take_nothing_on_any_file_system() {
    let text = "mknod n char 1 3\nopen 0 n rw\npwrite 0 4096 0 1\nopen 1 a rw,creat\n\
                unlink a\nlinkat 1 b\nmkdir d\nrenameat2 d n noreplace\nfsync 1\nsync\n";
    let program = Program::parse(text).expect("a program");
    for (fs, options) in [
        (&wp_ext4::ENTRY, "era=6.18"),
        (&wp_f2fs::ENTRY, ""),
        (&wp_btrfs::ENTRY, ""),
        (&wp_nilfs2::ENTRY, ""),
    ] {
        let mut bench = Bench::new(fs, options).expect("options");
        bench.device_params[0].1 = 256 << 20;
        let played = play(&bench, &program).expect("plays");
        let errors: Vec<Option<&str>> =
            played.dids.iter().map(|d| d.error.as_ref().map(FsError::errno)).collect();
        let expected = [
            None,
            Some("ENXIO"),
            Some("EBADF"),
            None,
            None,
            Some("ENOENT"),
            None,
            Some("EEXIST"),
            None,
            None,
        ];
        assert_eq!(errors, expected, "{}", fs.name);
        let pipe = Program::parse("mkfifo p\nopen 0 p rw\n").expect("a program");
        let played = play(&bench, &pipe);
        let why = played.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains("named pipe"), "{}: {why}", fs.name);
    }
}

/// One operation with a call that ACE does not have, on every file system, with the options that
/// mend what Linux loses: nothing is lost.
#[test]
fn sequences_of_one_further_operation_break_no_rule_on_any_file_system() {
    let all = sequences::count(Of::Further, 1);
    let mended =
        "fsync_mode=strict_fixed,wait_first_node,wait_last_node,wait_earlier_nodes,mode=lfs";
    for (fs, options, lacking) in [
        // Without blocks that files share, and subvolumes.
        (&wp_ext4::ENTRY, "era=6.18", 20),
        (&wp_ext4::ENTRY, "era=6.12,data=journal", 20),
        (&wp_ext4::ENTRY, "era=5.10,block_size=1024", 20),
        // And without copy_file_range, insert, collapse, O_TMPFILE and renameat2.
        (&wp_ext4::ENTRY, "era=3.4", 28),
        (&wp_f2fs::ENTRY, mended, 20),
        // Without insert and collapse.
        (&wp_btrfs::ENTRY, "", 8),
        (&wp_nilfs2::ENTRY, "sync_inodes,flush_segments", 16),
    ] {
        let mut bench = Bench::new(fs, options).expect("options");
        bench.device_params[0].1 = match fs.name {
            "btrfs" => 128 << 20,
            "nilfs2" => 256 << 20,
            _ => 64 << 20,
        };
        let count = if fs.name == "nilfs2" { (0, 16) } else { (0, all) };
        let source = Source::Sequences(Of::Further, 1);
        let c = Campaign { check: true, ..Campaign::new(bench, source, count) };
        let f = run(&c, 2, &|_| true);
        // Until 3.11 `syncfs` flushed the cache only if it committed something.
        let known = |x: &&Found| options == "era=3.4" && x.violation.expected.contains("`syncfs");
        let found: Vec<&Found> = f.found.iter().filter(|x| !known(x)).collect();
        let what = format!("{},{options}", fs.name);
        assert!(found.is_empty(), "{what}: {found:#?}");
        assert!(
            f.lacking.len() as u64 <= lacking && f.not_played.len() == f.lacking.len(),
            "{what}: {f:?}"
        );
        assert!(f.totals.raw > 100, "{what}: {:?}", f.totals);
    }
}

/// Clones, dedupes and copies on btrfs, with a device that fails, at the ends of files, within one
/// transaction and over several: what fsync says is there is there. On a drive that lies it is not.
#[test]
fn blocks_that_files_share_are_kept_as_written_ones() {
    let first = "open 0 a rw,creat\nopen 1 b rw,creat\npwrite 0 40960 0 1\npwrite 1 8192 0 2\n";
    let programs = [
        // New extents, of which the log of the other file has a part.
        "reflink 0 4096 1 0 8192\nfsync 1\n",
        "reflink 0 0 1 8192 0\nfsync 1\nfsync 0\n",
        // Extents that the last commit has.
        "sync\nreflink 0 8192 1 4096 16384\nfsync 1\n",
        "sync\nreflink 0 0 1 65536 0\nftruncate 1 80000\nfsync 1\n",
        // The other file goes.
        "sync\nreflink 0 0 1 0 0\nunlink a\nclose 0\nfsync 1\nopen 2 c rw,creat\n\
         pwrite 2 40960 0 3\nfsync 2\n",
        // A hole comes over what was synced.
        "fsync 1\nopen 2 c rw,creat\nftruncate 2 16384\nreflink 2 0 1 0 8192\nfsync 1\n",
        "sync\nfallocate 0 punch 4096 8192\nreflink 0 0 1 0 20480\nfsync 1\n",
        // A file within its item.
        "open 2 c rw,creat\npwrite 2 500 0 3\nfsync 2\nopen 3 d rw,creat\nreflink 2 0 3 0 0\n\
         fsync 3\nreflink 2 0 1 8192 0\nfsync 1\n",
        // Equal bytes; bytes that are not equal, and are expected not to be.
        "pwrite 1 8192 0 1\nfsync 1\ndedupe 0 0 1 0 8192\npwrite 0 4096 0 7\nfsync 0\n\
         expect EBADE\ndedupe 0 0 1 0 8192\n",
        // A copy that shares, and one that copies.
        "copy_file_range 0 0 1 8192 8192\nfsync 1\ncopy_file_range 0 100 1 20000 5000\nfsync 1\n",
        // The file itself, again and again; and its blocks beyond.
        "reflink 0 0 0 40960 0\nfsync 0\nreflink 0 0 0 81920 0\nfsync 0\n",
        // A synchronous descriptor of either.
        "open 2 c rw,creat,sync\nreflink 0 0 2 0 0\nreflink 2 0 1 8192 8192\n",
        // A commit between, and a file that nobody has in memory any more.
        "sync\nreflink 0 0 1 0 8192\nclose 1\ndrop_caches\nopen 1 b rw\nfsync 1\n\
         pwrite 1 4096 4096 9\nfsync 1\n",
        // Nothing could be written, or read, of what is shared.
        "fail write any 0 1\nexpect EIO\nreflink 0 0 1 0 8192\nheal\nfsync 1\n",
        "sync\npwrite 1 8192 0 1\nsync\ndrop_caches\nfail read any 0 99\nexpect EIO\n\
         dedupe 0 0 1 0 8192\nheal\nreflink 0 0 1 0 8192\nfsync 1\n",
        "pwrite 0 4096 0 4\npower_failure\nopen 0 a rw,creat\nopen 1 b rw,creat\n\
         reflink 0 0 1 0 0\nfsync 1\n",
    ];
    let mut lost = 0;
    for options in ["", "nodatacow", "nodatasum", "notreelog"] {
        let mut bench = Bench::new(&wp_btrfs::ENTRY, options).expect("options");
        bench.device_params[0].1 = 128 << 20;
        for rest in programs {
            let text = format!("{first}{rest}");
            let what = format!("{options}: {text}");
            let program = Program::parse(&text).expect("a program");
            let space = permitted(false);
            let (source, count) = match Lives::of(&bench, space, &program, (100, 1)).expect("plays")
            {
                Some(lives) => (Source::Lives(Arc::new(lives.clone())), lives.count()),
                None => (Source::Text(program), 1),
            };
            let c = Campaign { check: true, ..Campaign::new(bench.clone(), source, (0, count)) };
            let f = run(&c, 2, &|_| true);
            assert!(f.found.is_empty(), "{what}: {:#?}", f.found);
            assert!(f.not_played.is_empty() && f.totals.raw > 0, "{what}: {:?}", f.not_played);
            assert_eq!(f.calls.failed, 0, "{what}: {:?}", f.calls);
            let lying = run(&Campaign { space: permitted(true), ..c }, 2, &|_| true);
            lost += u32::from(broken(&lying, Rule::LostSync) > 0);
        }
    }
    assert!(lost > 40, "a drive that lies loses it: {lost}");
}

/// Programs that nobody thought of, with blocks that files share.
#[test]
fn random_programs_that_share_blocks_break_no_rule() {
    // Without what Linux loses of other calls.
    let mut bench = Bench::new(&wp_btrfs::ENTRY, "fix=all").expect("options");
    bench.device_params[0].1 = 128 << 20;
    let extras = Extras { calls: true, shares: true, ..Extras::ALL }.on(&wp_btrfs::ENTRY);
    let source = Source::Wild { seed: 40, calls: 60, extras };
    let texts: String = (0..10).map(|n| source.program(n).to_string()).collect();
    for call in ["reflink ", "dedupe ", "copy_file_range "] {
        assert!(texts.contains(call), "no program has {call}");
    }
    let c = Campaign { check: true, ..Campaign::new(bench, source, (0, 10)) };
    assert_clean("btrfs", &run(&c, 2, &|_| true));
}

/// Where Linux shares nothing the calls fail, and nothing comes of them.
#[test]
fn file_systems_that_share_nothing_refuse_as_linux_does() {
    let text = "open 0 a rw,creat\nopen 1 b rw,creat\npwrite 0 8192 0 1\npwrite 1 8192 0 2\n\
                reflink 0 0 1 0 4096\ndedupe 0 0 1 0 4096\ncopy_file_range 0 0 1 0 4096\n\
                mkdir d\nopen 2 d r\nreflink 2 0 1 0 4096\nopen 3 a r\nreflink 0 0 3 0 4096\n\
                fsync 1\n";
    let program = Program::parse(text).expect("a program");
    let mended =
        "fsync_mode=strict_fixed,wait_first_node,wait_last_node,wait_earlier_nodes,mode=lfs";
    for (fs, options) in [
        (&wp_ext4::ENTRY, "era=6.18"),
        (&wp_f2fs::ENTRY, mended),
        (&wp_nilfs2::ENTRY, "sync_inodes,flush_segments"),
    ] {
        let mut bench = Bench::new(fs, options).expect("options");
        bench.device_params[0].1 = 256 << 20;
        let played = play(&bench, &program).expect("plays");
        let errors: Vec<&str> =
            played.dids.iter().filter_map(|d| d.error.as_ref().map(FsError::errno)).collect();
        assert_eq!(errors, ["EOPNOTSUPP", "EOPNOTSUPP", "EISDIR", "EBADF"], "{}", fs.name);
        let c =
            Campaign { check: true, ..Campaign::new(bench, Source::Text(program.clone()), (0, 1)) };
        let f = run(&c, 2, &|_| true);
        assert!(f.found.is_empty() && f.totals.raw > 0, "{}: {:#?}", fs.name, f.found);
    }
}

#[test]
fn the_elevator_decides_whether_the_hole_of_3_8_shows() {
    // As on a real 3.10: CFQ lets the sync pass the flusher, noop queues it behind (reference
    // linux-3.10/hole and its README).
    let program = Program::parse(HOLE).expect("a program");
    for (era, elevator, shows) in
        [("3.8", "cfq", true), ("3.8", "noop", false), ("3.4", "cfq", false), ("4.6", "cfq", false)]
    {
        let machine = Bench {
            device: "emmc-16".to_owned(),
            elevator: elevator.to_owned(),
            ..bench(&format!("era={era},dirty_background_bytes=1048576"))
        };
        let c = Campaign {
            plan: Plan { complete: 8, pairs: 0, samples: 4, ..Plan::default() },
            ..Campaign::new(machine, Source::Text(program.clone()), (0, 1))
        };
        let f = run(&c, 1, &|_| true);
        assert_eq!(broken(&f, Rule::Exposure) > 0, shows, "{era}, {elevator}: {:#?}", f.found);
        assert!(f.totals.raw > 1000, "{:?}", f.totals);
    }
}

#[test]
fn a_file_without_names_that_is_truncated_or_grows_is_freed_after_a_cut() {
    for growth in ["ftruncate 0 823", "pwrite 1 8192 8192 2"] {
        let text = format!(
            "open 63 . r\nopen 0 f rw,creat\npwrite 0 8192 0 1\nopen 1 f rw,direct\nunlink f\n\
             {growth}\nopen 2 g rw,creat\nfsync 2\nfsync 63\n"
        );
        let program = Program::parse(&text).expect("a program");
        for era in ["era=3.4", "era=4.6", "era=6.18"] {
            // The mount that frees it is cut as well.
            let c = Campaign {
                check: true,
                mounts: 6,
                ..Campaign::new(bench(era), Source::Text(program.clone()), (0, 1))
            };
            let f = run(&c, 1, &|_| true);
            assert_eq!(broken(&f, Rule::Metadata), 0, "{era}, {growth}: {:#?}", f.found);
            assert_eq!(broken(&f, Rule::Recoverable), 0, "{era}, {growth}: {:#?}", f.found);
            assert!(f.totals.distinct > 3 && f.not_played.is_empty(), "{:?}", f.totals);
            assert!(f.totals.mounts > 2 && f.totals.second > 50, "{:?}", f.totals);
        }
    }
}

#[test]
fn a_mount_that_is_cut_on_a_drive_that_lies_comes_to_other_files() {
    let space =
        Space::Permitted { lying_flush: true, lost_fua: false, faulty_plp: false, atomic: None };
    let honest = Campaign { mounts: 8, ..Campaign::new(bench("era=4.6"), wild(3), (0, 1)) };
    let f = run(&honest, 1, &|_| true);
    assert_eq!(f.totals.broken.iter().sum::<u64>(), 0, "{:#?}", f.found);
    let lying = Campaign { space, ..honest };
    let without = run(&Campaign { mounts: 0, ..lying.clone() }, 1, &|_| true);
    let with = run(&lying, 1, &|_| true);
    let (fewer, more) = (broken(&without, Rule::Recoverable), broken(&with, Rule::Recoverable));
    assert!(fewer < more, "{fewer} and {more}: {:#?}", with.found);
    assert_eq!(broken(&without, Rule::LostSync), broken(&with, Rule::LostSync));
    // Every failure that is counted has a place, those of mounts too; listed, it counts no more.
    let counted: u64 = with.totals.broken.iter().sum();
    assert_eq!(with.places.values().sum::<u64>(), counted, "{:?}", with.places);
    let listed: Vec<KnownFailure> = with
        .places
        .keys()
        .map(|(rule, path)| KnownFailure {
            rule: rule.name().to_owned(),
            path: Some(path.clone()),
            seen: None,
            setting: None,
            why: "a drive that lies".to_owned(),
        })
        .collect();
    let text = KnownFailures::write(&listed).expect("a list");
    let known = Arc::new(KnownFailures::parse(&text, "here").expect("it reads what it wrote"));
    let again = run(&Campaign { known, ..lying }, 1, &|_| true);
    assert_eq!(again.totals.broken.iter().sum::<u64>(), 0, "{:#?}", again.found);
    assert_eq!(again.known.values().sum::<u64>(), counted, "{:?}", again.known);
}

#[test]
fn the_hole_of_ordered_mode_is_in_3_8_and_lengths_run_ahead_since() {
    let profile = Profile { size_with_data: true, tail_with_data: true, ..Profile::EXT4 };
    let source = Source::Wild { seed: 10, calls: 40, extras: Extras::DATA };
    let campaign =
        |era: &str| Campaign { profile, ..Campaign::new(phone(era), source.clone(), (0, 12)) };
    let go = |era: &str| run(&campaign(era), 2, &|_| true);
    let old = go("3.4");
    assert_eq!((broken(&old, Rule::Exposure), broken(&old, Rule::TailAhead)), (0, 0));
    let fixed = go("4.6");
    assert_eq!(broken(&fixed, Rule::Exposure), 0, "{:#?}", fixed.found);
    let (any, tail) = (broken(&fixed, Rule::SizeAhead), broken(&fixed, Rule::TailAhead));
    assert!(tail > 0 && any >= tail, "{:?}", fixed.totals);
    assert_eq!(broken(&fixed, Rule::LostSync), 0, "{:#?}", fixed.found);
    let hole = go("3.8");
    assert!(broken(&hole, Rule::Exposure) > 0, "{:?}", hole.totals);
    told(&campaign("3.8"), &hole);
}

/// A file that is all hole has a length, too: F2FS' checkpoint has it before any data.
#[test]
fn a_length_without_any_data_runs_ahead_of_it() {
    let text = "open 0 a rw,creat\nfsync 0\npwrite 0 8192 0 1\nnap 40000000\nsync\n";
    let source = Source::Text(Program::parse(text).expect("a program"));
    let machine = Bench::new(&wp_f2fs::ENTRY, "").expect("a machine");
    let plain = Campaign::new(machine, source, (0, 1));
    let profile = Profile { size_with_data: true, ..plain.profile };
    let found = run(&Campaign { profile, ..plain }, 1, &|_| true);
    assert!(broken(&found, Rule::SizeAhead) > 0, "{:?}", found.totals);
    let lengths = found.found.iter().filter(|f| f.violation.rule == Rule::SizeAhead);
    assert!(lengths.clone().all(|f| f.violation.seen.contains("length 8192")), "{found:#?}");
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
    for word in ["power may fail from here on", "journal_commit", "returned: "] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    assert!(cut.files().contains(&found.violation.path));
}

#[test]
fn the_same_comes_out_whoever_does_it_and_with_or_without_pruning() {
    // More than a chunk of programs, on a drive that lies, so that there is something to find.
    let space =
        Space::Permitted { lying_flush: true, lost_fua: true, faulty_plp: false, atomic: None };
    let machine = bench("era=6.18");
    let base = Campaign { space, ..Campaign::new(machine, Source::Sequences(Of::Ace, 1), (0, 18)) };
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

/// Programs 76 to 79 ask for a range of zeroes, which Linux 3.4 has not.
#[test]
fn a_call_that_a_version_lacks_is_no_failure_unless_nothing_else_was_played() {
    let of = |programs| {
        let source = Source::Sequences(Of::Ace, 1);
        run(&Campaign::new(bench("era=3.4"), source, programs), 1, &|_| true)
    };
    let (some, none) = (of((74, 80)), of((76, 80)));
    assert_eq!((some.lacking.as_slice(), some.totals.programs), (&[76, 77, 78, 79][..], 2));
    assert_eq!(some.unplayed(), None);
    let why = "`fallocate 0 zero 4096 8192`: EOPNOTSUPP, as in this kernel version";
    assert_eq!(none.unplayed(), Some(&(76, why.to_owned())));
}

/// 80 blocks that are overwritten in place and not flushed: every loss is a recovery of its own,
/// and so many that families of states are walked in short steps.
#[test]
fn many_unpersisted_writes_come_to_the_same_with_and_without_pruning() {
    let text = "open 0 a rw,creat\npwrite 0 327680 0 1\nfsync 0\npwrite 0 327680 0 2\nfsync 0\n";
    for fs in [&wp_ext4::ENTRY, &wp_f2fs::ENTRY] {
        let machine = Bench::new(fs, "").expect("default options");
        let source = Source::Text(Program::parse(text).expect("a program"));
        let pruned = Campaign { prune: true, ..Campaign::new(machine, source, (0, 1)) };
        let full = Campaign { prune: false, ..pruned.clone() };
        let (p, f) = (run(&pruned, 1, &|_| true), run(&full, 1, &|_| true));
        assert!(p.totals.most_in_doubt > 64, "{:?}", p.totals);
        assert_eq!((p.totals.raw, p.totals.broken), (f.totals.raw, f.totals.broken), "{}", fs.name);
        assert_eq!(f.totals.distinct, f.totals.raw, "{}", fs.name);
        assert_eq!(format!("{:?}", p.found), format!("{:?}", f.found), "{}", fs.name);
        assert_eq!(p.totals.cuts_thinned, 0);

        // With less to read, some of the losses are looked at, and it is said at how many points.
        let plan = Plan { pages: 1, ..pruned.plan };
        let thin = run(&Campaign { plan, ..pruned }, 1, &|_| true);
        assert!(thin.totals.cuts_thinned > 0, "{:?}", thin.totals);
        assert!(thin.totals.raw < p.totals.raw && thin.totals.distinct > 16, "{:?}", thin.totals);
    }
}

#[test]
fn what_the_model_leaves_is_part_of_what_the_contract_permits() {
    for device in ["fixed", "emmc-16"] {
        let bench = Bench {
            device: device.to_owned(),
            model: true,
            ..bench("era=4.6,dirty_background_bytes=262144")
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
        ..Campaign::new(bench("era=6.18"), Source::Sequences(Of::Ace, 1), (0, 6))
    };
    let f = run(&c, 2, &|_| true);
    assert!(broken(&f, Rule::LostSync) > 0, "{:?}", f.totals);
}

/// Programs that once broke a rule.
#[test]
fn what_was_found_stays_mended() {
    for (options, text) in [
        // syncfs returned while the flusher had the files in hand.
        (
            "era=4.6,dirty_background_bytes=262144",
            "open 63 . r\nopen 0 a rw,creat\npwrite 0 327680 0 1\nopen 1 b rw,creat\n\
             pwrite 1 8192 0 2\nsyncfs 63\npwrite 1 16384 0 3\nfsync 1\n",
        ),
        // The length moved within a block, and the write went out with FUA alone.
        (
            "era=6.18",
            "open 0 a rw,creat\npwrite 0 1024 0 1\nopen 1 a rw,direct,dsync\nfsync 0\n\
             nap 31000000\nfsync 1\npwrite 1 4096 0 2\nopen 2 b rw,creat\nfsync 2\n",
        ),
        // A link's target was written over a block of logged data, which recovery brought back.
        (
            "era=4.6,data=journal",
            "open 0 a rw,creat\npwrite 0 3072 0 1\nfallocate 0 punch 0 4096\nfsync 0\n\
             symlink n1/longlonglonglonglonglonglonglonglonglonglonglonglonglong\
             longlonglonglonglonglong b\n\
             fsync 0\n",
        ),
    ] {
        let program = Program::parse(text).expect("a program");
        let c = Campaign::new(bench(options), Source::Text(program), (0, 1));
        let f = run(&c, 1, &|_| true);
        assert_eq!(f.totals.broken.iter().sum::<u64>(), 0, "{text}: {:#?}", f.found);
        assert!(f.totals.raw > 50, "{:?}", f.totals);
    }
}

/// Programs with hundreds of requests, whose queue has named its 256 generations by then: a flush
/// covers what came before it all the same.
#[test]
fn discarded_inode_tables_lose_nothing_in_long_programs() {
    for mode in ["era=6.18,discard", "era=3.8,nodelalloc"] {
        let options = format!("{mode},inode_size=1024,inode_trim=safe");
        let source = Source::Made { make: programs::emptied::tables, seed: 1 };
        let c = Campaign { check: true, ..Campaign::new(bench(&options), source, (4, 8)) };
        let f = run(&c, 2, &|_| true);
        assert_clean(&options, &f);
        let longest = f.totals.cuts / 4;
        assert!(longest > 256, "{options}: {longest} cuts a program");
    }
}
