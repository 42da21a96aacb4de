//! Reading an image, whatever holds it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::crc::crc32_le;
use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector, Zone};

use crate::{Medium, Page, Slice};

/// A readable block device or image, for code that recovers, checks or lists without a runtime.
pub trait View {
    /// Its length in bytes.
    fn len_bytes(&self) -> u64;
    /// Fills `out` from byte address `at`. Errors: `Io` if the range is not all there or cannot be
    /// read.
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()>;
    /// Are these bytes the same in every view of the set that this one belongs to (crash states of
    /// a few runs, say)? No does not say that they differ.
    fn is_fixed(&self, _at: u64, _bytes: u64) -> bool {
        false
    }
    /// Is `sum` the CRC-32 ([`crc32_le`]) of `bytes` bytes from `at` on, begun with `seed`?
    ///
    /// For a reader to whom a wrong checksum says all: it learns nothing else of these bytes, so
    /// that states that differ in how they are wrong are one to it. Errors: `Io`, as for reads.
    fn has_crc32(&self, at: u64, bytes: u64, sums: (u32, u32)) -> FsResult<bool> {
        reads_to(self, at, bytes, sums)
    }
    /// The page at byte address `at`, a multiple of 4096, by reference: for a reader that copies it
    /// or needs its checksum. It counts as a read of these bytes.
    ///
    /// `None`: this view has no pages, or not a whole one there. Errors: as for reads.
    fn page_at(&self, _at: u64) -> FsResult<Option<Page>> {
        Ok(None)
    }
    /// The zones of a zoned device, in order, addressed as the view is: what a report says, with
    /// the write pointers that a recovery begins with. None of any other.
    fn zones(&self) -> Vec<Zone> {
        Vec::new()
    }
}

/// [`View::has_crc32`] by reading all of it.
fn reads_to(
    view: &(impl View + ?Sized),
    at: u64,
    bytes: u64,
    (seed, sum): (u32, u32),
) -> FsResult<bool> {
    let (mut own, mut done, mut part) = (seed, 0, [0; 4096]);
    while done < bytes {
        let pos = at.checked_add(done).ok_or(FsError::Io)?;
        let part = &mut part[..(4096 - pos % 4096).min(bytes - done) as usize];
        view.read_at(pos, part)?;
        own = crc32_le(own, part);
        done += part.len() as u64;
    }
    Ok(own == sum)
}

/// What a check found sound in one view of a set, and need not look at in the others as it is fixed
/// in all of them ([`View::is_fixed`]). One for each set.
#[derive(Default)]
pub struct Sound {
    pieces: RefCell<BTreeSet<Vec<u64>>>,
    kept: RefCell<Option<Rc<dyn Any>>>,
}

impl Sound {
    /// Was this found sound? `piece`: what it is, with all else that the finding depended on.
    pub fn has(&self, piece: &[u64]) -> bool {
        self.pieces.borrow().contains(piece)
    }

    /// It is sound, and fixed.
    pub fn add(&self, piece: Vec<u64>) {
        self.pieces.borrow_mut().insert(piece);
    }

    /// What the check has kept of a view that is sound, to hold others against.
    pub fn kept<T: 'static>(&self) -> Option<Rc<T>> {
        self.kept.borrow().clone()?.downcast().ok()
    }

    /// Keeps that.
    pub fn keep<T: 'static>(&self, what: T) {
        *self.kept.borrow_mut() = Some(Rc::new(what));
    }
}

/// A medium with a length.
pub struct MediumView {
    /// What is read.
    pub medium: Medium,
    /// First sector of the view in the medium (a partition's start).
    pub start: Sector,
    /// Its length in bytes.
    pub bytes: u64,
}

impl View for MediumView {
    fn len_bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(wp_base::FsError::Io);
        }
        self.medium.read_bytes(self.start.bytes() + at, out);
        Ok(())
    }
}

/// A view that shows each read, with what was read, to a function.
///
/// Laid under an [`Overlay`], it shows which parts of the image below a recovery has read: two
/// images that agree there are recovered alike.
pub struct Watched<'a> {
    below: &'a dyn View,
    seen: &'a dyn Fn(u64, &[u8]),
}

impl<'a> Watched<'a> {
    /// Calls `seen(byte address, bytes)` after every read of `below` that succeeds.
    pub fn new(below: &'a dyn View, seen: &'a dyn Fn(u64, &[u8])) -> Watched<'a> {
        Watched { below, seen }
    }
}

