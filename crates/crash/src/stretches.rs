//! Crash points of a run of which only the order of completions is known, as a log of
//! dm-log-writes has it.
//!
//! Picture:    write, write, write, FLUSH -> one frame with three new units, and not three frames.
//! Invariants: 1. the states are those of the frames that were joined: a state without the later
//!                writes of a stretch is a choice of its last frame;
//!             2. a stretch ends where something becomes durable, and where the program says
//!                something ([`Entry::End`]).

use crate::history::{Frame, History, Unit};
use crate::tape::{Entry, Tape};

impl History {
    /// The same states, with one frame for each stretch of writes in which nothing becomes durable
    /// and nothing is said. `tape`: the one that it is of.
    #[must_use]
    pub fn in_stretches(self, tape: &Tape) -> History {
        let ends = |entry: &Entry| matches!(entry, Entry::End(_));
        let said: Vec<usize> =
            (0..).zip(&tape.entries).filter(|(_, (_, e))| ends(e)).map(|e| e.0).collect();
        let is_silent = |from: usize, to: usize| {
            said.partition_point(|at| *at <= from) == said.partition_point(|at| *at < to)
        };
        let mut frames = Vec::new();
        // The new number of each frame.
        let mut numbers = Vec::with_capacity(self.frames.len());
        let mut carried = 0;
        let mut old = self.frames.into_iter().peekable();
        while let Some(mut frame) = old.next() {
            numbers.push(frames.len() as u32);
            frame.new += carried;
            carried = 0;
            let joins = |next: &Frame| next.new > 0 && is_silent(frame.pos, next.pos);
            match frame.new > 0 && old.peek().is_some_and(joins) {
                true => carried = frame.new,
                false => frames.push(frame),
            }
        }
        let number = |frame: u32| numbers.get(frame as usize).copied().unwrap_or(u32::MAX);
        let mut units = self.units;
        for unit in &mut units {
            (unit.born, unit.gone) = (number(unit.born), number(unit.gone));
        }
        let first_gone = first_gone(&units);
        History { units, frames, first_gone, end: self.end, zones: self.zones }
    }
}

/// For each unit the first frame in which it or a later one is gone.
pub(crate) fn first_gone(units: &[Unit]) -> Vec<u32> {
    let mut first: Vec<u32> = units.iter().map(|u| u.gone).collect();
    for i in (1..first.len()).rev() {
        first[i - 1] = first[i - 1].min(first[i]);
    }
    first
}
