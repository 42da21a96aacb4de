//! Images in memory, most of whose pages are zero, and a view that gives up on a reader who does
//! not.

use std::cell::Cell;

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
        let mut bytes = vec![0; view.len_bytes() as usize];
        view.read_at(0, &mut bytes).expect("an image in memory");
        Sparse::new(&bytes)
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

    /// Allows so many more, whatever was left.
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
