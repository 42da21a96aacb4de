//! A runtime with one disk, on which an image is mounted.

use std::rc::Rc;

use wp_base::{FsResult, Sector};
use wp_block::{Bio, BlockQueue, Partition, QueueConfig};
use wp_ext4::fs::era::Era;
use wp_ext4::fs::{DataMode, Ext4, MountOptions, Mounted};
use wp_medium::Medium;
use wp_rt::Rt;
use wp_vfs::{Fd, OpenFlags, Reserve, Vfs};

/// How an image is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Kernel.
    pub era: &'static str,
    /// `data=`.
    pub data: DataMode,
    /// `journal_async_commit`.
    pub async_commit: bool,
}

impl Setup {
    /// Ordered mode of a kernel.
    pub const fn of(era: &'static str) -> Setup {
        Setup { era, data: DataMode::Ordered, async_commit: false }
    }
}

/// The machine.
pub struct World {
    rt: Rt,
    queue: Rc<BlockQueue>,
    part: Partition,
}

impl World {
    /// A disk of `bytes` that holds `image`, as far as it has room.
    pub fn new(image: &Medium, bytes: u64) -> World {
        let rt = Rt::new(1);
        let device = wp_device::find("fixed").expect("a preset").make(&[]).expect("a device");
        let queue = BlockQueue::new(&rt, QueueConfig::default(), device);
        let part = queue.partition(Sector(0), bytes / 512);
        let (p, image) = (part.clone(), image.clone());
        let load = async move {
            for (at, sectors) in image.runs() {
                let sectors = sectors.min((bytes / 512).saturating_sub(at.0));
                let mut done = 0;
                while done < sectors {
                    let n = (sectors - done).min(512) as u32;
                    let at = at.advance(done);
                    let bio = Bio::write(at, image.read(at, n), Default::default());
                    p.submit_wait(bio).await.expect("written");
                    done += u64::from(n);
                }
            }
            p.flush().await.expect("flushed");
        };
        rt.block_on("load", load).expect("loads");
        World { rt, queue, part }
    }

    /// Its runtime.
    pub fn rt(&self) -> Rt {
        self.rt.clone()
    }

    /// Its disk.
    pub fn part(&self) -> Partition {
        self.part.clone()
    }

    /// Makes files. Unmounted if `is_clean`; else it stays as a power failure leaves it.
    pub fn furnish(&self, vfs: &Vfs, is_small: bool, is_clean: bool) {
        let v = vfs.clone();
        let open = self.run(async move { furnish(&v, is_small).await });
        if is_clean {
            let v = vfs.clone();
            self.run(async move {
                for fd in open {
                    v.close(fd).await.expect("closes");
                }
                v.fs().unmount().await.expect("unmounts");
            });
        }
    }

    /// Mounts it. Panics if that does not end.
    pub fn mount(&self, setup: &Setup) -> FsResult<Vfs> {
        let era = Era::of(wp_ext4::fs::era::version(setup.era).expect("a version"));
        let mut o = MountOptions::new(era, "sdb1", 8, 16);
        o.data = setup.data;
        o.delalloc = setup.data != DataMode::Journal;
        o.async_commit = setup.async_commit;
        let (rt, part) = (self.rt.clone(), self.part.clone());
        let fs = self.run(async move { Ext4::mount(&rt, part, o).await })?;
        Ok(Vfs::new(&self.rt, Rc::new(Mounted(fs))))
    }

    /// Runs to the end. Panics if that does not come: a deadlock or a livelock.
    pub fn run<T: 'static>(&self, fut: impl Future<Output = T> + 'static) -> T {
        self.rt.block_on("program", fut).unwrap_or_else(|end| panic!("{end:?}"))
    }

    /// What the device holds.
    pub fn medium(&self) -> Medium {
        self.queue.with_device(|d| d.medium())
    }

    /// Power off. Panics if anything outlives it.
    pub fn end(self) {
        let rt = self.rt.clone();
        drop(self);
        rt.cut();
    }
}

/// What the base images of ours hold: files of many shapes, links, attributes, a deleted file that
/// is still open, and something of it in the log.
async fn furnish(v: &Vfs, is_small: bool) -> Vec<Fd> {
    let data = |seed: u64, len: u32| [wp_medium::Slice::pattern(seed, 0, len)];
    for (d, files) in [("a", 12u64), ("many", if is_small { 20 } else { 60 })] {
        v.mkdir(d, 0o755).await.expect("makes a directory");
        for n in 0..files {
            let name = format!("{d}/a file with a name of some length {n}");
            let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
            if d == "a" {
                for k in 0..n {
                    v.pwrite(fd, k * 5000, &data(n, 900)).await.expect("writes");
                }
            }
            v.close(fd).await.expect("closes");
        }
    }
    v.sync().await.expect("syncs");
    v.mkdir("a/sub", 0o755).await.expect("makes a directory");
    v.symlink("a/sub", "short").await.expect("links");
    v.symlink(&"long/".repeat(20), "long").await.expect("links");
    v.link("many/a file with a name of some length 3", "a/sub/again").await.expect("links");
    for n in 4..9 {
        v.unlink(&format!("many/a file with a name of some length {n}")).await.expect("removes");
    }
    let mut open = Vec::new();
    for (name, len) in [("gone", 9000), ("cut", 20_000), ("kept", 3000)] {
        let fd = v.open(name, OpenFlags::CREATE, 0o644).await.expect("opens");
        v.pwrite(fd, 0, &data(len.into(), len)).await.expect("writes");
        open.push(fd);
    }
    let space = Reserve::Space { keep_size: true };
    v.fallocate(open[2], space, 8192, 40_000).await.expect("reserves");
    v.fsync(open[1]).await.expect("syncs");
    v.unlink("gone").await.expect("removes");
    v.ftruncate(open[1], 5000).await.expect("cuts");
    v.rename("a/a file with a name of some length 1", "a/sub/moved").await.expect("moves");
    v.fsync(open[2]).await.expect("syncs");
    open
}
