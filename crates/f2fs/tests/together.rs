//! Several tasks at once on the same files, and volumes that run full: nothing hangs, nothing
//! breaks, and what is left is sound.

use std::rc::Rc;

use crate::world::{Setup, World, assert_nothing_lives};
use wp_base::{FsError, Rng, Span};
use wp_f2fs::fs::{DirectMode, FsMode, FsyncMode};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Reserve, Vfs, XattrSet};

const ZONES: &[(&str, u64)] = &[
    ("zone_bytes", 16 << 20),
    ("pages_per_block", 12),
    ("blocks_per_plane", 48),
    ("conventional_zones", 8),
];

/// Errors that a program may meet where others change names and files under it.
fn is_fair(e: &FsError) -> bool {
    use FsError::*;
    matches!(
        e,
        Exists
            | Invalid(_)
            | IsDir
            | Loop
            | NoData
            | NoSpace
            | NotDir
            | NotEmpty
            | NotFound
            | NotPermitted
    ) || matches!(e, FsError::Unsupported(why) if why.contains("mode=lfs"))
}

fn path(rng: &mut Rng) -> String {
    let n = rng.below(6);
    match rng.below(3) {
        0 => format!("f{n}"),
        1 => format!("d{}/f{n}", rng.below(2)),
        _ => format!("d{}", rng.below(3)),
    }
}

async fn one(v: &Vfs, rng: &mut Rng, reach: u64) -> Result<(), FsError> {
    let (a, b) = (path(rng), path(rng));
    let (at, len) = (rng.below(reach), 1 + rng.below(reach / 4));
    match rng.below(16) {
        0..6 => {
            let direct = rng.below(5) == 0;
            let flags = OpenFlags { direct, ..OpenFlags::CREATE };
            let fd = v.open(&a, flags, 0o644).await?;
            let (at, len) = match direct {
                true => (at / 4096 * 4096, len.next_multiple_of(4096)),
                false => (at, len),
            };
            let out = v.pwrite(fd, at, &[Slice::pattern(at, 0, len as u32)]).await;
            let synced = match rng.below(3) {
                0 => v.fsync(fd).await,
                1 => v.fdatasync(fd).await,
                _ => Ok(()),
            };
            v.close(fd).await?;
            out?;
            synced
        }
        6 => v.truncate(&a, at).await,
        7 => v.unlink(&a).await,
        8 => v.mkdir(&a, 0o755).await,
        9 => v.rmdir(&a).await,
        10 => v.rename(&a, &b).await,
        11 => v.link(&a, &b).await,
        12 => {
            let fd = v.open(&a, OpenFlags::WRITE, 0).await?;
            let how = match rng.below(5) {
                0 => Reserve::Punch,
                1 => Reserve::Zero { keep_size: false },
                2 => Reserve::Collapse,
                3 => Reserve::Insert,
                _ => Reserve::Space { keep_size: true },
            };
            let out = v.fallocate(fd, how, at / 4096 * 4096, len.next_multiple_of(4096)).await;
            v.close(fd).await?;
            out
        }
        13 => {
            let fd = v.open(&a, OpenFlags::READ, 0).await?;
            let out = v.pread(fd, at, len).await.map(|_| ());
            v.close(fd).await?;
            out
        }
        14 => v.set_xattr(&a, "user.x", &vec![7; 1 + (len % 900) as usize], XattrSet::Any).await,
        _ if rng.below(6) == 0 => v.sync().await,
        _ => {
            v.fs().drop_caches();
            v.read_dir("").await.map(|_| ())
        }
    }
}

