//! The cleaner: full devices go on, older checkpoints go, snapshots stay, and every image is sound.

use crate::reference::reference;
use crate::world;
use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, Sector, Span};
use wp_medium::{MediumView, Slice};
use wp_nilfs2::fs::{CleanerOptions, Share};
use wp_nilfs2::image::{Image, InspectOptions, list};
use wp_vfs::{FileInfo, OpenFlags};

/// A cleaner that keeps no old checkpoint, and works whenever there is something to do.
fn eager() -> CleanerOptions {
    CleanerOptions {
        protection_period: 0,
        min_clean_segments: Share::Percent(30),
        max_clean_segments: Share::Percent(50),
        clean_check_interval: 1,
        ..CleanerOptions::default()
    }
}

fn small(cleaner: Option<CleanerOptions>) -> Setup {
    Setup { mib: 32, segment_blocks: 64, cleaner, ..Setup::new() }
}

/// Writes six files of 1 MiB over and over, forty times, with a pause after each; bytes written and
/// the first error.
fn fill(w: &World, setup: &Setup, pause: Span) -> (u64, Option<FsError>) {
    let (files, rounds) = (6, 40);
    let vfs = w.mount(setup).expect("mounts");
    let (v, rt) = (vfs.clone(), w.rt.clone());
    let out = w.run(async move {
        let mut written = 0;
        for round in 0..rounds {
            for n in 0..files {
                let fd = match v.open(&format!("f{n}"), OpenFlags::CREATE, 0o644).await {
                    Ok(fd) => fd,
                    Err(e) => return (written, Some(e)),
                };
                let data = Slice::pattern(round * 100 + n, 0, 1 << 20);
                let mut at = 0;
                while at < 1 << 20 {
                    let rest = data.sub(at as u32, (1 << 20) - at as u32);
                    match v.pwrite(fd, at, std::slice::from_ref(&rest)).await {
                        Ok(n) => at += n,
                        Err(e) => return (written + at, Some(e)),
                    }
                }
                written += at;
                v.close(fd).await.expect("closes");
                rt.sleep(pause).await;
            }
        }
        for n in 0..files {
            let fd = v.open(&format!("f{n}"), OpenFlags::READ, 0).await.expect("opens");
            let got = v.pread(fd, 0, 1 << 20).await.expect("reads");
            let got: Vec<u8> = Slice::concat(&got);
            assert!(got == Slice::pattern((rounds - 1) * 100 + n, 0, 1 << 20).to_vec(), "f{n}");
            v.close(fd).await.expect("closes");
        }
        (written, None)
    });
    w.unmount(&vfs);
    out
}

fn view(w: &World, setup: &Setup) -> MediumView {
    MediumView { medium: w.medium(), start: Sector(0), bytes: setup.mib << 20 }
}

/// What a checkpoint has, with hashes.
fn files_of(view: &MediumView, cno: u64) -> Vec<FileInfo> {
    let image = Image::open_checkpoint(view, cno).expect("a checkpoint");
    let (files, findings) = list(&image, &InspectOptions::default());
    assert_eq!(findings, [], "checkpoint {cno}");
    files
}

