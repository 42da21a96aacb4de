//! What goes wrong, and what is at the edge: full devices, failing requests, names without end.

use std::rc::Rc;

use crate::faulty::{Faulty, Plan};
use crate::mounted::{Setup, World, assert_nothing_lives};
use wp_base::event::Op;
use wp_base::{FsError, FsResult, Span};
use wp_btrfs::disk::dir::name_hash;
use wp_medium::{Medium, Slice};
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

async fn put(v: &Vfs, fd: Fd, byte: u8, at: u64, len: usize) -> FsResult<u64> {
    let data: Vec<Slice> = vec![byte; len].chunks(4096).map(Slice::from_bytes).collect();
    v.pwrite(fd, at, &data).await
}

async fn bytes(v: &Vfs, path: &str) -> Vec<u8> {
    let fd = v.open(path, OpenFlags::READ, 0).await.expect("is there");
    let got = v.pread(fd, 0, 1 << 40).await.expect("reads");
    v.close(fd).await.expect("closes");
    Slice::concat(&got)
}

/// Runs `body` on a fresh file system, unmounts, and has the image judged.
fn played<F: Future<Output = ()> + 'static>(
    setup: &Setup,
    what: &str,
    body: impl FnOnce(Vfs, wp_rt::Rt) -> F,
) -> Medium {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    w.run(body(vfs.clone(), w.rt.clone()));
    w.unmount(&vfs);
    w.judge(setup, what);
    let medium = w.medium();
    drop(vfs);
    w.end();
    medium
}

/// Mounts an image and looks at it.
fn again<F: Future<Output = ()> + 'static>(
    setup: &Setup,
    image: Medium,
    what: &str,
    body: impl FnOnce(Vfs) -> F,
) {
    let w = World::empty(setup);
    w.load(&image);
    drop(image);
    let vfs = w.mount(setup).expect("mounts");
    w.run(body(vfs.clone()));
    w.unmount(&vfs);
    w.judge(setup, what);
    drop(vfs);
    w.end();
}

#[test]
fn a_full_device_says_so_and_stays_sound() {
    for (mib, dup) in [(128, true), (160, false)] {
        let setup = Setup { mib, dup, ..Setup::new() };
        let image = played(&setup, "full", |v, _| async move {
            let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            let mut at = 0;
            loop {
                match put(&v, f, 1, at, 1 << 20).await {
                    Ok(n) => at += n,
                    Err(e) => {
                        assert_eq!(e, FsError::NoSpace);
                        break;
                    }
                }
            }
            assert!(at > 20 << 20, "only {at} bytes");
            assert_eq!(v.fsync(f).await, Ok(()), "what was taken has room");
            // Space comes back, and can be used again.
            for round in 0..3 {
                v.truncate("f", 4 << 20).await.expect("cuts a full device");
                v.sync().await.expect("syncs");
                let n = put(&v, f, 2 + round, 4 << 20, 8 << 20).await;
                assert_eq!(n, Ok(8 << 20), "round {round}");
            }
            v.close(f).await.expect("closes");
            assert_eq!(v.unlink("f").await, Ok(()));
            let g = v.open("g", OpenFlags::CREATE, 0o644).await.expect("opens");
            assert_eq!(put(&v, g, 9, 0, 16 << 20).await, Ok(16 << 20));
            v.close(g).await.expect("closes");
        });
        again(&setup, image, "full, again", |v| async move {
            assert!(bytes(&v, "g").await == vec![9; 16 << 20]);
        });
    }
    assert_nothing_lives();
}

