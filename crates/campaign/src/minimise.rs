//! From a failure to the least that still fails: fewest calls, simplest arguments, fewest lost
//! units, earliest cut.
//!
//! Invariants: 1. what comes out breaks the same rule, about the same file if the rule is about
//!                one: that which the same call of the program made, whatever it is called now;
//!             2. it depends on campaign and failure only, unless it is stopped from outside;
//!             3. every candidate is played and cut anew: nothing is inferred.
//! Source:     Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", TSE 2002
//!             (delta debugging).

mod of_log;

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_crash::{Case, Explorer, History, Kept, Look, Plan, Rule, Violation};
use wp_machine::MachineError;
use wp_medium::Medium;
use wp_workload::program::{Call, Program, Step};

use super::campaign::Campaign;
use super::findings::Found;
use super::play::{Played, play_on};
use super::simpler::{self, Line};
use super::source::Source;

/// How much work a failure is worth.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Programs played.
    pub plays: u64,
    /// States explored, in all; at most a sixteenth of this number for one program.
    pub states: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { plays: 1500, states: 4_000_000 }
    }
}

/// What is left of a failure.
#[derive(Clone, Debug)]
pub struct Minimal {
    /// The program.
    pub program: Program,
    /// The failure. The number of its program is that of the one that it comes from.
    pub found: Found,
    /// System calls of the program.
    pub calls: usize,
    /// Positions on the tape between which a cut can leave it.
    pub cut: (usize, usize),
    /// Programs played, and states explored, to get here.
    pub work: (u64, u64),
    /// Is nothing left that could be taken away alone? If not, a bound was reached or it was
    /// stopped.
    pub finished: bool,
}

impl Minimal {
    /// Number of unpersisted units that are lost.
    pub fn lost(&self) -> usize {
        self.found.lost.len()
    }
}

/// A failing state of a program.
#[derive(Clone)]
struct Hit {
    violation: Violation,
    frame: usize,
    kept: Kept,
    cut: (usize, usize),
    operations: (u32, u32),
}

impl Hit {
    /// The first violation of a state that is the one looked for.
    fn of(
        look: &Look,
        frame: usize,
        kept: &Kept,
        is_it: &dyn Fn(&Violation) -> bool,
    ) -> Option<Hit> {
        let found = look.violations.news.iter().find(|v| is_it(v));
        found.map(|v| Hit {
            violation: v.clone(),
            frame,
            kept: kept.clone(),
            cut: look.cut,
            operations: look.operations,
        })
    }
}

struct Search<'a> {
    campaign: &'a Campaign,
    image: Medium,
    explorer: Explorer<'a>,
    rule: Rule,
    /// Steps of the original program that made the file which it is about; `None`: any.
    makers: Option<BTreeSet<usize>>,
    bounds: Bounds,
    plays: u64,
    states: u64,
    stopped: bool,
    go_on: &'a dyn Fn() -> bool,
    /// Of a program that acknowledges: the steps that sync, and those that fail. None until what is
    /// behind the failure is gone.
    care: Option<(BTreeSet<usize>, BTreeSet<usize>)>,
}

/// Recoveries that are remembered at most; they take some kilobytes each.
const REMEMBERED: usize = 50_000;
/// Programs of at most this number of steps also have pairs of steps removed.
const PAIRS: usize = 12;

