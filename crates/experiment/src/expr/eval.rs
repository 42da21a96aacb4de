//! The value of an expression over points.

use std::collections::BTreeMap;

use super::{Expr, Fold, Kind, Op, Term, Wrong};
use crate::sweep::{Part, Sweep};

/// Most numbers that an expression may have under way.
const NUMBERS_MAX: usize = 1_000_000;

/// How names of settings begin, which are numbers of the file and not of a run.
pub const SETTING: &str = "set.";

/// Numbers by where they are: the choice of each axis, or nothing of one that was fixed.
#[derive(Clone, Debug, PartialEq)]
pub struct Field(pub BTreeMap<Coordinates, f64>);

type Coordinates = Vec<Option<usize>>;

impl Field {
    /// The only number.
    pub fn number(&self) -> Option<f64> {
        let mut all = self.0.values();
        all.next().copied().filter(|_| all.next().is_none())
    }
}

/// What a metric is at a point. Errors: why it is nothing.
pub type Metrics<'a> = &'a dyn Fn(usize, &str) -> Result<f64, String>;

/// The value of an expression; `fixed` is a part that all metrics are of.
///
/// Errors: names that are none, metrics that a point does not have, sides that do not fit.
pub fn eval(
    expr: &Expr,
    sweep: &Sweep,
    fixed: &Part,
    metrics: Metrics<'_>,
) -> Result<Field, Wrong> {
    Eval { sweep, fixed, metrics }.of(expr)
}

/// The part that terms name. Errors: one that names none.
pub fn part(terms: &[Term], sweep: &Sweep) -> Result<Part, Wrong> {
    let mut all = Part::new();
    for term in terms {
        let found = match &term.key {
            Some(key) => sweep.pair(key, &term.word).map(|one| vec![one]),
            None => sweep.word(&term.word),
        };
        let found = found.map_err(|(what, help)| Wrong::new(term.at.clone(), what, help))?;
        all.extend(found);
    }
    Ok(all)
}

struct Eval<'a> {
    sweep: &'a Sweep,
    fixed: &'a Part,
    metrics: Metrics<'a>,
}

impl Eval<'_> {
    fn of(&self, expr: &Expr) -> Result<Field, Wrong> {
        let wrong = |what: String, help: &str| Wrong::new(expr.at.clone(), what, help);
        match &expr.kind {
            Kind::Number(x) => {
                Ok(Field([(vec![None; self.sweep.axes.len()], *x)].into_iter().collect()))
            }
            Kind::Metric(name, terms) => self.metric(expr, name, terms),
            Kind::Negative(inner) => {
                let field = self.of(inner)?;
                Ok(Field(field.0.into_iter().map(|(at, x)| (at, -x)).collect()))
            }
            Kind::Binary(op, a, b) => {
                let (a, b) = (self.of(a)?, self.of(b)?);
                let help = "both sides need the same swept values: name points on both";
                join(&a, &b, |a, b| binary(*op, a, b)).map_err(|why| why.at(expr, help))
            }
            Kind::Among(fold, all) => {
                let mut fields = all.iter().map(|e| self.of(e));
                let mut out = fields.next().unwrap_or_else(|| Ok(Field(BTreeMap::new())))?;
                let pick = if *fold == Fold::Min { f64::min } else { f64::max };
                for field in fields {
                    out = join(&out, &field?, |a, b| Ok(pick(a, b)))
                        .map_err(|why| why.at(expr, "all need the same swept values"))?;
                }
                Ok(out)
            }
            Kind::Fold(fold, inner) => {
                let field = self.of(inner)?;
                if *fold == Fold::Grows {
                    self.is_along_one(&field)
                        .map_err(|what| wrong(what, "name points so that one swept key is left"))?;
                }
                let all: Vec<f64> = field.0.into_values().collect();
                let x =
                    folded(*fold, &all).map_err(|what| Wrong::numbers(expr.at.clone(), what))?;
                Ok(Field([(vec![None; self.sweep.axes.len()], x)].into_iter().collect()))
            }
        }
    }

    fn metric(&self, expr: &Expr, name: &str, terms: &[Term]) -> Result<Field, Wrong> {
        let mut part = part(terms, self.sweep)?;
        part.extend(self.fixed.iter().cloned());
        // What several terms say of an axis holds at once.
        let axes = self.sweep.axes.len();
        let mut allowed: Vec<Vec<usize>> =
            self.sweep.axes.iter().map(|a| (0..a.choices.len()).collect()).collect();
        for (axis, choices) in &part {
            allowed[*axis].retain(|c| choices.contains(c));
        }
        if allowed.iter().any(Vec::is_empty) {
            let what = "no point matches all terms";
            return Err(Wrong::new(expr.at.clone(), what, "terms of one key exclude each other"));
        }
        let mut out = BTreeMap::new();
        let numbers = allowed.iter().fold(1usize, |n, a| n.saturating_mul(a.len()));
        if numbers > NUMBERS_MAX {
            return Err(Wrong::new(expr.at.clone(), format!("{numbers} numbers at once"), ""));
        }
        for n in 0..numbers {
            let (mut left, mut point, mut at) = (n, 0usize, vec![None; axes]);
            let mut choices = vec![0; axes];
            for axis in (0..axes).rev() {
                choices[axis] = allowed[axis][left % allowed[axis].len()];
                left /= allowed[axis].len();
            }
            for axis in 0..axes {
                point = point * self.sweep.axes[axis].choices.len() + choices[axis];
                if allowed[axis].len() > 1 {
                    at[axis] = Some(choices[axis]);
                }
            }
            let x = (self.metrics)(point, name)
                .map_err(|what| Wrong::new(expr.at.clone(), what, ""))?;
            out.insert(at, x);
        }
        // A setting that all points share is one number, wherever it is asked for.
        let first = out.values().next().copied();
        if let Some(x) = first.filter(|_| name.starts_with(SETTING))
            && out.values().all(|y| *y == x)
        {
            return Ok(Field([(vec![None; axes], x)].into_iter().collect()));
        }
        Ok(Field(out))
    }

    /// Is one axis left, and at least two of its choices? Their order is the file's.
    fn is_along_one(&self, field: &Field) -> Result<(), String> {
        let is_free = |axis: usize| field.0.keys().any(|at| at[axis].is_some());
        let free = (0..self.sweep.axes.len()).filter(|a| is_free(*a)).count();
        match free {
            1 => Ok(()),
            0 => Err("one number does not grow".to_owned()),
            n => Err(format!("{n} swept keys are left, and `grows` needs one")),
        }
    }
}

