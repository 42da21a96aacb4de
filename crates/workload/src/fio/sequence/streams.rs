//! The random streams of a job, one for each kind of choice.
//!
//! All of this was found by drawing raw numbers out of fio (`bs=512,size=2t,norandommap` logs 32
//! bits of each offset, `bsrange=1-16m` with `bs_unaligned` 24 bits of each length, 1024 files ten
//! bits of each choice of a file) and searching all 2^32 seeds of taus88 for the one that gives
//! them:
//! - offsets with `randrepeat=1`: `0xb1899bed` times the number of the job;
//! - any other stream, of number `i`: `randseed` (0x89 if it was not given) times the `4 + i`th
//!   power of 0x9e370001, times the number of the job, plus `i`;
//! - with `allrandrepeat`: `0xb1899bed` times the number of the job, plus `i`;
//! - numbers `i`: lengths of reads 0, of writes 1 and of trims 2, the direction of a mixed job 4,
//!   files 5, offsets 6, lengths of files 7, whether an offset is random 10, delays 13, pauses of
//!   `rate_process=poisson` 15, 17 and 18 by direction, the zone of an offset 16. Directions,
//!   pauses and shares come from narrow streams even with `tausworthe64`. With `verify`, lengths of
//!   writes have the seed of those of reads;
//! - a later round of a job begins all streams anew, unless `randseed` was given.

use crate::fio::job::{Generator, Job};
use crate::fio::random::Taus;

/// The multiplier of jobs' numbers.
const JOB: u64 = 0xb189_9bed;
/// The multiplier from one stream to the next: Knuth's golden ratio for 32 bits, made a prime.
const NEXT: u64 = 0x9e37_0001;
/// Steps of the multiplier before the first stream.
const BEFORE: u32 = 4;

const LENGTH_OF_READ: u32 = 0;
const LENGTH_OF_WRITE: u32 = 1;
const LENGTH_OF_TRIM: u32 = 2;
const DIRECTION: u32 = 4;
const FILE: u32 = 5;
const OFFSET: u32 = 6;
const FILE_SIZE: u32 = 7;
const SHARE: u32 = 10;
const START: u32 = 13;
const ZONE: u32 = 16;
const PAUSE: [u32; 3] = [15, 17, 18];

/// The streams.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Lengths by direction.
    pub length: [Taus; 3],
    /// Reading or writing.
    pub direction: Taus,
    /// Which file.
    pub file: Taus,
    /// Which block.
    pub offset: Taus,
    /// Random or next offset, by direction.
    pub share: [Taus; 3],
    /// Which part of the file, of `random_distribution=zoned`.
    pub zone: Taus,
    /// Pauses, by direction.
    pub pause: [Taus; 3],
    /// What a shift register begins with.
    pub register_seed: u64,
}

/// The seed of a job's stream of this number; `base`: `randseed`, or what stands in for it.
fn seed_of(job: &Job, base: u64, i: u32) -> u64 {
    let thread = u64::from(job.thread_number);
    if job.all_repeat {
        return JOB.wrapping_mul(thread).wrapping_add(u64::from(i));
    }
    let own = base.wrapping_mul(NEXT.wrapping_pow(BEFORE + i));
    own.wrapping_mul(thread).wrapping_add(u64::from(i))
}

/// A stream that is drawn from before a job begins: 64 bits wide only if that was asked for.
fn early(job: &Job, i: u32) -> Taus {
    Taus::new(seed_of(job, job.seed, i), job.generator == Generator::Taus258)
}

impl Streams {
    /// Lengths of files, of a job with `filesize=A-B`.
    pub fn of_file_sizes(job: &Job) -> Taus {
        early(job, FILE_SIZE)
    }

    /// When a job begins, of one with `startdelay=A-B`.
    pub fn of_start(job: &Job) -> Taus {
        early(job, START)
    }

    /// The streams of a job. `chance` stands in for the seed that fio takes from the clock when
    /// nothing is to repeat; `wide`: with 64 bits.
    pub fn new(job: &Job, chance: u64, wide: bool) -> Streams {
        let thread = u64::from(job.thread_number);
        let base = if job.seed_given || job.repeat || job.all_repeat { job.seed } else { chance };
        let seed = |i: u32| seed_of(job, base, i);
        let register_seed = if job.repeat { JOB.wrapping_mul(thread) } else { seed(OFFSET) };
        let stream = |i| Taus::new(seed(i), wide);
        let narrow = |i| Taus::new(seed(i), false);
        let of_write = if job.verify.is_some() { LENGTH_OF_READ } else { LENGTH_OF_WRITE };
        Streams {
            length: [LENGTH_OF_READ, of_write, LENGTH_OF_TRIM].map(stream),
            direction: narrow(DIRECTION),
            file: stream(FILE),
            offset: Taus::new(register_seed, wide),
            share: std::array::from_fn(|_| narrow(SHARE)),
            zone: narrow(ZONE),
            pause: PAUSE.map(narrow),
            register_seed,
        }
    }

    /// Are there more blocks than 32 bits can number, or was a wide generator asked for?
    pub fn wide(job: &Job, span: u64) -> bool {
        match job.generator {
            Generator::Taus258 => true,
            Generator::Lfsr => false,
            Generator::Taus88 => !job.generator_given && (span / job.block_min().max(1)) >> 32 > 0,
        }
    }
}
