//! Several tasks at once: writes beside writeback, commits, cuts and deletions; and what a power
//! cut leaves of it.

use crate::mounted::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, Rng, Span};
use wp_medium::{Medium, Slice};
use wp_rt::{Rt, join_all};
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

async fn put(v: &Vfs, fd: Fd, byte: u8, at: u64, len: usize) {
    let data: Vec<Slice> = vec![byte; len].chunks(4096).map(Slice::from_bytes).collect();
    assert_eq!(v.pwrite(fd, at, &data).await, Ok(len as u64));
}

async fn bytes(v: &Vfs, path: &str) -> Result<Vec<u8>, FsError> {
    let fd = v.open(path, OpenFlags::READ, 0).await?;
    let got = v.pread(fd, 0, 1 << 40).await?;
    v.close(fd).await?;
    Ok(Slice::concat(&got))
}

/// One task: changes a file of its own, and names that others change too.
async fn storm(v: Vfs, rt: Rt, task: u64, seed: u64) -> Vec<u8> {
    let mut rng = Rng::stream(seed * 100 + task, "storm");
    let path = format!("own{task}");
    let mut own: Vec<u8> = Vec::new();
    for step in 0..150 {
        let direct = rng.below(8) == 0;
        let flags = OpenFlags { direct, ..OpenFlags::CREATE };
        let fd = v.open(&path, flags, 0o644).await.expect("opens");
        match rng.below(12) {
            0..6 => {
                let (mut at, mut len) = (rng.below(200_000), 1 + rng.below(60_000));
                if direct {
                    (at, len) = (at / 4096 * 4096, len.next_multiple_of(4096));
                }
                put(&v, fd, step as u8, at, len as usize).await;
                let end = (at + len) as usize;
                own.resize(own.len().max(end), 0);
                own[at as usize..end].fill(step as u8);
            }
            6 => {
                let size = rng.below(200_000);
                v.truncate(&path, size).await.expect("cuts");
                own.resize(size as usize, 0);
            }
            7 => v.fsync(fd).await.expect("syncs"),
            8 => {
                let (at, len) = (rng.below(200_000), 1 + rng.below(60_000));
                v.fallocate(fd, Reserve::Punch, at, len).await.expect("punches");
                let size = own.len();
                own[(at as usize).min(size)..((at + len) as usize).min(size)].fill(0);
            }
            9 => {
                // Names that are everybody's: each call does something or says why not.
                let (a, b) = (format!("n{}", rng.below(5)), format!("n{}", rng.below(5)));
                let _ = match rng.below(5) {
                    0 => v.link(&path, &a).await,
                    1 => v.rename(&a, &b).await,
                    2 => v.mkdir(&a, 0o755).await,
                    3 => v.rmdir(&a).await,
                    _ => v.unlink(&a).await,
                };
            }
            10 => {
                let got = bytes(&v, &path).await.expect("reads");
                assert!(got == own, "task {task} step {step}: its file");
            }
            _ => rt.sleep(Span::millis(rng.below(4000))).await,
        }
        v.close(fd).await.expect("closes");
    }
    own
}

#[test]
fn tasks_beside_each_other_find_what_they_wrote() {
    let mut setups = vec![Setup::new()];
    setups.push(Setup { node_bytes: 4096, device: "ssd-128", ..Setup::new() });
    let mut in_place = Setup::new();
    in_place.mount.datacow = false;
    setups.push(in_place);
    for (n, setup) in setups.iter().enumerate() {
        for seed in 0..2 {
            let w = World::fresh(setup);
            let vfs = w.mount(setup).expect("mounts");
            let (v, rt) = (vfs.clone(), w.rt.clone());
            let what = format!("setup {n} seed {seed}");
            let files = w.run(async move {
                let tasks: Vec<_> = (0..6)
                    .map(|t| rt.spawn(format!("task{t}"), storm(v.clone(), rt.clone(), t, seed)))
                    .collect();
                join_all(tasks).await
            });
            w.unmount(&vfs);
            w.judge(setup, &what);
            let image = w.medium();
            drop(vfs);
            w.end();
            let w = World::empty(setup);
            w.load(&image);
            drop(image);
            let vfs = w.mount(setup).expect("mounts again");
            let v = vfs.clone();
            w.run(async move {
                for (t, own) in files.iter().enumerate() {
                    let got = bytes(&v, &format!("own{t}")).await.unwrap_or_default();
                    assert!(got == *own, "{what}: file of task {t}");
                }
            });
            w.unmount(&vfs);
            drop(vfs);
            w.end();
        }
    }
    assert_nothing_lives();
}

/// Mounts what a cut left; what `path` has.
fn after_cut(setup: &Setup, durable: Medium, path: &'static str) -> Result<Vec<u8>, FsError> {
    let w = World::empty(setup);
    w.load(&durable);
    drop(durable);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    let out = w.run(async move { bytes(&v, path).await });
    w.unmount(&vfs);
    w.judge(setup, path);
    drop(vfs);
    w.end();
    out
}

#[test]
fn what_was_synced_is_there_after_a_cut() {
    for (round, treelog) in [(0, false), (1, true), (2, true)] {
        let mut setup = Setup { device: "ssd-128", ..Setup::new() };
        setup.mount.treelog = treelog;
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, rt) = (vfs.clone(), w.rt.clone());
        w.run(async move {
            let f = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
            put(&v, f, b'a', 0, 100_000).await;
            v.fsync(f).await.expect("syncs");
            if round == 2 {
                v.sync().await.expect("syncs");
                rt.sleep(Span::secs(1)).await;
            }
            put(&v, f, b'b', 50_000, 100_000).await;
            v.rename("f", "g").await.expect("renames");
            v.fsync(f).await.expect("syncs");
            // Lost.
            put(&v, f, b'c', 0, 4096).await;
        });
        drop(vfs);
        let got = after_cut(&setup, w.cut(), "g").expect("is there");
        let want = [vec![b'a'; 50_000], vec![b'b'; 100_000]].concat();
        assert!(got == want, "round {round}: {} bytes, first {:?}", got.len(), got.first());
    }
    assert_nothing_lives();
}
