//! Several tasks at once: a sync while a log is on its way, a flush before its end, a read that a
//! cut overtakes.

use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::{FsResult, Span};
use wp_medium::{Medium, Slice};
use wp_rt::{Either, Rt, race};
use wp_vfs::{Fd, OpenFlags, Vfs};

async fn put(v: &Vfs, fd: Fd, byte: u8, len: usize) {
    let data: Vec<Slice> = vec![byte; len].chunks(4096).map(Slice::from_bytes).collect();
    assert_eq!(v.pwrite(fd, 0, &data).await, Ok(len as u64));
}

async fn bytes(v: &Vfs, fd: Fd) -> Vec<u8> {
    let got = v.pread(fd, 0, 1 << 40).await.expect("reads");
    Slice::concat(&got)
}

/// What a file has after a power cut and a mount.
fn after_cut(setup: &Setup, durable: &Medium, path: &'static str) -> FsResult<Vec<u8>> {
    let w = World::empty(setup);
    w.load(durable);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    let out = w.run(async move {
        let fd = v.open(path, OpenFlags::READ, 0).await?;
        let all = bytes(&v, fd).await;
        v.close(fd).await?;
        Ok(all)
    });
    w.unmount(&vfs);
    w.judge(path);
    drop(vfs);
    w.end();
    out
}

/// A file whose blocks are written over, beside another that is clean; both durable before.
async fn two_files(v: &Vfs, len: usize) -> (Fd, Fd) {
    let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
    let g = v.open("g", OpenFlags::CREATE, 0o644).await.expect("opens");
    put(v, f, b'a', len).await;
    put(v, g, b'g', 4096).await;
    v.sync().await.expect("syncs");
    (f, g)
}

async fn soon(rt: &Rt) {
    rt.sleep(Span::micros(1)).await;
}

/// Runs `body` on a fresh file system; the medium if the power goes when it ends.
fn cut_after<F: Future<Output = ()> + 'static>(
    setup: &Setup,
    body: impl FnOnce(Vfs, Rt) -> F,
) -> Medium {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    w.run(body(vfs.clone(), w.rt.clone()));
    let durable = w.durable();
    drop(vfs);
    w.end();
    durable
}

#[test]
fn a_sync_waits_for_a_log_that_is_on_its_way() {
    let setup = Setup::new();
    for data_only in [false, true] {
        let durable = cut_after(&setup, |v, rt| async move {
            let (f, _) = two_files(&v, 1 << 20).await;
            put(&v, f, b'b', 1 << 20).await;
            // The thread begins now.
            rt.sleep(Span::secs(5)).await;
            soon(&rt).await;
            let done = if data_only { v.fdatasync(f).await } else { v.fsync(f).await };
            assert_eq!(done, Ok(()));
        });
        let got = after_cut(&setup, &durable, "f").expect("is there");
        assert!(got == vec![b'b'; 1 << 20], "data only: {data_only}: {:?}", got.first());
    }
    assert_nothing_lives();
}

#[test]
fn a_flush_before_the_end_of_a_log_is_none_of_it() {
    let setup = Setup::new();
    let durable = cut_after(&setup, |v, rt| async move {
        let (f, g) = two_files(&v, 4096).await;
        put(&v, f, b'b', 4096).await;
        let other = rt.spawn("other", {
            let (v, rt) = (v.clone(), rt.clone());
            async move {
                soon(&rt).await;
                v.fsync(g).await
            }
        });
        assert_eq!(v.fdatasync(f).await, Ok(()));
        drop(other);
    });
    let got = after_cut(&setup, &durable, "f").expect("is there");
    assert!(got == vec![b'b'; 4096], "{:?}", got.first());
    drop(durable);
    assert_nothing_lives();
}

