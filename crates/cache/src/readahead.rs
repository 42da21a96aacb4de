//! Which pages of a file are read before anybody asks for them.
//!
//! An open file ([`Readahead`]) remembers the window that was read last, and the page in it at
//! which the next one is to be started; that page carries [`BufFlag::Ahead`] in the cache.
//!
//! Source: mm/readahead.c of Linux 6.12 (`page_cache_sync_ra`, `page_cache_async_ra`,
//! `do_page_cache_ra`), and of 3.12 to 6.10 (`ondemand_readahead`); mm/fadvise.c.
//! Left out: windows from a history of cached pages as 3.4 to 3.11 have them, the cap of random
//!           reads before 4.4, large folios, pages of which some blocks are cached, cgroups,
//!           `readahead()`, mapped files, a history of pages that were dropped from the cache.

use std::cell::Cell;

use wp_base::SECTOR_BYTES;

use crate::{BufFlag, Era, Mapping};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Pages of a device's window (`VM_READAHEAD_PAGES`: `read_ahead_kb` is 128).
pub const WINDOW_PAGES: u64 = 32;

/// What a window that its own first page would start again becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelfStart {
    /// It grows by the next one, whatever a window may have (until 4.18).
    Grows,
    /// The same, within what a window may have (4.19 to 6.10).
    GrowsWithin,
    /// The next one starts at its middle (6.11).
    Halves,
}

/// What depends on a kernel and a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadaheadRules {
    /// Pages of a window at most (`ra_pages` of the `backing_dev_info`).
    pub pages: u64,
    /// Pages that one longer call may read at once (`io_pages`, since 4.10); 0: as `pages`.
    pub io_pages: u64,
    /// What becomes of a window that starts itself.
    pub self_start: SelfStart,
    /// The page of the last byte of a read is remembered, not that of the next one (until 5.11).
    pub last_page: bool,
}

impl ReadaheadRules {
    /// Those of a kernel, on a device whose largest request has `max_sectors`.
    pub fn of(era: &Era, max_sectors: u32) -> ReadaheadRules {
        ReadaheadRules {
            pages: WINDOW_PAGES,
            io_pages: match era.reads_io_pages() {
                true => u64::from(max_sectors) * SECTOR_BYTES / PAGE,
                false => 0,
            },
            self_start: match (era.window_starts_itself(), era.window_has_limit()) {
                (true, false) => SelfStart::Grows,
                (true, true) => SelfStart::GrowsWithin,
                (false, _) => SelfStart::Halves,
            },
            last_page: era.remembers_last_page(),
        }
    }
}

/// What a program has said of its reads (`posix_fadvise`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Advice {
    /// Nothing (`POSIX_FADV_NORMAL`).
    #[default]
    Normal,
    /// In order: windows are twice as long (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
    /// Anywhere: only what is asked for is read (`POSIX_FADV_RANDOM`).
    Random,
}

/// Pages to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Window {
    first: u64,
    pages: u64,
    /// Pages at its end, the first of which starts the next window; 0: none does.
    ahead: u64,
}

/// Blocks to be read; those that are in the cache already are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// The first.
    pub from: u64,
    /// The one behind the last.
    pub to: u64,
}

/// The readahead of an open file (`struct file_ra_state`).
#[derive(Debug)]
pub struct Readahead {
    start: Cell<u64>,
    size: Cell<u64>,
    ahead: Cell<u64>,
    /// Where the last read ended, in bytes; -1 before the first one.
    last: Cell<u64>,
    /// Windows are twice as long.
    is_long: Cell<bool>,
    /// There are none (`FMODE_RANDOM`).
    is_random: Cell<bool>,
}

/// The blocks of a window in a file of `bytes`. Marks the page at which the next window starts.
fn start(pages: &Pages<'_>, window: Window, bytes: u64) -> Option<Ahead> {
    let map = pages.map;
    // Not beyond the page of the last byte.
    let of_file = bytes.div_ceil(PAGE);
    let n = window.pages.min(of_file.saturating_sub(window.first));
    let mark = window.first + n.checked_sub(window.ahead).unwrap_or(n);
    if window.ahead > 0 && mark < window.first + n && !pages.is_cached(mark) {
        map.get(mark * pages.per_page).set(BufFlag::Ahead);
    }
    let from = window.first * pages.per_page;
    let blocks = bytes.div_ceil(u64::from(map.block_bytes()));
    let to = ((window.first + n) * pages.per_page).min(blocks);
    (from < to).then_some(Ahead { from, to })
}

