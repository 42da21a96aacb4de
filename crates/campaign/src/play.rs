//! Playing a program with a tape on the device.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wp_base::rng::Rng;
use wp_base::site::{Armed, Site};
use wp_base::{FsError, SECTOR_BYTES, Sector, Span, Zone};
use wp_crash::{
    Before, Did, Faults, Faulty, Late, Ledger, Overlaps, Recorder, Regions, Tape, Taped,
};
use wp_machine::profile::PROFILES;
use wp_machine::{
    At, Machine, MachineError, MachineSpec, further_devices, make_device, make_image, rest_of,
};
use wp_medium::{Medium, MediumView, Slice};
use wp_rt::CpuModel;
use wp_vfs::{FileType, FsEntry, OpenFlags, Options, Version, Vfs, XattrSet};
use wp_workload::program::{Call, Program, Step};

use super::process;

/// Tag of the pattern that a used drive holds in free blocks.
const STALE: u64 = 0x57A1_E000_0000_0000;

/// Where programs are played.
#[derive(Clone)]
pub struct Bench {
    /// File system.
    pub fs: &'static FsEntry,
    /// Its options.
    pub fs_options: Options,
    /// Device preset.
    pub device: String,
    /// Replaced device parameters.
    pub device_params: Vec<(String, u64)>,
    /// Further devices of the same file system: presets and replaced parameters.
    pub more: Vec<(String, Vec<(String, u64)>)>,
    /// Elevator; empty: the kernel's default.
    pub elevator: String,
    /// Kernel version for the block layer.
    pub kernel: (u16, u16),
    /// Seconds of rest between mount and program, so that no write of the mount is unpersisted.
    pub settle_s: u64,
    /// What the device held before mkfs is still in every free block: a drive that was used, and
    /// not trimmed.
    pub stale: bool,
    /// Take down what the modelled device itself could be left with.
    pub model: bool,
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Mean microseconds between the calls of another process, which syncs the program's files and
    /// all of the file system, and promises nothing; 0: there is none.
    pub company_us: u64,
    /// A step that is left out while a program is played. Recovery after a cut has all of its own.
    pub without: Option<&'static Site>,
    /// Set by another thread, the making of an image and the playing of a program end in an error
    /// ([`wp_rt::Rt::halt_on`]). Recoveries do not look at it.
    pub halt: Option<Arc<AtomicBool>>,
}

/// A program that was played.
pub struct Played {
    /// Device events and calls.
    pub tape: Tape,
    /// What the program did.
    pub ledger: Ledger,
    /// What each call did.
    pub dids: Vec<Did>,
    /// First byte and length of the partition on the device.
    pub partition: (u64, u64),
    /// Does the device say that its cache is volatile?
    pub volatile: bool,
    /// Bytes that the device writes whole.
    pub atomic: u32,
}

/// Blocks of an image that are classified between two looks at [`Bench::halt`].
const HALT_EVERY: u64 = 1 << 16;

/// Capacity of a bench's device, if nothing else is said.
const CAPACITY: u64 = 64 << 20;

impl Bench {
    /// A file system with these options on a used drive of 64 MiB (`fixed`), with the block layer
    /// and the elevator of the kernel that the era in them names. Errors: no such option or era.
    pub fn new(fs: &'static FsEntry, options: &str) -> Result<Bench, MachineError> {
        let config = |e: &dyn std::fmt::Display| MachineError::Config(e.to_string());
        let fs_options = Options::parse(options, fs.options).map_err(|e| config(&e))?;
        Bench::of(fs, fs_options)
    }

