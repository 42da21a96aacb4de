//! Our own file system on the same drive, with the same program and no cuts: what its fsyncs take,
//! beside the kernel's.
//!
//! Alike:      drive, block layer of a virtio disk, rules of the kernel's version, files, the order
//!             of blocks, an unmount and a mount between two rounds, a CPU that takes no time; of a
//!             round as many fsyncs as returned before the cut there.
//! Not alike:  a mount behind a cut recovers, one of ours here has nothing to; what the kernel's
//!             timers do beside the program.

use std::cell::Cell;
use std::rc::Rc;

use serde::Serialize;
use wp_base::{FsResult, Sector};
use wp_machine::registry::FILE_SYSTEMS;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_rt::CpuModel;
use wp_vfs::{OpenFlags, Options, Vfs};

use super::Plan;
use super::beside::{BLOCK, era_of, mix};

/// Calls of fsync, added up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Fsyncs {
    /// How many.
    pub calls: u64,
    /// Virtual time of all, in nanoseconds.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

impl Fsyncs {
    /// Their mean in nanoseconds; 0 without one.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns / self.calls.max(1)
    }

    fn add(&mut self, ns: u64) {
        self.calls += 1;
        self.total_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }
}

/// The flags that the program opens its files with.
const WRITE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };

/// Plays a plan with our file system by the rules of this version of the kernel (`6.12.117`). Each
/// of `rounds` is the number of fsyncs of one round, by all jobs together.
///
/// Errors: a file system that is none of ours, an option of the mount that ours does not have, a
/// drive that it cannot live on.
pub fn play(plan: &Plan, version: &str, rounds: &[u64]) -> Result<Fsyncs, String> {
    let entry = FILE_SYSTEMS.iter().copied().find(|e| e.name == plan.fs);
    let entry = entry.ok_or_else(|| format!("{} is not modelled", plan.fs))?;
    let kernel = era_of(version).ok_or_else(|| format!("`{version}` is not a kernel version"))?;
    let comma = if plan.mount.is_empty() { "" } else { "," };
    entry.check_run(&kernel.to_string())?;
    let options = format!("era={kernel}{comma}{}", plan.mount);
    let fs_options = Options::parse(&options, entry.options).map_err(|e| e.to_string())?;
    let spec = MachineSpec {
        seed: plan.seed,
        // The guest has one core.
        cpu: CpuModel { cores: 1, ..plan.cpu.model() },
        device: plan.device.0.clone(),
        device_params: plan.device.1.clone(),
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs: entry,
        fs_options,
        disk: "vda".to_owned(),
        device_number: (254, 0),
        kernel: (kernel.0, kernel.1),
    };
    let text = |e: wp_machine::MachineError| e.to_string();
    let machine = Machine::new(spec, None).map_err(text)?;
    let mut found = Fsyncs::default();
    let filled = once(&machine, |vfs| fill(vfs, plan.jobs, plan.blocks))?;
    filled.map_err(|e| format!("filling the files: {e}"))?;
    let seed = mix(plan.seed);
    let jobs: Vec<Job> = (0..plan.jobs)
        .map(|number| Job {
            number,
            state: Rc::new(Cell::new(mix(seed ^ number))),
            blocks: plan.blocks,
            flags: OpenFlags { direct: plan.direct, ..WRITE },
            sync: plan.sync,
        })
        .collect();
    for of_all in rounds {
        let each = of_all.div_ceil(plan.jobs.max(1));
        let jobs = jobs.clone();
        let took = once(&machine, move |vfs| round(vfs, jobs, each))?;
        let took = took.map_err(|e| format!("the program: {e}"))?;
        took.into_iter().for_each(|ns| found.add(ns));
    }
    Ok(found)
}

/// Mounts, does something, unmounts.
fn once<T: 'static, F: Future<Output = FsResult<T>> + 'static>(
    machine: &Machine,
    what: impl FnOnce(Vfs) -> F,
) -> Result<FsResult<T>, String> {
    let vfs = machine.mount().map_err(|e| e.to_string())?;
    let done = machine.block_on("program", what(vfs.clone())).map_err(|e| e.to_string())?;
    machine.unmount(&vfs).map_err(|e| e.to_string())?;
    Ok(done)
}