#[test]
fn small_files_fill_a_device_and_can_be_removed() {
    let setup = Setup { mib: 114, ..Setup::new() };
    played(&setup, "small files", |v, _| async move {
        let mut n = 0;
        let mut last = Ok(());
        while last.is_ok() && n < 60_000 {
            let name = format!("{n:0200}");
            last = async {
                let f = v.open(&name, OpenFlags::CREATE, 0o644).await?;
                let done = put(&v, f, 1, 0, 1500).await.map(|_| ());
                v.close(f).await?;
                n += 1;
                done
            }
            .await;
        }
        assert_eq!(last, Err(FsError::NoSpace), "after {n} files");
        v.sync().await.expect("syncs a full device");
        let all = v.read_dir("").await.expect("lists");
        for e in &all {
            let name = std::str::from_utf8(&e.name).expect("ours");
            v.unlink(name).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        v.sync().await.expect("syncs");
        assert_eq!(v.mkdir("d", 0o755).await, Ok(()));
    });
    assert_nothing_lives();
}

#[test]
fn preallocation_fills_a_device_and_is_written_in_place() {
    let setup = Setup { mib: 128, ..Setup::new() };
    played(&setup, "prealloc", |v, _| async move {
        let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        let how = Reserve::Space { keep_size: false };
        let mut most = 128 << 20;
        while let Err(e) = v.fallocate(f, how, 0, most).await {
            assert_eq!(e, FsError::NoSpace);
            most -= 1 << 20;
        }
        // There is no other room, and none is needed.
        let mut at = 0;
        while at < most {
            let n = put(&v, f, 3, at, 1 << 20).await;
            assert_eq!(n, Ok(1 << 20), "at {at} of {most}");
            at += 1 << 20;
        }
        assert_eq!(v.fsync(f).await, Ok(()));
        assert!(bytes(&v, "f").await == vec![3; most as usize]);
        v.close(f).await.expect("closes");
    });
    assert_nothing_lives();
}

/// Names with the same hash, found by trying.
const EQUAL: [[&str; 2]; 3] =
    [["ccaoacux", "wcjifoae"], ["mxwslzkr", "pnnmgjjg"], ["pbwnlavy", "ziibfswd"]];

#[test]
fn names_with_equal_hashes_share_an_item() {
    let setup = Setup::new();
    let image = played(&setup, "equal hashes", |v, _| async move {
        for [a, b] in EQUAL {
            assert_eq!(name_hash(a.as_bytes()), name_hash(b.as_bytes()));
            v.mkdir(a, 0o755).await.expect("makes");
            v.mkdir(b, 0o755).await.expect("makes");
            assert_eq!(v.mkdir(b, 0o755).await, Err(FsError::Exists));
            v.rename(a, "other").await.expect("renames");
            v.rename("other", a).await.expect("renames back");
            v.rmdir(b).await.expect("removes");
            v.rename(a, b).await.expect("renames to its like");
            v.rename(b, a).await.expect("and back");
        }
        v.mkdir(EQUAL[1][1], 0o755).await.expect("makes");
    });
    again(&setup, image, "equal hashes, again", |v| async move {
        for (n, [a, b]) in EQUAL.into_iter().enumerate() {
            assert!(v.stat(a).await.is_ok());
            assert_eq!(v.stat(b).await.is_ok(), n == 1);
        }
    });
    assert_nothing_lives();
}

#[test]
fn an_inode_has_more_names_than_an_item_of_references_holds() {
    let setup = Setup { node_bytes: 4096, ..Setup::new() };
    let image = played(&setup, "links", |v, _| async move {
        let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        v.close(f).await.expect("closes");
        for n in 0..300 {
            assert_eq!(v.link("f", &format!("{n:0100}")).await, Ok(()), "link {n}");
        }
        for n in (0..300).step_by(2) {
            assert_eq!(v.unlink(&format!("{n:0100}")).await, Ok(()), "link {n}");
        }
        for n in (1..300).step_by(4) {
            let to = format!("d{n:0150}");
            assert_eq!(v.rename(&format!("{n:0100}"), &to).await, Ok(()), "link {n}");
        }
        assert_eq!(v.stat("f").await.expect("is there").nlink, 151);
    });
    again(&setup, image, "links, again", |v| async move {
        assert_eq!(v.stat("f").await.expect("is there").nlink, 151);
        for n in (1..300).step_by(4) {
            assert_eq!(v.unlink(&format!("d{n:0150}")).await, Ok(()), "link {n}");
        }
        assert_eq!(v.stat("f").await.expect("is there").nlink, 76);
    });
    assert_nothing_lives();
}

#[test]
fn a_directory_with_many_names_is_listed_in_their_order() {
    let setup = Setup { node_bytes: 4096, ..Setup::new() };
    let image = played(&setup, "many names", |v, _| async move {
        for n in 0..6000 {
            let f = v.open(&format!("name {n}"), OpenFlags::CREATE, 0o644).await.expect("opens");
            v.close(f).await.expect("closes");
        }
        for n in (0..6000).filter(|n| n % 3 != 0) {
            v.unlink(&format!("name {n}")).await.expect("removes");
        }
    });
    again(&setup, image, "many names, again", |v| async move {
        let all = v.read_dir("").await.expect("lists");
        let got: Vec<String> =
            all.into_iter().map(|e| String::from_utf8(e.name).expect("ours")).collect();
        let want: Vec<String> = (0..6000).step_by(3).map(|n| format!("name {n}")).collect();
        assert_eq!(got, want);
    });
    assert_nothing_lives();
}

#[test]
fn an_open_file_without_a_name_lives_and_the_next_mount_drops_it() {
    let setup = Setup::new();
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        put(&v, f, 1, 0, 3 << 20).await.expect("writes");
        let g = v.open("g", OpenFlags::CREATE, 0o644).await.expect("opens");
        v.unlink("f").await.expect("removes");
        put(&v, f, 2, 1 << 20, 1 << 20).await.expect("writes still");
        v.fsync(f).await.expect("syncs");
        v.fsync(g).await.expect("syncs");
    });
    let durable = w.durable();
    let _ = &setup;
    drop(vfs);
    w.end();
    again(&setup, durable, "orphan dropped", |v| async move {
        assert_eq!(v.stat("f").await.map(|_| ()), Err(FsError::NotFound));
        v.sync().await.expect("syncs");
        let free = v.stat_fs().await.expect("tells");
        assert!((free.blocks - free.blocks_free) * 4096 < 1 << 20, "its space is free: {free:?}");
    });
    assert_nothing_lives();
}