fn storm(setup: &Setup, tasks: u64, steps: u32, reach: u64, seed: u64) {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, rt) = (Rc::new(vfs.clone()), w.rt.clone());
    let done = w.run(async move {
        let mut joins = Vec::new();
        for task in 0..tasks {
            let (v, t) = (v.clone(), rt.clone());
            joins.push(rt.spawn("storm", async move {
                let mut rng = Rng::stream(seed, &format!("task {task}"));
                let mut worked = 0;
                for step in 0..steps {
                    match one(&v, &mut rng, reach).await {
                        Ok(()) => worked += 1,
                        Err(e) if is_fair(&e) => {}
                        Err(e) => panic!("seed {seed}, task {task}, step {step}: {e}"),
                    }
                    if rng.below(20) == 0 {
                        t.sleep(Span::millis(rng.below(3000))).await;
                    }
                }
                worked
            }));
        }
        let mut all = 0;
        for join in joins {
            all += join.await;
        }
        all
    });
    assert!(done > tasks as u32 * steps / 4, "seed {seed}: only {done} calls did something");
    w.unmount(&vfs);
    w.judge(setup, &format!("storm, seed {seed}"));
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |key| std::env::var(key).ok().and_then(|s| s.parse().ok());
    let first = number("F2FS_FIRST").unwrap_or(0);
    first..first + number("F2FS_PROGRAMS").unwrap_or(default)
}

#[test]
fn tasks_on_the_same_small_files_leave_a_sound_image() {
    for seed in seeds(6) {
        storm(&Setup::new("6.18"), 5, 120, 12_000, seed);
    }
}

#[test]
fn tasks_on_the_same_large_files_leave_a_sound_image() {
    let lfs = Setup { mode: FsMode::Lfs, ..Setup::new("6.1") };
    let strict = Setup { fsync_mode: FsyncMode::Strict, ..Setup::new("6.12") };
    for seed in seeds(3) {
        storm(&lfs, 4, 80, 3 << 20, 100 + seed);
        storm(&strict, 4, 80, 3 << 20, 200 + seed);
    }
}

#[test]
fn tasks_that_write_directly_to_the_log_leave_a_sound_image() {
    let today = Setup { direct: DirectMode::Log, ..Setup::new("6.18") };
    let lfs = Setup { mode: FsMode::Lfs, ..today.clone() };
    let zoned = Setup { device: "zn540", params: ZONES, mib: 768, ..today.clone() };
    for seed in seeds(3) {
        storm(&today, 5, 120, 12_000, 300 + seed);
        storm(&lfs, 4, 80, 3 << 20, 400 + seed);
        storm(&zoned, 4, 80, 3 << 20, 500 + seed);
    }
}

/// Fills a volume, frees some of it, and fills it again.
fn fill(setup: &Setup) {
    let flags = OpenFlags { direct: setup.direct == DirectMode::Log, ..OpenFlags::CREATE };
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        for round in 0..3u64 {
            let mut wrote = 0;
            'full: for n in 0..1000u64 {
                let name = format!("r{round}-{n}");
                let fd = match v.open(&name, flags, 0o644).await {
                    Err(FsError::NoSpace) => break,
                    fd => fd.expect("opens"),
                };
                for part in 0..4u64 {
                    let data = Slice::pattern(round + n, part << 19, 1 << 19);
                    match v.pwrite(fd, part << 19, &[data]).await {
                        Ok(got) if got == 1 << 19 => wrote += got,
                        Ok(_) | Err(FsError::NoSpace) => {
                            v.close(fd).await.expect("closes");
                            break 'full;
                        }
                        Err(e) => panic!("round {round}, file {n}: {e}"),
                    }
                }
                v.close(fd).await.expect("closes");
            }
            let stat = v.stat_fs().await.expect("tells");
            assert!(wrote >= 2 << 20, "round {round}: {wrote} bytes only, {stat:?}");
            v.sync().await.expect("syncs");
            for n in (0..1000u64).step_by(2) {
                match v.unlink(&format!("r{round}-{n}")).await {
                    Ok(()) | Err(FsError::NotFound) => {}
                    Err(e) => panic!("round {round}: {e}"),
                }
            }
        }
    });
    w.unmount(&vfs);
    w.judge(setup, "filled");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

#[test]
fn a_volume_that_runs_full_says_so_and_goes_on_when_there_is_room() {
    fill(&Setup { mib: 64, ..Setup::new("6.18") });
    fill(&Setup { mib: 64, mode: FsMode::Lfs, ..Setup::new("6.1") });
    fill(&Setup { mib: 64, direct: DirectMode::Log, ..Setup::new("6.18") });
}

