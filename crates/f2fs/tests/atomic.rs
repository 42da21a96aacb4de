//! Atomic writes of files: what other calls see of them, and what they leave on the medium.

use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, FsResult};
use wp_f2fs::fs::{FsMode, FsyncMode};
use wp_medium::{Medium, Slice};
use wp_vfs::{AtomicWrite, Fd, OpenFlags, Vfs};

const BLOCK: u64 = 4096;
/// Behind the addresses of an inode.
const FAR: u64 = 1000 * BLOCK;

const ZONES: &[(&str, u64)] = &[
    ("zone_bytes", 16 << 20),
    ("pages_per_block", 12),
    ("blocks_per_plane", 48),
    ("conventional_zones", 8),
];

fn setups() -> Vec<Setup> {
    let today = Setup::new("6.18");
    let zoned = Setup { device: "zn540", params: ZONES, mib: 768, ..today.clone() };
    vec![
        Setup::new("6.2"),
        Setup::new("6.12"),
        Setup { mode: FsMode::Lfs, ..today.clone() },
        Setup { fsync_mode: FsyncMode::Strict, ..Setup::new("6.12") },
        Setup { segments_per_section: 2, mib: 128, ..today.clone() },
        Setup { logs: 2, fastboot: true, ..today.clone() },
        zoned,
        today,
    ]
}

async fn write(v: &Vfs, fd: Fd, at: u64, tag: u64, len: u64) {
    let data = [Slice::pattern(tag, at, len as u32)];
    assert_eq!(v.pwrite(fd, at, &data).await, Ok(len));
}

async fn start(v: &Vfs, fd: Fd) {
    v.atomic_write(fd, AtomicWrite::Start).await.expect("starts");
}

async fn read(v: &Vfs, fd: Fd, at: u64, len: u64) -> Vec<u8> {
    Slice::concat(&v.pread(fd, at, len).await.expect("reads"))
}

/// A new file with ten blocks, and one that its inode has no address of; durable.
async fn made(v: &Vfs, name: &str) -> Fd {
    let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("opens");
    write(v, fd, 0, 1, 10 * BLOCK).await;
    write(v, fd, FAR, 1, BLOCK).await;
    v.sync().await.expect("syncs");
    fd
}

/// Plays on a new file system; the image after it, sound, and as it was before the unmount.
fn played<F>(setup: &Setup, what: &str, play: impl FnOnce(Vfs) -> F) -> (Medium, Medium)
where
    F: Future<Output = ()> + 'static,
{
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    w.run(play(vfs.clone()));
    let before = w.medium();
    w.unmount(&vfs);
    w.judge(setup, what);
    let after = w.medium();
    drop(vfs);
    w.end();
    (before, after)
}

/// Length and contents of a file on an image.
fn found(setup: &Setup, image: &Medium, name: &'static str) -> Vec<u8> {
    let w = World::empty(setup);
    w.load(image);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    let all = w.run(async move {
        let fd = v.open(name, OpenFlags::READ, 0).await.expect("opens");
        read(&v, fd, 0, 1 << 40).await
    });
    w.unmount(&vfs);
    w.judge(setup, "mounted again");
    drop(vfs);
    w.end();
    all
}

fn pattern(tag: u64, at: u64, len: u64) -> Vec<u8> {
    Slice::pattern(tag, at, len as u32).to_vec()
}

