//! Checksums that a recovery asks about, and learns nothing more of what they cover if they are
//! wrong.
//!
//! Picture:    a question stands among the pages that a recovery reads, by a number of its own
//!             ([`is_sum`]). What is told apart there is the contents of all of its pages where the
//!             checksum is right, and [`WRONG`] where it is not. So the loss of any block of a log
//!             is one branch of [`crate::recovery_memo`], not one a block.
//! Invariants: 1. a checksum is computed from those of pages, each of which is computed once by the
//!                identity of its contents;
//!             2. in one frame, all states that keep every unit below a question, or none of them,
//!                have the same answer, which is computed once;
//!             3. of all others the checksum is known from what each unit changes, and the contents
//!                only where it is right.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::crc::{Crc32After, crc32_le};
use wp_medium::{PAGE_BYTES, Slice};

use crate::states::Kept;

/// What a question comes to where the checksum is wrong.
pub(crate) const WRONG: u128 = 0;

/// Tells numbers of questions from those of pages.
const SUM: u64 = 1 << 63;

/// Is this the number of a question? [`u64::MAX`] stands for something else.
#[inline]
pub(crate) fn is_sum(number: u64) -> bool {
    number & SUM != 0 && number != u64::MAX
}

/// What is asked: is `sum` the checksum of these bytes from `seed` on?
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Asked {
    /// First byte, and how many.
    pub at: u64,
    pub bytes: u64,
    pub seed: u32,
    pub sum: u32,
}

impl Asked {
    /// First and last page.
    pub(crate) fn pages(&self) -> (u64, u64) {
        let page = PAGE_BYTES as u64;
        (self.at / page, self.at.saturating_add(self.bytes.max(1) - 1) / page)
    }
}

/// What answers a question in one frame.
pub(crate) struct Decided {
    /// Unpersisted units below it, in order.
    pub units: Vec<u32>,
    /// The same as words of a [`Kept`].
    words: Vec<(usize, u64)>,
    /// The answer where none of them is kept, and where all are.
    ends: [Cell<Option<u128>>; 2],
    /// Other states that were asked about so far.
    mixed: Cell<u32>,
    linear: OnceCell<Option<Linear>>,
}

/// A checksum is linear: each unit that is kept changes it in its own way, whatever else is kept.
/// So it comes from one word a unit, without a look at the pages.
struct Linear {
    /// The checksum where no unit is kept.
    none: u32,
    /// What each unit changes, in the order of [`Decided::units`].
    changes: Vec<u32>,
}

impl Decided {
    /// `units` in any order, and several times.
    pub(crate) fn by(mut units: Vec<u32>) -> Decided {
        units.sort_unstable();
        units.dedup();
        let mut words: Vec<(usize, u64)> = Vec::new();
        for unit in &units {
            let (word, bit) = (*unit as usize / 64, 1 << (unit % 64));
            match words.last_mut() {
                Some((last, mask)) if *last == word => *mask |= bit,
                _ => words.push((word, bit)),
            }
        }
        let (ends, mixed, linear) = Default::default();
        Decided { units, words, ends, mixed, linear }
    }

    /// Where the answer for a state stands that many have.
    #[inline]
    pub(crate) fn end(&self, kept: &Kept) -> Option<&Cell<Option<u128>>> {
        let word = |at: usize| kept.words().get(at).copied().unwrap_or(0);
        if self.words.iter().all(|(at, mask)| word(*at) & mask == *mask) {
            return Some(&self.ends[1]);
        }
        self.words.iter().all(|(at, mask)| word(*at) & mask == 0).then_some(&self.ends[0])
    }

    /// Is the checksum of this state known to be another than `sum`? `make` is called once, when
    /// about as many states were asked about as it costs.
    pub(crate) fn is_wrong(
        &self,
        kept: &Kept,
        sum: u32,
        make: impl FnOnce() -> Option<(u32, Vec<u32>)>,
    ) -> bool {
        let asked = self.mixed.get();
        if (asked as usize) < self.units.len() {
            self.mixed.set(asked + 1);
            return false;
        }
        let make = || make().map(|(none, changes)| Linear { none, changes });
        let Some(linear) = self.linear.get_or_init(make) else { return false };
        let changes = self.units.iter().zip(&linear.changes);
        let kept = changes.filter(|(unit, _)| kept.has(**unit as usize));
        kept.fold(linear.none, |all, (_, change)| all ^ change) != sum
    }
}

