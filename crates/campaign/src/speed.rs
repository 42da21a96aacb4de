//! How quick a program is on a bench, and what its drive is sent: what a table of several file
//! systems has beside their crash states.

use std::collections::BTreeMap;

use wp_base::SECTOR_BYTES;
use wp_machine::workload::program;
use wp_machine::{Machine, MachineError};
use wp_workload::fio::Stat;
use wp_workload::program::{Program, Step};

use super::{Bench, live};

/// What a program came to in virtual time.
#[derive(Clone, Debug)]
pub struct Speed {
    /// Times of its calls that make something durable, nanoseconds.
    pub syncs: Stat,
    /// From its first call to the return of its last, nanoseconds.
    pub elapsed_ns: u64,
    /// Calls that the file system failed.
    pub failed_calls: u64,
    /// FLUSHes that the drive was sent meanwhile.
    pub flushes: u64,
    /// Bytes that it was sent, with a `sync` behind the program.
    pub written_bytes: u64,
}

/// Runs `program` in a new file system of `bench`.
///
/// Errors: a machine that cannot be, a file system that fails, threads and steps that make the
/// device fail.
pub fn speed(bench: &Bench, program: &Program) -> Result<Speed, MachineError> {
    let failed = |error| MachineError::Fs { during: "a program", error };
    let mut program = program.clone();
    // What comes in the background after the end is not the program's.
    while program.0.pop_if(|step| matches!(step, Step::Nap(_))).is_some() {}
    live(bench, |machine, vfs| {
        let before = sent(machine);
        let v = vfs.clone();
        let played = async move { program::play(&v, &program).await };
        let played = machine.block_on("program", played)?.map_err(failed)?;
        let after = sent(machine);
        let v = vfs.clone();
        machine.block_on("sync", async move { v.sync().await })?.map_err(failed)?;
        Ok(Speed {
            syncs: played.syncs,
            elapsed_ns: played.elapsed_ns,
            failed_calls: played.failed,
            flushes: after.0 - before.0,
            written_bytes: sent(machine).1 - before.1,
        })
    })
}

/// FLUSHes and bytes that the devices were sent so far.
fn sent(machine: &Machine) -> (u64, u64) {
    let further = machine.more.iter().map(|(queue, _)| queue);
    let each = std::iter::once(&machine.queue).chain(further).map(|queue| {
        let all: BTreeMap<&str, u64> = queue.with_device(|d| d.counters()).into_iter().collect();
        let of = |name: &str| all.get(name).copied().unwrap_or(0);
        (of("flushes"), of("written_sectors") * SECTOR_BYTES)
    });
    each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}
