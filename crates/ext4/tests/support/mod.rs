//! What the tests of the mounted file system share: a world, and the real tools that judge its
//! images.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use wp_base::{FsResult, Sector, Span, live};
use wp_block::{Bio, BlockQueue, ElevatorKind, Partition, QueueConfig};
use wp_ext4::fs::era::Era;
use wp_ext4::fs::{DataMode, Ext4, FastFixes, IomapOptions, Literature, MountOptions, Mounted};
use wp_ext4::mkfs::{Features, MkfsOptions, mkfs};
use wp_medium::{Medium, MediumView, Slice};
use wp_rt::{CpuModel, CpuOp, Rt, TimeMode};
use wp_vfs::{Version, Vfs};

/// A runtime with one disk.
pub struct World {
    pub rt: Rt,
    pub queue: Rc<BlockQueue>,
    pub part: Partition,
}

/// What to make.
#[derive(Clone)]
pub struct Setup {
    pub mib: u64,
    pub block_size: u32,
    /// With bigalloc.
    pub cluster_size: Option<u32>,
    pub era: &'static str,
    pub features: Features,
    pub device: &'static str,
    pub device_params: &'static [(&'static str, u64)],
    pub seed: u64,
    pub nodelalloc: bool,
    /// `None`: the queue's default.
    pub elevator: Option<ElevatorKind>,
    /// The flusher looks ten times a second and writes what is as old as that.
    pub eager_flusher: bool,
    pub data: DataMode,
    /// Accesses to metadata are counted, those without a conflict too, and reads update times.
    pub count_access: bool,
    /// `journaling=barrier`.
    pub barrier: bool,
    /// `ijournal`.
    pub ijournal: bool,
    /// CPU time is modelled, and what ext4 does takes none of it.
    pub modelled: bool,
}

/// A version's rules without what it loses, and with all calls: those have programs of their own
/// (`crash bug V1` and on), and what is tested here must hold beside them.
fn keeps_all(era: Era) -> Era {
    let rules = [
        ("size_counts_for_fdatasync", true),
        ("holes_count_for_fdatasync", true),
        ("space_counts_for_fdatasync", true),
        ("space_moves_disksize", true),
        ("space_is_synchronous", true),
        ("zeroes_ranges", true),
        ("direct_moves_disksize", true),
        ("direct_syncs_before_size", false),
        ("async_syncs_early", false),
        ("append_syncs_elsewhere", false),
    ];
    rules.into_iter().fold(era, |era, (rule, holds)| era.with(rule, holds))
}

impl Setup {
    pub fn new(era: &'static str) -> Setup {
        Setup {
            mib: 64,
            block_size: 4096,
            cluster_size: None,
            era,
            features: Features::era_2012(),
            device: "fixed",
            device_params: &[],
            seed: 1,
            nodelalloc: false,
            elevator: None,
            eager_flusher: false,
            data: DataMode::Ordered,
            count_access: false,
            barrier: false,
            ijournal: false,
            modelled: false,
        }
    }

    pub fn mount_options(&self) -> MountOptions {
        let era = keeps_all(Era::of(wp_ext4::fs::era::version(self.era).expect("a version")));
        let mut o = MountOptions {
            delalloc: !self.nodelalloc && self.data != DataMode::Journal,
            data: self.data,
            count_access: self.count_access,
            relatime: self.count_access,
            dual: self.barrier.then(Default::default),
            literature: Literature {
                iomap: IomapOptions { on: self.era == Version::NEXT, ..IomapOptions::default() },
                ..Literature::default()
            },
            ..MountOptions::new(era, "sdb1", 8, 16)
        };
        if self.ijournal {
            (o.fast.ijournal, o.fast.fixes) = (true, FastFixes::all());
        }
        if self.eager_flusher {
            (o.writeback.interval, o.writeback.expire) = (Span::millis(100), Span::millis(100));
        }
        o
    }