/// The checksum behind a part of a page, where that before it is `sum`.
fn part_sum(sum: u32, page: Slice, from: usize, bytes: usize) -> u32 {
    match page.sub(from as u32, bytes as u32) {
        part if part.held().is_some() => crc32_le(sum, part.held().unwrap_or_default()),
        part => crc32_le(sum, &part.to_vec()),
    }
}

/// The questions of an explorer.
pub(crate) struct Sums {
    numbers: RefCell<BTreeMap<Asked, u64>>,
    asked: RefCell<Vec<Asked>>,
    /// By number, in the frame that was entered.
    decided: RefCell<Vec<Option<Rc<Decided>>>>,
    /// Checksums of whole pages, from 0 on, by their identities.
    pages: RefCell<BTreeMap<u128, u32>>,
    after: Crc32After,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            numbers: RefCell::default(),
            asked: RefCell::default(),
            decided: RefCell::default(),
            pages: RefCell::default(),
            after: Crc32After::new(PAGE_BYTES),
        }
    }
}

impl Sums {
    /// Another frame is entered.
    pub(crate) fn enter(&mut self) {
        self.decided.get_mut().clear();
    }

    /// The number of a question, and the question of a number.
    pub(crate) fn number(&self, asked: Asked) -> u64 {
        let mut all = self.asked.borrow_mut();
        *self.numbers.borrow_mut().entry(asked).or_insert_with(|| {
            all.push(asked);
            SUM | (all.len() - 1) as u64
        })
    }

    /// What is asked by this number.
    pub(crate) fn asked(&self, number: u64) -> Asked {
        self.asked.borrow()[(number & !SUM) as usize]
    }

    /// What answers it in this frame; `find` finds the units below.
    pub(crate) fn decided(
        &self,
        number: u64,
        find: impl FnOnce(&Asked) -> Vec<u32>,
    ) -> Rc<Decided> {
        let mut decided = self.decided.borrow_mut();
        let at = (number & !SUM) as usize;
        if decided.len() <= at {
            decided.resize_with(at + 1, || None);
        }
        let found = || Rc::new(Decided::by(find(&self.asked(number))));
        decided[at].get_or_insert_with(found).clone()
    }

    /// The answer for pages with these identities and contents.
    pub(crate) fn answer(
        &self,
        asked: &Asked,
        id: impl Fn(u64) -> u128,
        page: impl Fn(u64) -> Slice,
    ) -> u128 {
        let (mut sum, mut whole) = (asked.seed, 1u128);
        let (mut at, end) = (asked.at, asked.at + asked.bytes);
        let mut known = self.pages.borrow_mut();
        while at < end {
            let (number, from) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let bytes = (PAGE_BYTES - from).min((end - at) as usize);
            let own = id(number);
            whole = (whole ^ own)
                .rotate_left(29)
                .wrapping_mul(0x0000_0100_0000_01B3_0000_0100_0000_01B3);
            let of = |sum| part_sum(sum, page(number), from, bytes);
            sum = match bytes {
                PAGE_BYTES => self.after.join(sum, *known.entry(own).or_insert_with(|| of(0))),
                _ => of(sum),
            };
            at += bytes as u64;
        }
        if sum == asked.sum { whole.max(WRONG + 1) } else { WRONG }
    }

    /// The checksum where no unit is kept, and what each of `units` changes. `unit(page)` tells the
    /// one unit that touches a page, `page(page, kept)` what it holds without it and with it.
    /// `None`: several units touch a page, or the last is asked about in part.
    pub(crate) fn changes(
        &self,
        asked: &Asked,
        units: &[u32],
        unit: impl Fn(u64) -> Result<Option<u32>, ()>,
        page: impl Fn(u64, bool) -> Slice,
    ) -> Option<(u32, Vec<u32>)> {
        let end = asked.at + asked.bytes;
        if !end.is_multiple_of(PAGE_BYTES as u64) {
            return None;
        }
        let (mut none, mut changes) = (asked.seed, vec![0; units.len()]);
        let mut at = asked.at;
        while at < end {
            let (number, from) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let bytes = PAGE_BYTES - from;
            let sum = |seed, kept| part_sum(seed, page(number, kept), from, bytes);
            // The bytes of this page move what was before it; of a part nothing was.
            if bytes == PAGE_BYTES {
                for change in &mut changes {
                    *change = self.after.join(*change, 0);
                }
            }
            let own = sum(0, false);
            none = if bytes == PAGE_BYTES { self.after.join(none, own) } else { sum(none, false) };
            if let Some(unit) = unit(number).ok()? {
                changes[units.binary_search(&unit).ok()?] ^= own ^ sum(0, true);
            }
            at += bytes as u64;
        }
        Some((none, changes))
    }
}
