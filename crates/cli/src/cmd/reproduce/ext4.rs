//! `reproduce ext4-fsync`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use wp_papers::ext4_fsync::{self, CutRow, Nulls, Point, Reproduction, Row, RunOutcome};
use wp_papers::kernels::{self, Comparison};
use wp_papers::today::{TodayComparison, compare_today};
use wp_parity::reference::{Issuer, TraceLine, What};

use super::progress::Progress;
use super::{Answer, Args, claims_table, interrupted, paper};
use crate::output::Out;

/// Programs of each era that a 0 needs.
pub(super) const PROGRAMS: u64 = 1000;

/// Runs it. Exit 1 if a verdict is not the pinned one, or a difference from a kernel is not as
/// listed.
pub(super) fn run(a: &Args, out: &Out, stop: &AtomicBool) -> ExitCode {
    let mut progress = Progress::new(stop);
    let mut step = |done: usize, all: usize, name: &str| progress.step(done, all, name);
    let asked = paper(ext4_fsync::SLUG).and_then(|paper| paper.crashes(a));
    let mut cuts = Vec::new();
    let eras = ext4_fsync::ERAS.into_iter().enumerate();
    for (programs, (n, era)) in asked.iter().flat_map(|n| eras.clone().map(move |era| (*n, era))) {
        // The rest takes a tenth of the time.
        progress.step(n, eras.len() + 1, &format!("crash states of Linux {era}"));
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let go_on = || !stop.load(Ordering::SeqCst);
        match ext4_fsync::cut_era(era, a.seed, programs, workers, &go_on) {
            Ok(Some(rows)) => cuts.extend(rows),
            Ok(None) => return interrupted(out),
            Err(e) => return out.machine_error(&e),
        }
    }
    let done =
        ext4_fsync::reproduce(a.seed, a.quick, cuts, &mut step).and_then(|found| match found {
            Some(found) => {
                let Some(old) = kernels::compare_all(a.seed, &mut step)? else {
                    return Ok(None);
                };
                let today = compare_today(a.seed, &|_| true, &mut step)?;
                Ok(today.map(|today| (found, old, today)))
            }
            None => Ok(None),
        });
    progress.end();
    let found = match done {
        Ok(Some(r)) => r,
        Ok(None) => return interrupted(out),
        Err(e) => return out.machine_error(&e),
    };
    report(a, out, (&found.0, &found.1, &found.2), progress.began)
}

/// Power failures, by era and kind of program.
fn cut_table(t: &mut String, rows: &[CutRow]) {
    let line = "a string takes it";
    if rows.is_empty() {
        return;
    }
    writeln!(
        t,
        "Power failures (eMMC, CFQ, data=ordered): crash states of the drive, and in how many\n\
         of them a file shows data that it never held (exposure), has a length without its\n\
         data (size ahead; tail: the length grew within a block, as in the claims), or lacks\n\
         data that a completed sync made durable (lost sync).\n\n\
         {:<5} {:<14} {:>8} {:>10} {:>9} | {:>9} {:>10} {:>10} {:>9}",
        "era",
        "programs",
        "count",
        "states",
        "distinct",
        "exposure",
        "size ahead",
        "tail ahead",
        "lost sync"
    )
    .expect(line);
    for r in rows {
        writeln!(
            t,
            "{:<5} {:<14} {:>8} {:>10} {:>9} | {:>9} {:>10} {:>10} {:>9}",
            r.era,
            r.programs,
            r.count,
            r.raw,
            r.distinct,
            r.exposure,
            r.size_ahead,
            r.tail_ahead,
            r.lost_sync
        )
        .expect(line);
        if let Some(example) = &r.example {
            writeln!(t, "      {example}").expect(line);
        }
    }
    t.push('\n');
}

fn report(
    a: &Args,
    out: &Out,
    (found, real, today): (&Reproduction, &Comparison, &TodayComparison),
    began: Instant,
) -> ExitCode {
    let doc = json!({
        "schema": "writepath.reproduce/1", "seed": a.seed, "papers": [ext4_fsync::SLUG],
        "rows": found.rows, "traces": traces(&found.runs),
        "figures_10_11": found.points, "figures_10_11_phone": found.phone,
        "null_predictors": found.nulls, "claims": found.claims, "cuts": found.cuts,
        "real_kernels": kernels_json(real), "linux_6_18": crate::cmd::today::to_json(today),
        "variations": found.variations, "impossible_variations": found.impossible,
    });
    let mut text = String::new();
    tables(&mut text, &found.rows);
    figures(&mut text, "PC, ssd-128", &found.points);
    figures(&mut text, "phone, emmc-16", &found.phone);
    nulls(&mut text, &found.nulls);
    cut_table(&mut text, &found.cuts);
    real_kernels(&mut text, real);
    crate::cmd::today::table(&mut text, today);
    claims_table(&mut text, &found.claims);
    if found.variations > 0 {
        writeln!(
            text,
            "Intervals: each assumed parameter times 0.5 and 1.5, {} variations, {} of them impossible devices.",
            found.variations,
            found.impossible.len()
        )
        .expect("a string takes it");
    }
    let more = found.runs.iter().map(|r| {
        let events = wp_machine::results::events_to_ndjson(&r.records);
        (format!("{}.events.ndjson", r.plan.name()), events)
    });
    let answer = Answer {
        slug: ext4_fsync::SLUG,
        began,
        document: doc,
        text,
        is_unlisted: !real.findings.is_empty() || !today.findings.is_empty(),
        more: more.collect(),
    };
    answer.finish(a, out)
}

