//! One state as something that can be read: the durable base, with what was kept laid over it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector, Zone};
use wp_medium::{Medium, PAGE_BYTES, Page, Slice, View};

use crate::history::{Frame, History};
use crate::pages::PageTable;
use crate::states::Kept;
use crate::sums::{Asked, Decided, Sums, WRONG, is_sum};

/// Stands for the zones' write pointers among the pages that were read.
const ZONES_PAGE: u64 = u64::MAX;

const PAGE: u64 = PAGE_BYTES as u64;
const PAGE_SECTORS: u64 = PAGE / SECTOR_BYTES;

/// Something that is read by pages, each of which has an identity.
pub trait Pages: View {
    /// Identity of a page's contents: same bytes, same number. Noted as a read.
    fn page_id(&self, page: u64) -> u128;
    /// The page itself. Noted as a read.
    fn page(&self, page: u64) -> Slice;
}

/// The pages that a frame's units touch, and the identities of its base's pages.
///
/// Kept from frame to frame, as bases differ in little.
#[derive(Default)]
pub(crate) struct Pool {
    /// Page of the device -> the last of `touches` that is one of it.
    touched: PageTable<u32>,
    touches: Vec<Touch>,
    /// Identities of the base's pages; 0: not known.
    ids: RefCell<PageTable<u128>>,
    base: Option<Medium>,
    sums: Sums,
}

/// An unpersisted unit touches a page.
#[derive(Clone, Copy)]
struct Touch {
    /// Index into `live`.
    unit: u32,
    /// The touch of the same page before it, or [`NO_TOUCH`].
    before: u32,
}

const NO_TOUCH: u32 = u32::MAX;

impl Pool {
    /// Goes to another frame.
    pub(crate) fn enter(&mut self, history: &History, frame: &Frame) {
        let ids = self.ids.get_mut();
        if let Some(base) = &self.base {
            base.diff(&frame.base, &mut |at, sectors| {
                let end = (at.0 + u64::from(sectors)).div_ceil(PAGE_SECTORS);
                for page in at.0 / PAGE_SECTORS..end {
                    if ids.get(page).is_some() {
                        ids.put(page, 0);
                    }
                }
            });
        }
        self.base = Some(frame.base.clone());
        self.touched.clear();
        self.touches.clear();
        self.sums.enter();
        for (i, n) in frame.live.iter().enumerate() {
            let unit = &history.units[*n as usize];
            let end = (unit.at.0 + unit.sectors()).div_ceil(PAGE_SECTORS);
            for page in unit.at.0 / PAGE_SECTORS..end {
                let number = self.touches.len() as u32;
                let before = self.touched.put(page, number).unwrap_or(NO_TOUCH);
                self.touches.push(Touch { unit: i as u32, before });
            }
        }
    }

    /// Unpersisted units that touch a page, as indices into `live`, the last one first.
    fn of_page(&self, page: u64) -> impl Iterator<Item = usize> {
        let touch = |n: u32| self.touches.get(n as usize);
        let last = self.touched.get(page).and_then(touch);
        std::iter::successors(last, move |t| touch(t.before)).map(|t| t.unit as usize)
    }
}

/// Which pages can differ from one state of a set of histories to another. Of all others nobody
/// needs to know that they were read, and what was found in them is true of every state.
///
/// `None`: nothing is known of the histories.
#[derive(Default)]
pub(crate) struct Varying(Option<VaryingPages>);

/// In order, and to be asked for one by one.
struct VaryingPages(BTreeSet<u64>, PageTable<()>);

