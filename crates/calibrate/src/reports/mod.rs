//! Reports of small tools that measure what a sync costs, as loads.
//!
//! Each parser says which lines are loads of the drive alone; the others are skipped by name.

mod ioping;
mod iostat;
mod pg_test_fsync;

use wp_base::event::Op;

use crate::load::{Figures, Load};
use crate::measured::{Input, Measured, little, with_host};

/// Reads a report of one tool; `None`: it is none of its. Errors: `LINE:COLUMN: WHAT`.
type Reader = fn(&str) -> Option<Result<Input, String>>;

/// Reads a report of one of these tools; `None`: it is none of theirs.
///
/// Errors: the place, and what is wrong there.
pub(crate) fn parse(name: &str, text: &str) -> Option<Result<Input, String>> {
    let readers: [Reader; 3] = [pg_test_fsync::parse, ioping::parse, iostat::parse];
    let read = readers.iter().find_map(|read| read(text))?;
    Some(read.map_err(|e| format!("{name}:{e}")).map(|input| named(name, input)))
}

/// The same, each line with the file that it is of.
fn named(name: &str, mut input: Input) -> Input {
    input.measured.iter_mut().for_each(|m| m.source = format!("{name}: {}", m.source));
    input.skipped.iter_mut().for_each(|(whose, _)| *whose = format!("{name}: {whose}"));
    input
}

/// Writes at depth 1 of one job.
fn writes(bytes: u32, sync_every: u32) -> Load {
    Load {
        op: Op::Write,
        random: false,
        bytes,
        depth: 1,
        jobs: 1,
        sync_every,
        forced: false,
        host_ns: 0,
    }
}

/// Adds a load, unless its figures contradict each other.
fn add(input: &mut Input, load: Load, figures: Figures, source: &str) {
    match little(&load, &figures) {
        Ok(()) => input.measured.push(Measured {
            load: with_host(load, &figures),
            figures,
            p99_ns: None,
            source: source.to_owned(),
        }),
        Err(why) => input.skipped.push((source.to_owned(), why)),
    }
}

#[cfg(test)]
mod tests;
