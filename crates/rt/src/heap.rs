//! The timers' heap: four-ary, least first, keys of time and sequence.
//!
//! Half as deep as a binary heap, and its elements move through registers: `std`'s heap writes a
//! new element and reads it back at once in wider pieces, which alone costs 4 ns (measured, bench
//! `executor`). The least may stand beside the heap: what is armed is often what comes next, and
//! then it does not go through the heap at all.

/// One armed timer.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Nanoseconds.
    pub at: u64,
    /// Order among timers of one time; unique.
    pub seq: u64,
    /// Where its effect lies.
    pub slot: u32,
}

impl Entry {
    #[inline]
    fn key(&self) -> u128 {
        (u128::from(self.at) << 64) | u128::from(self.seq)
    }
}

const ARITY: usize = 4;

/// Invariants: no entry's key is below its parent's, which lies at `(i - 1) / ARITY`; none is below
/// the key of `first`.
#[derive(Default)]
pub(crate) struct Heap {
    first: Option<Entry>,
    entries: Vec<Entry>,
}

impl Heap {
    pub fn len(&self) -> usize {
        self.entries.len() + usize::from(self.first.is_some())
    }

    #[inline]
    pub fn peek(&self) -> Option<&Entry> {
        self.first.as_ref().or_else(|| self.entries.first())
    }

    #[inline]
    pub fn push(&mut self, mut entry: Entry) {
        match (&mut self.first, self.entries.first()) {
            (Some(first), _) => {
                if entry.key() < first.key() {
                    std::mem::swap(first, &mut entry);
                }
            }
            (None, Some(least)) if least.key() < entry.key() => {}
            (none, _) => {
                *none = Some(entry);
                return;
            }
        }
        let hole = self.entries.len();
        self.entries.push(entry);
        self.rise(0, hole, entry);
    }

    /// Puts `entry` at the vacant `hole` or above it, not above `root`.
    #[inline]
    fn rise(&mut self, root: usize, mut hole: usize, entry: Entry) {
        let entries = &mut self.entries[..];
        let key = entry.key();
        while hole > root {
            let parent = (hole - 1) / ARITY;
            if entries[parent].key() <= key {
                break;
            }
            entries[hole] = entries[parent];
            hole = parent;
        }
        entries[hole] = entry;
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let last = self.entries.pop()?;
        let Some(first) = self.entries.first().copied() else {
            return Some(last);
        };
        self.sink(0, last);
        Some(first)
    }

    /// Puts `entry` into the subtree whose root `hole` is vacant: the hole goes down to a leaf and
    /// the entry up from there. What comes from the end of the heap belongs near a leaf, and so no
    /// comparison on the way down has an outcome that the processor would have to guess.
    fn sink(&mut self, root: usize, entry: Entry) {
        let mut hole = root;
        let entries = &mut self.entries[..];
        loop {
            let child = hole * ARITY + 1;
            let least = match entries.get(child..) {
                Some([a, b, c, d, ..]) => {
                    let ab = usize::from(b.key() < a.key());
                    let cd = 2 + usize::from(d.key() < c.key());
                    let second = usize::from(entries[child + cd].key() < entries[child + ab].key());
                    child + ab + second * (cd - ab)
                }
                Some([]) | None => break,
                Some(few) => {
                    let (i, _) = (0..).zip(few).min_by_key(|(_, e)| e.key()).expect("not empty");
                    child + i
                }
            };
            entries[hole] = entries[least];
            hole = least;
        }
        self.rise(root, hole, entry);
    }

    /// Keeps the entries for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        self.first = self.first.filter(&mut keep);
        self.entries.retain(keep);
        // From the last parent to the root, so that every subtree below is a heap already.
        for i in (0..self.entries.len().div_ceil(ARITY)).rev() {
            self.sink(i, self.entries[i]);
        }
    }

    pub fn clear(&mut self) {
        self.first = None;
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Rng;

    #[test]
    fn entries_come_out_by_time_then_sequence() {
        let mut rng = Rng::stream(3, "heap");
        let mut heap = Heap::default();
        let mut model: Vec<(u64, u64)> = Vec::new();
        for seq in 0..20_000u64 {
            if rng.below(5) < 3 {
                let at = rng.below(50);
                heap.push(Entry { at, seq, slot: 0 });
                model.push((at, seq));
            } else if rng.below(100) == 0 {
                heap.retain(|e| e.seq % 3 != 0);
                model.retain(|e| e.1 % 3 != 0);
            } else {
                model.sort_unstable();
                let want = if model.is_empty() { None } else { Some(model.remove(0)) };
                assert_eq!(heap.peek().map(|e| (e.at, e.seq)), want);
                assert_eq!(heap.pop().map(|e| (e.at, e.seq)), want);
            }
        }
        assert!(heap.len() > 100, "the test should reach three levels");
    }
}