/// Reduces a failure that the campaign has found. `go_on` is asked now and then; when it says no,
/// the best so far comes out. `None`: the failure does not show again.
///
/// Errors: the program cannot be played.
pub fn minimise(
    campaign: &Campaign,
    found: &Found,
    bounds: Bounds,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<Minimal>, MachineError> {
    if matches!(campaign.source, Source::Log(_)) {
        return of_log::minimise(campaign, found, bounds, go_on);
    }
    let program = campaign.source.program(found.program);
    let image = campaign.bench.image()?;
    let played = Rc::new(play_on(&campaign.bench, image.clone(), &program)?);
    // Damage is what only a check sees; for all else it is time lost.
    let subject =
        campaign.subject(&played, campaign.check && found.violation.rule == Rule::Metadata);
    let plan = campaign.plan;
    let small = Plan {
        complete: plan.complete.min(10),
        pairs: plan.pairs.min(16),
        samples: plan.samples.min(8),
        pages: plan.pages,
        most: plan.most,
    };
    // A failure that only the campaign's own plan comes across needs it from here on.
    for plan in [small, plan] {
        let explorer = Explorer::new(&subject, campaign.options(plan, played.partition));
        let mut search = Search {
            campaign,
            image: image.clone(),
            explorer,
            rule: found.violation.rule,
            makers: None,
            bounds,
            plays: 0,
            states: 0,
            stopped: false,
            go_on,
            care: None,
        };
        search.makers = makers(&program, &played, &found.violation.path);
        let lines = simpler::without_idle_tasks(program.0.iter().cloned().enumerate().collect());
        if let Some(hit) = search.test(&lines) {
            return search.reduce(lines, hit, found).map(Some);
        }
    }
    Ok(None)
}

/// What is wrong with one state of a run: a frame, without some of its units.
pub fn verdicts(
    campaign: &Campaign,
    played: &Rc<Played>,
    history: &Rc<History>,
    (frame, lost): (usize, &[usize]),
) -> Vec<Violation> {
    let subject = campaign.subject(played, campaign.check);
    let options = campaign.options(campaign.plan, played.partition);
    let mut explorer = Explorer::new(&subject, options);
    campaign.equip(&mut explorer, played, history);
    let mut kept = Kept::all(history.frames[frame].live.len());
    lost.iter().for_each(|i| kept.set(*i, false));
    let mut case = Case::new(&played.tape, history, &played.ledger);
    let mut found = Vec::new();
    explorer.visit(&mut case, frame, &mut std::iter::once(kept), &mut |_, look| {
        found.extend(look.violations.news.iter().cloned());
        true
    });
    found
}

/// Steps that made the files which had `path`.
fn makers(program: &Program, played: &Played, path: &str) -> Option<BTreeSet<usize>> {
    let steps = program.0.iter().enumerate();
    let calls: Vec<usize> =
        steps.filter(|(_, s)| matches!(s, Step::Call(..))).map(|(i, _)| i).collect();
    let made = played.ledger.makers(path);
    let steps: BTreeSet<usize> =
        made.iter().filter_map(|n| calls.get(*n as usize)).copied().collect();
    (!path.is_empty() && !steps.is_empty()).then_some(steps)
}

/// Does a step make something durable?
fn is_sync(step: &Step) -> bool {
    match step {
        Step::Call(_, Call::Open(_, _, how)) => how.sync || how.dsync,
        Step::Call(_, call) => call.is_sync(),
        _ => false,
    }
}

/// Steps of a run whose calls failed.
fn failing(lines: &[Line], played: &Played) -> BTreeSet<usize> {
    let calls = lines.iter().filter(|(_, s)| matches!(s, Step::Call(..)));
    let failed = calls.zip(&played.dids).filter(|(_, did)| did.error.is_some());
    failed.map(|((n, _), _)| *n).collect()
}

fn program_of(lines: &[Line]) -> Program {
    Program(lines.iter().map(|(_, s)| s.clone()).collect())
}

impl Search<'_> {
    fn is_over(&mut self) -> bool {
        let spent = self.plays >= self.bounds.plays || self.states >= self.bounds.states;
        self.stopped |= spent || !(self.go_on)();
        self.stopped
    }

    /// Of a program that tells the world what it has done: does a candidate leave out a sync that
    /// the program makes, or make calls that fail and did not? What breaks then is not the program.
    fn is_careless(&mut self, lines: &[Line]) -> bool {
        let Some((syncs, failed)) = &self.care else { return false };
        let left: BTreeSet<usize> = lines.iter().map(|(n, _)| *n).collect();
        if !syncs.is_subset(&left) {
            return true;
        }
        let (failed, program) = (failed.clone(), program_of(lines));
        let whole = Program(program.0.into_iter().chain([Step::call(Call::Sync)]).collect());
        self.plays += 1;
        let Ok(played) = play_on(&self.campaign.bench, self.image.clone(), &whole) else {
            return true;
        };
        if !failing(lines, &played).is_subset(&failed) {
            return true;
        }
        // Without a power failure all is well.
        let (played, history) =
            (Rc::new(played), |played: &Played| self.campaign.space.history(played));
        let history = Rc::new(history(&played));
        let last = history.frames.len() - 1;
        let wrong = verdicts(self.campaign, &played, &history, (last, &[]));
        wrong.iter().any(|v| v.rule == self.rule)
    }

    /// Plays a candidate; the explorer is ready for it.
    fn play(&mut self, lines: &[Line]) -> Option<(Rc<Played>, Rc<History>)> {
        self.plays += 1;
        let program = program_of(lines);
        let played = play_on(&self.campaign.bench, self.image.clone(), &program).ok()?;
        let (history, played) = (Rc::new(self.campaign.space.history(&played)), Rc::new(played));
        self.campaign.equip(&mut self.explorer, &played, &history);
        Some((played, history))
    }

    /// Paths that the file which it is about has in a candidate; `None`: it is about no file.
    fn paths(&self, lines: &[Line], played: &Played) -> Option<BTreeSet<String>> {
        let makers = self.makers.as_ref()?;
        let calls = lines.iter().filter(|(_, s)| matches!(s, Step::Call(..)));
        let made = calls.enumerate().filter(|(_, (i, _))| makers.contains(i));
        Some(played.ledger.paths(&made.map(|(n, _)| n as u32).collect()))
    }

    /// The first state of a candidate that breaks the rule.
    fn test(&mut self, lines: &[Line]) -> Option<Hit> {
        let (played, history) = self.play(lines)?;
        let (rule, paths) = (self.rule, self.paths(lines, &played));
        let wanted = move |v: &Violation| {
            v.rule == rule && paths.as_ref().is_none_or(|p| p.contains(&v.path))
        };
        if self.explorer.remembered() > REMEMBERED {
            self.explorer.forget();
        }
        self.explorer.failures.clear();
        self.explorer.stop_at(wanted);
        let (before, most) = (self.explorer.totals.raw, self.bounds.states / 16);
        let go_on = self.go_on;
        let mut go = |t: &wp_crash::Totals| t.raw - before < most && go_on();
        self.explorer.explore(&played.tape, &history, &played.ledger, &mut go);
        self.states += self.explorer.totals.raw - before;
        let f = self.explorer.failures.pop()?;
        Some(Hit {
            violation: f.violation,
            frame: f.frame,
            kept: f.kept,
            cut: f.cut,
            operations: f.operations,
        })
    }

    /// Takes the candidate if it fails.
    fn take(&mut self, best: &mut (Vec<Line>, Hit), candidate: Vec<Line>) -> bool {
        let candidate = simpler::without_idle_tasks(candidate);
        if candidate == best.0 || self.is_over() || self.is_careless(&candidate) {
            return false;
        }
        match self.test(&candidate) {
            Some(hit) => {
                *best = (candidate, hit);
                true
            }
            None => false,
        }
    }

    fn reduce(
        mut self,
        lines: Vec<Line>,
        hit: Hit,
        found: &Found,
    ) -> Result<Minimal, MachineError> {
        let mut best = (lines, hit);
        self.tail(&mut best);
        let acked = self.campaign.command.as_ref().is_some_and(|c| c.is_acked());
        if acked && self.rule == Rule::Application {
            let played = play_on(&self.campaign.bench, self.image.clone(), &program_of(&best.0))?;
            let syncs = best.0.iter().filter(|(_, s)| is_sync(s)).map(|(n, _)| *n).collect();
            self.care = Some((syncs, failing(&best.0, &played)));
        }
        for candidate in simpler::sessions(&best.0) {
            let left = best.0.iter().filter(|l| !candidate.contains(&l.0)).cloned().collect();
            self.take(&mut best, left);
        }
        loop {
            let before = best.0.clone();
            self.chunks(&mut best);
            self.arguments(&mut best);
            self.pairs(&mut best);
            if best.0 == before || self.is_over() {
                break;
            }
        }
        simpler::tidied(&best.0).into_iter().any(|c| self.take(&mut best, c));
        if !program_of(&best.0).has_threads() {
            // They say nothing of one thread, and do nothing.
            best.0.retain(|(_, s)| !matches!(s, Step::Join | Step::InOrder));
        }
        let (lines, mut hit) = best;
        let mut live = 0;
        if let Some((played, history)) = self.play(&lines) {
            let (rule, paths) = (self.rule, self.paths(&lines, &played));
            let is_it = |v: &Violation| {
                v.rule == rule && paths.as_ref().is_none_or(|p| p.contains(&v.path))
            };
            let mut case = Case::new(&played.tape, &history, &played.ledger);
            hit = self.fewest(&mut case, (&history, 0), hit, &is_it);
            live = history.frames[hit.frame].live.len();
        }
        Ok(self.minimal(program_of(&lines), (hit, live), found))
    }

    /// What is left: a program, and a state of `live` unpersisted units that fails.
    fn minimal(&self, program: Program, (hit, live): (Hit, usize), found: &Found) -> Minimal {
        let lost = (0..live).filter(|i| !hit.kept.has(*i)).collect();
        let calls = program.0.iter().filter(|s| matches!(s, Step::Call(..))).count();
        Minimal {
            program,
            found: Found {
                violation: hit.violation,
                frame: hit.frame,
                lost,
                operations: hit.operations,
                ..found.clone()
            },
            calls,
            cut: hit.cut,
            work: (self.plays, self.states),
            finished: !self.stopped,
        }
    }

    /// What the program does after the cut.
    fn tail(&mut self, best: &mut (Vec<Line>, Hit)) {
        loop {
            let called = best.1.operations.0 as usize;
            let mut calls =
                best.0.iter().enumerate().filter(|(_, l)| matches!(l.1, Step::Call(..)));
            let Some((end, _)) = calls.nth(called) else { return };
            let shorter = best.0[..end].to_vec();
            if !self.take(best, shorter) {
                return;
            }
        }
    }

    /// Runs of steps, by halves down to single ones, from the end.
    fn chunks(&mut self, best: &mut (Vec<Line>, Hit)) {
        let mut size = best.0.len().div_ceil(2);
        while size > 0 && !best.0.is_empty() {
            let mut end = best.0.len();
            let mut any = false;
            while end > 0 {
                let from = end.saturating_sub(size);
                let mut left = best.0.clone();
                left.drain(from..end);
                if self.take(best, left) {
                    any = true;
                    self.tail(best);
                }
                if self.stopped {
                    return;
                }
                end = from.min(best.0.len());
            }
            match (size, any) {
                (1, false) => return,
                (1, true) => {}
                _ => size = size.div_ceil(2),
            }
        }
    }

    /// Simpler arguments, until none helps.
    fn arguments(&mut self, best: &mut (Vec<Line>, Hit)) {
        let mut at = 0;
        while at < best.0.len() && !self.stopped {
            let took = simpler::of_step(&best.0, at).into_iter().any(|c| self.take(best, c));
            at = if took { at } else { at + 1 };
        }
        // What is taken changes what else there is.
        while !self.stopped {
            let all = simpler::of_program(&best.0);
            if !all.into_iter().any(|c| self.take(best, c)) {
                return;
            }
        }
    }

    /// Two steps at once.
    fn pairs(&mut self, best: &mut (Vec<Line>, Hit)) {
        let mut again = best.0.len() <= PAIRS;
        while again && !self.stopped {
            again = false;
            let n = best.0.len();
            let all = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
            for (i, j) in all {
                let mut left = best.0.clone();
                left.remove(j);
                left.remove(i);
                if self.take(best, left) {
                    again = true;
                    break;
                }
            }
        }
    }

    /// The failing state of the program with the fewest lost units, at the earliest crash point;
    /// and how many units are unpersisted there.
    fn fewest(
        &mut self,
        case: &mut Case<'_>,
        (history, first): (&History, usize),
        hit: Hit,
        is_it: &dyn Fn(&Violation) -> bool,
    ) -> Hit {
        let rule = self.rule;
        let mut best = hit;
        let lost = |h: &Hit| history.frames[h.frame].live.len() - h.kept.count() as usize;
        let mut losses = 0;
        'more: while losses < lost(&best) {
            let bound = self.bounds.states / 32;
            let mut looked = 0u64;
            for frame in first..history.frames.len() {
                let here = &history.frames[frame];
                let n = here.live.len();
                // Without one of its new units a state is one of an earlier frame, with fewer
                // lost; but what is promised later is broken only then.
                let all = rule == Rule::LostSync || frame == first;
                if !all && here.new == 0 || losses > n {
                    continue;
                }
                let mut hit = None;
                let fresh = |k: &Kept| all || (n - here.new..n).any(|i| k.has(i));
                let mut states = Losses::new(n, losses)
                    .filter(|k| fresh(k) && history.permits(frame, k))
                    .take((bound - looked.min(bound)) as usize);
                self.explorer.visit(case, frame, &mut states, &mut |kept, look| {
                    looked += 1;
                    hit = Hit::of(look, frame, kept, is_it);
                    hit.is_none()
                });
                if let Some(hit) = hit {
                    self.states += looked;
                    best = hit;
                    break 'more;
                }
                if looked >= bound || !(self.go_on)() {
                    break;
                }
            }
            self.states += looked;
            if looked >= bound || !(self.go_on)() {
                best = self.one_by_one(case, history, best, is_it);
                break;
            }
            losses += 1;
        }
        best
    }

    /// Keeps lost units one by one as long as it fails.
    fn one_by_one(
        &mut self,
        case: &mut Case<'_>,
        history: &History,
        mut best: Hit,
        is_it: &dyn Fn(&Violation) -> bool,
    ) -> Hit {
        let frame = best.frame;
        let n = history.frames[frame].live.len();
        loop {
            let mut hit = None;
            let kept = best.kept.clone();
            let mut states = (0..n).filter(|i| !kept.has(*i)).map(|i| {
                let mut k = kept.clone();
                k.set(i, true);
                k
            });
            let mut legal = states.by_ref().filter(|k| history.permits(frame, k));
            self.explorer.visit(case, frame, &mut legal, &mut |kept, look| {
                self.states += 1;
                hit = Hit::of(look, frame, kept, is_it);
                hit.is_none()
            });
            match hit {
                Some(hit) => best = hit,
                None => return best,
            }
        }
    }
}

