//! A machine put together from registry names: CPUs, a device, a block queue, a partition, a file
//! system.

use std::fmt;
use std::rc::Rc;

use wp_base::event::{Class, Flags};
use wp_base::{FsError, Sector, Span, Zone, ZoneKind};
use wp_block::{Bio, BlockQueue, DeviceModel, Layer, Partition, QueueConfig, WaitUnplug};
use wp_medium::{Medium, MediumView};
use wp_rt::{CpuModel, Outcome, Rt, TimeMode};
use wp_vfs::{Env, FileSystem, FsEntry, Options, Vfs};

/// Sectors in one write of an image.
const IMAGE_BIO_SECTORS: u64 = 1024;

/// Between two looks at whether the queue is empty.
const POLL: Span = Span::micros(10);

/// What a machine is made of.
#[derive(Clone)]
pub struct MachineSpec {
    /// Seed of every random stream.
    pub seed: u64,
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Device preset and replaced parameters.
    pub device: String,
    /// Replaced device parameters.
    pub device_params: Vec<(String, u64)>,
    /// Elevator; empty: the kernel's default one.
    pub elevator: String,
    /// First sector of the partition.
    pub start: Sector,
    /// Length of the partition in sectors; `None`: the rest of the device.
    pub sectors: Option<u64>,
    /// File system.
    pub fs: &'static FsEntry,
    /// Its options (mkfs and mount).
    pub fs_options: Options,
    /// Name of the partition (`sdb1`).
    pub disk: String,
    /// Device number of the whole disk.
    pub device_number: (u32, u32),
    /// Kernel version for the habits of the block layer; from the file system's era.
    pub kernel: (u16, u16),
}

/// Why a machine could not be built or did not finish.
#[derive(Debug)]
pub enum MachineError {
    /// A name or number that cannot be.
    Config(String),
    /// The file system answered an error that the experiment did not expect.
    Fs {
        /// During what.
        during: &'static str,
        /// The error.
        error: FsError,
    },
    /// The simulation stopped before it was done.
    Stall(String),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Config(what) => f.write_str(what),
            MachineError::Fs { during, error } => write!(f, "{during}: {error}"),
            MachineError::Stall(what) => write!(f, "the simulation cannot go on: {what}"),
        }
    }
}

impl std::error::Error for MachineError {}

/// A machine that runs.
pub struct Machine {
    /// Its runtime.
    pub rt: Rt,
    /// Its block queue.
    pub queue: Rc<BlockQueue>,
    /// Its partition.
    pub part: Partition,
    spec: MachineSpec,
}

impl Machine {
    /// Builds device and queue, and puts an image on the partition: `image`, or what mkfs makes.
    ///
    /// Errors: impossible parameters, a partition beyond the device.
    pub fn new(spec: MachineSpec, image: Option<Medium>) -> Result<Machine, MachineError> {
        Machine::with_device(spec, image, |device| device)
    }

    /// The same, with something put around the device. Errors: as [`Machine::new`].
    pub fn with_device(
        spec: MachineSpec,
        image: Option<Medium>,
        around: impl FnOnce(Box<dyn DeviceModel>) -> Box<dyn DeviceModel>,
    ) -> Result<Machine, MachineError> {
        Machine::with_zones(spec, image, &[], around)
    }

    /// The same; `zones`: where the write pointers of the partition's zones are once the image is
    /// written. Left out, behind what of a zone is not zero. Errors: as [`Machine::new`].
    pub fn with_zones(
        spec: MachineSpec,
        image: Option<Medium>,
        zones: &[Zone],
        around: impl FnOnce(Box<dyn DeviceModel>) -> Box<dyn DeviceModel>,
    ) -> Result<Machine, MachineError> {
        let rt = Rt::with(TimeMode::Virtual, spec.seed, spec.cpu.clone());
        let entry =
            crate::registry::find("device", crate::registry::DEVICES, |d| d.name, &spec.device)
                .map_err(MachineError::Config)?;
        let params: Vec<(&str, u64)> =
            spec.device_params.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        let device = entry.make(&params).map_err(|e| MachineError::Config(e.to_string()))?;
        let device = around(device);
        let total = device.limits().sectors;
        let sectors = spec.sectors.unwrap_or(total.saturating_sub(spec.start.0));
        if spec.start.0.checked_add(sectors).is_none_or(|end| end > total) || sectors == 0 {
            return Err(MachineError::Config(format!(
                "a partition of {sectors} sectors at sector {} does not fit device {} of {total} sectors",
                spec.start.0, spec.device
            )));
        }
        let limits = device.limits().zones;
        if let Some(z) = limits.filter(|z| !spec.start.0.is_multiple_of(z.zone_sectors)) {
            return Err(MachineError::Config(format!(
                "a partition at sector {}: on device {} it begins with a zone, every {} sectors",
                spec.start.0, spec.device, z.zone_sectors
            )));
        }
        let image = match image {
            Some(i) => i,
            None => make_image(spec.fs, &spec.fs_options, &*device, (spec.start, sectors))?,
        };
        let name = Some(spec.elevator.as_str()).filter(|name| !name.is_empty());
        let mut base = QueueConfig::for_kernel(spec.kernel, name).map_err(MachineError::Config)?;
        if base.layer == Layer::Single {
            // Every wait under a plug in what runs here is for I/O: `io_schedule()` has the task
            // itself dispatch.
            base.plug.on_wait = WaitUnplug::Task;
        }
        let config =
            QueueConfig { major: spec.device_number.0, minor: spec.device_number.1, ..base };
        let queue = BlockQueue::new(&rt, config, device);
        let part = queue.partition(spec.start, sectors);
        let machine = Machine { rt, queue, part, spec };
        machine.put_image(image, zones)?;
        Ok(machine)
    }

