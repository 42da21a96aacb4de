//! The figures.

use wp_base::Span;
use wp_workload::filebench::RunLength;

use super::Way::{Down, Still, Up};
use super::{Figure, Way};
use crate::machine::MachineError;
use crate::paper::direct_io::{self, Figure as Io, Reading, System as Fs};
use crate::paper::ext4_fsync::{self, RunPlan};
use crate::paper::f2fs_oprw::{self, CutPlan, Drive, Macros, Mode, Setup};
use crate::paper::inode_trim::{self, Deleted, Trim, Work};
use crate::paper::journal_conflict::{self, Load, System};

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
        why: "each of its two flushes waits until what is in the buffer is programmed; a few pages never fill half a buffer",
        measure: |seed| fsync_us(RunPlan::figure_10("3.8", "alloc", 1, seed)),
        ..FIGURE
    },
    Figure {
        paper: FSYNC,
        place: "figure 10",
        what: "the same, 3.4, in the block, 100 files",
        unit: "us",
        predicted: SLOWER,
        why: "the flushes again, with 100 blocks of data in the buffer, which is less than a quarter of it",
        measure: |seed| fsync_us(RunPlan::figure_10("3.4", "extend", 100, seed)),
        ..FIGURE
    },
    Figure {
        paper: FSYNC,
        place: "figure 10",
        what: "3.4 over 3.8, in the block, 100 files",
        unit: "ratio",
        predicted: SLOWER,
        why: "3.4 has 100 blocks more to program, several to each die, where 3.8 has a page or two: its flush is of more programs, and the longer they take, the nearer the ratio comes to theirs",
        found: twice(
            "the 100 blocks are programmed beside one another on all dies, and what 3.4 has more is commands and transfers as well: its extra time became 1.6 times as long, the fsync that both have 1.8 times",
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
        why: "the eMMC programs for each flush, too; ten files fit its halved cache",
        measure: |seed| fsync_us(RunPlan::phone("3.4", "alloc", 10, seed)),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "figure 6.1 (a)",
        what: "strict over posix, 4 KiB, no PLP",
        unit: "ratio",
        predicted: RATE_FALLS,
        why: "(S + F) / (S + 2 F): strict has one flush more, and a flush is a program; the longer, the nearer to 1/2",
        found: twice(
            "it goes that way, by less than what counts: with this preset's flush the ratio is near 1/2 already",
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
        why: "its flush waits for the program of data and nodes; one request is never near half a buffer",
        measure: |seed| Ok(request_ns(Mode::Posix, false, 4, seed)? / 1e3),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "figure 6.1 (b)",
        what: "OPRW over F2FS, 4 KiB, PLP",
        unit: "ratio",
        predicted: [Still; 3],
        why: "with capacitors nobody waits for a program, and 4 KiB at a time stay far below what the flash takes",
        found: [
            "",
            "",
            "the file is laid out just before, and the first requests wait until that is programmed: of 100 requests the ratio was 0.78, of these 1000 it is 1.17",
        ],
        measure: |seed| gain(4, seed),
    },
    Figure {
        paper: OPRW,
        place: "figure 6.1 (b)",
        what: "OPRW over F2FS, 256 KiB, PLP",
        unit: "ratio",
        predicted: RATE_FALLS,
        why: "at that size the flash of half the speed is slower than the host: both wait for tokens, and what OPRW hides is hidden in that wait; half a buffer is full sooner, and at its old speed empty soon enough",
        found: [
            "",
            "as it is this size comes near what the flash takes: with a smaller buffer both wait for tokens now and then",
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
        why: "one thread of mails is slower than the flash of half the speed, and nothing waits for programs",
        measure: |seed| Ok(macros(seed)?.varmail.gain()),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "figure 6.2 (b)",
        what: "OPRW over F2FS, OLTP-insert, PLP",
        unit: "ratio",
        predicted: [Still; 3],
        why: "the same of inserts",
        measure: |seed| Ok(macros(seed)?.oltp.gain()),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "table 6.2",
        what: "failures of posix, no PLP",
        unit: "of 1000 cuts",
        predicted: [Up, Down, Up],
        why: "nodes pass data while units are being programmed, which takes twice as long; of half a buffer less is in doubt at once",
        found: [
            "",
            "writes of 256 KiB at most, with an fsync after each, never fill half the buffer: what is in doubt is bounded by the flushes",
            "",
        ],
        measure: |seed| failures(Mode::Posix, seed),
    },
    Figure {
        paper: OPRW,
        place: "table 6.2",
        what: "failures of strict_fixed, no PLP",
        unit: "of 1000 cuts",
        predicted: [Still; 3],
        why: "order is by flushes, whatever the drive's times",
        measure: |seed| failures(Mode::StrictFixed, seed),
        ..FIGURE
    },
    Figure {
        paper: OPRW,
        place: "table 6.2",
        what: "failures of OPRW posix, no PLP",
        unit: "of 1000 cuts",
        predicted: [Still; 3],
        why: "recovery asks the write pointers, whatever the drive's times",
        measure: |seed| failures(Mode::OprwPosix, seed),
        ..FIGURE
    },
    Figure {
        paper: DIRECT,
        place: "figure 1",
        what: "F2FS, sequential, records of 4 KiB",
        unit: "MiB/s",
        predicted: [Still; 3],
        why: "a record at a time, each done when it is in the buffer, is less than even the slower flash takes",
        measure: |seed| mib_per_s(Fs::F2fs, Io::Sequential(Reading::Fresh), 4 << 10, seed),
        ..FIGURE
    },
    Figure {
        paper: DIRECT,
        place: "figure 1",
        what: "F2FS, sequential, records of 4 MiB",
        unit: "MiB/s",
        predicted: [Down; 3],
        why: "faster than the flash, but for what the buffer takes up: a slower flash or a smaller buffer, and it shows sooner",
        found: [
            "",
            "MobiBench's time ends with an fsync, whose flush waits for all that the buffer took up: its size is of no consequence",
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
        why: "the same: four buffers' worth of data at the link's speed",
        found: ["", "the time ends with an fsync, as above", ""],
        measure: |seed| mib_per_s(Fs::Btrfs, Io::Sequential(Reading::Fresh), 1 << 20, seed),
    },
    Figure {
        paper: DIRECT,
        place: "figure 2",
        what: "F2FS, random, records of 4 KiB",
        unit: "MiB/s",
        predicted: [Still; 3],
        why: "as in order: the flash programs what is in the buffer one behind the other, wherever it is to go",
        measure: |seed| mib_per_s(Fs::F2fs, Io::Random, 4 << 10, seed),
        ..FIGURE
    },
    Figure {
        paper: DIRECT,
        place: "figure 2",
        what: "EXT4, random, records of 4 MiB",
        unit: "MiB/s",
        predicted: [Down; 3],
        why: "as in order: the flash is slower than the link",
        found: ["", "the time ends with an fsync, as above", ""],
        measure: |seed| mib_per_s(Fs::Ext4, Io::Random, 4 << 20, seed),
    },
    Figure {
        paper: TRIM,
        place: "figure 2",
        what: "valid pages with discard",
        unit: "pages",
        predicted: [Still; 3],
        why: "what stays valid is what was written and never discarded, at any speed",
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
        why: "how much is copied is a matter of what is valid where, not of when",
        measure: |seed| Ok(wear(seed)?.amplification),
        ..FIGURE
    },
    Figure {
        paper: TRIM,
        place: "real workloads",
        what: "sync, p50, create and delete, inode-block trim",
        unit: "us",
        predicted: [Up; 3],
        why: "a sync of 2000 files is of two buffers, and the flash is what is waited for; half a buffer takes up less of it",
        found: [
            "",
            "a sync ends with a flush, too, so all of it is programmed whatever the buffer holds; why it is 3 per cent quicker was not looked for",
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
        why: "every mail waits for a commit and its flushes, so for programs; a transaction is far below half a buffer",
        measure: |seed| ops(System::Ext4Dr, seed),
        ..FIGURE
    },
    Figure {
        paper: BARRIER,
        place: "graph 1",
        what: "EXT4-OD, varmail, 8 threads",
        unit: "ops/s",
        predicted: [Still; 3],
        why: "no flush: what is sent is less than the slower flash takes",
        found: twice(
            "each mail commits some blocks to the log, which eight threads do so often that the flash, not the host, is the limit once it is half as quick",
        ),
        measure: |seed| ops(System::Ext4Od, seed),
    },
    Figure {
        paper: BARRIER,
        place: "graph 1",
        what: "BFS-DR, varmail, 8 threads",
        unit: "ops/s",
        predicted: RATE_FALLS,
        why: "the flush thread makes durable what fsync waits for",
        measure: |seed| ops(System::BfsDr, seed),
        ..FIGURE
    },
    Figure {
        paper: BARRIER,
        place: "graph 1",
        what: "F2FS, varmail, 8 threads",
        unit: "ops/s",
        predicted: RATE_FALLS,
        why: "each fsync, or several together, wait for a flush",
        measure: |seed| ops(System::F2fs, seed),
        ..FIGURE
    },
    Figure {
        paper: BARRIER,
        place: "table 2",
        what: "BFS-DR, conflicts an operation",
        unit: "ratio",
        predicted: SLOWER,
        why: "a transaction is in flight as long as its flush: more of what others want is in one that commits",
        found: twice(
            "a longer flush has more mails share a transaction, and a buffer is met once in each: more conflicts a transaction, fewer transactions",
        ),
        measure: |seed| Ok(conflict(System::BfsDr, seed)?.per_op()),
    },
    Figure {
        paper: BARRIER,
        place: "the cure",
        what: "CJFS over BFS-DR, varmail, 8 threads",
        unit: "ratio",
        predicted: SLOWER,
        why: "what versions and compound flushes save is waits for flushes, which are longer",
        measure: |seed| Ok(ops(System::Cjfs3, seed)? / ops(System::BfsDr, seed)?),
        ..FIGURE
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
