//! From numbers to places, and the numbers that stand at an axis.

/// How numbers go along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps add.
    Linear,
    /// Equal steps multiply; for numbers above 0.
    Log,
}

/// Numbers from `low` to `high` on places from `from` to `to`.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Map {
    /// A map. An empty range, or one that the scale cannot have, is widened to one that it can.
    pub fn new(scale: Scale, [low, high]: [f64; 2], [from, to]: [f64; 2]) -> Map {
        let is_fine = low.is_finite() && high.is_finite() && (scale == Scale::Linear || low > 0.0);
        let (low, high) = if is_fine { (low, high) } else { (1.0, 10.0) };
        let high = match scale {
            _ if high > low => high,
            Scale::Linear => low + 1.0,
            Scale::Log => low * 10.0,
        };
        Map { scale, low, high, from, to }
    }

    /// Where a number stands; outside of the range as far as it goes, but no further than one range
    /// beside it.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value <= 0.0 => -1.0,
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        let share = if share.is_nan() { 0.0 } else { share.clamp(-1.0, 2.0) };
        self.from + share * (self.to - self.from)
    }
}

/// Numbers at an axis, rising: some five at steps of 1, 2 or 5 times a power of ten; on a
/// logarithmic one powers of ten, and 2 and 5 times them if there is room.
pub fn ticks(scale: Scale, [low, high]: [f64; 2]) -> Vec<f64> {
    if !(low.is_finite() && high.is_finite() && low < high) {
        return vec![low];
    }
    match scale {
        Scale::Linear => linear_ticks(low, high),
        Scale::Log => log_ticks(low, high),
    }
}

/// A step such that about `parts` of it are in `span`.
fn step(span: f64, parts: f64) -> f64 {
    let raw = span / parts;
    let power = 10f64.powf(raw.log10().floor());
    let share = raw / power;
    power
        * if share < 1.5 {
            1.0
        } else if share < 3.5 {
            2.0
        } else if share < 7.5 {
            5.0
        } else {
            10.0
        }
}

fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let step = step(high - low, 5.0);
    let first = (low / step).ceil();
    let slack = step * 1e-9;
    let all = (0..20).map(|i| (first + f64::from(i)) * step);
    all.take_while(|t| *t <= high + slack).map(|t| if t.abs() < slack { 0.0 } else { t }).collect()
}

fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    if low <= 0.0 {
        return Vec::new();
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = last - first;
    let (each, every): (&[f64], i32) = match decades {
        ..=3 => (&[1.0, 2.0, 5.0], 1),
        4..=8 => (&[1.0], 1),
        _ => (&[1.0], decades / 6),
    };
    let mut out = Vec::new();
    for power in (first..=last).filter(|p| (p - first) % every == 0) {
        out.extend(each.iter().map(|m| m * 10f64.powi(power)));
    }
    out.retain(|t| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(t));
    out
}

