//! Contents: zeroes, a pattern that is computed, or bytes that are held.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::LazyLock;

use wp_base::crc::{Crc32After, crc32c};
use wp_base::live::{Kind, Tally};
use wp_base::rng::mix64;

use crate::packed::Changes;
use crate::spill::Weight;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// 4096 zero bytes.
pub static ZERO_PAGE: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// 4096 bytes in memory, shared by reference and copied when a shared one is written to.
///
/// A page handed to the block layer is a clone; whoever modifies the original afterwards gets a
/// copy, so what was submitted is what lands.
#[derive(Clone)]
pub struct Page(Held);

#[derive(Clone)]
enum Held {
    Whole(Rc<PageBuf>),
    /// As what differs from another page ([`crate::Versions`]), until somebody reads it.
    Packed(Rc<PackedBuf>),
}

struct PageBuf {
    id: OnceCell<u128>,
    /// [`crc32c`] of the bytes, from 0 on.
    crc32c: OnceCell<u32>,
    bytes: [u8; PAGE_BYTES],
    /// `None` of the page that all zeroed ones are at first, which is nobody's.
    tally: Option<(Tally, Weight)>,
}

struct PackedBuf {
    changes: Changes,
    whole: OnceCell<Page>,
    _tally: (Tally, Weight),
}

impl Default for PageBuf {
    fn default() -> PageBuf {
        PageBuf { id: OnceCell::new(), crc32c: OnceCell::new(), bytes: ZERO_PAGE, tally: None }
    }
}

/// What a page does to a CRC-32C that stood before it.
static AFTER_PAGE: LazyLock<Crc32After> = LazyLock::new(|| Crc32After::of(PAGE_BYTES, crc32c));

thread_local! {
    static ZEROED: Page = Page(Held::Whole(Rc::default()));
}

impl Page {
    /// A page of zeroes. It has memory of its own only once it is written to.
    pub fn zeroed() -> Page {
        ZEROED.with(Page::clone)
    }

    /// A page of its own that holds `bytes`.
    fn holding(bytes: &[u8; PAGE_BYTES]) -> Page {
        // Filled where it stays: `Rc::new` would get the bytes by way of the stack. The zeroes,
        // which nobody sees, the compiler leaves out.
        let mut buf: Rc<PageBuf> = Rc::default();
        let own = Rc::get_mut(&mut buf).expect("nobody else has it yet");
        own.bytes = *bytes;
        own.tally = Some((Tally::new(Kind::Page), Weight::new(size_of::<PageBuf>())));
        Page(Held::Whole(buf))
    }

    /// A page that is held as what differs from another.
    pub(crate) fn packed(changes: Changes) -> Page {
        let bytes = size_of::<PackedBuf>() + changes.runs().len();
        let _tally = (Tally::new(Kind::Page), Weight::new(bytes));
        Page(Held::Packed(Rc::new(PackedBuf { changes, whole: OnceCell::new(), _tally })))
    }

    /// What it is held as, if it is packed and nobody has read it.
    pub(crate) fn changes(&self) -> Option<&Changes> {
        match &self.0 {
            Held::Packed(packed) if packed.whole.get().is_none() => Some(&packed.changes),
            _ => None,
        }
    }

    /// Its bytes, which it does not keep if it is packed.
    pub(crate) fn bytes_now(&self) -> [u8; PAGE_BYTES] {
        self.changes().map_or_else(|| *self.bytes(), Changes::unpack)
    }

    /// Where it is in memory: while two are held, no other has the same.
    pub(crate) fn address(&self) -> usize {
        match &self.0 {
            Held::Whole(buf) => Rc::as_ptr(buf).addr(),
            Held::Packed(packed) => Rc::as_ptr(packed).addr(),
        }
    }

    /// Versions between it and the whole page that it comes from.
    pub(crate) fn depth(&self) -> u32 {
        match &self.0 {
            Held::Whole(_) => 0,
            Held::Packed(packed) => packed.changes.depth(),
        }
    }

    fn whole(&self) -> &PageBuf {
        match &self.0 {
            Held::Whole(buf) => buf,
            Held::Packed(packed) => {
                packed.whole.get_or_init(|| Page::holding(&packed.changes.unpack())).whole()
            }
        }
    }

