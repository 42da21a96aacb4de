//! Variables, and attributes as numbers, switches and texts.

use std::collections::BTreeMap;

use crate::fio::{Diagnostic, Place, nearest_of};

use super::super::chance::{CustomKind, Drawn, RandKind};
use super::super::model::Num;
use super::parse::{Attr, Value};
use super::words::{self, Owner};

/// What a variable is.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Var {
    Int(u64),
    Bool(bool),
    Text(String),
    /// Drawn: a place in the list of those.
    Drawn(usize),
}

/// Variables of the text, and of the flowops of its own that are being used, the innermost last.
#[derive(Default)]
pub(super) struct Vars {
    pub(super) global: BTreeMap<String, Var>,
    pub(super) scopes: Vec<BTreeMap<String, Var>>,
    pub(super) drawn: Vec<Drawn>,
    pub(super) found: Vec<Diagnostic>,
}

impl Vars {
    pub(super) fn error(
        &mut self,
        at: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.found.push(Diagnostic::error(at, message, help));
    }

    /// What a value is now.
    pub(super) fn value(&mut self, value: &Value, at: &Place) -> Option<Var> {
        match value {
            Value::Int(n) => Some(Var::Int(*n)),
            Value::Bool(b) => Some(Var::Bool(*b)),
            Value::Text(t) => Some(Var::Text(t.clone())),
            Value::Table(_) => None,
            Value::Variable(name) => {
                let scoped = self.scopes.iter().rev().find_map(|s| s.get(name));
                if let Some(v) = scoped.or_else(|| self.global.get(name)) {
                    return Some(v.clone());
                }
                let names = self.global.keys().map(String::as_str);
                let help = match nearest_of(names, name) {
                    Some(near) => format!("did you mean `${near}`?"),
                    None => format!("set it before `run`: `set ${name}=...`"),
                };
                self.error(at, format!("`${name}` is not set"), help);
                None
            }
        }
    }

    /// A number, which may be drawn each time.
    pub(super) fn num(&mut self, attr: &Attr) -> Num {
        match self.value(&attr.value, &attr.value_at) {
            Some(Var::Int(n)) => Num::Fixed(n),
            Some(Var::Drawn(i)) => Num::Drawn(i),
            Some(Var::Bool(_) | Var::Text(_)) => {
                self.error(&attr.value_at, format!("`{}` is a number", attr.name), "");
                Num::Fixed(0)
            }
            None => Num::Fixed(0),
        }
    }

    /// A number that stays.
    pub(super) fn fixed(&mut self, attr: &Attr) -> u64 {
        match self.num(attr) {
            Num::Fixed(n) => n,
            Num::Drawn(_) => {
                let message = format!("`{}` cannot be drawn: it is needed once", attr.name);
                self.error(&attr.value_at, message, "give a number");
                0
            }
        }
    }

    /// A number with a fraction: of a `cvar`.
    fn real(&mut self, attr: &Attr) -> f64 {
        self.fixed(attr) as f64
    }

    /// A switch; a number is on unless it is 0.
    pub(super) fn flag(&mut self, attr: &Attr) -> bool {
        match self.value(&attr.value, &attr.value_at) {
            Some(Var::Bool(b)) => b,
            Some(Var::Int(n)) => n != 0,
            Some(Var::Text(_) | Var::Drawn(_)) => {
                let message = format!("`{}` is a switch: true or false", attr.name);
                self.error(&attr.value_at, message, "a number is on unless it is 0");
                false
            }
            None => false,
        }
    }

    pub(super) fn text(&mut self, attr: &Attr) -> String {
        match self.value(&attr.value, &attr.value_at) {
            Some(Var::Text(t)) => t,
            Some(_) => {
                self.error(&attr.value_at, format!("`{}` is a text", attr.name), "");
                String::new()
            }
            None => String::new(),
        }
    }

