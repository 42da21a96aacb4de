//! From runs to claims: what is counted for each, by the rules of `papers/claims.toml`.

use wp_machine::MachineError;
use wp_parity::reference::{Issuer, Phase, TraceLine};
use wp_report::claim::{Judged, PaperValue};

use super::cuts::{self, CutRow};
use super::latency::Latency;
use super::null::Nulls;
use super::run::{RunOutcome, config};
use super::{DEVICE, ERAS, FILES, PARTITION_START, Point, SLUG, null};
use crate::claims::{Book, Claims, Measured};

const SECTORS: f64 = 8.0;

struct Judge<'a> {
    runs: &'a [RunOutcome],
    book: Book<'a>,
}

impl Judge<'_> {
    fn run(&self, era: &str, case: &str, n: u32) -> Option<&RunOutcome> {
        self.runs.iter().find(|r| r.plan.era == era && r.plan.case == case && r.plan.files == n)
    }

    /// Sectors of a class that an issuer dispatched in a phase of the ten-file run.
    fn sectors(
        &self,
        era: &str,
        case: &str,
        phase: Phase,
        class: &str,
        issuer: Issuer,
    ) -> Option<f64> {
        let r = self.run(era, case, 10)?;
        Some(f64::from(r.summary.blocks(phase, class, &issuer)) * SECTORS)
    }

    fn all(&self, era: &str, case: &str, phase: Phase, classes: &[&str]) -> Option<f64> {
        let r = self.run(era, case, 10)?;
        let blocks: u32 =
            classes.iter().map(|c| r.summary.class(phase, c).map_or(0, |s| s.blocks())).sum();
        Some(f64::from(blocks) * SECTORS)
    }

    fn first_after(&self, era: &str, case: &str, class: &str) -> Option<f64> {
        let m = self.run(era, case, 10)?.summary.class(Phase::After, class)?.moments.first()?;
        Some(m.first_ns as f64 / 1e9)
    }

    fn emit(&mut self, id: &str, ours: Option<f64>, why: &str) -> Result<(), MachineError> {
        let m = match ours {
            Some(v) => Measured::value(v),
            None => Measured::not_modelled(why),
        };
        self.book.emit(id, m).map(|_| ()).map_err(config)
    }
}

/// Why a latency falls by some microseconds where the paper's grows.
const STEP_DOWN: &str = "from N = 1 to 10 the fsync becomes a few us shorter: one more log block fills a flash unit of 16 KiB, which is programmed before the flush; the paper's PC grows by far more there";
const LATENCY: &str = "device and CPU are class models with assumed costs: the paper's PC takes about 60 us for each single-block write of jbd2, our model far less; no parameter was fitted to it";