/// Two files that change without end, one directly, on a volume that is so full that segments are
/// collected all the time.
fn overwrite_and_collect(setup: &Setup, (blocks, steps): (u64, u64), seed: u64) {
    let w = World::fresh(setup);
    let vfs = w.mount(setup).expect("mounts");
    let (v, rt) = (Rc::new(vfs.clone()), w.rt.clone());
    w.run(async move {
        // Blocks of both files, one by one in turn, so that no segment is one file's alone.
        let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
        let fds = [v.open("a", direct, 0o644).await, v.open("b", OpenFlags::CREATE, 0o644).await];
        let fds = fds.map(|fd| fd.expect("opens"));
        for block in 0..blocks {
            for fd in fds {
                let data = Slice::pattern(block, 0, 4096);
                v.pwrite(fd, block * 4096, &[data]).await.expect("writes");
                if fd == fds[1] && block % 64 == 63 {
                    v.fsync(fd).await.expect("syncs");
                }
            }
        }
        v.sync().await.expect("syncs");
        let mut joins = Vec::new();
        for (task, fd) in fds.into_iter().enumerate() {
            let v = v.clone();
            joins.push(rt.spawn("overwrite", async move {
                let mut rng = Rng::stream(seed, &format!("task {task}"));
                let mut tags: Vec<u64> = (0..blocks).collect();
                for step in 0..steps {
                    let block = rng.below(blocks);
                    tags[block as usize] = 10_000 + step;
                    let data = Slice::pattern(10_000 + step, 0, 4096);
                    v.pwrite(fd, block * 4096, &[data]).await.expect("writes");
                    if step % 16 == 15 {
                        v.fsync(fd).await.expect("syncs");
                    }
                }
                for (block, tag) in (0..).zip(tags) {
                    let got = v.pread(fd, block * 4096, 4096).await.expect("reads");
                    let got: Vec<u8> = Slice::concat(&got);
                    let want = Slice::pattern(tag, 0, 4096).to_vec();
                    assert!(got == want, "seed {seed}, task {task}, block {block}: not its bytes");
                }
                v.close(fd).await.expect("closes");
            }));
        }
        for join in joins {
            join.await;
        }
    });
    w.unmount(&vfs);
    w.judge(setup, "overwritten and collected");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}

#[test]
fn blocks_that_direct_writes_overwrite_are_collected_beside() {
    let small = Setup { mib: 64, ..Setup::new("6.18") };
    let lfs = Setup { mode: FsMode::Lfs, ..small.clone() };
    let log = Setup { direct: DirectMode::Log, ..small.clone() };
    for seed in seeds(2) {
        overwrite_and_collect(&small, (1900, 3000), seed);
        overwrite_and_collect(&lfs, (1400, 6000), seed);
        overwrite_and_collect(&log, (1400, 6000), seed);
    }
}

/// Somebody who overwrites directly without pause does not keep another's fsync from its end.
#[test]
fn an_fsync_ends_although_direct_writes_go_on() {
    let setup = Setup { direct: DirectMode::Log, ..Setup::new("6.18") };
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let (v, rt) = (Rc::new(vfs.clone()), w.rt.clone());
    let writes = w.run(async move {
        let direct = OpenFlags { direct: true, ..OpenFlags::CREATE };
        let fd = v.open("f", direct, 0o644).await.expect("opens");
        v.pwrite(fd, 0, &[Slice::pattern(1, 0, 16 * 4096)]).await.expect("writes");
        v.sync().await.expect("syncs");
        let is_over = Rc::new(std::cell::Cell::new(false));
        let (w, over) = (v.clone(), is_over.clone());
        let writer = rt.spawn("writer", async move {
            let mut n = 0u64;
            while !over.get() && n < 2000 {
                let data = Slice::pattern(n, 0, 4096);
                w.pwrite(fd, n % 16 * 4096, &[data]).await.expect("writes");
                n += 1;
            }
            n
        });
        for _ in 0..3 {
            v.fsync(fd).await.expect("syncs");
        }
        is_over.set(true);
        let n = writer.await;
        v.close(fd).await.expect("closes");
        n
    });
    assert!((3..400).contains(&writes), "{writes} writes during three fsyncs");
    w.unmount(&vfs);
    w.judge(&setup, "fsync beside direct writes");
    drop(vfs);
    w.end();
    assert_nothing_lives();
}