    fn whole_of(&mut self, value: &Value, at: &Place) -> f64 {
        match self.value(value, at) {
            Some(Var::Int(n)) => n as f64,
            Some(_) => {
                self.error(at, "a row of a table is three numbers", "");
                0.0
            }
            None => 0.0,
        }
    }

    /// A `randvar`.
    pub(super) fn random(&mut self, attrs: &[Attr], at: &Place) -> Var {
        let of = |name: &str| attrs.iter().rev().find(|a| a.name == name);
        let word = |a: &Attr| match &a.value {
            Value::Text(t) => t.clone(),
            _ => String::new(),
        };
        let shape = of("gamma").map_or(1500, |a| self.fixed(a)) as f64 / 1000.0;
        let min = of("min").map_or(0.0, |a| self.real(a));
        let round = of("round").map_or(0.0, |a| self.real(a));
        let seed = of("seed").map_or(0, |a| self.fixed(a));
        let mut mean = of("mean").map(|a| self.real(a));
        let kind = match (of("type").map(word).as_deref(), of("randtable")) {
            (Some("tabular") | None, Some(table)) => {
                let (kind, table_mean) = self.table(table);
                mean = mean.filter(|m| *m != 0.0).or(Some(table_mean));
                kind
            }
            (Some("uniform"), None) => RandKind::Uniform,
            (Some("gamma") | None, None) => {
                if shape <= 0.0 {
                    self.error(at, "a gamma distribution needs a `gamma` above 0", "1500 is 1.5");
                }
                RandKind::Gamma(shape.max(1e-3))
            }
            (Some("tabular"), None) => {
                self.error(
                    at,
                    "a tabular `randvar` needs a `randtable`",
                    "randtable={{50,1,2},{50,3,4}}",
                );
                RandKind::Uniform
            }
            (Some(_), _) => {
                let place = of("type").map_or(at, |a| &a.value_at).clone();
                self.error(
                    &place,
                    "this is not a type of `randvar`",
                    "uniform, gamma, or tabular with a randtable",
                );
                RandKind::Uniform
            }
        };
        // filebench takes the shape for a gamma's mean that is left out.
        let mean = mean.unwrap_or(if matches!(kind, RandKind::Gamma(_)) { shape } else { 0.0 });
        let source = of("randsrc").map(|a| (word(a), a.value_at.clone()));
        let seed = match source {
            Some((s, _)) if s == "urandom" => None,
            Some((s, place)) if s != "rand48" => {
                self.error(&place, format!("`{s}` is not a source of numbers"), "urandom, rand48");
                Some(seed)
            }
            _ => Some(seed),
        };
        self.drawn.push(Drawn::Random { kind, mean, min, round, seed });
        Var::Drawn(self.drawn.len() - 1)
    }

    /// A table for a least of 0 and a mean of 1, and its mean.
    fn table(&mut self, attr: &Attr) -> (RandKind, f64) {
        let Value::Table(rows) = &attr.value else { return (RandKind::Uniform, 0.0) };
        let rows: Vec<[f64; 3]> =
            rows.iter().map(|r| [0, 1, 2].map(|i| self.whole_of(&r[i], &attr.at))).collect();
        let percent: f64 = rows.iter().map(|r| r[0]).sum();
        if percent != 100.0 {
            let message = format!("the rows of this table are of {percent} percent, not of 100");
            self.error(&attr.at, message, "the first number of a row is its percentage");
            return (RandKind::Uniform, 0.0);
        }
        let least = rows.iter().map(|r| r[1]).fold(f64::INFINITY, f64::min);
        let mean = rows.iter().map(|r| (r[1] + r[2]) / 2.0 * r[0]).sum::<f64>() / 100.0;
        let scale = mean - least;
        let mut all = Vec::new();
        for [count, from, to] in rows {
            let row = if scale == 0.0 {
                (0.0, 0.0)
            } else {
                ((from - least) / scale, (to - from) / scale)
            };
            all.extend(std::iter::repeat_n(row, count as usize));
        }
        (RandKind::Table(all), mean)
    }

