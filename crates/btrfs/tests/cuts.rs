//! What an fsync has made durable, and what a commit had before it, after a power cut: cases that
//! random programs seldom meet, one by one.

mod mounted;
mod skip;
mod tools;

use mounted::{Setup, World, assert_nothing_lives};
use wp_base::FsError;
use wp_medium::Slice;
use wp_rt::Rt;
use wp_vfs::{Fd, OpenFlags, Vfs};

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
    Ok(got.iter().flat_map(Slice::to_vec).collect())
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
