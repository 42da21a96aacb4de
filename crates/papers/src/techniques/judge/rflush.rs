//! RFLUSH: F2FS on the paper's drive, with its flushes of a set and with plain ones.

use wp_base::Span;
use wp_campaign::{Bench, Campaign, Source};
use wp_crash::Rule;
use wp_machine::MachineError;
use wp_workload::program::Program;

use super::Ask;
use super::beside::{Done, Load, Setup, params, run};
use crate::claims::Measured;
use crate::journal_conflict::profile;
use crate::vary::{BY_HALF, Range, Variation};

/// The published emulator's flash and its times, on a drive that serves a FLUSH beside others. What
/// it says nothing of (commands, link) is that of the class.
const DRIVE: [(&str, u64); 17] = [
    ("channels", 10),
    ("dies_per_channel", 30),
    ("planes", 1),
    ("page_bytes", 4096),
    ("pages_per_program", 1),
    ("pages_per_block", 128),
    ("blocks_per_plane", 256),
    ("capacity_bytes", 32 << 30),
    ("program_ns", PROGRAM_NS),
    ("read_ns", 100_000),
    ("erase_ns", 3_000_000),
    // 4 KiB in 100 us.
    ("bus_mb_s", 41),
    ("link_mb_s", 1600),
    ("flush_beside_others", 1),
    ("flush_overhead_ns", 0),
    ("queue_depth", 128),
    ("range_flush", 1),
];
const PROGRAM_NS: u64 = 1_300_000;
const MIB: u64 = 1 << 20;
/// Write buffers of the sweep, MiB.
const BUFFERS: [u64; 4] = [32, 128, 512, 2048];
/// Workloads of the sweep: tasks that sync and tasks that write.
const LOADS: [(&str, u32, u32); 3] =
    [("1 syncer, 2 writers", 1, 2), ("16 syncers", 16, 0), ("16 syncers, 2 writers", 16, 2)];

fn done(
    ask: Ask,
    rflush: &str,
    buffer_mib: u64,
    (syncers, writers): (u32, u32),
    varied: Option<&Variation>,
) -> Result<Done, MachineError> {
    let memory = "dirty_bytes=268435456,dirty_background_bytes=67108864";
    let mut setup = Setup {
        fs: format!("f2fs,era=4.7,noextent_cache,{memory}{rflush}"),
        device: "850pro-256",
        params: params(&DRIVE),
        elevator: "noop".to_owned(),
        kernel: (4, 7),
        cpu: profile().model(),
        seed: ask.seed,
    };
    setup.params.push(("buffer_bytes".to_owned(), buffer_mib * MIB));
    if let Some(varied) = varied {
        varied.apply(&mut setup.params, &mut setup.cpu);
    }
    let length = Span::millis(ask.pick(300, 3000));
    let file_bytes = if writers > 0 { 64 * MIB } else { 8 * MIB };
    run(&setup, Load { syncers, writers, file_bytes, length })
}

/// Crash states of the published variant that lose what was synced.
fn lost(ask: Ask) -> Result<u64, MachineError> {
    let (fs, options) =
        wp_machine::spec::file_system("f2fs,rflush=data").map_err(MachineError::Config)?;
    let mut bench = Bench::of(fs, options)?;
    bench.device_params.push(("range_flush".to_owned(), 1));
    let text = "open 0 a rw,creat; pwrite 0 4096 0 1; fsync 0";
    let program = Program::parse(&text.replace("; ", "\n")).expect("text of our own");
    let campaign =
        Campaign { seed: ask.seed, ..Campaign::new(bench, Source::Text(program), (0, 1)) };
    let found = wp_campaign::run(&campaign, 1, &|_| true);
    Ok(found.totals.broken[Rule::LostSync as usize])
}

/// The best point of the sweep by what `of` says of both, and its name.
fn best(points: &[(String, Done, Done)], of: impl Fn(&Done, &Done) -> f64) -> (usize, f64, &str) {
    let values = points.iter().enumerate().map(|(n, (name, r, f))| (n, of(r, f), name.as_str()));
    values.max_by(|a, b| a.1.total_cmp(&b.1)).expect("a sweep")
}

pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    const LOG: &str = ",rflush=log";
    let mut points = Vec::new();
    let mut all = Vec::new();
    for buffer in BUFFERS {
        for (name, syncers, writers) in LOADS {
            let who = (syncers, writers);
            let with = done(ask, LOG, buffer, who, None)?;
            let without = done(ask, "", buffer, who, None)?;
            points.push((format!("{name}, {buffer} MiB"), with, without));
            all.push((buffer, who));
        }
    }
    let ratio = |r: &Done, f: &Done| r.syncs_per_second / f.syncs_per_second;
    // Per fsync: both run for the same time, and the quicker one does more.
    let saved = |r: &Done, f: &Done| {
        let each = |d: &Done| d.flash_bytes as f64 / d.sync_ns.len().max(1) as f64;
        100.0 * (1.0 - each(r) / each(f))
    };
    let (at, most, name) = best(&points, ratio);
    let mut range = Range::new(most);
    for varied in Variation::of_all_cpu(BY_HALF) {
        let (buffer, who) = all[at];
        let with = done(ask, LOG, buffer, who, Some(&varied))?;
        range.widen(ratio(&with, &done(ask, "", buffer, who, Some(&varied))?));
    }
    let (_, least, least_name) = best(&points, saved);
    let (_, beside, plain) = &points[0];
    let (tail, plain_tail) = (beside.permille_ns(1), plain.permille_ns(1));
    let alone = (1, 0);
    let (a, b) = (done(ask, LOG, 1024, alone, None)?, done(ask, "", 1024, alone, None)?);
    let alone = a.mean_ns() / b.mean_ns();
    Ok(vec![
        ("rflush.tput.max", range.measured().why(format!("best at {name}"))),
        (
            "rflush.tput.max.b",
            Measured::value(most).inconsistent("the same figure is 5.6 and 6.5 in two texts"),
        ),
        ("rflush.traffic", Measured::value(-least).why(format!("best at {least_name}, per fsync"))),
        (
            "rflush.tail",
            Measured::answer(tail < plain_tail).why(format!(
                "{} us, plain FLUSH {} us",
                tail / 1000,
                plain_tail / 1000
            )),
        ),
        (
            "rflush.prog",
            Measured::value(PROGRAM_NS as f64 / 1000.0)
                .why("read 100, erase 3000, a page over the bus 100 us"),
        ),
        ("rflush.null", Measured::value(alone)),
        ("rflush.loss", Measured::value(lost(ask)? as f64)),
    ])
}
