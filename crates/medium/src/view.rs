//! Reading an image, whatever holds it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::{FsResult, SECTOR_BYTES, Sector, Zone};

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
    /// The zones of a zoned device, in order, addressed as the view is: what a report says, with
    /// the write pointers that a recovery begins with. None of any other.
    fn zones(&self) -> Vec<Zone> {
        Vec::new()
    }
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
/// Laid under an [`Overlay`], it shows what a recovery has looked at of the image below: two images
/// that agree there are recovered alike.
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
    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        self.below.is_fixed(at, bytes)
    }
}

/// A view with 4 KiB pages, and a report of zones, laid over it: what recovery changes, without
/// touching what is below.
pub struct Overlay<'a> {
    below: &'a dyn View,
    pages: RefCell<BTreeMap<u64, Page>>,
    zones: RefCell<Option<Vec<Zone>>>,
}

impl<'a> Overlay<'a> {
    /// Nothing laid over `below` yet.
    pub fn new(below: &'a dyn View) -> Overlay<'a> {
        Overlay { below, pages: RefCell::new(BTreeMap::new()), zones: RefCell::default() }
    }

    /// Lays `bytes` over byte address `at`. Errors: `Io` beyond the end.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> FsResult<()> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len_bytes()) {
            return Err(wp_base::FsError::Io);
        }
        let mut done = 0usize;
        while done < bytes.len() {
            let pos = at + done as u64;
            let (index, off) = (pos / 4096, (pos % 4096) as usize);
            let n = (4096 - off).min(bytes.len() - done);
            match self.pages.borrow_mut().entry(index) {
                Entry::Occupied(mut held) => {
                    held.get_mut().make_mut()[off..off + n].copy_from_slice(&bytes[done..done + n]);
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
                    place.insert(page);
                }
            }
            done += n;
        }
        Ok(())
    }

    /// Lays a report of zones over the one below: what they are once some are reset or finished.
    pub fn set_zones(&self, zones: Vec<Zone>) {
        *self.zones.borrow_mut() = Some(zones);
    }

    /// The page laid over page `index`, if one is.
    pub fn page(&self, index: u64) -> Option<Page> {
        self.pages.borrow().get(&index).cloned()
    }

    /// Pages laid over, in order: (page index, contents).
    pub fn pages(&self) -> Vec<(u64, Page)> {
        self.pages.borrow().iter().map(|(i, p)| (*i, p.clone())).collect()
    }

    /// Is nothing laid over?
    pub fn is_empty(&self) -> bool {
        self.pages.borrow().is_empty()
    }

    /// Calls `f(page index, contents)` for every page laid over, in order.
    pub fn each_page(&self, mut f: impl FnMut(u64, &Page)) {
        self.pages.borrow().iter().for_each(|(i, p)| f(*i, p));
    }

    /// What lies over, as (sector, contents), ready to be written to the device in order.
    pub fn writes(&self) -> Vec<(Sector, Slice)> {
        let len = self.len_bytes();
        self.pages()
            .into_iter()
            .map(|(i, p)| {
                let have = (len - i * 4096).min(4096) as u32;
                (Sector(i * 4096 / SECTOR_BYTES), Slice::of_page(p, 0, have))
            })
            .collect()
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
        let last = at.saturating_add(bytes.max(1) - 1) / 4096;
        self.pages.borrow().range(at / 4096..=last).next().is_none()
            && self.below.is_fixed(at, bytes)
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
                Some(p) => out[done..done + n].copy_from_slice(&p.bytes()[off..off + n]),
                None => self.below.read_at(pos, &mut out[done..done + n])?,
            }
            done += n;
        }
        Ok(())
    }
}
