//! A subtree of a medium as bytes in a file.
//!
//! Layout: what entries point to; the entries, in the order of their pages; how many there are. An
//! entry is its first page, how many pages, and where what they hold starts, as a kind and
//! what that needs. A page is what differs from an earlier page of the subtree, or from zeroes.

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::SECTOR_BYTES;
use wp_base::rng::mix64;

use crate::packed::{Changes, MOST, apply, differences};
use crate::spill::Vault;
use crate::tree::{PAGE, PAGE_SECTORS, Sectors, Slot, span};
use crate::{Content, PAGE_BYTES, Page, Slice, ZERO_PAGE};

/// Height of the subtrees that are moved: 1,024 pages, so that a log that writes a dozen blocks
/// again and again has many versions of each in one of them.
pub(crate) const HEIGHT: u32 = 2;
/// Versions behind one another at most, so that one page is read without reading all.
const DEPTH: u32 = 64;
/// Bytes of an entry, and of their number.
const ENTRY: usize = 8;
const COUNT: usize = 4;
/// Says that a page's base is zeroes.
const NO_BASE: u16 = u16::MAX;

/// Kinds of what an entry points to.
const PATTERN: u8 = 0;
const REPEAT: u8 = 1;
const CHANGES: u8 = 2;
const SECTORS: u8 = 3;

/// Kinds of sectors of a page in sectors.
const SECTOR_ZERO: u8 = 0;
const SECTOR_PATTERN: u8 = 1;
const SECTOR_BYTES_HELD: u8 = 2;

/// A subtree of [`HEIGHT`] whose contents are in the vault.
pub(crate) struct Stored {
    vault: Rc<Vault>,
    at: u64,
    len: usize,
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.vault.free(self.at, self.len);
    }
}

impl Stored {
    /// Moves what `slot` holds. `None`: the vault does not take it.
    pub(crate) fn of(slot: &Slot, vault: &Rc<Vault>) -> Option<Stored> {
        let mut writer = Writer { payload: vault.scratch.take(), ..Writer::default() };
        writer.payload.clear();
        slot.each_run(HEIGHT, 0, 0, span(HEIGHT), &mut |first, pages, run| {
            // Pages of a subtree are fewer than a `u16` counts.
            writer.run(first as u16, pages as u16, run);
        });
        let bytes = writer.finish();
        let (at, len) = (vault.put(&bytes), bytes.len());
        vault.scratch.replace(bytes);
        Some(Stored { vault: vault.clone(), at: at?, len })
    }

    fn bytes(&self) -> Rc<[u8]> {
        self.vault.get(self.at, self.len)
    }

    /// Page `page` of it, as a slot of height 0.
    pub(crate) fn leaf(&self, page: u64) -> Slot {
        let bytes = self.bytes();
        let reader = Reader(&bytes);
        match reader.entry_of(page as u16) {
            Some(n) => reader.leaf(n, page as u16),
            None => Slot::Zero,
        }
    }

    /// All of it, as it was.
    pub(crate) fn load(&self) -> Slot {
        let bytes = self.bytes();
        let reader = Reader(&bytes);
        let (mut slot, mut pages) = (Slot::Zero, BTreeMap::new());
        for n in 0..reader.entries() {
            let (first, count) = reader.pages(n);
            for page in first..first + count {
                let leaf = match reader.changes(n) {
                    // The same page for all of a run.
                    Some((base, runs)) if page == first => {
                        let made = joined(&pages, base, runs);
                        pages.insert(first, made.clone());
                        Slot::Page(made)
                    }
                    Some(_) => Slot::Page(pages[&first].clone()),
                    None => reader.leaf(n, page),
                };
                slot.put(HEIGHT, u64::from(page), leaf);
            }
        }
        slot
    }
}

/// The page that differs in `runs` from `base`, which is among `pages`.
fn joined(pages: &BTreeMap<u16, Page>, base: u16, runs: &[u8]) -> Page {
    let base = pages.get(&base).cloned().unwrap_or_else(Page::zeroed);
    let depth = base.depth() + 1;
    if runs.is_empty() {
        return base;
    }
    if depth <= DEPTH && runs.len() <= MOST {
        return Page::packed(Changes::new(base, runs.into(), depth));
    }
    let mut bytes = base.bytes_now();
    apply(runs, &mut bytes);
    Page::from_bytes(&bytes)
}

/// Makes the bytes of a subtree.
#[derive(Default)]
struct Writer {
    entries: Vec<(u16, u16, u32)>,
    payload: Vec<u8>,
    /// Pages so far: by their address the page that they are, and versions below it.
    seen: BTreeMap<usize, (u16, u32)>,
    /// By the hash of a part of a page the last page that had it.
    parts: BTreeMap<u64, (u16, Page)>,
}