impl Default for Readahead {
    fn default() -> Readahead {
        let zero = || Cell::new(0);
        Readahead {
            start: zero(),
            size: zero(),
            ahead: zero(),
            last: Cell::new(u64::MAX),
            is_long: Cell::new(false),
            is_random: Cell::new(false),
        }
    }
}

impl Readahead {
    /// What the program says of its reads from now on.
    pub fn advise(&self, advice: Advice) {
        self.is_random.set(advice == Advice::Random);
        match advice {
            Advice::Normal => self.is_long.set(false),
            Advice::Sequential => self.is_long.set(true),
            // The length of windows stays what it was.
            Advice::Random => {}
        }
    }

    /// A read has ended before this byte, and has read something.
    pub fn read_to(&self, end: u64) {
        self.last.set(end.max(1));
    }

    /// What is to be read before block `block` of `map` is used, by a read that ends before byte
    /// `end` of a file of `bytes`. Marks the page at which the next window starts.
    pub fn at(
        &self,
        map: &Mapping,
        block: u64,
        (end, bytes): (u64, u64),
        rules: &ReadaheadRules,
    ) -> Option<Ahead> {
        let pages = Pages { map, per_page: (PAGE / u64::from(map.block_bytes())).max(1) };
        let page = block / pages.per_page;
        let wanted = end.div_ceil(PAGE).saturating_sub(page).max(1);
        let window = if pages.take_mark(page) {
            self.on_mark(page, wanted, rules, &|p| pages.is_cached(p))?
        } else if map.is_missing(block) {
            self.on_miss(page, wanted, rules, &|p| pages.is_cached(p))
        } else {
            return None;
        };
        start(&pages, window, bytes)
    }

    /// What is to be read before block `block` of `map` is used by a store or a load through a
    /// mapping: the window around a page that is missing, and the next window if the page starts
    /// one (`do_sync_mmap_readahead`, `do_async_mmap_readahead`). `bytes`: of the file.
    pub fn at_fault(
        &self,
        map: &Mapping,
        block: u64,
        bytes: u64,
        rules: &ReadaheadRules,
    ) -> Option<Ahead> {
        let pages = Pages { map, per_page: (PAGE / u64::from(map.block_bytes())).max(1) };
        let page = block / pages.per_page;
        let most = self.pages(rules);
        let window = if pages.take_mark(page) {
            self.on_mark(page, most, rules, &|p| pages.is_cached(p))?
        } else if map.is_missing(block) {
            self.set(page.saturating_sub(most / 2), most, most / 4)
        } else {
            return None;
        };
        start(&pages, window, bytes)
    }

    /// Pages of a window at most.
    fn pages(&self, rules: &ReadaheadRules) -> u64 {
        rules.pages << u32::from(self.is_long.get())
    }

    /// The same for a call of `wanted` pages (`ractl_max_pages`).
    fn most(&self, wanted: u64, rules: &ReadaheadRules) -> u64 {
        let pages = self.pages(rules);
        match wanted > pages && rules.io_pages > pages {
            true => wanted.min(rules.io_pages),
            false => pages,
        }
    }

    fn set(&self, start: u64, size: u64, ahead: u64) -> Window {
        self.start.set(start);
        self.size.set(size);
        self.ahead.set(ahead);
        Window { first: start, pages: size, ahead }
    }

    /// A page that is not in the cache, of a read of `wanted` pages from there on.
    fn on_miss(
        &self,
        page: u64,
        wanted: u64,
        rules: &ReadaheadRules,
        is_cached: &dyn Fn(u64) -> bool,
    ) -> Window {
        let plain = |pages| Window { first: page, pages, ahead: 0 };
        if self.is_random.get() {
            return plain(wanted.min(self.pages(rules).max(rules.io_pages)));
        }
        let most = self.most(wanted, rules);
        if page > 0 && rules.self_start != SelfStart::Halves && self.is_expected(page) {
            return self.pushed(page, most, rules);
        }
        let before = (self.last.get() - u64::from(rules.last_page)) / PAGE;
        if page == 0 || wanted > most || page.wrapping_sub(before) <= 1 {
            let size = first_size(wanted, most);
            let ahead = match size.checked_sub(wanted) {
                Some(more @ 1..) => more,
                _ if rules.self_start == SelfStart::Halves => size / 2,
                _ => size,
            };
            return self.self_started(page, (size, ahead), most, rules);
        }
        // Pages right before it are the trace of a stream.
        let run = (1..=most.min(page)).take_while(|n| is_cached(page - n)).count() as u64;
        if run <= wanted {
            return plain(wanted);
        }
        let run = if run == page { run * 2 } else { run };
        self.self_started(page, ((run + wanted).min(most), 1), most, rules)
    }

