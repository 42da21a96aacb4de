//! One file as a job sees it: where the next operation goes.
//!
//! - manual: `readwrite` with a postfix, `rw_sequencer`, `norandommap`, `blockalign`,
//!   `percentage_random`, `zonemode=strided`;
//! - observed: each direction has a position of its own in each file. A sequential job that is at
//!   the end of the range is done with the file, and one that skips beyond it begins again (where,
//!   see `following`); a random job whose operation should have been the next one draws instead;
//! - observed: a random number in `0..1` is scaled to the blocks of the range, counted in the
//!   direction's alignment, without those where its smallest length would not fit;
//! - observed: the random map counts in the smallest length of the direction that draws. A block
//!   that was done gives way to the next free one, around the end. An operation ends before the
//!   first block that was done; operations that were not drawn leave no mark;
//! - observed: where the drawn place does not fit, or none is left, the file is done.

use super::distribution::{self, Popular};
use super::length;
use super::streams::Streams;
use crate::fio::job::{Distribution, Generator, Job};
use crate::fio::lfsr::Lfsr;
use crate::fio::map::Map;
use crate::fio::setup::FileSetup;

/// Where blocks come from.
#[derive(Clone, Debug)]
enum Source {
    /// Any block, again and again.
    Free,
    /// Each block once.
    Once(Map),
    /// A shift register.
    Register(Lfsr),
}

/// A file.
#[derive(Clone, Debug)]
pub struct Target {
    start: u64,
    end: u64,
    /// Length of the file: an operation of the only length may end behind the range.
    file_end: u64,
    /// Where the last operation began and ended, by direction.
    last: [(u64, u64); 3],
    source: Source,
    popular: Option<Popular>,
    /// Where its zone of `zonemode=strided` begins.
    zone: u64,
    /// What was trimmed, and is to be written next.
    pub trimmed: Option<(u64, u64)>,
    /// Is it open?
    pub open: bool,
    /// Has it nothing left in this round?
    pub done: bool,
    /// Where the last operation would have been that did not fit.
    pub tried: Option<u64>,
    /// Has it begun again within the round (`time_based`)?
    pub rewound: bool,
}

/// What the place of an operation is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// After the last one.
    Next,
    /// Where the last one was.
    Again,
    /// A drawn one.
    Drawn,
}

impl Target {
    /// A file at its beginning. Errors: a shift register that cannot move.
    pub fn new(job: &Job, file: &FileSetup, streams: &Streams) -> Result<Target, String> {
        let blocks = file.span / job.block_min().max(1);
        let source = if !job.random {
            Source::Free
        } else if job.generator == Generator::Lfsr {
            let register = Lfsr::new(blocks, streams.register_seed);
            Source::Register(
                register.ok_or("its shift register starts in a state that never ends")?,
            )
        } else if job.no_map {
            Source::Free
        } else {
            Source::Once(Map::new(blocks))
        };
        let (start, end) = (file.start, file.start + file.span);
        let last = [(start, start); 3];
        let unit = job.min_bs[0].min(job.min_bs[1]).max(1);
        let popular = Popular::new(job, &file.path, file.span.div_ceil(unit));
        Ok(Target {
            popular,
            start,
            end,
            file_end: file.length,
            last,
            source,
            zone: start,
            trimmed: None,
            open: false,
            done: false,
            tried: None,
            rewound: false,
        })
    }

    /// Another round.
    pub fn restart(&mut self, streams: &Streams) {
        self.last = [(self.start, self.start); 3];
        self.zone = self.start;
        self.done = false;
        self.trimmed = None;
        match &mut self.source {
            Source::Free => {}
            Source::Once(map) => map.reset(),
            Source::Register(register) => self.done = !register.restart(streams.register_seed),
        }
    }

    /// The offset and length of the next operation of direction `d`; `None`: the file is done.
    pub fn place(
        &mut self,
        job: &Job,
        d: usize,
        want: Want,
        streams: &mut Streams,
    ) -> Option<(u64, u64)> {
        let offset = match want {
            Want::Again => self.last[d].0,
            Want::Next => match self.following(job, d) {
                Some(at) => at,
                None if job.random => self.drawn_again(job, d, streams)?,
                None => return None,
            },
            Want::Drawn => self.drawn_again(job, d, streams)?,
        };
        self.tried = Some(offset);
        let room = self.end.checked_sub(offset).filter(|n| *n > 0)?;
        let room = if job.min_bs[d] == job.max_bs[d] { self.file_end - offset } else { room };
        // With `bs_is_seq_rand` lengths follow the order of the operation, not its direction.
        let by = match (job.bs_is_seq_rand, want) {
            (false, _) => d,
            (true, Want::Next) => 0,
            (true, _) => 1,
        };
        // A trim that is written afterwards has the lengths of trims, from the stream of writes.
        let stream = if job.trims && job.writes { 1 } else { by };
        let mut length = length::draw(job, by, room, &mut streams.length[stream])?;
        if want == Want::Drawn && !job.zbd {
            length = self.mark(job, d, (offset, length));
            if length == 0 {
                return None;
            }
        }
        self.tried = None;
        self.last[d] = (offset, offset + length);
        Some((offset, length))
    }

