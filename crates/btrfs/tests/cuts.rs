//! What an fsync has made durable, and what a commit had before it, after a power cut: cases that
//! random programs seldom meet, one by one.

use crate::mounted;
use crate::mounted::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, Sector};
use wp_btrfs::image::survey;
use wp_btrfs::replay::RecoverOptions;
use wp_medium::{MediumView, Overlay, Slice};
use wp_rt::Rt;
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

async fn put(v: &Vfs, fd: Fd, byte: u8, at: u64, len: usize) {
    let data: Vec<Slice> = vec![byte; len].chunks(4096).map(Slice::from_bytes).collect();
    assert_eq!(v.pwrite(fd, at, &data).await, Ok(len as u64));
}

async fn make(v: &Vfs, path: &str, byte: u8, len: usize) -> Fd {
    let fd = v.open(path, OpenFlags::CREATE, 0o644).await.expect("opens");
    if len > 0 {
        put(v, fd, byte, 0, len).await;
    }
    fd
}

async fn fsync(v: &Vfs, path: &str) {
    let fd = v.open(path, OpenFlags::READ, 0).await.expect("opens");
    assert_eq!(v.fsync(fd).await, Ok(()), "{path}");
    v.close(fd).await.expect("closes");
}

async fn bytes(v: &Vfs, path: &str) -> Result<Vec<u8>, FsError> {
    let fd = v.open(path, OpenFlags::READ, 0).await?;
    let got = v.pread(fd, 0, 1 << 40).await?;
    v.close(fd).await?;
    Ok(Slice::concat(&got))
}

fn setup() -> Setup {
    Setup { device: "ssd-128", ..Setup::new() }
}

/// Plays a program, cuts the power right after it, and looks at what a mount then has. Answers
/// how many logs were synced, and how many fsyncs had to commit.
fn cut<P, L>(
    setup: &Setup,
    what: &str,
    program: impl FnOnce(Vfs, Rt) -> P,
    look: impl FnOnce(Vfs) -> L,
) -> (u64, u64)
where
    P: Future<Output = ()> + 'static,
    L: Future<Output = ()> + 'static,
{
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    w.run(program(vfs.clone(), w.rt.clone()));
    let all = vfs.fs().counters();
    let count = |name| all.iter().find(|(n, _)| *n == name).expect("is counted").1;
    let counts = (count("log_syncs"), count("fsyncs_that_committed"));
    drop(vfs);
    let durable = w.cut();
    mounted::check_ours(&durable, setup.mib, what);
    let w = World::empty(setup);
    w.load(&durable);
    drop(durable);
    let vfs = w.mount(setup).expect("mounts");
    w.run(look(vfs.clone()));
    w.unmount(&vfs);
    w.judge(setup, what);
    drop(vfs);
    w.end();
    assert_nothing_lives();
    counts
}

#[test]
fn a_file_of_old_that_is_logged_twice_for_its_names_keeps_its_contents() {
    let counts = cut(
        &setup(),
        "logged twice as existing",
        |v, _| async move {
            v.mkdir("d", 0o755).await.expect("makes");
            let f = make(&v, "d/f", b'f', 64 << 10).await;
            v.sync().await.expect("syncs");
            let x = make(&v, "d/x", b'x', 0).await;
            fsync(&v, "d").await;
            v.rename("d/f", "d/g").await.expect("renames");
            v.rename("d/g", "d/h").await.expect("renames");
            fsync(&v, "d").await;
            v.close(f).await.expect("closes");
            v.close(x).await.expect("closes");
        },
        |v| async move {
            assert!(bytes(&v, "d/h").await == Ok(vec![b'f'; 64 << 10]));
        },
    );
    assert_eq!(counts, (2, 0), "both are in a log");
}

#[test]
fn a_longer_file_that_is_logged_for_its_name_has_the_length_of_the_last_commit() {
    cut(
        &setup(),
        "longer since the commit",
        |v, _| async move {
            v.mkdir("d", 0o755).await.expect("makes");
            let f = make(&v, "d/f", b'f', 5000).await;
            v.sync().await.expect("syncs");
            put(&v, f, b'g', 5000, 20_000).await;
            let x = make(&v, "d/x", b'x', 0).await;
            fsync(&v, "d").await;
            v.rename("d/f", "d/g").await.expect("renames");
            v.rename("d/g", "d/h").await.expect("renames");
            fsync(&v, "d").await;
            v.close(f).await.expect("closes");
            v.close(x).await.expect("closes");
        },
        |v| async move {
            assert!(bytes(&v, "d/h").await == Ok(vec![b'f'; 5000]));
        },
    );
}

