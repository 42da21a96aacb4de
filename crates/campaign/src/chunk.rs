//! A chunk of a campaign: programs that share what is known of recoveries.

use std::cell::RefCell;
use std::rc::Rc;

use wp_base::FsError;
use wp_crash::{Did, Explorer, History, Plan, Totals, most_of_frame};
use wp_machine::MachineError;
use wp_workload::program::Call;

use super::calls::Calls;
use super::campaign::Campaign;
use super::findings::{Findings, Found, PLACES, Unfinished};
use super::mounts::{self, Choice, MountCuts};
use super::play::Played;
use super::source::Source;

/// How far the exploration of a program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its number.
    pub program: u64,
    /// Crash points that are explored.
    pub points: u64,
    /// Number of crash points of the program.
    pub of_points: u64,
    /// States that they have.
    pub states: u64,
    /// States of all crash points, at most: ordering rules some out.
    pub of_states: u64,
    /// Most unpersisted writes of a crash point.
    pub unpersisted: usize,
}

impl Stage {
    /// Of a program of which nothing is explored.
    fn new(program: u64, first: usize, history: &History, plan: &Plan) -> Stage {
        let frames = history.frames.iter().zip(0..).skip(first);
        let points = frames.clone().filter(|(f, n)| *n == first || f.new > 0).count() as u64;
        let of = |n| most_of_frame(history, n, plan);
        let of_states = frames.fold(0u64, |sum, (_, n)| sum.saturating_add(of(n)));
        let unpersisted = history.frames.iter().map(|f| f.live.len()).max().unwrap_or(0);
        Stage { program, points: 0, of_points: points, states: 0, of_states, unpersisted }
    }
}

/// The call of a program of a list that the kernel of this version answers with `EOPNOTSUPP`, or
/// with `ENOTTY`. A flag that it refuses is no such call.
fn lacking<'p>(source: &Source, played: &'p Played) -> Option<&'p Did> {
    let lacks = |did: &&Did| match did.error {
        Some(FsError::NotInKernel) => !matches!(did.call, Call::Chattr(..)),
        Some(FsError::NoSuchIoctl) => true,
        _ => false,
    };
    let is_list = matches!(source, Source::Sequences(..) | Source::Wild { .. });
    played.dids.iter().find(lacks).filter(|_| is_list)
}

/// What was under way when a chunk was given up, if states were explored.
pub(super) type GivenUp = Option<Box<Unfinished>>;

/// A program that was played, and what power failures can leave of it.
struct Run<'a> {
    n: u64,
    played: &'a Rc<Played>,
    history: &'a Rc<History>,
    /// Shall it be given up?
    abandon: &'a dyn Fn() -> bool,
    /// Told how far it is.
    at: &'a dyn Fn(&Stage),
}

/// Programs `from..to`. Errors: it was given up.
pub(super) fn explore(
    c: &Campaign,
    from: u64,
    to: u64,
    abandon: &dyn Fn() -> bool,
    at: &dyn Fn(&Stage),
) -> Result<Findings, GivenUp> {
    let mut out = Findings { done: to, ..Findings::default() };
    let plays = play(c, (from, to), abandon, &mut out)?;
    let Some((_, first)) = plays.first() else { return Ok(out) };
    let subject = c.subject(first, c.check);
    let mut explorer = Explorer::new(&subject, c.options(c.plan, first.partition));
    let histories = plays.iter().map(|(_, p)| match abandon() {
        false => Ok(Rc::new(c.space.history(p))),
        true => Err(None),
    });
    let histories = histories.collect::<Result<Vec<_>, _>>()?;
    explorer.expect(histories.iter().map(Rc::as_ref));
    for ((n, played), history) in plays.iter().zip(&histories) {
        let run = Run { n: *n, played, history, abandon, at };
        let Some(cuts) = run.explore(c, &mut explorer, &mut out) else {
            return Err(Some(Box::new(Unfinished {
                program: *n,
                frames: explorer.frames_done,
                of_frames: history.frames.len(),
                totals: explorer.totals,
                found: out.found,
                calls: out.calls,
            })));
        };
        run.add_mounts(c, &mut explorer, cuts, &mut out);
    }
    // A command that could not be run has judged nothing: who goes on asks it again.
    if c.command_failed() {
        return Err(None);
    }
    out.places = std::mem::take(&mut explorer.places);
    out.known = std::mem::take(&mut explorer.known_failures);
    out.totals = explorer.totals;
    Ok(out)
}

