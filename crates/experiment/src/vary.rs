//! `[vary]`: what is assumed, changed number by number, so that a claim has an interval.
//!
//! Picture:    points that claims with an interval are about -> each assumed number of device and
//!             CPU profile, and what `also` names, by each factor -> changed points, run as others
//!             are -> lowest and highest value of the claim.
//! Laws:       as [`wp_papers::vary`] has it, which `reproduce` uses: a claim in a file and in
//!             `reproduce` has one interval. A number that the file replaces is the user's, and
//!             not assumed; one that no device can have is left out, and told.

use std::collections::{BTreeMap, BTreeSet};

use wp_machine::profile;
use wp_papers::vary::{self, BY_HALF, BY_TWO, Factors, Variation, factor};
use wp_workload::fio::{Diagnostic, Place};

use super::claims::Said;
use super::points::Points;
use super::read::{Fields, suggest, wrong};
use super::resolve::Setup;
use super::sweep::Sweep;
use super::work::Kind;
use super::{expr, units};

/// What the table says.
#[derive(Clone)]
pub struct Vary {
    by: Factors,
    also: Vec<String>,
    all_cpu: bool,
}

/// A point that a variation changes.
pub struct Changed {
    /// The point.
    pub point: usize,
    /// Number of the variation.
    pub variation: usize,
}

/// All variations, with the points that they change.
pub struct Variations {
    vary: Vary,
    /// Their names.
    pub names: Vec<String>,
    /// Those that no device can have.
    pub impossible: Vec<String>,
    /// Changed points; their numbers go on behind those of the sweep's.
    pub points: Vec<Changed>,
    by_point: BTreeMap<(usize, usize), usize>,
}

impl Variations {
    /// Place in `points` of a point under a variation. `None`: it is not changed by it.
    pub fn of(&self, variation: usize, point: usize) -> Option<usize> {
        self.by_point.get(&(variation, point)).copied()
    }

    /// The changed point of a place in `points`. Errors: an input that has changed.
    pub fn setup(&self, n: usize, points: &Points) -> Result<Setup, String> {
        let changed = &self.points[n];
        let name = &self.names[changed.variation];
        let all = self.vary.of_point(&points.at(changed.point)?).into_iter();
        let setup = all.filter(|(n, _)| n == name).find_map(|(_, setup)| setup);
        Ok(setup.expect("it was one when the experiment was read, and points stay as they are"))
    }
}

impl Vary {
    /// Reads the table; without one each assumed number is varied by one half. `None`: no claim has
    /// an interval.
    /// With it, where each name of `also` stands.
    pub fn read(
        root: &Fields<'_>,
        claims: &[Said],
        found: &mut Vec<Diagnostic>,
    ) -> Option<(Vary, Vec<Place>)> {
        let first = claims.iter().find(|s| s.interval);
        let mut vary = Vary { by: BY_HALF, also: Vec::new(), all_cpu: false };
        let mut places = Vec::new();
        if let Some((table, at)) = root.table("vary", found) {
            let fields = Fields::new("vary", (table, at), &[], found);
            match fields.text("by", found) {
                None | Some("half") => {}
                Some("two") => vary.by = BY_TWO,
                Some(other) => {
                    let what = format!("`vary.by` cannot be `{other}`");
                    wrong(found, &fields.place("by"), what, "write \"half\" or \"two\"");
                }
            }
            let also = fields.texts("also", found);
            (vary.also, places) = also.into_iter().map(|(key, at)| (key.to_owned(), at)).unzip();
            vary.all_cpu = fields.truth("all_cpu", found).unwrap_or(false);
            if first.is_none() && found.is_empty() {
                let help = "write `interval = true` in the claims that need one";
                wrong(found, at, "[vary] without a claim with an interval", help);
            }
        }
        let first = first?;
        if root.item("crash").is_some() {
            let help = "leave `interval` out: counts of broken states have none";
            wrong(found, &first.at, "an interval of a claim about crash states", help);
        }
        Some((vary, places))
    }