    /// The same with options that were parsed. Errors: no such era; a file system that is not
    /// mounted here, so that no program can be played on it.
    pub fn of(fs: &'static FsEntry, fs_options: Options) -> Result<Bench, MachineError> {
        if fs.mount.is_none() {
            return Err(MachineError::Config(format!(
                "{}: only images are supported, not mounting",
                fs.name
            )));
        }
        let era = fs_options.get("era", fs.options).unwrap_or_default();
        fs.check_run(era).map_err(MachineError::Config)?;
        let Version(major, minor, _) = Version::parse(era).expect("an era that was checked");
        Ok(Bench {
            fs,
            kernel: (major, minor),
            fs_options,
            device: "fixed".to_owned(),
            device_params: vec![("capacity_bytes".to_owned(), CAPACITY)],
            more: Vec::new(),
            elevator: String::new(),
            settle_s: 60,
            stale: true,
            model: false,
            cpu: PROFILES[0].model(),
            company_us: 0,
            without: None,
            halt: None,
        })
    }

    /// The image of a new file system. Errors: options that mkfs refuses.
    pub fn image(&self) -> Result<Medium, MachineError> {
        let fs = |error| MachineError::Fs { during: "reading the image", error };
        let all = self.devices()?;
        let shapes: Vec<_> =
            all.iter().map(|(d, start)| (&**d, *start, rest_of(&**d, *start))).collect();
        let bytes = self.capacity()?;
        let mut medium = make_image(self.fs, &self.fs_options, &shapes)?;
        // What a zone held before its reset is not there any more.
        if !self.stale || all.iter().any(|(d, _)| d.limits().zones.is_some()) {
            return Ok(medium);
        }
        let view = MediumView { medium: medium.clone(), start: Sector(0), bytes };
        let blocks = (self.fs.blocks)(&view).map_err(fs)?;
        let block = u64::from(blocks.block_bytes());
        for n in 0..bytes / block {
            if n % HALT_EVERY == 0 {
                self.heed_halt()?;
            }
            if blocks.class(n) == "free" {
                let old = Slice::pattern(STALE, n * block, block as u32);
                medium.write(Sector(n * block / SECTOR_BYTES), &old);
            }
        }
        Ok(medium)
    }

    /// [`Bench::image`] with what the device held before mkfs also in the inode tables, where mkfs
    /// left them as they were. Errors: as there.
    pub(super) fn image_with_old_tables(&self) -> Result<Medium, MachineError> {
        let mut medium = self.image()?;
        let bytes = self.capacity()?;
        let view = MediumView { medium: medium.clone(), start: Sector(0), bytes };
        let blocks = (self.fs.blocks)(&view)
            .map_err(|error| MachineError::Fs { during: "reading the image", error })?;
        let block = u64::from(blocks.block_bytes());
        for n in (0..bytes / block).filter(|n| blocks.class(*n) == "inode_table") {
            let at = Sector(n * block / SECTOR_BYTES);
            let now = medium.read(at, (block / SECTOR_BYTES) as u32);
            if now.iter().all(|s| s.to_vec().iter().all(|b| *b == 0)) {
                medium.write(at, &Slice::pattern(STALE, n * block, block as u32));
            }
        }
        Ok(medium)
    }

