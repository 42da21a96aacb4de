//! `force_copy`: varmail on the machine of paper journal-conflict, with the switch and without.

use wp_base::Span;
use wp_machine::MachineError;
use wp_workload::filebench::RunLength;

use super::Ask;
use crate::claims::Measured;
use crate::journal_conflict::{Load, Outcome, Plan, System, run};
use crate::vary::{BY_HALF, Range, Variation};

/// Threads of the sweep.
const THREADS: [u32; 8] = [1, 2, 4, 8, 16, 24, 32, 40];

/// A run of varmail, with the switch or without; `varied`: with other assumed costs.
fn varmail(
    ask: Ask,
    threads: u32,
    length: RunLength,
    copies: bool,
    varied: Option<&Variation>,
) -> Result<Outcome, MachineError> {
    let plan = Plan::paper(System::Ext4Dr, Load::Varmail, threads, length, ask.seed);
    let mut plan = Plan { more: if copies { "force_copy" } else { "" }, ..plan };
    if let Some(varied) = varied {
        varied.apply(&mut plan.params, &mut plan.cpu);
    }
    run(&plan)
}

/// Operations per second with the switch, over stock.
fn gain(ask: Ask, threads: u32, varied: Option<&Variation>) -> Result<f64, MachineError> {
    let length = RunLength::Time(Span::millis(ask.pick(200, 2000)));
    let with = varmail(ask, threads, length, true, varied)?;
    let without = varmail(ask, threads, length, false, varied)?;
    Ok(with.ops_per_second / without.ops_per_second)
}

/// What the journal wrote and the drive was asked, which the switch leaves as it is.
fn requests(o: &Outcome) -> [u64; 4] {
    let of = |name| o.counter(name);
    [o.flushes, of("commits"), of("blocks_logged"), of("control_blocks")]
}

pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    let length = RunLength::Time(Span::millis(ask.pick(500, 10_000)));
    let (with, stock) =
        (varmail(ask, 8, length, true, None)?, varmail(ask, 8, length, false, None)?);
    let waits = with.counter("conflict_case3_shadow");
    let had_any = stock.counter("conflict_case3_shadow");
    let not_copied =
        with.counter("blocks_logged") as f64 - with.counter("conflict_case4_copy") as f64;
    let copies = with.counter("forced_copies") as f64;

    let loops = RunLength::Loops(ask.pick(20, 200));
    let (one_with, one_stock) =
        (varmail(ask, 1, loops, true, None)?, varmail(ask, 1, loops, false, None)?);
    let pairs = requests(&one_with).into_iter().zip(requests(&one_stock));
    let differing: u64 = pairs.map(|(a, b)| a.abs_diff(b)).sum();
    let [flushes, commits, blocks, _] = requests(&one_stock);

    let mut ratios = Vec::new();
    for threads in THREADS {
        ratios.push((threads, gain(ask, threads, None)?));
    }
    let lowest = ratios.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).expect("a sweep");
    let mut range = Range::new(lowest.1);
    for varied in Variation::of_all_cpu(BY_HALF) {
        range.widen(gain(ask, lowest.0, Some(&varied))?);
    }
    let all: Vec<String> = ratios.iter().map(|(n, r)| format!("{n}: {r:.3}")).collect();
    Ok(vec![
        (
            "fc.copy.shadow_waits",
            Measured::value(waits as f64).why(format!("stock: {had_any} waits")),
        ),
        (
            "fc.copy.requests",
            Measured::value(differing as f64)
                .why(format!("stock: {commits} commits, {flushes} flushes, {blocks} log blocks")),
        ),
        ("fc.copy.copies", Measured::value(copies - not_copied).why(format!("{copies} copies"))),
        ("fc.copy.gain", range.measured().why(format!("by threads: {}", all.join(", ")))),
    ])
}