/// Choices of `n` units without `k` of them, the last ones first.
struct Losses {
    n: usize,
    /// Those lost, in descending order; `None`: no more.
    lost: Option<Vec<usize>>,
}

impl Losses {
    fn new(n: usize, k: usize) -> Losses {
        Losses { n, lost: (k <= n).then(|| (n - k..n).rev().collect()) }
    }
}

impl Iterator for Losses {
    type Item = Kept;

    fn next(&mut self) -> Option<Kept> {
        let lost = self.lost.as_mut()?;
        let mut kept = Kept::all(self.n);
        lost.iter().for_each(|i| kept.set(*i, false));
        // The last place that can go down does, those behind it follow closely.
        let k = lost.len();
        match (0..k).rev().find(|p| lost[*p] > k - 1 - p) {
            Some(p) => {
                let to = lost[p] - 1;
                (p..k).for_each(|q| lost[q] = to - (q - p));
            }
            None => self.lost = None,
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_losses_comes_once_and_the_last_units_go_first() {
        for (n, k, of) in [(5, 0, 1), (5, 2, 10), (6, 3, 20), (3, 3, 1), (0, 0, 1)] {
            let all: Vec<Kept> = Losses::new(n, k).collect();
            let set: BTreeSet<&Kept> = all.iter().collect();
            assert_eq!((all.len(), set.len()), (of, of), "{n} over {k}");
            assert!(all.iter().all(|kept| kept.count() as usize == n - k));
        }
        assert_eq!(Losses::new(2, 3).count(), 0);
        let first = Losses::new(4, 2).next().expect("one");
        assert!(first.has(0) && first.has(1) && !first.has(2) && !first.has(3));
    }
}