    /// Errors: it was halted.
    fn heed_halt(&self) -> Result<(), MachineError> {
        match &self.halt {
            Some(flag) if flag.load(Ordering::Relaxed) => {
                Err(MachineError::Stall("it was stopped".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// What blocks of the new file system are, on the device.
    fn regions(&self, medium: &Medium, bytes: u64) -> Result<Regions, MachineError> {
        let view = MediumView { medium: medium.clone(), start: Sector(0), bytes };
        let blocks = (self.fs.blocks)(&view)
            .map_err(|error| MachineError::Fs { during: "reading the image", error })?;
        let sectors = u64::from(blocks.block_bytes()) / SECTOR_BYTES;
        let mut regions = Regions::default();
        for n in 0..bytes / u64::from(blocks.block_bytes()) {
            if n % HALT_EVERY == 0 {
                self.heed_halt()?;
            }
            let runs = match blocks.class(n) {
                "free" => &mut regions.data,
                class if class.starts_with("journal") => &mut regions.journal,
                _ => continue,
            };
            let (first, end) = (n * sectors, (n + 1) * sectors);
            match runs.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => runs.push((first, end)),
            }
        }
        Ok(regions)
    }

    fn capacity(&self) -> Result<u64, MachineError> {
        let sectors: u64 = self.devices()?.iter().map(|(d, start)| rest_of(&**d, *start)).sum();
        Ok(sectors * SECTOR_BYTES)
    }

    /// The devices as they will be built, with where they begin.
    fn devices(&self) -> Result<Vec<At>, MachineError> {
        let first = make_device(&self.device, &self.device_params)?;
        let end = Sector(first.limits().sectors);
        let mut all = vec![(first, Sector(0))];
        all.extend(further_devices(&self.spec(), end, &mut |_, device| device)?);
        Ok(all)
    }

    fn spec(&self) -> MachineSpec {
        MachineSpec {
            seed: 1,
            cpu: self.cpu.clone(),
            device: self.device.clone(),
            device_params: self.device_params.clone(),
            more: self.more.clone(),
            elevator: self.elevator.clone(),
            start: Sector(0),
            sectors: None,
            fs: self.fs,
            fs_options: self.fs_options.clone(),
            disk: "sdb1".to_owned(),
            device_number: (8, 16),
            kernel: self.kernel,
        }
    }

    /// The machine, with `regions` before its device if the program has it fail or be late.
    fn machine(
        &self,
        image: Medium,
        zones: &[Zone],
        fails: bool,
    ) -> Result<(Machine, Recorder, Faults), MachineError> {
        if self.model && !self.more.is_empty() {
            let text = "crash states of a device model are recorded for one device only";
            return Err(MachineError::Config(text.to_owned()));
        }
        let recorder = Recorder::default();
        let regions = match fails {
            true => self.regions(&image, self.capacity()?)?,
            false => Regions::default(),
        };
        let faults = Faults::new(regions);
        let (spec, halt) = (self.spec(), self.halt.as_ref());
        let machine = Machine::with_zones(spec, Some(image), zones, halt, |number, device| {
            let device = match fails {
                true => Box::new(Faulty::new(device, faults.clone())),
                false => device,
            };
            let taped = Taped::beside(device, &recorder, number as u64);
            match fails {
                true => Box::new(Late::new(Box::new(taped), faults.clone())),
                false => Box::new(taped),
            }
        })?;
        Ok((machine, recorder, faults))
    }
}

/// Plays `program` on a new file system.
///
/// Errors: a machine that cannot be, and calls that answer `Unsupported` or find damage; other
///         errors of calls are part of what the program did.
pub fn play(bench: &Bench, program: &Program) -> Result<Played, MachineError> {
    play_on(bench, bench.image()?, program)
}

/// As [`play()`], on an image that [`Bench::image`] made: many programs can share it.
pub fn play_on(bench: &Bench, image: Medium, program: &Program) -> Result<Played, MachineError> {
    let arm = || bench.without.map(Site::leave_out);
    let around = Around {
        neighbour_us: bench.company_us,
        syncs_files: bench.company_us > 0,
        seed: 1,
        ..Around::default()
    };
    play_with(bench, image, program, &around, arm).map(|(played, _)| played)
}

/// Plays `program` on a file system that `image` has, and leaves it unmounted, or as the device
/// has it when power fails at the end with nothing lost. `zones`: those of the image, if it is
/// of a zoned device and not new.
///
/// Errors: as [`play()`], and what the unmount answers.
pub fn leave(
    bench: &Bench,
    (image, zones): (Medium, &[Zone]),
    program: &Program,
    unmount: bool,
) -> Result<(MediumView, Vec<Zone>), MachineError> {
    let (machine, recorder, faults) = bench.machine(image, zones, false)?;
    let vfs = machine.mount()?;
    let (steps, process) = (program.0.clone(), vfs.clone());
    machine
        .block_on("program", async move {
            process::run(process, &steps, &recorder, &faults).await.map(drop)
        })?
        .map_err(|error| MachineError::Fs { during: "a program", error })?;
    if unmount {
        machine.unmount(&vfs)?;
    }
    Ok((machine.view(), machine.zones()))
}

/// Has `work` call a file system that is mounted as for [`play()`], without a tape.
///
/// Errors: as [`play()`], and those of `work`.
pub fn live<T>(
    bench: &Bench,
    work: impl FnOnce(&Machine, &Vfs) -> Result<T, MachineError>,
) -> Result<T, MachineError> {
    let (machine, vfs, _) = mounted(bench, false)?;
    work(&machine, &vfs)
}

/// A machine with a file system that is mounted as for [`play()`], without a tape, on a drive that
/// can be told to fail: for a program of the host that is recorded first.
///
/// Errors: as [`play()`].
pub fn live_with_faults(bench: &Bench) -> Result<(Machine, Vfs, Faults), MachineError> {
    mounted(bench, true)
}

fn mounted(bench: &Bench, fails: bool) -> Result<(Machine, Vfs, Faults), MachineError> {
    let (machine, _, faults) = bench.machine(bench.image()?, &[], fails)?;
    let vfs = machine.mount()?;
    settle(bench, &machine, &vfs)?;
    faults.begin();
    Ok((machine, vfs, faults))
}

/// Rests until no write of the mount is unpersisted.
fn settle(bench: &Bench, machine: &Machine, vfs: &Vfs) -> Result<(), MachineError> {
    let (rt, rest, vfs) = (machine.rt.clone(), bench.settle_s, vfs.clone());
    machine
        .block_on("settle", async move {
            vfs.sync().await?;
            rt.sleep(Span::secs(rest)).await;
            vfs.sync().await
        })?
        .map_err(|error| MachineError::Fs { during: "sync", error })
}

/// What else goes on while a program is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Around {
    /// Mean microseconds between the calls of another process, which syncs and changes attributes
    /// of the root directory, and keeps no promise to the program; 0: there is none.
    pub neighbour_us: u64,
    /// It also syncs files of the root directory.
    pub syncs_files: bool,
    /// The tape begins before the mount, nothing rests after it, and at the end is an unmount.
    pub whole_life: bool,
    /// Seed of the neighbour.
    pub seed: u64,
    /// The tape begins before the mount, which recovers what a power failure left; nothing rests
    /// after it.
    pub recovers: bool,
}

/// What sites did while a program was played.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Those that were asked, if they were watched.
    pub names: Vec<&'static str>,
    /// How often the step that is left out would have been done.
    pub reached: u64,
}

/// Mounts what a cut left of a run, and unmounts it: the tape has all of it, the ledger nothing.
///
/// Errors: a machine that cannot be, and what the mount or the unmount answers.
pub(super) fn mount(bench: &Bench, of: &Played, left: Medium) -> Result<Played, MachineError> {
    let around = Around { whole_life: true, ..Around::default() };
    let block = of.ledger.block_bytes() as u32;
    let none = || None;
    play_in(bench, (left, block, &[]), &Program::default(), &around, none).map(|(played, _)| played)
}

/// Mounts what a power failure left, and plays `program` on it. `block`: of the file system;
/// `before`: what recovery brings back.
///
/// Errors: as [`play()`], and what the mount answers.
pub(super) fn play_after(
    bench: &Bench,
    (left, block): (Medium, u32),
    before: &[Before],
    program: &Program,
) -> Result<Played, MachineError> {
    let around = Around { recovers: true, seed: 1, ..Around::default() };
    let arm = || bench.without.map(Site::leave_out);
    play_in(bench, (left, block, before), program, &around, arm).map(|(played, _)| played)
}

/// [`play()`] with a site armed, or all of them watched, from the program's first call on.
pub(super) fn play_with(
    bench: &Bench,
    image: Medium,
    program: &Program,
    around: &Around,
    arm: impl FnOnce() -> Option<Armed>,
) -> Result<(Played, Asked), MachineError> {
    let view = MediumView { medium: image.clone(), start: Sector(0), bytes: bench.capacity()? };
    let blocks = (bench.fs.blocks)(&view)
        .map_err(|error| MachineError::Fs { during: "reading the image", error })?;
    play_in(bench, (image, blocks.block_bytes(), &[]), program, around, arm)
}

/// The same on an image with blocks of `block` bytes, in which there are these files.
fn play_in(
    bench: &Bench,
    (image, block, before): (Medium, u32, &[Before]),
    program: &Program,
    around: &Around,
    arm: impl FnOnce() -> Option<Armed>,
) -> Result<(Played, Asked), MachineError> {
    let fails = program.has_faults();
    let (machine, recorder, faults) = bench.machine(image, &[], fails)?;
    let limits = machine.queue.with_device(|d| *d.limits());
    let begin = || {
        recorder.arm(machine.medium(), bench.model);
        machine.queue.with_device(|device| recorder.note_zones(device));
    };
    let mut arm = Some(arm);
    let mut armed = None;
    // What the device is told first holds for the mount as well.
    let mut early = 0;
    if around.whole_life || around.recovers {
        begin();
        armed = arm.take().and_then(|arm| arm());
        let said = program.0.iter().take_while(|s| **s == Step::InOrder || faults.obey(s));
        early = said.filter(|s| **s != Step::InOrder).count();
    }
    let vfs = machine.mount()?;
    if !around.whole_life && !around.recovers {
        settle(bench, &machine, &vfs)?;
        faults.begin();
        begin();
        armed = arm.take().and_then(|arm| arm());
    }
    // It says of all that follows in which order the calls begin.
    let (order, rest): (Vec<&Step>, Vec<&Step>) =
        program.0.iter().partition(|s| **s == Step::InOrder);
    let steps: Vec<Step> = order.into_iter().chain(rest.into_iter().skip(early)).cloned().collect();
    let (tape, around, process) = (recorder.clone(), *around, vfs.clone());
    let failing = faults.clone();
    let mut dids = machine
        .block_on("program", async move {
            accompanied(process, &steps, (&tape, &failing), around).await
        })?
        .map_err(|error| MachineError::Fs { during: "a program", error })?;
    let mut error_recorded_on_disk = None;
    if around.whole_life {
        // Once the file system is unmounted, all is as after a sync. What was recovered and is
        // mounted without a program has nothing to promise.
        let promise = (!dids.is_empty()).then_some(dids.len() as u32);
        let note = |ended| {
            if let Some(n) = promise {
                recorder.operation(machine.rt.now(), n, ended);
            }
        };
        note(false);
        let unmounted = machine.unmount(&vfs);
        note(true);
        let error = match unmounted {
            // The file system has ended in good order: it could not write all.
            Err(MachineError::Fs { error, .. }) if faults.failed() > 0 => Some(error),
            other => other.map(|()| None)?,
        };
        let sync = |_| Did { error, ..Did::of(Call::Sync) };
        dids.extend(promise.map(sync));
        error_recorded_on_disk = promise.filter(|_| vfs.fs().error_recorded_on_disk());
    }
    let asked = armed
        .as_ref()
        .map(|a| Asked { names: a.asked(), reached: a.reached() })
        .unwrap_or_default();
    let mut tape = recorder.take();
    let overlaps = Overlaps::of(&tape, dids.len());
    let mut ledger =
        Ledger::of_run(before, &dids, block, &overlaps).map_err(MachineError::Config)?;
    if faults.failed() > 0 {
        ledger.set_failed();
    }
    if let Some(operation) = error_recorded_on_disk {
        ledger.set_error_recorded_on_disk(operation);
    }
    if let Some(did) = ledger.hidden().and_then(|n| dids.get(n as usize)) {
        let what = "lost+found belongs to fsck, and recovery does not list what is in it";
        return Err(MachineError::Config(format!(
            "`{}`: {what}; name another directory",
            did.call
        )));
    }
    for n in ledger.vain_marks() {
        dids[n as usize].error = Some(FsError::NotFound);
    }
    let mut volatile = vec![limits.volatile_cache];
    let further = machine.more.iter().map(|(q, _)| q.with_device(|d| d.limits().volatile_cache));
    volatile.extend(further);
    if volatile.len() > 1 {
        tape.durable = (0..).zip(&volatile).filter(|(_, v)| !**v).map(|(n, _)| n).collect();
    }
    let played = Played {
        tape,
        ledger,
        dids,
        partition: (0, machine.sectors() * SECTOR_BYTES),
        volatile: volatile.contains(&true),
        atomic: limits.physical_bytes,
    };
    Ok((played, asked))
}

/// [`process::run`], with a neighbour if there is to be one.
async fn accompanied(
    vfs: Vfs,
    steps: &[Step],
    (tape, faults): (&Recorder, &Faults),
    around: Around,
) -> Result<Vec<Did>, FsError> {
    if around.neighbour_us == 0 {
        return process::run(vfs, steps, tape, faults).await;
    }
    let stop = Rc::new(Cell::new(false));
    let process = neighbour(vfs.clone(), around, stop.clone());
    let process = vfs.rt().spawn("neighbour", process);
    let dids = process::run(vfs, steps, tape, faults).await;
    stop.set(true);
    let other = process.await;
    let dids = dids?;
    other.map(|()| dids)
}

/// Another process. Errors: damage that it finds; what else its calls answer is its own business.
async fn neighbour(vfs: Vfs, around: Around, stop: Rc<Cell<bool>>) -> Result<(), FsError> {
    let rt = vfs.rt().clone();
    let mut rng = Rng::stream(around.seed, "neighbour");
    let root = vfs.open("/", OpenFlags::READ, 0).await?;
    while !stop.get() {
        let us = around.neighbour_us / 2 + rng.below(around.neighbour_us);
        rt.sleep(Span(us * 1000)).await;
        let done = match rng.below(8) {
            1..=4 if around.syncs_files => sync_one(&vfs, &mut rng).await,
            0..=2 => vfs.syncfs(root).await,
            3..=4 => vfs.fsync(root).await,
            5 => vfs.sync().await,
            _ => {
                let value = vec![rng.below(256) as u8; 1 + rng.below(900) as usize];
                match vfs.set_xattr("/", "user.note", &value, XattrSet::Any).await {
                    // A file system that has no attributes has none to change.
                    Err(FsError::Unsupported(_) | FsError::NotInKernel) => Ok(()),
                    done => done,
                }
            }
        };
        if let Err(e @ (FsError::Unsupported(_) | FsError::Corrupt(_))) = done {
            return Err(e);
        }
    }
    vfs.close(root).await
}

/// Syncs some file of the root directory, if there is one. Errors: what the calls answer, as that
/// somebody else has deleted it.
async fn sync_one(vfs: &Vfs, rng: &mut Rng) -> Result<(), FsError> {
    let mut files = vfs.read_dir("/").await?;
    files.retain(|f| f.kind == FileType::File);
    if files.is_empty() {
        return Ok(());
    }
    let file = &files[rng.below(files.len() as u64) as usize];
    let path = format!("/{}", String::from_utf8_lossy(&file.name));
    let fd = vfs.open(&path, OpenFlags::READ, 0).await?;
    let done = match rng.below(2) {
        0 => vfs.fsync(fd).await,
        _ => vfs.fdatasync(fd).await,
    };
    vfs.close(fd).await.and(done)
}