    /// The variations of the points that claims with an interval are about, as long as they change
    /// no more than `most` points. `None`: they change more, or there are errors.
    pub fn variations(
        &self,
        (points, sweep): (&Points, &Sweep),
        claims: &[Said],
        most: u64,
    ) -> Option<Variations> {
        let mut names: Vec<String> = Vec::new();
        let mut impossible: BTreeSet<String> = BTreeSet::new();
        // Points with the numbers of their variations among `names`.
        let mut changed: Vec<(usize, usize)> = Vec::new();
        for point in used(sweep, claims) {
            for (name, setup) in self.of_point(&points.at(point).ok()?) {
                let n = names.iter().position(|n| *n == name).unwrap_or_else(|| {
                    names.push(name.clone());
                    names.len() - 1
                });
                match setup {
                    Some(_) => changed.push((point, n)),
                    None => drop(impossible.insert(name)),
                }
            }
            if changed.len() as u64 > most {
                return None;
            }
        }
        let mut all = Variations {
            vary: self.clone(),
            names: names.iter().filter(|n| !impossible.contains(*n)).cloned().collect(),
            impossible: impossible.into_iter().collect(),
            points: Vec::new(),
            by_point: BTreeMap::new(),
        };
        for (point, n) in changed {
            let Some(variation) = all.names.iter().position(|name| *name == names[n]) else {
                continue;
            };
            all.by_point.insert((variation, point), all.points.len());
            all.points.push(Changed { point, variation });
        }
        Some(all)
    }

    /// Says which names of `also` are no number of any point.
    pub fn check(&self, places: &[Place], points: &Points, found: &mut Vec<Diagnostic>) {
        let setups = || (0..points.len()).filter_map(|n| points.at(n).ok());
        for (key, at) in self.also.iter().zip(places) {
            let is_known = setups().any(|p| !self.of_setting(&p, key).is_empty());
            if is_known {
                continue;
            }
            let is_number = |(k, v): &(String, String)| {
                let is_there = k.starts_with("workload.") || k.starts_with("device.");
                is_there && units::plain(v).is_some_and(|x| x > 0.0)
            };
            let mut numbers: BTreeSet<String> = BTreeSet::new();
            for setup in setups() {
                let own = setup.settings.into_iter().filter(is_number);
                numbers.extend(own.map(|(k, _)| k));
            }
            let names: Vec<&str> = numbers.iter().map(String::as_str).collect();
            let what = format!("`{key}` is not a number of the workload or the device");
            wrong(found, at, what, suggest("there are", &names, key));
        }
    }

    /// A point as each variation leaves it; `None`: no device is like that.
    fn of_point(&self, setup: &Setup) -> Vec<(String, Option<Setup>)> {
        // What changes which device; of the CPU, the first stands for none.
        let mut all: Vec<(usize, Variation)> = Vec::new();
        for (slot, (preset, given)) in devices(setup).enumerate() {
            let own = vary::of_device(preset, self.by).into_iter();
            let is_own =
                |v: &Variation| !v.device_key().is_some_and(|k| replaces(preset, given, k));
            all.extend(own.filter(is_own).map(|v| (slot, v)));
        }
        let name = setup.settings.iter().find(|(key, _)| key == "machine.cpu");
        let name = name.map_or("", |(_, value)| value.trim_matches('"'));
        let profile = profile::PROFILES.iter().find(|p| p.name == name);
        if let Some(profile) = profile.filter(|p| !p.costs.is_empty()) {
            all.extend(vary::of_cpu(profile, self.by).into_iter().map(|v| (0, v)));
            let together = Variation::of_all_cpu(self.by).filter(|_| self.all_cpu);
            all.extend(together.map(|v| (0, v)));
        }
        let mut names: Vec<&str> = Vec::new();
        for (_, v) in &all {
            if !names.contains(&v.name.as_str()) {
                names.push(&v.name);
            }
        }
        let one = |name: &&str| {
            let parts: Vec<&(usize, Variation)> =
                all.iter().filter(|(_, v)| v.name == *name).collect();
            ((*name).to_owned(), with(setup, name, &parts))
        };
        let mut out: Vec<(String, Option<Setup>)> = names.iter().map(one).collect();
        out.extend(self.also.iter().flat_map(|key| self.of_setting(setup, key)));
        out
    }

