//! Our era 6.18 beside the recorded runs of Linux 6.18: as a table, and as `kernels blocks`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::json;
use wp_base::table::Layout;
use wp_papers::today::{TodayComparison, TodayPair, compare_today};
use wp_parity::reference::{CaseBios, Phase};

use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Arguments of `kernels blocks`.
#[derive(clap::Args)]
pub struct Args {
    /// Recorded runs: def_N100; a prefix ends in _ (def_) [default: all]
    runs: Vec<String>,
    /// Print blocks, flags, order and seconds of both sides, also equal ones
    #[arg(long)]
    all: bool,
    /// Seed of every random stream
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs `kernels blocks`. Exit 1 if a difference is not listed, or gone.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let asked = |name: &str| {
        let fits = |r: &String| r == name || (r.ends_with('_') && name.starts_with(r.as_str()));
        a.runs.is_empty() || a.runs.iter().any(fits)
    };
    let (stop, shown) = (out.interrupt(), Progress::new("kernels blocks"));
    let mut step = |done: usize, all: usize, name: &str| {
        shown.at(done as u64, all as u64, format_args!("runs; {name}"));
        !stop.load(Ordering::Relaxed)
    };
    let found = match compare_today(a.seed, &|r| asked(&r.run), &mut step) {
        Ok(Some(found)) => found,
        Ok(None) => {
            return out.fail(
                Exit::Interrupted,
                "interrupted",
                "interrupted",
                "run the command again",
            );
        }
        Err(e) => return out.machine_error(&e),
    };
    drop(shown);
    if found.pairs.is_empty() {
        let known: Vec<String> = wp_parity::reference::today_runs()
            .map(|runs| runs.into_iter().map(|r| r.run).collect())
            .unwrap_or_default();
        let why = format!("no recorded run called {}", a.runs.join(" or "));
        return out.fail(Exit::Usage, "run", &why, &format!("recorded runs: {}", known.join(", ")));
    }
    let mut text = String::new();
    table(&mut text, &found);
    if a.all {
        found.pairs.iter().for_each(|p| both(&mut text, p));
    }
    let exit = if found.findings.is_empty() { Exit::Ok } else { Exit::No };
    out.answer(exit, &json!(found.results()), &text)
}

/// One line a run: blocks of fsync and of the time after it, and what differs.
pub fn table(t: &mut String, found: &TodayComparison) {
    const LAYOUT: Layout = Layout("<26 >13 >13 >13 >13<0");
    let equal = found.pairs.iter().filter(|p| p.differences.is_empty()).count();
    *t += &format!(
        "Write N new files, fsync the last, overwrite them: blocks by class, flags, order and\n\
         second, against recorded runs of Linux 6.18. {} runs, {equal} equal in everything;\n\
         with N >= 1000 files the journal blocks may differ by 2.\n\
         papers/ext4-fsync/differences-6.18.toml lists differences with their kernel\n\
         functions.\n\n",
        found.pairs.len()
    );
    *t += &LAYOUT.line(&[&"", &"fsync", &"fsync", &"after", &"after", &"  differs in"]);
    *t += &LAYOUT.line(&[&"run (Writepath/Linux)", &"data", &"journal", &"data", &"others", &""]);
    for p in &found.pairs {
        let pair = |phase: Phase, wanted: &dyn Fn(&str) -> bool| {
            let sum = |c: &CaseBios| -> u32 {
                let blocks = c.phases.get(&phase).map(|p| p.blocks.iter());
                blocks.into_iter().flatten().filter(|(k, _)| wanted(k)).map(|(_, n)| *n).sum()
            };
            format!("{}/{}", sum(&p.ours), sum(&p.theirs))
        };
        let mut kinds: Vec<&str> = p.differences.iter().map(|d| d.what.name()).collect();
        kinds.dedup();
        let kinds = if kinds.is_empty() { "=".to_owned() } else { kinds.join(", ") };
        *t += &LAYOUT.line(&[
            &p.name,
            &pair(Phase::Fsync, &|c| c == "data"),
            &pair(Phase::Fsync, &|c| c == "journal"),
            &pair(Phase::After, &|c| c == "data"),
            &pair(Phase::After, &|c| c != "data"),
            &format!("  {kinds}"),
        ]);
    }
    for f in &found.findings {
        *t += &format!("NOT AS LISTED: {f}\n");
    }
    t.push('\n');
}

/// Everything of one run.
fn both(t: &mut String, p: &TodayPair) {
    let line = "a string takes it";
    for (who, side) in [("ours", &p.ours), ("kernel", &p.theirs)] {
        writeln!(t, "{} {who}", p.name).expect(line);
        for (phase, bios) in &side.phases {
            let list = |m: &std::collections::BTreeMap<String, u32>| {
                m.iter().map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ")
            };
            writeln!(t, "  {:<6} {} | {}", phase.name(), list(&bios.blocks), list(&bios.bios))
                .expect(line);
        }
        writeln!(t, "  order  {}", side.order.join(", ")).expect(line);
        for (class, seconds) in &side.seconds {
            let at: Vec<String> = seconds.iter().map(|(s, n)| format!("{n} at {s} s")).collect();
            writeln!(t, "  {class:<14} {}", at.join(", ")).expect(line);
        }
    }
}
