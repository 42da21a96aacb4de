//! What goes wrong: requests that fail, and devices that are full. It is told, and what was
//! durable stays.

use std::rc::Rc;

use crate::faulty::{Faulty, Plan};
use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::event::Op;
use wp_base::{FsError, FsResult, Span};
use wp_medium::{Medium, Slice};
use wp_vfs::{Fd, OpenFlags, Vfs};

async fn put(v: &Vfs, fd: Fd, byte: u8, at: u64, len: usize) -> FsResult<u64> {
    let data: Vec<Slice> = vec![byte; len].chunks(4096).map(Slice::from_bytes).collect();
    v.pwrite(fd, at, &data).await
}

/// What a file has after a power cut and a mount.
fn after_cut(setup: &Setup, durable: &Medium, path: &'static str) -> Vec<u8> {
    let w = World::empty(setup);
    w.load(durable);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    let out = w.run(async move {
        let fd = v.open(path, OpenFlags::READ, 0).await.expect("is there");
        let got = v.pread(fd, 0, 1 << 40).await.expect("reads");
        v.close(fd).await.expect("closes");
        Slice::concat(&got)
    });
    w.judge(path);
    drop(vfs);
    w.end();
    out
}

/// A disk with the file `f` of 8 KiB of `a`, unmounted, that fails as planned from then on.
fn faulty(setup: &Setup) -> (World, Rc<Plan>) {
    let plan = Rc::new(Plan::default());
    let around = plan.clone();
    let w = World::around(setup, |inner| Box::new(Faulty { inner, plan: around }));
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
fn a_failed_log_is_told_to_all_and_nothing_follows_it() {
    let setup = Setup::new();
    for data_only in [false, true] {
        let (w, plan) = faulty(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, rt, p) = (vfs.clone(), w.rt.clone(), plan.clone());
        w.run(async move {
            let f = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
            assert_eq!(put(&v, f, b'b', 0, 8192).await, Ok(8192));
            p.fail(&[Op::Write]);
            // They begin while the log is being made: a change waits for its end, and a sync is
            // for the next log.
            let late = rt.spawn("late", {
                let (v, rt) = (v.clone(), rt.clone());
                async move {
                    rt.sleep(Span::nanos(1)).await;
                    v.mkdir("d", 0o755).await
                }
            });
            let second = rt.spawn("second", {
                let (v, rt) = (v.clone(), rt.clone());
                async move {
                    rt.sleep(Span::nanos(1)).await;
                    v.fsync(f).await
                }
            });
            let done = if data_only { v.fdatasync(f).await } else { v.fsync(f).await };
            assert_eq!(done, Err(FsError::Io));
            assert!(late.await.is_err(), "a change after the failure");
            assert!(second.await.is_err(), "a sync beside the failed one");
            p.fail(&[]);
            assert_eq!(put(&v, f, b'c', 0, 8192).await, Err(FsError::ReadOnly));
            assert!(v.fsync(f).await.is_err(), "what was lost is not durable now");
            rt.sleep(Span::secs(20)).await;
            assert!(v.sync().await.is_err());
            v.close(f).await.expect("closes");
            assert!(v.fs().unmount().await.is_err(), "what was lost is told");
        });
        assert!(plan.failed.get() > 0);
        let durable = w.durable();
        assert!(after_cut(&setup, &durable, "f") == vec![b'a'; 8192], "data only: {data_only}");
        drop((vfs, durable));
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn a_sync_that_cannot_read_what_it_needs_loses_nothing_silently() {
    let setup = Setup::new();
    for data_only in [false, true] {
        let (w, plan) = faulty(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, p) = (vfs.clone(), plan.clone());
        let ok = w.run(async move {
            let f = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
            assert_eq!(put(&v, f, b'b', 0, 8192).await, Ok(8192));
            p.fail(&[Op::Read]);
            let done = if data_only { v.fdatasync(f).await } else { v.fsync(f).await };
            assert_eq!(done, Err(FsError::Io));
            p.fail(&[]);
            v.fsync(f).await.is_ok()
        });
        assert!(plan.failed.get() > 0, "the DAT was not read");
        let durable = w.durable();
        let want = if ok { b'b' } else { b'a' };
        assert!(after_cut(&setup, &durable, "f") == vec![want; 8192], "data only: {data_only}");
        drop((vfs, durable));
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn a_flush_that_failed_is_no_flush() {
    let setup = Setup::new();
    let (w, plan) = faulty(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    let ok = w.run(async move {
        let f = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
        assert_eq!(put(&v, f, b'b', 0, 8192).await, Ok(8192));
        plan.fail(&[Op::Flush]);
        assert_eq!(v.fdatasync(f).await, Err(FsError::Io));
        plan.fail(&[]);
        v.fdatasync(f).await.is_ok()
    });
    let durable = w.durable();
    assert!(!ok || after_cut(&setup, &durable, "f") == vec![b'b'; 8192]);
    drop((vfs, durable));
    w.end();
    assert_nothing_lives();
}

/// 32 segments of 1 MiB, 8 of which are kept free.
fn little() -> Setup {
    Setup { mib: 32, ..Setup::new() }
}

#[test]
fn no_more_is_accepted_than_there_is_room_for() {
    let setup = little();
    for whole in [false, true] {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let written = w.run(async move {
            let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            let mut written = 0;
            let most = if whole { 64 << 20 } else { 1 << 18 };
            loop {
                match put(&v, f, b'a', written, most).await {
                    Ok(n) => written += n,
                    Err(e) => break assert_eq!(e, FsError::NoSpace),
                }
            }
            assert_eq!(v.link("f", "g").await, Err(FsError::NoSpace));
            assert_eq!(v.rename("f", "h").await, Err(FsError::NoSpace));
            assert_eq!(v.fsync(f).await, Ok(()));
            assert_eq!(v.fstat(f).await.expect("stats").size, written);
            v.close(f).await.expect("closes");
            written
        });
        assert!((16 << 20..26 << 20).contains(&written), "{written} bytes in 32 MiB");
        let durable = w.durable();
        assert!(after_cut(&setup, &durable, "f") == vec![b'a'; written as usize]);
        w.unmount(&vfs);
        w.judge("full");
        drop((vfs, durable));
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn a_device_without_a_free_segment_keeps_its_last_checkpoint() {
    let setup = little();
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let (v, rt) = (vfs.clone(), w.rt.clone());
    w.run(async move {
        let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        // What the cleaner would free fills the device: lengths take no room that is checked.
        let mut fill = 0;
        while put(&v, f, b'a', 0, 4 << 20).await.is_ok() && v.fsync(f).await.is_ok() {
            fill += 1;
        }
        assert!(fill > 3);
        let mut size = 4 << 20;
        let why = loop {
            size -= 1;
            v.ftruncate(f, size).await.expect("needs no room");
            if let Err(e) = v.fsync(f).await {
                break e;
            }
        };
        assert_eq!(why, FsError::NoSpace);
        // Nobody stops because of it, and nobody says that it was written.
        assert_eq!(v.fstat(f).await.expect("stats").size, size);
        assert_eq!(v.sync().await, Err(FsError::NoSpace));
        v.ftruncate(f, size - 1).await.expect("needs no room");
        assert_eq!(v.fdatasync(f).await, Err(FsError::NoSpace));
        rt.sleep(Span::secs(20)).await;
        assert_eq!(v.pread(f, size - 2, 1).await.expect("reads").len(), 1);
        v.close(f).await.expect("closes");
        assert_eq!(v.fs().unmount().await, Err(FsError::NoSpace));
    });
    let durable = w.medium();
    let got = after_cut(&setup, &durable, "f");
    assert!(got.len() > 3 << 20 && got.iter().all(|b| *b == b'a'), "{}", got.len());
    drop((vfs, durable));
    w.end();
    assert_nothing_lives();
}