impl View for Watched<'_> {
    fn zones(&self) -> Vec<Zone> {
        self.below.zones()
    }
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.below.read_at(at, out)?;
        (self.seen)(at, out);
        Ok(())
    }
}

/// A part of a view, addressed from its own start: a partition.
pub struct Window<'a> {
    below: &'a dyn View,
    at: u64,
    bytes: u64,
}

impl<'a> Window<'a> {
    /// The `bytes` bytes from byte `at` of `below` on. `None`: they are not all there.
    pub fn new(below: &'a dyn View, at: u64, bytes: u64) -> Option<Window<'a>> {
        let end = at.checked_add(bytes)?;
        (end <= below.len_bytes()).then_some(Window { below, at, bytes })
    }
}

impl View for Window<'_> {
    fn len_bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(wp_base::FsError::Io);
        }
        self.below.read_at(self.at + at, out)
    }
    fn has_crc32(&self, at: u64, bytes: u64, sums: (u32, u32)) -> FsResult<bool> {
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(FsError::Io);
        }
        self.below.has_crc32(self.at + at, bytes, sums)
    }
    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        self.below.is_fixed(self.at + at, bytes)
    }
}

/// A view of a device that reports these zones.
pub struct WithZones<'a> {
    below: &'a dyn View,
    zones: Vec<Zone>,
}

impl<'a> WithZones<'a> {
    /// `below`, whose zones are `zones`, addressed from its start.
    pub fn new(below: &'a dyn View, zones: Vec<Zone>) -> WithZones<'a> {
        WithZones { below, zones }
    }
}

impl View for WithZones<'_> {
    fn zones(&self) -> Vec<Zone> {
        self.zones.clone()
    }
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.below.read_at(at, out)
    }
    fn has_crc32(&self, at: u64, bytes: u64, sums: (u32, u32)) -> FsResult<bool> {
        self.below.has_crc32(at, bytes, sums)
    }
    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        self.below.is_fixed(at, bytes)
    }
}

/// What is to be written in order: (sector, contents).
pub type Writes = Vec<(Sector, Slice)>;

/// A view with 4 KiB pages, and a report of zones, laid over it: what recovery changes, without
/// touching what is below.
///
/// A [`barrier`](Overlay::barrier) ends a stage: whoever writes the pages to a device makes those
/// of one stage durable, in any order, before it writes one of the next.
pub struct Overlay<'a> {
    below: &'a dyn View,
    pages: RefCell<BTreeMap<u64, Laid>>,
    zones: RefCell<Option<Vec<Zone>>>,
    /// Stages that a barrier has ended.
    ended: RefCell<Vec<Vec<(u64, Page)>>>,
}

/// A page laid over, and the stage in which it was last changed.
struct Laid {
    page: Page,
    stage: usize,
}

