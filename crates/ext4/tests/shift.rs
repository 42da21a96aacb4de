//! Ranges taken out of files and put into them, against a model in memory and e2fsck; stores
//! through mappings; files without a name.

use wp_base::{FsError, Rng};
use wp_ext4::fs::DataMode;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, RenameHow, Reserve, Vfs};

use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives};

async fn read(v: &Vfs, name: &str) -> Vec<u8> {
    let fd = v.open(name, OpenFlags::READ, 0).await.expect("opens");
    let got = v.pread(fd, 0, 1 << 30).await.expect("reads");
    v.close(fd).await.expect("closes");
    Slice::concat(&got)
}

/// A file of so many extents that its tree has leaves of their own, and what it holds.
async fn scattered(v: &Vfs, block: u64, blocks: u64) -> Vec<u8> {
    let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
    let mut model = vec![0; (blocks * block) as usize];
    for b in (0..blocks).filter(|b| b % 3 != 1) {
        let s = Slice::pattern(b + 1, 0, block as u32);
        model[(b * block) as usize..((b + 1) * block) as usize].copy_from_slice(&s.to_vec());
        v.pwrite(fd, b * block, &[s]).await.expect("writes");
        if b % 7 == 0 {
            v.fsync(fd).await.expect("syncs");
        }
    }
    v.ftruncate(fd, blocks * block).await.expect("sets the length");
    v.close(fd).await.expect("closes");
    model
}

#[test]
fn what_is_behind_a_range_moves_and_nothing_else() {
    for (era, data, block_size) in [
        ("6.18", DataMode::Ordered, 4096),
        ("6.12", DataMode::Ordered, 1024),
        ("5.10", DataMode::Journal, 4096),
    ] {
        let setup = Setup { data, block_size, ..Setup::new(era) };
        let block = u64::from(block_size);
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        let model = w.run(async move {
            let mut model = scattered(&v, block, 900).await;
            let fd = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
            let mut rng = Rng::stream(7, "shift");
            for n in 0..60 {
                let blocks = model.len() as u64 / block;
                let at = rng.below(blocks - 1);
                let many = (1 + rng.below(40)).min(blocks - at - 1);
                let (offset, len) = (at * block, many * block);
                if n % 2 == 0 {
                    v.fallocate(fd, Reserve::Collapse, offset, len).await.expect("collapses");
                    model.drain(offset as usize..(offset + len) as usize);
                } else {
                    v.fallocate(fd, Reserve::Insert, offset, len).await.expect("inserts");
                    let zeroes = vec![0; len as usize];
                    model.splice(offset as usize..offset as usize, zeroes);
                }
                if n % 5 == 0 {
                    let s = Slice::pattern(1000 + n, 0, 3000);
                    let at = rng.below(model.len() as u64 - 3000);
                    model[at as usize..at as usize + 3000].copy_from_slice(&s.to_vec());
                    v.write_mapped(fd, at, &[s]).await.expect("stores");
                }
                assert!(read(&v, "f").await == model, "{era}: call {n}");
            }
            v.close(fd).await.expect("closes");
            model
        });
        w.unmount(&vfs);
        let image = w.medium();
        assert_e2fsck_clean(&image, setup.mib, era);
        drop(vfs);
        w.end();
        let w = World::with_image(&setup, &image);
        let vfs = w.mount(&setup).expect("mounts again");
        let v = vfs.clone();
        w.run(async move {
            assert!(read(&v, "f").await == model, "{era}: after a mount");
            let fd = v.open("f", OpenFlags::WRITE, 0).await.expect("opens");
            for (offset, len) in [(1, block), (block, 100), (0, 0)] {
                let no = v.fallocate(fd, Reserve::Collapse, offset, len).await;
                assert!(matches!(no, Err(FsError::Invalid(_))), "{offset} {len}: {no:?}");
            }
            let far = model.len() as u64 / block * block;
            for how in [Reserve::Collapse, Reserve::Insert] {
                let no = v.fallocate(fd, how, far, block).await;
                assert!(matches!(no, Err(FsError::Invalid(_))), "{how:?}: {no:?}");
            }
        });
        drop((vfs, image));
        w.end();
        assert_nothing_lives();
    }
}

#[test]
fn kernels_without_these_calls_answer_as_they_did() {
    let setup = Setup::new("3.4");
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let fd = v.open("f", OpenFlags::CREATE, 0o644).await.expect("opens");
        v.pwrite(fd, 0, &[Slice::pattern(1, 0, 16384)]).await.expect("writes");
        for how in [Reserve::Collapse, Reserve::Insert] {
            assert_eq!(v.fallocate(fd, how, 0, 4096).await, Err(FsError::NotInKernel));
        }
        let swap = v.renameat2("f", "f", RenameHow::Exchange).await;
        assert_eq!(swap, Err(FsError::NoSuchCall));
        let unnamed = OpenFlags { unnamed: true, ..OpenFlags::WRITE };
        assert_eq!(v.open("/", unnamed, 0o600).await, Err(FsError::IsDir));
        let copy = v.copy_file_range((fd, 0), (fd, 20_000), 100).await;
        assert_eq!(copy, Err(FsError::NoSuchCall));
    });
    drop(vfs);
    w.end();
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let setup = Setup::new("6.18");
    let w = World::fresh(&setup);
    let vfs = w.mount(&setup).expect("mounts");
    let v = vfs.clone();
    w.run(async move {
        let free = v.stat_fs().await.expect("tells");
        let unnamed = OpenFlags { unnamed: true, ..OpenFlags::WRITE };
        let fd = v.open("/", unnamed, 0o600).await.expect("makes one");
        v.pwrite(fd, 0, &[Slice::pattern(1, 0, 8192)]).await.expect("writes");
        v.fsync(fd).await.expect("syncs");
        assert_eq!(v.fstat(fd).await.expect("tells").nlink, 0);
        assert_eq!(v.read_dir("/").await.expect("lists").len(), 1);
        v.linkat(fd, "a").await.expect("gets a name");
        v.linkat(fd, "b").await.expect("and another");
        assert_eq!(v.linkat(fd, "a").await, Err(FsError::Exists));
        assert_eq!(v.stat("a").await.expect("is there").nlink, 2);
        v.close(fd).await.expect("closes");
        v.unlink("a").await.expect("goes");
        v.unlink("b").await.expect("goes");
        // One that may not get a name, and one that nobody names.
        let flags = OpenFlags { exclusive: true, ..unnamed };
        let fd = v.open("/", flags, 0o600).await.expect("makes one");
        assert_eq!(v.linkat(fd, "c").await, Err(FsError::NotFound));
        v.close(fd).await.expect("closes");
        let read_only = OpenFlags { unnamed: true, ..OpenFlags::READ };
        assert!(matches!(v.open("/", read_only, 0o600).await, Err(FsError::Invalid(_))));
        v.sync().await.expect("syncs");
        assert_eq!(v.stat_fs().await.expect("tells").inodes_free, free.inodes_free);
    });
    w.unmount(&vfs);
    assert_e2fsck_clean(&w.medium(), setup.mib, "unnamed");
    drop(vfs);
    w.end();
}
