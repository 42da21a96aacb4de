//! The claims of power failures: what may survive one in each era.
//!
//! Nothing here is told where the faults are: random programs, and databases with rollback
//! journals, on the paper's phone (eMMC, CFQ), whose flusher starts early, as with little memory.
//! Every state that the contract of the drive permits is recovered and judged.

use serde::{Deserialize, Serialize};
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Campaign, Findings, Source, run};
use wp_crash::{Profile, Rule, Totals};
use wp_machine::MachineError;
use wp_report::document::nullable;

/// Programs behind a 0 (`>= 1,000`), and recoveries (`>= 100,000 distinct`).
pub const PROGRAMS: u64 = 1000;
/// See [`PROGRAMS`].
pub const DISTINCT: u64 = 100_000;
/// Databases in the case of several journals.
const MANY: u32 = 3;
/// Programs that are generated for each that is to be explored, at most: old versions lack calls of
/// some (41 of 100 in 3.4), which are left out.
const GENERATED: u64 = 4;

/// What came of one kind of program in one era.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutRow {
    /// Era.
    pub era: String,
    /// Programs: `random`, `one journal`, `many journals`.
    pub programs: String,
    /// How many were cut.
    pub count: u64,
    /// States visited.
    pub raw: u64,
    /// States recovered.
    pub distinct: u64,
    /// States in which a file shows what it never held.
    pub exposure: u64,
    /// States in which a length is there without the data below it.
    pub size_ahead: u64,
    /// Those of them in which the length grew within a block: what the claims speak of.
    pub tail_ahead: u64,
    /// States without what a sync promised, for whatever reason.
    pub lost_sync: u64,
    /// The first program with an exposure, and how to see it again.
    #[serde(deserialize_with = "nullable")]
    pub example: Option<String>,
}

impl CutRow {
    fn new(era: &str, programs: &str, f: &Findings) -> CutRow {
        let t: &Totals = &f.totals;
        let broken = |rule: Rule| t.broken[rule as usize];
        let example = f.found.iter().find(|x| x.violation.rule == Rule::Exposure).map(|x| {
            let v = &x.violation;
            format!(
                "program {}: {} at byte {}: {}",
                x.program,
                v.path,
                v.offset.unwrap_or(0),
                v.seen
            )
        });
        CutRow {
            era: era.to_owned(),
            programs: programs.to_owned(),
            count: t.programs,
            raw: t.raw,
            distinct: t.distinct,
            exposure: broken(Rule::Exposure),
            size_ahead: broken(Rule::SizeAhead),
            tail_ahead: broken(Rule::TailAhead),
            lost_sync: broken(Rule::LostSync),
            example,
        }
    }
}

/// A machine of the phone's kind. Errors: never for the eras of the paper.
pub fn bench(era: &str) -> Result<Bench, MachineError> {
    let options = format!("era={era},dirty_background_bytes=262144");
    Ok(Bench {
        device: "emmc-16".to_owned(),
        elevator: "cfq".to_owned(),
        ..Bench::new(&wp_ext4::ENTRY, &options)?
    })
}

/// Cuts `programs` programs of each kind in one era. `None`: interrupted.
pub fn cut_era(
    era: &str,
    seed: u64,
    programs: u64,
    workers: usize,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Vec<CutRow>>, MachineError> {
    let extras = Extras::DATA;
    let sources = [
        ("random", programs, Source::Wild { seed, calls: 40, extras }),
        ("one journal", programs / 50, Source::Database { seed, journals: 1 }),
        ("many journals", programs / 50, Source::Database { seed, journals: MANY }),
    ];
    let mut rows = Vec::new();
    for (name, count, source) in sources {
        let campaign = Campaign {
            seed,
            profile: Profile { size_with_data: true, tail_with_data: true, ..Profile::EXT4 },
            // What was seen three times over needs no thousand programs more.
            stop_at: vec![Rule::Exposure, Rule::SizeAhead, Rule::TailAhead],
            ..Campaign::new(bench(era)?, source, (0, count.max(1) * GENERATED))
        };
        let findings = run(&campaign, workers, &|f| go_on() && f.programs < count);
        if !go_on() {
            return Ok(None);
        }
        if let Some((n, why)) = findings.unplayed() {
            return Err(MachineError::Config(format!("{name} program {n} in era {era}: {why}")));
        }
        rows.push(CutRow::new(era, name, &findings));
    }
    Ok(Some(rows))
}

/// A claim's value: 1 if it was seen; 0 only if enough was explored; else an error.
pub(super) fn seen(rows: &[CutRow], era: &str, id: &str) -> Result<f64, String> {
    let row = |programs: &str| {
        let found = rows.iter().find(|r| r.era == era && r.programs == programs);
        found.ok_or_else(|| "power failures are explored with --crash (a few minutes)".to_owned())
    };
    let (n, enough) = match id {
        "exposure" => {
            let r = row("random")?;
            (r.exposure, r.distinct >= DISTINCT && r.count >= PROGRAMS)
        }
        "size_ahead" => {
            let r = row("random")?;
            (r.tail_ahead, r.distinct >= DISTINCT && r.count >= PROGRAMS)
        }
        "one_journal" => (row("one journal")?.exposure, true),
        _ => (row("many journals")?.exposure, true),
    };
    match (n, enough) {
        (0, true) => Ok(0.0),
        (0, false) => Err(format!(
            "not found, but a 0 needs {DISTINCT} distinct recoveries over {PROGRAMS} programs"
        )),
        _ => Ok(1.0),
    }
}
