//! A queue that is cloned cheaply: chunks are shared until someone changes them.

use std::collections::VecDeque;
use std::rc::Rc;

/// Elements in a chunk: what a change after a clone copies.
const CHUNK: usize = 64;

/// Queue of `T`, addressed by a number that counts up from 0 and never repeats.
#[derive(Clone)]
pub(crate) struct Chain<T> {
    chunks: VecDeque<Rc<Vec<T>>>,
    /// Number of the first element; the first chunk starts at the multiple of `CHUNK` at or below
    /// it.
    first: u64,
    end: u64,
}

impl<T: Clone> Chain<T> {
    pub(crate) fn new() -> Chain<T> {
        Chain { chunks: VecDeque::new(), first: 0, end: 0 }
    }

    /// Number that the next element gets.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Number of the first element still in it; `end()` if there is none.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn push(&mut self, value: T) {
        if self.end.is_multiple_of(CHUNK as u64) {
            self.chunks.push_back(Rc::new(Vec::with_capacity(CHUNK)));
        }
        let last = self.chunks.back_mut().expect("a chunk is begun at each multiple");
        Rc::make_mut(last).push(value);
        self.end += 1;
    }

    fn place(&self, number: u64) -> (usize, usize) {
        let base = self.first / CHUNK as u64;
        ((number / CHUNK as u64 - base) as usize, (number % CHUNK as u64) as usize)
    }

    /// Element `number`. Panics if it is not in the queue.
    pub(crate) fn get(&self, number: u64) -> &T {
        let (chunk, i) = self.place(number);
        &self.chunks[chunk][i]
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> &mut T {
        let (chunk, i) = self.place(number);
        &mut Rc::make_mut(&mut self.chunks[chunk])[i]
    }

    /// Drops the first element; its memory goes with its chunk.
    pub(crate) fn drop_first(&mut self) {
        assert!(self.first < self.end, "the queue is empty");
        self.first += 1;
        if self.first.is_multiple_of(CHUNK as u64) {
            self.chunks.pop_front();
        } else if self.first == self.end {
            // Empty in mid-chunk: let go of what the chunk still holds, keep the numbering.
            self.end = self.end.next_multiple_of(CHUNK as u64);
            self.first = self.end;
            self.chunks.clear();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.first..self.end).map(|n| (n, self.get(n)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_what_it_had() {
        let mut q = Chain::new();
        (0..200).for_each(|i| q.push(i));
        let old = q.clone();
        (0..150).for_each(|_| q.drop_first());
        *q.get_mut(170) = 7;
        q.push(1000);
        assert_eq!(old.iter().map(|(_, v)| *v).collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
        assert_eq!((q.first(), q.end(), *q.get(170), *q.get(200)), (150, 201, 7, 1000));
    }

    #[test]
    fn numbers_never_repeat_after_it_was_empty() {
        let mut q = Chain::new();
        for round in 0..300u64 {
            let before = q.end();
            q.push(round);
            q.push(round);
            assert_eq!(*q.get(before), round);
            q.drop_first();
            q.drop_first();
            assert!(q.first() == q.end() && q.end() > before);
        }
    }
}
