//! Calls beside each other, where one of them waits in the middle: the cases that are hard to meet
//! by chance, made by requests that are late.

use crate::mounted;
use std::rc::Rc;

use crate::faulty::{Faulty, Plan};
use crate::mounted::{Setup, World, assert_nothing_lives};
use wp_base::event::Op;
use wp_base::{FsError, Span};
use wp_medium::{Medium, Slice};
use wp_rt::Rt;
use wp_vfs::{AttrChange, Fd, OpenFlags, Reserve, Vfs, XattrSet};

/// Longer than all that is not late.
const LATE: Span = Span::millis(10);

async fn put(v: &Vfs, fd: Fd, byte: u8, at: u64, len: usize) {
    let data: Vec<Slice> = vec![byte; len].chunks(4096).map(Slice::from_bytes).collect();
    assert_eq!(v.pwrite(fd, at, &data).await, Ok(len as u64));
}

async fn open(v: &Vfs, path: &str) -> Fd {
    v.open(path, OpenFlags::CREATE, 0o644).await.expect("opens")
}

async fn bytes(v: &Vfs, path: &str) -> Result<Vec<u8>, FsError> {
    let fd = v.open(path, OpenFlags::READ, 0).await?;
    let got = v.pread(fd, 0, 1 << 40).await?;
    v.close(fd).await?;
    Ok(Slice::concat(&got))
}

fn setup() -> Setup {
    Setup { node_bytes: 4096, ..Setup::new() }
}

/// An image with trees of some levels: files `f`, `g`, `h` of 16 KiB, far from each other, a
/// `tail` of many extents, `p` with space that was allocated beforehand, and an empty `small` in
/// whose leaf is little room.
fn image(setup: &Setup) -> Medium {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let big = open(&v, "big").await;
        put(&v, big, b'.', 0, 16 << 20).await;
        v.close(big).await.expect("closes");
        for name in ["f", "g", "h", "p", "tail", "small", "last"] {
            for n in 0..60 {
                let fd = open(&v, &format!("filler {name} {n}")).await;
                v.close(fd).await.expect("closes");
            }
            let fd = open(&v, name).await;
            match name {
                "tail" => {
                    for n in 0..200 {
                        put(&v, fd, b't', n * 8192, 4096).await;
                    }
                }
                "p" => {
                    let how = Reserve::Space { keep_size: true };
                    v.fallocate(fd, how, 0, 64 << 10).await.expect("room");
                    v.ftruncate(fd, 10_000).await.expect("extends");
                }
                "small" => {
                    for n in 0..2 {
                        let name = format!("user.{n}");
                        let value = vec![7; 3000];
                        v.set_xattr("small", &name, &value, XattrSet::Any).await.expect("room");
                    }
                }
                _ => put(&v, fd, b'a', 0, 16 << 10).await,
            }
            v.close(fd).await.expect("closes");
        }
    });
    w.unmount(&vfs);
    let image = w.medium();
    drop(vfs);
    w.end();
    image
}

/// What the device does while a case runs, and the time.
struct Bench {
    v: Vfs,
    rt: Rt,
    plan: Rc<Plan>,
}

impl Bench {
    /// Lets what was begun come to its next wait.
    async fn pause(&self) {
        self.rt.sleep(Span::millis(1)).await;
    }
    /// Begins a call beside this one.
    async fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(Vfs) -> F,
    ) -> wp_rt::Join<T> {
        let task = self.rt.spawn(name, call(self.v.clone()));
        self.pause().await;
        task
    }
}