impl Varying {
    /// Pages that some unit touches, in which the histories begin differently, and, of those
    /// without units, that change from one frame to the next.
    pub(crate) fn of<'h>(histories: impl Iterator<Item = &'h History> + Clone) -> Varying {
        let mut pages = BTreeSet::new();
        let mut touch = |at: Sector, sectors: u64| {
            pages.extend(at.0 / PAGE_SECTORS..(at.0 + sectors).div_ceil(PAGE_SECTORS));
        };
        for unit in histories.clone().flat_map(|h| &h.units) {
            touch(unit.at, unit.sectors());
        }
        for pair in
            histories.clone().filter(|h| h.units.is_empty()).flat_map(|h| h.frames.windows(2))
        {
            pair[0].base.diff(&pair[1].base, &mut |at, n| touch(at, n.into()));
        }
        let mut bases = histories.flat_map(|h| h.frames.first()).map(|f| &f.base);
        if let Some(first) = bases.next() {
            bases.for_each(|base| first.diff(base, &mut |at, n| touch(at, n.into())));
        }
        let mut each = PageTable::default();
        for page in &pages {
            each.put(*page, ());
        }
        Varying(Some(VaryingPages(pages, each)))
    }

    /// Does this page hold the same in every state?
    #[inline]
    fn is_fixed(&self, page: u64) -> bool {
        self.0.as_ref().is_some_and(|VaryingPages(_, each)| each.get(page).is_none())
    }

    /// Do these pages of the device hold the same in every state?
    fn are_fixed(&self, first: u64, last: u64) -> bool {
        let none =
            |VaryingPages(pages, _): &VaryingPages| pages.range(first..=last).next().is_none();
        self.0.as_ref().is_some_and(none)
    }
}

/// What was read, in order of the first time.
#[derive(Default)]
pub(crate) struct Reads {
    /// Pages.
    pub(crate) order: Vec<u64>,
    seen: PageTable<()>,
}

impl Reads {
    fn note(&mut self, page: u64) {
        // The number that stands for the zones is no page's.
        let key = page.min(ZONES_PAGE - 1);
        if self.order.last() != Some(&page) && self.seen.put(key, ()).is_none() {
            self.order.push(page);
        }
    }

    /// Notes the answer to a question. If it is yes, it tells what each of `pages` holds.
    fn note_sum(&mut self, number: u64, pages: Option<std::ops::RangeInclusive<u64>>) {
        if self.seen.put(number, ()).is_none() {
            self.order.push(number);
            for page in pages.into_iter().flatten() {
                self.seen.put(page, ());
            }
        }
    }
}

/// A state of a frame. Pages are numbered from the start of the partition that is explored.
pub struct State<'a> {
    history: &'a History,
    frame: &'a Frame,
    kept: &'a Kept,
    pool: &'a Pool,
    varying: &'a Varying,
    /// First page of the partition on the device, and its length in bytes.
    first: u64,
    bytes: u64,
    reads: RefCell<Reads>,
    /// Pages of which only a part is covered by what was kept.
    mixed: RefCell<BTreeMap<u64, Page>>,
}

impl<'a> State<'a> {
    pub(crate) fn new(
        (history, frame, kept): (&'a History, &'a Frame, &'a Kept),
        (pool, varying): (&'a Pool, &'a Varying),
        (first, bytes): (u64, u64),
    ) -> State<'a> {
        State {
            history,
            frame,
            kept,
            pool,
            varying,
            first,
            bytes,
            reads: RefCell::default(),
            mixed: RefCell::default(),
        }
    }

    /// The whole device in this state.
    pub fn medium(&self) -> Medium {
        let mut medium = self.frame.base.clone();
        for (i, n) in self.frame.live.iter().enumerate() {
            if self.kept.has(i) {
                self.history.units[*n as usize].apply(&mut medium);
            }
        }
        medium
    }

    /// The zones in this state, of the whole device.
    fn device_zones(&self) -> Vec<Zone> {
        let (Some(space), Some(table)) = (&self.history.zones, &self.frame.zones) else {
            return Vec::new();
        };
        let live = self.frame.live.iter().enumerate();
        let kept = live.filter(|(i, _)| self.kept.has(*i));
        space.with(table, kept.map(|(_, n)| &self.history.units[*n as usize]))
    }

    /// Identity of what [`View::zones`] says.
    fn zones_id(&self) -> u128 {
        self.device_zones().iter().fold(1, |h: u128, z| {
            let word = u128::from(z.wp.0) << 8 | u128::from(z.state.number());
            (h ^ word).rotate_left(29).wrapping_mul(0x0000_0100_0000_01B3_0000_0100_0000_01B3)
        })
    }

    /// Notes that a page was read, if that tells anything.
    fn note(&self, page: u64) {
        if !self.varying.is_fixed(self.first + page) {
            self.reads.borrow_mut().note(page);
        }
    }

    pub(crate) fn take_reads(&self) -> Vec<u64> {
        std::mem::take(&mut *self.reads.borrow_mut()).order
    }

