//! Versions of a page, each held as what differs from the one before it.
//!
//! Picture:    whole page <- changes <- changes <- ...; after [`DEPTH`] versions, or where more
//!             than [`MOST`] bytes have changed, comes a whole page again.
//! Layout:     changes are runs of words that differ: place and number of words, a byte each less
//!             one where it is a number, then the words.

use crate::{PAGE_BYTES, Page, ZERO_PAGE};

/// Versions between two whole pages.
const DEPTH: u32 = 64;
/// Bytes of changes from which on a page is held whole.
pub(crate) const MOST: usize = PAGE_BYTES / 4;
/// Bytes of a word: what is compared at a time.
const WORD: usize = 8;
/// Words of a run at most, so that their number fits in a byte.
const RUN_WORDS: usize = 256;

/// What differs from `base`.
pub(crate) struct Changes {
    base: Page,
    runs: Box<[u8]>,
    /// Versions since the last whole page.
    depth: u32,
}

impl Changes {
    pub(crate) fn new(base: Page, runs: Box<[u8]>, depth: u32) -> Changes {
        Changes { base, runs, depth }
    }

    pub(crate) fn base(&self) -> &Page {
        &self.base
    }

    pub(crate) fn runs(&self) -> &[u8] {
        &self.runs
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// The bytes: those of the whole page at the end of the way, changed version by version.
    pub(crate) fn unpack(&self) -> [u8; PAGE_BYTES] {
        let mut way = vec![&*self.runs];
        let mut base = &self.base;
        while let Some(changes) = base.changes() {
            way.push(&changes.runs);
            base = &changes.base;
        }
        let mut bytes = *base.bytes();
        way.into_iter().rev().for_each(|runs| apply(runs, &mut bytes));
        bytes
    }
}

/// Makes of the bytes of one version those of the next.
pub(crate) fn apply(mut runs: &[u8], bytes: &mut [u8; PAGE_BYTES]) {
    while let [low, high, count, rest @ ..] = runs {
        let at = usize::from(u16::from_le_bytes([*low, *high])) * WORD;
        let (words, rest) = rest.split_at((usize::from(*count) + 1) * WORD);
        bytes[at..at + words.len()].copy_from_slice(words);
        runs = rest;
    }
}

/// The runs that make `new` of `old`. `None`: they take more than `most` bytes.
pub(crate) fn differences(
    old: &[u8; PAGE_BYTES],
    new: &[u8; PAGE_BYTES],
    most: usize,
) -> Option<Vec<u8>> {
    let mut runs = Vec::new();
    let mut end = 0;
    for at in changed_words(old, new) {
        if at < end {
            continue;
        }
        let words = (at..PAGE_BYTES)
            .step_by(WORD)
            .take_while(|at| old[*at..at + WORD] != new[*at..at + WORD])
            .take(RUN_WORDS)
            .count();
        end = at + words * WORD;
        if runs.len() + 3 + words * WORD > most {
            return None;
        }
        runs.extend_from_slice(&((at / WORD) as u16).to_le_bytes());
        runs.push((words - 1) as u8);
        runs.extend_from_slice(&new[at..end]);
    }
    Some(runs)
}

/// Words of a part have a bit each in [`Runs::add`].
const _: () = assert!(Versions::PART_BYTES == 32 * WORD);

/// Runs of parts of a page, one part after the other, in memory of their own until it is known how
/// many there are.
struct Runs {
    bytes: [u8; MOST],
    /// Bytes in use. `None`: they were too few.
    used: Option<usize>,
}

impl Runs {
    fn new() -> Runs {
        Runs { bytes: [0; MOST], used: Some(0) }
    }

    /// Adds what differs in a part, which begins at byte `from`.
    fn add(
        &mut self,
        from: usize,
        old: &[u8; Versions::PART_BYTES],
        new: &[u8; Versions::PART_BYTES],
    ) {
        let (before, _) = old.as_chunks::<WORD>();
        let (after, _) = new.as_chunks::<WORD>();
        // A bit for each word that differs, the lowest first.
        let mut differ = 0u32;
        for (n, (before, after)) in before.iter().zip(after).enumerate() {
            let differs = u64::from_le_bytes(*before) != u64::from_le_bytes(*after);
            differ |= u32::from(differs) << n;
        }
        while differ != 0 {
            let at = differ.trailing_zeros();
            let words = (differ >> at).trailing_ones();
            let (from_byte, to_byte) = (at as usize * WORD, (at + words) as usize * WORD);
            self.push(from / WORD + at as usize, &new[from_byte..to_byte]);
            differ &= u32::MAX.checked_shl(at + words).unwrap_or(0);
        }
    }

