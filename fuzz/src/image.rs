//! Images in memory, most of whose pages are zero, and a view that gives up on a reader who does
//! not.

use std::cell::Cell;
use std::io::Read;

use wp_base::{FsError, FsResult, Sector, Zone};
use wp_medium::{Medium, Overlay, Slice, View};

const PAGE: usize = 4096;

/// An image whose pages of zeroes take no memory.
pub struct Sparse {
    bytes: u64,
    pages: Vec<Option<Box<[u8; PAGE]>>>,
    zones: Vec<Zone>,
}

impl Sparse {
    /// Takes over an image.
    pub fn new(bytes: &[u8]) -> Sparse {
        let page = |chunk: &[u8]| {
            let mut page = Box::new([0; PAGE]);
            page[..chunk.len()].copy_from_slice(chunk);
            chunk.iter().any(|b| *b != 0).then_some(page)
        };
        let pages = bytes.chunks(PAGE).map(page).collect();
        Sparse { bytes: bytes.len() as u64, pages, zones: Vec::new() }
    }

    /// Adds what a reader has, behind what is there: whole pages.
    pub fn append(&mut self, from: &mut dyn Read) -> std::io::Result<()> {
        assert_eq!(self.bytes % PAGE as u64, 0, "a device behind part of a page");
        loop {
            let mut page = Box::new([0; PAGE]);
            let mut len = 0;
            while len < PAGE {
                match from.read(&mut page[len..])? {
                    0 => break,
                    n => len += n,
                }
            }
            if len > 0 {
                self.bytes += len as u64;
                self.pages.push(page.iter().any(|b| *b != 0).then_some(page));
            }
            if len < PAGE {
                return Ok(());
            }
        }
    }

    /// Nothing but zeroes.
    pub fn zeroes(bytes: u64) -> Sparse {
        let pages = (0..bytes.div_ceil(PAGE as u64)).map(|_| None).collect();
        Sparse { bytes, pages, zones: Vec::new() }
    }

    /// With a report of zones.
    pub fn with_zones(mut self, zones: Vec<Zone>) -> Sparse {
        self.zones = zones;
        self
    }

    /// The same with what lies over it.
    pub fn with(view: &dyn View) -> Sparse {
        let mut out = Sparse::zeroes(view.len_bytes());
        for (n, to) in out.pages.iter_mut().enumerate() {
            let at = (n * PAGE) as u64;
            let mut page = Box::new([0; PAGE]);
            let len = (view.len_bytes() - at).min(PAGE as u64) as usize;
            view.read_at(at, &mut page[..len]).expect("an image in memory");
            *to = page.iter().any(|b| *b != 0).then_some(page);
        }
        out
    }

    /// The first bytes of a device's contents.
    pub fn of_medium(medium: &Medium, bytes: u64) -> Sparse {
        let mut out = Sparse::zeroes(bytes);
        for (at, sectors) in medium.runs() {
            let pages =
                at.bytes() / PAGE as u64..(at.bytes() + sectors * 512).div_ceil(PAGE as u64);
            for n in pages {
                let Some(to) = out.pages.get_mut(n as usize) else { break };
                let mut page = Box::new([0; PAGE]);
                medium.read_bytes(n * PAGE as u64, &mut page[..]);
                *to = page.iter().any(|b| *b != 0).then_some(page);
            }
        }
        out
    }

    /// Bytes of its pages that are not zero.
    pub fn held_bytes(&self) -> u64 {
        (self.pages.iter().flatten().count() * PAGE) as u64
    }

    /// As the contents of a device, with what lies over it.
    pub fn medium(&self, over: &Overlay<'_>) -> Medium {
        let mut medium = Medium::new();
        for (n, page) in self.pages.iter().enumerate() {
            if let Some(page) = page {
                medium.write(Sector((n * PAGE / 512) as u64), &Slice::from_bytes(&page[..]));
            }
        }
        for (at, data) in over.writes() {
            medium.write(at, &data);
        }
        medium
    }
}

impl View for Sparse {
    fn zones(&self) -> Vec<Zone> {
        self.zones.clone()
    }
    fn len_bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(FsError::Io);
        }
        let mut done = 0;
        while done < out.len() {
            let pos = at as usize + done;
            let (index, off) = (pos / PAGE, pos % PAGE);
            let n = (PAGE - off).min(out.len() - done);
            match &self.pages[index] {
                Some(page) => out[done..done + n].copy_from_slice(&page[off..off + n]),
                None => out[done..done + n].fill(0),
            }
            done += n;
        }
        Ok(())
    }
}

/// A view that is cut off at a length, counts reads, and panics when there are too many.
pub struct Counted<'a> {
    below: &'a dyn View,
    bytes: u64,
    left: Cell<u64>,
}

impl<'a> Counted<'a> {
    /// The first `bytes` of `below`; `reads` are allowed.
    pub fn new(below: &'a dyn View, bytes: u64, reads: u64) -> Counted<'a> {
        Counted { below, bytes: bytes.min(below.len_bytes()), left: Cell::new(reads) }
    }

    /// Allows `reads` more reads, whatever was left.
    pub fn allow(&self, reads: u64) {
        self.left.set(reads);
    }
}

impl View for Counted<'_> {
    fn zones(&self) -> Vec<Zone> {
        self.below.zones()
    }
    fn len_bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let left = self.left.get();
        assert!(left > 0, "this walk does not end: more reads than the image has room for");
        self.left.set(left - 1);
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(FsError::Io);
        }
        self.below.read_at(at, out)
    }
}