impl Writer {
    /// Pages `first..first + pages` hold this.
    fn run(&mut self, first: u16, pages: u16, run: &Slot) {
        match run {
            Slot::Zero => {}
            Slot::Pattern { tag, off } if self.continues(first, *tag, *off) => {
                if let Some((_, count, _)) = self.entries.last_mut() {
                    *count += pages;
                }
            }
            Slot::Pattern { tag, off } => self.stream((first, pages), PATTERN, *tag, *off),
            Slot::Repeat { tag, off } => self.stream((first, pages), REPEAT, *tag, *off),
            Slot::Page(page) => {
                self.entry(first, pages);
                self.page(first, page);
            }
            Slot::Mixed(sectors) => {
                self.entry(first, pages);
                self.sectors(sectors);
            }
            Slot::Few(_) | Slot::Node(_) | Slot::Stored(_) => unreachable!("runs are no nodes"),
        }
    }

    fn entry(&mut self, first: u16, pages: u16) {
        // A subtree has at most 4 MiB and a few bytes a page.
        self.entries.push((first, pages, self.payload.len() as u32));
    }

    /// Is this stream, from page `first` on, the rest of the one before?
    fn continues(&self, first: u16, tag: u64, off: u64) -> bool {
        let Some((at, count, from)) = self.entries.last() else { return false };
        let want = off.wrapping_sub(u64::from(*count) * PAGE);
        let mut same = vec![PATTERN];
        same.extend(tag.to_le_bytes());
        same.extend(want.to_le_bytes());
        at + count == first && self.payload[*from as usize..] == same
    }

    fn stream(&mut self, (first, pages): (u16, u16), kind: u8, tag: u64, off: u64) {
        self.entry(first, pages);
        self.payload.push(kind);
        self.payload.extend(tag.to_le_bytes());
        self.payload.extend(off.to_le_bytes());
    }

    fn page(&mut self, nth: u16, page: &Page) {
        self.payload.push(CHANGES);
        let known = page.changes().and_then(|c| Some((self.seen.get(&c.base().address())?, c)));
        let depth = if let Some(((base, depth), changes)) = known {
            self.payload.extend(base.to_le_bytes());
            self.payload.extend(changes.runs());
            depth + 1
        } else {
            self.whole(nth, page)
        };
        self.seen.insert(page.address(), (nth, depth));
    }

    /// A page whose base is not here: against one that is like it. Returns versions below it.
    fn whole(&mut self, nth: u16, page: &Page) -> u32 {
        let bytes = page.bytes_now();
        let parts = hashes(&bytes);
        let like = self.like(&parts);
        let differs = like.and_then(|(base, depth, like)| {
            Some((base, depth + 1, differences(&like.bytes_now(), &bytes, MOST)?))
        });
        let (base, depth, runs) = differs.unwrap_or_else(|| {
            let all = differences(&ZERO_PAGE, &bytes, usize::MAX);
            (NO_BASE, 1, all.unwrap_or_default())
        });
        self.payload.extend(base.to_le_bytes());
        self.payload.extend(runs);
        if depth < DEPTH {
            for part in parts.into_iter().flatten() {
                self.parts.insert(part, (nth, page.clone()));
            }
        }
        depth
    }

    /// The page that has most of these parts, and versions below it.
    fn like(&self, parts: &[Option<u64>]) -> Option<(u16, u32, &Page)> {
        let found: Vec<_> =
            parts.iter().flatten().filter_map(|part| self.parts.get(part)).collect();
        let (nth, page) =
            found.iter().max_by_key(|one| found.iter().filter(|two| one.0 == two.0).count())?;
        let (_, depth) = self.seen.get(&page.address())?;
        (*depth < DEPTH).then_some((*nth, *depth, page))
    }

    fn sectors(&mut self, sectors: &Sectors) {
        self.payload.push(SECTORS);
        for sector in sectors {
            match sector.content() {
                Content::Zero => self.payload.push(SECTOR_ZERO),
                Content::Pattern(tag) => {
                    self.payload.push(SECTOR_PATTERN);
                    self.payload.extend(tag.to_le_bytes());
                    self.payload.extend(sector.offset().to_le_bytes());
                }
                Content::Bytes(_) => {
                    self.payload.push(SECTOR_BYTES_HELD);
                    self.payload.extend(sector.to_vec());
                }
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut out = self.payload;
        for (first, pages, at) in &self.entries {
            out.extend(first.to_le_bytes());
            out.extend(pages.to_le_bytes());
            out.extend(at.to_le_bytes());
        }
        out.extend((self.entries.len() as u32).to_le_bytes());
        out
    }
}

/// Hashes of parts of a page that are not all zero: pages that have one in common are likely
/// versions of one block.
fn hashes(bytes: &[u8; PAGE_BYTES]) -> [Option<u64>; 4] {
    const PART: usize = 64;
    [0, 1024, 2048, PAGE_BYTES - PART].map(|at| {
        let (words, _) = bytes[at..at + PART].as_chunks::<8>();
        let fold = |all: u64, word: &[u8; 8]| mix64(all.rotate_left(7) ^ u64::from_le_bytes(*word));
        let is_zero = words.iter().all(|word| *word == [0; 8]);
        (!is_zero).then(|| words.iter().fold(at as u64, fold))
    })
}

/// Reads them. What cannot be read is zeroes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    fn u32(&self, at: usize) -> usize {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]]) as usize
    }

