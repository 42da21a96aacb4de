//! What the tests of the mounted file system share: a machine with one disk, and who judges its
//! images.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use wp_base::{FsResult, Sector, live};
use wp_block::{Bio, BlockQueue, Partition, QueueConfig};
use wp_f2fs::check::{CheckOptions, check};
use wp_f2fs::era::Era;
use wp_f2fs::fs::{DirectMode, F2fs, FsMode, FsyncMode, MountOptions, Mounted};
use wp_f2fs::image::RecoverOptions;
use wp_f2fs::mkfs::{MkfsOptions, mkfs};
use wp_medium::{Medium, MediumView, Slice, WithZones};
use wp_rt::Rt;
use wp_vfs::{Version, Vfs};

/// What to make.
#[derive(Clone)]
pub struct Setup {
    pub mib: u64,
    pub era: &'static str,
    pub features: &'static [&'static str],
    pub device: &'static str,
    pub params: &'static [(&'static str, u64)],
    pub segments_per_section: u32,
    pub fsync_mode: FsyncMode,
    pub mode: FsMode,
    pub direct: DirectMode,
    pub barrier: bool,
    pub logs: u32,
    pub fastboot: bool,
}

impl Setup {
    pub fn new(era: &'static str) -> Setup {
        Setup {
            mib: 96,
            era,
            features: &[],
            device: "fixed",
            params: &[],
            segments_per_section: 1,
            fsync_mode: FsyncMode::Posix,
            mode: FsMode::Adaptive,
            direct: DirectMode::Linux,
            barrier: true,
            logs: 6,
            fastboot: false,
        }
    }

    pub fn mount_options(&self) -> MountOptions {
        let era = Era::of(Version::parse(self.era).expect("a version"));
        MountOptions {
            fsync_mode: self.fsync_mode,
            mode: self.mode,
            direct: self.direct,
            barrier: self.barrier,
            active_logs: self.logs,
            fastboot: self.fastboot,
            ..MountOptions::new(era, "sdb1", (8, 16))
        }
    }

    pub fn mkfs(&self, part: &Partition) -> Medium {
        let mut o = MkfsOptions::new(self.mib << 20);
        o.segments_per_section = self.segments_per_section;
        if let Some(limits) = part.limits().zones {
            o.zones = Some(limits.fresh());
            o.set_feature("blkzoned", true).expect("known");
        }
        for name in self.features {
            o.set_feature(name, true).expect("known");
        }
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
        let rt = Rt::new(1);
        let entry = wp_device::find(setup.device).expect("a preset");
        let device = entry.make(setup.params).expect("a device");
        // Who writes zones needs a queue that keeps their order.
        let Version(major, minor, _) = Version::parse(setup.era).expect("a version");
        let config = QueueConfig::for_kernel((major, minor), None).expect("has a default");
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
        w.load(&setup.mkfs(&w.part));
        w
    }

    pub fn mount(&self, setup: &Setup) -> FsResult<Vfs> {
        let (rt, part, o) = (self.rt.clone(), self.part.clone(), setup.mount_options());
        let mount = async move { F2fs::mount(&rt, vec![part], o).await };
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

    /// The image, with what the device says of its zones.
    pub fn judge(&self, setup: &Setup, what: &str) {
        let zones = match self.part.limits().zones {
            Some(_) => {
                let part = self.part.clone();
                self.run(async move { part.report_zones().await }).expect("reports")
            }
            None => Vec::new(),
        };
        let view = MediumView { medium: self.medium(), start: Sector(0), bytes: setup.mib << 20 };
        let view = WithZones::new(&view, zones.clone());
        let full = zones.iter().all(|z| z.capacity == z.sectors);
        for recover in [None, Some(RecoverOptions::default())] {
            let report = check(&view, &CheckOptions { recover }).expect("can be checked");
            assert!(report.is_clean(), "{what}: our check says {:#?}", report.findings);
        }
        // fsck.f2fs 1.15 errs where zones hold less than their size, and wants the zoned device.
        if zones.is_empty() && full && crate::tools::has_tool(what, "fsck.f2fs") {
            fsck(&self.medium(), setup.mib, what);
        }
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

/// `fsck.f2fs --dry-run` finds nothing to say.
fn fsck(medium: &Medium, mib: u64, what: &str) {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    save(medium, mib, file.path());
    let run = Command::new("fsck.f2fs").arg("--dry-run").arg(file.path()).output();
    let run = run.expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let clean = run.status.success() && !said.contains("[Fail]") && !said.contains("[ASSERT]");
    if !clean {
        let (_, kept) = file.keep().expect("kept");
        panic!("{what}: fsck.f2fs says ({})\n{said}", kept.display());
    }
}
