//! The fit as a whole: what is held out, what is told, what the device file says.

use std::collections::BTreeMap;

use wp_base::event::Op;
use wp_device::{DeviceEntry, Settings};
use wp_machine::device_file::{DeviceFile, GIVEN, Number};

use crate::fit;
use crate::fit::Unidentified;
use crate::load;
use crate::load::{Figures, Load};
use crate::measured::{Input, Measured};
use crate::scale::{FACTOR_MAX, Scale};

/// A fit with an error beyond that may lack a number that was left out: each is tried once more.
const POOR: f64 = 0.1;
/// A number that is tried once more is kept if what is left falls to this share.
const BETTER: f64 = 0.7;
/// Rounds of choosing numbers and fitting them.
const ROUNDS: usize = 2;

/// A class of drives: a preset, and the numbers of it that measurements may tell, those that are
/// told first before others.
pub struct Class {
    /// Its name on the command line.
    pub name: &'static str,
    /// The preset that it begins with.
    pub base: &'static str,
    /// What may be fitted.
    pub numbers: &'static [&'static str],
    /// The one of them that is the time of a FLUSH. It is told first where every load waits for
    /// syncs: those do not tell a write's own time from that of its FLUSH.
    pub flush: Option<&'static str>,
}

impl Class {
    /// The numbers in the order in which these loads tell them.
    fn in_order(&self, loads: &[Measured]) -> Vec<&'static str> {
        let waits = |m: &Measured| m.load.sync_every > 0 || m.load.forced;
        let first = self.flush.filter(|_| loads.iter().all(waits));
        let rest = self.numbers.iter().copied().filter(|n| Some(*n) != first);
        first.into_iter().chain(rest).collect()
    }
}

/// All classes.
pub static CLASSES: &[Class] = &[
    Class {
        name: "ssd",
        base: "ssd-128",
        numbers: &[
            "write_overhead_ns",
            "slc_program_ns",
            "program_ns",
            "read_ns",
            "link_mb_s",
            "command_ns",
            "flush_overhead_ns",
            "read_overhead_ns",
        ],
        flush: Some("flush_overhead_ns"),
    },
    Class {
        name: "emmc",
        base: "emmc-16",
        numbers: &["command_ns", "program_ns", "read_ns", "bus_mb_s", "flush_ns"],
        flush: Some("flush_ns"),
    },
    Class { name: "fixed", base: "fixed", numbers: &["latency_ns"], flush: None },
    Class {
        name: "plain",
        base: "sata-disk-nofua",
        numbers: &["command_ns", "link_mb_s", "flush_ns", "writeback_mb_s"],
        flush: Some("flush_ns"),
    },
    Class {
        name: "zns",
        base: "zn540",
        numbers: &[
            "write_overhead_ns",
            "program_ns",
            "read_ns",
            "link_mb_s",
            "write_cpu_ns",
            "append_cpu_ns",
            "append_overhead_ns",
            "read_cpu_ns",
            "link_read_mb_s",
            "partial_overhead_ns",
        ],
        flush: None,
    },
];

/// A condition on loads: all of its parts hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held(Vec<(String, String)>);

impl Held {
    /// From `op=randread,bs=64k,depth=32`. Errors: another key, or no value.
    pub fn parse(text: &str) -> Result<Held, String> {
        let part = |p: &str| match p.split_once('=') {
            Some((k @ ("op" | "bs" | "depth" | "jobs" | "fsync"), v)) if !v.is_empty() => {
                Ok((k.to_owned(), v.to_ascii_lowercase()))
            }
            _ => Err(format!("`{p}`: write op=, bs=, depth=, jobs= or fsync= and a value")),
        };
        text.split(',').map(part).collect::<Result<_, _>>().map(Held)
    }

    fn holds(&self, load: &Load) -> bool {
        let name = load.name();
        let words: Vec<&str> = name.split(' ').collect();
        self.0.iter().all(|(key, value)| match key.as_str() {
            "op" => words[0] == value,
            "bs" => wp_machine::spec::size(value) == Ok(load.bytes.into()),
            "depth" => *value == load.depth.to_string(),
            "jobs" => *value == load.jobs.to_string(),
            _ => *value == load.sync_every.to_string(),
        })
    }
}

