//! The tree under a [`crate::Medium`]: slots, nodes, and the runs that they collapse into.

use std::rc::Rc;

use wp_base::SECTOR_BYTES;

use crate::spill::{Vault, Weight};
use crate::stored::{self, Stored};
use crate::{Content, PAGE_BYTES, Page, Slice};

/// Base-2 logarithm of the slots of a node. With 16 slots a write after a clone is cheaper by a
/// seventh and reading dearer by a third; with 64 both lose (`benches/medium.rs`).
pub(crate) const FAN_BITS: u32 = 5;
pub(crate) const FAN: usize = 1 << FAN_BITS;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
/// Sectors in a page.
pub(crate) const PAGE_SECTORS: u64 = PAGE / SECTOR_BYTES;
/// Longest slice that reading makes, so that lengths never outgrow their `u32`.
pub(crate) const SLICE_MAX: u64 = 1 << 30;

/// Eight sectors of one page, each with its own contents of 512 bytes.
pub(crate) type Sectors = [Slice; PAGE_SECTORS as usize];

/// The pages of a subtree; of one page at height 0, of 32 times more at each height above.
#[derive(Clone)]
pub(crate) enum Slot {
    /// All zero.
    Zero,
    /// One stream over all pages: page `i` starts at `off + 4096 * i`.
    Pattern { tag: u64, off: u64 },
    /// The same piece of a stream in every page. Not at height 0, where `Pattern` says it.
    Repeat { tag: u64, off: u64 },
    /// Every page is this one.
    Page(Page),
    /// A page in sectors. Height 0 only.
    Mixed(Rc<Sectors>),
    /// A run with a few exceptions. Not at height 0.
    Few(Rc<Few>),
    /// Anything else. Not at height 0.
    Node(Rc<Node>),
    /// A node, or a run with exceptions, that memory has no room for. At [`stored::HEIGHT`] only.
    Stored(Rc<Stored>),
}

/// Exceptions that a `Few` holds: with 3 it is a sixth of a node.
pub(crate) const FEW: usize = 3;

/// A node nearly all of whose slots are the children of one run: what places written at random
/// start as.
#[derive(Clone)]
pub(crate) struct Few {
    /// The run, as it would be in place of this.
    pub(crate) rest: Slot,
    /// How many of the exceptions are in use.
    used: usize,
    /// Which slots they are, ascending.
    at: [u8; FEW],
    slots: [Slot; FEW],
}

pub(crate) struct Node {
    pub(crate) slots: [Slot; FAN],
    /// Written to since memory last ran out.
    fresh: bool,
    _weight: Weight,
}

impl Clone for Node {
    /// What a write after a clone pays at each level; the array's own clone is twice as slow.
    fn clone(&self) -> Node {
        Node::new(std::array::from_fn(|i| self.slots[i].clone()))
    }
}

/// Pages under a slot at `height`; saturates above what a `u64` can count.
pub(crate) fn span(height: u32) -> u64 {
    1u64.checked_shl(FAN_BITS * height).unwrap_or(u64::MAX)
}

/// Which slot of a node holds `page`, where its slots have `height`.
pub(crate) fn index(page: u64, height: u32) -> usize {
    (page >> (FAN_BITS * height)) as usize & (FAN - 1)
}

impl Slot {
    /// What a run of `height` is from its page `pages` on, as a leaf.
    pub(crate) fn skip(&self, height: u32, pages: u64) -> Slot {
        match self {
            Slot::Pattern { tag, off } => {
                Slot::Pattern { tag: *tag, off: off.wrapping_add(pages * PAGE) }
            }
            Slot::Repeat { tag, off } if height > 0 => Slot::Pattern { tag: *tag, off: *off },
            other => other.clone(),
        }
    }

    /// Child `i` of a slot at `height`, which is not 0.
    pub(crate) fn child(&self, height: u32, i: usize) -> Slot {
        match self {
            Slot::Node(node) => node.slots[i].clone(),
            Slot::Few(few) => few.get(i).cloned().unwrap_or_else(|| few.rest.child(height, i)),
            Slot::Repeat { .. } if height > 1 => self.clone(),
            Slot::Stored(stored) => stored.load().child(height, i),
            _ => self.skip(height, i as u64 * span(height - 1)),
        }
    }

