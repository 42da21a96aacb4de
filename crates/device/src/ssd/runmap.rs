//! A map from 32-bit numbers to 32-bit numbers in which runs cost nothing and clones share.
//!
//! Picture:    table -> part of 512 numbers -> nothing, a run (value of the first, then counting
//!             up), each its own, or as it was at first, where that is computed.
//! Invariants: 1. a part that is a run, or nothing at all, is stored as that (but for one that is
//!                as at first);
//!             2. what two clones share is copied before it is changed.

use std::rc::Rc;

use crate::ssd::aged::Aged;

/// Stands for "no value".
pub(crate) const NONE: u32 = u32::MAX;

/// Numbers in a part: 2 KiB, copied by the first change after a clone.
const PART: u32 = 512;
/// Parts in a table: 4 KiB, copied likewise.
const TABLE: u32 = 256;

#[derive(Clone)]
enum Part {
    None,
    Run(u32),
    Each(Rc<[u32; PART as usize]>),
    /// As the map's [`First`] says.
    First,
}

/// What a map holds before the first change, where that is not nothing.
#[derive(Clone)]
pub(crate) enum First {
    /// Flash slots of host slots of an old drive.
    Places(Rc<Aged>),
    /// Host slots of flash slots.
    Owners(Rc<Aged>),
}

impl First {
    fn get(&self, at: u32) -> u32 {
        match self {
            First::Places(aged) => aged.place(at),
            First::Owners(aged) => aged.owner(at),
        }
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) struct RunMap {
    tables: Vec<Rc<[Part; TABLE as usize]>>,
    first: Option<First>,
}

/// A stretch of neighbours that count up together, or that all have no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// First number.
    pub(crate) at: u32,
    /// How many.
    pub(crate) len: u32,
    /// Value of the first; `NONE` if none has any.
    pub(crate) value: u32,
}

impl RunMap {
    /// Numbers `0..size`, none with a value.
    pub(crate) fn new(size: u32) -> RunMap {
        let empty = Rc::new([const { Part::None }; TABLE as usize]);
        let tables = size.div_ceil(PART * TABLE) as usize;
        RunMap { tables: vec![empty; tables], first: None }
    }

    /// Numbers `0..size` with the values that `first` says.
    pub(crate) fn with(size: u32, first: First) -> RunMap {
        let as_first = Rc::new([const { Part::First }; TABLE as usize]);
        let tables = size.div_ceil(PART * TABLE) as usize;
        RunMap { tables: vec![as_first; tables], first: Some(first) }
    }

    /// Value that `at` had at first.
    fn first(&self, at: u32) -> u32 {
        self.first.as_ref().map_or(NONE, |first| first.get(at))
    }

    /// Parts that are neither nothing nor a run, of 2 KiB each.
    pub(crate) fn parts_in_memory(&self) -> usize {
        let parts = self.tables.iter().flat_map(|t| t.iter());
        parts.filter(|p| matches!(p, Part::Each(_))).count()
    }

    fn part(&self, at: u32) -> &Part {
        let part = at / PART;
        &self.tables[(part / TABLE) as usize][(part % TABLE) as usize]
    }

    /// Value at `at`, or `NONE`.
    pub(crate) fn get(&self, at: u32) -> u32 {
        match self.part(at) {
            Part::None => NONE,
            Part::Run(value) => value + at % PART,
            Part::Each(values) => values[(at % PART) as usize],
            Part::First => self.first(at),
        }
    }

    /// Looks at the place of `at`, so that a `set` there soon finds it in the CPU's cache. The
    /// number means nothing.
    #[inline]
    pub(crate) fn touch(&self, at: u32) -> usize {
        match self.part(at) {
            Part::Each(values) => Rc::strong_count(values) ^ values[(at % PART) as usize] as usize,
            _ => 0,
        }
    }