/// A load with what the model says of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What was measured.
    pub measured: Measured,
    /// Was it held out?
    pub held_out: bool,
    /// What the model does.
    pub model: Figures,
}

impl Judged {
    /// Mean of |model / measured - 1| over its values; of one that the model does not give, as
    /// far off as anything may be (`FACTOR_MAX`), as when it is fitted.
    pub fn error(&self) -> f64 {
        let pairs = self.model.all().into_iter().zip(self.measured.figures.all());
        let each = |(m, r): (Option<f64>, Option<f64>)| {
            let r = r?;
            Some(m.map_or(FACTOR_MAX - 1.0, |m| (m / r - 1.0).abs()))
        };
        let each: Vec<f64> = pairs.filter_map(each).collect();
        each.iter().sum::<f64>() / each.len().max(1) as f64
    }
}

/// What came of a number.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// Its key.
    pub key: &'static str,
    /// The value that the class has.
    pub before: u64,
    /// The value now.
    pub value: u64,
    /// Why it was not fitted, if it was not.
    pub unidentified: Option<Unidentified>,
    /// Does it stand near the end of what it may be?
    pub at_bound: bool,
}

/// A calibration.
pub struct Calibrated {
    /// The device.
    pub file: DeviceFile,
    /// Loads, in the order of their names.
    pub judged: Vec<Judged>,
    /// Numbers that might have been fitted.
    pub parameters: Vec<Parameter>,
    /// Loads that the model could not be asked for, and why.
    pub refused: Vec<(String, String)>,
    /// Runs of the model.
    pub runs: u64,
    /// Somebody ended it early: the numbers are the best so far.
    pub interrupted: bool,
}

/// How a calibration is to be done.
pub struct Plan<'p> {
    /// The class.
    pub class: &'static Class,
    /// What the drive is begun as: the class's preset, or another of its kind.
    pub base: &'static DeviceEntry,
    /// Numbers of a file that replace those of `base`. The search begins with them; one whose
    /// source says that it is given is not fitted.
    pub begun: &'p [Number],
    /// Numbers that are known: they replace all others and are not fitted.
    pub given: &'p [(String, u64)],
    /// What is held out; by rule if none.
    pub held: Option<&'p [Held]>,
}

/// Is the load at this place of its family's order held out by rule?
fn is_held_out(place: usize) -> bool {
    place % 3 == 1
}

/// Which loads are held out.
fn split(measured: &[Measured], held: Option<&[Held]>) -> Vec<bool> {
    if let Some(held) = held {
        return measured.iter().map(|m| held.iter().any(|h| h.holds(&m.load))).collect();
    }
    let mut families: BTreeMap<(Op, bool, bool, bool), Vec<usize>> = BTreeMap::new();
    for (i, m) in measured.iter().enumerate() {
        let l = m.load;
        families.entry((l.op, l.random, l.sync_every > 0, l.forced)).or_default().push(i);
    }
    let mut out = vec![false; measured.len()];
    for family in families.values() {
        let mut distinct: Vec<Load> = family.iter().map(|i| asked(&measured[*i].load)).collect();
        distinct.dedup();
        for i in family.iter().filter(|_| distinct.len() > 2) {
            let place = distinct.iter().position(|l| *l == asked(&measured[*i].load));
            out[*i] = place.is_some_and(is_held_out);
        }
    }
    out
}

/// What a load asks of the drive, without what its host was measured to take.
fn asked(load: &Load) -> Load {
    Load { host_ns: 0, ..*load }
}

/// Gives loads that are held out the host of the fitted ones: the median of those that have as
/// many operations under way (one, or several, of which reports tell the host otherwise), of all if
/// there are none such.
fn of_the_others(measured: &mut [Measured], held: &[bool]) {
    let median = |wanted: &dyn Fn(&Load) -> bool| {
        let fitted = measured.iter().zip(held).filter(|(m, h)| !**h && wanted(&m.load));
        let mut all: Vec<u64> = fitted.map(|(m, _)| m.load.host_ns).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    };
    let any = median(&|_| true).unwrap_or(0);
    let one = median(&|l| l.depth == 1).unwrap_or(any);
    let several = median(&|l| l.depth > 1).unwrap_or(any);
    for (m, _) in measured.iter_mut().zip(held).filter(|(_, h)| **h) {
        m.load.host_ns = if m.load.depth == 1 { one } else { several };
    }
}