    /// The slot below that holds `page`, or, where there is none, the run (or page) that does;
    /// `height` is this one's.
    pub(crate) fn under(&self, page: u64, height: u32) -> Result<&Slot, &Slot> {
        match self {
            Slot::Node(node) => Ok(&node.slots[index(page, height - 1)]),
            Slot::Few(few) => few.get(index(page, height - 1)).ok_or(&few.rest),
            run => Err(run),
        }
    }

    /// Is it one content all over?
    pub(crate) fn is_run(&self) -> bool {
        !matches!(self, Slot::Mixed(_) | Slot::Few(_) | Slot::Node(_) | Slot::Stored(_))
    }

    /// Are they the same thing, as far as can be told without looking at bytes?
    pub(crate) fn same(&self, other: &Slot) -> bool {
        match (self, other) {
            (Slot::Zero, Slot::Zero) => true,
            (Slot::Pattern { tag: a, off: x }, Slot::Pattern { tag: b, off: y })
            | (Slot::Repeat { tag: a, off: x }, Slot::Repeat { tag: b, off: y }) => {
                a == b && x == y
            }
            (Slot::Page(a), Slot::Page(b)) => a.same(b),
            (Slot::Mixed(a), Slot::Mixed(b)) => Rc::ptr_eq(a, b),
            (Slot::Few(a), Slot::Few(b)) => Rc::ptr_eq(a, b),
            (Slot::Node(a), Slot::Node(b)) => Rc::ptr_eq(a, b),
            (Slot::Stored(a), Slot::Stored(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The node here, for writing: made from what is here, or copied if shared.
    pub(crate) fn node_mut(&mut self, height: u32) -> &mut Node {
        self.fetch();
        if !matches!(self, Slot::Node(_)) {
            let slots = std::array::from_fn(|i| self.child(height, i));
            *self = Slot::Node(Rc::new(Node::new(slots)));
        }
        match self {
            Slot::Node(node) => {
                let node = Rc::make_mut(node);
                node.fresh = true;
                node
            }
            _ => unreachable!("just made"),
        }
    }

    /// Back into memory with it, if it is in the file.
    fn fetch(&mut self) {
        if let Slot::Stored(stored) = self {
            *self = stored.load();
        }
    }

    /// Moves to `vault` what stands here and is not shared; `all`: also what was written to since
    /// the last time.
    pub(crate) fn store_cold(&mut self, height: u32, vault: &Rc<Vault>, all: bool) {
        let (slots, fresh) = match self {
            Slot::Node(node) => {
                let Some(node) = Rc::get_mut(node) else { return };
                (&mut node.slots[..], std::mem::take(&mut node.fresh))
            }
            Slot::Few(few) => {
                let Some(few) = Rc::get_mut(few) else { return };
                (&mut few.slots[..few.used], false)
            }
            _ => return,
        };
        if height > stored::HEIGHT {
            slots.iter_mut().for_each(|slot| slot.store_cold(height - 1, vault, all));
        } else if height == stored::HEIGHT
            && (all || !fresh)
            && let Some(moved) = Stored::of(self, vault)
        {
            *self = Slot::Stored(Rc::new(moved));
        }
    }

    /// Puts `leaf` at `page`, of which the bits above `height` do not matter.
    pub(crate) fn put(&mut self, height: u32, page: u64, leaf: Slot) {
        // Through the nodes that are there already, which stay nodes unless the last one collapses.
        let (mut slot, mut at) = (&mut *self, height);
        while at > 1
            && let Slot::Node(node) = slot
        {
            at -= 1;
            let node = Rc::make_mut(node);
            node.fresh = true;
            slot = &mut node.slots[index(page, at)];
        }
        if slot.put_below(at, page, leaf) && at < height {
            self.collapse(height, at, page);
        }
    }

    /// The slot of height `below` over `page` has become a run: the nodes above may collapse.
    fn collapse(&mut self, height: u32, below: u32, page: u64) {
        let node = self.node_mut(height);
        let i = index(page, height - 1);
        if height - 1 > below {
            node.slots[i].collapse(height - 1, below, page);
        }
        if node.slots[i].is_run()
            && let Some(run) = node.collapsed(height, i)
        {
            *self = run;
        }
    }

    /// As [`Slot::put`]. Says whether this became a run, so that the node above may collapse.
    fn put_below(&mut self, height: u32, page: u64, leaf: Slot) -> bool {
        if height == 0 {
            *self = leaf;
            return self.is_run();
        }
        let i = index(page, height - 1);
        self.fetch();
        if self.is_run() {
            if self.skip(height, page & (span(height) - 1)).same(&leaf) {
                return false;
            }
            let none = [Slot::Zero, Slot::Zero, Slot::Zero];
            let few = Few { rest: self.clone(), used: 0, at: [0; FEW], slots: none };
            *self = Slot::Few(Rc::new(few));
        }
        if let Slot::Few(few) = self {
            if few.get(i).is_none() && few.rest.skip(height, page & (span(height) - 1)).same(&leaf)
            {
                return false;
            }
            let few = Rc::make_mut(few);
            if let Some(exception) = few.get_or_make(height, i) {
                if exception.put_below(height - 1, page, leaf) && few.drop_if_none(height, i) {
                    *self = few.rest.clone();
                    return true;
                }
                return false;
            }
        }
        let node = self.node_mut(height);
        let is_run = node.slots[i].put_below(height - 1, page, leaf);
        if is_run && let Some(run) = node.collapsed(height, i) {
            *self = run;
            return true;
        }
        false
    }

    /// Makes its pages `from..to` the run `src`, whose page 0 is at `from`. Pages count from the
    /// slot's first.
    pub(crate) fn fill(&mut self, height: u32, from: u64, to: u64, src: &Slot) {
        if to - from == span(height) {
            *self = src.clone();
            return;
        }
        if self.is_run() && self.offset(from).same(src) {
            return;
        }
        let node = self.node_mut(height);
        let below = span(height - 1);
        let first = index(from, height - 1);
        let mut at = from;
        while at < to {
            let i = index(at, height - 1);
            let base = i as u64 * below;
            let end = to.min(base + below);
            // Sources are zero or a stream, never `Repeat`, so skipping keeps them what they are.
            node.slots[i].fill(height - 1, at - base, end - base, &src.skip(0, at - from));
            at = end;
        }
        if let Some(run) = node.collapsed(height, first) {
            *self = run;
        }
    }

    pub(crate) fn each_run(
        &self,
        height: u32,
        base: u64,
        from: u64,
        to: u64,
        f: &mut dyn FnMut(u64, u64, &Slot),
    ) {
        let mut at = from;
        if let Slot::Stored(stored) = self {
            // Few of its pages, mostly: all of it would be a thousand.
            (from..to).for_each(|at| f(at, 1, &stored.leaf(at - base)));
            return;
        }
        while at < to {
            match self.under(at - base, height) {
                Ok(child) => {
                    let below = span(height - 1);
                    let child_base = base + (at - base) / below * below;
                    let end = to.min(child_base + below);
                    child.each_run(height - 1, child_base, at, end, f);
                    at = end;
                }
                Err(run) => {
                    // Of a `Few`, up to the next slot; of a run, all.
                    let end = if self.is_run() {
                        to
                    } else {
                        to.min(base + self.next_slot(at - base, height))
                    };
                    f(at, end - at, &run.offset(at - base));
                    at = end;
                }
            }
        }
    }

    /// Where the slot after that of page `page` starts, both counted from this one's first.
    pub(crate) fn next_slot(&self, page: u64, height: u32) -> u64 {
        if height == 0 {
            return 1;
        }
        let below = span(height - 1);
        (page / below + 1) * below
    }

    /// A run from its page `pages` on, as the run that it is.
    pub(crate) fn offset(&self, pages: u64) -> Slot {
        match self {
            Slot::Pattern { tag, off } => {
                Slot::Pattern { tag: *tag, off: off.wrapping_add(pages * PAGE) }
            }
            run => run.clone(),
        }
    }

    /// A leaf that is not `Mixed`, as a slice of 4096 bytes.
    pub(crate) fn page_slice(&self) -> Slice {
        match self {
            Slot::Zero => Slice::zero(PAGE_BYTES as u32),
            Slot::Pattern { tag, off } | Slot::Repeat { tag, off } => {
                Slice::pattern(*tag, *off, PAGE_BYTES as u32)
            }
            Slot::Page(page) => Slice::of_page(page.clone(), 0, PAGE_BYTES as u32),
            Slot::Mixed(_) | Slot::Few(_) | Slot::Node(_) | Slot::Stored(_) => {
                unreachable!("not one slice")
            }
        }
    }

    /// A leaf as its sectors.
    pub(crate) fn sectors(&self) -> Sectors {
        if let Slot::Mixed(sectors) = self {
            return Sectors::clone(sectors);
        }
        let whole = self.page_slice();
        std::array::from_fn(|i| whole.sub(i as u32 * SECTOR_BYTES as u32, SECTOR_BYTES as u32))
    }

    /// The leaf that these sectors make.
    pub(crate) fn of_sectors(sectors: Sectors) -> Slot {
        if sectors.windows(2).all(|w| w[0].continues_with(&w[1])) {
            match sectors[0].content() {
                Content::Zero => return Slot::Zero,
                Content::Pattern(tag) => {
                    return Slot::Pattern { tag: *tag, off: sectors[0].offset() };
                }
                // Eight that continue one another fill the page, so they start at its start.
                Content::Bytes(page) => return Slot::Page(page.clone()),
            }
        }
        Slot::Mixed(Rc::new(sectors))
    }

    /// Bytes of a leaf from `off` to all of `out`.
    pub(crate) fn copy_to(&self, off: usize, out: &mut [u8]) {
        match self {
            Slot::Zero => out.fill(0),
            Slot::Page(page) => out.copy_from_slice(&page.bytes()[off..off + out.len()]),
            Slot::Mixed(sectors) => {
                let sector = SECTOR_BYTES as usize;
                let mut done = 0;
                while done < out.len() {
                    let (i, skip) = ((off + done) / sector, (off + done) % sector);
                    let n = (sector - skip).min(out.len() - done);
                    sectors[i].sub(skip as u32, n as u32).copy_to(&mut out[done..done + n]);
                    done += n;
                }
            }
            _ => self.page_slice().sub(off as u32, out.len() as u32).copy_to(out),
        }
    }

    /// Bytes `from..to` of a run (or of one `Mixed` page), as slices.
    pub(crate) fn slices(&self, from: u64, to: u64, out: &mut Merged) {
        match self {
            Slot::Zero => pieces(from, to, SLICE_MAX, |_, len| out.push(Slice::zero(len))),
            Slot::Pattern { tag, off } => {
                pieces(from, to, SLICE_MAX, |at, len| {
                    out.push(Slice::pattern(*tag, off.wrapping_add(at), len))
                });
            }
            Slot::Repeat { .. } | Slot::Page(_) => {
                let page = self.page_slice();
                pieces(from, to, PAGE, |at, len| out.push(page.sub((at % PAGE) as u32, len)));
            }
            Slot::Mixed(sectors) => {
                pieces(from, to, SECTOR_BYTES, |at, _| {
                    out.push(sectors[(at / SECTOR_BYTES) as usize].clone())
                });
            }
            Slot::Few(_) | Slot::Node(_) | Slot::Stored(_) => unreachable!("runs are no nodes"),
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        match self {
            Slot::Node(node) => 1 + node.slots.iter().map(Slot::nodes).sum::<usize>(),
            Slot::Few(few) => 1 + few.slots.iter().map(Slot::nodes).sum::<usize>(),
            Slot::Mixed(_) | Slot::Stored(_) => 1,
            _ => 0,
        }
    }
}

impl Few {
    fn place(&self, i: usize) -> Option<usize> {
        self.at[..self.used].iter().position(|at| usize::from(*at) == i)
    }

    /// Slot `i`, if it is an exception.
    pub(crate) fn get(&self, i: usize) -> Option<&Slot> {
        self.place(i).map(|place| &self.slots[place])
    }

    /// Slot `i` as an exception; `None` if there is no room for one more. `height` is that of this.
    fn get_or_make(&mut self, height: u32, i: usize) -> Option<&mut Slot> {
        if let Some(place) = self.place(i) {
            return Some(&mut self.slots[place]);
        }
        if self.used == FEW {
            return None;
        }
        let place = self.at[..self.used].iter().filter(|at| usize::from(**at) < i).count();
        self.at[place..=self.used].rotate_right(1);
        self.slots[place..=self.used].rotate_right(1);
        // Slots of a node are fewer than 256.
        self.at[place] = i as u8;
        self.slots[place] = self.rest.child(height, i);
        self.used += 1;
        Some(&mut self.slots[place])
    }

    /// Exception `i` has become a run: is it an exception still? If not, forgets it; says whether
    /// none is left.
    fn drop_if_none(&mut self, height: u32, i: usize) -> bool {
        if let Some(place) = self.place(i)
            && self.slots[place].same(&self.rest.child(height, i))
        {
            self.at[place..self.used].rotate_left(1);
            self.slots[place..self.used].rotate_left(1);
            self.used -= 1;
            self.slots[self.used] = Slot::Zero;
        }
        self.used == 0
    }
}

impl Node {
    pub(crate) fn new(slots: [Slot; FAN]) -> Node {
        Node { slots, fresh: true, _weight: Weight::new(size_of::<Node>()) }
    }

    /// The run that the slots together are, if they are; `height` is the node's, slot `changed` was
    /// written.
    fn collapsed(&self, height: u32, changed: usize) -> Option<Slot> {
        // The neighbour, in the same cache line mostly, refuses nearly everybody.
        let joins = match (&self.slots[changed], &self.slots[changed ^ 1]) {
            (Slot::Pattern { tag: a, .. }, Slot::Pattern { tag: b, .. }) => a == b,
            (a, b) => a.same(b),
        };
        if !joins {
            return None;
        }
        // Then first against last: whoever fills in order is refused until the end.
        let step = span(height - 1) * PAGE;
        let (first, last) = (&self.slots[0], &self.slots[FAN - 1]);
        match (first, last) {
            (Slot::Pattern { tag, off }, Slot::Pattern { tag: b, off: end }) if tag == b => {
                let stride = if *end == off.wrapping_add(step * (FAN as u64 - 1)) {
                    step
                } else if height == 1 && end == off {
                    0
                } else {
                    return None;
                };
                let all = self.slots.iter().enumerate().all(|(i, slot)| {
                    let want = off.wrapping_add(stride * i as u64);
                    matches!(slot, Slot::Pattern { tag: t, off: o } if t == tag && *o == want)
                });
                match (all, stride) {
                    (false, _) => None,
                    (true, 0) => Some(Slot::Repeat { tag: *tag, off: *off }),
                    (true, _) => Some(first.clone()),
                }
            }
            (Slot::Zero, Slot::Zero)
            | (Slot::Repeat { .. }, Slot::Repeat { .. })
            | (Slot::Page(_), Slot::Page(_)) => {
                // From the end: a fill in order meets the first difference at once.
                self.slots.iter().rev().all(|slot| slot.same(first)).then(|| first.clone())
            }
            _ => None,
        }
    }
}

/// Calls `f(at, len)` for `from..to` cut at multiples of `unit`.
pub(crate) fn pieces(from: u64, to: u64, unit: u64, mut f: impl FnMut(u64, u32)) {
    let mut at = from;
    while at < to {
        let end = to.min((at / unit + 1) * unit);
        f(at, (end - at) as u32);
        at = end;
    }
}

/// Slices in order, neighbours joined where they continue one another.
pub(crate) struct Merged(pub(crate) Vec<Slice>);

impl Merged {
    pub(crate) fn push(&mut self, next: Slice) {
        if let Some(last) = self.0.last_mut()
            && last.continues_with(&next)
            && u64::from(last.len()) + u64::from(next.len()) <= SLICE_MAX
        {
            let len = last.len() + next.len();
            *last = match last.content() {
                Content::Zero => Slice::zero(len),
                Content::Pattern(tag) => Slice::pattern(*tag, last.offset(), len),
                Content::Bytes(page) => Slice::of_page(page.clone(), last.offset() as u32, len),
            };
        } else {
            self.0.push(next);
        }
    }
}
