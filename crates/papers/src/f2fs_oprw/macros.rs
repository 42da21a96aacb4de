//! Figures 6.2 and 6.3: varmail and OLTP-insert with one thread, varmail with more.

use serde::{Deserialize, Serialize};
use wp_machine::MachineError;
use wp_workload::filebench::{self, RunLength};
use wp_workload::innodb::{OltpInsert, oltp_insert};

use super::machine::{Mode, Setup};

/// Times through varmail's list. (The paper's run is longer; the rate is steady.)
pub const LOOPS: u64 = 400;
/// Inserts.
pub const INSERTS: u64 = 1500;
/// Nanoseconds of filebench's own computing for each flowop: clock reads, locks, choice of a file.
/// Assumed: some 2,000 cycles of 2.1 GHz.
pub const FLOWOP_NS: f64 = 1_000.0;
/// Nanoseconds that server and client compute for an insert. Assumed: one thread of sysbench on
/// such a CPU makes some ten thousand inserts a second where nothing is synced.
pub const THINK_NS: f64 = 80_000.0;

/// Throughputs, operations (or inserts) a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Of F2FS.
    pub f2fs: f64,
    /// Of OPRW.
    pub oprw: f64,
}

impl Rates {
    /// OPRW over F2FS.
    pub fn gain(&self) -> f64 {
        self.oprw / self.f2fs
    }
}

/// Threads of figure 6.3. The paper does not say how many it had; its server has 12 cores.
pub const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// varmail with `threads` threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Threads.
    pub threads: u32,
    /// nobarrier on PLP, as figure 6.2's.
    pub rates: Rates,
}

impl Scaling {
    /// Runs it. Errors: as the machines'.
    pub fn measure(threads: u32, seed: u64) -> Result<Scaling, MachineError> {
        let loops = (LOOPS * 4 / u64::from(threads)).max(LOOPS / 4);
        let of = |mode| {
            let setup = Setup::paper(mode, true, seed);
            varmail_threads(&setup, threads, FLOWOP_NS, loops)
        };
        let rates = Rates { f2fs: of(Mode::NoBarrier)?, oprw: of(Mode::OprwNoBarrier)? };
        Ok(Scaling { threads, rates })
    }
}

/// varmail with one thread. Errors: as the machine's.
pub fn varmail(setup: &Setup, flowop_ns: f64, loops: u64) -> Result<f64, MachineError> {
    varmail_threads(setup, 1, flowop_ns, loops)
}

/// varmail with `threads` threads. Errors: as the machine's.
pub fn varmail_threads(
    setup: &Setup,
    threads: u32,
    flowop_ns: f64,
    loops: u64,
) -> Result<f64, MachineError> {
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let mut personality = filebench::varmail(threads);
    personality.flowop_ns = flowop_ns as u64;
    let (v, seed) = (vfs.clone(), setup.seed);
    let found = machine
        .block_on("filebench", async move {
            filebench::run(&v, &personality, RunLength::Loops(loops), seed).await
        })?
        .map_err(|error| MachineError::Fs { during: "varmail", error })?;
    machine.unmount(&vfs)?;
    Ok(found.ops_per_second())
}

/// OLTP-insert. Errors: as the machine's.
pub fn oltp(setup: &Setup, think_ns: f64, binlog: bool, inserts: u64) -> Result<f64, MachineError> {
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let plan = OltpInsert {
        inserts,
        binlog,
        think_ns: think_ns as u64,
        // The inserts write less than the whole log, so its length does not matter.
        log_bytes: 8 << 20,
        ..OltpInsert::default()
    };
    let (v, seed) = (vfs.clone(), setup.seed);
    let found = machine
        .block_on("sysbench", async move { oltp_insert(&v, &plan, seed).await })?
        .map_err(|error| MachineError::Fs { during: "oltp-insert", error })?;
    machine.unmount(&vfs)?;
    Ok(found.per_second())
}

/// Both workloads with and without power-loss protection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Macros {
    /// varmail, nobarrier on PLP.
    pub varmail: Rates,
    /// OLTP-insert without binary log, the same.
    pub oltp: Rates,
}

impl Macros {
    /// Runs them on machines that `of` makes. Errors: as the machines'.
    pub fn measure(
        of: &dyn Fn(Mode, bool) -> Setup,
        (flowop_ns, think_ns): (f64, f64),
        (loops, inserts): (u64, u64),
    ) -> Result<Macros, MachineError> {
        let (plain, ordered) = (of(Mode::NoBarrier, true), of(Mode::OprwNoBarrier, true));
        Ok(Macros {
            varmail: Rates {
                f2fs: varmail(&plain, flowop_ns, loops)?,
                oprw: varmail(&ordered, flowop_ns, loops)?,
            },
            oltp: Rates {
                f2fs: oltp(&plain, think_ns, false, inserts)?,
                oprw: oltp(&ordered, think_ns, false, inserts)?,
            },
        })
    }
}

/// What no claim is about: the same without power-loss protection, and inserts with a binary log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// varmail in posix mode without PLP.
    pub varmail_no_plp: Rates,
    /// OLTP-insert in posix mode without PLP.
    pub oltp_no_plp: Rates,
    /// OLTP-insert with a binary log, nobarrier on PLP.
    pub oltp_binlog: Rates,
}

impl Others {
    /// Runs them. Errors: as the machines'.
    pub fn measure(seed: u64) -> Result<Others, MachineError> {
        let of = |mode, plp| Setup::paper(mode, plp, seed);
        let both = |plp, run: &dyn Fn(&Setup) -> Result<f64, MachineError>| {
            let (a, b) = match plp {
                true => (Mode::NoBarrier, Mode::OprwNoBarrier),
                false => (Mode::Posix, Mode::OprwPosix),
            };
            Ok::<Rates, MachineError>(Rates { f2fs: run(&of(a, plp))?, oprw: run(&of(b, plp))? })
        };
        Ok(Others {
            varmail_no_plp: both(false, &|s| varmail(s, FLOWOP_NS, LOOPS))?,
            oltp_no_plp: both(false, &|s| oltp(s, THINK_NS, false, INSERTS))?,
            oltp_binlog: both(true, &|s| oltp(s, THINK_NS, true, INSERTS))?,
        })
    }
}
