//! Hostile texts for every parser of the command: seeds of the repository, damaged.

use super::World;
use super::judge::{Case, Problem, run as judge};
use super::rng::{Rng, damage_text};

/// A sort of text: seeds below the repository, bytes that each has in front (`fuzz/src`), and the
/// command that reads it.
struct Sort {
    seeds: &'static [&'static str],
    skip: usize,
    command: &'static [&'static str],
}

const SORTS: [Sort; 16] = [
    Sort {
        seeds: &["examples/append-fsync.fio", "examples/randwrite-fsync.fio"],
        skip: 0,
        command: &["check", "input", "--kind", "fio", "--json"],
    },
    Sort {
        seeds: &["fuzz/seeds/fio_job/dist", "fuzz/seeds/fio_job/plain", "fuzz/seeds/fio_job/zones"],
        skip: 1,
        command: &["fio", "check", "input"],
    },
    Sort {
        seeds: &["fuzz/seeds/wml/varmail", "fuzz/seeds/wml/everything", "fuzz/seeds/wml/oltp"],
        skip: 1,
        command: &["check", "input", "--kind", "wml"],
    },
    Sort {
        seeds: &["fuzz/seeds/program/all", "fuzz/seeds/program/hole"],
        skip: 0,
        command: &["crash", "input", "--count", "1", "--budget", "2s"],
    },
    Sort {
        seeds: &["fuzz/seeds/experiment/cuts", "fuzz/seeds/experiment/sweep"],
        skip: 0,
        command: &["check", "input", "--kind", "experiment", "--json"],
    },
    Sort {
        seeds: &["examples/fsync-eras.toml", "examples/power-cut.toml", "examples/f2fs-modes.toml"],
        skip: 0,
        command: &["check", "input", "--kind", "experiment"],
    },
    Sort {
        seeds: &["devices/zn540/start.toml"],
        skip: 0,
        command: &["replay", "trace", "--on", "./input.toml"],
    },
    Sort {
        seeds: &["fuzz/seeds/block_trace/blkparse", "fuzz/seeds/block_trace/blkparse-recognised"],
        skip: 2,
        command: &["replay", "input", "--on", "fixed"],
    },
    Sort {
        seeds: &["fuzz/seeds/block_trace/blktrace", "fuzz/seeds/block_trace/ftrace"],
        skip: 2,
        command: &["replay", "input", "--on", "fixed", "--json"],
    },
    Sort {
        seeds: &["fuzz/seeds/block_trace/msr", "fuzz/seeds/block_trace/disksim"],
        skip: 2,
        command: &["replay", "input", "--on", "fixed", "--torn-ok"],
    },
    Sort {
        seeds: &["fuzz/seeds/block_trace/iolog", "fuzz/seeds/block_trace/iolog-2"],
        skip: 2,
        command: &["replay", "input", "--on", "fixed", "--wrap"],
    },
    Sort {
        seeds: &[
            "fuzz/seeds/block_trace/alibaba",
            "fuzz/seeds/block_trace/systor",
            "fuzz/seeds/block_trace/spc",
            "fuzz/seeds/block_trace/fiu",
            "fuzz/seeds/block_trace/biosnoop",
        ],
        skip: 2,
        command: &["replay", "input", "--on", "fixed", "--wrap", "--from", "all"],
    },
    Sort {
        seeds: &["fuzz/seeds/mqsim/bandwidth", "fuzz/seeds/mqsim/streaming"],
        skip: 0,
        command: &["replay", "input", "--on", "fixed", "--align"],
    },
    Sort {
        seeds: &["fuzz/seeds/log_writes/log-512", "fuzz/seeds/log_writes/log-4096"],
        skip: 0,
        command: &["replay", "input", "--out", "out", "--size", "16M"],
    },
    Sort {
        seeds: &["fuzz/seeds/block_trace/blkparse"],
        skip: 2,
        command: &["compare", "input", "trace"],
    },
    Sort {
        seeds: &["fuzz/seeds/block_trace/blkparse"],
        skip: 2,
        command: &["calibrate", "input", "--class", "fixed"],
    },
];

/// A damaged text through its command.
pub fn run(world: &World, rng: &mut Rng) -> Result<Vec<Problem>, String> {
    let sort = rng.pick(&SORTS);
    let path = world.root.join(rng.pick(sort.seeds));
    let seed = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = damage_text(rng, seed.get(sort.skip..).unwrap_or(&[]));
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(world.file(name), bytes).map_err(|e| format!("{name}: {e}"))
    };
    let is_device = sort.command.contains(&"./input.toml");
    write(if is_device { "input.toml" } else { "input" }, &text)?;
    if sort.command.contains(&"trace") {
        let trace = world.root.join("fuzz/seeds/block_trace/blkparse-recognised");
        let trace = std::fs::read(&trace).map_err(|e| format!("{}: {e}", trace.display()))?;
        write("trace", trace.get(2..).unwrap_or(&[]))?;
    }
    let mut case = Case::reading(sort.command);
    // How far a campaign comes within its budget is the machine's.
    case.twice = rng.once_in(4) && sort.command[0] != "crash";
    if sort.command.contains(&"--out") {
        case.outputs.push("out");
    }
    judge(world, &case)
}
