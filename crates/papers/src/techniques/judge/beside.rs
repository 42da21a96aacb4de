//! Tasks that sync beside tasks that write: what several techniques are judged on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::rng::Rng;
use wp_base::{FsResult, Sector, Span};
use wp_machine::spec::file_system;
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_medium::Slice;
use wp_rt::CpuModel;
use wp_vfs::{Fd, OpenFlags, Vfs};

/// A machine: file system and drive, as on the command line.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// File system and options; its `era` says which block layer it has.
    pub fs: String,
    /// Device preset.
    pub device: &'static str,
    /// Replaced parameters of the drive.
    pub params: Vec<(String, u64)>,
    /// I/O scheduler and parameters; empty: that of the kernel version.
    pub elevator: String,
    /// Kernel version of the block layer.
    pub kernel: (u16, u16),
    /// CPUs and their costs.
    pub cpu: CpuModel,
    /// Seed.
    pub seed: u64,
}

impl Setup {
    /// The machine, with a new file system. Errors: options or parameters that cannot be.
    pub fn machine(&self) -> Result<Machine, MachineError> {
        let (fs, fs_options) = file_system(&self.fs).map_err(MachineError::Config)?;
        let spec = MachineSpec {
            seed: self.seed,
            cpu: self.cpu.clone(),
            device: self.device.to_owned(),
            device_params: self.params.clone(),
            more: Vec::new(),
            elevator: self.elevator.clone(),
            start: Sector(2048),
            sectors: None,
            fs,
            fs_options,
            disk: "sda1".to_owned(),
            device_number: (8, 1),
            kernel: self.kernel,
        };
        Machine::new(spec, None)
    }
}

/// A drive's parameters by name.
pub(super) fn params(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
}

/// Who does what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Tasks that write 4 KiB at random over a file of their own and fsync it.
    pub syncers: u32,
    /// Tasks that write a file of their own from beginning to end, and again, and never sync.
    pub writers: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// How long.
    pub length: Span,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Done {
    /// fsyncs per second, of all tasks.
    pub syncs_per_second: f64,
    /// Latency of each fsync, nanoseconds, in order of length.
    pub sync_ns: Vec<u64>,
    /// Bytes programmed into flash during the run, of a drive that counts them.
    pub flash_bytes: u64,
}

impl Done {
    /// Mean latency, nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.sync_ns.iter().sum::<u64>() as f64 / self.sync_ns.len().max(1) as f64
    }

    /// Latency that all but `n` in a thousand stay below, nanoseconds.
    pub fn permille_ns(&self, n: usize) -> u64 {
        let last = self.sync_ns.len().saturating_sub(1);
        let at = (self.sync_ns.len() * (1000 - n) / 1000).min(last);
        self.sync_ns.get(at).copied().unwrap_or(0)
    }
}

const BLOCK: u64 = 4096;
const PIECE: u64 = 1 << 20;

/// Makes a task's file, all of it written.
async fn made(v: &Vfs, name: String, bytes: u64) -> FsResult<Fd> {
    let fd = v.open(&name, OpenFlags::CREATE, 0o644).await?;
    for at in (0..bytes).step_by(PIECE as usize) {
        let piece = PIECE.min(bytes - at) as u32;
        v.pwrite(fd, at, &[Slice::pattern(1, at, piece)]).await?;
    }
    v.fsync(fd).await?;
    Ok(fd)
}

async fn play(v: Vfs, load: Load, before: Rc<dyn Fn()>) -> FsResult<(Vec<u64>, Span)> {
    let mut files = Vec::new();
    for n in 0..load.syncers + load.writers {
        files.push(made(&v, format!("f{n}"), load.file_bytes).await?);
    }
    v.sync().await?;
    before();
    let (began, end) = (v.rt().now(), Rc::new(Cell::new(false)));
    let syncs: Rc<RefCell<Vec<u64>>> = Rc::default();
    let mut joins = Vec::new();
    for (n, fd) in files.iter().copied().enumerate() {
        let (v, end, syncs) = (v.clone(), end.clone(), syncs.clone());
        let is_writer = n >= load.syncers as usize;
        let name = if is_writer { format!("writer/{n}") } else { format!("syncer/{n}") };
        joins.push(v.rt().clone().spawn(name, async move {
            let mut rng = Rng::stream(n as u64, "beside");
            let mut round = 2;
            let mut at = 0;
            while !end.get() {
                if is_writer {
                    v.pwrite(fd, at, &[Slice::pattern(round, at, PIECE as u32)]).await?;
                    at = (at + PIECE) % load.file_bytes;
                } else {
                    let at = rng.below(load.file_bytes / BLOCK) * BLOCK;
                    v.pwrite(fd, at, &[Slice::pattern(round, at, BLOCK as u32)]).await?;
                    let from = v.rt().now();
                    v.fsync(fd).await?;
                    syncs.borrow_mut().push(v.rt().now().since(from).0);
                }
                round += 1;
            }
            FsResult::Ok(())
        }));
    }
    v.rt().sleep(load.length).await;
    end.set(true);
    for join in joins {
        join.await?;
    }
    let took = v.rt().now().since(began);
    let mut all = syncs.take();
    all.sort_unstable();
    Ok((all, took))
}

/// Bytes programmed into the drive's flash.
fn programmed(machine: &Machine) -> u64 {
    let all = machine.queue.with_device(|d| d.counters());
    let units = all.iter().find(|(n, _)| *n == "units_programmed").map_or(0, |c| c.1);
    units * unit_bytes(machine)
}

/// Bytes of a program unit of the drive; 0 of one without flash.
fn unit_bytes(machine: &Machine) -> u64 {
    let Some(preset) = wp_device::find(&machine.spec().device) else { return 0 };
    let of = |key: &str| {
        let replaced = machine.spec().device_params.iter().rev().find(|(k, _)| k == key);
        let own = || preset.params.iter().find(|p| p.name == key).map_or(0, |p| p.value);
        replaced.map_or_else(own, |(_, v)| *v)
    };
    of("planes") * of("page_bytes") * of("pages_per_program")
}

/// Runs a load. Errors: a machine that cannot be; a file system that fails.
pub(super) fn run(setup: &Setup, load: Load) -> Result<Done, MachineError> {
    let machine = Rc::new(setup.machine()?);
    let vfs = machine.mount()?;
    let before = Rc::new(Cell::new(0));
    let (m, noted) = (machine.clone(), before.clone());
    let note: Rc<dyn Fn()> = Rc::new(move || noted.set(programmed(&m)));
    let played = machine.block_on("program", play(vfs.clone(), load, note))?;
    let (sync_ns, took) = played.map_err(|error| MachineError::Fs { during: "workload", error })?;
    let (after, before) = (programmed(&machine), before.get());
    machine.unmount(&vfs)?;
    Ok(Done {
        syncs_per_second: sync_ns.len() as f64 * 1e9 / took.0.max(1) as f64,
        sync_ns,
        flash_bytes: after - before,
    })
}