    /// A page that starts with `bytes` and is zero after them. Panics if they are more than a page.
    pub fn from_bytes(bytes: &[u8]) -> Page {
        if let Ok(whole) = bytes.try_into() {
            return Page::holding(whole);
        }
        let mut page = Page::zeroed();
        page.make_mut()[..bytes.len()].copy_from_slice(bytes);
        page
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        &self.whole().bytes
    }

    /// Its bytes for writing; copies them first if anyone else holds this page.
    pub fn make_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        if self.is_shared() || matches!(self.0, Held::Packed(_)) {
            *self = Page::holding(self.bytes());
        }
        let Held::Whole(buf) = &mut self.0 else { unreachable!("it holds all of its bytes now") };
        let buf = Rc::get_mut(buf).expect("nobody else holds it, and there are no weak ones");
        (buf.id, buf.crc32c) = (OnceCell::new(), OnceCell::new());
        &mut buf.bytes
    }

    /// Does anyone else hold it?
    pub fn is_shared(&self) -> bool {
        match &self.0 {
            Held::Whole(buf) => Rc::strong_count(buf) > 1,
            Held::Packed(packed) => Rc::strong_count(packed) > 1,
        }
    }

    /// Identity of the whole page's contents, computed at the first call. Same bytes, same id.
    pub fn id(&self) -> u128 {
        let whole = self.whole();
        *whole.id.get_or_init(|| hash_bytes(&whole.bytes))
    }

    /// [`crc32c`] of its bytes, continuing from `seed`. They are read at the first call only,
    /// whatever the seeds are.
    pub fn crc32c(&self, seed: u32) -> u32 {
        let whole = self.whole();
        let own = *whole.crc32c.get_or_init(|| crc32c(0, &whole.bytes));
        AFTER_PAGE.join(seed, own)
    }

    /// Are they the same page in memory (cheaper than comparing contents)?
    pub fn same(&self, other: &Page) -> bool {
        match (&self.0, &other.0) {
            (Held::Whole(a), Held::Whole(b)) => Rc::ptr_eq(a, b),
            (Held::Packed(a), Held::Packed(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({:032x})", self.id())
    }
}

/// What stands at a place.
#[derive(Clone, Debug)]
pub enum Content {
    /// Zeroes; also what was never written or was discarded.
    Zero,
    /// The computed stream of this tag; see [`pattern_word`].
    Pattern(u64),
    /// Bytes of a page.
    Bytes(Page),
}

/// Eight bytes (little-endian) of the pattern `tag` at byte offset `8 * word`.
pub const fn pattern_word(tag: u64, word: u64) -> u64 {
    mix64(tag ^ word.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A run of bytes of one content.
///
/// Shape: `len` bytes from offset `off` of the content; `off` is at most 4096 for a page, any
/// position of the stream for a pattern, and always 0 for zeroes.
#[derive(Clone, Debug)]
pub struct Slice {
    content: Content,
    off: u64,
    len: u32,
}

impl Slice {
    /// `len` zeroes.
    pub fn zero(len: u32) -> Slice {
        Slice { content: Content::Zero, off: 0, len }
    }

    /// `len` bytes of pattern `tag` from position `off` of its stream.
    pub fn pattern(tag: u64, off: u64, len: u32) -> Slice {
        Slice { content: Content::Pattern(tag), off, len }
    }

    /// Bytes `off..off + len` of `page`. Panics if they reach beyond it.
    pub fn of_page(page: Page, off: u32, len: u32) -> Slice {
        assert!(off as usize + len as usize <= PAGE_BYTES, "{off}+{len} is beyond the page");
        Slice { content: Content::Bytes(page), off: u64::from(off), len }
    }

    /// `bytes`, in a page of their own. Panics if they are more than a page.
    pub fn from_bytes(bytes: &[u8]) -> Slice {
        Slice::of_page(Page::from_bytes(bytes), 0, bytes.len() as u32)
    }

    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Is it of no length?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it is a part of.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Its bytes, where a page holds them.
    pub fn held(&self) -> Option<&[u8]> {
        let Content::Bytes(page) = &self.content else { return None };
        let off = self.off as usize;
        Some(&page.bytes()[off..off + self.len as usize])
    }

    /// Its bytes for writing, where they are the first ones of a page; copies that first if anyone
    /// else holds it.
    pub fn held_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.content {
            Content::Bytes(page) if self.off == 0 => {
                Some(&mut page.make_mut()[..self.len as usize])
            }
            _ => None,
        }
    }

    /// Where in its content it starts.
    pub fn offset(&self) -> u64 {
        self.off
    }

    /// `len` bytes of it, `from` bytes in. Panics if they reach beyond it.
    pub fn sub(&self, from: u32, len: u32) -> Slice {
        assert!(from + len <= self.len, "{from}+{len} is beyond {} bytes", self.len);
        match &self.content {
            Content::Zero => Slice::zero(len),
            c => Slice { content: c.clone(), off: self.off + u64::from(from), len },
        }
    }

    /// Copies it to `out`, which must be as long as it is.
    pub fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len as usize);
        match &self.content {
            Content::Zero => out.fill(0),
            Content::Bytes(page) => {
                let off = self.off as usize;
                out.copy_from_slice(&page.bytes()[off..off + out.len()]);
            }
            Content::Pattern(tag) => {
                let skip = (self.off % 8) as usize;
                let first = ((8 - skip) % 8).min(out.len());
                let (part, rest) = out.split_at_mut(first);
                let word = pattern_word(*tag, self.off / 8).to_le_bytes();
                part.copy_from_slice(&word[skip..][..part.len()]);
                // Without a check for overflow, which each word would have to wait for.
                let mut n = self.off.div_ceil(8);
                let (words, last) = rest.as_chunks_mut();
                for word in words {
                    *word = pattern_word(*tag, n).to_le_bytes();
                    n = n.wrapping_add(1);
                }
                last.copy_from_slice(&pattern_word(*tag, n).to_le_bytes()[..last.len()]);
            }
        }
    }

    /// Does it begin with these bytes?
    pub fn starts_with(&self, bytes: &[u8]) -> bool {
        if bytes.len() > self.len as usize {
            return false;
        }
        match &self.content {
            Content::Zero => bytes.iter().all(|b| *b == 0),
            Content::Bytes(page) => page.bytes()[self.off as usize..].starts_with(bytes),
            // Made piece by piece: what differs does so at once.
            Content::Pattern(_) => {
                let mut own = [0; 64];
                (0..).step_by(own.len()).zip(bytes.chunks(own.len())).all(|(at, bytes)| {
                    let own = &mut own[..bytes.len()];
                    self.sub(at, bytes.len() as u32).copy_to(own);
                    own == bytes
                })
            }
        }
    }

    /// Its bytes as a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len as usize];
        self.copy_to(&mut v);
        v
    }

    /// The bytes of all of them, one behind the other.
    pub fn concat(slices: &[Slice]) -> Vec<u8> {
        let mut bytes = vec![0; slices.iter().map(|s| s.len as usize).sum()];
        let mut at = 0;
        for slice in slices {
            let end = at + slice.len as usize;
            slice.copy_to(&mut bytes[at..end]);
            at = end;
        }
        bytes
    }

    /// A page whose first bytes are these. By reference where it is a whole page already.
    pub fn to_page(&self) -> Page {
        if let (Content::Bytes(page), 0, len) = (&self.content, self.off, self.len)
            && len as usize == PAGE_BYTES
        {
            return page.clone();
        }
        let mut page = Page::zeroed();
        if !matches!(self.content, Content::Zero) {
            self.copy_to(&mut page.make_mut()[..self.len as usize]);
        }
        page
    }

    /// Does `next` continue this one in the same content, so that the two could be one slice?
    pub fn continues_with(&self, next: &Slice) -> bool {
        match (&self.content, &next.content) {
            (Content::Zero, Content::Zero) => true,
            (Content::Pattern(a), Content::Pattern(b)) => {
                a == b && self.off + u64::from(self.len) == next.off
            }
            (Content::Bytes(a), Content::Bytes(b)) => {
                a.same(b) && self.off + u64::from(self.len) == next.off
            }
            _ => false,
        }
    }

    /// Identity of these bytes: equal for equal bytes, whatever holds them.
    ///
    /// Whole pages answer from the page's own cache.
    pub fn id(&self) -> u128 {
        match &self.content {
            Content::Bytes(page) if self.off == 0 && self.len as usize == PAGE_BYTES => page.id(),
            Content::Bytes(page) => {
                let off = self.off as usize;
                hash_bytes(&page.bytes()[off..off + self.len as usize])
            }
            _ if self.len as usize <= PAGE_BYTES => {
                let mut bytes = [0; PAGE_BYTES];
                let bytes = &mut bytes[..self.len as usize];
                self.copy_to(bytes);
                hash_bytes(bytes)
            }
            _ => hash_bytes(&self.to_vec()),
        }
    }
}