impl<'a> Overlay<'a> {
    /// Nothing laid over `below` yet.
    pub fn new(below: &'a dyn View) -> Overlay<'a> {
        Overlay {
            below,
            pages: RefCell::default(),
            zones: RefCell::default(),
            ended: RefCell::default(),
        }
    }

    /// Lays `bytes` over byte address `at`. Errors: `Io` beyond the end.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> FsResult<()> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len_bytes()) {
            return Err(wp_base::FsError::Io);
        }
        let stage = self.ended.borrow().len();
        let mut done = 0usize;
        while done < bytes.len() {
            let pos = at + done as u64;
            let (index, off) = (pos / 4096, (pos % 4096) as usize);
            let n = (4096 - off).min(bytes.len() - done);
            match self.pages.borrow_mut().entry(index) {
                Entry::Occupied(mut held) => {
                    let laid = held.get_mut();
                    laid.page.make_mut()[off..off + n].copy_from_slice(&bytes[done..done + n]);
                    laid.stage = stage;
                }
                Entry::Vacant(place) => {
                    let mut page = Page::zeroed();
                    let inside = page.make_mut();
                    // What is replaced as a whole is not read: who watches reads sees no need of
                    // it.
                    if n < 4096 {
                        let have = (self.len_bytes() - index * 4096).min(4096) as usize;
                        self.below.read_at(index * 4096, &mut inside[..have])?;
                    }
                    inside[off..off + n].copy_from_slice(&bytes[done..done + n]);
                    place.insert(Laid { page, stage });
                }
            }
            done += n;
        }
        Ok(())
    }

    /// Lays a page over byte address `at`, a multiple of 4096, by reference. Errors: `Io` if it is
    /// not all inside.
    pub fn lay(&self, at: u64, page: Page) -> FsResult<()> {
        if !at.is_multiple_of(4096) || at.checked_add(4096).is_none_or(|end| end > self.len_bytes())
        {
            return Err(FsError::Io);
        }
        let stage = self.ended.borrow().len();
        self.pages.borrow_mut().insert(at / 4096, Laid { page, stage });
        Ok(())
    }

    /// Lays a report of zones over the one below: what they are once some are reset or finished.
    pub fn set_zones(&self, zones: Vec<Zone>) {
        *self.zones.borrow_mut() = Some(zones);
    }

    /// The page laid over page `index`, if one is.
    pub fn page(&self, index: u64) -> Option<Page> {
        self.pages.borrow().get(&index).map(|laid| laid.page.clone())
    }

    /// Everything laid over so far is to be durable before anything that is laid over from here on
    /// is written.
    pub fn barrier(&self) {
        let stage = self.ended.borrow().len();
        let fresh = self.changed_in(stage);
        if !fresh.is_empty() {
            self.ended.borrow_mut().push(fresh);
        }
    }

    /// Pages as they stand that were last changed in a stage.
    fn changed_in(&self, stage: usize) -> Vec<(u64, Page)> {
        let pages = self.pages.borrow();
        let fresh = pages.iter().filter(|(_, laid)| laid.stage == stage);
        fresh.map(|(i, laid)| (*i, laid.page.clone())).collect()
    }

    /// The stages in their order, each with its pages as they stood at its end: a page that was
    /// changed in several is in several.
    pub fn stages(&self) -> Vec<Vec<(u64, Page)>> {
        let mut stages = self.ended.borrow().clone();
        let last = self.changed_in(stages.len());
        if !last.is_empty() {
            stages.push(last);
        }
        stages
    }

    /// [`Overlay::stages`] as what is to be written.
    pub fn staged_writes(&self) -> Vec<Writes> {
        let stages = self.stages().into_iter();
        stages.map(|stage| stage.into_iter().map(|(i, p)| self.write_of(i, p)).collect()).collect()
    }

    fn write_of(&self, index: u64, page: Page) -> (Sector, Slice) {
        let have = (self.len_bytes() - index * 4096).min(4096) as u32;
        (Sector(index * 4096 / SECTOR_BYTES), Slice::of_page(page, 0, have))
    }

    /// Does nothing lie over these bytes?
    fn is_bare(&self, at: u64, bytes: u64) -> bool {
        let last = at.saturating_add(bytes.max(1) - 1) / 4096;
        self.pages.borrow().range(at / 4096..=last).next().is_none()
    }

    /// Pages laid over, in order: (page index, contents).
    pub fn pages(&self) -> Vec<(u64, Page)> {
        self.pages.borrow().iter().map(|(i, laid)| (*i, laid.page.clone())).collect()
    }

    /// Is nothing laid over?
    pub fn is_empty(&self) -> bool {
        self.pages.borrow().is_empty()
    }

    /// Calls `f(page index, contents)` for every page laid over, in order.
    pub fn each_page(&self, mut f: impl FnMut(u64, &Page)) {
        self.pages.borrow().iter().for_each(|(i, laid)| f(*i, &laid.page));
    }

    /// What lies over, as it stands in the end: what a device holds that was written all of it.
    pub fn writes(&self) -> Writes {
        self.pages().into_iter().map(|(i, p)| self.write_of(i, p)).collect()
    }
}