#[test]
fn a_device_that_is_filled_several_times_over_goes_on() {
    // Without it, the device is full soon; what was written over within five seconds is in no log.
    let setup = small(None);
    let w = World::fresh(&setup);
    let (written, error) = fill(&w, &setup, Span::millis(500));
    assert_eq!(error, Some(FsError::NoSpace));
    assert!(written < 64 << 20, "{written}");
    w.judge("without a cleaner");
    w.end();
    for awaited in [false, true] {
        // Two megabytes a second are eight segments a second, and it cleans four: whoever does not
        // wait for it must be slower.
        let pause = if awaited { Span::millis(500) } else { Span::secs(3) };
        let setup = small(Some(CleanerOptions { awaited, ..eager() }));
        let w = World::fresh(&setup);
        let (written, error) = fill(&w, &setup, pause);
        assert_eq!((written, error), (240 << 20, None), "awaited: {awaited}");
        w.judge("with a cleaner");
        let view = view(&w, &setup);
        let image = Image::open(&view).expect("opens");
        let left = image.checkpoints().expect("listed").len() as u64;
        assert!(left < image.tip().cno / 2, "{left} of {} checkpoints", image.tip().cno);
        drop(image);
        drop(view);
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn a_snapshot_of_a_real_kernel_stays_and_checkpoints_around_it_go() {
    let what = "a_snapshot_of_a_real_kernel_stays_and_checkpoints_around_it_go";
    let Some((bytes, _)) = reference(what, "nilfs2-cps") else { return };
    let image = world::view_of(&bytes);
    // The fewest blocks that a segment may give: every one is cleaned that is old enough.
    let cleaner = CleanerOptions {
        min_clean_segments: Share::Count(0),
        nsegments_per_clean: [4, 4],
        min_reclaimable_blocks: [Share::Count(1), Share::Count(1)],
        ..eager()
    };
    let mib = bytes.len() as u64 >> 20;
    let setup = Setup { mib, ..small(Some(cleaner)) };
    let w = World::empty(&setup);
    w.load(&image.medium);
    drop(image);
    let vfs = w.mount(&setup).expect("mounts, with recovery");
    let snapshots = |w: &World| {
        let view = view(w, &setup);
        let image = Image::open(&view).expect("opens");
        let all = image.checkpoints().expect("listed");
        let snapshots: Vec<u64> =
            all.iter().filter(|cp| cp.is_snapshot()).map(|cp| cp.cno.get()).collect();
        (snapshots, all.len(), image.tip().cno)
    };
    let (before, ..) = snapshots(&w);
    assert!(!before.is_empty());
    let trees: Vec<_> = before.iter().map(|cno| files_of(&view(&w, &setup), *cno)).collect();
    let (v, rt) = (vfs.clone(), w.rt.clone());
    w.run(async move {
        for round in 0..120 {
            let fd = v.open("again", OpenFlags::CREATE, 0o644).await.expect("opens");
            let data = Slice::pattern(round, 0, 300_000);
            v.pwrite(fd, 0, &[data]).await.expect("writes");
            v.close(fd).await.expect("closes");
            rt.sleep(Span::secs(6)).await;
        }
    });
    w.unmount(&vfs);
    w.judge(what);
    let (after, all, newest) = snapshots(&w);
    assert_eq!(after, before);
    assert!(newest > 120 && (all as u64) < 80, "{all} checkpoints are left of {newest}");
    for (cno, tree) in after.iter().zip(&trees) {
        assert!(files_of(&view(&w, &setup), *cno) == *tree, "snapshot {cno}");
    }
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

/// Numbers of the snapshots, as the list of the image has them, and of the valid checkpoints.
fn listed(view: &MediumView) -> (Vec<u64>, Vec<u64>) {
    let image = Image::open(view).expect("opens");
    let all = image.checkpoints().expect("listed");
    (image.snapshots().expect("a list"), all.iter().map(|cp| cp.cno.get()).collect())
}

#[test]
fn checkpoints_become_snapshots_and_go() {
    let setup = small(None);
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    let made = w.run(async move {
        let mut made = Vec::new();
        for n in 0..6 {
            let fd = v.open(&format!("f{n}"), OpenFlags::CREATE, 0o644).await.expect("opens");
            v.pwrite(fd, 0, &[Slice::pattern(n, 0, 9000)]).await.expect("writes");
            v.close(fd).await.expect("closes");
            made.push(v.mkcp(n == 3).await.expect("a checkpoint"));
        }
        // Nothing has changed: no log, and the number of the last one.
        let last = made[5];
        assert_eq!(v.mkcp(false).await.expect("a checkpoint"), last);
        // Before, behind and between those that are there; what is one stays one.
        for n in [5, 1, 4, 1] {
            v.chcp(made[n], true).await.expect("a snapshot");
        }
        v.chcp(made[4], false).await.expect("a snapshot no more");
        v.chcp(made[4], false).await.expect("nor is it then");
        for none in [0, last + 1, last + 1000, u64::MAX] {
            assert_eq!(v.chcp(none, true).await, Err(FsError::NotFound), "{none}");
            // What is mounted, the newest and the next are protected
            // (`nilfs_checkpoint_is_mounted`).
            let right = if none <= last + 1 { FsError::Busy } else { FsError::NotFound };
            assert_eq!(v.chcp(none, false).await, Err(right), "{none}");
            assert_eq!(v.rmcp(none).await, Err(FsError::NotFound), "{none}");
        }
        assert_eq!(v.chcp(last, false).await, Err(FsError::Busy));
        v.rmcp(made[2]).await.expect("goes");
        assert_eq!(v.rmcp(made[2]).await, Err(FsError::NotFound));
        assert_eq!(v.rmcp(made[3]).await, Err(FsError::Busy));
        assert_eq!(v.chcp(made[2], true).await, Err(FsError::NotFound));
        made
    });
    w.unmount(&vfs);
    w.judge("snapshots");
    let view = view(&w, &setup);
    let (snapshots, all) = listed(&view);
    assert_eq!(snapshots, [made[1], made[3], made[5]]);
    assert!(!all.contains(&made[2]) && all.contains(&made[4]), "{all:?}");
    for (n, cno) in [(1, made[1]), (3, made[3]), (5, made[5])] {
        let names: Vec<_> = files_of(&view, cno).into_iter().map(|f| f.path).collect();
        let right: Vec<Vec<u8>> = (0..=n).map(|n| format!("f{n}").into_bytes()).collect();
        assert!(names.iter().filter(|n| n.starts_with(b"f")).eq(&right), "{cno}: {names:?}");
    }
    drop((vfs, view));
    w.end();
    assert_nothing_lives();
}

#[test]
fn the_cleaner_leaves_what_a_snapshot_has() {
    let cleaner = CleanerOptions {
        min_clean_segments: Share::Count(0),
        nsegments_per_clean: [4, 4],
        min_reclaimable_blocks: [Share::Count(1), Share::Count(1)],
        ..eager()
    };
    let setup = small(Some(cleaner));
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let (v, rt) = (vfs.clone(), w.rt.clone());
    let kept = w.run(async move {
        let mut kept = 0;
        for round in 0..120 {
            let fd = v.open("again", OpenFlags::CREATE, 0o644).await.expect("opens");
            v.pwrite(fd, 0, &[Slice::pattern(round, 0, 300_000)]).await.expect("writes");
            v.close(fd).await.expect("closes");
            if round == 10 {
                kept = v.mkcp(true).await.expect("a snapshot");
            }
            rt.sleep(Span::secs(6)).await;
        }
        kept
    });
    w.unmount(&vfs);
    w.judge("a snapshot that was cleaned around");
    let view = view(&w, &setup);
    let (snapshots, all) = listed(&view);
    assert_eq!(snapshots, [kept]);
    assert!(all.len() < 80, "{} checkpoints are left", all.len());
    let image = Image::open_checkpoint(&view, kept).expect("a checkpoint");
    let (files, findings) = list(&image, &InspectOptions::default());
    assert_eq!(findings, []);
    let file = files.iter().find(|f| f.path == b"again").expect("it was there");
    let right = wp_vfs::Digest::of(&mut u64::MAX.clone(), |each| {
        each(wp_vfs::Part::Bytes(&Slice::pattern(10, 0, 300_000).to_vec()))
    });
    assert_eq!(file.sha256, Some(right.expect("a digest")), "as of that checkpoint");
    drop((vfs, image));
    drop(view);
    w.end();
    assert_nothing_lives();
}

#[test]
fn checkpoints_of_the_protected_time_stay() {
    let cleaner = CleanerOptions { protection_period: 60, ..eager() };
    let setup = Setup { mib: 64, ..small(Some(cleaner)) };
    let w = World::fresh(&setup);
    let (written, error) = fill(&w, &setup, Span::secs(6));
    assert_eq!((written, error), (240 << 20, None));
    let view = view(&w, &setup);
    let image = Image::open(&view).expect("opens");
    let all = image.checkpoints().expect("listed");
    let newest = all.last().expect("one").create.get();
    let young = all.iter().filter(|cp| cp.create.get() + 60 >= newest).count() as u64;
    // Numbers without a gap: none of them was dropped.
    let numbers: Vec<u64> = all.iter().rev().take(young as usize).map(|cp| cp.cno.get()).collect();
    let right: Vec<u64> = (0..young).map(|n| image.tip().cno - n).collect();
    assert_eq!(numbers, right);
    assert!(young >= 8 && (all.len() as u64) < image.tip().cno, "{young} of {}", all.len());
    drop((image, all));
    w.judge("with protected checkpoints");
    w.end();
}

/// What a cleaning frees, its own logs take again: a call that waits for room has to be told.
#[test]
fn a_device_full_of_what_is_needed_is_full_although_the_cleaner_is_waited_for() {
    for block_size in [1024, 4096] {
        let awaited = CleanerOptions { awaited: true, ..eager() };
        let setup = Setup { block_bytes: block_size, ..small(Some(awaited)) };
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let (written, error) = w.run(async move {
            let fd = v.open("all", OpenFlags::CREATE, 0o644).await.expect("opens");
            let mut at = 0;
            loop {
                match v.pwrite(fd, at, &[Slice::pattern(at, 0, 256 << 10)]).await {
                    Ok(n) => at += n,
                    Err(e) => return (at, e),
                }
                if let Err(e) = v.fsync(fd).await {
                    return (at, e);
                }
            }
        });
        assert_eq!(error, FsError::NoSpace, "{block_size}: after {written} bytes");
        assert!(written > 16 << 20, "{block_size}: {written} bytes");
    }
}