    /// A `cvar`.
    pub(super) fn custom(&mut self, attrs: &[Attr], at: &Place) -> Var {
        let of = |name: &str| attrs.iter().rev().find(|a| a.name == name);
        let min = of("min").map_or(f64::MIN_POSITIVE, |a| self.real(a));
        let max = of("max").map_or(f64::MAX, |a| self.real(a));
        let round = of("round").map_or(0, |a| self.fixed(a));
        let parameters = of("parameters").map_or(String::new(), |a| self.text(a));
        let place = of("parameters").map_or(at, |a| &a.value_at).clone();
        let mut given: BTreeMap<String, f64> = BTreeMap::new();
        for pair in parameters.split(';').filter(|p| !p.is_empty()) {
            let read = pair.split_once(':').and_then(|(k, v)| Some((k, v.parse::<f64>().ok()?)));
            match read.filter(|(_, v)| v.is_finite()) {
                Some((key, value)) => drop(given.insert(key.to_owned(), value)),
                None => self.error(
                    &place,
                    format!("`{pair}` is not a parameter"),
                    "NAME:NUMBER;NAME:NUMBER",
                ),
            }
        }
        let Some(kind_attr) = of("type") else {
            self.error(at, "a `cvar` needs a type", "type=cvar-gamma");
            return Var::Int(0);
        };
        let name = self.text(kind_attr);
        let mut take = |key: &str, default: f64| given.remove(key).unwrap_or(default);
        let kind = match name.as_str() {
            "cvar-gamma" => {
                CustomKind::Gamma { mean: take("mean", 4096.0), gamma: take("gamma", 1.5) }
            }
            "cvar-erlang" => {
                CustomKind::Erlang { shape: take("shape", 1.0) as u32, rate: take("rate", 1.0) }
            }
            "cvar-exponential" => CustomKind::Exponential { mean: take("mean", 1.0) },
            "cvar-lognormal" => {
                CustomKind::LogNormal { shape: take("shape", 1.0), scale: take("scale", 1.0) }
            }
            "cvar-normal" => {
                CustomKind::Normal { mean: take("mean", 0.0), sigma: take("sigma", 1.0) }
            }
            "cvar-triangular" => CustomKind::Triangular {
                lower: take("lower", 0.0),
                upper: take("upper", 1.0),
                mode: take("mode", 0.5),
            },
            "cvar-uniform" => {
                CustomKind::Uniform { lower: take("lower", 0.0), upper: take("upper", 1.0) }
            }
            "cvar-weibull" => {
                CustomKind::Weibull { shape: take("shape", 1.0), scale: take("scale", 1.0) }
            }
            _ => {
                let help = words::way_out(Owner::CVarType, &name);
                self.error(
                    &kind_attr.value_at.clone(),
                    format!("`{name}` is not a type of `cvar`"),
                    help,
                );
                return Var::Int(0);
            }
        };
        if let Some(left) = given.keys().next() {
            self.error(&place, format!("`{left}` is not a parameter of `{name}`"), "");
        }
        let is_possible = match kind {
            CustomKind::Gamma { mean, gamma } => mean > 0.0 && gamma >= 1e-3,
            CustomKind::Erlang { shape, rate } => (1..=1000).contains(&shape) && rate > 0.0,
            CustomKind::Exponential { mean } => mean >= 0.0,
            CustomKind::LogNormal { shape, .. } => shape >= 0.0,
            CustomKind::Normal { .. } => true,
            CustomKind::Triangular { lower, upper, mode } => {
                lower < upper && (lower..=upper).contains(&mode)
            }
            CustomKind::Uniform { lower, upper } => lower <= upper,
            CustomKind::Weibull { shape, scale } => shape > 0.0 && scale >= 0.0,
        };
        if !is_possible || min > max {
            self.error(&place, format!("`{name}` has no such parameters"), "");
            return Var::Int(0);
        }
        self.drawn.push(Drawn::Custom { kind, min, max, round });
        Var::Drawn(self.drawn.len() - 1)
    }
}