/// Flushes of which no completion is told (kernels before 3.9 trace a flush's `D` and no `C`), each
/// with the moment when it is over: what waited for it is dispatched by its interrupt, or ends (a
/// completion without sectors).
fn flushes_without_end(r: &RunOutcome) -> Vec<(&TraceLine, i64)> {
    let is_flush = |l: &TraceLine| l.action == 'D' && l.sectors == 0;
    let ends_own = |l: &TraceLine| l.action == 'C' && l.sectors == 0 && l.rwbs.starts_with('F');
    if r.lines.iter().any(ends_own) {
        return Vec::new();
    }
    let shows_end = |l: &&TraceLine| match l.action {
        'D' => Issuer::of(&l.comm) == Issuer::Swapper,
        'C' => l.sectors == 0,
        _ => false,
    };
    let flushes = r.lines.iter().enumerate().filter(|(_, l)| is_flush(l));
    let ended = flushes.filter_map(|(n, sent)| {
        let end = r.lines[n + 1..].iter().find(shows_end)?;
        Some((sent, end.ns_from_fsync_start))
    });
    ended.collect()
}

/// The traces of ten files (the paper's number): each request with its dispatch and its completion,
/// nanoseconds from the fsync's call, and what is on disk when the fsync returns, by file.
fn traces(runs: &[RunOutcome]) -> serde_json::Value {
    const FILES: u32 = 10;
    let one = |r: &RunOutcome| {
        let mut open: Vec<&TraceLine> = Vec::new();
        let mut requests = Vec::new();
        for line in &r.lines {
            match line.action {
                'D' => open.push(line),
                'C' => {
                    let is_it = |d: &&TraceLine| d.sector == line.sector && d.rwbs == line.rwbs;
                    let Some(at) = open.iter().position(is_it) else { continue };
                    let sent = open.remove(at);
                    requests.push((sent, line.ns_from_fsync_start));
                }
                _ => {}
            }
        }
        requests.extend(flushes_without_end(r));
        requests.sort_by_key(|(sent, done)| (sent.ns_from_fsync_start, *done));
        let requests: Vec<serde_json::Value> = requests
            .into_iter()
            .map(|(sent, done)| {
                json!({
                    "from_ns": sent.ns_from_fsync_start, "to_ns": done,
                    "by": Issuer::of(&sent.comm).to_string(), "rwbs": sent.rwbs,
                    "sector": sent.sector, "sectors": sent.sectors, "class": sent.class,
                })
            })
            .collect();
        json!({
            "era": r.plan.era, "case": r.plan.case, "files": r.plan.files, "fsync_ns": r.fsync_ns,
            "requests": requests,
            "on_disk": { "data": r.data_on_disk, "table": r.table_logged, "size": r.size_logged },
        })
    };
    runs.iter().filter(|r| r.plan.files == FILES).map(one).collect()
}

fn tables(t: &mut String, rows: &[Row]) {
    let line = "a string takes it";
    writeln!(t, "Paper ext4-fsync: N files, one write each, fsync of the last. Blocks of 4 KiB; all numbers are predictions.\n").expect(line);
    writeln!(
        t,
        "{:<5} {:<7} {:>5} | {:>11} {:>8} | {:>7} {:>7} {:>7} | {:>10}",
        "era", "case", "files", "data blocks", "journal", "D on", "table", "size", "fsync"
    )
    .expect(line);
    writeln!(
        t,
        "{:<5} {:<7} {:>5} | {:>11} {:>8} | {:>7} {:>7} {:>7} | {:>10}",
        "", "", "", "(fig. 11)", "blocks", "disk", "logged", "logged", "us"
    )
    .expect(line);
    for r in rows {
        writeln!(
            t,
            "{:<5} {:<7} {:>5} | {:>11} {:>8} | {:>7} {:>7} {:>7} | {:>10.1}",
            r.era,
            r.case,
            r.files,
            r.data_blocks,
            r.journal_blocks,
            r.data_files,
            r.table_files,
            r.size_files,
            r.fsync_ns as f64 / 1e3
        )
        .expect(line);
    }
    writeln!(t, "\nD on disk, table logged, size logged (fig. 9): files whose data is on disk, whose inode-table block is in the").expect(line);
    writeln!(t, "journal, and whose logged inode has this write's size, when fsync returns.\n")
        .expect(line);
}