    fn push(&mut self, word: usize, bytes: &[u8]) {
        let Some(used) = self.used else { return };
        let head = [word as u8, (word >> 8) as u8, (bytes.len() / WORD - 1) as u8];
        let end = used + head.len() + bytes.len();
        self.used = self.bytes.get_mut(used..end).map(|place| {
            let (of_head, rest) = place.split_at_mut(head.len());
            of_head.copy_from_slice(&head);
            rest.copy_from_slice(bytes);
            end
        });
    }

    fn found(&self) -> Option<&[u8]> {
        self.bytes.get(..self.used?)
    }
}

/// Where words differ.
fn changed_words(old: &[u8; PAGE_BYTES], new: &[u8; PAGE_BYTES]) -> impl Iterator<Item = usize> {
    /// Bytes that are compared together; most of them are equal.
    const STEP: usize = 32 * WORD;
    let (old_steps, _) = old.as_chunks::<STEP>();
    let (new_steps, _) = new.as_chunks::<STEP>();
    let steps = (0..).step_by(STEP).zip(old_steps.iter().zip(new_steps));
    steps.filter(|(_, (old, new))| old != new).flat_map(|(from, (old, new))| {
        let (old, _) = old.as_chunks::<WORD>();
        let (new, _) = new.as_chunks::<WORD>();
        let words = (from..).step_by(WORD).zip(old.iter().zip(new));
        words.filter(|(_, (old, new))| old != new).map(|(at, _)| at)
    })
}

/// The versions of a block that is sent again and again, changed a little each time: a log has them
/// all, and each costs the memory of what has changed.
#[derive(Clone)]
pub struct Versions {
    /// The bytes of the last one.
    bytes: Box<[u8; PAGE_BYTES]>,
    last: Page,
    /// See [`Self::changed`].
    changed: u16,
}

impl Default for Versions {
    /// Before the first one: zeroes.
    fn default() -> Versions {
        Versions { bytes: Box::new([0; PAGE_BYTES]), last: Page::zeroed(), changed: 0 }
    }
}

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").finish_non_exhaustive()
    }
}

impl Versions {
    /// Bytes of a part of a page, of which [`Self::changed`] tells.
    pub const PART_BYTES: usize = 256;

    /// The parts that differ between the last version and the one before it, a bit for each, the
    /// lowest first; before the first version stand zeroes. Whoever has something of each part,
    /// such as a checksum, needs to look at no other.
    pub fn changed(&self) -> u16 {
        self.changed
    }

    /// A page that begins with `bytes`, and is zero behind them. Panics if they are more than a
    /// page.
    pub fn next(&mut self, bytes: &[u8]) -> Page {
        assert!(bytes.len() <= PAGE_BYTES, "{} bytes", bytes.len());
        self.next_of_parts(!0, |n, part| {
            let from = (n * Versions::PART_BYTES).min(bytes.len());
            let to = (from + Versions::PART_BYTES).min(bytes.len());
            let (there, behind) = part.split_at_mut(to - from);
            there.copy_from_slice(&bytes[from..to]);
            behind.fill(0);
        })
    }

    /// The next version, which differs from the last one in no part but `parts`, a bit for each,
    /// the lowest first. `make` gets the number of a part and its bytes as they were, and makes of
    /// them what they are.
    pub fn next_of_parts(
        &mut self,
        parts: u16,
        mut make: impl FnMut(usize, &mut [u8; Versions::PART_BYTES]),
    ) -> Page {
        let mut runs = Runs::new();
        self.changed = 0;
        let (all, _) = self.bytes.as_chunks_mut::<{ Versions::PART_BYTES }>();
        for (n, old) in all.iter_mut().enumerate().filter(|(n, _)| parts & (1 << n) != 0) {
            let mut new = *old;
            make(n, &mut new);
            if new != *old {
                self.changed |= 1 << n;
                runs.add(n * Versions::PART_BYTES, old, &new);
                *old = new;
            }
        }
        let depth = self.last.depth() + 1;
        if self.changed != 0 {
            self.last = match runs.found() {
                Some(runs) if depth < DEPTH => {
                    Page::packed(Changes { base: self.last.clone(), runs: runs.into(), depth })
                }
                _ => Page::from_bytes(self.bytes.as_slice()),
            };
        }
        self.last.clone()
    }

