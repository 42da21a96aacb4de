//! Class and owner of millions of blocks, in few bytes each.
//!
//! Layout:     blocks of a group that have a class, in order: their distance from the one before,
//!             the class and whether there is an owner, then its inode and place. Numbers take a
//!             byte for each seven bits that they need.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// Class of a block, and its owner: inode, and place in the file.
pub(super) type Owner = (&'static str, Option<(u64, u64)>);

/// Blocks of a group.
const GROUP: u64 = 512;
/// Blocks that are held as they are until they are packed.
const LOOSE: usize = 1 << 14;

/// Classes and owners by block; what was put there last counts.
#[derive(Default)]
pub(super) struct Owners {
    classes: Vec<&'static str>,
    packed: BTreeMap<u64, Box<[u8]>>,
    loose: BTreeMap<u64, Owner>,
    /// The group that was asked for last: writes lie side by side.
    last: RefCell<(u64, Vec<(u64, Owner)>)>,
}

impl Owners {
    pub fn insert(&mut self, block: u64, owner: Owner) {
        self.loose.insert(block, owner);
        if self.loose.len() >= LOOSE {
            self.pack();
        }
    }

    /// What was put there.
    pub fn get(&self, block: u64) -> Option<Owner> {
        if let Some(owner) = self.loose.get(&block) {
            return Some(*owner);
        }
        let group = block / GROUP;
        let bytes = self.packed.get(&group)?;
        let mut last = self.last.borrow_mut();
        if last.0 != group || last.1.is_empty() {
            *last = (group, self.unpack(group, bytes));
        }
        let found = last.1.binary_search_by_key(&block, |(block, _)| *block).ok()?;
        last.1.get(found).map(|(_, owner)| *owner)
    }

    /// Packs what is held as it is.
    fn pack(&mut self) {
        self.last.take();
        let mut loose = std::mem::take(&mut self.loose);
        while let Some((first, _)) = loose.first_key_value() {
            let group = *first / GROUP;
            let behind = match (group + 1).checked_mul(GROUP) {
                Some(next) => loose.split_off(&next),
                None => BTreeMap::new(),
            };
            let here = std::mem::replace(&mut loose, behind);
            let mut all: BTreeMap<u64, Owner> = match self.packed.get(&group) {
                Some(bytes) => self.unpack(group, bytes).into_iter().collect(),
                None => BTreeMap::new(),
            };
            all.extend(here);
            let packed = self.packed_group(group, &all);
            self.packed.insert(group, packed);
        }
    }

    fn packed_group(&mut self, group: u64, all: &BTreeMap<u64, Owner>) -> Box<[u8]> {
        let (mut out, mut next) = (Vec::new(), group * GROUP);
        for (block, (class, owner)) in all {
            put(&mut out, block - next);
            next = *block;
            let known = self.classes.iter().position(|c| c == class);
            let class = known.unwrap_or_else(|| {
                self.classes.push(class);
                self.classes.len() - 1
            });
            put(&mut out, crate::disk::wide(class) * 2 + u64::from(owner.is_some()));
            if let Some((ino, place)) = owner {
                put(&mut out, *ino);
                put(&mut out, *place);
            }
        }
        out.into()
    }

    fn unpack(&self, group: u64, mut bytes: &[u8]) -> Vec<(u64, Owner)> {
        let (mut out, mut block) = (Vec::new(), group * GROUP);
        while !bytes.is_empty() {
            block += take(&mut bytes);
            let class = take(&mut bytes);
            let has_owner = class % 2 == 1;
            let owner = has_owner.then(|| (take(&mut bytes), take(&mut bytes)));
            let class = self.classes.get(crate::disk::index(class / 2)).copied().unwrap_or("free");
            out.push((block, (class, owner)));
        }
        out
    }
}

/// Adds a number, its lowest bits first.
fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes a number off.
fn take(bytes: &mut &[u8]) -> u64 {
    let (mut n, mut shift) = (0, 0);
    while let [byte, rest @ ..] = *bytes {
        *bytes = rest;
        n |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Rng;

    #[test]
    fn same_as_an_ordered_map() {
        let mut rng = Rng::stream(1, "owners");
        let (mut ours, mut map) = (Owners::default(), BTreeMap::new());
        let mut place = 0;
        for round in 0..5 * LOOSE {
            // Runs as logs have them, some of them over what was there.
            place = if round % 200 == 0 { rng.below(40_000) } else { place + 1 + rng.below(2) };
            let class = ["data", "btree", "summary"][rng.below(3) as usize];
            let owner = (rng.below(4) > 0).then(|| (rng.next_u64() >> rng.below(64), rng.below(9)));
            let block = if round % 1000 == 7 { u64::MAX - rng.below(3) } else { place };
            ours.insert(block, (class, owner));
            map.insert(block, (class, owner));
        }
        assert!(ours.packed.len() > 50 && !ours.loose.is_empty());
        for block in (0..41_000).chain(u64::MAX - 5..=u64::MAX) {
            assert_eq!(ours.get(block), map.get(&block).copied(), "block {block}");
        }
    }
}
