//! Slices in a row: taken apart from the front, and put together.

use crate::{Page, Slice};

/// Slices as one: by reference if it is one, else copied to a page.
pub fn join(mut slices: Vec<Slice>) -> Slice {
    if slices.len() == 1 {
        return slices.remove(0);
    }
    let mut page = Page::zeroed();
    let mut end = 0;
    for s in &slices {
        let from = end;
        end += s.len() as usize;
        s.copy_to(&mut page.make_mut()[from..end]);
    }
    Slice::of_page(page, 0, end as u32)
}

/// Takes slices apart from the front.
pub struct Pieces<'a> {
    slices: &'a [Slice],
    used: u32,
}

impl<'a> Pieces<'a> {
    /// From the first byte on.
    pub fn new(slices: &'a [Slice]) -> Pieces<'a> {
        Pieces { slices, used: 0 }
    }

    /// The next `bytes` bytes as one slice: by reference if they are one, else copied to a page.
    pub fn take_one(&mut self, bytes: u32) -> Slice {
        match self.slices {
            [first, ..] if self.used + bytes < first.len() => {
                self.used += bytes;
                first.sub(self.used - bytes, bytes)
            }
            [first, rest @ ..] if self.used + bytes == first.len() => {
                let from = std::mem::take(&mut self.used);
                self.slices = rest;
                first.sub(from, bytes)
            }
            _ => join(self.take(bytes)),
        }
    }

    /// The next `bytes` bytes.
    pub fn take(&mut self, bytes: u32) -> Vec<Slice> {
        let mut out = Vec::with_capacity(1);
        let mut left = bytes;
        while left > 0 {
            let Some(first) = self.slices.first() else { break };
            let n = (first.len() - self.used).min(left);
            if n > 0 {
                out.push(first.sub(self.used, n));
            }
            self.used += n;
            left -= n;
            if self.used == first.len() {
                self.slices = &self.slices[1..];
                self.used = 0;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_over_several_slices_hold_the_same_bytes() {
        let (a, b) = (Slice::pattern(1, 0, 4096), Slice::pattern(2, 0, 4096));
        let all: Vec<u8> = [a.to_vec(), b.to_vec()].concat();
        let list = [a.clone(), b];
        let mut pieces = Pieces::new(&list);
        assert_eq!(pieces.take(1000).iter().map(Slice::len).collect::<Vec<_>>(), [1000]);
        let over = pieces.take(4096);
        assert_eq!(over.len(), 2, "a part of each");
        assert_eq!(join(over).to_vec(), all[1000..5096]);
        assert_eq!(join(pieces.take(9999)).to_vec(), all[5096..], "no more than there is");
        assert!(pieces.take(1).is_empty());
        // One slice is passed on as it is.
        assert_eq!(join(vec![a.clone()]).id(), a.id());
    }
}
