//! The persistent medium: sector to contents, cloned in O(1), sharing what did not change.
//!
//! Picture:    root -> node of 32 slots -> ... -> slot of one 4 KiB page; a slot of any height may
//!             instead be a *run*: all its pages are zero, one page, or one pattern (`tree.rs`).
//! Invariants: 1. a node that two trees share never changes: writing copies the path to it first;
//!             2. a node whose slots together are a run does not exist: it has collapsed into that
//!                run;
//!             3. `Mixed` (a page of eight sectors with contents of their own) stands at height 0
//!                only, and never where a run would say the same.
//! Left out:   a length: what was never written is zero, up to the last sector that a `u64` can
//!             name.

use std::rc::Rc;

use wp_base::{SECTOR_BYTES, Sector};

use crate::tree::{FAN, Merged, Node, PAGE, PAGE_SECTORS, Slot, index, span};
use crate::walk::{Runs, diff_slot};
use crate::{Content, PAGE_BYTES, Page, Slice, spill};

/// Contents of a device, addressed by sector. A clone costs nothing and shares everything.
///
/// Never-written and discarded places read as zero; writing zeroes is the same as discarding.
#[derive(Clone)]
pub struct Medium {
    root: Slot,
    height: u32,
}

impl Default for Medium {
    fn default() -> Medium {
        Medium::new()
    }
}

impl std::fmt::Debug for Medium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (runs, sectors) = self.runs().fold((0u64, 0u64), |(n, s), (_, len)| (n + 1, s + len));
        write!(f, "Medium({sectors} sectors in {runs} runs, {} nodes)", self.memory_nodes())
    }
}

impl Medium {
    /// All zero.
    pub fn new() -> Medium {
        Medium { root: Slot::Zero, height: 0 }
    }

    /// Writes `data` at `at`, by reference. Panics unless `data.len()` is a multiple of 512.
    pub fn write(&mut self, at: Sector, data: &Slice) {
        assert!(
            u64::from(data.len()).is_multiple_of(SECTOR_BYTES),
            "{} bytes are not sectors",
            data.len()
        );
        let (mut sector, mut done) = (at.0, 0u32);
        while done < data.len() {
            let left = data.len() - done;
            let (page, first) = (sector / PAGE_SECTORS, sector % PAGE_SECTORS);
            let took = if first == 0 && u64::from(left) >= PAGE {
                let (slot, pages) = match data.content() {
                    Content::Zero => (Slot::Zero, u64::from(left) / PAGE),
                    Content::Pattern(tag) => (
                        Slot::Pattern {
                            tag: *tag,
                            off: data.offset().wrapping_add(u64::from(done)),
                        },
                        u64::from(left) / PAGE,
                    ),
                    // No slice reaches beyond its page, so this is the whole of it.
                    Content::Bytes(p) => (Slot::Page(p.clone()), 1),
                };
                self.fill(page, pages, slot);
                pages * PAGE
            } else {
                let n = (PAGE_SECTORS - first).min(u64::from(left) / SECTOR_BYTES);
                self.set_sectors(page, first, &data.sub(done, (n * SECTOR_BYTES) as u32));
                n * SECTOR_BYTES
            };
            sector += took / SECTOR_BYTES;
            done += took as u32;
        }
        if spill::over() {
            self.spill();
        }
    }

    /// Moves to the file what memory has no room for. Only what no other medium shares: that would
    /// free nothing.
    #[cold]
    fn spill(&mut self) {
        spill::sweep(|vault, all| self.root.store_cold(self.height, vault, all));
    }

    /// Makes `sectors` from `at` zero.
    pub fn discard(&mut self, at: Sector, sectors: u64) {
        let (mut sector, end) = (at.0, at.0 + sectors);
        while sector < end {
            let (page, first) = (sector / PAGE_SECTORS, sector % PAGE_SECTORS);
            let left = end - sector;
            if first == 0 && left >= PAGE_SECTORS {
                let pages = left / PAGE_SECTORS;
                self.fill(page, pages, Slot::Zero);
                sector += pages * PAGE_SECTORS;
            } else {
                let n = (PAGE_SECTORS - first).min(left);
                self.set_sectors(page, first, &Slice::zero((n * SECTOR_BYTES) as u32));
                sector += n;
            }
        }
    }