    /// What answers a question about a checksum in this frame.
    pub(crate) fn decided(&self, number: u64) -> Rc<Decided> {
        self.pool.sums.decided(number, |asked| {
            let (first, last) = asked.pages();
            let pages = self.first + first..=self.first + last;
            pages.flat_map(|page| self.pool.of_page(page)).map(|unit| unit as u32).collect()
        })
    }

    /// The answer to a question about a checksum.
    pub(crate) fn sum_id(&self, number: u64) -> u128 {
        let answer = || {
            let asked = self.pool.sums.asked(number);
            let page = |page| self.slice(self.first + page);
            self.pool.sums.answer(&asked, |page| self.peek(page), page)
        };
        let decided = self.decided(number);
        let Some(end) = decided.end(self.kept) else {
            let asked = self.pool.sums.asked(number);
            let make = || self.changes(&asked, &decided);
            let is_wrong = decided.is_wrong(self.kept, asked.sum, make);
            debug_assert!(!is_wrong || answer() == WRONG, "{asked:?}");
            return if is_wrong { WRONG } else { answer() };
        };
        end.get().unwrap_or_else(|| {
            let id = answer();
            end.set(Some(id));
            id
        })
    }

    /// The checksum that is asked about without units, and what each unit changes.
    fn changes(&self, asked: &Asked, decided: &Decided) -> Option<(u32, Vec<u32>)> {
        let live = self.frame.live.len();
        let kept = [Kept::none(live), Kept::all(live)];
        let place = (self.first, self.bytes);
        let of =
            |kept| State::new((self.history, self.frame, kept), (self.pool, self.varying), place);
        let [none, all] = [of(&kept[0]), of(&kept[1])];
        let unit = |page| {
            let mut units = self.pool.of_page(self.first + page);
            let first = units.next().map(|unit| unit as u32);
            if units.next().is_some() { Err(()) } else { Ok(first) }
        };
        let page = |page, is_kept| {
            if is_kept { all.slice(self.first + page) } else { none.slice(self.first + page) }
        };
        self.pool.sums.changes(asked, &decided.units, unit, page)
    }

    /// Pages that these reads are of, with those that the answers to questions are about.
    pub(crate) fn pages_of(&self, reads: &[u64]) -> u64 {
        let of = |number: &u64| match is_sum(*number) {
            true => {
                let (first, last) = self.pool.sums.asked(*number).pages();
                last - first
            }
            false => 1,
        };
        reads.iter().map(of).sum()
    }

    /// Unpersisted units that decide what these pages hold, in the order of the pages, each once,
    /// and questions that units decide. `None`: zones were read, which all units move.
    pub(crate) fn units(&self, pages: &[u64]) -> Option<Vec<u64>> {
        let mut seen = Kept::none(self.frame.live.len());
        let mut units = Vec::new();
        for page in pages {
            if *page == ZONES_PAGE {
                return None;
            }
            if is_sum(*page) {
                units.extend((!self.decided(*page).units.is_empty()).then_some(*page));
                continue;
            }
            for unit in self.pool.of_page(self.first + page) {
                if !seen.has(unit) {
                    seen.set(unit, true);
                    units.push(unit as u64);
                }
            }
        }
        Some(units)
    }

    /// The unit that alone says what page `page` of the device holds; `Err` if several or a part of
    /// one do.
    fn source(&self, page: u64) -> Result<Option<u32>, ()> {
        let Some(i) = self.pool.of_page(page).find(|i| self.kept.has(*i)) else {
            return Ok(None);
        };
        let number = self.frame.live[i];
        let unit = &self.history.units[number as usize];
        let whole = unit.at.0 <= page * PAGE_SECTORS
            && unit.at.0 + unit.sectors() >= (page + 1) * PAGE_SECTORS;
        if whole { Ok(Some(number)) } else { Err(()) }
    }

    /// The contents of a page of the device.
    fn slice(&self, page: u64) -> Slice {
        match self.source(page) {
            Ok(None) => whole(&self.frame.base, page),
            Ok(Some(number)) => {
                let unit = &self.history.units[number as usize];
                match &unit.data[..] {
                    [one] if one.len() as usize == PAGE_BYTES => one.clone(),
                    _ => self.mixed_page(page),
                }
            }
            Err(()) => self.mixed_page(page),
        }
    }

