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

/// Where words differ.
fn changed_words(old: &[u8; PAGE_BYTES], new: &[u8; PAGE_BYTES]) -> impl Iterator<Item = usize> {
    /// Bytes that are compared together; most of them are equal.
    const STEP: usize = 16 * WORD;
    let (old_steps, _) = old.as_chunks::<STEP>();
    let (new_steps, _) = new.as_chunks::<STEP>();
    let steps = (0..).step_by(STEP).zip(old_steps.iter().zip(new_steps));
    // Without a way out in between, so that many bytes are compared at once.
    let differ = |(old, new): (&[u8; STEP], &[u8; STEP])| {
        old.iter().zip(new).fold(0, |all, (a, b)| all | (a ^ b)) != 0
    };
    steps.filter(move |(_, step)| differ(*step)).flat_map(|(from, (old, new))| {
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
}

impl Default for Versions {
    /// Before the first one: zeroes.
    fn default() -> Versions {
        Versions { bytes: Box::new([0; PAGE_BYTES]), last: Page::zeroed() }
    }
}

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").finish_non_exhaustive()
    }
}

impl Versions {
    /// A page that begins with `bytes`, and is zero behind them. Panics if they are more than a
    /// page.
    pub fn next(&mut self, bytes: &[u8]) -> Page {
        let padded;
        let new: &[u8; PAGE_BYTES] = if let Ok(whole) = bytes.try_into() {
            whole
        } else {
            padded = {
                let mut page = [0; PAGE_BYTES];
                page[..bytes.len()].copy_from_slice(bytes);
                page
            };
            &padded
        };
        let depth = self.last.depth() + 1;
        match differences(&self.bytes, new, MOST) {
            Some(runs) if runs.is_empty() => {}
            Some(runs) if depth < DEPTH => {
                apply(&runs, &mut self.bytes);
                self.last =
                    Page::packed(Changes { base: self.last.clone(), runs: runs.into(), depth });
            }
            _ => {
                *self.bytes = *new;
                self.last = Page::from_bytes(new);
            }
        }
        self.last.clone()
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
            all.push((versions.next(&bytes), bytes));
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
