//! Walking a tree: what is allocated, and where two differ.

use wp_base::Sector;

use crate::tree::{FAN, PAGE_SECTORS, Slot, span};
use crate::{Content, Slice};

/// Iterator behind [`Medium::runs`].
pub(crate) struct Runs<'a> {
    /// What is still to visit, the next one last.
    stack: Vec<Visit<'a>>,
    /// The run that may still grow.
    open: Option<(u64, u64)>,
}

pub(crate) enum Visit<'a> {
    /// A slot: itself, its height, its first page.
    Slot(&'a Slot, u32, u64),
    /// Allocated: first sector, sectors.
    Sectors(u64, u64),
}

impl Runs<'_> {
    pub(crate) fn new(root: &Slot, height: u32) -> Runs<'_> {
        Runs { stack: vec![Visit::Slot(root, height, 0)], open: None }
    }

    /// The next allocated piece, not joined.
    fn piece(&mut self) -> Option<(u64, u64)> {
        loop {
            let (slot, height, base) = match self.stack.pop()? {
                Visit::Sectors(at, n) => return Some((at, n)),
                Visit::Slot(slot, height, base) => (slot, height, base),
            };
            let first = |i: usize| base + i as u64 * span(height - 1);
            match slot {
                Slot::Zero => {}
                Slot::Node(node) => {
                    let children = node.slots.iter().enumerate().rev();
                    self.stack.extend(children.map(|(i, s)| Visit::Slot(s, height - 1, first(i))));
                }
                Slot::Few(few) => {
                    for i in (0..FAN).rev() {
                        match few.get(i) {
                            Some(slot) => self.stack.push(Visit::Slot(slot, height - 1, first(i))),
                            None if matches!(few.rest, Slot::Zero) => {}
                            None => {
                                let (at, n) =
                                    (first(i) * PAGE_SECTORS, span(height - 1) * PAGE_SECTORS);
                                self.stack.push(Visit::Sectors(at, n));
                            }
                        }
                    }
                }
                Slot::Stored(stored) => {
                    let first = base * PAGE_SECTORS;
                    let held: Vec<_> = Runs::new(&stored.load(), height).collect();
                    let held = held.into_iter().rev();
                    self.stack.extend(held.map(|(at, n)| Visit::Sectors(first + at.0, n)));
                }
                Slot::Mixed(sectors) => {
                    let held = sectors.iter().enumerate().rev();
                    let held = held.filter(|(_, s)| !matches!(s.content(), Content::Zero));
                    let sector = |i: usize| base * PAGE_SECTORS + i as u64;
                    self.stack.extend(held.map(|(i, _)| Visit::Sectors(sector(i), 1)));
                }
                _ => return Some((base * PAGE_SECTORS, span(height) * PAGE_SECTORS)),
            }
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = (Sector, u64);

    fn next(&mut self) -> Option<(Sector, u64)> {
        loop {
            match (self.piece(), self.open) {
                (Some((at, n)), Some((start, len))) if start + len == at => {
                    self.open = Some((start, len + n))
                }
                (next, open) => {
                    self.open = next;
                    match (open, next) {
                        (Some((at, n)), _) => return Some((Sector(at), n)),
                        (None, None) => return None,
                        (None, Some(_)) => {}
                    }
                }
            }
        }
    }
}

pub(crate) fn diff_slot(
    a: &Slot,
    b: &Slot,
    height: u32,
    base: u64,
    f: &mut dyn FnMut(Sector, u32),
) {
    if a.same(b) {
        return;
    }
    if height == 0 {
        return diff_page(a, b, base * PAGE_SECTORS, f);
    }
    if let Slot::Stored(stored) = a {
        return diff_slot(&stored.load(), b, height, base, f);
    }
    if let Slot::Stored(stored) = b {
        return diff_slot(a, &stored.load(), height, base, f);
    }
    for i in 0..FAN {
        let base = base + i as u64 * span(height - 1);
        // Nodes of both are the usual case, and need no clone of their slots.
        match (a, b) {
            (Slot::Node(a), Slot::Node(b)) => {
                diff_slot(&a.slots[i], &b.slots[i], height - 1, base, f)
            }
            _ => diff_slot(&a.child(height, i), &b.child(height, i), height - 1, base, f),
        }
    }
}

/// Reports where two leaves that are not the same thing differ in bytes.
pub(crate) fn diff_page(a: &Slot, b: &Slot, at: u64, f: &mut dyn FnMut(Sector, u32)) {
    if !matches!(a, Slot::Mixed(_)) && !matches!(b, Slot::Mixed(_)) {
        if !equal(&a.page_slice(), &b.page_slice()) {
            f(Sector(at), PAGE_SECTORS as u32);
        }
        return;
    }
    let (a, b) = (a.sectors(), b.sectors());
    let mut i = 0;
    while i < a.len() {
        let from = i;
        while i < a.len() && !equal(&a[i], &b[i]) {
            i += 1;
        }
        if i > from {
            f(Sector(at + from as u64), (i - from) as u32);
        }
        i += 1;
    }
}

/// Same bytes? Two streams, or a stream and bytes, nearly always differ in their first word
/// already.
pub(crate) fn equal(a: &Slice, b: &Slice) -> bool {
    if let (Content::Bytes(x), Content::Bytes(y)) = (a.content(), b.content()) {
        let (i, j, n) = (a.offset() as usize, b.offset() as usize, a.len() as usize);
        return x.bytes()[i..i + n] == y.bytes()[j..j + n];
    }
    let mut words = [[0u8; 8]; 2];
    a.sub(0, 8).copy_to(&mut words[0]);
    b.sub(0, 8).copy_to(&mut words[1]);
    words[0] == words[1] && a == b
}