/// All files with all their blocks, durable.
async fn fill(vfs: Vfs, jobs: u64, blocks: u64) -> FsResult<()> {
    for job in 0..jobs {
        let fd = vfs.open(&path(job), OpenFlags { create: true, ..WRITE }, 0o644).await?;
        for block in 0..blocks {
            vfs.pwrite(fd, block * BLOCK, &[contents(job, block)]).await?;
        }
        vfs.fsync(fd).await?;
        vfs.close(fd).await?;
    }
    vfs.sync().await
}

/// A thread of the program.
#[derive(Clone)]
struct Job {
    number: u64,
    /// Where its random numbers are, from round to round.
    state: Rc<Cell<u64>>,
    blocks: u64,
    flags: OpenFlags,
    /// Behind how many overwrites it calls sync(2); 0: never.
    sync: u64,
}

/// All jobs' rounds side by side; what each fsync took, in nanoseconds.
async fn round(vfs: Vfs, jobs: Vec<Job>, each: u64) -> FsResult<Vec<u64>> {
    let mut running = Vec::new();
    for job in jobs {
        let name = path(job.number);
        running.push(vfs.rt().clone().spawn(name, overwrite(vfs.clone(), job, each)));
    }
    let mut all = Vec::new();
    for job in running {
        all.extend(job.await?);
    }
    Ok(all)
}

/// Overwrites of blocks at random, each with an fsync, as `round_of` in `lab.c` has them.
async fn overwrite(vfs: Vfs, job: Job, each: u64) -> FsResult<Vec<u64>> {
    let fd = vfs.open(&path(job.number), job.flags, 0).await?;
    let mut took = Vec::new();
    for n in 1..=each {
        job.state.set(job.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let block = mix(job.state.get()) % job.blocks;
        vfs.pwrite(fd, block * BLOCK, &[contents(job.number, block)]).await?;
        let start = vfs.rt().now();
        vfs.fsync(fd).await?;
        took.push(vfs.rt().now().0 - start.0);
        if job.sync > 0 && n.is_multiple_of(job.sync) {
            vfs.sync().await?;
        }
    }
    vfs.close(fd).await?;
    Ok(took)
}

fn path(job: u64) -> String {
    format!("file{job}")
}

fn contents(job: u64, block: u64) -> Slice {
    Slice::pattern(job + 1, block * BLOCK, BLOCK as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(fs: &str, mount: &str, jobs: u64) -> Plan {
        let device = ("ssd-128".to_owned(), vec![("capacity_bytes".to_owned(), 64 << 20)]);
        Plan { mount: mount.to_owned(), device, jobs, ..Plan::new(fs) }
    }

    #[test]
    fn as_many_fsyncs_are_played_as_returned_there_and_two_plays_are_the_same() {
        let one = play(&plan("ext4", "", 1), "6.12.117", &[4, 0, 3]).unwrap();
        assert_eq!(one.calls, 7);
        assert!(one.mean_ns() > 0 && one.mean_ns() <= one.longest_ns);
        assert_eq!(play(&plan("ext4", "", 1), "6.12.117", &[4, 0, 3]), Ok(one));
        let two = play(&plan("ext4", "", 2), "6.12.117", &[4]).unwrap();
        assert_eq!(two.calls, 4, "both jobs' together");
    }

    #[test]
    fn a_flush_is_what_an_fsync_takes_without_one() {
        let posix = play(&plan("f2fs", "fsync_mode=posix", 1), "6.12.117", &[8]).unwrap();
        let none = play(&plan("f2fs", "fsync_mode=nobarrier", 1), "6.12.117", &[8]).unwrap();
        assert!(none.mean_ns() < posix.mean_ns(), "{none:?} {posix:?}");
    }

    #[test]
    fn what_ours_cannot_play_is_named() {
        let of = |fs, mount, version| play(&plan(fs, mount, 1), version, &[1]).unwrap_err();
        assert!(of("xfs", "", "6.12").contains("xfs is not modelled"));
        assert!(of("ext4", "no_such_option", "6.12").contains("no_such_option"));
        assert!(of("ext4", "", "new").contains("`new` is not a kernel version"));
    }
}