#[test]
fn a_commit_is_the_file_and_an_abort_is_not() {
    for setup in setups() {
        let (_, image) = played(&setup, "committed and aborted", |v| async move {
            let fd = made(&v, "f").await;
            start(&v, fd).await;
            write(&v, fd, 0, 2, BLOCK).await;
            write(&v, fd, 5 * BLOCK + 100, 2, 50).await;
            write(&v, fd, FAR, 2, 2 * BLOCK).await;
            // Who reads sees it; what left the cache too.
            assert_eq!(read(&v, fd, 0, BLOCK).await, pattern(2, 0, BLOCK));
            v.sync().await.expect("syncs");
            v.fs().drop_caches();
            assert_eq!(read(&v, fd, 0, BLOCK).await, pattern(2, 0, BLOCK));
            assert_eq!(read(&v, fd, FAR, 2 * BLOCK).await, pattern(2, FAR, 2 * BLOCK));
            v.atomic_write(fd, AtomicWrite::Commit).await.expect("commits");
            start(&v, fd).await;
            write(&v, fd, BLOCK, 3, BLOCK).await;
            write(&v, fd, FAR + 5 * BLOCK, 3, BLOCK).await;
            v.fsync(fd).await.expect("syncs");
            write(&v, fd, BLOCK, 4, BLOCK).await;
            v.atomic_write(fd, AtomicWrite::Abort).await.expect("aborts");
            assert_eq!(v.fstat(fd).await.expect("there").size, FAR + 2 * BLOCK);
            assert_eq!(read(&v, fd, BLOCK, BLOCK).await, pattern(1, BLOCK, BLOCK));
            // The last writer that closes aborts.
            start(&v, fd).await;
            write(&v, fd, 2 * BLOCK, 5, BLOCK).await;
            v.close(fd).await.expect("closes");
        });
        let all = found(&setup, &image, "f");
        assert_eq!(all.len() as u64, FAR + 2 * BLOCK);
        assert_eq!(all[..4096], pattern(2, 0, BLOCK));
        let mut part = pattern(1, 5 * BLOCK, BLOCK);
        part[100..150].copy_from_slice(&pattern(2, 5 * BLOCK + 100, 50));
        assert_eq!(all[5 * 4096..6 * 4096], part);
        assert_eq!(all[4096..3 * 4096], pattern(1, BLOCK, 2 * BLOCK));
        assert_eq!(all[FAR as usize..], pattern(2, FAR, 2 * BLOCK));
        drop(image);
        assert_nothing_lives();
    }
}

#[test]
fn a_replaced_file_has_nothing_of_what_was_there() {
    for setup in setups() {
        let (_, image) = played(&setup, "replaced", |v| async move {
            let fd = made(&v, "f").await;
            v.atomic_write(fd, AtomicWrite::Replace).await.expect("starts");
            assert_eq!(v.fstat(fd).await.expect("there").size, 0);
            write(&v, fd, 2 * BLOCK, 2, BLOCK).await;
            write(&v, fd, 6 * BLOCK, 2, 100).await;
            v.atomic_write(fd, AtomicWrite::Commit).await.expect("commits");
            v.fs().drop_caches();
        });
        let all = found(&setup, &image, "f");
        let mut want = vec![0; 6 * 4096];
        want[2 * 4096..3 * 4096].copy_from_slice(&pattern(2, 2 * BLOCK, BLOCK));
        want.extend(pattern(2, 6 * BLOCK, 100));
        assert!(all == want, "{} bytes", all.len());
    }
}

/// The checkpoint of a sync between START and COMMIT is what a power failure leaves.
#[test]
fn a_checkpoint_in_the_middle_has_the_old_length_and_the_old_blocks() {
    for setup in setups() {
        for replaces in [false, true] {
            let how = if replaces { AtomicWrite::Replace } else { AtomicWrite::Start };
            let (cut, _) = played(&setup, "cut", move |v| async move {
                let fd = made(&v, "f").await;
                v.atomic_write(fd, how).await.expect("starts");
                write(&v, fd, 0, 2, BLOCK).await;
                write(&v, fd, FAR + 40 * BLOCK, 2, 1000).await;
                v.chmod("f", 0o600).await.expect("changes");
                v.sync().await.expect("syncs");
                assert_eq!(v.fstat(fd).await.expect("there").size, FAR + 40 * BLOCK + 1000);
            });
            let all = found(&setup, &cut, "f");
            assert_eq!(all.len() as u64, FAR + BLOCK);
            assert_eq!(all[..10 * 4096], pattern(1, 0, 10 * BLOCK));
            assert_eq!(all[FAR as usize..], pattern(1, FAR, BLOCK));
        }
    }
}