    /// Notes in the random map that a place was drawn, and how long the operation may be.
    pub fn mark(&mut self, job: &Job, d: usize, (offset, length): (u64, u64)) -> u64 {
        let Source::Once(map) = &mut self.source else { return length };
        let unit = job.min_bs[d].max(1);
        let marked = map.set((offset - self.start) / unit, length.div_ceil(unit));
        length.min(marked * unit)
    }

    /// The last operation went somewhere else than planned.
    pub fn went_to(&mut self, d: usize, offset: u64, length: u64) {
        self.last[d] = (offset, offset + length);
    }

    /// Goes to the next zone, or back to the first one.
    pub fn next_zone(&mut self, job: &Job) {
        let stride = job.zone_range.saturating_add(job.zone_skip);
        let next = self.zone.saturating_add(stride);
        self.zone = if next < self.end { next } else { self.start };
        self.last = [(self.zone, self.zone); 3];
    }

    /// A drawn place. A file of a job that is `time_based` begins again where none is left.
    fn drawn_again(&mut self, job: &Job, d: usize, streams: &mut Streams) -> Option<u64> {
        let found = self.drawn(job, d, streams);
        if found.is_some() || !job.time_based {
            return found;
        }
        self.last = [(self.start, self.start); 3];
        match &mut self.source {
            Source::Free => {}
            Source::Once(map) => map.reset(),
            Source::Register(register) => {
                register.restart(streams.register_seed).then_some(())?;
            }
        }
        self.rewound = true;
        self.drawn(job, d, streams)
    }

    /// The place after the last operation; `None` at the end.
    fn following(&mut self, job: &Job, d: usize) -> Option<u64> {
        if job.time_based && job.nrfiles == 1 && !job.strided && self.last[d].1 >= self.end {
            self.last[d] = (self.start, self.start);
            self.rewound = true;
        }
        let (began, at) = self.last[d];
        // A zone is gone through again until enough was done in it.
        if job.strided && !job.random && at >= self.zone.saturating_add(job.zone_range) {
            return Some(self.zone);
        }
        if at >= self.end {
            return None;
        }
        if job.random || job.skip == 0 || began == at {
            return Some(at);
        }
        let step = job.skip.unsigned_abs();
        if job.skip < 0 {
            let back = at.checked_sub(step).filter(|at| *at >= self.start);
            return back.or_else(|| self.end.checked_sub(step));
        }
        // fio holds the distance from the start against the end of the range, and takes the start
        // for a distance: both are the same only where the range begins with the file.
        let at = at.checked_add(step)?;
        Some(if at - self.start >= self.end { self.start.saturating_mul(2) } else { at })
    }

    fn drawn(&mut self, job: &Job, d: usize, streams: &mut Streams) -> Option<u64> {
        let (min, unit) = (job.min_bs[d], job.align[d].max(1));
        let from = if job.strided { self.zone } else { self.start };
        let mut span = self.end - self.start;
        if job.strided {
            span = span.min(job.zone_range);
        }
        let blocks = span.saturating_sub(min.saturating_sub(unit)) / unit;
        if blocks == 0 {
            return None;
        }
        if let Some(popular) = &mut self.popular {
            // The last block may be too short for the operation.
            let at = self.start.checked_add(popular.next().checked_mul(unit)?)?;
            return Some(at.min(self.start + (blocks - 1) * unit));
        }
        if let Distribution::Zoned(zones) = &job.distribution {
            let (first, end) = distribution::zone(&zones[d], streams.zone.percent(), span);
            let blocks = (end - first).saturating_sub(min.saturating_sub(unit)) / unit;
            let block = first / unit + streams.offset.scaled(blocks.max(1));
            return block.checked_mul(unit)?.checked_add(self.start);
        }
        let shift = (from - self.start) / unit;
        let block = match &mut self.source {
            Source::Register(register) => register.next()?,
            Source::Free => streams.offset.scaled(blocks) + shift,
            Source::Once(map) => {
                let block = streams.offset.scaled(blocks) + shift;
                if map.is_set(block) { map.next_free(block)? } else { block }
            }
        };
        block.checked_mul(unit)?.checked_add(self.start)
    }
}