impl View for Overlay<'_> {
    /// Those that were laid over, or those below: whoever writes keeps account of it.
    fn zones(&self) -> Vec<Zone> {
        self.zones.borrow().clone().unwrap_or_else(|| self.below.zones())
    }
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        self.is_bare(at, bytes) && self.below.is_fixed(at, bytes)
    }
    fn has_crc32(&self, at: u64, bytes: u64, sums: (u32, u32)) -> FsResult<bool> {
        match self.is_bare(at, bytes) {
            true => self.below.has_crc32(at, bytes, sums),
            false => reads_to(self, at, bytes, sums),
        }
    }
    fn page_at(&self, at: u64) -> FsResult<Option<Page>> {
        match self.page(at / 4096) {
            Some(page) => Ok(Some(page)),
            None => self.below.page_at(at),
        }
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.len_bytes()) {
            return Err(wp_base::FsError::Io);
        }
        let pages = self.pages.borrow();
        let mut done = 0usize;
        while done < out.len() {
            let pos = at + done as u64;
            let (index, off) = (pos / 4096, (pos % 4096) as usize);
            let n = (4096 - off).min(out.len() - done);
            match pages.get(&index) {
                Some(laid) => {
                    out[done..done + n].copy_from_slice(&laid.page.bytes()[off..off + n]);
                }
                None => self.below.read_at(pos, &mut out[done..done + n])?,
            }
            done += n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wp_base::crc::crc32c;

    use super::*;

    #[test]
    fn a_checksum_is_that_of_what_lies_over() {
        let below = MediumView { medium: Medium::new(), start: Sector(0), bytes: 3 * 4096 };
        let over = Overlay::new(&below);
        over.write_at(5000, &[7; 300]).expect("inside");
        let mut bytes = vec![0; 9000];
        over.read_at(100, &mut bytes).expect("inside");
        let sum = crc32_le(9, &bytes);
        assert!(over.has_crc32(100, 9000, (9, sum)).expect("inside"));
        assert!(!below.has_crc32(100, 9000, (9, sum)).expect("inside"), "zeroes below");
        let zeroes = crc32_le(9, &[0; 4000]);
        assert!(over.has_crc32(8192, 4000, (9, zeroes)).expect("inside"), "nothing lies there");
        assert!(over.has_crc32(8192, 4097, (9, zeroes)).is_err(), "beyond the end");
        let window = Window::new(&over, 4096, 4096).expect("inside");
        let part = crc32_le(1, &[7; 300]);
        assert!(window.has_crc32(904, 300, (1, part)).expect("inside"));
        assert!(window.has_crc32(0, 4097, (1, part)).is_err(), "beyond the window");
    }

    #[test]
    fn a_page_by_reference_is_what_a_read_finds_and_its_checksum_follows_its_bytes() {
        let below = MediumView { medium: Medium::new(), start: Sector(0), bytes: 3 * 4096 - 512 };
        let over = Overlay::new(&below);
        let bytes: Vec<u8> = (0..4096u32).map(|n| (n * n * 7 + 3) as u8).collect();
        over.lay(4096, Page::from_bytes(&bytes)).expect("inside");
        let mut page = over.page_at(4096).expect("inside").expect("it was laid there");
        assert_eq!(page.bytes()[..], bytes);
        for seed in [0, !0, 0x1234_5678] {
            assert_eq!(page.crc32c(seed), crc32c(seed, &bytes));
        }
        page.make_mut()[7] ^= 1;
        assert_eq!(page.crc32c(9), crc32c(9, page.bytes()), "of the bytes as they are now");
        let mut read = [0; 4096];
        over.read_at(4096, &mut read).expect("inside");
        assert_eq!(read[..], bytes, "what was laid is not what somebody made of it");
        over.write_at(4096, &[9]).expect("inside");
        assert_eq!(over.page_at(4096).expect("inside").expect("laid").bytes()[..2], [9, bytes[1]]);
        assert!(over.page_at(0).expect("inside").is_none(), "the view below has none");
        for at in [8192, 512, u64::MAX - 4095] {
            assert!(over.lay(at, Page::zeroed()).is_err(), "{at}");
        }
    }

    #[test]
    fn a_page_changed_in_two_stages_is_in_both_as_it_stood() {
        let below = MediumView { medium: Medium::new(), start: Sector(0), bytes: 3 * 4096 };
        let over = Overlay::new(&below);
        over.barrier();
        over.write_at(0, &[1; 512]).expect("inside");
        over.write_at(4096, &[2; 8]).expect("inside");
        over.barrier();
        over.barrier();
        over.write_at(512, &[3; 512]).expect("inside");
        let seen: Vec<Vec<(u64, [u8; 2])>> = over
            .staged_writes()
            .iter()
            .map(|stage| {
                let first = |s: &Slice| [s.to_vec()[0], s.to_vec()[512]];
                stage.iter().map(|(at, s)| (at.0 / 8, first(s))).collect()
            })
            .collect();
        assert_eq!(seen, [vec![(0, [1, 0]), (1, [2, 0])], vec![(0, [1, 3])]]);
        assert_eq!(over.writes().len(), 2, "in the end each page is there once");
    }
}