    /// A window of `page`, which may be the page that starts the next one.
    fn self_started(
        &self,
        page: u64,
        (size, ahead): (u64, u64),
        most: u64,
        rules: &ReadaheadRules,
    ) -> Window {
        if size != ahead || rules.self_start == SelfStart::Halves {
            return self.set(page, size, ahead);
        }
        let next = next_size(size, most);
        match size + next <= most || rules.self_start == SelfStart::Grows {
            true => self.set(page, size + next, next),
            false => self.set(page, most, most / 2),
        }
    }

    /// Is it the page that starts the next window, or the first one behind this window? (Until
    /// 6.10.)
    fn is_expected(&self, page: u64) -> bool {
        let end = self.start.get() + self.size.get();
        page == end.wrapping_sub(self.ahead.get()) || page == end
    }

    /// The next window.
    fn pushed(&self, page: u64, most: u64, rules: &ReadaheadRules) -> Window {
        let (start, size) = (self.start.get() + self.size.get(), next_size(self.size.get(), most));
        match page == start {
            true => self.self_started(start, (size, size), most, rules),
            false => self.set(start, size, size),
        }
    }

    /// A page that starts the next window.
    fn on_mark(
        &self,
        page: u64,
        wanted: u64,
        rules: &ReadaheadRules,
        is_cached: &dyn Fn(u64) -> bool,
    ) -> Option<Window> {
        let most = self.most(wanted, rules);
        let (end, size) = (self.start.get() + self.size.get(), self.size.get());
        if rules.self_start == SelfStart::Halves {
            if page == end.wrapping_sub(self.ahead.get()) {
                let size = next_size(size, most).max(size);
                return Some(self.set(end, size, size));
            }
        } else if page > 0 && self.is_expected(page) {
            return Some(self.pushed(page, most, rules));
        }
        // Of another stream: what is in the cache from here on was its window.
        let run = (1..=most).take_while(|n| is_cached(page + n)).count() as u64;
        if run >= most {
            return None;
        }
        let size = next_size(run + 1 + wanted, most);
        Some(self.set(page + run + 1, size, size))
    }
}

/// Pages of the first window of a read of `wanted` (`get_init_ra_size`).
fn first_size(wanted: u64, most: u64) -> u64 {
    match wanted.checked_next_power_of_two().unwrap_or(u64::MAX) {
        n if n <= most / 32 => n * 4,
        n if n <= most / 4 => n * 2,
        _ => most,
    }
}

/// Pages of the window after one of `size` (`get_next_ra_size`).
fn next_size(size: u64, most: u64) -> u64 {
    match size {
        n if n < most / 16 => n * 4,
        n if n <= most / 2 => n * 2,
        _ => most,
    }
}

/// The pages of a mapping, which may have several blocks.
struct Pages<'a> {
    map: &'a Mapping,
    per_page: u64,
}

