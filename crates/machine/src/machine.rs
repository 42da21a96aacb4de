//! A machine put together from registry names: CPUs, a device, a block queue, a partition, a file
//! system.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use wp_base::event::{Class, Flags};
use wp_base::plain::Shown as _;
use wp_base::{FsError, Sector, Span, Zone, ZoneKind};
use wp_block::{Bio, BlockQueue, DeviceModel, Layer, Partition, QueueConfig, WaitUnplug};
use wp_medium::{Medium, MediumView};
use wp_rt::{CpuModel, Outcome, Rt, TimeMode};
use wp_vfs::{Env, FileSystem, FsEntry, Options, Vfs};

use crate::host::contents;

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
    /// Further devices of the same file system, whole, behind the partition of the first: presets
    /// and replaced parameters.
    pub more: Vec<(String, Vec<(String, u64)>)>,
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
    /// Name of the partition (`sdb1`). `vd...` is a virtio disk, which does not tell what it has
    /// dispatched ([`wp_block::Habits::tells_dispatch`]).
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
    /// The host cannot keep what the drives hold ([`crate::host::contents`]): the directory, and
    /// why.
    Host(PathBuf, io::Error),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Config(what) => f.write_str(what),
            MachineError::Fs { during, error } => write!(f, "{during}: {error}"),
            MachineError::Stall(what) => write!(f, "the simulation cannot continue: {what}"),
            MachineError::Host(path, e) => write!(f, "{}: {e}", path.shown()),
        }
    }
}

impl std::error::Error for MachineError {}

/// A machine that runs. When it is dropped, its power goes: every task ends.
pub struct Machine {
    /// Its runtime.
    pub rt: Rt,
    /// Its block queue.
    pub queue: Rc<BlockQueue>,
    /// Its partition.
    pub part: Partition,
    /// Queues and partitions of further devices. Their sectors are counted from behind `part`.
    pub more: Vec<(Rc<BlockQueue>, Partition)>,
    spec: MachineSpec,
}

impl Machine {
    /// Builds device and queue, and puts an image on the partition: `image`, or what mkfs makes.
    ///
    /// Errors: impossible parameters, a partition beyond the device.
    pub fn new(spec: MachineSpec, image: Option<Medium>) -> Result<Machine, MachineError> {
        Machine::with_device(spec, image, |_, device| device)
    }

    /// The same, with something put around each device, which comes with its number from 0. Errors:
    /// as [`Machine::new`].
    pub fn with_device(
        spec: MachineSpec,
        image: Option<Medium>,
        around: impl FnMut(usize, Box<dyn DeviceModel>) -> Box<dyn DeviceModel>,
    ) -> Result<Machine, MachineError> {
        Machine::with_zones(spec, image, &[], None, around)
    }