/// A disk with the file `f` of 8 KiB of `a`, unmounted, that fails as planned from then on.
fn faulty(setup: &Setup) -> (World, Rc<Plan>) {
    let plan = Rc::new(Plan::default());
    let around = plan.clone();
    let w = World::around(setup, |inner| Box::new(Faulty::new(inner, around)));
    w.load(&setup.mkfs());
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        assert_eq!(put(&v, f, b'a', 0, 8192).await, Ok(8192));
        v.close(f).await.expect("closes");
    });
    w.unmount(&vfs);
    (w, plan)
}

#[test]
fn a_failed_commit_is_told_to_all_and_nothing_follows_it() {
    let setup = Setup::new();
    for op in [Op::Write, Op::Flush] {
        let (w, plan) = faulty(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, rt, p) = (vfs.clone(), w.rt.clone(), plan.clone());
        w.run(async move {
            v.mkdir("d", 0o755).await.expect("makes");
            let f = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
            let d = v.open("d", OpenFlags::READ, 0).await.expect("opens");
            p.fail(&[op]);
            let other = rt.spawn("other", {
                let v = v.clone();
                async move { v.fsync(d).await }
            });
            // Whoever comes to it first is told what failed, the other that all has ended.
            let told = [v.sync().await, other.await];
            let is_end = |t: &FsResult<()>| matches!(t, Err(FsError::Io | FsError::ReadOnly));
            assert!(told.iter().all(is_end), "{op:?}: {told:?}");
            assert!(told.contains(&Err(FsError::Io)), "{op:?}: {told:?}");
            p.fail(&[]);
            assert_eq!(v.mkdir("e", 0o755).await, Err(FsError::ReadOnly));
            assert_eq!(put(&v, f, b'b', 0, 10).await, Err(FsError::ReadOnly));
            assert!(v.fsync(f).await.is_ok() || v.sync().await.is_err());
            assert!(bytes(&v, "f").await == vec![b'a'; 8192], "it can be read still");
        });
        w.unmount_failing(&vfs);
        let image = w.medium();
        drop((vfs, plan));
        w.end();
        again(&setup, image, "after a failed commit", |v| async move {
            assert!(bytes(&v, "f").await == vec![b'a'; 8192]);
            assert_eq!(v.stat("d").await.map(|_| ()), Err(FsError::NotFound));
        });
    }
    assert_nothing_lives();
}