    /// The bytes of the last version, and zeroes behind them.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        &self.bytes
    }

    /// `bytes` as the first and only version: what of them is not zero is held.
    pub fn only(bytes: &[u8]) -> Page {
        let Ok(whole) = bytes.try_into() else { return Versions::default().next(bytes) };
        match differences(&ZERO_PAGE, whole, MOST) {
            Some(runs) if runs.is_empty() => Page::zeroed(),
            Some(runs) => {
                Page::packed(Changes { base: Page::zeroed(), runs: runs.into(), depth: 1 })
            }
            None => Page::from_bytes(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Rng;

    #[test]
    fn each_version_is_what_was_given() {
        let mut rng = Rng::stream(1, "versions");
        let (mut versions, mut bytes, mut all) = (Versions::default(), [0; PAGE_BYTES], Vec::new());
        for round in 0..500 {
            let changes = if round % 97 == 0 { 2000 } else { rng.below(9) };
            for _ in 0..changes {
                bytes[rng.below(PAGE_BYTES as u64) as usize] = rng.next_u64() as u8;
            }
            let before = all.last().map_or([0; PAGE_BYTES], |(_, bytes)| *bytes);
            all.push((versions.next(&bytes), bytes));
            let pairs = before.chunks(Versions::PART_BYTES).zip(bytes.chunks(Versions::PART_BYTES));
            let differ = (0..).zip(pairs).filter(|(_, (old, new))| old != new);
            let parts = differ.fold(0, |bits, (part, _)| bits | 1u16 << part);
            assert_eq!(parts, versions.changed(), "round {round}");
        }
        let packed = all.iter().filter(|(page, _)| page.changes().is_some()).count();
        assert!(packed > 400, "{packed}");
        for (page, bytes) in all.iter().rev() {
            assert!(page.bytes() == bytes);
        }
        let (page, bytes) = &all[7];
        let mut other = page.clone();
        other.make_mut()[9] ^= 1;
        assert!(page.bytes() == bytes && other.bytes()[9] == bytes[9] ^ 1);
        assert_eq!(page.id(), Page::from_bytes(bytes).id());
    }

    #[test]
    fn versions_made_part_by_part_are_those_of_the_whole() {
        let mut rng = Rng::stream(2, "versions");
        let (mut parts, mut whole) = (Versions::default(), Versions::default());
        let (mut bytes, mut all, mut packed) = ([0; PAGE_BYTES], Vec::new(), 0);
        for round in 0..500 {
            let mut touched = rng.next_u64() as u16 & rng.next_u64() as u16;
            let changes = if round % 97 == 0 { 2000 } else { rng.below(9) };
            for _ in 0..changes {
                let at = rng.below(PAGE_BYTES as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
                touched |= 1 << (at / Versions::PART_BYTES);
            }
            let page = parts.next_of_parts(touched, |n, part| {
                part.copy_from_slice(&bytes[n * Versions::PART_BYTES..][..Versions::PART_BYTES]);
            });
            whole.next(&bytes);
            assert!(parts.bytes() == &bytes && parts.changed() & !touched == 0);
            assert_eq!(parts.changed(), whole.changed(), "round {round}");
            packed += u32::from(page.changes().is_some());
            all.push((page, bytes));
        }
        assert!(packed > 400, "{packed}");
        assert!(all.iter().rev().all(|(page, bytes)| page.bytes() == bytes));
        let last = all.last().map(|(page, _)| page.clone()).expect("there are some");
        assert!(parts.next_of_parts(!0, |_, _| {}).same(&last));
    }

    #[test]
    fn what_has_not_changed_is_the_same_page() {
        let mut versions = Versions::default();
        let first = versions.next(b"one");
        assert!(versions.next(b"one").same(&first) && !versions.next(b"two").same(&first));
        assert_eq!(&Versions::only(&[7; 1024]).bytes()[1020..1028], [7, 7, 7, 7, 0, 0, 0, 0]);
        assert!(Versions::only(&[]).same(&Page::zeroed()));
        let (mut few, many) = ([0; PAGE_BYTES], [7; PAGE_BYTES]);
        few[4090] = 9;
        assert!(Versions::only(&few).changes().is_some() && Versions::only(&few).bytes() == &few);
        assert!(
            Versions::only(&many).changes().is_none() && Versions::only(&many).bytes() == &many
        );
    }
}
