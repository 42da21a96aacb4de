//! What the tests of the mounted file system share: a machine with one disk, and who judges its
//! images.

use std::rc::Rc;

use wp_base::{FsResult, Sector, live};
use wp_block::{Bio, BlockQueue, DeviceModel, Partition, QueueConfig};
use wp_cache::WbPolicy;
use wp_medium::{Medium, MediumView, Slice, View};
use wp_nilfs2::check::{CheckOptions, check};
use wp_nilfs2::fs::{CleanerOptions, MountOptions, Mounted, Nilfs};
use wp_nilfs2::image::RecoverOptions;
use wp_nilfs2::mkfs::{MkfsOptions, mkfs};
use wp_rt::Rt;
use wp_vfs::Vfs;

/// What to make.
#[derive(Clone)]
pub struct Setup {
    pub mib: u64,
    pub block_bytes: u32,
    pub segment_blocks: u32,
    pub barrier: bool,
    pub strict_order: bool,
    pub cleaner: Option<CleanerOptions>,
    pub writeback: WbPolicy,
}

impl Setup {
    pub fn new() -> Setup {
        Setup {
            mib: 256,
            block_bytes: 4096,
            segment_blocks: 256,
            barrier: true,
            strict_order: false,
            cleaner: None,
            writeback: WbPolicy::default(),
        }
    }

    pub fn mkfs(&self) -> Medium {
        let mut o = MkfsOptions::new(self.mib << 20);
        (o.block_bytes, o.segment_blocks) = (self.block_bytes, self.segment_blocks);
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
        let entry = wp_device::find("fixed").expect("a preset");
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
        let (rt, part) = (self.rt.clone(), self.part.clone());
        let options = MountOptions {
            era: wp_nilfs2::era::Era::of(wp_vfs::Version(6, 12, 0)),
            barrier: setup.barrier,
            strict_order: setup.strict_order,
            sync_inodes: false,
            sync_nameless: false,
            flush_segments: false,
            await_flush: false,
            epoch_secs: 1_700_000_000,
            tick: wp_base::Span(4_000_000),
            cleaner: setup.cleaner.clone(),
            writeback: setup.writeback.clone(),
        };
        let mount = async move { Nilfs::mount(&rt, part, options).await };
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

    pub fn medium(&self) -> Medium {
        self.queue.with_device(|d| d.medium())
    }

    /// What is left if the power goes now and everything goes that may.
    pub fn durable(&self) -> Medium {
        let now = self.rt.now();
        self.queue.with_device(|d| d.crash_view(now).medium)
    }

    /// Our check has nothing to say of the image.
    pub fn judge(&self, what: &str) {
        let bytes = self.part.sectors() * 512;
        judge(&MediumView { medium: self.medium(), start: Sector(0), bytes }, what);
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

/// Our check has nothing to say of an image, as it is and after recovery.
pub fn judge(view: &dyn View, what: &str) {
    for recover in [None, Some(RecoverOptions::default())] {
        let report = check(view, &CheckOptions { recover }).expect("can be checked");
        assert!(report.is_clean(), "{what}: our check says {:#?}", report.findings);
    }
}

/// An image in memory.
pub fn view_of(bytes: &[u8]) -> MediumView {
    let mut medium = Medium::new();
    for (sector, part) in (0..).zip(bytes.chunks(512)).filter(|(_, p)| p.iter().any(|b| *b != 0)) {
        medium.write(Sector(sector), &Slice::from_bytes(part));
    }
    MediumView { medium, start: Sector(0), bytes: bytes.len() as u64 }
}
