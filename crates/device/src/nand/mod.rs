//! Flash: what an operation on a die takes, given what the die and its channel do already.
//!
//! Picture:    a read holds its die for tR and until its data have left over the channel; a program
//!             holds it from the first byte over the channel until tPROG is over; an erase for
//!             tBERS.
//!             Where programs can be suspended ([`Timing::suspend`]) a read that finds one under
//!             way waits until its next pulse is over, and the program ends that much later; it
//!             then runs for a pulse at least.
//! Laws:       a die serves one operation at a time, in the order in which they are given; a
//!             channel moves one transfer at a time, and one that is ready goes before one that is
//!             reserved for later.
//! Left out:   suspending erases for reads, cache reads and cache programs, lower and upper pages
//!             of different speed, wear.

mod geometry;

pub use geometry::{Geometry, SLOT_BYTES};

use wp_base::{Span, Time};

use crate::config::{ConfigError, Settings, transfer_ns};
use crate::lane::Lane;

/// Times of the flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// tR: flash page to the die's register.
    pub read: Span,
    /// tPROG: register to flash pages, all of a program unit.
    pub program: Span,
    /// tBERS: one flash block of every plane.
    pub erase: Span,
    /// One slot over the channel.
    pub slot: Span,
    /// A whole program unit over the channel.
    pub unit: Span,
    /// Length of a pulse, after which a program can be suspended for a read; zero: it cannot.
    pub suspend: Span,
}

impl Timing {
    /// From a preset's values. Errors: a bus without speed.
    pub fn from_settings(s: &Settings, geometry: &Geometry) -> Result<Timing, ConfigError> {
        let bus = u64::from(s.count("bus_mb_s", 1_000_000)?);
        Ok(Timing {
            read: Span(s.get("read_ns")),
            program: Span(s.get("program_ns")),
            erase: Span(s.get("erase_ns")),
            slot: Span(transfer_ns(SLOT_BYTES, bus)),
            unit: Span(transfer_ns(geometry.unit_bytes(), bus)),
            suspend: Span::ZERO,
        })
    }
}

/// Operations that the flash has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NandCounts {
    /// Reads of a row of pages.
    pub reads: u64,
    /// Programs of a unit.
    pub programs: u64,
    /// Erases of one die's blocks.
    pub erases: u64,
}

/// The dies and channels of a device.
#[derive(Clone)]
pub struct Nand {
    geometry: Geometry,
    timing: Timing,
    /// When each die is free.
    dies: Vec<Time>,
    channels: Vec<Lane>,
    /// Where programs can be suspended: each die's last program.
    programs: Vec<Program>,
    counts: NandCounts,
}

/// A program that reads may put off.
#[derive(Clone, Copy, Default)]
struct Program {
    start: Time,
    end: Time,
    /// Since when and until when it is suspended.
    suspended: Time,
    resumed: Time,
}

impl Program {
    /// When a read that is `ready` gets the die: at once while the program is suspended, else after
    /// the pulse under way.
    fn pause(&mut self, ready: Time, pulse: Span) -> Time {
        if ready < self.start {
            return ready;
        }
        // Reads that come meanwhile go on, but a program is not held up for longer than it runs.
        if ready <= self.resumed && self.resumed < self.suspended + pulse {
            return self.resumed;
        }
        let running = self.start.max(self.resumed);
        let since = ready.0.saturating_sub(running.0).max(1);
        self.suspended = running + Span(since.next_multiple_of(pulse.0));
        self.suspended
    }
}

impl Nand {
    /// All idle.
    pub fn new(geometry: Geometry, timing: Timing) -> Nand {
        Nand {
            geometry,
            timing,
            dies: vec![Time::ZERO; geometry.dies as usize],
            channels: vec![Lane::default(); geometry.channels as usize],
            programs: vec![Program::default(); geometry.dies as usize],
            counts: NandCounts::default(),
        }
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// When `die` has done all that it was given.
    pub fn free(&self, die: u32) -> Time {
        self.dies[die as usize]
    }

    /// What it has done.
    pub fn counts(&self) -> NandCounts {
        self.counts
    }

    /// Reads `slots` from slot `first` of program unit `unit`, not before `ready`. Returns when the
    /// last of them has come over the channel.
    pub fn read(&mut self, now: Time, ready: Time, unit: u32, first: u32, slots: u32) -> Time {
        let die = self.geometry.die_of(unit);
        let row_slots = self.geometry.page_slots * self.geometry.planes;
        let channel = &mut self.channels[(die % self.geometry.channels) as usize];
        let free = &mut self.dies[die as usize];
        let (mut first, mut left) = (first, slots);
        let mut end = ready;
        while left > 0 {
            let n = left.min(row_slots - first % row_slots);
            self.counts.reads += 1;
            let transfer = self.timing.slot.times(u64::from(n));
            let program = &mut self.programs[die as usize];
            if self.timing.suspend > Span::ZERO && ready < program.end {
                let from = program.pause(ready, self.timing.suspend);
                program.resumed = channel.reserve(now, from + self.timing.read, transfer);
                program.end += program.resumed.since(from);
                *free = program.end;
                end = program.resumed;
            } else {
                let sensed = ready.max(*free) + self.timing.read;
                *free = channel.reserve(now, sensed, transfer);
                end = *free;
            }
            first += n;
            left -= n;
        }
        end
    }

    /// Programs a unit on `die`, not before `ready`, in `program` (tPROG). Returns (start of the
    /// transfer, end of the program).
    pub fn program(&mut self, now: Time, ready: Time, die: u32, program: Span) -> (Time, Time) {
        let channel = &mut self.channels[(die % self.geometry.channels) as usize];
        let free = &mut self.dies[die as usize];
        let moved = channel.reserve(now, ready.max(*free), self.timing.unit);
        let end = self.programs_from(die, moved, program);
        (moved.before(self.timing.unit), end)
    }

    /// As [`Nand::program`], with a pattern that the die makes itself: nothing moves over the
    /// channel.
    pub fn pad(&mut self, now: Time, ready: Time, die: u32) -> (Time, Time) {
        let from = now.max(ready).max(self.dies[die as usize]);
        (from, self.programs_from(die, from, self.timing.program))
    }

    fn programs_from(&mut self, die: u32, start: Time, program: Span) -> Time {
        let end = start + program;
        self.dies[die as usize] = end;
        self.programs[die as usize] = Program { start, end, ..Program::default() };
        self.counts.programs += 1;
        end
    }

    /// When the last program of `die` ends, as far as is known by now: later than was said when it
    /// began if it has been suspended since.
    pub fn program_end(&self, die: u32) -> Time {
        self.programs[die as usize].end
    }

    /// What each operation takes.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Erases a block of every plane of `die`. Returns the end.
    pub fn erase(&mut self, now: Time, die: u32) -> Time {
        let free = &mut self.dies[die as usize];
        *free = now.max(*free) + self.timing.erase;
        self.counts.erases += 1;
        *free
    }
}