    fn entries(&self) -> usize {
        self.u32(self.0.len() - COUNT)
    }

    /// Where entry `n` stands, or what is behind them.
    fn entry(&self, n: usize) -> usize {
        self.0.len() - COUNT - (self.entries() - n) * ENTRY
    }

    /// The first page of entry `n`, and how many it has.
    fn pages(&self, n: usize) -> (u16, u16) {
        let at = self.entry(n);
        (self.u16(at), self.u16(at + 2))
    }

    /// What entry `n` points to.
    fn payload(&self, n: usize) -> &'a [u8] {
        let from = |n: usize| self.u32(self.entry(n) + 4);
        let end = if n + 1 < self.entries() { from(n + 1) } else { self.entry(0) };
        &self.0[from(n)..end]
    }

    /// The entry with this page.
    fn entry_of(&self, page: u16) -> Option<usize> {
        let (mut low, mut high) = (0, self.entries());
        while low < high {
            let mid = (low + high) / 2;
            if self.pages(mid).0 <= page { low = mid + 1 } else { high = mid }
        }
        let n = low.checked_sub(1)?;
        let (first, count) = self.pages(n);
        (page < first + count).then_some(n)
    }

    /// If entry `n` is a page: its base, and what differs.
    fn changes(&self, n: usize) -> Option<(u16, &'a [u8])> {
        match self.payload(n) {
            [CHANGES, low, high, runs @ ..] => Some((u16::from_le_bytes([*low, *high]), runs)),
            _ => None,
        }
    }

    /// Page `page` of entry `n`.
    fn leaf(&self, n: usize, page: u16) -> Slot {
        if self.changes(n).is_some() {
            return Slot::Page(Page::from_bytes(&self.page(n)));
        }
        let (kind, rest) = self.payload(n).split_at(1);
        let (words, _) = rest.as_chunks::<8>();
        let beyond = u64::from(page - self.pages(n).0) * PAGE;
        match kind[0] {
            PATTERN => {
                let [tag, off] = [0, 1].map(|i: usize| u64::from_le_bytes(words[i]));
                Slot::Pattern { tag, off: off.wrapping_add(beyond) }
            }
            REPEAT => {
                let [tag, off] = [0, 1].map(|i: usize| u64::from_le_bytes(words[i]));
                Slot::Pattern { tag, off }
            }
            _ => Slot::of_sectors(sectors(rest)),
        }
    }

    /// The bytes of entry `n`, which is a page.
    fn page(&self, n: usize) -> [u8; PAGE_BYTES] {
        let (mut way, mut next) = (Vec::new(), Some(n));
        while let Some((base, runs)) = next.and_then(|n| self.changes(n)) {
            way.push(runs);
            next = if base == NO_BASE { None } else { self.entry_of(base) };
        }
        let mut bytes = ZERO_PAGE;
        way.into_iter().rev().for_each(|runs| apply(runs, &mut bytes));
        bytes
    }
}

/// The sectors of a page in sectors. Those with bytes share a page.
fn sectors(mut rest: &[u8]) -> Sectors {
    const SECTOR: usize = SECTOR_BYTES as usize;
    let mut held = ZERO_PAGE;
    let mut kinds = Vec::new();
    for nth in 0..PAGE_SECTORS as usize {
        let (kind, behind) = rest.split_at(1);
        let len = match kind[0] {
            SECTOR_ZERO => 0,
            SECTOR_PATTERN => 16,
            _ => {
                held[nth * SECTOR..][..SECTOR].copy_from_slice(&behind[..SECTOR]);
                SECTOR
            }
        };
        let (own, behind) = behind.split_at(len);
        kinds.push((kind[0], own));
        rest = behind;
    }
    let page = Page::from_bytes(&held);
    std::array::from_fn(|nth| match kinds[nth] {
        (SECTOR_ZERO, _) => Slice::zero(SECTOR as u32),
        (SECTOR_PATTERN, own) => {
            let (words, _) = own.as_chunks::<8>();
            let [tag, off] = [0, 1].map(|i: usize| u64::from_le_bytes(words[i]));
            Slice::pattern(tag, off, SECTOR as u32)
        }
        _ => Slice::of_page(page.clone(), (nth * SECTOR) as u32, SECTOR as u32),
    })
}