#[test]
fn data_that_cannot_be_written_is_told_once_and_leads_nowhere() {
    let setup = Setup::new();
    let (w, plan) = faulty(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let (v, rt, p) = (vfs.clone(), w.rt.clone(), plan.clone());
    w.run(async move {
        let f = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
        assert_eq!(put(&v, f, b'b', 0, 8192).await, Ok(8192));
        p.fail(&[Op::Write]);
        // The flusher finds it.
        rt.sleep(Span::secs(40)).await;
        assert!(p.failed.get() > 0);
        p.fail(&[]);
        assert_eq!(v.fsync(f).await, Err(FsError::Io));
        assert_eq!(v.fsync(f).await, Ok(()), "once");
        assert_eq!(v.mkdir("d", 0o755).await, Ok(()), "data alone was lost");
    });
    w.unmount(&vfs);
    w.judge(&setup, "lost data");
    let image = w.medium();
    drop((vfs, plan));
    w.end();
    again(&setup, image, "lost data, again", |v| async move {
        assert!(bytes(&v, "f").await == vec![b'a'; 8192], "what was there before");
    });
    assert_nothing_lives();
}

#[test]
fn data_with_a_wrong_checksum_is_not_given_out() {
    let setup = Setup::new();
    let image = played(&setup, "sound", |v, _| async move {
        let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        let data: Vec<Slice> = (0..4).map(|n| Slice::from_bytes(&[b'A' + n; 4096])).collect();
        v.pwrite(f, 0, &data).await.expect("writes");
        v.close(f).await.expect("closes");
    });
    let mut bad = image.clone();
    let mut hit = 0;
    for (at, sectors) in image.runs() {
        for i in 0..sectors {
            let s = image.read(at.advance(i), 1);
            if s.iter().flat_map(Slice::to_vec).all(|b| b == b'C') {
                bad.write(at.advance(i), &Slice::from_bytes(&[b'x'; 512]));
                hit += 1;
                break;
            }
        }
    }
    assert!(hit > 0, "the data is found");
    let w = World::empty(&setup);
    w.load(&bad);
    drop((image, bad));
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let f = v.open("f", OpenFlags::READ, 0).await.expect("opens");
        assert_eq!(v.pread(f, 8192, 10).await.map(|_| ()), Err(FsError::Io));
        let good = v.pread(f, 0, 8192).await.expect("reads");
        assert_eq!(good.iter().flat_map(Slice::to_vec).filter(|b| *b == b'B').count(), 4096);
        let flags = OpenFlags { direct: true, ..OpenFlags::READ };
        let d = v.open("f", flags, 0).await.expect("opens");
        assert_eq!(v.pread(d, 8192, 4096).await.map(|_| ()), Err(FsError::Io));
        let notes = v.fs().notes();
        assert!(notes.iter().any(|n| n.contains("byte 8192")), "{notes:?}");
        v.close(f).await.expect("closes");
        v.close(d).await.expect("closes");
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

#[test]
fn direct_io_that_is_not_in_whole_sectors_goes_through_the_cache() {
    let setup = Setup::new();
    let image = played(&setup, "unaligned direct I/O", |v, _| async move {
        let flags = OpenFlags { direct: true, ..OpenFlags::CREATE };
        let f = v.open("f", flags, 0o644).await.expect("opens");
        assert_eq!(put(&v, f, b'a', 0, 10_001).await, Ok(10_001));
        assert_eq!(put(&v, f, b'b', 3, 700).await, Ok(700));
        let got = v.pread(f, 1, 1000).await.expect("reads");
        let got: Vec<u8> = Slice::concat(&got);
        assert!(got == [vec![b'a'; 2], vec![b'b'; 700], vec![b'a'; 298]].concat());
        v.close(f).await.expect("closes");
    });
    again(&setup, image, "unaligned direct I/O, again", |v| async move {
        let want = [vec![b'a'; 3], vec![b'b'; 700], vec![b'a'; 10_001 - 703]].concat();
        assert!(bytes(&v, "f").await == want);
    });
    assert_nothing_lives();
}
