//! Metrics: what a run is in numbers, by name.

use std::collections::BTreeMap;
use std::fmt;

/// A number, written and read exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Int(u64),
    /// Something else; finite.
    Real(f64),
}

impl Number {
    /// For reckoning. Counts beyond 2^53 are rounded.
    pub fn value(self) -> f64 {
        match self {
            Number::Int(n) => n as f64,
            Number::Real(x) => x,
        }
    }

    /// Reads what `Display` wrote. `None`: it is no such number.
    pub fn parse(text: &str) -> Option<Number> {
        if let Ok(n) = text.parse() {
            return Some(Number::Int(n));
        }
        text.parse::<f64>().ok().filter(|x| x.is_finite()).map(Number::Real)
    }
}

/// The shortest text that reads as the same number.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(n) => n.fmt(f),
            // With a point or an exponent, so that it is none of the others.
            Number::Real(x) => write!(f, "{x:?}"),
        }
    }
}

/// Metrics by name.
pub type Metrics = BTreeMap<String, Number>;

/// Families of counts: where one that is not there was not met, and is 0.
const COUNTS: [&str; 3] = ["phase.", "pages.", "conflicts."];

/// A metric of a run; of a count that was not met 0. `None`: there is no such.
pub fn value(metrics: &Metrics, name: &str) -> Option<f64> {
    if let Some(n) = metrics.get(name) {
        return Some(n.value());
    }
    let family = COUNTS.iter().find(|f| name.starts_with(**f))?;
    let is_counted = metrics.keys().any(|k| k.starts_with(family));
    (is_counted && !name.ends_with("_ns")).then_some(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_their_text() {
        for n in [0, 1, 1 << 53, u64::MAX] {
            assert_eq!(Number::parse(&Number::Int(n).to_string()), Some(Number::Int(n)));
        }
        for x in [0.1, 1.0, 1e300, 5e-324, 1.0 / 3.0, -2.5] {
            assert_eq!(Number::parse(&Number::Real(x).to_string()), Some(Number::Real(x)), "{x}");
        }
        for wrong in ["", "x", "nan", "inf"] {
            assert_eq!(Number::parse(wrong), None);
        }
    }

    #[test]
    fn a_count_that_was_not_met_is_nought_and_a_time_is_nothing() {
        let metrics = Metrics::from([("phase.fsync.journal".to_owned(), Number::Int(5))]);
        assert_eq!(value(&metrics, "phase.fsync.data"), Some(0.0));
        assert_eq!(value(&metrics, "phase.after.data.first_ns"), None);
        assert_eq!(value(&metrics, "pages.data"), None, "pages were not counted");
        assert_eq!(value(&metrics, "iops"), None);
    }
}