    /// The same; `zones`: where the write pointers of the partition's zones are once the image is
    /// written. Left out, behind what of a zone is not zero. `halt`: see [`Rt::halt_on`]; it also
    /// ends the writing of the image. Errors: as [`Machine::new`], and that it was halted.
    pub fn with_zones(
        spec: MachineSpec,
        image: Option<Medium>,
        zones: &[Zone],
        halt: Option<&Arc<AtomicBool>>,
        mut around: impl FnMut(usize, Box<dyn DeviceModel>) -> Box<dyn DeviceModel>,
    ) -> Result<Machine, MachineError> {
        let rt = Rt::with(TimeMode::Virtual, spec.seed, spec.cpu.clone());
        contents::keep_within_memory();
        if let Some(flag) = halt.cloned().or_else(contents::failed) {
            rt.halt_on(flag);
        }
        let device = around(0, make_device(&spec.device, &spec.device_params)?);
        let total = device.limits().sectors;
        let sectors = spec.sectors.unwrap_or(total.saturating_sub(spec.start.0));
        if spec.start.0.checked_add(sectors).is_none_or(|end| end > total) || sectors == 0 {
            return Err(MachineError::Config(format!(
                "a partition of {sectors} sectors at sector {} does not fit device {} of {total} \
                 sectors",
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
        let others = further_devices(&spec, spec.start.advance(sectors), &mut around)?;
        let image = match image {
            Some(i) => i,
            None => {
                let mut all = vec![(&*device, spec.start, sectors)];
                all.extend(others.iter().map(|(d, start)| (&**d, *start, rest_of(&**d, *start))));
                make_image(spec.fs, &spec.fs_options, &all)?
            }
        };
        let name = Some(spec.elevator.as_str()).filter(|name| !name.is_empty());
        let mut base = QueueConfig::for_kernel(spec.kernel, name).map_err(MachineError::Config)?;
        if base.layer == Layer::Single {
            // Every wait under a plug in what runs here is for I/O: `io_schedule()` has the task
            // itself dispatch.
            base.plug.on_wait = WaitUnplug::Task;
        }
        // Disks have their names from their drivers.
        base.habits.tells_dispatch = !spec.disk.starts_with("vd");
        let config =
            QueueConfig { major: spec.device_number.0, minor: spec.device_number.1, ..base };
        let queue = BlockQueue::new(&rt, config.clone(), device);
        let part = queue.partition(spec.start, sectors);
        let mut more = Vec::new();
        for ((device, start), n) in others.into_iter().zip(1..) {
            // Minor numbers of disks are 16 apart (`sd`).
            let config = QueueConfig { minor: config.minor + 16 * n, ..config.clone() };
            let length = rest_of(&*device, start);
            let queue = BlockQueue::new(&rt, config, device);
            let part = queue.partition(start, length);
            more.push((queue, part));
        }
        let machine = Machine { rt, queue, part, more, spec };
        machine.put_image(image, zones)?;
        Ok(machine)
    }

    /// Writes an image through the queue, as mkfs would, waits for all of it and flushes. Events
    /// are not recorded yet.
    fn put_image(&self, image: Medium, zones: &[Zone]) -> Result<(), MachineError> {
        let rt = self.rt.clone();
        let mut parts = vec![self.part.clone()];
        parts.extend(self.more.iter().map(|(_, part)| part.clone()));
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
                    let from = at.advance(done);
                    let (part, here) = part_of(&parts, from);
                    let left = part.sectors().saturating_sub(here.0).max(1);
                    let n = (sectors - done).min(IMAGE_BIO_SECTORS).min(left);
                    let bio = Bio::write(here, image.read(from, n as u32), Flags::NONE);
                    part.submit_throttled(bio).await;
                    done += n;
                }
            }
            // A flush covers what has ended: it may overtake writes that are still queued.
            for part in &parts {
                while part.queue().pending() > 0 {
                    rt.sleep(POLL).await;
                }
                part.flush().await?;
            }
            Ok::<(), wp_block::Status>(())
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

    /// Runs a future to its end on this machine. Errors: it stops before; what the drives hold
    /// cannot be kept.
    pub fn block_on<T: 'static>(
        &self,
        name: &str,
        fut: impl Future<Output = T> + 'static,
    ) -> Result<T, MachineError> {
        let done = self.rt.block_on(name, fut);
        if let Some((path, e)) = contents::failure() {
            return Err(MachineError::Host(path, e));
        }
        done.map_err(|o| MachineError::Stall(describe(&o)))
    }

    /// Mounts the partition's file system.
    pub fn mount(&self) -> Result<Vfs, MachineError> {
        let env = Env {
            rt: self.rt.clone(),
            part: self.part.clone(),
            more: self.more.iter().map(|(_, part)| part.clone()).collect(),
            disk: self.spec.disk.clone(),
            device: self.spec.device_number,
            epoch_secs: crate::EPOCH_SECS,
        };
        let (entry, options) = (self.spec.fs, self.spec.fs_options.clone());
        let Some(mount) = entry.mount else {
            let name = entry.name;
            return Err(MachineError::Config(format!(
                "{name}: only images are supported, not mounting"
            )));
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

    /// The partitions' zones as reports would have them now; none if no device has any.
    pub fn zones(&self) -> Vec<Zone> {
        let mut all = self.queue.with_device(|d| d.zones());
        for (queue, _) in &self.more {
            all.extend(queue.with_device(|d| d.zones()));
        }
        Zone::within(&all, self.spec.start, self.sectors())
    }

    /// What all devices hold now, those behind the first where their sectors are.
    pub fn medium(&self) -> Medium {
        let mut all = self.queue.with_device(|d| d.medium());
        for (queue, _) in &self.more {
            all.lay(&queue.with_device(|d| d.medium()), 0);
        }
        all
    }

    /// Sectors of all partitions.
    pub fn sectors(&self) -> u64 {
        self.part.sectors() + self.more.iter().map(|(_, part)| part.sectors()).sum::<u64>()
    }

    /// The partitions' contents as a reader would see them now, one behind the other.
    pub fn view(&self) -> MediumView {
        MediumView {
            medium: self.medium(),
            start: self.spec.start,
            bytes: self.sectors() * wp_base::SECTOR_BYTES,
        }
    }
}

/// Tasks that never end (flushers, timers of the queue) hold the runtime that holds them, and
/// through it all that was written: with the machine they go.
impl Drop for Machine {
    fn drop(&mut self) {
        self.rt.cut();
    }
}

/// The partition that a sector of their joint image is on, and where there; the last one's if it is
/// beyond all of them.
fn part_of(parts: &[Partition], at: Sector) -> (&Partition, Sector) {
    let mut left = at.0;
    let (last, before) = parts.split_last().expect("a machine has a device");
    for part in before {
        if left < part.sectors() {
            return (part, Sector(left));
        }
        left -= part.sectors();
    }
    (last, Sector(left))
}

/// A device by its preset's name. Errors: an unknown name, parameters that cannot be.
pub fn make_device(
    name: &str,
    params: &[(String, u64)],
) -> Result<Box<dyn DeviceModel>, MachineError> {
    let entry = crate::registry::find("device", crate::registry::DEVICES, |d| d.name, name)
        .map_err(MachineError::Config)?;
    let params = crate::scale::scaled(entry, params);
    let params: Vec<(&str, u64)> = params.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    entry.make(&params).map_err(|e| MachineError::Config(e.to_string()))
}

/// Sectors of a device from `start` on.
pub fn rest_of(device: &dyn DeviceModel, start: Sector) -> u64 {
    device.limits().sectors.saturating_sub(start.0)
}

/// A device with the sector at which it begins.
pub type At = (Box<dyn DeviceModel>, Sector);

/// The further devices of `spec`, one behind the other from `start` on, each with its first sector.
///
/// Errors: as [`make_device`]; zones that do not begin where a zone does; file systems that cannot
/// live on several.
pub fn further_devices(
    spec: &MachineSpec,
    start: Sector,
    around: &mut dyn FnMut(usize, Box<dyn DeviceModel>) -> Box<dyn DeviceModel>,
) -> Result<Vec<At>, MachineError> {
    if !spec.more.is_empty() && spec.fs.mkfs_disks.is_none() {
        let text =
            format!("{} supports one device, {} are given", spec.fs.name, spec.more.len() + 1);
        return Err(MachineError::Config(text));
    }
    let mut out = Vec::new();
    let mut start = start;
    for ((name, params), n) in spec.more.iter().zip(1..) {
        let device = make_device(name, params)?;
        let length = device.limits().sectors;
        let placed = wp_device::OffsetDevice::new(device, start)
            .map_err(|e| MachineError::Config(format!("device {name}: {e}")))?;
        out.push((around(n, Box::new(placed)), start));
        start = start.advance(length);
    }
    Ok(out)
}

/// The image that mkfs makes for parts of devices (first sector, length), on their zones if they
/// have any.
///
/// Errors: options that mkfs refuses; zones, or several devices, for a file system that cannot live
/// there.
pub fn make_image(
    fs: &FsEntry,
    options: &Options,
    devices: &[(&dyn DeviceModel, Sector, u64)],
) -> Result<Medium, MachineError> {
    let plain = devices.iter().all(|(d, ..)| d.limits().zones.is_none());
    let made = match (devices, fs.mkfs_disks) {
        ([(_, _, sectors)], _) if plain => (fs.mkfs)(options, sectors * wp_base::SECTOR_BYTES),
        (_, Some(mkfs)) => {
            let disk = |((device, start, sectors), n): (&(&dyn DeviceModel, Sector, u64), u8)| {
                wp_vfs::Disk {
                    name: format!("/dev/sd{}", char::from(b'b' + n)),
                    bytes: sectors * wp_base::SECTOR_BYTES,
                    zones: Zone::within(&device.zones(), *start, *sectors),
                }
            };
            let disks: Vec<wp_vfs::Disk> = devices.iter().zip(0..8).map(disk).collect();
            mkfs(options, &disks)
        }
        (_, None) => {
            let text = format!("{} needs one device without zones", fs.name);
            return Err(MachineError::Config(text));
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