/// Plays programs `from..to`; `out` has those that could not be played. Errors: it was given up.
fn play(
    c: &Campaign,
    (from, to): (u64, u64),
    abandon: &dyn Fn() -> bool,
    out: &mut Findings,
) -> Result<Vec<(u64, Rc<Played>)>, GivenUp> {
    let mut plays = Vec::new();
    let image = match c.image() {
        Ok(image) => image,
        Err(_) if abandon() => return Err(None),
        Err(e) => {
            out.not_played.extend((from..to).map(|n| (n, e.to_string())));
            return Ok(plays);
        }
    };
    for n in from..to {
        if abandon() {
            return Err(None);
        }
        let program = c.source.program(n);
        match c.play(image.clone(), n) {
            // A sequence of a list that this file system has not in this version is no finding.
            Ok(played) if lacking(&c.source, &played).is_some() => {
                let did = lacking(&c.source, &played);
                let call = did.map_or(String::new(), Did::text);
                let errno = did.and_then(|d| d.error.as_ref()).map_or("", FsError::errno);
                out.lacking.push(n);
                out.not_played.push((n, format!("`{call}`: {errno}, as in this kernel version")));
            }
            Ok(played) => {
                out.calls.add(Calls::of(n, &program, &played.dids));
                plays.push((n, Rc::new(played)));
            }
            // It was halted, perhaps in the middle of this program.
            Err(_) if abandon() => return Err(None),
            Err(e) => {
                let lacks = matches!(&e, MachineError::Fs { error: FsError::Unsupported(_), .. });
                out.lacking.extend(lacks.then_some(n));
                out.not_played.push((n, e.to_string()));
            }
        }
    }
    Ok(plays)
}

impl Run<'_> {
    /// Explores its states, and those of mounts that are cut; `None`: it was given up.
    fn explore(
        &self,
        c: &Campaign,
        explorer: &mut Explorer<'_>,
        out: &mut Findings,
    ) -> Option<MountCuts> {
        let Run { n, played, history, abandon, at } = *self;
        c.equip(explorer, played, history);
        let choice = Rc::new(RefCell::new(Choice::new(c, n)));
        if c.mounts > 0 {
            let choice = choice.clone();
            explorer.watch(move |v| choice.borrow_mut().offer(v));
        }
        let mut stage = Stage::new(n, c.first_frame(played, history), history, &c.plan);
        let before = (explorer.totals.cuts, explorer.totals.raw);
        at(&stage);
        let mut go_on = |totals: &Totals| {
            let points = totals.cuts - before.0;
            if points > stage.points {
                (stage.points, stage.states) = (points, totals.raw - before.1);
                at(&stage);
            }
            !abandon()
        };
        let mut whole = explorer.explore(&played.tape, history, &played.ledger, &mut go_on);
        if let Some(command) = &c.command {
            let mut go_on = || {
                at(&stage);
                !abandon()
            };
            whole &= command.settle(explorer, &mut go_on);
        }
        for f in std::mem::take(&mut explorer.failures) {
            out.keep(Found::of(n, f, history));
        }
        let chosen = choice.borrow_mut().take();
        whole.then(|| mounts::cut(c, played, history, chosen, abandon)).flatten()
    }

    /// Adds what came of mounts that were cut.
    fn add_mounts(
        &self,
        c: &Campaign,
        explorer: &mut Explorer<'_>,
        cuts: MountCuts,
        out: &mut Findings,
    ) {
        let totals = &mut explorer.totals;
        totals.mounts += cuts.mounts;
        totals.second += cuts.raw;
        for (state, violation, states) in cuts.failures {
            if let Some(entry) = c.known.entry_of(&violation) {
                *explorer.known_failures.entry(entry).or_default() += states;
                continue;
            }
            let place = (violation.rule, violation.path.clone());
            if explorer.places.len() < PLACES || explorer.places.contains_key(&place) {
                *explorer.places.entry(place).or_default() += states;
            }
            totals.broken[violation.rule as usize] += states;
            let lost = state.lost(self.history);
            out.keep(Found {
                program: self.n,
                violation,
                frame: state.frame,
                lost,
                operations: state.operations,
                after: totals.raw,
                mount: true,
            });
        }
    }
}
