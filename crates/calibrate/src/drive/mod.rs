//! The modelled zoned drive beside measurements of the real one.
//!
//! Points:    `devices/zn540/points.csv`, about half of what was published; the rest is kept where
//!            nobody who fits sees it. Of ours one half is for fitting ([`Point::is_fitted`], by
//!            coordinates, so that runs of the same point stay together), the other is not.
//! Regimes:   one command in flight; several and less than nine tenths of the highest rate seen of
//!            that kind and size (knee); the rest (plateau); commands for zones; load beside other
//!            load, as the rate with load over that without.
//! Error:     |model / measured - 1|, of the mean latency and of the rate; averaged over the points
//!            of a kind of command, then over the kinds of a regime.
//! Baseline:  `baseline`, interpolation of the logarithms between points of the fitting half; a
//!            fitted point is predicted from the others.

mod baseline;
mod points;
mod run;
mod scenes;
mod suite;

use std::collections::BTreeMap;

pub use points::{Point, Regime, parse};
pub use suite::{Tested, suite};
use wp_device::{ConfigError, Settings, find};

/// Errors of a set of points in a regime.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Errors {
    /// Measured values.
    pub values: usize,
    /// The model's error.
    pub model: f64,
    /// The baseline's; none if it can predict nothing.
    pub baseline: Option<f64>,
}

/// A point with what the model says of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What was measured.
    pub point: Point,
    /// Where it belongs.
    pub regime: Regime,
    /// The model's mean latency in microseconds and commands per second, as far as they were
    /// measured; of [`Regime::Interference`] a ratio.
    pub model: (Option<f64>, Option<f64>),
    /// The measured values that they stand beside.
    pub measured: (Option<f64>, Option<f64>),
    /// The model's mean error, and the baseline's.
    pub error: (f64, Option<f64>),
}

/// The comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Every point, in the order of the file.
    pub judged: Vec<Judged>,
    /// By regime: of the fitting half, of the other.
    pub regimes: BTreeMap<Regime, (Errors, Errors)>,
}

/// Compares device `name`, some of its numbers replaced, with `points`. Errors: it is not a zoned
/// device of the list, or no device can be made.
pub fn compare(
    points: &[Point],
    name: &str,
    replaced: &[(String, u64)],
) -> Result<Comparison, ConfigError> {
    let Some(entry) = find(name).filter(|e| e.params.iter().any(|p| p.name == "zone_bytes")) else {
        return Err(ConfigError::new(
            name,
            0,
            "is not a zoned device; see `writepath list devices`",
        ));
    };
    let mut settings = Settings::of(entry.params);
    for (key, value) in replaced {
        settings.set(key, *value)?;
    }
    let config = wp_device::zns::ZnsConfig::from_settings(&settings)?;
    let scenes = scenes::Scenes::new(config, points);
    let mut judged: Vec<Judged> = points.iter().filter_map(|p| scenes.judge(p)).collect();
    let all = judged.clone();
    for j in &mut judged {
        j.error.1 = baseline::error(j, &all);
    }
    let mut regimes = BTreeMap::new();
    for regime in Regime::ALL {
        let of = |fitted: bool| {
            errors(judged.iter().filter(|j| j.regime == regime && j.point.is_fitted() == fitted))
        };
        regimes.insert(regime, (of(true), of(false)));
    }
    Ok(Comparison { judged, regimes })
}

/// Averaged over the points of a kind, then over the kinds.
fn errors<'j>(judged: impl Iterator<Item = &'j Judged>) -> Errors {
    let mut kinds: BTreeMap<&str, Vec<&Judged>> = BTreeMap::new();
    for j in judged {
        kinds.entry(j.point.kind()).or_default().push(j);
    }
    let mean = |values: &[f64]| match values.len() {
        0 => None,
        n => Some(values.iter().sum::<f64>() / n as f64),
    };
    let each = |f: &dyn Fn(&Judged) -> Option<f64>| {
        let of_kind =
            |list: &Vec<&Judged>| mean(&list.iter().filter_map(|j| f(j)).collect::<Vec<f64>>());
        mean(&kinds.values().filter_map(of_kind).collect::<Vec<f64>>())
    };
    Errors {
        values: kinds.values().flatten().map(|j| j.values()).sum(),
        model: each(&|j| Some(j.error.0)).unwrap_or(0.0),
        baseline: each(&|j| j.error.1),
    }
}

impl Judged {
    fn values(&self) -> usize {
        usize::from(self.measured.0.is_some()) + usize::from(self.measured.1.is_some())
    }
}