    fn mixed_page(&self, page: u64) -> Slice {
        if let Some(p) = self.mixed.borrow().get(&page) {
            return Slice::of_page(p.clone(), 0, PAGE_BYTES as u32);
        }
        let mut own = Medium::new();
        own.write(Sector(page * PAGE_SECTORS), &whole(&self.frame.base, page));
        let mut kept: Vec<usize> = self.pool.of_page(page).filter(|i| self.kept.has(*i)).collect();
        kept.reverse();
        for i in kept {
            self.history.units[self.frame.live[i] as usize].apply(&mut own);
        }
        let page_bytes = whole(&own, page).to_page();
        self.mixed.borrow_mut().insert(page, page_bytes.clone());
        Slice::of_page(page_bytes, 0, PAGE_BYTES as u32)
    }

    /// Identity of a page without noting that it was read.
    pub(crate) fn peek(&self, page: u64) -> u128 {
        if page == ZONES_PAGE {
            return self.zones_id();
        }
        if is_sum(page) {
            return self.sum_id(page);
        }
        let at = self.first + page;
        match self.source(at) {
            Ok(None) => {
                if let Some(id) = self.pool.ids.borrow().get(at).filter(|id| *id != 0) {
                    return id;
                }
                let id = whole(&self.frame.base, at).id();
                self.pool.ids.borrow_mut().put(at, id);
                id
            }
            Ok(Some(number)) => {
                let unit = &self.history.units[number as usize];
                match &unit.data[..] {
                    [one] if one.len() as usize == PAGE_BYTES => unit.id(),
                    _ => self.slice(at).id(),
                }
            }
            Err(()) => self.slice(at).id(),
        }
    }
}

/// A page of a medium as one slice.
fn whole(medium: &Medium, page: u64) -> Slice {
    let parts = medium.read(Sector(page * PAGE_SECTORS), PAGE_SECTORS as u32);
    if let [one] = &parts[..] {
        return one.clone();
    }
    let mut bytes = [0u8; PAGE_BYTES];
    medium.read_bytes(page * PAGE, &mut bytes);
    Slice::from_bytes(&bytes)
}

impl View for State<'_> {
    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        let last = at.saturating_add(bytes.max(1) - 1) / PAGE;
        self.varying.are_fixed(self.first + at / PAGE, self.first + last)
    }

    fn has_crc32(&self, at: u64, bytes: u64, (seed, sum): (u32, u32)) -> FsResult<bool> {
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(FsError::Io);
        }
        let number = self.pool.sums.number(Asked { at, bytes, seed, sum });
        let is_right = self.sum_id(number) != WRONG;
        if !self.is_fixed(at, bytes) {
            let (first, last) = Asked { at, bytes, seed, sum }.pages();
            self.reads.borrow_mut().note_sum(number, is_right.then_some(first..=last));
        }
        Ok(is_right)
    }

    fn zones(&self) -> Vec<Zone> {
        let zones = self.device_zones();
        if !zones.is_empty() {
            self.reads.borrow_mut().note(ZONES_PAGE);
        }
        Zone::within(&zones, Sector(self.first * PAGE_SECTORS), self.bytes / SECTOR_BYTES)
    }

    fn page_at(&self, at: u64) -> FsResult<Option<Page>> {
        let is_whole =
            at.is_multiple_of(PAGE) && at.checked_add(PAGE).is_some_and(|end| end <= self.bytes);
        if !is_whole {
            return Ok(None);
        }
        let page = at / PAGE;
        self.note(page);
        let device = self.first + page;
        let slice = match self.pool.touched.get(device).is_some() {
            true => self.slice(device),
            false => whole(&self.frame.base, device),
        };
        Ok(Some(slice.to_page()))
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(FsError::Io);
        }
        let mut done = 0usize;
        while done < out.len() {
            let pos = at + done as u64;
            let (page, off) = (pos / PAGE, (pos % PAGE) as usize);
            let n = (PAGE_BYTES - off).min(out.len() - done);
            let to = &mut out[done..done + n];
            self.note(page);
            let device = self.first + page;
            match self.pool.touched.get(device).is_some() {
                true => self.slice(device).sub(off as u32, n as u32).copy_to(to),
                false => self.frame.base.read_bytes(device * PAGE + off as u64, to),
            }
            done += n;
        }
        Ok(())
    }
}

impl Pages for State<'_> {
    fn page_id(&self, page: u64) -> u128 {
        self.note(page);
        self.peek(page)
    }

    fn page(&self, page: u64) -> Slice {
        self.note(page);
        self.slice(self.first + page)
    }
}
