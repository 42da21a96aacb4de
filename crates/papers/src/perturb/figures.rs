//! The figures.

use wp_base::Span;
use wp_machine::MachineError;
use wp_workload::filebench::RunLength;

use super::Way::{Down, Still, Up};
use super::{Figure, Way};
use crate::direct_io::{self, Figure as Io, Reading, System as Fs};
use crate::ext4_fsync::{self, RunPlan};
use crate::f2fs_oprw::{self, CutPlan, Drive, Macros, Mode, Setup};
use crate::inode_trim::{self, Deleted, Trim, Work};
use crate::journal_conflict::{self, Load, System};

const FSYNC: &str = ext4_fsync::SLUG;
const OPRW: &str = f2fs_oprw::SLUG;
const DIRECT: &str = direct_io::SLUG;
const TRIM: &str = inode_trim::SLUG;
const BARRIER: &str = journal_conflict::SLUG;

/// What the others differ from.
const FIGURE: Figure = Figure {
    paper: "",
    place: "",
    what: "",
    unit: "",
    predicted: [Still; 3],
    why: "",
    found: [""; 3],
    measure: |_| Ok(0.0),
};

/// What longer programs make longer, and half a buffer leaves alone.
const SLOWER: [Way; 3] = [Up, Still, Up];
/// The same of rates.
const RATE_FALLS: [Way; 3] = [Down, Still, Down];

/// A reason of what longer programs do, with half a buffer and without.
const fn twice(reason: &'static str) -> [&'static str; 3] {
    [reason, "", reason]
}