/// Plays a case on [`image`]; `is_cut`: the power goes when it ends, else it is unmounted. Then
/// what a mount has is looked at.
fn case<P, L>(
    setup: &Setup,
    (what, is_cut): (&str, bool),
    play: impl FnOnce(Bench) -> P,
    look: impl FnOnce(Vfs) -> L,
) where
    P: Future<Output = ()> + 'static,
    L: Future<Output = ()> + 'static,
{
    let plan = Rc::new(Plan::default());
    let around = plan.clone();
    let w = World::around(setup, |inner| Box::new(Faulty::new(inner, around)));
    w.load(&image(setup));
    let vfs = w.mount(setup).expect("mounts");
    w.run(play(Bench { v: vfs.clone(), rt: w.rt.clone(), plan }));
    let left = if is_cut {
        drop(vfs);
        w.cut()
    } else {
        w.unmount(&vfs);
        drop(vfs);
        let medium = w.medium();
        w.end();
        medium
    };
    mounted::check_ours(&left, setup.mib, what);
    let w = World::empty(setup);
    w.load(&left);
    drop(left);
    let vfs = w.mount(setup).expect("mounts again");
    w.run(look(vfs.clone()));
    w.unmount(&vfs);
    w.judge(setup, what);
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

fn unmount_failing(w: &World, vfs: &Vfs) {
    let fs = vfs.fs().clone();
    w.run(async move { fs.unmount().await }).expect_err("something is lost");
}

async fn has(v: &Vfs, path: &str, want: &[u8]) {
    let got = bytes(v, path).await.unwrap_or_else(|e| panic!("{path}: {e}"));
    let wrong = got.iter().zip(want).position(|(a, b)| a != b);
    assert_eq!((wrong, got.len()), (None, want.len()), "{path}: first wrong byte, length");
}

#[test]
fn a_commit_waits_for_tree_blocks_that_a_sync_has_sent_before() {
    case(
        &setup(),
        ("early tree blocks", true),
        |b| async move {
            for n in 0..100 {
                b.v.mkdir(&format!("d{n}"), 0o755).await.expect("makes");
            }
            b.plan.delay(Op::Write, LATE);
            let _first = b.begin("first", |v| async move { v.sync().await }).await;
            b.plan.hurry();
            assert_eq!(b.v.sync().await, Ok(()));
        },
        |v| async move {
            for n in 0..100 {
                assert!(v.stat(&format!("d{n}")).await.is_ok(), "d{n}");
            }
        },
    );
}

#[test]
fn a_log_waits_for_its_blocks_that_a_sync_has_sent_before() {
    case(
        &setup(),
        ("early log blocks", true),
        |b| async move {
            let (f, g) = (open(&b.v, "f").await, open(&b.v, "g").await);
            let value = [3; 100];
            b.v.set_xattr("f", "user.x", &value, XattrSet::Any).await.expect("room");
            b.v.set_xattr("g", "user.x", &value, XattrSet::Any).await.expect("room");
            b.plan.delay(Op::Write, LATE);
            let first = b.begin("first", |v| async move { v.fsync(f).await }).await;
            // It waits for the first one's log.
            let second = b.begin("second", |v| async move { v.fsync(g).await }).await;
            b.plan.delay(Op::Write, Span::secs(1));
            let _sync = b.begin("sync", |v| async move { v.sync().await }).await;
            b.plan.hurry();
            assert_eq!(first.await, Ok(()));
            assert_eq!(second.await, Ok(()));
        },
        |v| async move {
            for path in ["f", "g"] {
                assert_eq!(v.get_xattr(path, "user.x").await, Ok(vec![3; 100]), "{path}");
            }
        },
    );
}

#[test]
fn early_tree_blocks_that_fail_fail_the_commit() {
    let setup = setup();
    let plan = Rc::new(Plan::default());
    let around = plan.clone();
    let w = World::around(&setup, |inner| Box::new(Faulty::new(inner, around)));
    w.load(&image(&setup));
    let vfs = w.mount(&setup).expect("mounts");
    let b = Bench { v: vfs.clone(), rt: w.rt.clone(), plan };
    w.run(async move {
        b.v.mkdir("d", 0o755).await.expect("makes");
        b.plan.delay(Op::Write, LATE);
        b.plan.fail_late(true);
        let first = b.begin("first", |v| async move { v.sync().await }).await;
        b.plan.hurry();
        assert!(b.v.sync().await.is_err(), "its blocks are not there");
        assert!(first.await.is_err());
    });
    unmount_failing(&w, &vfs);
    drop(vfs);
    let left = w.medium();
    w.end();
    mounted::check_ours(&left, setup.mib, "failed early blocks");
    drop(left);
    assert_nothing_lives();
}

#[test]
fn an_fsync_that_commits_has_its_data_though_another_commit_came_between() {
    let mut setup = setup();
    setup.mount.treelog = false;
    case(
        &setup,
        ("another commit between", true),
        |b| async move {
            let (f, g, h) = (open(&b.v, "f").await, open(&b.v, "g").await, open(&b.v, "h").await);
            put(&b.v, h, b'h', 0, 4096).await;
            put(&b.v, f, b'f', 0, 4096).await;
            let mode = AttrChange { mode: Some(0o600), ..AttrChange::default() };
            // The items of `h` take long: the worker reads for them.
            b.plan.delay(Op::Read, LATE);
            let slow = b.begin("slow", |v| async move { v.fsync(h).await }).await;
            b.plan.hurry();
            let first = b.begin("first", |v| async move { v.fsync(f).await }).await;
            let ino = b.v.stat("g").await.expect("is there").ino;
            b.v.fs().set_attr(ino, &mode).await.expect("changes");
            assert_eq!(b.v.fsync(g).await, Ok(()));
            assert_eq!(first.await, Ok(()));
            drop(slow);
        },
        |v| async move {
            has(&v, "f", &[vec![b'f'; 4096], vec![b'a'; 12 << 10]].concat()).await;
        },
    );
}

#[test]
fn space_before_the_end_is_not_logged_over_what_was_written_there() {
    case(
        &setup(),
        ("preallocated, written, logged twice", true),
        |b| async move {
            let (p, h) = (open(&b.v, "p").await, open(&b.v, "h").await);
            put(&b.v, h, b'h', 0, 4096).await;
            put(&b.v, p, b'p', 0, 4096).await;
            b.plan.delay(Op::Read, LATE);
            let slow = b.begin("slow", |v| async move { v.fsync(h).await }).await;
            b.plan.hurry();
            assert_eq!(b.v.fsync(p).await, Ok(()));
            let ino = b.v.stat("p").await.expect("is there").ino;
            let mode = AttrChange { mode: Some(0o600), ..AttrChange::default() };
            b.v.fs().set_attr(ino, &mode).await.expect("changes");
            assert_eq!(b.v.fsync(p).await, Ok(()));
            drop(slow);
        },
        |v| async move {
            has(&v, "p", &[vec![b'p'; 4096], vec![0; 10_000 - 4096]].concat()).await;
        },
    );
}

#[test]
fn a_metadata_read_that_fails_in_writeback_loses_no_extent() {
    case(
        &setup(),
        ("a read fails in writeback", false),
        |b| async move {
            let t = open(&b.v, "tail").await;
            put(&b.v, t, b'T', 190 * 8192, 4096).await;
            b.plan.fail_one(Op::Read);
            assert_eq!(b.v.fsync(t).await, Err(FsError::Io), "it is told");
            assert_eq!(b.plan.failed.get(), 1, "it has read");
            // Each comes to an end.
            let _ = b.v.fsync(t).await;
            assert_eq!(b.v.mkdir("d", 0o755).await, Ok(()), "nothing else has failed");
            put(&b.v, t, b'U', 190 * 8192, 4096).await;
            assert_eq!(b.v.fsync(t).await, Ok(()));
        },
        |v| async move {
            let got = bytes(&v, "tail").await.expect("reads");
            assert!(got[190 * 8192..190 * 8192 + 4096] == [b'U'; 4096]);
        },
    );
}

#[test]
fn a_write_beside_the_writeback_of_a_small_file_is_kept() {
    case(
        &setup(),
        ("a small file written twice", true),
        |b| async move {
            let s = open(&b.v, "small").await;
            put(&b.v, s, b'1', 0, 2000).await;
            b.plan.delay(Op::Read, LATE);
            let failed = b.plan.late_ones.get();
            let first = b.begin("first", |v| async move { v.fsync(s).await }).await;
            assert!(b.plan.late_ones.get() > failed, "it reads");
            b.plan.hurry();
            put(&b.v, s, b'2', 0, 2000).await;
            let _ = first.await;
            assert_eq!(b.v.fsync(s).await, Ok(()));
        },
        |v| async move { has(&v, "small", &[b'2'; 2000]).await },
    );
}

#[test]
fn a_commit_that_waits_does_not_go_on_after_a_failure() {
    let setup = setup();
    let plan = Rc::new(Plan::default());
    let around = plan.clone();
    let w = World::around(&setup, |inner| Box::new(Faulty::new(inner, around)));
    w.load(&image(&setup));
    let vfs = w.mount(&setup).expect("mounts");
    let b = Bench { v: vfs.clone(), rt: w.rt.clone(), plan };
    w.run(async move {
        let f = open(&b.v, "f").await;
        b.v.set_xattr("f", "user.x", &[3; 100], XattrSet::Any).await.expect("room");
        b.v.mkdir("d", 0o755).await.expect("makes");
        b.plan.fail_one(Op::Flush);
        b.plan.delay(Op::Write, LATE);
        let first = b.begin("first", |v| async move { v.fsync(f).await }).await;
        b.plan.hurry();
        // It waits for the fsync to end.
        let sync = b.begin("sync", |v| async move { v.sync().await }).await;
        assert!(first.await.is_err(), "its super block cannot be written");
        assert!(sync.await.is_err(), "nothing is written any more");
        assert_eq!(b.v.mkdir("e", 0o755).await, Err(FsError::ReadOnly));
    });
    unmount_failing(&w, &vfs);
    drop(vfs);
    let left = w.medium();
    w.end();
    let w = World::empty(&setup);
    w.load(&left);
    drop(left);
    let vfs = w.mount(&setup).expect("mounts again");
    let v = vfs.clone();
    w.run(async move {
        assert_eq!(v.stat("d").await.map(|_| ()), Err(FsError::NotFound), "of no commit");
    });
    w.unmount(&vfs);
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

/// An fsync that takes long, and a commit that waits for it: whoever changes something waits, too.
async fn closed(b: &Bench) -> (wp_rt::Join<Result<(), FsError>>, wp_rt::Join<Result<(), FsError>>) {
    let f = open(&b.v, "f").await;
    b.v.set_xattr("f", "user.x", &[3; 100], XattrSet::Any).await.expect("room");
    b.plan.delay(Op::Write, Span::millis(50));
    let fsync = b.begin("fsync", move |v| async move { v.fsync(f).await }).await;
    b.plan.hurry();
    let sync = b.begin("sync", |v| async move { v.sync().await }).await;
    (fsync, sync)
}

#[test]
fn a_name_is_not_made_in_a_directory_that_is_removed_meanwhile() {
    for is_open in [false, true] {
        case(
            &setup(),
            ("made in a dead directory", false),
            move |b| async move {
                b.v.mkdir("A", 0o755).await.expect("makes");
                if is_open {
                    b.v.open("A", OpenFlags::READ, 0).await.expect("opens");
                }
                let (fsync, sync) = closed(&b).await;
                let removed = b.begin("rmdir", |v| async move { v.rmdir("A").await }).await;
                let made = b.begin("mkdir", |v| async move { v.mkdir("A/x", 0o755).await }).await;
                let linked = b.begin("link", |v| async move { v.link("g", "A/y").await }).await;
                let moved = b.begin("move", |v| async move { v.rename("h", "A/z").await }).await;
                assert_eq!((fsync.await, sync.await), (Ok(()), Ok(())));
                assert_eq!(removed.await, Ok(()));
                assert_eq!(made.await, Err(FsError::NotFound));
                assert_eq!(linked.await, Err(FsError::NotFound));
                assert_eq!(moved.await, Err(FsError::NotFound));
                assert_eq!(b.v.mkdir("B", 0o755).await, Ok(()), "all is well");
            },
            |v| async move { assert!(v.stat("B").await.is_ok() && v.stat("h").await.is_ok()) },
        );
    }
}

#[test]
fn a_file_that_is_removed_meanwhile_is_there_for_calls_under_way() {
    case(
        &setup(),
        ("changed while it is removed", false),
        |b| async move {
            let (fsync, sync) = closed(&b).await;
            let removed = b.begin("unlink", |v| async move { v.unlink("g").await }).await;
            let value = [1; 10];
            let cut = b.begin("cut", |v| async move { v.truncate("g", 5000).await }).await;
            let named = b
                .begin("name", move |v| async move {
                    v.set_xattr("g", "user.y", &value, XattrSet::Any).await
                })
                .await;
            let linked = b.begin("link", |v| async move { v.link("g", "g2").await }).await;
            assert_eq!((fsync.await, sync.await), (Ok(()), Ok(())));
            assert_eq!(removed.await, Ok(()));
            assert_eq!(cut.await, Ok(()), "it has it in use");
            assert_eq!(named.await, Ok(()), "so has this");
            assert_eq!(linked.await, Err(FsError::NotFound), "it has no name any more");
            assert_eq!(b.v.mkdir("B", 0o755).await, Ok(()), "all is well");
        },
        |v| async move { assert!(v.stat("B").await.is_ok()) },
    );
}

#[test]
fn directories_that_move_and_go_beside_each_other_do_not_wait_for_ever() {
    case(
        &setup(),
        ("moves above and below", false),
        |b| async move {
            // The lower one has the lesser number.
            for d in ["low", "top", "low/x", "top/y"] {
                b.v.mkdir(d, 0o755).await.expect("makes");
            }
            b.v.rename("low", "top/low").await.expect("renames");
            let (fsync, sync) = closed(&b).await;
            let a = b.begin("a", |v| async move { v.rename("top/low/x", "top/x").await }).await;
            let c = b.begin("b", |v| async move { v.rmdir("top/low").await }).await;
            let d = b.begin("c", |v| async move { v.rename("top/y", "top/low/y").await }).await;
            assert_eq!((fsync.await, sync.await), (Ok(()), Ok(())));
            assert_eq!(a.await, Ok(()));
            let (c, d) = (c.await, d.await);
            assert!(c.is_ok() != d.is_ok(), "one of both: {c:?}, {d:?}");
        },
        |v| async move { assert!(v.stat("top/x").await.is_ok()) },
    );
}

/// A new file's fsync asks what the last commit had. It has it in memory, also while it is sent.
#[test]
fn an_fsync_beside_a_commit_that_is_being_written_goes_to_the_log() {
    case(
        &setup(),
        ("fsync beside a commit", false),
        |b| async move {
            for n in 0..100 {
                b.v.mkdir(&format!("d{n}"), 0o755).await.expect("makes");
            }
            let fd = open(&b.v, "d0/x").await;
            b.v.close(fd).await.expect("closes");
            b.v.sync().await.expect("syncs");
            b.v.rename("d0/x", "d1/x").await.expect("moves");
            b.plan.delay(Op::Write, Span::millis(50));
            // A name was moved out of it: that is a commit.
            let first = async move |v: Vfs| {
                let fd = v.open("d0", OpenFlags::READ, 0).await.expect("opens");
                v.fsync(fd).await
            };
            let first = b.begin("first", first).await;
            b.rt.sleep(LATE).await;
            b.plan.hurry();
            let of = |name| {
                let all = b.v.fs().counters();
                all.iter().find(|(n, _)| *n == name).expect("is counted").1
            };
            let before = (of("log_syncs"), of("fsyncs_that_committed"));
            let fd = open(&b.v, "new").await;
            put(&b.v, fd, b'n', 0, 8192).await;
            assert_eq!(b.v.fsync(fd).await, Ok(()));
            let after = (of("log_syncs"), of("fsyncs_that_committed"));
            assert_eq!((after.0 - before.0, after.1 - before.1), (1, 0));
            first.await.expect("syncs");
        },
        |v| async move { has(&v, "new", &[b'n'; 8192]).await },
    );
}