    /// Calls `f` for the values of `len` numbers from `at` that are stored each on its own.
    pub(crate) fn each_stored(&self, at: u32, len: u32, mut f: impl FnMut(u32)) {
        let mut done = 0;
        while done < len {
            let from = (at + done) % PART;
            let n = (len - done).min(PART - from);
            if let Part::Each(values) = self.part(at + done) {
                let values = values[from as usize..(from + n) as usize].iter();
                values.filter(|v| **v != NONE).for_each(|v| f(*v));
            }
            done += n;
        }
    }

    /// The run that starts at `at`, up to `most` long; there may be more of it.
    pub(crate) fn run(&self, at: u32, most: u32) -> Run {
        let i = at % PART;
        let most = most.min(PART - i);
        let (len, value) = match self.part(at) {
            Part::None => (most, NONE),
            Part::Run(value) => (most, value + i),
            Part::Each(values) => run_of(&values[i as usize..(i + most) as usize]),
            Part::First => run_from(most, |i| self.first(at + i)),
        };
        Run { at, len, value }
    }

    /// Sets `len` numbers from `at` to `value`, `value + 1`, and so on; to nothing if `value` is
    /// `NONE`. Tells `old` what was there, in runs, those without a value included.
    pub(crate) fn set(&mut self, at: u32, len: u32, value: u32, mut old: impl FnMut(Run)) {
        let mut done = 0;
        while done < len {
            let from = (at + done) % PART;
            let n = (len - done).min(PART - from);
            let value = if value == NONE { NONE } else { value + done };
            let part = (at + done) / PART;
            let table = Rc::make_mut(&mut self.tables[(part / TABLE) as usize]);
            let here = &mut table[(part % TABLE) as usize];
            if let (Part::First, Some(first)) = (&*here, &self.first) {
                here.write_down(|i| first.get(part * PART + i));
            }
            here.set(at + done, from, n, value, &mut old);
            done += n;
        }
    }

    /// Sets `len` numbers from `at` to nothing, whatever was there.
    pub(crate) fn forget(&mut self, at: u32, len: u32) {
        let mut done = 0;
        while done < len {
            let from = (at + done) % PART;
            let n = (len - done).min(PART - from);
            if n == PART {
                let part = (at + done) / PART;
                let table = Rc::make_mut(&mut self.tables[(part / TABLE) as usize]);
                table[(part % TABLE) as usize] = Part::None;
            } else {
                self.set(at + done, n, NONE, |_| {});
            }
            done += n;
        }
    }
}

/// As [`run_of`], of up to `most` values that are computed.
fn run_from(most: u32, value: impl Fn(u32) -> u32) -> (u32, u32) {
    let first = value(0);
    let next = |i: &u32| if first == NONE { NONE } else { first.wrapping_add(*i) };
    let more = (1..most).take_while(|i| value(*i) == next(i)).count();
    (more as u32 + 1, first)
}

/// Length and first value of the run at the start of `values`, which are not empty.
fn run_of(values: &[u32]) -> (u32, u32) {
    let first = values[0];
    let step = u32::from(first != NONE);
    let len = values
        .windows(2)
        .take_while(|w| w[1] == w[0].wrapping_add(step) && (w[1] == NONE) == (first == NONE));
    let len = len.count();
    (len as u32 + 1, first)
}

impl Part {
    /// Stores what was computed until now.
    fn write_down(&mut self, value: impl Fn(u32) -> u32) {
        let values: [u32; PART as usize] = std::array::from_fn(|i| value(i as u32));
        let all = run_of(&values).0 == PART;
        *self = match values[0] {
            NONE if all => Part::None,
            first if all => Part::Run(first),
            _ => Part::Each(Rc::new(values)),
        };
    }

