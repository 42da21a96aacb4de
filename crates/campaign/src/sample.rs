//! Some of the states of a log, as devices: for a kernel that recovers them.

use wp_base::Zone;
use wp_base::rng::Rng;
use wp_crash::{Entry, Frame, History, Kept, Plan, of_frame, of_instant};
use wp_machine::MachineError;
use wp_medium::Medium;

use super::command::Acks;
use super::play::Played;
use super::space::Space;
use super::write_log::LoggedRun;

/// A state of a log.
#[derive(Clone, Debug)]
pub struct LogState {
    /// Its crash point, by number.
    pub frame: usize,
    /// Unpersisted units that are lost, by their place in it.
    pub lost: Vec<usize>,
    /// What the device holds.
    pub medium: Medium,
    /// Its zones, if it has any.
    pub zones: Vec<Zone>,
    /// What had been acknowledged by then, a line each.
    pub acked: Vec<u8>,
}

/// States that were chosen, in the order of their crash points.
#[derive(Clone, Debug, Default)]
pub struct LogSample {
    /// They.
    pub states: Vec<LogState>,
    /// States of which they were chosen.
    pub of: u64,
}

/// `wanted`, and `n` of the states of a log that `plan` explores: the same number of each crash
/// point where it has enough, then any of them, by the seed. `go_on` is asked often; where it says
/// no, states behind are left out.
///
/// Errors: the host's; a log that was changed.
pub fn sample_log(
    run: &LoggedRun,
    (space, plan, seed): (Space, &Plan, u64),
    (n, wanted): (usize, &[(usize, Vec<usize>)]),
    go_on: &dyn Fn() -> bool,
) -> Result<LogSample, MachineError> {
    let played = run.play(run.image()?)?;
    let history = space.history(&played);
    let first = run.first_frame(&played.tape, &history);
    let adds = |(n, frame): &(usize, &Frame)| *n == first || frame.new > 0;
    let points = history.frames.iter().enumerate().skip(first).filter(adds).count();
    let mut rng = Rng::stream(seed, "states of a log for a kernel");
    let (mut any, mut taken) = (Draw::of(n), Vec::new());
    for frame in first..history.frames.len() {
        let mut of_point = Draw::of(n / points.max(1));
        let mut offer = |kept: &Kept| {
            any.offer((frame, kept), &mut rng);
            of_point.offer((frame, kept), &mut rng);
            go_on()
        };
        match frame == first {
            true => of_instant(&history, frame, plan, seed, &mut offer),
            false => of_frame(&history, frame, plan, seed, &mut offer),
        };
        taken.append(&mut of_point.taken);
    }
    let of = any.offered;
    let missing = n.saturating_sub(taken.len());
    any.taken.retain(|state| !taken.contains(state));
    taken.extend(any.taken.into_iter().take(missing));
    let as_kept = |(frame, lost): &(usize, Vec<usize>)| {
        let live = history.frames.get(*frame)?.live.len();
        let mut kept = Kept::all(live);
        lost.iter().filter(|i| **i < live).for_each(|i| kept.set(*i, false));
        Some((*frame, kept))
    };
    taken.extend(wanted.iter().filter_map(as_kept));
    taken.sort();
    taken.dedup();
    let acks = Acks::of(&played);
    let ended = ended_before(&played);
    let states = taken.iter().map(|(frame, kept)| state(&history, (*frame, kept), (&acks, &ended)));
    Ok(LogSample { states: states.collect(), of })
}

/// The states that are prefixes of a log, in the order in which its requests completed: those that
/// dm-log-writes' replay reaches. `go_on` as of [`sample_log`].
///
/// Errors: as of [`sample_log`].
pub fn log_prefixes(
    run: &LoggedRun,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<LogState>, MachineError> {
    let played = run.play(run.image()?)?;
    let history = History::completed_prefixes(&played.tape);
    let acks = Acks::of(&played);
    let ended = ended_before(&played);
    let frames = run.first_frame(&played.tape, &history)..history.frames.len();
    // It is there until the next request completes; what comes later has not been.
    let of = |frame: usize| {
        let mut state = state(&history, (frame, &Kept::none(0)), (&acks, &ended));
        state.acked = acks.by(ended.get(history.end_of(frame)).copied().unwrap_or(0)).to_vec();
        state
    };
    Ok(frames.take_while(|_| go_on()).map(of).collect())
}

/// A number of states of a stream whose length is not known, each with the same probability.
struct Draw {
    most: usize,
    offered: u64,
    taken: Vec<(usize, Kept)>,
}

impl Draw {
    fn of(most: usize) -> Draw {
        Draw { most, offered: 0, taken: Vec::new() }
    }

    /// One more comes by.
    fn offer(&mut self, (frame, kept): (usize, &Kept), rng: &mut Rng) {
        self.offered += 1;
        if self.taken.len() < self.most {
            self.taken.push((frame, kept.clone()));
        } else if let Some(place) = self.taken.get_mut(rng.below(self.offered) as usize) {
            *place = (frame, kept.clone());
        }
    }
}

/// Calls that had returned before each position of a tape.
fn ended_before(played: &Played) -> Vec<u32> {
    let mut all = vec![0];
    for (_, entry) in &played.tape.entries {
        all.push(all[all.len() - 1] + u32::from(matches!(entry, Entry::End(_))));
    }
    all
}

fn state(
    history: &History,
    (number, kept): (usize, &Kept),
    (acks, ended): (&Acks, &[u32]),
) -> LogState {
    let frame = &history.frames[number];
    let mut medium = frame.base.clone();
    let live = frame.live.iter().enumerate();
    let units = live.filter(|(i, _)| kept.has(*i)).map(|(_, n)| &history.units[*n as usize]);
    units.clone().for_each(|unit| unit.apply(&mut medium));
    let zones = match (&history.zones, &frame.zones) {
        (Some(space), Some(table)) => space.with(table, units),
        _ => Vec::new(),
    };
    // A cut there can leave it until something of what it lost is durable.
    let until = history.until(number, |i| kept.has(i));
    let lost = (0..frame.live.len()).filter(|i| !kept.has(*i)).collect();
    let acked = acks.by(ended.get(until).copied().unwrap_or(0)).to_vec();
    LogState { frame: number, lost, medium, zones, acked }
}