/// All, paper by paper.
pub static FIGURES: &[Figure] = &[
    Figure {
        paper: FSYNC,
        place: "figure 10",
        what: "latency of the fsync, 3.8, allocating, 1 file",
        unit: "us",
        predicted: SLOWER,
        why: "each of its two flushes waits until the buffer is programmed; a few pages never \
            fill half of the buffer",
        measure: |seed| fsync_us(RunPlan::figure_10("3.8", "alloc", 1, seed)),
        ..FIGURE
    },
    Figure {
        paper: FSYNC,
        place: "figure 10",
        what: "latency of the fsync, 3.4, within a block, 100 files",
        unit: "us",
        predicted: SLOWER,
        why: "each of its flushes waits until the buffer is programmed; 100 blocks of data fill \
            less than a quarter of the buffer",
        measure: |seed| fsync_us(RunPlan::figure_10("3.4", "extend", 100, seed)),
        ..FIGURE
    },
    Figure {
        paper: FSYNC,
        place: "figure 10",
        what: "3.4 over 3.8, within a block, 100 files",
        unit: "ratio",
        predicted: SLOWER,
        why: "3.4 programs 100 more blocks, several on each die, and 3.8 one or two pages: the \
            longer a program takes, the larger its share in the latency of 3.4",
        found: twice(
            "all dies program the 100 blocks in parallel, and 3.4 also sends more commands and \
             transfers: its extra time grew by a factor of 1.6, the common part of the fsync by \
             1.8",
        ),
        measure: |seed| {
            let of = |era| fsync_us(RunPlan::figure_10(era, "extend", 100, seed));
            Ok(of("3.4")? / of("3.8")?)
        },
    },
    Figure {
        paper: FSYNC,
        place: "figure 10, phone",
        what: "latency of the fsync, 3.4, allocating, 10 files",
        unit: "us",
        predicted: SLOWER,
        why: "the eMMC too programs its cache at each flush; ten files fit into half of the cache",
        measure: |seed| fsync_us(RunPlan::phone("3.4", "alloc", 10, seed)),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "figure 6.1 (a)",
        what: "strict over posix, 4 KiB, no PLP",
        unit: "ratio",
        predicted: RATE_FALLS,
        why: "(S + F) / (S + 2 F): strict sends one more flush, and a flush costs a program; a \
            longer program moves the ratio towards 1/2",
        found: twice(
            "the ratio falls, but by less than the threshold: with this preset's flush it is \
             already near 1/2",
        ),
        measure: |seed| {
            Ok(request_ns(Mode::Posix, false, 4, seed)?
                / request_ns(Mode::StrictFixed, false, 4, seed)?)
        },
    },
    Figure {
        paper: OPRW,
        place: "figure 6.1 (a)",
        what: "time of a request, posix, 4 KiB, no PLP",
        unit: "us",
        predicted: SLOWER,
        why: "its flush waits for the program of data and nodes; one request is far smaller than \
            half of the buffer",
        measure: |seed| Ok(request_ns(Mode::Posix, false, 4, seed)? / 1e3),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "figure 6.1 (b)",
        what: "OPRW over F2FS, 4 KiB, PLP",
        unit: "ratio",
        predicted: [Still; 3],
        why: "with power-loss protection no request waits for a program, and requests of 4 KiB \
            stay far below the flash bandwidth",
        found: [
            "",
            "",
            "the file is laid out just before the measurement, and the first requests wait until \
             it is programmed: the ratio is 0.78 with 100 requests and 1.17 with these 1000",
        ],
        measure: |seed| gain(4, seed),
    },
    Figure {
        paper: OPRW,
        place: "figure 6.1 (b)",
        what: "OPRW over F2FS, 256 KiB, PLP",
        unit: "ratio",
        predicted: RATE_FALLS,
        why: "at this size flash of half the speed is slower than the host: both modes wait for \
            buffer space, and this wait hides the gain of OPRW; half a buffer fills sooner, but \
            at the old speed it also drains in time",
        found: [
            "",
            "this size already comes near the flash bandwidth: with a smaller buffer both modes \
             sometimes wait for buffer space",
            "",
        ],
        measure: |seed| gain(256, seed),
    },
    Figure {
        paper: OPRW,
        place: "figure 6.2 (b)",
        what: "OPRW over F2FS, varmail, PLP",
        unit: "ratio",
        predicted: [Still; 3],
        why: "one varmail thread is slower than flash of half the speed, and no request waits for \
            a program",
        measure: |seed| Ok(macros(seed)?.varmail.gain()),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "figure 6.2 (b)",
        what: "OPRW over F2FS, OLTP-insert, PLP",
        unit: "ratio",
        predicted: [Still; 3],
        why: "one insert thread is slower than flash of half the speed, and no request waits for \
            a program",
        measure: |seed| Ok(macros(seed)?.oltp.gain()),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "table 6.2",
        what: "failures of posix, no PLP",
        unit: "of 1000 power failures",
        predicted: [Up, Down, Up],
        why: "nodes can overtake data during a program, which takes twice as long; half a buffer \
            holds fewer unpersisted writes",
        found: [
            "",
            "writes of at most 256 KiB, each with an fsync, never fill half of the buffer: the \
             flushes bound the unpersisted writes",
            "",
        ],
        measure: |seed| failures(Mode::Posix, seed),
    },
    Figure {
        paper: OPRW,
        place: "table 6.2",
        what: "failures of strict_fixed, no PLP",
        unit: "of 1000 power failures",
        predicted: [Still; 3],
        why: "flushes order the writes at any drive speed",
        measure: |seed| failures(Mode::StrictFixed, seed),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "table 6.2",
        what: "failures of OPRW posix, no PLP",
        unit: "of 1000 power failures",
        predicted: [Still; 3],
        why: "recovery checks the write pointers at any drive speed",
        measure: |seed| failures(Mode::OprwPosix, seed),
        ..FIGURE
    },
    Figure {
        paper: DIRECT,
        place: "figure 1",
        what: "F2FS, sequential, records of 4 KiB",
        unit: "MiB/s",
        predicted: [Still; 3],
        why: "records complete in the buffer, one at a time, at a rate below the bandwidth of \
            even the slower flash",
        measure: |seed| mib_per_s(Fs::F2fs, Io::Sequential(Reading::Fresh), 4 << 10, seed),
        ..FIGURE
    },
    Figure {
        paper: DIRECT,
        place: "figure 1",
        what: "F2FS, sequential, records of 4 MiB",
        unit: "MiB/s",
        predicted: [Down; 3],
        why: "the host is faster than the flash, and only the buffer hides it: slower flash or a \
            smaller buffer hides less",
        found: [
            "",
            "MobiBench's time ends with an fsync, whose flush waits for the whole buffer: the \
             buffer size has no effect",
            "",
        ],
        measure: |seed| mib_per_s(Fs::F2fs, Io::Sequential(Reading::Fresh), 4 << 20, seed),
    },
    Figure {
        paper: DIRECT,
        place: "figure 1",
        what: "BTRFS, sequential, records of 1 MiB",
        unit: "MiB/s",
        predicted: [Down; 3],
        why: "the host is faster than the flash: it sends four times the buffer size at link speed",
        found: ["", "the time ends with an fsync, as above", ""],
        measure: |seed| mib_per_s(Fs::Btrfs, Io::Sequential(Reading::Fresh), 1 << 20, seed),
    },
    Figure {
        paper: DIRECT,
        place: "figure 2",
        what: "F2FS, random, records of 4 KiB",
        unit: "MiB/s",
        predicted: [Still; 3],
        why: "as for sequential writes: the flash programs the buffer in arrival order, whatever \
            the addresses",
        measure: |seed| mib_per_s(Fs::F2fs, Io::Random, 4 << 10, seed),
        ..FIGURE
    },
    Figure {
        paper: DIRECT,
        place: "figure 2",
        what: "EXT4, random, records of 4 MiB",
        unit: "MiB/s",
        predicted: [Down; 3],
        why: "as for sequential writes: the flash is slower than the link",
        found: ["", "the time ends with an fsync, as above", ""],
        measure: |seed| mib_per_s(Fs::Ext4, Io::Random, 4 << 20, seed),
    },
    Figure {
        paper: TRIM,
        place: "figure 2",
        what: "valid pages with discard",
        unit: "pages",
        predicted: [Still; 3],
        why: "the number of written and not discarded pages does not depend on speed",
        measure: |seed| pages(Trim::Discard, seed),
        ..FIGURE
    },
    Figure {
        paper: TRIM,
        place: "figure 3",
        what: "valid pages with inode-block trim",
        unit: "pages",
        predicted: [Still; 3],
        why: "the same",
        measure: |seed| pages(Trim::Safe, seed),
        ..FIGURE
    },
    Figure {
        paper: TRIM,
        place: "real workloads",
        what: "write amplification, create and delete, inode-block trim",
        unit: "ratio",
        predicted: [Still; 3],
        why: "garbage collection copies valid pages; their number and place do not depend on time",
        measure: |seed| Ok(wear(seed)?.amplification),
        ..FIGURE
    },
    Figure {
        paper: TRIM,
        place: "real workloads",
        what: "sync, p50, create and delete, inode-block trim",
        unit: "us",
        predicted: [Up; 3],
        why: "a sync of 2000 files writes twice the buffer size and waits for the flash; half a \
            buffer absorbs less of it",
        found: [
            "",
            "a sync also ends with a flush, so all data is programmed at any buffer size; the \
             reason of the 3 % gain is not known",
            "",
        ],
        measure: |seed| Ok(wear(seed)?.latency_ns[0] as f64 / 1e3),
    },
    Figure {
        paper: BARRIER,
        place: "graph 1",
        what: "EXT4-DR, varmail, 8 threads",
        unit: "ops/s",
        predicted: RATE_FALLS,
        why: "every mail waits for a commit and its flushes, and so for programs; a transaction \
            is far smaller than half of the buffer",
        measure: |seed| ops(System::Ext4Dr, seed),
        ..FIGURE
    },
    Figure {
        paper: BARRIER,
        place: "graph 1",
        what: "EXT4-OD, varmail, 8 threads",
        unit: "ops/s",
        predicted: [Still; 3],
        why: "no flush: the write rate is below the bandwidth of the slower flash",
        found: twice(
            "eight threads commit so many log blocks that flash of half the speed becomes the \
             bottleneck",
        ),
        measure: |seed| ops(System::Ext4Od, seed),
    },
    Figure {
        paper: BARRIER,
        place: "graph 1",
        what: "BFS-DR, varmail, 8 threads",
        unit: "ops/s",
        predicted: RATE_FALLS,
        why: "fsync waits for the flush thread, which waits for programs",
        measure: |seed| ops(System::BfsDr, seed),
        ..FIGURE
    },
    Figure {
        paper: BARRIER,
        place: "graph 1",
        what: "F2FS, varmail, 8 threads",
        unit: "ops/s",
        predicted: RATE_FALLS,
        why: "each fsync, or a group of them, waits for a flush",
        measure: |seed| ops(System::F2fs, seed),
        ..FIGURE
    },
    Figure {
        paper: BARRIER,
        place: "table 2",
        what: "BFS-DR, conflicts an operation",
        unit: "ratio",
        predicted: SLOWER,
        why: "a transaction is in flight as long as its flush: other threads find more of their \
            buffers in committing transactions",
        measure: |seed| Ok(conflict(System::BfsDr, seed)?.per_op()),
        ..FIGURE
    },
    Figure {
        paper: BARRIER,
        place: "CJFS techniques",
        what: "CJFS over BFS-DR, varmail, 8 threads",
        unit: "ratio",
        predicted: SLOWER,
        why: "buffer versions and compound flushes save waits for flushes, and these waits are \
            longer",
        found: twice(
            "the threads fall apart into more groups, each with a transaction and a flush of its \
             own: 1.8 syncs a transaction instead of 3.5; a journaling without conflicts \
             (jh_versions=all) does the same, so it is not the versions",
        ),
        measure: |seed| Ok(ops(System::Cjfs3, seed)? / ops(System::BfsDr, seed)?),
    },
];