    pub fn image(&self) -> Medium {
        let mut o = MkfsOptions::new(self.mib << 20, self.features);
        o.block_size = Some(self.block_size);
        o.cluster_size = self.cluster_size;
        if self.cluster_size.is_some() {
            o.features = o.features.set("bigalloc", true).expect("known");
        }
        o.uuid = [7; 16];
        o.hash_seed = [9; 16];
        o.now = 1_388_534_400;
        let mut m = Medium::new();
        mkfs(&o).expect("possible options").write_to(&mut m, Sector(0));
        m
    }
}

impl World {
    /// A disk that holds `image`.
    pub fn with_image(setup: &Setup, image: &Medium) -> World {
        let mut cpu = CpuModel::free();
        if setup.modelled {
            // F2FS' alone.
            cpu.profile.set(CpuOp::NodeWriteback, 1);
        }
        let rt = Rt::with(TimeMode::Virtual, setup.seed, cpu);
        let device = wp_device::find(setup.device)
            .expect("a preset")
            .make(setup.device_params)
            .expect("a device");
        let mut config = QueueConfig::default();
        config.elevator = setup.elevator.unwrap_or(config.elevator);
        let queue = BlockQueue::new(&rt, config, device);
        let part = queue.partition(Sector(0), setup.mib << 11);
        let (p, image) = (part.clone(), image.clone());
        rt.block_on("load", async move {
            for (at, sectors) in image.runs() {
                let mut done = 0;
                while done < sectors {
                    let n = (sectors - done).min(512) as u32;
                    let bio = Bio::write(
                        at.advance(done),
                        image.read(at.advance(done), n),
                        Default::default(),
                    );
                    p.submit_wait(bio).await.expect("written");
                    done += u64::from(n);
                }
            }
            p.flush().await.expect("flushed");
        })
        .expect("loads");
        World { rt, queue, part }
    }

    pub fn fresh(setup: &Setup) -> World {
        World::with_image(setup, &setup.image())
    }

    pub fn mount(&self, setup: &Setup) -> FsResult<Vfs> {
        let (rt, part, o) = (self.rt.clone(), self.part.clone(), setup.mount_options());
        let rt2 = rt.clone();
        let fs =
            rt2.block_on("mount", async move { Ext4::mount(&rt, part, o).await }).expect("runs")?;
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
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).expect("created");
    file.set_len(mib << 20).expect("sized");
    for (at, sectors) in medium.runs() {
        for i in 0..sectors.div_ceil(256) {
            let at = at.advance(i * 256);
            let bytes = Slice::concat(&medium.read(at, (sectors - i * 256).min(256) as u32));
            file.write_all_at(&bytes, at.bytes()).expect("written");
        }
    }
}

/// Says that `check` could not run, and why, where `./test` lists it.
pub fn skip(check: &str, why: &str) {
    let line = format!("{check}: {why}");
    eprintln!("SKIPPED: {line}");
    if let Some(path) = std::env::var_os("WRITEPATH_SKIPS") {
        use std::io::Write;
        let f = std::fs::OpenOptions::new().append(true).create(true).open(path);
        f.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()))
            .expect("the skip list can be written");
    }
}

/// Is the tool there? Says so if not.
pub fn has(tool: &str, check: &str) -> bool {
    let found = Command::new(tool).arg("-V").output().is_ok();
    if !found {
        skip(check, &format!("{tool} is not installed"));
    }
    found
}

/// `e2fsck -fn` and our own check find nothing to say.
pub fn assert_e2fsck_clean(medium: &Medium, mib: u64, what: &str) {
    let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: mib << 20 };
    let report = wp_ext4::check::check(&view, &Default::default()).expect("can be checked");
    assert!(report.is_clean_as_it_stands(), "{what}: our check says {:?}", report.findings);
    if !has("e2fsck", what) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    save(medium, mib, &path);
    let out = Command::new("e2fsck").args(["-fn"]).arg(&path).output().expect("runs");
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{what}: e2fsck says\n{text}");
}