#[test]
fn a_read_that_a_cut_overtakes_brings_nothing_back() {
    let setup = Setup::new();
    let image = cut_after(&setup, |v, _| async move {
        two_files(&v, 4096).await;
    });
    let w = World::empty(&setup);
    w.load(&image);
    let vfs = w.mount(&setup).expect("mounts");
    let (v, rt) = (vfs.clone(), w.rt.clone());
    w.run(async move {
        let f = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
        let reader = rt.spawn("reader", {
            let v = v.clone();
            async move { bytes(&v, f).await.len() }
        });
        soon(&rt).await;
        v.ftruncate(f, 0).await.expect("cuts");
        v.ftruncate(f, 4096).await.expect("extends");
        reader.await;
        assert!(bytes(&v, f).await == vec![0; 4096], "an old block");
        v.fsync(f).await.expect("syncs");
        v.close(f).await.expect("closes");
    });
    let durable = w.durable();
    w.unmount(&vfs);
    w.judge("after a cut");
    drop(vfs);
    w.end();
    assert!(after_cut(&setup, &durable, "f").expect("is there") == vec![0; 4096]);
    drop((image, durable));
    assert_nothing_lives();
}

#[test]
fn a_sync_after_a_new_length_makes_it_durable() {
    let setup = Setup::new();
    // The old length is 4100: cuts and extensions in a block, to its end, and beyond.
    for size in [50, 4096, 4099, 4101, 8192, 100_000] {
        let durable = cut_after(&setup, |v, _| async move {
            let (f, _) = two_files(&v, 4100).await;
            v.ftruncate(f, size).await.expect("cuts");
            assert_eq!(v.fsync(f).await, Ok(()));
        });
        let got = after_cut(&setup, &durable, "f").expect("is there");
        assert_eq!(got.len() as u64, size);
        assert!(
            got.iter().take(4100).all(|b| *b == b'a') && got.iter().skip(4100).all(|b| *b == 0)
        );
    }
    assert_nothing_lives();
}

#[test]
fn of_two_syncs_at_once_none_ends_before_the_super_block_is_written() {
    let setup = Setup { segment_blocks: 64, ..Setup::new() };
    let durable = cut_after(&setup, |v, rt| async move {
        let (f, _) = two_files(&v, 4096).await;
        // Into another segment, so that the super block is to follow.
        put(&v, f, b'b', 1 << 20).await;
        let first = rt.spawn("first", {
            let v = v.clone();
            async move { v.sync().await }
        });
        let second = rt.spawn("second", {
            let v = v.clone();
            async move { v.sync().await }
        });
        match race(first, second).await {
            Either::Left(done) | Either::Right(done) => assert_eq!(done, Ok(())),
        }
    });
    let got = after_cut(&setup, &durable, "f").expect("is there");
    assert!(got == vec![b'b'; 1 << 20], "{:?}", got.first());
    drop(durable);
    assert_nothing_lives();
}

/// As in Linux, which notes that the device is flushed before it is (`nilfs_flush_device`).
#[test]
fn of_two_fsyncs_of_one_log_the_second_does_not_wait_for_the_flush() {
    let setup = Setup::new();
    let durable = cut_after(&setup, |v, rt| async move {
        let (f, g) = two_files(&v, 4096).await;
        put(&v, f, b'b', 4096).await;
        put(&v, g, b'b', 4096).await;
        let sync = |fd| {
            let v = v.clone();
            rt.spawn("one of two", async move { v.fsync(fd).await })
        };
        match race(sync(f), sync(g)).await {
            Either::Left(done) | Either::Right(done) => assert_eq!(done, Ok(())),
        }
    });
    let of = |path| after_cut(&setup, &durable, path).expect("is there").first().copied();
    assert_eq!((of("f"), of("g")), (Some(b'a'), Some(b'g')));
    drop(durable);
    assert_nothing_lives();
}

#[test]
fn a_sync_with_nothing_to_write_does_not_flush_again() {
    let setup = Setup::new();
    let durable = cut_after(&setup, |v, rt| async move {
        let (f, _) = two_files(&v, 4096).await;
        let start = rt.now();
        v.sync().await.expect("syncs");
        assert_eq!(v.fsync(f).await, Ok(()));
        assert_eq!(rt.now(), start);
    });
    drop(durable);
    assert_nothing_lives();
}
