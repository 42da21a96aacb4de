//! Crash states against the kernel of this host: a sample of what `writepath kernels crash` does.
//!
//! Needs root and loop devices; skipped by name elsewhere.

use std::path::Path;

use wp_machine::testing::skipped;
use wp_parity::host_kernel::{Ask, agree, cannot};

#[test]
fn the_host_kernel_recovers_a_sample_of_crash_states_as_we_do() {
    let check = "the_host_kernel_recovers_a_sample_of_crash_states_as_we_do";
    let scratch = tempfile::tempdir().expect("a directory");
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { tempfile::tempdir_in(shm).ok() } else { None };
    let dir = place.as_ref().unwrap_or(&scratch).path().join("images");
    if let Some(why) = cannot(&dir) {
        skipped(check, &format!("this host cannot mount crash states: {why}"));
        return;
    }
    std::fs::create_dir(&dir).expect("made");
    let ask = Ask {
        all_calls: false,
        states: u64::MAX,
        seed: 3,
        first: 0,
        // Every era and mode once, with blocks of 4 KiB; then some with 1 KiB.
        programs: 30,
        calls: 12,
        each: 4,
        fsck: 4,
        dir,
    };
    // Without barriers a drive loses the logged copy of a super block, and a later one heals it:
    // the kernel no longer finds its log between the two.
    let lost = Ask { seed: 7, first: 22, programs: 1, calls: 24, each: 100, ..ask.clone() };
    let found = agree(&lost, 1, &|_| true).expect("this host can");
    assert_eq!(found.different, []);
    assert!(found.total().refused > 0 && found.total().states > 50, "{:?}", found.total());
    // Every call, in every era and mode.
    let every = Ask { seed: 77, all_calls: true, programs: 25, calls: 24, each: 8, ..ask.clone() };
    let found = agree(&every, 2, &|_| true).expect("this host can");
    let total = found.total();
    assert_eq!(found.different, [], "{total:?}");
    assert_eq!((found.modes.len(), total.programs), (25, 25));
    assert!(total.states > 80 && total.checked > 15, "{total:?}");
    let found = agree(&ask, 4, &|_| true).expect("this host can");
    let total = found.total();
    assert_eq!(found.different, [], "{total:?}");
    assert_eq!(found.not_played, []);
    assert_eq!(found.modes.len(), 25);
    assert_eq!((total.programs, total.equal + total.different), (30, total.states));
    assert_eq!(total.again_equal, total.again);
    assert!(total.states > 80 && total.again > 20 && total.checked > 15, "{total:?}");
}

/// Somebody's new mount namespace has a copy of each mount, and keeps the device and what the
/// kernel remembers of it: the next state was taken for the one before.
#[test]
fn a_mount_namespace_that_somebody_makes_changes_no_state() {
    let check = "a_mount_namespace_that_somebody_makes_changes_no_state";
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path().join("images");
    if let Some(why) = cannot(&dir) {
        skipped(check, &format!("this host cannot mount crash states: {why}"));
        return;
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::fs::create_dir(&dir).expect("made");
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut made = 0u32;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                // Shorter, and longer, than what is waited for.
                let alive = if made % 4 == 3 { "1" } else { "0.1" };
                let mut unshare = std::process::Command::new("unshare");
                let done = unshare.args(["--mount", "sleep", alive]).status();
                made += u32::from(done.is_ok_and(|s| s.success()));
            }
            made
        });
        let ask = Ask {
            all_calls: false,
            states: 400,
            seed: 3,
            first: 0,
            programs: 40,
            calls: 12,
            each: 10,
            fsck: 4,
            dir: dir.clone(),
        };
        let found = agree(&ask, 1, &|_| true);
        // Before anything can fail: the other thread ends only then.
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        let found = found.expect("this host can");
        assert!(busy.join().expect("no panic") > 0, "no namespace was made");
        assert_eq!(found.different, []);
        assert!(found.total().states >= 200, "{:?}", found.total());
    });
}