fn fsync_us(plan: RunPlan) -> Result<f64, MachineError> {
    Ok(ext4_fsync::run(&plan)?.fsync_ns as f64 / 1e3)
}

/// Requests of a run of figure 6.1: enough that what the layout of the file has left in the buffer,
/// some programs' worth of time, does not matter.
const REQUESTS: u64 = 1000;

fn request_ns(mode: Mode, plp: bool, kib: u64, seed: u64) -> Result<f64, MachineError> {
    Ok(f2fs_oprw::rate(&Setup::paper(mode, plp, seed), kib, REQUESTS)?.ns)
}

fn gain(kib: u64, seed: u64) -> Result<f64, MachineError> {
    let of = |mode| request_ns(mode, true, kib, seed);
    Ok(of(Mode::NoBarrier)? / of(Mode::OprwNoBarrier)?)
}

fn macros(seed: u64) -> Result<Macros, MachineError> {
    let of = |mode, plp| Setup::paper(mode, plp, seed);
    Macros::measure(&of, (f2fs_oprw::FLOWOP_NS, f2fs_oprw::THINK_NS), (300, 400))
}

/// Failures of a thousand cuts: of posix, whose rate is the one examined, 25 of each of 120 seeds.
fn failures(mode: Mode, seed: u64) -> Result<f64, MachineError> {
    let seeds = if mode == Mode::Posix { 120 } else { 40 };
    let plan = CutPlan { mode, drive: Drive::PRESET, seeds: (seed, seeds), cuts: 25 };
    Ok(f2fs_oprw::cut(&plan, 1, &|_| true)?.rate() * 1000.0)
}

fn mib_per_s(system: Fs, figure: Io, record: u64, seed: u64) -> Result<f64, MachineError> {
    let program = figure.program(record, direct_io::SHORT_FILE_BYTES);
    Ok(direct_io::run(&direct_io::Plan::paper(system, program, seed))?.mib_per_s)
}

fn pages(trim: Trim, seed: u64) -> Result<f64, MachineError> {
    let plan = inode_trim::RunPlan::paper(trim, Deleted::All, seed);
    Ok(inode_trim::run(&plan)?.unmounted.counted() as f64)
}

fn wear(seed: u64) -> Result<inode_trim::Wear, MachineError> {
    inode_trim::wear(Work::CreateDelete, (Trim::Safe, false), 15, seed)
}

fn conflict(system: System, seed: u64) -> Result<journal_conflict::Outcome, MachineError> {
    let length = RunLength::Time(Span::millis(400));
    journal_conflict::run(&journal_conflict::Plan::paper(system, Load::Varmail, 8, length, seed))
}

fn ops(system: System, seed: u64) -> Result<f64, MachineError> {
    Ok(conflict(system, seed)?.ops_per_second)
}