/// The second log has only what is new in it: also that there is a hole where the last commit has
/// data.
#[test]
fn blocks_that_a_file_lost_in_one_log_do_not_come_back_by_the_next() {
    let by_write: u64 = 0;
    let by_length: u64 = 1;
    for how in [by_write, by_length] {
        let counts = cut(
            &setup(),
            "a hole behind the old end",
            move |v, _| async move {
                let f = make(&v, "f", b'f', 64 << 10).await;
                v.sync().await.expect("syncs");
                v.ftruncate(f, 0).await.expect("cuts");
                fsync(&v, "f").await;
                if how == by_write {
                    put(&v, f, b'g', 8192, 4096).await;
                } else {
                    v.ftruncate(f, 3 << 12).await.expect("makes longer");
                }
                fsync(&v, "f").await;
                v.close(f).await.expect("closes");
            },
            move |v| async move {
                let mut all = vec![0; 3 << 12];
                if how == by_write {
                    all[8192..].fill(b'g');
                }
                assert!(bytes(&v, "f").await == Ok(all), "{how}");
            },
        );
        assert_eq!(counts, (2, 0), "both are in a log");
    }
}

#[test]
fn a_directory_out_of_which_a_file_moved_is_not_removed_by_a_log() {
    let counts = cut(
        &setup(),
        "moved out of a directory that is removed",
        |v, _| async move {
            v.mkdir("A", 0o755).await.expect("makes");
            v.mkdir("B", 0o755).await.expect("makes");
            let f = make(&v, "A/f", b'f', 9000).await;
            v.sync().await.expect("syncs");
            v.rename("A/f", "B/f").await.expect("renames");
            v.rmdir("A").await.expect("removes");
            fsync(&v, "").await;
            v.close(f).await.expect("closes");
        },
        |v| async move {
            assert!(bytes(&v, "B/f").await == Ok(vec![b'f'; 9000]));
            assert_eq!(v.stat("A").await.map(|_| ()), Err(FsError::NotFound));
        },
    );
    assert_eq!(counts, (0, 1), "only a commit says where it went");
}

#[test]
fn what_was_cut_off_stays_away_when_space_behind_it_is_allocated() {
    for how in [
        Reserve::Space { keep_size: false },
        Reserve::Space { keep_size: true },
        Reserve::Zero { keep_size: false },
    ] {
        // From the middle of the last block on, and over all of it.
        for (at, len) in [(6000, 4096), (4096, 4096), (5000, 3192)] {
            let counts = cut(
                &setup(),
                "allocated behind the end",
                move |v, _| async move {
                    let f = make(&v, "f", b'A', 8192).await;
                    assert_eq!(v.fsync(f).await, Ok(()));
                    v.ftruncate(f, 5000).await.expect("cuts");
                    v.fallocate(f, how, at, len).await.expect("room");
                    v.ftruncate(f, 8192).await.expect("extends");
                    assert_eq!(v.fsync(f).await, Ok(()));
                    v.fs().drop_caches();
                },
                move |v| async move {
                    let mut want = [vec![b'A'; 5000], vec![0; 3192]].concat();
                    if matches!(how, Reserve::Zero { .. }) && at < 5000 {
                        want[at as usize..].fill(0);
                    }
                    assert!(bytes(&v, "f").await == Ok(want), "{how:?} {at} {len}");
                },
            );
            assert!(counts.0 > 0);
        }
    }
}