    /// What stands in `sectors` from `at`, in order. Neighbours that continue one another come as
    /// one slice.
    pub fn read(&self, at: Sector, sectors: u32) -> Vec<Slice> {
        let (page, first) = (at.0 / PAGE_SECTORS, at.0 % PAGE_SECTORS);
        let sectors = u64::from(sectors);
        if sectors > 0 && first + sectors <= PAGE_SECTORS {
            // One page, nearly always: no walk, no merging of more than eight.
            let leaf = self.leaf(page);
            if !matches!(leaf, Slot::Mixed(_)) {
                let whole = leaf.page_slice();
                return vec![
                    whole.sub((first * SECTOR_BYTES) as u32, (sectors * SECTOR_BYTES) as u32),
                ];
            }
        }
        let mut out = Merged(Vec::new());
        let end = at.0 + sectors;
        let pages = (page, end.div_ceil(PAGE_SECTORS));
        self.each_run(pages.0, pages.1, &mut |run_page, n, slot| {
            // The part of this run that was asked for, in bytes from the run's start.
            let run_at = run_page * PAGE_SECTORS;
            let from = at.0.saturating_sub(run_at) * SECTOR_BYTES;
            let to = (end - run_at).min(n * PAGE_SECTORS) * SECTOR_BYTES;
            slot.slices(from, to, &mut out);
        });
        out.0
    }

    /// Copies bytes from byte address `at_byte` to all of `out`.
    pub fn read_bytes(&self, at_byte: u64, out: &mut [u8]) {
        let mut done = 0usize;
        while done < out.len() {
            let at = at_byte + done as u64;
            let off = (at % PAGE) as usize;
            let n = (PAGE_BYTES - off).min(out.len() - done);
            self.leaf(at / PAGE).copy_to(off, &mut out[done..done + n]);
            done += n;
        }
    }

    /// Copies `bytes` to byte address `at_byte`. Sectors of which only a part is written keep the
    /// rest.
    pub fn write_bytes(&mut self, at_byte: u64, bytes: &[u8]) {
        let mut done = 0usize;
        while done < bytes.len() {
            let at = at_byte + done as u64;
            let off = (at % PAGE) as usize;
            let n = (PAGE_BYTES - off).min(bytes.len() - done);
            let sector = SECTOR_BYTES as usize;
            let (from, to) = (off / sector * sector, (off + n).div_ceil(sector) * sector);
            let mut page = Page::zeroed();
            let held = page.make_mut();
            self.leaf(at / PAGE).copy_to(from, &mut held[from..to]);
            held[off..off + n].copy_from_slice(&bytes[done..done + n]);
            let first = at / PAGE * PAGE_SECTORS + (from / sector) as u64;
            self.write(Sector(first), &Slice::of_page(page, from as u32, (to - from) as u32));
            done += n;
        }
    }

