//! `reproduce f2fs-oprw`.

use std::fmt::{Display, Write};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::table::Layout;
use wp_machine::results::Results as Folder;
use wp_papers::f2fs_oprw::{
    self, CutRow, Ended, Part, Plan, Recordings, Reproduction, SurfacePoint,
};
use wp_papers::results::Results;

use super::progress::Progress;
use super::{Answer, Args, claims_table, flows, interrupted};
use crate::output::{Exit, Out};

/// Cuts of each mode in a long run.
pub(super) const LONG: u64 = 1_000_000;

/// A string takes what is written to it.
const LINE: &str = "a string takes it";

/// Runs it. Exit 1 if a verdict is not the pinned one.
pub(super) fn run(a: &Args, out: &Out, stop: &AtomicBool) -> ExitCode {
    let mut progress = Progress::new(stop);
    let step = |done: usize, all: usize, name: &str| progress.step(done, all, name);
    let plan = Plan {
        seed: a.seed,
        quick: a.quick,
        cuts: a.crash.map(|n| n.unwrap_or(LONG)),
        workers: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let done = f2fs_oprw::recordings(a.seed)
        .and_then(|recorded| Ok((f2fs_oprw::reproduce(&plan, &step)?, recorded)));
    progress.end();
    match done {
        Ok((Ended::Whole(found), recorded)) => report(a, out, &found, &recorded, progress.began),
        Ok((Ended::Stopped(part), _)) if part.cuts.is_empty() => interrupted(out),
        Ok((Ended::Stopped(part), _)) => stopped(a, out, &part),
        Err(e) => out.machine_error(&e),
    }
}

fn report(
    a: &Args,
    out: &Out,
    found: &Reproduction,
    recorded: &Recordings,
    began: Instant,
) -> ExitCode {
    let results = f2fs_oprw::Results::new(a.seed, found, recorded.pictures());
    let mut text = flows::text(&results.figures_2_1_and_5);
    stages(&mut text, found);
    figures(&mut text, found);
    cuts(&mut text, &found.cuts);
    surface(&mut text, &found.surface);
    recovery(&mut text, found);
    claims_table(&mut text, &found.claims);
    if found.variations > 0 {
        writeln!(
            text,
            "Intervals: each assumed parameter times 0.5 and 1.5, {} variations, {} of them impossible machines.",
            found.variations,
            found.impossible.len()
        )
        .expect(LINE);
    }
    let more = recorded.flows.iter().map(|(run, _)| {
        let mode = run.drawn.mode.name().replace(' ', "-");
        let events = wp_machine::results::events_to_ndjson(&run.records);
        (format!("figure-{}-{mode}.events.ndjson", run.drawn.figure), events)
    });
    let answer = Answer {
        slug: f2fs_oprw::SLUG,
        began,
        results: Results::F2fsOprw(Box::new(results)),
        text,
        is_unlisted: false,
        more: more.collect(),
    };
    answer.finish(a, out)
}

/// What was done of the power failures when the run was interrupted; no claim is judged by it.
fn stopped(a: &Args, out: &Out, part: &Part) -> ExitCode {
    let paper = super::PAPERS.iter().find(|p| p.slug == f2fs_oprw::SLUG);
    let resolved = paper.map(|p| p.resolved(a)).unwrap_or_default();
    let doc = json!({
        "schema": "writepath.reproduce/1", "seed": a.seed, "papers": [f2fs_oprw::SLUG],
        "interrupted": true, "table_6_2": part.cuts, "surface": part.surface,
    });
    let mut text =
        "Interrupted. The tables hold what was finished; no claim has a verdict.\n\n".to_owned();
    cuts(&mut text, &part.cuts);
    surface(&mut text, &part.surface);
    let mut results = Folder::default();
    results.add("resolved.toml", resolved);
    results.add("interrupted.json", serde_json::to_vec_pretty(&doc).unwrap_or_default());
    results.add("tables.txt", text.clone());
    // Beside those of a whole run, which it must not take the place of.
    match results.write(&a.out, &format!("reproduce-{}-interrupted", f2fs_oprw::SLUG)) {
        Ok(dir) => out.note(&format!("results: {}", dir.shown())),
        Err(e) => return out.host_error(&a.out, &e),
    }
    out.answer(Exit::Interrupted, &doc, &text)
}

fn stages(t: &mut String, found: &Reproduction) {
    let s = &found.stages;
    writeln!(
        t,
        "Paper f2fs-oprw: F2FS of 5.14 on a ZN540; random writes of 4 KiB, fsync after each.\n\n\
         Table 3.1 (input), us: data prepared {:.2}, waited for {:.2}; nodes prepared {:.2},\n\
         waited for {:.2}; flush {:.2}; other {:.2}; an fsync {:.2}.\n",
        s.prepare_data,
        s.wait_data,
        s.prepare_node,
        s.wait_node,
        s.flush,
        s.other,
        s.total()
    )
    .expect(LINE);
}

fn figures(t: &mut String, found: &Reproduction) {
    const SIZES: Layout = Layout(">6 | >9 >12 >9 | >9 >9 >6");
    const RATES: Layout = Layout("<34 >9 >9 >6");
    *t += "Figure 6.1, us a request; without power-loss protection, and with it:\n\n";
    *t +=
        &SIZES.line(&[&"KiB", &"posix", &"strict_fixed", &"OPRW", &"nobarrier", &"OPRW", &"gain"]);
    for p in &found.points {
        let all = [p.posix, p.strict, p.oprw, p.nobarrier, p.oprw_nobarrier];
        let [posix, strict, oprw, nobarrier, both] = all.map(|ns| format!("{:.1}", ns / 1e3));
        let gain = format!("{:.3}", p.gain());
        *t += &SIZES.line(&[&p.kib, &posix, &strict, &oprw, &nobarrier, &both, &gain]);
    }
    let line = |name: &dyn Display, r: &f2fs_oprw::Rates| {
        let [f2fs, oprw] = [r.f2fs, r.oprw].map(|v| format!("{v:.0}"));
        RATES.line(&[name, &f2fs, &oprw, &format!("{:.3}", r.gain())])
    };
    *t += "\nFigure 6.2, operations per second, one thread:\n\n";
    *t += &line(&"varmail operations, PLP", &found.macros.varmail);
    *t += &line(&"inserts, PLP", &found.macros.oltp);
    if let Some(o) = &found.others {
        *t += &line(&"inserts with binary log, PLP", &o.oltp_binlog);
        *t += &line(&"varmail operations, no PLP", &o.varmail_no_plp);
        *t += &line(&"inserts, no PLP", &o.oltp_no_plp);
    }
    if !found.scaling.is_empty() {
        *t += "\nFigure 6.3, varmail operations per second, PLP:\n\n";
    }
    for s in &found.scaling {
        *t += &line(&s.threads, &s.rates);
    }
    t.push('\n');
}

fn cuts(t: &mut String, rows: &[CutRow]) {
    const LAYOUT: Layout = Layout("<16 >6 >8 >8 >8 >7 >18 >8 >7 >7 | >8 >8 >8");
    *t += "Table 6.2: power failures at random instants. failed: the file holds data never\n\
           written there (the paper's oracle); lost: fsynced data is missing; mixed: the data\n\
           is of several versions; left out: failures after which OPRW leaves nodes out, the\n\
           number of nodes, and such failures with a loss. states: crash states of the drive\n\
           (one between two changes of it); recov.: distinct recovered states.\n\n";
    *t += &LAYOUT.line(&[
        &"mode",
        &"seeds",
        &"fails",
        &"states",
        &"recov.",
        &"failed",
        &"% (95 %)",
        &"lost",
        &"mixed",
        &"refused",
        &"left out",
        &"nodes",
        &"lost",
    ]);
    for r in rows {
        let c = &r.counts;
        let [low, high] = c.interval();
        *t += &LAYOUT.line(&[
            &r.name,
            &c.runs,
            &c.cuts,
            &c.states,
            &c.recovered,
            &c.failed,
            &format!("{:.3} [{:.3},{:.3}]", c.rate() * 1e2, low * 1e2, high * 1e2),
            &c.lost_sync,
            &c.mixed,
            &c.refused,
            &c.left_out,
            &c.nodes_left_out.iter().sum::<u64>(),
            &c.left_out_acknowledged,
        ]);
        if let Some(example) = &c.example {
            *t += &format!("    {example}\n");
        }
    }
    t.push('\n');
}

/// One block of lines a buffer size: dies down, periods across.
fn surface(t: &mut String, points: &[SurfacePoint]) {
    if points.is_empty() {
        return;
    }
    let mut buffers: Vec<u64> = points.iter().map(|p| p.buffer_mib).collect();
    let mut periods: Vec<u64> = points.iter().map(|p| p.period_us).collect();
    let mut dies: Vec<(u64, u64)> = points.iter().map(|p| (p.channels, p.dies)).collect();
    for list in [&mut buffers, &mut periods] {
        list.sort_unstable();
        list.dedup();
    }
    dies.sort_unstable_by_key(|(channels, dies)| (*dies, *channels));
    dies.dedup();
    writeln!(
        t,
        "Share of failed power failures of posix, % (95 % interval over seeds), by dies (and\n\
         channels), buffer, and period of the emulator's background flush. *: compatible with\n\
         the paper's 30 of 1000."
    )
    .expect(LINE);
    for buffer in buffers {
        write!(t, "\nbuffer {buffer:>2} MiB   ").expect(LINE);
        for period in &periods {
            let head = if *period == 0 { "none".to_owned() } else { format!("{period} us") };
            write!(t, " {head:>19}").expect(LINE);
        }
        t.push('\n');
        for (channels, dies) in &dies {
            write!(t, "{dies:>4} dies of {channels:<2}  ").expect(LINE);
            for period in &periods {
                let is_it = |p: &&SurfacePoint| {
                    (p.buffer_mib, p.period_us, p.dies, p.channels)
                        == (buffer, *period, *dies, *channels)
                };
                let cell = points.iter().find(is_it).map_or("-".to_owned(), |p| {
                    let ([low, high], mark) = (p.interval, if p.is_papers() { "*" } else { " " });
                    let (rate, low, high) = (p.rate * 1e2, low * 1e2, high * 1e2);
                    format!("{rate:.2}{mark} [{low:.2},{high:.2}]")
                });
                write!(t, " {cell:>19}").expect(LINE);
            }
            t.push('\n');
        }
    }
    t.push('\n');
}

fn recovery(t: &mut String, found: &Reproduction) {
    const LAYOUT: Layout = Layout(">7 >8 >12 >11 >7 >12 | >9 >9 >7 >5");
    if found.recovery.is_empty() {
        return;
    }
    *t += "Table 6.3: roll-forward after a power failure in varmail. Operations are counted; the cost of\n\
           each is an input.\n\n";
    *t += &LAYOUT.line(&[
        &"nodes",
        &"inodes",
        &"entries",
        &"addresses",
        &"names",
        &"check slots",
        &"ms",
        &"check ms",
        &"extra",
        &"reads",
    ]);
    for r in &found.recovery {
        *t += &LAYOUT.line(&[
            &r.plain.nodes,
            &r.plain.inodes_read,
            &r.plain.entries,
            &r.plain.addresses,
            &r.plain.names,
            &r.oprw.slots,
            &format!("{:.0}", r.plain.ms(&found.costs)),
            &format!("{:.0}", r.oprw.check_ms(&found.costs)),
            &format!("{:.4}", r.extra(&found.costs)),
            &r.extra_blocks,
        ]);
    }
    t.push('\n');
}