    /// The same for one setting that the file says is assumed. Empty: the point has no such number.
    fn of_setting(&self, setup: &Setup, key: &str) -> Vec<(String, Option<Setup>)> {
        if let Some(key) = key.strip_prefix("device.") {
            let preset = wp_device::find(&setup.machine.device);
            let own = preset.and_then(|d| d.params.iter().find(|p| p.name == key));
            let Some(own) = own.filter(|p| p.unit != "switch") else { return Vec::new() };
            let given = setup.machine.device_params.iter().rfind(|(k, _)| k == key);
            let value = given.map_or(own.value, |(_, v)| *v);
            let both = Variation::of_number(key, value, self.by).filter(|_| value > 0);
            return both
                .map(|v| (v.name.clone(), with(setup, &v.name.clone(), &[&(0, v)])))
                .collect();
        }
        let (Some(option), Kind::Entry(entry, options)) =
            (key.strip_prefix("workload."), &setup.work.kind)
        else {
            return Vec::new();
        };
        let value = options.get(option, entry.options).and_then(|v| v.parse::<u64>().ok());
        let Some(value) = value.filter(|v| *v > 0) else { return Vec::new() };
        let one = |by: (u64, u64)| {
            let name = format!("{key} {}", factor(by));
            let mut changed = named(setup, &name);
            let word = (value * by.0 / by.1).to_string();
            let Kind::Entry(entry, options) = &mut changed.work.kind else { return (name, None) };
            let done = options.set(option, &word, entry.options);
            (name, done.ok().map(|()| changed))
        };
        self.by.map(one).into()
    }
}

/// The devices of a point: preset, and what is replaced.
fn devices(setup: &Setup) -> impl Iterator<Item = (&str, &[(String, u64)])> {
    let spec = &setup.machine;
    let first = (spec.device.as_str(), &spec.device_params[..]);
    std::iter::once(first).chain(spec.more.iter().map(|(name, given)| (name.as_str(), &given[..])))
}

/// Is a number of a preset replaced by another one?
fn replaces(preset: &str, given: &[(String, u64)], key: &str) -> bool {
    let param = wp_device::find(preset).and_then(|d| d.params.iter().find(|p| p.name == key));
    let given = given.iter().rfind(|(k, _)| k == key);
    given.zip(param).is_some_and(|((_, value), param)| *value != param.value)
}

/// The same point under another name, so that its runs are kept apart.
fn named(setup: &Setup, name: &str) -> Setup {
    let mut changed = setup.clone();
    changed.settings.push(("varied".to_owned(), name.to_owned()));
    changed
}

/// A point with parts of its machine changed, each with the number of its device. `None`: no device
/// is like that.
fn with(setup: &Setup, name: &str, parts: &[&(usize, Variation)]) -> Option<Setup> {
    let mut changed = named(setup, name);
    for (slot, v) in parts {
        let spec = &mut changed.machine;
        let params = match slot.checked_sub(1) {
            None => &mut spec.device_params,
            Some(n) => &mut spec.more.get_mut(n)?.1,
        };
        v.apply(params, &mut spec.cpu);
    }
    let is_made = |(preset, given): (&str, &[(String, u64)])| {
        let given: Vec<(&str, u64)> = given.iter().map(|(k, n)| (k.as_str(), *n)).collect();
        wp_device::find(preset).is_some_and(|d| d.make(&given).is_ok())
    };
    let is_of_device = parts.iter().any(|(_, v)| v.device_key().is_some());
    let can_be = !is_of_device || devices(&changed).all(is_made);
    can_be.then_some(changed)
}

/// The points that claims with an interval are about, in order.
fn used(sweep: &Sweep, claims: &[Said]) -> BTreeSet<usize> {
    let all = std::cell::RefCell::new(BTreeSet::new());
    for said in claims.iter().filter(|s| s.interval) {
        let note = |point: usize, name: &str| {
            if !name.starts_with(expr::SETTING) {
                all.borrow_mut().insert(point);
            }
            Ok(point as f64 + 1.0)
        };
        // What is wrong with it was told before; what it is worth does not matter here.
        drop(expr::eval(&said.expr, sweep, said.fixed(), &note));
    }
    all.into_inner()
}
