//! Where mutants are played and explored; what does not depend on the mutant is done once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use wp_base::site::{Armed, Site, watch};
use wp_crash::Rule;
use wp_medium::Medium;
use wp_workload::program::Program;

use super::super::play::{Asked, Bench, Played, play_with};
use super::settings::Setting;
use super::witness::Witness;
use super::{By, Fate, Mutant, Which};

/// Everything that mutants are tested with.
pub(super) struct Ground<'a> {
    settings: Vec<(Setting<'a>, Bench)>,
    /// Sites that each program asks as it is; `None`: it cannot be played.
    asked: Vec<Vec<OnceLock<Option<Vec<&'static str>>>>>,
    /// Rules that each program breaks without any mutation. Few are needed.
    broken: Vec<Vec<OnceLock<Broken>>>,
    /// Asked before each program and each cut.
    go_on: &'a (dyn Fn() -> bool + Sync),
}

type Broken = [u64; Rule::ALL.len()];

/// Programs of each setting in the first round; the others follow when no setting's first ones
/// showed anything.
const FIRST: u64 = 4;
/// Programs of each setting that a search with a limit takes from.
const SAMPLE: u64 = 2;

impl<'a> Ground<'a> {
    /// `settings` with programs of their own, and more for directed ones. Errors: a setting that
    /// cannot be.
    pub fn new(
        settings: &[Setting<'a>],
        more: &[Setting<'a>],
        go_on: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Ground<'a>, String> {
        let settings: Result<Vec<(Setting<'a>, Bench)>, String> = settings
            .iter()
            .chain(more)
            .map(|s| s.bench().map(|b| (*s, b)).map_err(|e| format!("{}: {e}", s.name)))
            .collect();
        let settings = settings?;
        fn slots<T>(settings: &[(Setting<'_>, Bench)]) -> Vec<Vec<OnceLock<T>>> {
            let of = |s: &Setting<'_>| (0..s.count).map(|_| OnceLock::new()).collect();
            settings.iter().map(|(s, _)| of(s)).collect()
        }
        Ok(Ground { asked: slots(&settings), broken: slots(&settings), settings, go_on })
    }
}

/// A program on a setting.
struct Case<'p> {
    /// Number of the setting.
    s: usize,
    which: Which,
    program: std::borrow::Cow<'p, Program>,
}

/// A thread that mutants are played on, with the images that it has made.
pub(super) struct Worker<'a> {
    ground: &'a Ground<'a>,
    images: RefCell<BTreeMap<usize, Medium>>,
}

impl<'a> Worker<'a> {
    /// Nothing is made yet.
    pub fn new(ground: &'a Ground<'a>) -> Worker<'a> {
        Worker { ground, images: RefCell::default() }
    }

    fn setting(&self, s: usize) -> (&Setting<'a>, &Bench) {
        let (setting, bench) = &self.ground.settings[s];
        (setting, bench)
    }

    fn go_on(&self) -> bool {
        (self.ground.go_on)()
    }

    fn numbered(&self, s: usize, n: u64) -> Case<'static> {
        let program = std::borrow::Cow::Owned(self.setting(s).0.program(n));
        Case { s, which: Which::Number(n), program }
    }

    /// What is a new file system of the setting?
    fn image(&self, s: usize) -> Result<Medium, String> {
        if let Some(known) = self.images.borrow().get(&s) {
            return Ok(known.clone());
        }
        let (setting, bench) = self.setting(s);
        let image = setting.image(bench)?;
        self.images.borrow_mut().insert(s, image.clone());
        Ok(image)
    }

    /// Would program `n` of setting `s` do the step? Of a step of recovery one only sees that when
    /// it recovers.
    fn asks(&self, s: usize, n: u64, site: &Site) -> bool {
        let setting = self.setting(s).0;
        if !setting.takes(site) {
            return false;
        }
        if setting.recovery.is_some() {
            return true;
        }
        let slot = self.ground.asked[s][n as usize].get_or_init(|| {
            let played = self.play(&self.numbered(s, n), || Some(watch()));
            played.ok().map(|(_, asked)| asked.names)
        });
        slot.as_ref().is_some_and(|names| names.contains(&site.name))
    }

    fn play(
        &self,
        case: &Case<'_>,
        arm: impl FnOnce() -> Option<Armed>,
    ) -> Result<(Played, Asked), String> {
        let (setting, bench) = self.setting(case.s);
        let around = setting.around(match case.which {
            Which::Number(n) => n,
            Which::Directed => 0,
        });
        catch_unwind(AssertUnwindSafe(|| {
            let image = self.image(case.s)?;
            let played = play_with(bench, image, &case.program, &around, arm);
            played.map_err(|e| e.to_string())
        }))
        .unwrap_or_else(|panic| Err(said(&*panic)))
    }

    /// Rules that a program breaks as it is.
    fn broken(&self, case: &Case<'_>) -> Broken {
        let look = || match self.play(case, || None) {
            Ok((played, _)) => {
                let (setting, bench) = self.setting(case.s);
                let all = [1; Rule::ALL.len()];
                setting.explore(bench, &played, &all, self.ground.go_on).broken
            }
            Err(_) => [1; Rule::ALL.len()],
        };
        match case.which {
            Which::Number(n) => *self.ground.broken[case.s][n as usize].get_or_init(look),
            Which::Directed => look(),
        }
    }

    /// What becomes of a site: its witnesses, then at most `most` programs that do the step.
    pub fn mutant(&self, site: &'static Site, witnesses: Vec<&Witness>, most: u64) -> Mutant {
        let mut out = Mutant::new(site);
        for w in witnesses {
            let settings = &self.ground.settings;
            let Some(s) = settings.iter().position(|(s, _)| s.name == w.setting) else {
                out.stale = true;
                continue;
            };
            let case = match (w.which(), w.steps()) {
                (_, Some(p)) => {
                    let program = std::borrow::Cow::Borrowed(p);
                    Case { s, which: Which::Directed, program }
                }
                (Which::Number(n), None) if n < settings[s].0.count => self.numbered(s, n),
                _ => {
                    out.stale = true;
                    continue;
                }
            };
            self.try_one(&case, &mut out);
            if out.is_killed() && self.go_on() {
                return out;
            }
            out.stale = true;
        }
        if self.go_on() {
            self.search(&mut out, most);
        }
        match self.go_on() {
            true => out,
            // What was cut short says nothing of a witness.
            false => Mutant { fate: Fate::Interrupted, stale: false, without: Vec::new(), ..out },
        }
    }

    /// Programs of the generators: the n-th of each setting that does the step, not the n-th of
    /// all, for some steps are rare. A few of each setting first.
    fn search(&self, out: &mut Mutant, most: u64) {
        let before = out.programs;
        let rounds = match most < u64::MAX {
            // One of each setting, then another of each, as far as it goes.
            true => (0..SAMPLE).map(|n| (n, n + 1)).collect(),
            false => vec![(0, FIRST), (FIRST, u64::MAX)],
        };
        for (from, to) in rounds {
            for s in 0..self.ground.settings.len() {
                let count = self.setting(s).0.count;
                let count = if most < u64::MAX { count.min(SAMPLE) } else { count };
                let numbers = (0..count).take_while(|_| self.go_on());
                let programs = numbers.filter(|n| self.asks(s, *n, out.site));
                for n in programs.skip(from as usize).take((to - from) as usize) {
                    if !self.go_on() || out.programs - before >= most {
                        return;
                    }
                    self.try_one(&self.numbered(s, n), out);
                    if matches!(out.fate, Fate::Killed { .. }) {
                        return;
                    }
                }
            }
        }
    }

    /// Plays a program without the step, and looks who notices.
    fn try_one(&self, case: &Case<'_>, out: &mut Mutant) {
        let (setting, bench) = self.setting(case.s);
        let site = out.site;
        let recovery = setting.recovery.is_some();
        let by = || By { setting: setting.name.to_owned(), program: case.which };
        let (played, asked) = match self.play(case, || (!recovery).then(|| site.leave_out())) {
            Ok(p) => p,
            // Only what goes well otherwise is stopped by the mutation.
            Err(why) if self.play(case, || None).is_ok() => {
                out.programs += 1;
                if !out.is_killed() {
                    out.fate = Fate::Stopped { by: by(), why };
                }
                return;
            }
            Err(_) => return,
        };
        let explore = |but: &[u64]| {
            let armed = recovery.then(|| site.leave_out());
            let explored = setting.explore(bench, &played, but, self.ground.go_on);
            (explored, armed.map_or(asked.reached, |a| a.reached()))
        };
        if !recovery && asked.reached == 0 {
            return;
        }
        // A drive that lies breaks rules before recovery can.
        let but = if recovery { self.broken(case) } else { [0; Rule::ALL.len()] };
        let (mut explored, reached) = explore(&but);
        if reached == 0 {
            return;
        }
        out.programs += 1;
        out.states += explored.states;
        let spent = out.spent.entry(setting.name.to_owned()).or_default();
        *spent = (spent.0 + 1, spent.1 + explored.states);
        let mut known = [0; Rule::ALL.len()];
        if explored.first.is_some() && !recovery {
            known = self.broken(case);
            if known.iter().any(|n| *n > 0) {
                explored = explore(&known).0;
            }
        }
        if let Some(violation) = explored.first {
            let broken = Rule::ALL.iter().filter(|r| known[**r as usize] > 0);
            out.without = broken.copied().collect();
            out.fate = Fate::Killed { by: by(), violation };
        } else if matches!(out.fate, Fate::NotReached) {
            out.fate = Fate::Survives;
        }
    }
}

/// What an assertion said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("assertion: {}", text.unwrap_or("without a word"))
}