    /// Writes an image through the queue, as mkfs would, waits for all of it and flushes. Events
    /// are not recorded yet.
    fn put_image(&self, image: Medium, zones: &[Zone]) -> Result<(), MachineError> {
        let (part, rt) = (self.part.clone(), self.rt.clone());
        let mut runs: Vec<(Sector, u64)> = image.runs().collect();
        // A zone is written from its start, zeroes too.
        let written = zones.iter().filter(|z| z.kind == ZoneKind::Sequential);
        let written: Vec<(Sector, u64)> = written.map(|z| (z.start, z.wp.0 - z.start.0)).collect();
        if !zones.is_empty() {
            let sequential = |at: Sector| zones.iter().rfind(|z| z.start <= at).map(|z| z.kind);
            runs.retain(|(at, _)| sequential(*at) != Some(ZoneKind::Sequential));
            runs.extend(written.iter().filter(|(_, sectors)| *sectors > 0));
        }
        self.block_on("mkfs", async move {
            for (at, sectors) in runs {
                let mut done = 0u64;
                while done < sectors {
                    let n = (sectors - done).min(IMAGE_BIO_SECTORS) as u32;
                    let from = at.advance(done);
                    part.submit_throttled(Bio::write(from, image.read(from, n), Flags::NONE)).await;
                    done += u64::from(n);
                }
            }
            // A flush covers what has ended: it may overtake writes that are still queued.
            while part.queue().pending() > 0 {
                rt.sleep(POLL).await;
            }
            part.flush().await
        })?
        .map_err(|_| MachineError::Fs { during: "mkfs", error: FsError::Io })
    }

    /// What it was made of.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Switches event classes on.
    pub fn record(&self, class: Class) {
        self.rt.probe().set_mask(class);
    }

    /// Runs a future to its end on this machine.
    pub fn block_on<T: 'static>(
        &self,
        name: &str,
        fut: impl Future<Output = T> + 'static,
    ) -> Result<T, MachineError> {
        self.rt.block_on(name, fut).map_err(|o| MachineError::Stall(describe(&o)))
    }

    /// Mounts the partition's file system.
    pub fn mount(&self) -> Result<Vfs, MachineError> {
        let env = Env {
            rt: self.rt.clone(),
            part: self.part.clone(),
            disk: self.spec.disk.clone(),
            device: self.spec.device_number,
            epoch_secs: crate::EPOCH_SECS,
        };
        let (entry, options) = (self.spec.fs, self.spec.fs_options.clone());
        let Some(mount) = entry.mount else {
            let name = entry.name;
            return Err(MachineError::Config(format!("{name}: images only, no mount yet")));
        };
        let mounted: Result<Rc<dyn FileSystem>, FsError> =
            self.block_on("mount", async move { mount(&env, &options).await })?;
        let fs = mounted.map_err(|error| MachineError::Fs { during: "mount", error })?;
        Ok(Vfs::new(&self.rt, fs))
    }

    /// Unmounts.
    pub fn unmount(&self, vfs: &Vfs) -> Result<(), MachineError> {
        let fs = vfs.fs().clone();
        self.block_on("umount", async move { fs.unmount().await })?
            .map_err(|error| MachineError::Fs { during: "unmount", error })
    }

    /// The partition's zones as a report would have them now; none if the device has none.
    pub fn zones(&self) -> Vec<Zone> {
        let all = self.queue.with_device(|d| d.zones());
        Zone::within(&all, self.spec.start, self.part.sectors())
    }

    /// The partition's contents as a reader would see them now.
    pub fn view(&self) -> MediumView {
        MediumView {
            medium: self.queue.with_device(|d| d.medium()),
            start: self.spec.start,
            bytes: self.part.sectors() * wp_base::SECTOR_BYTES,
        }
    }
}

/// The image that mkfs makes for a part of a device (first sector, length), on its zones if it has
/// any.
///
/// Errors: options that mkfs refuses; a zoned device for a file system that cannot live on one.
pub fn make_image(
    fs: &FsEntry,
    options: &Options,
    device: &dyn DeviceModel,
    (start, sectors): (Sector, u64),
) -> Result<Medium, MachineError> {
    let bytes = sectors * wp_base::SECTOR_BYTES;
    let made = match (device.limits().zones, fs.mkfs_zoned) {
        (None, _) => (fs.mkfs)(options, bytes),
        (Some(_), Some(mkfs)) => {
            mkfs(options, bytes, &Zone::within(&device.zones(), start, sectors))
        }
        (Some(_), None) => {
            return Err(MachineError::Config(format!("{} needs a device without zones", fs.name)));
        }
    };
    made.map_err(|error| MachineError::Fs { during: "mkfs", error })
}

/// A stop as text: every task and what it waits for.
pub fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Deadlock(tasks) => {
            let lines: Vec<String> = tasks
                .iter()
                .map(|t| format!("{} waits for {} since {}", t.name, t.waits_for, t.since))
                .collect();
            format!("deadlock: {}", lines.join("; "))
        }
        Outcome::Livelock(tasks) => {
            let names: Vec<&str> = tasks.iter().map(|t| &*t.name).collect();
            format!("livelock among {}", names.join(", "))
        }
        other => format!("{other:?}"),
    }
}