    /// Allocated runs in order: (first sector, sectors), neighbours joined. Everything between them
    /// is zero.
    pub fn runs(&self) -> impl Iterator<Item = (Sector, u64)> + '_ {
        Runs::new(&self.root, self.height)
    }

    /// Lays what `other` holds over this, `by` sectors further on. Costs what `other` holds, in
    /// references.
    pub fn lay(&mut self, other: &Medium, by: u64) {
        /// Sectors that are moved at once.
        const STEP: u64 = 1 << 12;
        for (at, sectors) in other.runs() {
            let mut done = 0;
            while done < sectors {
                let n = (sectors - done).min(STEP) as u32;
                let mut to = at.advance(done + by);
                for slice in other.read(at.advance(done), n) {
                    self.write(to, &slice);
                    to = to.advance(u64::from(slice.len()) / SECTOR_BYTES);
                }
                done += u64::from(n);
            }
        }
    }

    /// The same contents `by` sectors further on.
    pub fn moved(&self, by: u64) -> Medium {
        let mut out = Medium::new();
        out.lay(self, by);
        out
    }

    /// Calls `f(first sector, sectors)` for every place, of a page or less, where the contents
    /// differ, in order.
    ///
    /// Costs nothing for what the two share; contents held apart are compared.
    pub fn diff(&self, other: &Medium, f: &mut dyn FnMut(Sector, u32)) {
        let height = self.height.max(other.height);
        let (a, b) = (self.raised(height), other.raised(height));
        diff_slot(&a, &b, height, 0, f);
    }

    /// Nodes of the tree, those of partly written pages included: what it costs in memory besides
    /// its pages, in units of less than 1 KiB.
    pub fn memory_nodes(&self) -> usize {
        self.root.nodes()
    }

    /// Looks at the way to `at` and what holds it there, so that a write there soon finds it in the
    /// CPU's cache.
    ///
    /// Several of these one after the other wait for memory at once, where writes would wait for
    /// each in turn: half of the time of a random write. Returns a number of no meaning, for the
    /// compiler not to drop the work.
    #[inline]
    pub fn touch(&self, at: Sector) -> usize {
        let page = at.0 / PAGE_SECTORS;
        let mut height = self.height;
        let mut seen = 0;
        if page < span(height) {
            let mut slot = &self.root;
            loop {
                match slot {
                    Slot::Node(node) => {
                        seen ^= Rc::strong_count(node);
                        height -= 1;
                        slot = &node.slots[index(page, height)];
                    }
                    Slot::Few(few) => return seen ^ Rc::strong_count(few),
                    Slot::Zero => return seen,
                    _ => return seen + 1,
                }
            }
        }
        seen
    }

    /// The root as it would be in a tree of `height`.
    fn raised(&self, height: u32) -> Slot {
        let mut slot = self.root.clone();
        for _ in self.height..height {
            if !matches!(slot, Slot::Zero) {
                let mut slots = [const { Slot::Zero }; FAN];
                slots[0] = slot;
                slot = Slot::Node(Rc::new(Node::new(slots)));
            }
        }
        slot
    }

    /// Makes `pages` from `page` the run `slot`, whose first page is at `page`.
    fn fill(&mut self, page: u64, pages: u64, slot: Slot) {
        let mut height = self.height;
        while span(height) < page + pages {
            height += 1;
        }
        if height > self.height {
            self.root = self.raised(height);
            self.height = height;
        }
        if pages == 1 {
            self.root.put(height, page, slot);
        } else {
            self.root.fill(height, page, page + pages, &slot);
        }
    }

    /// Replaces sectors of `page` from `first` by `data`.
    fn set_sectors(&mut self, page: u64, first: u64, data: &Slice) {
        let mut sectors = self.leaf(page).sectors();
        let n = u64::from(data.len()) / SECTOR_BYTES;
        for i in 0..n {
            sectors[(first + i) as usize] =
                data.sub((i * SECTOR_BYTES) as u32, SECTOR_BYTES as u32);
        }
        self.fill(page, 1, Slot::of_sectors(sectors));
    }

    /// The slot of one page, as it would be at height 0.
    fn leaf(&self, page: u64) -> Slot {
        let mut height = self.height;
        if page >= span(height) {
            return Slot::Zero;
        }
        let mut slot = &self.root;
        loop {
            if let Slot::Stored(stored) = slot {
                return stored.leaf(page & (span(height) - 1));
            }
            match slot.under(page, height) {
                Ok(child) => {
                    height -= 1;
                    slot = child;
                }
                Err(run) => return run.skip(height, page & (span(height) - 1)),
            }
        }
    }

    /// Calls `f(first page, pages, run or Mixed)` for all of pages `from..to`, in order.
    fn each_run(&self, from: u64, to: u64, f: &mut dyn FnMut(u64, u64, &Slot)) {
        let have = span(self.height);
        if from < to.min(have) {
            self.root.each_run(self.height, 0, from, to.min(have), f);
        }
        if to > have.max(from) {
            let start = have.max(from);
            f(start, to - start, &Slot::Zero);
        }
    }
}
