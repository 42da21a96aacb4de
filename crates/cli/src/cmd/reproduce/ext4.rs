//! `reproduce ext4-fsync`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use wp_base::table::Layout;
use wp_papers::ext4_fsync::{self, CutRow, Nulls, Point, Reproduction, Row};
use wp_papers::kernels::{self, Comparison};
use wp_papers::results::Results;
use wp_papers::today::{TodayComparison, compare_today};
use wp_parity::reference::What;

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
    const LAYOUT: Layout = Layout("<5 <14 >8 >10 >9 | >9 >10 >10 >9");
    if rows.is_empty() {
        return;
    }
    *t += "Power failures (eMMC, CFQ, data=ordered): crash states of the drive, and in how many\n\
           of them a file shows data that it never held (exposure), has a length without its\n\
           data (size ahead; tail: the length grew within a block, as in the claims), or lacks\n\
           data that a completed sync made durable (lost sync).\n\n";
    *t += &LAYOUT.line(&[
        &"era",
        &"programs",
        &"count",
        &"states",
        &"distinct",
        &"exposure",
        &"size ahead",
        &"tail ahead",
        &"lost sync",
    ]);
    for r in rows {
        *t += &LAYOUT.line(&[
            &r.era,
            &r.programs,
            &r.count,
            &r.raw,
            &r.distinct,
            &r.exposure,
            &r.size_ahead,
            &r.tail_ahead,
            &r.lost_sync,
        ]);
        if let Some(example) = &r.example {
            *t += &format!("      {example}\n");
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
    let results = ext4_fsync::Results::new(a.seed, found, real, today);
    let mut text = String::new();
    tables(&mut text, &results.rows);
    figures(&mut text, "PC, ssd-128", &results.figures_10_11);
    figures(&mut text, "phone, emmc-16", &results.figures_10_11_phone);
    nulls(&mut text, &results.null_predictors);
    cut_table(&mut text, &results.cuts);
    real_kernels(&mut text, real);
    crate::cmd::today::table(&mut text, today);
    claims_table(&mut text, &results.claims);
    if results.variations > 0 {
        writeln!(
            text,
            "Intervals: each assumed parameter times 0.5 and 1.5, {} variations, {} of them impossible devices.",
            results.variations,
            results.impossible_variations.len()
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
        results: Results::Ext4Fsync(Box::new(results)),
        text,
        is_unlisted: !real.findings.is_empty() || !today.findings.is_empty(),
        more: more.collect(),
    };
    answer.finish(a, out)
}

fn tables(t: &mut String, rows: &[Row]) {
    const LAYOUT: Layout = Layout("<5 <7 >5 | >11 >8 | >7 >7 >7 | >10");
    *t += "Paper ext4-fsync: N files, one write each, fsync of the last. Blocks of 4 KiB; all \
           numbers are predictions.\n\n";
    let heads = ["data blocks", "journal", "D on", "table", "size", "fsync"];
    let [data, journal, on, table, size, fsync] = heads;
    *t += &LAYOUT.line(&[&"era", &"case", &"files", &data, &journal, &on, &table, &size, &fsync]);
    let heads = ["(fig. 11)", "blocks", "disk", "logged", "us"];
    let [data, journal, on, logged, us] = heads;
    *t += &LAYOUT.line(&[&"", &"", &"", &data, &journal, &on, &logged, &logged, &us]);
    for r in rows {
        *t += &LAYOUT.line(&[
            &r.era,
            &r.case,
            &r.files,
            &r.data_blocks,
            &r.journal_blocks,
            &r.data_files,
            &r.table_files,
            &r.size_files,
            &format!("{:.1}", r.fsync_ns as f64 / 1e3),
        ]);
    }
    *t += "\nD on disk, table logged, size logged (fig. 9): files whose data is on disk, whose \
           inode-table block is in the\njournal, and whose logged inode has this write's size, \
           when fsync returns.\n\n";
}

/// The same program on the real kernels: who dispatched how many blocks of which class, with which
/// flags, when.
fn real_kernels(t: &mut String, real: &Comparison) {
    const LAYOUT: Layout = Layout("<36 >7 >7 >7 >7");
    let equal = real.pairs.iter().filter(|p| p.differences.is_empty()).count();
    *t += &format!(
        "The same program on Linux 3.4.2, 3.8.0, 4.6.2 and 5.10.223 (recorded runs; blocks by class and\n\
         issuer, flags, filings, seconds): {} runs, {equal} equal in everything. Differences by\n\
         kind; papers/ext4-fsync/differences.toml lists each with its kernel function:\n\n",
        real.pairs.len()
    );
    *t += &LAYOUT.line(&[&"run", &"blocks", &"flags", &"issuer", &"seconds"]);
    for p in &real.pairs {
        let count = |w: What| match p.differences.iter().filter(|d| d.what == w).count() {
            0 => "=".to_owned(),
            n => n.to_string(),
        };
        let [blocks, flags, issuer, seconds] =
            [What::Blocks, What::Flags, What::Issuer, What::Seconds].map(count);
        *t += &LAYOUT.line(&[&p.kernel.spec.name, &blocks, &flags, &issuer, &seconds]);
    }
    for f in &real.findings {
        *t += &format!("NOT AS LISTED: {f}\n");
    }
    t.push('\n');
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
    const LAYOUT: Layout = Layout("<32>9>9>9>9>9");
    let [ours, counts, log, no_era] = nulls.distance[..] else { return };
    *t += "Latency ratios of figure 10, Writepath against null predictors (blocks and flushes \
           times\nconstants; log N by the paper's largest growth; no difference between kernels), \
           and the\nmean |ln(predicted / paper)| of each:\n\n";
    *t += &LAYOUT.line(&[&"", &"paper", &"model", &"counts", &"log N", &"no era"]);
    let number = |v: f64| format!("{v:.3}");
    let mut line = |name: &str, paper: String, all: [f64; 4]| {
        let [ours, counts, log, no_era] = all.map(number);
        *t += &LAYOUT.line(&[&name, &paper, &ours, &counts, &log, &no_era]);
    };
    for r in &nulls.ratios {
        line(&r.id, number(r.paper), [r.ours, r.counts, r.log_linear, r.no_era]);
    }
    line("mean distance", String::new(), [ours, counts, log, no_era]);
    t.push('\n');
}
