//! From runs to claims.

use wp_machine::MachineError;
use wp_report::claim::{Judged, PaperValue};

use super::fsync::{SIZES_KIB, Stages, null_gain, null_strict};
use super::surface::PAPER;
use super::{CutRow, NODES, Ranges, Reproduction, SLUG, Scaling};
use crate::claims::{Book, Claims, Measured};

const NOT_RUN: &str = "not run (--quick)";

fn config(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// A row of table 6.2.
fn row<'a>(cuts: &'a [CutRow], name: &str) -> Result<&'a CutRow, MachineError> {
    cuts.iter().find(|r| r.name == name).ok_or_else(|| config(format!("no row {name}")))
}

/// Failures, with what they are of.
fn failures(r: &CutRow) -> String {
    let c = &r.counts;
    let [low, high] = c.interval();
    format!(
        "{} of {} power failures, {} seeds: {:.2} % [{:.2}, {:.2}]",
        c.failed,
        c.cuts,
        c.runs,
        c.rate() * 1e2,
        low * 1e2,
        high * 1e2
    )
}

/// Is the gain with most threads below half of that with one?
fn fades(found: &Reproduction) -> Measured {
    let (Some(one), Some(most)) = (found.scaling.first(), found.scaling.last()) else {
        return Measured::not_modelled("figure 6.3 is not run with --quick");
    };
    let gain = |s: &Scaling| s.rates.gain() - 1.0;
    let each: Vec<String> = found
        .scaling
        .iter()
        .map(|s| format!("{} threads {:+.1} %", s.threads, 1e2 * gain(s)))
        .collect();
    let fades = gain(one) > 0.0 && gain(most) < gain(one) / 2.0;
    Measured::value(f64::from(u8::from(fades))).why(each.join(", "))
}

/// Table 3.1 as the claims have it.
fn paper_stages(claims: &Claims) -> Result<Stages, MachineError> {
    let value = |stage: &str| {
        let id = format!("table3.1.{stage}");
        match claims.of(SLUG).find(|c| c.id == id).map(|c| &c.paper_value) {
            Some(PaperValue::Number(n)) => Ok(*n),
            _ => Err(config(format!("claim {id} has no number"))),
        }
    };
    Ok(Stages {
        prepare_data: value("prepare_data")?,
        wait_data: value("wait_dma_data")?,
        prepare_node: value("prepare_node")?,
        wait_node: value("wait_dma_node")?,
        flush: value("flush")?,
        other: value("other")?,
    })
}

/// A parameter of the drive without PLP.
fn drive(name: &str) -> f64 {
    let params = wp_device::find("zn540-4tb-noplp").map_or(&[][..], |d| d.params);
    params.iter().find(|p| p.name == name).map_or(0.0, |p| p.value as f64)
}

/// What its flush takes, microseconds, by its numbers: one program unit.
fn preset_flush_us() -> f64 {
    let unit = drive("planes") * drive("page_bytes") * drive("pages_per_program");
    let moved = unit * 1e3 / drive("bus_mb_s");
    (drive("command_ns") + moved + drive("program_ns") + drive("flush_overhead_ns")) / 1e3
}

pub(super) fn judge(
    found: &Reproduction,
    ranges: &Ranges,
    quick: bool,
) -> Result<Vec<Judged>, MachineError> {
    let claims = Claims::fixed();
    let mut book = Book::open(&claims, SLUG).map_err(config)?;
    let mut emit = |id: &str, m: Measured| book.emit(id, m).map(|_| ()).map_err(config);
    let s = &found.stages;
    for (id, ours) in [
        ("prepare_data", s.prepare_data),
        ("wait_dma_data", s.wait_data),
        ("prepare_node", s.prepare_node),
        ("wait_dma_node", s.wait_node),
        ("flush", s.flush),
        ("other", s.other),
    ] {
        emit(&format!("table3.1.{id}"), Measured::value(ours))?;
    }
    let posix = row(&found.cuts, "posix")?;
    emit("table6.2.posix", Measured::answer(posix.counts.failed > 0).why(failures(posix)))?;
    for (id, name) in [
        ("strict", "strict_fixed"),
        ("oprw", "OPRW posix"),
        ("plp", "posix, PLP"),
        ("serial", "posix, serial"),
    ] {
        let r = row(&found.cuts, name)?;
        let m = Measured::value(r.counts.failed as f64).why(failures(r));
        emit(&format!("table6.2.{id}"), m)?;
    }
    emit("table6.2.region", region(found))?;
    let paper = paper_stages(&claims)?;
    let link = drive("link_mb_s") as u64;
    let nulls: Vec<f64> = SIZES_KIB.iter().map(|kib| null_gain(&paper, *kib, link)).collect();
    let fold = |f: fn(f64, f64) -> f64, from: f64| nulls.iter().fold(from, |a, b| f(a, *b));
    let (min, max) = (fold(f64::min, f64::MAX), fold(f64::max, 0.0));
    let at = |kib: u64| format!("at {kib} KiB");
    let latencies = [
        (
            "fig6.1a.strict_over_posix",
            ranges.strict_over_posix,
            Some(null_strict(&paper, preset_flush_us())),
            "geometric mean over the sizes".to_owned(),
        ),
        ("fig6.1a.oprw_over_posix", ranges.oprw_over_posix, None, String::new()),
        ("fig6.1b.min", ranges.min, Some(min), at(found.figure.min.1)),
        ("fig6.1b.max", ranges.max, Some(max), at(found.figure.max.1)),
        ("fig6.2b.varmail", ranges.varmail, None, String::new()),
        ("fig6.2b.oltp", ranges.oltp, None, String::new()),
        ("fig6.2b.varmail_above_oltp", ranges.above, None, String::new()),
    ];
    for (id, range, null, why) in latencies {
        let mut m = range.measured();
        if quick {
            m = Measured::not_modelled("without intervals (--quick) a rate is not judged");
        } else {
            m = if why.is_empty() { m } else { m.why(why) };
            m = null.map_or(m.clone(), |null| m.null(null));
        }
        emit(id, m)?;
    }
    emit("fig6.3.fades", fades(found))?;
    for (n, i) in NODES.iter().zip(0..) {
        let m = match (ranges.extra.get(i), found.recovery.get(i)) {
            (Some(range), Some(r)) => range.measured().why(format!(
                "{:.0} ms + {:.0} ms by our costs",
                r.plain.ms(&found.costs),
                r.oprw.check_ms(&found.costs)
            )),
            _ => Measured::not_modelled(NOT_RUN),
        };
        emit(&format!("table6.3.n{n}"), m)?;
    }
    let extra = match found.recovery.iter().map(|r| r.extra_blocks).max() {
        Some(most) => Measured::value(most as f64),
        None => Measured::not_modelled(NOT_RUN),
    };
    emit("table6.3.extra_io", extra)?;
    book.close().map_err(config)
}

fn region(found: &Reproduction) -> Measured {
    if found.surface.is_empty() {
        return Measured::not_modelled(NOT_RUN);
    }
    let inside = found.surface.iter().filter(|p| p.is_papers()).count();
    Measured::answer(inside > 0).why(format!(
        "{inside} of {} points give {:.1} to {:.1} %",
        found.surface.len(),
        PAPER[0] * 1e2,
        PAPER[1] * 1e2
    ))
}