/// Random transactions on a file, many times what is free, beside a model in memory.
#[test]
fn transactions_are_as_in_a_model_while_garbage_is_collected() {
    const BLOCKS: u64 = 5000;
    for setup in [
        Setup { mode: FsMode::Lfs, ..Setup::new("6.12") },
        Setup::new("6.18"),
        Setup { segments_per_section: 2, mib: 128, ..Setup::new("6.12") },
    ] {
        let tags = std::rc::Rc::new(std::cell::RefCell::new(vec![1; BLOCKS as usize]));
        let noted = tags.clone();
        let (_, image) = played(&setup, "random", |v| async move {
            let mut rng = wp_base::Rng::stream(1, "atomic");
            let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            for n in 0..BLOCKS {
                write(&v, fd, n * BLOCK, 1, BLOCK).await;
            }
            for round in 2..400 {
                let mut new = noted.borrow().clone();
                start(&v, fd).await;
                for _ in 0..1 + rng.below(80) {
                    let n = rng.below(BLOCKS);
                    write(&v, fd, n * BLOCK, round, BLOCK).await;
                    new[n as usize] = round;
                }
                match rng.below(8) {
                    0 => v.sync().await.expect("syncs"),
                    1 => v.fs().drop_caches(),
                    _ => {}
                }
                let how = match rng.below(5) {
                    0 => AtomicWrite::Abort,
                    _ => AtomicWrite::Commit,
                };
                v.atomic_write(fd, how).await.expect("ends");
                if how == AtomicWrite::Commit {
                    *noted.borrow_mut() = new;
                }
                let n = rng.below(BLOCKS);
                write(&v, fd, n * BLOCK, round + 1000, BLOCK).await;
                noted.borrow_mut()[n as usize] = round + 1000;
            }
        });
        let all = found(&setup, &image, "f");
        for (n, tag) in (0..).zip(tags.take()) {
            let want = pattern(tag, n * BLOCK, BLOCK);
            assert!(all[n as usize * 4096..][..4096] == want, "block {n}: {tag}");
        }
    }
}

async fn refused(v: &Vfs, fd: Fd, what: AtomicWrite) -> Result<(), &'static str> {
    v.atomic_write(fd, what).await.map_err(|e| e.errno())
}

#[test]
fn calls_are_refused_as_in_linux() {
    use AtomicWrite::{Abort, Commit, Replace, Start};
    let (_, image) = played(&Setup::new("6.12"), "refused", |v| async move {
        let fd = made(&v, "f").await;
        let reader = v.open("f", OpenFlags::READ, 0).await.expect("opens");
        let direct = OpenFlags { direct: true, ..OpenFlags::WRITE };
        let direct = v.open("f", direct, 0).await.expect("opens");
        let dir = v.open("/", OpenFlags::READ, 0).await.expect("opens");
        for what in [Start, Replace, Commit, Abort] {
            assert_eq!(refused(&v, reader, what).await, Err("EBADF"));
            assert_eq!(refused(&v, dir, what).await, Err("EBADF"));
            assert_eq!(refused(&v, Fd(99), what).await, Err("EBADF"));
        }
        assert_eq!(refused(&v, direct, Start).await, Err("EINVAL"));
        // Without a start these do nothing, or what fdatasync does.
        assert_eq!(refused(&v, fd, Abort).await, Ok(()));
        assert_eq!(refused(&v, fd, Commit).await, Ok(()));
        start(&v, fd).await;
        start(&v, fd).await;
        let data = [Slice::pattern(1, 0, 4096)];
        let wrote: FsResult<u64> = v.pwrite(direct, 0, &data).await;
        assert_eq!(wrote.map_err(|e| e.errno()), Err("EOPNOTSUPP"));
        assert_eq!(v.write_mapped(fd, 0, &data).await, Err(FsError::Fault));
        let cut = v.ftruncate(fd, 0).await;
        assert!(matches!(cut, Err(FsError::Unsupported(_))), "{cut:?}");
        assert_eq!(refused(&v, fd, Commit).await, Ok(()));
        v.ftruncate(fd, BLOCK).await.expect("it is over");
    });
    drop(image);
    for (era, start, replace) in
        [("5.15", "EOPNOTSUPP", "EOPNOTSUPP"), ("6.1", "", "ENOTTY"), ("6.2", "", "")]
    {
        let (_, image) = played(&Setup::new(era), era, move |v| async move {
            let fd = made(&v, "f").await;
            let expected = |errno: &'static str| if errno.is_empty() { Ok(()) } else { Err(errno) };
            assert_eq!(refused(&v, fd, Start).await, expected(start), "{era}");
            refused(&v, fd, Abort).await.unwrap_or_default();
            assert_eq!(refused(&v, fd, Replace).await, expected(replace), "{era}");
        });
        drop(image);
    }
    assert_nothing_lives();
}
