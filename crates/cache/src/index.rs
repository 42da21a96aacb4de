//! Things by number: the blocks of a mapping, the inodes in memory. A sparse array in small chunks
//! (what the radix tree of an `address_space` is for).
//!
//! Picture:    chunk `i / 16` of the first 2^22 numbers stands in a vector, later ones in a map. A
//!             thing of number 0 stands by itself until another one comes: most files have one
//!             block.
//! Invariants: 1. a chunk in the map holds at least one thing.
//!             2. `len` is the number of things.
//!             3. with `first` there is no chunk.

use std::collections::BTreeMap;

/// Numbers of a chunk.
const CHUNK: u64 = 16;
/// Chunks in the vector at most: 2 MiB of it, for the blocks of 4 KiB of a device of 16 GiB.
const DENSE: u64 = 1 << 18;

#[derive(Clone)]
struct Chunk<T>([Option<T>; CHUNK as usize]);

impl<T> Default for Chunk<T> {
    fn default() -> Self {
        Chunk([const { None }; CHUNK as usize])
    }
}

impl<T> Chunk<T> {
    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// Things by number, in order.
#[derive(Clone)]
pub struct Index<T> {
    first: Option<T>,
    dense: Vec<Option<Box<Chunk<T>>>>,
    sparse: BTreeMap<u64, Box<Chunk<T>>>,
    len: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index { first: None, dense: Vec::new(), sparse: BTreeMap::new(), len: 0 }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Index<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.range(0, u64::MAX)).finish()
    }
}

impl<T> Index<T> {
    fn chunk(&self, n: u64) -> Option<&Chunk<T>> {
        if n < DENSE {
            self.dense.get(n as usize).and_then(|c| c.as_deref())
        } else {
            self.sparse.get(&n).map(|c| &**c)
        }
    }

    /// What stands there.
    pub fn get(&self, index: u64) -> Option<&T> {
        if self.first.is_some() {
            return self.first.as_ref().filter(|_| index == 0);
        }
        self.chunk(index / CHUNK)?.0[(index % CHUNK) as usize].as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, index: u64) -> Option<&mut T> {
        if self.first.is_some() {
            return self.first.as_mut().filter(|_| index == 0);
        }
        let n = index / CHUNK;
        let chunk = if n < DENSE {
            self.dense.get_mut(n as usize)?.as_deref_mut()?
        } else {
            self.sparse.get_mut(&n)?
        };
        chunk.0[(index % CHUNK) as usize].as_mut()
    }

    /// Does anything stand there?
    pub fn contains(&self, index: u64) -> bool {
        self.get(index).is_some()
    }

    /// Puts a thing in its place; the one before it is dropped.
    pub fn insert(&mut self, index: u64, b: T) {
        if index == 0 && (self.first.is_some() || self.len == 0) {
            self.first = Some(b);
            self.len = 1;
            return;
        }
        if let Some(first) = self.first.take() {
            self.len = 0;
            self.insert_in_chunk(0, first);
        }
        self.insert_in_chunk(index, b);
    }

    fn insert_in_chunk(&mut self, index: u64, b: T) {
        let n = index / CHUNK;
        let chunk = if n < DENSE {
            if self.dense.len() <= n as usize {
                self.dense.resize_with(n as usize + 1, || None);
            }
            self.dense[n as usize].get_or_insert_default()
        } else {
            self.sparse.entry(n).or_default()
        };
        if chunk.0[(index % CHUNK) as usize].replace(b).is_none() {
            self.len += 1;
        }
    }

    /// Takes it out.
    pub fn remove(&mut self, index: u64) -> Option<T> {
        if self.first.is_some() {
            if index != 0 {
                return None;
            }
            self.len = 0;
            return self.first.take();
        }
        let n = index / CHUNK;
        let chunk = if n < DENSE {
            self.dense.get_mut(n as usize)?.as_deref_mut()?
        } else {
            self.sparse.get_mut(&n)?
        };
        let b = chunk.0[(index % CHUNK) as usize].take()?;
        self.len -= 1;
        if chunk.is_empty() {
            if n < DENSE {
                self.dense[n as usize] = None;
            } else {
                self.sparse.remove(&n);
            }
        }
        Some(b)
    }

    /// Drops all of them, in order.
    pub fn clear(&mut self) {
        *self = Index::default();
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Those of numbers `from..to`, in order.
    pub fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &T)> {
        let (first, end) = (from / CHUNK, to.div_ceil(CHUNK).max(from / CHUNK));
        let dense_end = end.min(self.dense.len() as u64);
        let dense = (first.min(dense_end)..dense_end)
            .filter_map(|n| self.dense[n as usize].as_deref().map(|c| (n, c)));
        let sparse = self.sparse.range(first..end).map(|(n, c)| (*n, &**c));
        let chunks = dense.chain(sparse).flat_map(move |(n, c)| {
            let base = n * CHUNK;
            let last = to.saturating_sub(base).min(CHUNK);
            let skip = from.saturating_sub(base).min(last);
            let here = &c.0[skip as usize..last as usize];
            here.iter().zip(base + skip..).filter_map(|(b, i)| b.as_ref().map(|b| (i, b)))
        });
        let first = self.first.as_ref().filter(|_| from == 0 && to > 0);
        first.map(|b| (0, b)).into_iter().chain(chunks)
    }