fn kernels_json(real: &Comparison) -> serde_json::Value {
    let findings: Vec<String> = real.findings.iter().map(ToString::to_string).collect();
    json!({ "runs": real.lines(), "listed_differences": real.listed, "findings": findings })
}

/// The same program on the real kernels: who dispatched how many blocks of which class, with which
/// flags, when.
fn real_kernels(t: &mut String, real: &Comparison) {
    let line = "a string takes it";
    let equal = real.pairs.iter().filter(|p| p.differences.is_empty()).count();
    writeln!(
        t,
        "The same program on Linux 3.4.2, 3.8.0, 4.6.2 and 5.10.223 (recorded runs; blocks by class and\n\
         issuer, flags, filings, seconds): {} runs, {equal} equal in everything. Differences by\n\
         kind; papers/ext4-fsync/differences.toml lists each with its kernel function:\n",
        real.pairs.len()
    )
    .expect(line);
    writeln!(t, "{:<36} {:>7} {:>7} {:>7} {:>7}", "run", "blocks", "flags", "issuer", "seconds")
        .expect(line);
    for p in &real.pairs {
        let count = |w: What| match p.differences.iter().filter(|d| d.what == w).count() {
            0 => "=".to_owned(),
            n => n.to_string(),
        };
        writeln!(
            t,
            "{:<36} {:>7} {:>7} {:>7} {:>7}",
            p.kernel.spec.name,
            count(What::Blocks),
            count(What::Flags),
            count(What::Issuer),
            count(What::Seconds)
        )
        .expect(line);
    }
    for f in &real.findings {
        writeln!(t, "NOT AS LISTED: {f}").expect(line);
    }
    writeln!(t).expect(line);
}

fn figures(t: &mut String, machine: &str, points: &[Point]) {
    let line = "a string takes it";
    writeln!(t, "Figures 10 and 11 ({machine}): writes of 2 KB; latency of the fsync, us / data blocks written by it.\n").expect(line);
    let mut files: Vec<u32> = points.iter().map(|p| p.files).collect();
    files.sort_unstable();
    files.dedup();
    write!(t, "{:<5} {:<7}", "era", "case").expect(line);
    for n in &files {
        write!(t, " {:>16}", format!("N={n}")).expect(line);
    }
    writeln!(t).expect(line);
    for row in points.chunks(files.len().max(1)) {
        write!(t, "{:<5} {:<7}", row[0].era, row[0].case).expect(line);
        for p in row {
            write!(t, " {:>16}", format!("{:.1} / {}", p.fsync_ns as f64 / 1e3, p.data_blocks))
                .expect(line);
        }
        writeln!(t).expect(line);
    }
    writeln!(t).expect(line);
}

/// Ours beside predictors that know no mechanism.
fn nulls(t: &mut String, nulls: &Nulls) {
    let line = "a string takes it";
    let [ours, counts, log, no_era] = nulls.distance[..] else { return };
    writeln!(
        t,
        "Latency ratios of figure 10, Writepath against null predictors (blocks and flushes times\n\
         constants; log N by the paper's largest growth; no difference between kernels), and the\n\
         mean |ln(predicted / paper)| of each:\n"
    )
    .expect(line);
    let head = ["paper", "model", "counts", "log N", "no era"];
    writeln!(t, "{:<32}{}", "", head.map(|h| format!("{h:>9}")).concat()).expect(line);
    for r in &nulls.ratios {
        let all = [r.paper, r.ours, r.counts, r.log_linear, r.no_era];
        writeln!(t, "{:<32}{}", r.id, all.map(|v| format!("{v:>9.3}")).concat()).expect(line);
    }
    let all = [ours, counts, log, no_era].map(|v| format!("{v:>9.3}")).concat();
    writeln!(t, "{:<32}{:>9}{all}\n", "mean distance", "").expect(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_papers::ext4_fsync::{RunPlan, run};

    #[test]
    fn the_flushes_of_an_fsync_are_in_the_trace_of_every_era() {
        for era in ["3.4", "3.8", "4.6"] {
            let plan = RunPlan { watch: 3, ..RunPlan::paper(era, "extend", 10, 1) };
            let doc = traces(&[run(&plan).expect("it runs")]);
            let end = doc[0]["fsync_ns"].as_i64().expect("a time");
            let requests = doc[0]["requests"].as_array().expect("a list");
            let flushes: Vec<[i64; 2]> = requests
                .iter()
                .filter(|r| r["class"] == "flush")
                .map(|r| ["from_ns", "to_ns"].map(|k| r[k].as_i64().expect("a time")))
                .filter(|[from, _]| *from <= end)
                .collect();
            assert!(flushes.len() >= 2, "{era}: before the record and behind it: {flushes:?}");
            assert!(flushes.iter().all(|[from, to]| from < to && *to <= end), "{era}: {flushes:?}");
        }
    }
}