impl Pages<'_> {
    fn is_cached(&self, page: u64) -> bool {
        !self.map.is_missing(page * self.per_page)
    }

    /// Nothing is started while the page is being written. A mark on what was not read after all
    /// is none.
    fn take_mark(&self, page: u64) -> bool {
        let is_cached = self.is_cached(page);
        let marked = |b: &crate::Buffer| !b.flag(BufFlag::Writeback) && b.clear(BufFlag::Ahead);
        self.map.peek(page * self.per_page).is_some_and(|b| marked(&b)) && is_cached
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    /// A file's cache, and windows read into it: first page, pages, page of the mark.
    #[derive(Default)]
    struct File {
        ahead: Readahead,
        cached: RefCell<BTreeSet<u64>>,
        marks: BTreeSet<u64>,
        read: Vec<(u64, u64, u64)>,
    }

    impl File {
        /// Reads pages; the windows that this has started.
        fn read(&mut self, from: u64, pages: u64, rules: &ReadaheadRules) -> Vec<(u64, u64, u64)> {
            self.read.clear();
            for page in from..from + pages {
                let wanted = from + pages - page;
                let window = {
                    let cached = self.cached.borrow();
                    let is_cached = |p: u64| cached.contains(&p);
                    match () {
                        () if self.marks.remove(&page) => {
                            self.ahead.on_mark(page, wanted, rules, &is_cached)
                        }
                        () if !is_cached(page) => {
                            Some(self.ahead.on_miss(page, wanted, rules, &is_cached))
                        }
                        () => None,
                    }
                };
                let Some(w) = window else { continue };
                let mark = w.first + w.pages - w.ahead;
                if w.ahead > 0 && w.ahead <= w.pages && !self.cached.borrow().contains(&mark) {
                    self.marks.insert(mark);
                }
                self.cached.borrow_mut().extend(w.first..w.first + w.pages);
                self.read.push((w.first, w.pages, mark));
            }
            self.ahead.read_to((from + pages) * PAGE);
            self.read.clone()
        }
    }

    fn now() -> ReadaheadRules {
        ReadaheadRules::of(&Era::default(), 2560)
    }

    #[test]
    fn windows_of_a_stream_grow_and_each_starts_the_next() {
        let (mut file, rules) = (File::default(), now());
        let mut all = Vec::new();
        for page in 0..100 {
            all.extend(file.read(page, 1, &rules));
        }
        // 16, 32, 64 and 128 KiB.
        let first = [(0, 4, 1), (4, 8, 4), (12, 16, 12), (28, 32, 28), (60, 32, 60)];
        assert_eq!(all[..5], first);
        assert_eq!(all[5..], [(92, 32, 92), (124, 32, 124)]);
        let mut long = File::default();
        long.ahead.advise(Advice::Sequential);
        let mut sizes = Vec::new();
        for page in 0..200 {
            sizes.extend(long.read(page, 1, &rules).iter().map(|w| w.1));
        }
        assert_eq!(sizes, [4, 8, 16, 32, 64, 64, 64, 64]);
    }

    #[test]
    fn what_is_read_at_random_is_read_as_asked() {
        let (mut file, rules) = (File::default(), now());
        assert_eq!(file.read(500, 3, &rules), [(500, 3, 503)]);
        assert_eq!(file.read(9, 1, &rules), [(9, 1, 10)]);
        // The page behind the last one read may begin a stream, and so does one before a run.
        assert_eq!(file.read(10, 1, &rules), [(10, 4, 11)]);
        file.ahead.advise(Advice::Random);
        assert_eq!(file.read(40, 40, &rules), [(40, 40, 80)]);
        assert_eq!(file.read(80, 1, &rules), [(80, 1, 81)]);
        assert_eq!(file.read(0, 1, &rules), [(0, 1, 1)]);
    }

    /// Pages that Linux 6.12.117 had read from null_blk (`max_sectors=2560`) a second after
    /// `dd bs=1M`, `2M` and `3M` of one block.
    #[test]
    fn a_long_call_reads_as_much_as_a_request_may_have() {
        let read = |pages, rules: &ReadaheadRules| {
            File::default().read(0, pages, rules).iter().map(|w| w.1).collect::<Vec<_>>()
        };
        let total = |pages| read(pages, &now()).iter().sum::<u64>();
        assert_eq!([256, 512, 768].map(total), [512, 960, 1280]);
        let old = ReadaheadRules { io_pages: 0, self_start: SelfStart::Grows, ..now() };
        assert_eq!(read(256, &old)[..3], [64, 32, 32]);
    }

    #[test]
    fn a_window_that_starts_itself_is_as_the_kernel_has_it() {
        let first =
            |self_start| File::default().read(0, 32, &ReadaheadRules { self_start, ..now() });
        assert_eq!(first(SelfStart::Halves)[0], (0, 32, 16));
        assert_eq!(first(SelfStart::GrowsWithin)[0], (0, 32, 16));
        assert_eq!(first(SelfStart::Grows)[0], (0, 64, 32));
    }

    #[test]
    fn until_6_10_a_miss_behind_a_window_goes_on_with_it() {
        let behind = |self_start| {
            let (mut file, rules) = (File::default(), ReadaheadRules { self_start, ..now() });
            file.read(0, 1, &rules);
            // Without a use of the page that starts the next window.
            file.read(4, 1, &rules)[0]
        };
        assert_eq!(behind(SelfStart::GrowsWithin), (4, 24, 12));
        assert_eq!(behind(SelfStart::Halves), (4, 9, 12));
    }

    #[test]
    fn old_kernels_take_a_skipped_page_for_the_end_of_a_stream() {
        let skips = |last_page| {
            let (mut file, rules) = (File::default(), ReadaheadRules { last_page, ..now() });
            file.read(100, 1, &rules);
            file.read(102, 1, &rules)[0].1
        };
        assert_eq!((skips(false), skips(true)), (4, 1));
    }
}