struct Bench<'p, 'g> {
    plan: &'p Plan<'p>,
    keys: Vec<(&'static str, Scale)>,
    go_on: &'g mut dyn FnMut(u64) -> bool,
    runs: u64,
    stopped: bool,
}

impl Bench<'_, '_> {
    /// The model under a load, with the numbers at these places of their scales.
    fn figures(&self, at: &[f64], load: &Load) -> Result<Figures, String> {
        let values: Vec<(&str, u64)> = self
            .plan
            .begun
            .iter()
            .map(|n| (n.key, n.value))
            .chain(self.plan.given.iter().map(|(k, v)| (k.as_str(), *v)))
            .chain(self.keys.iter().zip(at).map(|((k, scale), at)| (*k, scale.value(*at))))
            .collect();
        let device = self.plan.base.make(&values).map_err(|e| e.to_string())?;
        load::run(device, load)
    }

    /// Logarithms of model / measured of all values of `loads`; `None` if it is to be stopped.
    fn residuals(&mut self, at: &[f64], loads: &[Measured]) -> Option<Vec<f64>> {
        let mut all = Vec::new();
        for m in loads {
            self.stopped |= !(self.go_on)(self.runs);
            if self.stopped {
                return None;
            }
            self.runs += 1;
            let found = self.figures(at, &m.load).unwrap_or_default();
            for (model, real) in found.all().into_iter().zip(m.figures.all()) {
                let Some(real) = real else { continue };
                // What the model does not do at all is as wrong as can be.
                all.push(model.map_or(FACTOR_MAX.ln(), |v| (v.max(1e-9) / real).ln()));
            }
        }
        Some(all)
    }
}

/// Calibrates. `go_on` is asked before each run of the model, with how many there were.
///
/// Errors: nothing that could be fitted, or no write among it; a class whose numbers make no
///         device.
pub fn calibrate(
    input: &Input,
    plan: &Plan<'_>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Calibrated, String> {
    let mut settings = Settings::of(plan.base.params);
    let begun = plan.begun.iter().map(|n| (n.key, n.value));
    for (key, value) in begun.chain(plan.given.iter().map(|(k, v)| (k.as_str(), *v))) {
        settings.set(key, value).map_err(|e| e.to_string())?;
    }
    let fits = |key: &str| {
        let is_there = plan.base.params.iter().any(|p| p.name == key);
        let known = |n: &&Number| n.key == key && n.source.starts_with(GIVEN);
        let is_known =
            plan.given.iter().any(|(k, _)| k == key) || plan.begun.iter().any(|n| known(&n));
        is_there && !is_known && settings.get(key) > 0
    };
    let keys = plan.class.in_order(&input.measured).into_iter().filter(|k| fits(k));
    let scale = |key| (key, Scale::of(key, settings.get(key), &input.measured));
    let keys: Vec<(&'static str, Scale)> = keys.map(scale).collect();
    let start: Vec<f64> = keys.iter().map(|(_, scale)| scale.start()).collect();
    let mut bench = Bench { plan, keys, go_on, runs: 0, stopped: false };
    let (mut measured, refused) = usable(input, &bench, &start)?;
    let held = split(&measured, plan.held);
    of_the_others(&mut measured, &held);
    let of = |wanted: bool| -> Vec<Measured> {
        let chosen = measured.iter().zip(&held).filter(|(_, h)| **h == wanted);
        chosen.map(|(m, _)| m.clone()).collect()
    };
    let fitted = of(false);
    if fitted.is_empty() {
        return Err("all loads are held out: none is left to fit to".to_owned());
    }
    let (at, unidentified) = search(&mut bench, &fitted, &start);
    let judged = measured.iter().zip(&held).map(|(m, held_out)| Judged {
        measured: m.clone(),
        held_out: *held_out,
        model: bench.figures(&at, &m.load).unwrap_or_default(),
    });
    let judged = judged.collect();
    let parameters: Vec<Parameter> = (0..at.len())
        .map(|i| {
            let (key, scale) = bench.keys[i];
            Parameter {
                key,
                before: scale.value(start[i]),
                value: scale.value(at[i]),
                unidentified: unidentified[i].err(),
                at_bound: scale.is_near_end(scale.value(at[i])),
            }
        })
        .collect();
    let file = device_file(plan, &parameters, fitted.len());
    let (runs, interrupted) = (bench.runs, bench.stopped);
    Ok(Calibrated { file, judged, parameters, refused, runs, interrupted })
}

/// A load that the model cannot be asked for, and why.
type Refused = (String, String);

/// Those loads that the model can be asked for, sorted. Errors: none, or none that writes.
fn usable(
    input: &Input,
    bench: &Bench<'_, '_>,
    start: &[f64],
) -> Result<(Vec<Measured>, Vec<Refused>), String> {
    let mut refused = input.skipped.clone();
    let mut measured = Vec::new();
    for m in &input.measured {
        match bench.figures(start, &m.load) {
            Ok(_) => measured.push(m.clone()),
            Err(why) => refused.push((m.source.clone(), why)),
        }
    }
    let reasons = || {
        let each: Vec<String> =
            refused.iter().take(8).map(|(whose, why)| format!("\n  {whose}: {why}")).collect();
        each.concat()
    };
    if measured.is_empty() {
        return Err(format!("no measured load can be compared{}", reasons()));
    }
    if measured.iter().all(|m| m.load.op == Op::Read) {
        let what = "no write was measured: reads do not determine the cost of writes";
        return Err(format!("{what}{}", reasons()));
    }
    let key = |m: &Measured| {
        let l = m.load;
        (l.op, l.random, l.sync_every, l.forced, l.bytes, l.jobs, l.depth)
    };
    measured.sort_by_key(key);
    Ok((measured, refused))
}

/// Chooses numbers and fits them: where they are on their scales, and which were told.
fn search(
    bench: &mut Bench<'_, '_>,
    fitted: &[Measured],
    start: &[f64],
) -> (Vec<f64>, Vec<Result<(), Unidentified>>) {
    let bounds: Vec<(f64, f64)> = bench.keys.iter().map(|(_, scale)| scale.bounds()).collect();
    let mut at = start.to_vec();
    let mut unidentified = vec![Err(Unidentified::Unfelt); start.len()];
    for _ in 0..ROUNDS {
        // At an end of its range a number may seem to do nothing: look at it from the class's
        // value.
        for (v, (start, (low, high))) in at.iter_mut().zip(start.iter().zip(&bounds)) {
            if *v <= *low || *v >= *high {
                *v = *start;
            }
        }
        let mut model = |at: &[f64]| bench.residuals(at, fitted);
        let Some(slopes) = fit::sensitivity(&mut model, &at) else { break };
        unidentified = fit::identified(&slopes);
        let free: Vec<usize> = (0..at.len()).filter(|i| unidentified[*i].is_ok()).collect();
        // What cannot be told is what the class has, also if a round before took it for told.
        for i in (0..at.len()).filter(|i| unidentified[*i].is_err()) {
            at[i] = start[i];
        }
        let (found, stopped) = fit::fit(&mut model, &at, &free, &bounds);
        at = found;
        if stopped {
            return (at, unidentified);
        }
    }
    once_more(bench, fitted, (start, &bounds), (at, unidentified))
}

/// A poor fit tries the numbers that were left out, the one first that helps most: what does as
/// another does near the class's values need not do so far from them.
fn once_more(
    bench: &mut Bench<'_, '_>,
    fitted: &[Measured],
    (start, bounds): (&[f64], &[(f64, f64)]),
    (mut at, mut unidentified): (Vec<f64>, Vec<Result<(), Unidentified>>),
) -> (Vec<f64>, Vec<Result<(), Unidentified>>) {
    let mut model = |at: &[f64]| bench.residuals(at, fitted);
    let cost = |left: &[f64]| left.iter().map(|v| v * v).sum::<f64>();
    let is_poor = |left: &[f64]| left.iter().any(|v| v.abs() > POOR.ln_1p());
    let Some(mut left) = model(&at) else { return (at, unidentified) };
    // The rounds before may have led far away: from the class's values, and with what was told.
    if is_poor(&left) {
        let told: Vec<usize> = (0..at.len()).filter(|n| unidentified[*n].is_ok()).collect();
        let (found, stopped) = fit::fit(&mut model, start, &told, bounds);
        match model(&found).filter(|_| !stopped) {
            Some(now) if cost(&now) < cost(&left) => (at, left) = (found, now),
            Some(_) => {}
            None => return (at, unidentified),
        }
    }
    while is_poor(&left) {
        let before = at.clone();
        let mut best: Option<(usize, Vec<f64>, Vec<f64>)> = None;
        for i in (0..at.len()).filter(|i| unidentified[*i].is_err()) {
            let free: Vec<usize> =
                (0..at.len()).filter(|n| unidentified[*n].is_ok() || *n == i).collect();
            // Where the others went without it may be far from where they belong.
            for from in [before.as_slice(), start] {
                let (found, stopped) = fit::fit(&mut model, from, &free, bounds);
                let Some(now) = model(&found).filter(|_| !stopped) else {
                    return (at, unidentified);
                };
                let least = best.as_ref().map_or(cost(&left) * BETTER, |(_, _, b)| cost(b));
                if cost(&now) < least {
                    best = Some((i, found, now));
                }
            }
        }
        let Some((i, found, now)) = best else { break };
        (at, left) = (found, now);
        unidentified[i] = Ok(());
    }
    (at, unidentified)
}

/// All numbers of the preset, with where each is from now.
fn device_file(plan: &Plan<'_>, parameters: &[Parameter], loads: usize) -> DeviceFile {
    let numbers = plan.base.params.iter().map(|p| {
        let begun = plan.begun.iter().find(|n| n.key == p.name);
        let of_class = |value| {
            let of_base = || format!("assumed: value of {} ({})", plan.base.name, p.source);
            let source = begun.map_or_else(of_base, |n| n.source.clone());
            Number { key: p.name, value, source }
        };
        let found = parameters.iter().find(|t| t.key == p.name);
        let given = plan.given.iter().find(|(k, _)| k == p.name);
        match (given, found) {
            (Some((_, value)), _) => {
                Number { key: p.name, value: *value, source: "given: in --base".to_owned() }
            }
            (_, Some(t)) if t.unidentified.is_none() => {
                let source = format!("fitted: to {loads} measured loads");
                Number { key: p.name, value: t.value, source }
            }
            (_, Some(t)) => of_class(t.value),
            _ => of_class(begun.map_or(p.value, |n| n.value)),
        }
    });
    let about = format!("{} calibrated to measurements", plan.class.name);
    DeviceFile { base: plan.base, about, numbers: numbers.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::parse;

    fn measured(bytes: u32, host_ns: u64) -> Measured {
        let text = "op,bs,qd,iops,lat_us\nrandwrite,4k,1,1,1\n";
        let read = parse("list", text).expect("a list").measured[0].load;
        let load = Load { bytes, host_ns, ..read };
        let figures = Figures { mean_ns: Some(100.0), iops: Some(1e7), sync_ns: None };
        Measured { load, figures, p99_ns: None, source: String::new() }
    }

    #[test]
    fn one_load_of_several_reports_is_held_out_in_all_or_in_none() {
        let sizes = [4096, 4096, 8192, 8192, 16384, 16384];
        let all: Vec<Measured> = (1..).zip(sizes).map(|(n, b)| measured(b, n)).collect();
        assert_eq!(split(&all, None), [false, false, true, true, false, false]);
        // Two loads, however often each was measured, are too few.
        assert_eq!(split(&all[..4], None), [false; 4]);
    }

    #[test]
    fn a_held_out_load_has_the_host_of_the_fitted_ones() {
        let mut all: Vec<Measured> =
            [(4096, 10), (8192, 999), (16384, 30), (32768, 20)].map(|(b, h)| measured(b, h)).into();
        of_the_others(&mut all, &[false, true, false, false]);
        let hosts: Vec<u64> = all.iter().map(|m| m.load.host_ns).collect();
        assert_eq!(hosts, [10, 20, 30, 20]);
    }

    #[test]
    fn what_the_model_does_not_do_is_as_wrong_as_can_be() {
        let judged = |model| Judged { measured: measured(4096, 0), held_out: true, model };
        assert_eq!(judged(Figures::default()).error(), FACTOR_MAX - 1.0);
        let half = Figures { mean_ns: Some(100.0), ..Figures::default() };
        assert_eq!(judged(half).error(), (FACTOR_MAX - 1.0) / 2.0);
        let right = Figures { mean_ns: Some(100.0), iops: Some(1e7), sync_ns: Some(1.0) };
        assert_eq!(judged(right).error(), 0.0);
    }
}
