//! A resource that serves one at a time and can be reserved ahead.

use std::collections::VecDeque;

use wp_base::{Span, Time};

/// When a bus or link is taken, from now on.
///
/// A reservation takes the earliest gap that is long enough, so what is ready early is not held up
/// by what was reserved before it but starts later. Once given, a time is not moved.
#[derive(Clone, Default)]
pub(crate) struct Lane {
    /// Taken spans in order, apart from each other: (start, end).
    taken: VecDeque<(Time, Time)>,
}

impl Lane {
    /// Reserves `span` at or after `ready`; returns the end. `now` is for forgetting what is past.
    pub(crate) fn reserve(&mut self, now: Time, ready: Time, span: Span) -> Time {
        while self.taken.front().is_some_and(|t| t.1 <= now) {
            self.taken.pop_front();
        }
        match self.taken.back_mut() {
            // Nearly always it goes to the end.
            Some(last) if (last.0..=last.1).contains(&ready) => {
                last.1 += span;
                last.1
            }
            Some(last) if ready < last.0 => self.reserve_between(ready, span),
            _ => {
                self.taken.push_back((ready, ready + span));
                ready + span
            }
        }
    }

    fn reserve_between(&mut self, ready: Time, span: Span) -> Time {
        let mut start = ready;
        let mut i = 0;
        while let Some((from, to)) = self.taken.get(i).copied() {
            if start + span <= from {
                break;
            }
            start = start.max(to);
            i += 1;
        }
        let end = start + span;
        let joins_before = i > 0 && self.taken[i - 1].1 == start;
        let joins_after = self.taken.get(i).is_some_and(|t| t.0 == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.taken[i - 1].1 = self.taken[i].1;
                self.taken.remove(i);
            }
            (true, false) => self.taken[i - 1].1 = end,
            (false, true) => self.taken[i].0 = start,
            (false, false) => self.taken.insert(i, (start, end)),
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(lane: &mut Lane, now: u64, ready: u64, span: u64) -> u64 {
        lane.reserve(Time(now), Time(ready), Span(span)).0
    }

    #[test]
    fn one_after_the_other_and_gaps_are_used() {
        let mut lane = Lane::default();
        assert_eq!(reserve(&mut lane, 0, 100, 10), 110);
        assert_eq!(reserve(&mut lane, 0, 0, 10), 10);
        assert_eq!(reserve(&mut lane, 0, 0, 85), 95);
        // 95..100 is too short.
        assert_eq!(reserve(&mut lane, 0, 0, 6), 116);
        assert_eq!(reserve(&mut lane, 0, 0, 5), 100);
        assert_eq!(lane.taken, [(Time(0), Time(116))]);
        assert_eq!(reserve(&mut lane, 0, 200, 5), 205);
        assert_eq!(reserve(&mut lane, 116, 120, 5), 125);
        assert_eq!(lane.taken.len(), 2);
    }

    /// Against a bitmap of nanoseconds.
    #[test]
    fn no_nanosecond_is_given_twice_and_none_is_skipped_that_fits() {
        let mut rng = wp_base::Rng::stream(3, "lane");
        let mut lane = Lane::default();
        let mut taken = vec![false; 40_000];
        let mut now = 0;
        for _ in 0..3000 {
            now += rng.below(8);
            let (ready, span) = (now + rng.below(120), 1 + rng.below(15));
            let end = reserve(&mut lane, now, ready, span);
            let naive =
                (ready..).find(|s| (*s..s + span).all(|i| !taken[i as usize])).expect("infinite");
            assert_eq!(end, naive + span);
            (naive..end).for_each(|i| taken[i as usize] = true);
        }
    }
}