pub(super) fn judge(
    runs: &[RunOutcome],
    points: &[Point],
    latency: &Latency,
    cuts: &[CutRow],
    quick: bool,
) -> Result<Vec<Judged>, MachineError> {
    let claims = Claims::fixed();
    let book = Book::open(&claims, SLUG).map_err(config)?;
    let mut j = Judge { runs, book };
    const NOT_RUN: &str = "not run (--quick)";
    for era in ERAS {
        traces(&mut j, era)?;
        for case in ["alloc", "extend"] {
            let files =
                j.run(era, case, 10).map(|r| r.data_on_disk.iter().filter(|b| **b).count() as f64);
            j.emit(&format!("fig9.{era}.{case}.data"), files, NOT_RUN)?;
            for n in FILES {
                let id = format!("fig11.{era}.{case}.n{n}");
                let found = latency.data.iter().find(|d| (d.0, d.1, d.2) == (era, case, n));
                match found.filter(|_| !quick || n <= 10) {
                    Some((.., blocks)) if quick => j.emit(&id, Some(blocks.value), NOT_RUN)?,
                    // No null: a constant that holds for one era's bars and fails for another's is
                    // not a closed form of the figure.
                    Some((.., blocks)) => {
                        j.book.emit(&id, blocks.measured()).map_err(config)?;
                    }
                    None => j.emit(&id, None, NOT_RUN)?,
                }
            }
        }
        let metadata = |n| {
            let p = points.iter().find(|p| p.era == era && p.case == "alloc" && p.files == n)?;
            Some(f64::from(p.metadata_blocks))
        };
        let ratio = metadata(1000).zip(metadata(100)).map(|(a, b)| a / b);
        let id = format!("fig10.{era}.alloc.metadata_1000_over_100");
        let closed = |n| f64::from(null::metadata_blocks("alloc", n));
        match ratio {
            Some(ratio) => {
                let measured = Measured::value(ratio).null(closed(1000) / closed(100));
                j.book.emit(&id, measured).map_err(config)?;
            }
            None => j.emit(&id, None, NOT_RUN)?,
        }
        for (id, what) in [
            ("ordered.{}.exposure", "exposure"),
            ("sqlite.{}.one_journal", "one_journal"),
            ("sqlite.{}.many_journals", "many_journals"),
            ("size_ahead.{}", "size_ahead"),
        ] {
            let id = id.replace("{}", era);
            match cuts::seen(cuts, era, what) {
                Ok(value) => j.emit(&id, Some(value), "")?,
                Err(why) => j.emit(&id, None, &why)?,
            }
        }
    }
    let early = j.run("3.4", "extend", 10).map(|r| incomplete_before_commit(&r.lines) as f64);
    j.emit("trace.3.4.extend.ordered_before_commit", early, NOT_RUN)?;
    j.emit("trace.commit_issuer", Some(f64::from(u8::from(commits_by_completion(runs)))), NOT_RUN)?;
    j.emit("trace.layout", layout(runs), NOT_RUN)?;
    let step = "fig10.alloc.step";
    let mut latencies = vec![
        ("fig10.3.4.extend.min_growth".to_owned(), latency.min_growth),
        ("fig10.3.4.extend.max_growth".to_owned(), latency.max_growth),
        ("fig10.n10.3.4_over_3.8".to_owned(), latency.ratio),
        (step.to_owned(), latency.step),
    ];
    for (era, grows) in ERAS.iter().zip(latency.grows) {
        latencies.push((format!("fig10.{era}.alloc.grows"), grows));
    }
    // What figure 11 alone would make of the largest growth: a latency in data blocks.
    let blocks = |n| {
        let p = points.iter().find(|p| p.era == "3.4" && p.case == "extend" && p.files == n)?;
        Some(f64::from(p.data_blocks))
    };
    let by_blocks = blocks(1000).zip(blocks(1)).map(|(many, one)| many / one - 1.0);
    let costs =
        null::Costs::of(wp_device::find(DEVICE).expect("the paper's preset is in the list"));
    for (id, range) in latencies {
        let mut measured = range.measured();
        if quick {
            measured =
                Measured::not_modelled("without intervals (--quick) a latency is not judged");
        } else if claims
            .of(SLUG)
            .any(|c| c.id == id && !(c.band[0]..=c.band[1]).contains(&range.value))
        {
            measured = measured.why(if id.ends_with(".grows") { STEP_DOWN } else { LATENCY });
        } else if id == step {
            measured = measured.why("in the kernel version with the smallest value");
        }
        let null = match id.as_str() {
            "fig10.3.4.extend.max_growth" => by_blocks,
            "fig10.3.4.extend.min_growth" => Some(costs.growth(10) - 1.0),
            "fig10.n10.3.4_over_3.8" => Some(costs.ratio()),
            "fig10.alloc.step" => Some(costs.step()),
            _ => Some(null::grows(&FILES)),
        };
        if let Some(null) = null.filter(|_| !quick) {
            measured = measured.null(null);
        }
        j.book.emit(&id, measured).map_err(config)?;
    }
    j.book.close().map_err(config)
}