/// A directory that fills the trees: the log of it does not fit beside them, and a chunk is made.
#[test]
fn a_log_does_not_lead_into_a_chunk_that_no_commit_has() {
    let mut refused = 0;
    for many in [18_000, 20_000, 22_000] {
        let setup = Setup { device: "fixed", ..Setup::new() };
        let counts = cut(
            &setup,
            "a large log",
            move |v, _| async move {
                v.mkdir("d", 0o755).await.expect("makes");
                v.sync().await.expect("syncs");
                for n in 0..many {
                    let fd = v.open(&format!("d/{n:0200}"), OpenFlags::CREATE, 0o644).await;
                    v.close(fd.expect("opens")).await.expect("closes");
                }
                fsync(&v, "d").await;
            },
            move |v| async move {
                assert_eq!(v.read_dir("d").await.expect("lists").len(), many);
            },
        );
        assert_eq!(counts.0 + counts.1, 1, "{many}: a log or a commit");
        refused += counts.1;
    }
    assert!(refused > 0, "one does not fit");
}

/// A file that is in the log gets another name while there is hardly any room; its old name is
/// given to a new file. Then the log of the new one must not say that the old one is gone.
#[test]
fn a_name_that_the_log_has_no_room_for_makes_the_next_fsync_a_commit() {
    let setup = Setup { mib: 128, device: "fixed", ..Setup::new() };
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        // All of the device, so that no chunk can be made any more.
        let fd = v.open("space", OpenFlags::CREATE, 0o644).await.expect("opens");
        let how = Reserve::Space { keep_size: false };
        let mut most = 128 << 20;
        while v.fallocate(fd, how, 0, most).await.is_err() {
            most -= 1 << 20;
        }
        v.ftruncate(fd, most - (2 << 20)).await.expect("leaves some");
        v.close(fd).await.expect("closes");
    });
    w.unmount(&vfs);
    drop(vfs);
    let image = w.medium();
    w.end();
    let mut logs = 0;
    for promised in (0..160).step_by(3) {
        let w = World::empty(&setup);
        w.load(&image);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            // What was written and has no place yet holds promises.
            let space = v.open("space", OpenFlags::WRITE, 0).await.expect("opens");
            for n in 0..promised {
                put(&v, space, b's', n * 8192, 4096).await;
            }
            let f = make(&v, "f", b'f', 500).await;
            assert_eq!(v.fsync(f).await, Ok(()));
            v.rename("f", "g").await.expect("renames");
            let new = make(&v, "f", b'n', 700).await;
            assert_eq!(v.fsync(new).await, Ok(()));
        });
        let all = vfs.fs().counters();
        logs += all.iter().find(|(n, _)| *n == "log_syncs").expect("is counted").1;
        drop(vfs);
        let durable = w.cut();
        let what = format!("{promised} promises");
        mounted::check_ours(&durable, setup.mib, &what);
        let w = World::empty(&setup);
        w.load(&durable);
        drop(durable);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            assert!(bytes(&v, "f").await == Ok(vec![b'n'; 700]), "{what}");
            assert!(bytes(&v, "g").await == Ok(vec![b'f'; 500]), "{what}");
        });
        w.unmount(&vfs);
        drop(vfs);
        w.end();
    }
    assert!(logs > 0, "some are in a log");
    drop(image);
    assert_nothing_lives();
}

/// The data that a log leads to, changed on the device after an fsync.
#[test]
fn a_survey_tells_contents_that_are_not_what_their_checksums_say() {
    let setup = setup();
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        for (name, byte) in [("f", b'F'), ("g", b'G')] {
            let fd = make(&v, name, byte, 9000).await;
            assert_eq!(v.fsync(fd).await, Ok(()));
        }
    });
    drop(vfs);
    let sound = w.cut();
    let mut bad = sound.clone();
    let all = sound.runs().flat_map(|(at, n)| (0..n).map(move |i| at.advance(i)));
    let is_data =
        |at: &Sector| sound.read(*at, 1).iter().flat_map(Slice::to_vec).all(|b| b == b'F');
    let hit = all.into_iter().find(is_data).expect("the data is found");
    bad.write(hit, &Slice::from_bytes(&[b'x'; 512]));
    for (medium, faults) in [(&sound, 0), (&bad, 1)] {
        let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: setup.mib << 20 };
        let found = survey(&Overlay::new(&view), &RecoverOptions::default()).expect("mounts");
        assert_eq!(found.files.len(), 2);
        assert_eq!(found.faults.len(), faults, "{:?}", found.faults);
        assert!(found.faults.iter().all(|f| f.starts_with("f: ")), "{:?}", found.faults);
    }
    drop((sound, bad));
    assert_nothing_lives();
}