/// A range that ends at ticks. A linear one has 0 in it if it shall; of one number alone a
/// logarithmic one is two decades.
pub fn nice(scale: Scale, [low, high]: [f64; 2], has_zero: bool) -> [f64; 2] {
    match scale {
        Scale::Linear => {
            let (low, high) = if has_zero { (low.min(0.0), high.max(0.0)) } else { (low, high) };
            let span = if high > low { high - low } else { 1.0 };
            let step = step(span, 5.0);
            [(low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step]
        }
        Scale::Log if low == high => [low / 10.0, high * 10.0],
        Scale::Log => {
            let floor = |v: f64| {
                let power = 10f64.powf(v.log10().floor());
                [5.0, 2.0, 1.0].map(|m| m * power).into_iter().find(|t| *t <= v).unwrap_or(power)
            };
            let ceil = |v: f64| {
                let power = 10f64.powf(v.log10().floor());
                let all = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
                all.into_iter().find(|t| *t >= v * (1.0 - 1e-9)).unwrap_or(power * 10.0)
            };
            [floor(low), ceil(high)]
        }
    }
}

/// A number for people: four digits that count, groups of three, no exponent between 10⁻⁴ and 10¹⁵.
pub fn number(v: f64) -> String {
    if !v.is_finite() {
        return "—".to_owned();
    }
    if v == 0.0 {
        // An empty sum is -0.
        return "0".to_owned();
    }
    let size = v.abs();
    if !(1e-4..1e15).contains(&size) {
        return format!("{v:.2e}");
    }
    let digits = if size >= 1000.0 {
        0
    } else {
        // Digits behind the point so that four count.
        (3 - size.log10().floor() as i32).clamp(0, 7) as usize
    };
    let text = format!("{v:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    grouped(&text)
}

/// Narrow spaces between groups of three digits before the point, from five digits on.
fn grouped(text: &str) -> String {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("−", rest),
        None => ("", text),
    };
    let (whole, part) = rest.split_once('.').map_or((rest, None), |(w, p)| (w, Some(p)));
    let mut out = sign.to_owned();
    for (i, c) in whole.chars().enumerate() {
        if whole.len() > 4 && i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    if let Some(part) = part {
        out.push('.');
        out.push_str(part);
    }
    out
}

/// A number at an axis: short.
pub fn tick_text(v: f64) -> String {
    match v.abs() {
        size if size >= 1e6 => format!("{}M", number(v / 1e6)),
        size if size >= 1e4 => format!("{}k", number(v / 1e3)),
        _ => number(v),
    }
}

#[cfg(test)]
mod browser;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_a_range_are_at_its_ends() {
        for scale in [Scale::Linear, Scale::Log] {
            let map = Map::new(scale, [1.0, 1000.0], [50.0, 450.0]);
            assert!((map.at(1.0) - 50.0).abs() < 1e-9);
            assert!((map.at(1000.0) - 450.0).abs() < 1e-9);
        }
        let log = Map::new(Scale::Log, [1.0, 10_000.0], [0.0, 4.0]);
        for power in 0..=4 {
            assert!((log.at(10f64.powi(power)) - f64::from(power)).abs() < 1e-9);
        }
    }

    #[test]
    fn no_number_and_no_range_leaves_the_picture_without_bound() {
        let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1.0, f64::MIN_POSITIVE];
        for scale in [Scale::Linear, Scale::Log] {
            for low in bad {
                for high in bad {
                    let map = Map::new(scale, [low, high], [0.0, 100.0]);
                    for value in bad {
                        let at = map.at(value);
                        assert!((-100.0..=200.0).contains(&at), "{scale:?} {low} {high} {value}");
                    }
                    assert!(ticks(scale, [low, high]).len() <= 40);
                }
            }
        }
    }

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(ticks(Scale::Linear, [0.0, 100.0]), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(Scale::Linear, [-1.0, 1.0]), [-1.0, -0.5, 0.0, 0.5, 1.0]);
        assert_eq!(ticks(Scale::Log, [1.0, 100.0]), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(Scale::Log, [1.0, 1e5]).len(), 6);
        assert_eq!(nice(Scale::Linear, [3.0, 97.0], true), [0.0, 100.0]);
        assert_eq!(nice(Scale::Linear, [0.0, 18.0], true), [0.0, 20.0]);
        assert_eq!(nice(Scale::Linear, [-3.0, 0.0], true), [-3.0, 0.0]);
        assert_eq!(nice(Scale::Linear, [82.0, 97.0], false), [82.0, 98.0]);
        assert_eq!(nice(Scale::Log, [1.0, 1.0], false), [0.1, 10.0]);
        assert_eq!(nice(Scale::Log, [3.0, 700.0], false), [2.0, 1000.0]);
        assert_eq!(nice(Scale::Log, [10.0, 1000.0], false), [10.0, 1000.0]);
    }

    #[test]
    fn numbers_keep_four_digits_and_are_grouped() {
        let all = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (0.5226, "0.5226"),
            (15.25, "15.25"),
            (1583.856, "1584"),
            (98891.0, "98\u{202f}891"),
            (-0.05, "−0.05"),
            (1234567.0, "1\u{202f}234\u{202f}567"),
            (2.5e-6, "2.50e-6"),
        ];
        for (value, text) in all {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(f64::NAN), "—");
        assert_eq!(tick_text(20_000.0), "20k");
        assert_eq!(tick_text(2_500_000.0), "2.5M");
    }
}