/// Ours and the null predictors beside the paper's ratios of latencies.
pub(super) fn beside(points: &[Point], latency: &Latency) -> Result<Nulls, MachineError> {
    let claims = Claims::fixed();
    let paper = |id: &str| {
        let claim = claims.of(SLUG).find(|c| c.id == id);
        match claim.map(|c| &c.paper_value) {
            Some(PaperValue::Number(n)) => Ok(*n),
            _ => Err(config(format!("claim {id} has no number"))),
        }
    };
    let theirs = [
        1.0 + paper("fig10.3.4.extend.min_growth")?,
        1.0 + paper("fig10.3.4.extend.max_growth")?,
        paper("fig10.n10.3.4_over_3.8")?,
    ];
    let ours =
        [1.0 + latency.min_growth.value, 1.0 + latency.max_growth.value, latency.ratio.value];
    let device = wp_device::find(DEVICE).expect("the paper's preset is in the list");
    Ok(Nulls::new(&null::Costs::of(device), points, theirs, ours))
}

fn traces(j: &mut Judge<'_>, era: &str) -> Result<(), MachineError> {
    use Phase::{After, Fsync};
    let home = ["inode_table", "gdt", "block_bitmap", "inode_bitmap", "superblock", "directory"];
    for case in ["alloc", "extend"] {
        let id = |what: &str| format!("trace.{era}.{case}.{what}");
        let data = j.sectors(era, case, Fsync, "data_last", Issuer::Fsync);
        j.emit(&id("fsync_data"), data, "")?;
        let journal = j.all(era, case, Fsync, &["journal"]);
        j.emit(&id("journal"), journal, "")?;
        let commit = j.all(era, case, Fsync, &["journal_commit"]);
        j.emit(&id("commit"), commit, "")?;
        let checkpoint = j.all(era, case, After, &home);
        j.emit(&id("checkpoint"), checkpoint, "")?;
        if case == "alloc" {
            let late = j.all(era, case, After, &["data_others"]);
            j.emit(&id("flusher_data"), late, "")?;
            let at = j.first_after(era, case, "data_others");
            j.emit(&id("flusher_at"), at, "no data after the fsync")?;
            let second = j.all(era, case, After, &["journal"]);
            j.emit(&id("second_journal"), second, "")?;
        } else {
            let own = j.sectors(era, case, Fsync, "data_others", Issuer::Jbd2);
            j.emit(&id("jbd2_data"), own, "")?;
            if era != "3.4" {
                let late = j.all(era, case, After, &["data_others"]);
                j.emit(&id("flusher_data"), late, "")?;
            }
        }
    }
    Ok(())
}

/// Requests with ordered data that were dispatched in the fsync and not complete when the commit
/// record was.
fn incomplete_before_commit(lines: &[TraceLine]) -> usize {
    let Some(commit) = lines.iter().position(|l| l.action == 'D' && l.class == "journal_commit")
    else {
        return 0;
    };
    let mut open: Vec<u64> = Vec::new();
    for l in &lines[..commit] {
        let Some(s) = l.sector.filter(|_| l.class.starts_with("data:")) else { continue };
        match l.action {
            'D' => open.push(s),
            'C' => open.retain(|o| *o != s),
            _ => {}
        }
    }
    open.len()
}

/// Is every commit record dispatched in completion context?
fn commits_by_completion(runs: &[RunOutcome]) -> bool {
    let mut seen = 0;
    for l in runs
        .iter()
        .flat_map(|r| &r.lines)
        .filter(|l| l.action == 'D' && l.class == "journal_commit")
    {
        seen += 1;
        if l.comm != "swapper" {
            return false;
        }
    }
    seen > 0
}

/// How many of GDT, group-1 bitmap, inode table and journal lie where the paper's disk has them.
fn layout(runs: &[RunOutcome]) -> Option<f64> {
    let image = &runs.first()?.image;
    let at = wp_ext4::evidence::landmarks(image).ok()?;
    // The paper's sectors, relative to the partition, in blocks of 4 KiB.
    let sector = |s: u64| (s - PARTITION_START.0) / 8;
    let paper = [sector(187_035_656), sector(187_043_856), sector(187_044_104), 3_702_784];
    let ours = [at.gdt, at.block_bitmap_1, at.inode_table, at.journal];
    Some(paper.iter().zip(&ours).filter(|(a, b)| a == b).count() as f64)
}
