//! The mounted file system: what it leaves on the medium is sound for us and for fsck.f2fs.

use crate::world::{Setup, World, assert_nothing_lives};
use wp_f2fs::fs::{DirectMode, FsMode, FsyncMode};
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

async fn put(v: &Vfs, name: &str, at: u64, data: Slice) {
    let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("opens");
    let len = u64::from(data.len());
    assert_eq!(v.pwrite(fd, at, &[data]).await.expect("writes"), len);
    v.close(fd).await.expect("closes");
}

async fn read_all(v: &Vfs, name: &str) -> Vec<u8> {
    let fd = v.open(name, OpenFlags::READ, 0).await.expect("opens");
    let got = v.pread(fd, 0, 1 << 40).await.expect("reads");
    v.close(fd).await.expect("closes");
    Slice::concat(&got)
}

const ZONES: &[(&str, u64)] = &[
    ("zone_bytes", 16 << 20),
    ("pages_per_block", 12),
    ("blocks_per_plane", 48),
    ("conventional_zones", 8),
];

/// Half as many.
const FEW_ZONES: &[(&str, u64)] = &[
    ("zone_bytes", 16 << 20),
    ("pages_per_block", 12),
    ("blocks_per_plane", 24),
    ("conventional_zones", 8),
];

/// Every way to mount that is to leave a sound image.
fn setups() -> Vec<Setup> {
    let mut out = Vec::new();
    for era in ["5.14", "6.1", "6.12", "6.18"] {
        out.push(Setup::new(era));
    }
    let today = Setup::new("6.18");
    out.push(Setup { mode: FsMode::Lfs, ..today.clone() });
    out.push(Setup { fsync_mode: FsyncMode::Strict, ..today.clone() });
    out.push(Setup { fsync_mode: FsyncMode::NoBarrier, barrier: false, ..today.clone() });
    out.push(Setup { logs: 4, ..today.clone() });
    out.push(Setup { logs: 2, fastboot: true, ..today.clone() });
    out.push(Setup { features: &["extra_attr", "inode_checksum"], ..today.clone() });
    out.push(Setup { segments_per_section: 2, mib: 128, ..today });
    for era in ["5.14", "6.18"] {
        // 48 zones of 16 MiB that hold 12, eight of them conventional.
        out.push(Setup { device: "zn540", params: ZONES, mib: 768, ..Setup::new(era) });
    }
    out
}

#[test]
fn a_mount_and_unmount_leaves_a_sound_image() {
    for setup in setups() {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        w.unmount(&vfs);
        w.judge(&setup, "mount and unmount");
        drop(vfs);
        w.end();
        assert_nothing_lives();
    }
}

#[test]
fn what_was_written_is_there_after_another_mount() {
    for setup in setups() {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            put(&v, "small", 0, Slice::pattern(1, 0, 1000)).await;
            put(&v, "large", 4096, Slice::pattern(2, 0, 9 * 4096)).await;
            v.mkdir("d", 0o755).await.expect("makes");
            for i in 0..50 {
                put(&v, &format!("d/f{i}"), 0, Slice::pattern(i, 0, 5000)).await;
            }
            let fd = v.open("large", OpenFlags::READ, 0).await.expect("opens");
            v.fsync(fd).await.expect("syncs");
            v.close(fd).await.expect("closes");
        });
        w.unmount(&vfs);
        w.judge(&setup, "written");
        let image = w.medium();
        drop(vfs);
        w.end();
        let w = World::empty(&setup);
        w.load(&image);
        drop(image);
        let vfs = w.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        w.run(async move {
            assert_eq!(read_all(&v, "small").await, Slice::pattern(1, 0, 1000).to_vec());
            let large = read_all(&v, "large").await;
            assert_eq!(large[..4096], [0; 4096]);
            assert_eq!(large[4096..], Slice::pattern(2, 0, 9 * 4096).to_vec());
            for i in 0..50 {
                let want = Slice::pattern(i, 0, 5000).to_vec();
                assert_eq!(read_all(&v, &format!("d/f{i}")).await, want);
            }
        });
        w.unmount(&vfs);
        drop(vfs);
        w.end();
        assert_nothing_lives();
    }
}

/// Overwrites blocks of a file at random, many times what is free.
async fn churn(v: &Vfs, blocks: u64, writes: u64, direct: bool) -> Vec<u64> {
    let mut tags = vec![0; blocks as usize];
    let flags = OpenFlags { direct, ..OpenFlags::CREATE };
    let fd = v.open("f", flags, 0o644).await.expect("opens");
    let mut rng = wp_base::Rng::stream(1, "churn");
    for i in 0..blocks + writes {
        let n = if i < blocks { i } else { rng.below(blocks) };
        tags[n as usize] = i + 1;
        let data = Slice::pattern(i + 1, 0, 4096);
        v.pwrite(fd, n * 4096, &[data]).await.expect("writes");
        if i % 500 == 499 {
            v.fsync(fd).await.expect("syncs");
        }
    }
    v.close(fd).await.expect("closes");
    tags
}

#[test]
fn what_was_overwritten_is_collected_when_free_sections_run_out() {
    let lfs = Setup { mode: FsMode::Lfs, ..Setup::new("6.18") };
    let sections = Setup { segments_per_section: 2, mib: 128, ..lfs.clone() };
    let zoned = Setup { device: "zn540", params: ZONES, mib: 768, ..Setup::new("6.18") };
    let logged = |setup: &Setup| Setup { direct: DirectMode::Log, ..setup.clone() };
    // Blocks of the file, and overwrites: together more than the device holds.
    for (setup, blocks, writes) in [
        (logged(&lfs), 6_000, 14_000),
        (logged(&Setup::new("6.1")), 6_000, 8_000),
        (logged(&Setup { params: FEW_ZONES, mib: 384, ..zoned.clone() }), 10_000, 45_000),
        (lfs, 6_000, 14_000),
        (Setup::new("6.1"), 6_000, 8_000),
        (sections, 7_000, 20_000),
        (zoned, 20_000, 90_000),
    ] {
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let (v, direct) = (vfs.clone(), setup.direct == DirectMode::Log);
        let tags = w.run(async move { churn(&v, blocks, writes, direct).await });
        w.unmount(&vfs);
        w.judge(&setup, "collected");
        let image = w.medium();
        drop(vfs);
        w.end();
        if setup.device == "fixed" {
            let w = World::empty(&setup);
            w.load(&image);
            let vfs = w.mount(&setup).expect("mounts again");
            let v = vfs.clone();
            w.run(async move {
                let all = read_all(&v, "f").await;
                for (n, tag) in tags.into_iter().enumerate() {
                    let want = Slice::pattern(tag, 0, 4096).to_vec();
                    assert!(all[n * 4096..][..4096] == want, "block {n}");
                }
            });
            drop(vfs);
            w.end();
        }
        drop(image);
        assert_nothing_lives();
    }
}
