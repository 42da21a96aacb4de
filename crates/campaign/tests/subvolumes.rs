//! Power failures of programs that make and delete subvolumes and snapshots.

use std::sync::Arc;

use wp_base::FsError;
use wp_campaign::lives::Lives;
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Campaign, Source, Space, play, run};
use wp_crash::Rule;
use wp_workload::program::Program;

fn permitted(lies: bool) -> Space {
    Space::Permitted { lying_flush: lies, lost_fua: lies, faulty_plp: false, atomic: None }
}

/// What a snapshot has is there when the call returns, and stays as it was whatever happens to its
/// source; fsyncs in several subvolumes are kept; a deletion takes all or nothing. On a drive that
/// lies they are not.
#[test]
fn snapshots_that_returned_are_there() {
    let first = "mkdir d\nopen 0 a rw,creat\nopen 1 d/b rw,creat\npwrite 0 40960 0 1\n\
                 pwrite 1 3000 0 2\nsetxattr d user.x 40 1\nlink a d/l\nsymlink a y\n";
    let programs = [
        // Nothing was synced before.
        "snapshot . s\n",
        "snapshot . s readonly\npwrite 0 8192 4096 3\nunlink d/b\nfsync 0\n",
        // Both change what they have in common.
        "snapshot . s\nopen 2 s/a rw\npwrite 2 8192 4096 3\nfsync 2\npwrite 0 8192 0 4\nfsync 0\n\
         ftruncate 2 100\nfsync 2\n",
        // A snapshot of a snapshot, and one whose source goes.
        "snapshot . s\nopen 2 s/c rw,creat\npwrite 2 9000 0 3\nsnapshot s t\nclose 2\n\
         subvolume_delete s\nopen 3 t/c rw\npwrite 3 4096 0 4\nfsync 3\nnap 40000000\nfsync 3\n",
        // One in the other is empty.
        "subvolume_create s\nopen 2 s/c rw,creat\npwrite 2 9000 0 3\nsnapshot . t\nfsync 2\n\
         rmdir t/s\nopen 3 t r\nsyncfs 3\n",
        // Logs of several subvolumes.
        "subvolume_create s\nsubvolume_create d/t\nsync\nopen 2 s/c rw,creat\n\
         open 3 d/t/e rw,creat\npwrite 2 9000 0 3\npwrite 3 5000 0 4\nfsync 2\nfsync 3\nfsync 0\n\
         pwrite 3 5000 5000 5\nfsync 3\nrename s/c s/f\nfsync 2\n",
        // A subvolume that no commit has.
        "fsync 0\nsubvolume_create s\nopen 2 s/c rw,creat\npwrite 2 9000 0 3\nfsync 2\n",
        "subvolume_create s\nopen 2 . r\nfsync 2\n",
        "sync\nsubvolume_create d/s\nopen 2 d r\nfsync 2\nrename d/s u\nfsync 1\nopen 3 . r\nfsync 3\n",
        // A deletion, with a file open, with a log, and with none of them.
        "subvolume_create s\nopen 2 s/c rw,creat\npwrite 2 9000 0 3\nfsync 2\nsubvolume_delete s\n\
         pwrite 2 9000 0 4\nfsync 2\nclose 2\nnap 40000000\nsync\n",
        "snapshot . s\nopen 2 s/a rw\npwrite 2 4096 0 3\nfsync 2\nclose 2\nsubvolume_delete s\n\
         open 3 . r\nfsync 3\nnap 40000000\nopen 2 c rw,creat\npwrite 2 40960 0 4\nfsync 2\n",
        "subvolume_create s\nsync\nrmdir s\nsync\n",
        // Extents that subvolumes share otherwise.
        "subvolume_create s\nopen 2 s/c rw,creat\nreflink 0 0 2 0 0\nfsync 2\nsnapshot s t\n\
         unlink a\nunlink d/l\nclose 0\nfsync 2\n",
        // After a power failure.
        "snapshot . s\nopen 2 s/a rw\npwrite 2 4096 0 3\nfsync 2\npower_failure\nopen 2 s/a rw\n\
         pwrite 2 4096 8192 4\nsnapshot s t\nfsync 2\n",
        "snapshot . s\nsync\nsubvolume_delete s\nsync\npower_failure\nopen 0 a rw,creat\n\
         pwrite 0 4096 0 4\nnap 40000000\nfsync 0\n",
    ];
    let mut lost = 0;
    for options in ["", "nodatacow", "notreelog"] {
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
            lost += u32::from(lying.totals.broken[Rule::LostSync as usize] > 0);
        }
    }
    assert!(lost > 35, "a drive that lies loses it: {lost}");
}

/// Programs that nobody thought of.
#[test]
fn random_programs_of_subvolumes_break_no_rule() {
    // Without what Linux loses of other calls.
    let mut bench = Bench::new(&wp_btrfs::ENTRY, "fix=all").expect("options");
    bench.device_params[0].1 = 128 << 20;
    let extras = Extras { calls: true, ..Extras::ALL }.on(&wp_btrfs::ENTRY);
    let source = Source::Wild { seed: 70, calls: 60, extras };
    let texts: String = (0..10).map(|n| source.program(n).to_string()).collect();
    for call in ["subvolume_create ", "snapshot ", "readonly\n", "subvolume_delete "] {
        assert!(texts.contains(call), "no program has {call}");
    }
    let c = Campaign { check: true, ..Campaign::new(bench, source, (0, 10)) };
    let f = run(&c, 2, &|_| true);
    assert!(f.not_played.is_empty(), "{:?}", f.not_played);
    assert_eq!(f.totals.broken.iter().sum::<u64>(), 0, "{:#?}", f.found);
    assert!(f.totals.distinct > 20, "{:?}", f.totals);
}

/// Elsewhere the calls fail, and nothing comes of them.
#[test]
fn file_systems_without_subvolumes_refuse_as_linux_does() {
    let text = "open 0 a rw,creat\npwrite 0 8192 0 1\nsubvolume_create s\nsnapshot . s\n\
                snapshot x s\nsubvolume_delete s\nfsync 0\n";
    let program = Program::parse(text).expect("a program");
    for fs in [&wp_ext4::ENTRY, &wp_f2fs::ENTRY, &wp_nilfs2::ENTRY] {
        let mut bench = Bench::new(fs, "").expect("options");
        bench.device_params[0].1 = 256 << 20;
        let played = play(&bench, &program).expect("plays");
        let errors: Vec<&str> =
            played.dids.iter().filter_map(|d| d.error.as_ref().map(FsError::errno)).collect();
        assert_eq!(errors, ["ENOTTY", "ENOTTY", "ENOENT", "ENOTTY"], "{}", fs.name);
    }
}