impl PartialEq for Slice {
    /// Same bytes.
    fn eq(&self, other: &Slice) -> bool {
        if self.len != other.len {
            return false;
        }
        match (&self.content, &other.content) {
            (Content::Zero, Content::Zero) => true,
            (Content::Pattern(a), Content::Pattern(b)) if a == b && self.off == other.off => true,
            (Content::Bytes(a), Content::Bytes(b)) if a.same(b) && self.off == other.off => true,
            _ => self.to_vec() == other.to_vec(),
        }
    }
}
impl Eq for Slice {}

/// A 128-bit hash of two independent 64-bit multiply-fold lanes. Not cryptographic: contents are
/// not adversarial, and pruning re-checks a sample in full.
fn hash_bytes(bytes: &[u8]) -> u128 {
    const K: [u64; 2] = [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB];
    let mut lane = [bytes.len() as u64 ^ K[0], mix64(bytes.len() as u64) ^ K[1]];
    let mut take = |word: [u8; 16]| {
        let w = u128::from_le_bytes(word);
        let (lo, hi) = (w as u64, (w >> 64) as u64);
        lane[0] = fold(lane[0] ^ lo, K[0] ^ hi);
        lane[1] = fold(lane[1].rotate_left(23) ^ hi, K[1] ^ lo);
    };
    let (whole, last) = bytes.as_chunks::<16>();
    whole.iter().for_each(|word| take(*word));
    if !last.is_empty() {
        let mut word = [0u8; 16];
        word[..last.len()].copy_from_slice(last);
        take(word);
    }
    (u128::from(mix64(lane[0] ^ lane[1].rotate_left(32))) << 64) | u128::from(mix64(lane[1]))
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_shared_page_copies_it() {
        let mut a = Page::from_bytes(b"before");
        let sent = a.clone();
        a.make_mut()[0] = b'B';
        assert_eq!(&sent.bytes()[..6], b"before");
        assert_eq!(&a.bytes()[..6], b"Before");
        assert!(!a.same(&sent));
    }

    #[test]
    fn held_bytes_are_those_of_the_slice_and_are_copied_if_shared() {
        let page = Page::from_bytes(b"0123456789");
        assert_eq!(Slice::of_page(page.clone(), 2, 3).held(), Some(&b"234"[..]));
        assert_eq!(Slice::of_page(page.clone(), 2, 3).held_mut(), None);
        assert_eq!(Slice::zero(8).held(), None);
        let mut slice = Slice::of_page(page.clone(), 0, 4);
        slice.held_mut().expect("it begins with its page")[0] = b'x';
        assert_eq!((slice.held(), &page.bytes()[..4]), (Some(&b"x123"[..]), &b"0123"[..]));
    }

    #[test]
    fn a_slice_starts_with_its_own_bytes_and_no_others() {
        let page = Page::from_bytes(&[7; 4096]);
        for slice in [Slice::zero(300), Slice::pattern(5, 3, 300), Slice::of_page(page, 9, 300)] {
            let own = slice.to_vec();
            for n in [0, 1, 63, 64, 65, 300] {
                assert!(slice.starts_with(&own[..n]), "{n} of {slice:?}");
                if n > 0 {
                    let mut other = own[..n].to_vec();
                    other[n - 1] ^= 1;
                    assert!(!slice.starts_with(&other), "{n} of {slice:?}");
                }
            }
            assert!(!slice.starts_with(&[own, vec![0]].concat()));
        }
    }

    #[test]
    fn equal_bytes_have_equal_ids() {
        let p = Slice::pattern(9, 4096, 4096);
        let held = Slice::of_page(p.to_page(), 0, 4096);
        assert_eq!(p.id(), held.id());
        assert_eq!(p, held);
        assert_eq!(Slice::zero(512).id(), Slice::from_bytes(&[0; 512]).id());
        assert_ne!(Slice::pattern(9, 0, 512).id(), Slice::pattern(8, 0, 512).id());
    }

    #[test]
    fn a_part_of_a_pattern_is_the_same_bytes() {
        let whole = Slice::pattern(3, 100, 64).to_vec();
        assert_eq!(Slice::pattern(3, 100, 64).sub(13, 20).to_vec(), whole[13..33]);
    }
}
