//! What the tests of the mounted file system share: a machine with one disk, and who judges its
//! images.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use wp_base::{FsResult, Sector, live};
use wp_block::{Bio, BlockQueue, DeviceModel, Partition, QueueConfig};
use wp_btrfs::check::{CheckOptions, check};
use wp_btrfs::disk::CsumKind;
use wp_btrfs::fs::{Btrfs, MountOptions, Mounted};
use wp_btrfs::mkfs::{MkfsOptions, mkfs};
use wp_btrfs::replay::RecoverOptions;
use wp_medium::{Medium, MediumView, Slice};
use wp_rt::Rt;
use wp_vfs::Vfs;

use crate::tools;

/// What to make.
#[derive(Clone)]
pub struct Setup {
    pub mib: u64,
    pub node_bytes: u32,
    pub dup: bool,
    pub csum: CsumKind,
    pub device: &'static str,
    pub mount: MountOptions,
}

impl Setup {
    pub fn new() -> Setup {
        Setup {
            mib: 256,
            node_bytes: 16384,
            dup: true,
            csum: CsumKind::Crc32c,
            device: "fixed",
            mount: MountOptions { epoch_secs: 1_700_000_000, ..MountOptions::default() },
        }
    }

    pub fn mkfs(&self) -> Medium {
        let mut o = MkfsOptions::new(self.mib << 20);
        (o.node_bytes, o.dup_metadata, o.csum) = (self.node_bytes, self.dup, self.csum);
        let mut m = Medium::new();
        mkfs(&o).expect("possible options").write_to(&mut m);
        m
    }
}

/// A runtime with one disk.
pub struct World {
    pub rt: Rt,
    pub queue: Rc<BlockQueue>,
    pub part: Partition,
}

impl World {
    /// An empty disk.
    pub fn empty(setup: &Setup) -> World {
        World::around(setup, |device| device)
    }

    /// An empty disk, and what `wrap` puts around it.
    pub fn around(
        setup: &Setup,
        wrap: impl FnOnce(Box<dyn DeviceModel>) -> Box<dyn DeviceModel>,
    ) -> World {
        let rt = Rt::new(1);
        let entry = wp_device::find(setup.device).expect("a preset");
        let device = wrap(entry.make(&[]).expect("a device"));
        let config = QueueConfig::for_kernel((6, 12), None).expect("has a default");
        let queue = BlockQueue::new(&rt, config, device);
        let part = queue.partition(Sector(0), setup.mib << 11);
        World { rt, queue, part }
    }

    /// Puts an image on the disk.
    pub fn load(&self, image: &Medium) {
        let (p, image) = (self.part.clone(), image.clone());
        let load = async move {
            for (at, sectors) in image.runs() {
                let mut done = 0;
                while done < sectors {
                    let n = (sectors - done).min(512) as u32;
                    let (at, flags) = (at.advance(done), Default::default());
                    let bio = Bio::write(at, image.read(at, n), flags);
                    p.submit_wait(bio).await.expect("written");
                    done += u64::from(n);
                }
            }
            p.flush().await.expect("flushed");
        };
        self.rt.block_on("load", load).expect("loads");
    }

    pub fn fresh(setup: &Setup) -> World {
        let w = World::empty(setup);
        w.load(&setup.mkfs());
        w
    }

    pub fn mount(&self, setup: &Setup) -> FsResult<Vfs> {
        let (rt, part, options) = (self.rt.clone(), self.part.clone(), setup.mount.clone());
        let mount = async move { Btrfs::mount(&rt, part, options).await };
        let fs = self.rt.block_on("mount", mount).expect("runs")?;
        Ok(Vfs::new(&self.rt, Rc::new(Mounted(fs))))
    }

    pub fn run<T: 'static>(&self, fut: impl Future<Output = T> + 'static) -> T {
        self.rt.block_on("test", fut).unwrap_or_else(|o| panic!("{o:?}"))
    }

    pub fn unmount(&self, vfs: &Vfs) {
        let fs = vfs.fs().clone();
        self.run(async move { fs.unmount().await }).expect("unmounts");
    }

    /// An unmount that cannot write everything.
    pub fn unmount_failing(&self, vfs: &Vfs) {
        let fs = vfs.fs().clone();
        self.run(async move { fs.unmount().await }).expect_err("something is lost");
    }

    pub fn medium(&self) -> Medium {
        self.queue.with_device(|d| d.medium())
    }

    /// What is left if the power goes now and everything goes that may.
    pub fn durable(&self) -> Medium {
        let now = self.rt.now();
        self.queue.with_device(|d| d.crash_view(now).medium)
    }

    /// `btrfs check` has nothing to say of the image.
    pub fn judge(&self, setup: &Setup, what: &str) {
        judge(&self.medium(), setup.mib, what);
    }

    /// The power goes now, and all that may go; what a mount then has.
    pub fn cut(self) -> Medium {
        let medium = self.durable();
        self.end();
        medium
    }

    /// Power off: everything must go.
    pub fn end(self) {
        let rt = self.rt.clone();
        drop(self);
        rt.cut();
        drop(rt);
    }
}

/// Nothing of a world may outlive it.
pub fn assert_nothing_lives() {
    let left: Vec<_> = live::census().into_iter().filter(|(_, n)| *n > 0).collect();
    assert!(left.is_empty(), "still alive: {left:?}");
}

pub fn save(medium: &Medium, mib: u64, path: &Path) {
    let file = File::create(path).expect("created");
    file.set_len(mib << 20).expect("sized");
    for (at, sectors) in medium.runs() {
        for i in 0..sectors.div_ceil(256) {
            let n = (sectors - i * 256).min(256) as u32;
            let at = at.advance(i * 256);
            let bytes: Vec<u8> = Slice::concat(&medium.read(at, n));
            file.write_all_at(&bytes, at.bytes()).expect("written");
        }
    }
}

/// Our check has nothing to say of an image, as a mount finds it after its log's replay.
pub fn check_ours(medium: &Medium, mib: u64, what: &str) {
    let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: mib << 20 };
    let recover = Some(RecoverOptions::default());
    let report = check(&view, &CheckOptions { recover, contents: true }).expect("can be checked");
    assert!(report.is_clean(), "{what}: our check says {:#?}", report.findings);
}

/// Neither has `btrfs check` with checksums of data.
pub fn judge(medium: &Medium, mib: u64, what: &str) {
    check_ours(medium, mib, what);
    if !tools::has_tool("btrfs check", "btrfs") {
        return;
    }
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("image");
    save(medium, mib, &path);
    let said = tools::check(&path);
    if !said.is_empty() && std::env::var_os("KEEP_IMAGE").is_some() {
        eprintln!("{what}: kept in {}", dir.keep().display());
    }
    assert_eq!(said, "", "{what}: btrfs check");
}
