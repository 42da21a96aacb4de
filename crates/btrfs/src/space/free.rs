//! Runs of addresses.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};

/// Runs that do not touch each other, by first address.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Runs {
    runs: BTreeMap<u64, u64>,
}

impl Runs {
    /// Adds a run, joined with those that it touches. Errors: `Corrupt` if a part of it is there.
    pub fn add(&mut self, mut start: u64, mut bytes: u64) -> FsResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        let end = start.checked_add(bytes).ok_or_else(|| overlap(start))?;
        if let Some((&before, &n)) = self.runs.range(..end).next_back() {
            if before + n > start {
                return Err(overlap(start));
            }
            if before + n == start {
                self.runs.remove(&before);
                (start, bytes) = (before, n + bytes);
            }
        }
        if let Some(n) = self.runs.remove(&end) {
            bytes += n;
        }
        self.runs.insert(start, bytes);
        Ok(())
    }

    /// Removes a run, all of which must be there. Errors: `Corrupt`.
    pub fn remove(&mut self, start: u64, bytes: u64) -> FsResult<()> {
        let Some((&from, &n)) = self.runs.range(..=start).next_back() else {
            return Err(missing(start));
        };
        let end = start.checked_add(bytes).ok_or_else(|| missing(start))?;
        if from + n < end {
            return Err(missing(start));
        }
        self.runs.remove(&from);
        if from < start {
            self.runs.insert(from, start - from);
        }
        if end < from + n {
            self.runs.insert(end, from + n - end);
        }
        Ok(())
    }

    /// Removes what is there of a run.
    pub fn cut(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        while let Some((&from, &n)) = self.runs.range(..end).next_back() {
            if from + n <= start {
                break;
            }
            self.runs.remove(&from);
            if end < from + n {
                self.runs.insert(end, from + n - end);
            }
            if from < start {
                self.runs.insert(from, start - from);
            }
        }
    }

    /// Runs by address: first address and bytes.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(start, bytes)| (*start, *bytes))
    }

    /// The first run of `bytes` bytes or more: the one that holds `from`, or one behind it.
    pub fn first_fit(&self, from: u64, bytes: u64) -> Option<u64> {
        let holding = self.runs.range(..=from).next_back().filter(|(s, n)| *s + **n > from);
        let behind = self.runs.range(from.saturating_add(1)..);
        holding.into_iter().chain(behind).find(|(_, n)| **n >= bytes).map(|(s, _)| *s)
    }

    /// The longest run, if it has at least `bytes` bytes; of several, the first.
    pub fn longest(&self, bytes: u64) -> Option<u64> {
        let best = self.runs.iter().max_by_key(|(s, n)| (**n, u64::MAX - **s))?;
        (*best.1 >= bytes).then_some(*best.0)
    }

    /// Bytes of the longest run; 0: there is none.
    pub fn longest_bytes(&self) -> u64 {
        self.runs.values().copied().max().unwrap_or(0)
    }

    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.runs.values().sum()
    }

    /// How many runs?
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Is this address in one?
    pub fn has(&self, at: u64) -> bool {
        self.runs.range(..=at).next_back().is_some_and(|(s, n)| at - s < *n)
    }
}

fn overlap(start: u64) -> FsError {
    FsError::corrupt("btrfs free space", "address", 0, start, "in use: it becomes free twice")
}

fn missing(start: u64) -> FsError {
    FsError::corrupt("btrfs free space", "address", 0, start, "free: it is given out")
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test's own arrays")]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_a_bitmap_says() {
        let mut rng = wp_base::Rng::stream(7, "runs");
        let mut runs = Runs::default();
        let mut bits = [false; 200];
        for _ in 0..4000 {
            let start = rng.below(190) as usize;
            let n = 1 + rng.below(9) as usize;
            let range = start..start + n;
            let (all, any) =
                (bits[range.clone()].iter().all(|b| *b), bits[range.clone()].contains(&true));
            match rng.below(3) {
                0 => {
                    let done = runs.add(start as u64, n as u64).is_ok();
                    assert_eq!(done, !any);
                    if done {
                        bits[range].fill(true);
                    }
                }
                1 => {
                    let done = runs.remove(start as u64, n as u64).is_ok();
                    assert_eq!(done, all);
                    if done {
                        bits[range].fill(false);
                    }
                }
                _ => {
                    runs.cut(start as u64, n as u64);
                    bits[range].fill(false);
                }
            }
            let mut expected = Vec::new();
            let mut i = 0;
            while i < bits.len() {
                let end = (i..bits.len()).find(|j| !bits[*j]).unwrap_or(bits.len());
                if end > i {
                    expected.push((i as u64, (end - i) as u64));
                }
                i = end + 1;
            }
            assert_eq!(runs.iter().collect::<Vec<_>>(), expected);
        }
    }
}