    /// The first one of numbers `from..to`.
    pub fn first_of(&self, from: u64, to: u64) -> Option<(u64, &T)> {
        if self.first.is_some() {
            return self.first.as_ref().filter(|_| from == 0 && to > 0).map(|b| (0, b));
        }
        let mut at = from;
        let dense_end = to.min(self.dense.len() as u64 * CHUNK);
        while at < dense_end {
            let base = at / CHUNK * CHUNK;
            if let Some(chunk) = &self.dense[(at / CHUNK) as usize] {
                let last = (to - base).min(CHUNK);
                let here = &chunk.0[(at - base) as usize..last as usize];
                let found = here.iter().zip(at..).find_map(|(b, i)| b.as_ref().map(|b| (i, b)));
                if found.is_some() {
                    return found;
                }
            }
            at = base + CHUNK;
        }
        if self.sparse.is_empty() { None } else { self.range(at, to).next() }
    }

    /// All of them, in order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let dense = self.dense.iter().flatten();
        let chunks = dense.chain(self.sparse.values()).flat_map(|c| c.0.iter().flatten());
        self.first.iter().chain(chunks)
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let dense = self.dense.iter_mut().flatten();
        let chunks = dense.chain(self.sparse.values_mut());
        self.first.iter_mut().chain(chunks.flat_map(|c| c.0.iter_mut().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    use crate::buffer::Buffer;
    use wp_base::Rng;
    use wp_rt::Rt;

    /// The same with few things, so that the first one often stands alone.
    #[test]
    fn same_as_an_ordered_map_of_few() {
        let (mut ours, mut map) = (Index::<u64>::default(), BTreeMap::new());
        let mut rng = Rng::stream(2, "index");
        for round in 0..20_000u64 {
            let i = rng.below(3);
            if rng.below(2) == 0 {
                assert_eq!(ours.remove(i), map.remove(&i));
            } else {
                ours.insert(i, round);
                map.insert(i, round);
            }
            let (from, to) = (rng.below(3), rng.below(4));
            assert_eq!(ours.get(from), map.get(&from));
            assert_eq!(ours.get_mut(from), map.get_mut(&from));
            assert!(ours.values_mut().map(|n| *n).eq(map.values().copied()));
            assert_eq!((ours.len(), ours.is_empty()), (map.len(), map.is_empty()));
            assert!(ours.values().eq(map.values()));
            let right = map.iter().filter(|(i, _)| (from..to).contains(*i));
            assert_eq!(ours.first_of(from, to), right.clone().map(|(i, b)| (*i, b)).next());
            assert!(ours.range(from, to).eq(right.map(|(i, b)| (*i, b))));
        }
    }

    /// Beside an ordered map, with indices on both sides of where the vector ends.
    #[test]
    fn same_as_an_ordered_map() {
        let rt = Rt::new(1);
        let (mut ours, mut map) = (Index::<Rc<Buffer>>::default(), BTreeMap::new());
        let mut rng = Rng::stream(1, "index");
        let edge = DENSE * CHUNK;
        for round in 0..20_000u64 {
            let base = [0, edge - 64, edge + 5000, u64::MAX - 200][rng.below(4) as usize];
            let i = base + rng.below(128);
            if rng.below(3) == 0 {
                let gone = ours.remove(i).map(|b| b.block());
                assert_eq!(gone, map.remove(&i).map(|b: Rc<Buffer>| b.block()));
            } else {
                let b = Rc::new(Buffer::new(&rt, i, 4096));
                ours.insert(i, b.clone());
                map.insert(i, b);
            }
            assert_eq!(ours.get(i).map(|b| b.block()), map.get(&i).map(|b| b.block()));
            assert_eq!(ours.get_mut(i).map(|b| b.block()), map.get(&i).map(|b| b.block()));
            assert_eq!((ours.len(), ours.contains(i)), (map.len(), map.contains_key(&i)));
            if round % 64 == 0 {
                let to = i.saturating_add(rng.below(300));
                let a: Vec<u64> = ours.range(i, to).map(|(i, _)| i).collect();
                let b: Vec<u64> = map.range(i..to).map(|(i, _)| *i).collect();
                assert_eq!(a, b);
                let a: Vec<u64> = ours.values().map(|b| b.block()).collect();
                assert_eq!(a, map.keys().copied().collect::<Vec<u64>>());
                assert!(ours.values_mut().map(|b| b.block()).eq(a));
            }
        }
        let all: Vec<u64> = ours.range(0, u64::MAX).map(|(i, _)| i).collect();
        assert_eq!(all, map.range(0..u64::MAX).map(|(i, _)| *i).collect::<Vec<u64>>());
    }
}