    /// Sets `n` numbers from `from` of this part, which are `at` and so on of the map.
    fn set(&mut self, at: u32, from: u32, n: u32, value: u32, old: &mut impl FnMut(Run)) {
        match self {
            Part::First => unreachable!("written down before"),
            Part::None => {
                old(Run { at, len: n, value: NONE });
                if value == NONE {
                    return;
                }
            }
            Part::Run(first) => {
                old(Run { at, len: n, value: *first + from });
                if value == *first + from {
                    return;
                }
            }
            Part::Each(values) => {
                let mut i = from;
                while i < from + n {
                    let (len, value) = run_of(&values[i as usize..(from + n) as usize]);
                    old(Run { at: at + i - from, len, value });
                    i += len;
                }
            }
        }
        if n == PART {
            *self = if value == NONE { Part::None } else { Part::Run(value) };
            return;
        }
        let values = self.each();
        let step = u32::from(value != NONE);
        for i in 0..n {
            values[(from + i) as usize] = value.wrapping_add(i * step);
        }
        // The neighbour, in the same cache line mostly, tells nearly always that it is no run; then
        // the ends.
        let joins = if from > 0 {
            values[from as usize - 1].wrapping_add(step) == value
        } else {
            values[n as usize] == value.wrapping_add(n * step)
        };
        if !joins {
            return;
        }
        let (first, last) = (values[0], values[PART as usize - 1]);
        let may_be_run =
            if first == NONE { last == NONE } else { last == first.wrapping_add(PART - 1) };
        if may_be_run && run_of(values).0 == PART {
            *self = if first == NONE { Part::None } else { Part::Run(first) };
        }
    }

    /// Its values, each on its own.
    fn each(&mut self) -> &mut [u32; PART as usize] {
        if !matches!(self, Part::Each(_)) {
            let values = match self {
                Part::Run(first) => std::array::from_fn(|i| *first + i as u32),
                _ => [NONE; PART as usize],
            };
            *self = Part::Each(Rc::new(values));
        }
        match self {
            Part::Each(values) => Rc::make_mut(values),
            _ => unreachable!("just made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_an_array_would_and_tells_what_was_there() {
        let mut rng = wp_base::Rng::stream(5, "runmap");
        const SIZE: u32 = 3 * PART + 100;
        let mut map = RunMap::new(SIZE);
        let mut naive = vec![NONE; SIZE as usize];
        let mut saved = Vec::new();
        for round in 0..4000u32 {
            let at = rng.below(u64::from(SIZE)) as u32;
            let len = 1 + rng.below(match round % 4 {
                0 => 1200,
                1 => 1,
                _ => 40,
            }) as u32;
            let len = len.min(SIZE - at);
            let value = if rng.below(3) == 0 { NONE } else { at + 1000 * rng.below(2) as u32 };
            let mut told = Vec::new();
            map.set(at, len, value, |run| {
                assert_eq!(run.at, at + told.len() as u32);
                told.extend(
                    (0..run.len).map(|i| if run.value == NONE { NONE } else { run.value + i }),
                );
            });
            assert_eq!(told, naive[at as usize..(at + len) as usize]);
            for i in 0..len {
                naive[(at + i) as usize] = if value == NONE { NONE } else { value + i };
            }
            if round % 500 == 0 {
                saved.push((map.clone(), naive.clone()));
            }
        }
        saved.push((map, naive));
        for (map, naive) in saved {
            let mut at = 0;
            while at < SIZE {
                let run = map.run(at, SIZE - at);
                assert!(run.len > 0);
                for i in 0..run.len {
                    let want = if run.value == NONE { NONE } else { run.value + i };
                    assert_eq!((map.get(at + i), naive[(at + i) as usize]), (want, want));
                }
                at += run.len;
            }
        }
    }

    #[test]
    fn a_map_filled_in_order_is_runs() {
        let mut map = RunMap::new(1 << 20);
        for i in 0..(1 << 20) / 32 {
            map.set(i * 32, 32, 7 + i * 32, |_| {});
        }
        assert_eq!(map.parts_in_memory(), 0);
    }
}