fn binary(op: Op, a: f64, b: f64) -> Result<f64, String> {
    let yes = |b: bool| Ok(f64::from(u8::from(b)));
    let x = match op {
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a * b,
        Op::Div if b == 0.0 => return Err(format!("{a} is divided by 0")),
        Op::Div => a / b,
        Op::Less => return yes(a < b),
        Op::LessEq => return yes(a <= b),
        Op::More => return yes(a > b),
        Op::MoreEq => return yes(a >= b),
        Op::Equal => return yes(a == b),
        Op::Differs => return yes(a != b),
    };
    if x.is_finite() { Ok(x) } else { Err("the result is too large".to_owned()) }
}

/// Why two sides do not come together.
enum Apart {
    /// They are at different points.
    Points(&'static str),
    /// Their numbers.
    Numbers(String),
}

impl Apart {
    fn at(self, expr: &Expr, help: &str) -> Wrong {
        match self {
            Apart::Points(what) => Wrong::new(expr.at.clone(), what, help),
            Apart::Numbers(what) => Wrong::numbers(expr.at.clone(), what),
        }
    }
}

/// Point by point: numbers whose coordinates do not contradict each other.
fn join(a: &Field, b: &Field, f: impl Fn(f64, f64) -> Result<f64, String>) -> Result<Field, Apart> {
    let first = |field: &Field| field.0.keys().next().cloned().unwrap_or_default();
    let (of_a, of_b) = (first(a), first(b));
    let shared: Vec<usize> =
        (0..of_a.len()).filter(|i| of_a[*i].is_some() && of_b[*i].is_some()).collect();
    let key = |at: &Coordinates| shared.iter().map(|i| at[*i]).collect::<Vec<_>>();
    let mut by_key: BTreeMap<Vec<Option<usize>>, Vec<(&Coordinates, f64)>> = BTreeMap::new();
    for (at, x) in &b.0 {
        by_key.entry(key(at)).or_default().push((at, *x));
    }
    let mut out = BTreeMap::new();
    let mut met = std::collections::BTreeSet::new();
    for (at, x) in &a.0 {
        let here = key(at);
        let Some(others) = by_key.get(&here) else {
            return Err(Apart::Points("the left side has points that the right side lacks"));
        };
        met.insert(here);
        for (other, y) in others {
            let both = at.iter().zip(*other).map(|(a, b)| a.or(*b)).collect();
            out.insert(both, f(*x, *y).map_err(Apart::Numbers)?);
            if out.len() > NUMBERS_MAX {
                return Err(Apart::Points("too many numbers"));
            }
        }
    }
    if met.len() < by_key.len() {
        return Err(Apart::Points("the right side has points that the left side lacks"));
    }
    Ok(Field(out))
}

fn folded(fold: Fold, all: &[f64]) -> Result<f64, String> {
    if all.is_empty() {
        return Err("no numbers to combine".to_owned());
    }
    let n = all.len() as f64;
    let sum: f64 = all.iter().sum();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let x = match fold {
        Fold::Min => least,
        Fold::Max => most,
        Fold::Mean => sum / n,
        Fold::Geomean if least <= 0.0 => {
            return Err(format!("a geometric mean of {least}"));
        }
        // Not by their product, which leaves what a number holds: of 40 times in nanoseconds.
        Fold::Geomean => (all.iter().map(|x| x.ln()).sum::<f64>() / n).exp(),
        Fold::Sum => sum,
        Fold::Count => all.iter().filter(|x| **x != 0.0).count() as f64,
        Fold::Spread if sum == 0.0 => return Err("a spread around 0".to_owned()),
        Fold::Spread => (most - least) / (sum / n),
        Fold::Grows => f64::from(u8::from(all.windows(2).all(|w| w[0] < w[1]))),
    };
    if x.is_finite() { Ok(x) } else { Err("the result is too large".to_owned()) }
}
