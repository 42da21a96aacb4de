//! From a measurement to a verdict.

use wp_report::claim::{Judged, Verdict};

use super::{Claim, ClaimError};

/// A null predictor within this share of ours explains it: `|null - ours| <= 3 % of |ours|`.
const NULL_NEARNESS: f64 = 0.03;

/// Judges a number by its claim.
///
/// `ours` `None` is `NotModelled`. `interval` is what the interval of each parameter gives: a
/// value inside the band whose interval leaves it does not count, and is `Differs`.
/// Errors: `NotFinite` for NaN and infinity; `Interval` if it does not hold `ours`.
pub fn judge(
    claim: &Claim,
    ours: Option<f64>,
    null: Option<f64>,
    interval: Option<[f64; 2]>,
) -> Result<Verdict, ClaimError> {
    let numbers = ours.iter().chain(&null).chain(interval.iter().flatten());
    if !numbers.into_iter().all(|number| number.is_finite()) {
        return Err(ClaimError::NotFinite(claim.id.clone()));
    }
    let Some(ours) = ours else {
        return Ok(Verdict::NotModelled);
    };
    let inside = |value: f64| claim.band[0] <= value && value <= claim.band[1];
    if let Some([low, high]) = interval {
        if !(low <= ours && ours <= high) {
            return Err(ClaimError::Interval(claim.id.clone()));
        }
        if !(inside(low) && inside(high)) {
            return Ok(Verdict::Differs);
        }
    }
    if !inside(ours) {
        return Ok(Verdict::Differs);
    }
    let explained = |null: f64| inside(null) && (null - ours).abs() <= NULL_NEARNESS * ours.abs();
    Ok(if null.is_some_and(explained) { Verdict::FollowsFromInputs } else { Verdict::Match })
}

/// What a run found for one claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    ours: Option<f64>,
    null: Option<f64>,
    interval: Option<[f64; 2]>,
    why: String,
    inconsistent: bool,
}

impl Measured {
    /// A number, in the claim's unit.
    pub fn value(ours: f64) -> Measured {
        Measured { ours: Some(ours), ..Measured::default() }
    }

    /// A question with the answer yes (1) or no (0).
    pub fn answer(yes: bool) -> Measured {
        Measured::value(f64::from(u8::from(yes)))
    }

    /// No number, and why.
    pub fn not_modelled(why: impl Into<String>) -> Measured {
        Measured { why: why.into(), ..Measured::default() }
    }

    /// What the null predictor gives.
    pub fn null(self, null: f64) -> Measured {
        Measured { null: Some(null), ..self }
    }

    /// What the interval of each parameter gives, lowest and highest.
    pub fn interval(self, low: f64, high: f64) -> Measured {
        Measured { interval: Some([low, high]), ..self }
    }

    /// A remark for the report.
    pub fn why(self, why: impl Into<String>) -> Measured {
        Measured { why: why.into(), ..self }
    }

    /// The paper contradicts itself, its own trace or the kernel source: the proof.
    pub fn inconsistent(self, proof: impl Into<String>) -> Measured {
        Measured { why: proof.into(), inconsistent: true, ..self }
    }

    /// The verdict on this measurement.
    ///
    /// Errors: those of [`judge`]; `NoReason` for a missing number or a declared inconsistency
    /// without a reason.
    pub fn judge(self, claim: &Claim) -> Result<Judged, ClaimError> {
        let judged = judge(claim, self.ours, self.null, self.interval)?;
        let declared = self.inconsistent || judged == Verdict::NotModelled;
        // What no number shows has to be said; and an inconsistency needs the number beside it.
        let has_no_number = self.inconsistent && self.ours.is_none();
        if (declared && self.why.trim().is_empty()) || has_no_number {
            return Err(ClaimError::NoReason(claim.id.clone()));
        }
        let verdict = if self.inconsistent { Verdict::PaperInconsistent } else { judged };
        let why = match (verdict, self.why.is_empty()) {
            (Verdict::Differs, true) => reason(claim, self.ours, self.interval),
            _ => self.why,
        };
        Ok(Judged {
            paper: claim.paper.clone(),
            id: claim.id.clone(),
            what: claim.what.clone(),
            paper_value: claim.paper_value.clone(),
            ours: self.ours,
            unit: claim.unit.clone(),
            band: claim.band,
            kind: claim.kind,
            null: self.null,
            interval: self.interval,
            verdict,
            why,
        })
    }
}

fn reason(claim: &Claim, ours: Option<f64>, interval: Option<[f64; 2]>) -> String {
    let [low, high] = claim.band;
    match (ours, interval) {
        (Some(value), Some([from, to])) if low <= value && value <= high => format!(
            "inside [{low}, {high}], but the intervals of the parameters give [{from}, {to}]"
        ),
        (Some(value), _) => format!("{value} is outside [{low}, {high}]"),
        (None, _) => String::new(),
    }
}
