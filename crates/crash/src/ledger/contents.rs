//! Contents and lengths of files, version by version.

use std::collections::BTreeMap;

use wp_medium::Slice;

use super::{BlockVersion, Ledger, Object, Open, SizeVersion};

impl Ledger {
    pub(super) fn size(&self, o: Object) -> u64 {
        let known = || self.files[o as usize].sizes.last().map_or(0, |s| s.to);
        self.pending_size(o).unwrap_or_else(known)
    }

    /// Up to `len` bytes from `at`, as they are now, block by block: how far each is behind `at`,
    /// and its bytes. None behind the end.
    pub(super) fn bytes(&self, o: Object, at: u64, len: u64) -> Vec<(u64, Slice)> {
        let end = at.saturating_add(len).min(self.size(o));
        let mut out = Vec::new();
        let mut from = at;
        while from < end {
            let block = from / self.block;
            let to = end.min((block + 1) * self.block);
            let start = (from % self.block) as u32;
            out.push((from - at, self.block_now(o, block).sub(start, (to - from) as u32)));
            from = to;
        }
        out
    }

    /// The end of what bytes `from..to` hold; `from` if all are zeroes.
    pub(super) fn last_written(&self, o: Object, from: u64, to: u64) -> u64 {
        let blocks = from / self.block..to.div_ceil(self.block).max(from / self.block);
        let holds = |versions: &&Vec<BlockVersion>| {
            versions.last().is_some_and(|v| v.id != self.zero && !v.is_alias)
        };
        let mut written = self.files[o as usize].blocks.range(blocks);
        let last = written.rfind(|(_, versions)| holds(versions));
        last.map_or(from, |(b, _)| ((b + 1) * self.block).min(to))
    }

    /// Whole blocks `at..at + len` are taken out.
    pub(super) fn collapse(&mut self, o: Object, version: u32, at: u64, len: u64) {
        let by = len / self.block;
        self.reserve(o, version, 0);
        let first = at / self.block;
        self.shift(o, version, first, |block| block.checked_sub(by).filter(|b| *b >= first));
        self.files[o as usize].shifts.push((first, -(by as i64)));
        self.resized(o, version, self.size(o).saturating_sub(len));
    }

    /// A hole of `len` bytes comes in at `at`.
    pub(super) fn insert(&mut self, o: Object, version: u32, at: u64, len: u64) {
        let (first, by) = (at / self.block, len / self.block);
        self.reserve(o, version, 0);
        self.shift(o, version, first, |block| block.checked_add(by));
        self.files[o as usize].shifts.push((first, by as i64));
        self.resized(o, version, self.size(o) + len);
    }

    /// A collapse, or an insertion, of bytes `at..at + len` that failed half-way.
    pub(super) fn shift_in_part(
        &mut self,
        o: Object,
        version: u32,
        is_insert: bool,
        (at, len): (u64, u64),
    ) {
        let (first, by) = (at / self.block, len / self.block);
        let after = match is_insert {
            true => self.shifted(o, first, |block| block.checked_add(by)),
            false => self.shifted(o, first, |b| b.checked_sub(by).filter(|b| *b >= first)),
        };
        self.reserve(o, version, 0);
        for (block, data) in after {
            self.set_in_part(o, block, version, self.zero_block());
            self.set_in_part(o, block, version, data);
        }
    }

    /// Bytes `from..to` may be zeroes now.
    pub(super) fn zero_in_part(&mut self, o: Object, version: u32, from: u64, to: u64) {
        for (block, data) in self.zeroed(o, from, to) {
            self.set_in_part(o, block, version, data);
        }
    }

    /// A block may have these contents from this version on.
    fn set_in_part(&mut self, o: Object, block: u64, version: u32, data: Slice) {
        self.set_block(o, block, version, data);
        let versions = self.files[o as usize].blocks.get_mut(&block);
        if let Some(last) = versions.and_then(|v| v.last_mut()) {
            last.maybe = true;
        }
    }

    /// What blocks from `first` on hold goes to other blocks; `None`: it is gone. Whatever had
    /// something and gets nothing is zeroes.
    fn shift(&mut self, o: Object, version: u32, first: u64, to: impl Fn(u64) -> Option<u64>) {
        for (block, data) in self.shifted(o, first, to) {
            self.set_block(o, block, version, data);
        }
    }

    /// Blocks from `first` on after [`Ledger::shift`].
    fn shifted(
        &self,
        o: Object,
        first: u64,
        to: impl Fn(u64) -> Option<u64>,
    ) -> BTreeMap<u64, Slice> {
        let held: Vec<u64> =
            self.files[o as usize].blocks.range(first..).map(|(b, _)| *b).collect();
        let mut after: BTreeMap<u64, Slice> =
            held.iter().map(|b| (*b, self.zero_block())).collect();
        for block in held {
            if let Some(to) = to(block) {
                after.insert(to, self.block_now(o, block));
            }
        }
        after
    }

    /// What is written to a block stands where the block was before blocks moved, should the move
    /// be lost: the place on the device is the same.
    fn alias(&mut self, o: Object, block: u64, version: u32, data: &Slice) {
        let mut at = block;
        let shifts = self.files[o as usize].shifts.clone();
        for (first, by) in shifts.into_iter().rev() {
            let moved = if by > 0 { first + by.unsigned_abs() } else { first };
            match at.checked_add_signed(-by).filter(|_| at >= moved) {
                Some(before) => at = before,
                // It is not among those that moved, or in what came in.
                None if at >= first => return,
                None => continue,
            }
            let (data, id) = (data.clone(), data.id());
            let versions = self.files[o as usize].blocks.entry(at).or_default();
            versions.push(BlockVersion { version, data, id, maybe: true, is_alias: true });
        }
    }

    pub(super) fn zero_block(&self) -> Slice {
        Slice::zero(self.block as u32)
    }

    /// The length is another one from this version on.
    fn resized(&mut self, o: Object, version: u32, to: u64) {
        // It goes at once, however many transactions the blocks take; F2FS' insert, which takes
        // several checkpoints and shows lengths between, breaks a rule.
        let sized = SizeVersion { version, from: to, to, wrote: None, maybe: false };
        self.files[o as usize].sizes.push(sized);
    }

    pub(super) fn grow(&mut self, o: Object, version: u32, to: u64, wrote: Option<(u64, u64)>) {
        let from = self.size(o);
        if to > from && self.pending_size(o).is_none() {
            let grown = SizeVersion { version, from, to, wrote, maybe: false };
            self.files[o as usize].sizes.push(grown);
        }
    }

    /// A direct write that makes a file longer gives up what was reserved behind it: a power
    /// failure during it has ext4 cut the file at its old end, whatever lay beyond
    /// (`ext4_orphan_cleanup`).
    pub(super) fn grows_directly(&mut self, open: Open, version: u32, end: u64) {
        if open.direct && end > self.size(open.object) {
            self.reserve(open.object, version, 0);
        }
    }

    /// Where a write goes that asks for byte `at`.
    pub(super) fn place(&self, open: Open, at: u64) -> u64 {
        if open.append { self.size(open.object) } else { at }
    }

    /// Space up to byte `end` was asked for, whatever the length; 0: some was given back.
    pub(super) fn reserve(&mut self, o: Object, version: u32, end: u64) {
        let before = self.files[o as usize].reserved.last().map_or(0, |r| r.1);
        let end = if end == 0 { 0 } else { end.max(before) };
        if end != before {
            self.files[o as usize].reserved.push((version, end));
        }
    }

    pub(super) fn resize(&mut self, o: Object, version: u32, to: u64) {
        self.reserve(o, version, 0);
        let from = self.size(o);
        if to < from {
            self.zero_range(o, version, to, from);
        }
        if to != from {
            self.resized(o, version, to);
        }
        self.files[o as usize].touch(version);
    }

    pub(super) fn block_now(&self, o: Object, block: u64) -> Slice {
        if let Some(data) = self.pending_block(o, block) {
            return data;
        }
        let versions = self.files[o as usize].blocks.get(&block);
        let last = versions.and_then(|v| v.iter().rev().find(|v| !v.is_alias));
        last.map_or_else(|| self.zero_block(), |v| v.data.clone())
    }

    pub(super) fn set_block(&mut self, o: Object, block: u64, version: u32, data: Slice) {
        let id = data.id();
        self.owners.entry(id).or_insert((o, block, version));
        let versions = self.files[o as usize].blocks.entry(block).or_default();
        versions.push(BlockVersion { version, data, id, maybe: false, is_alias: false });
    }

    /// A write of these bytes, one behind the other; with `maybe` one that failed, of which nobody
    /// knows how far it came.
    pub(super) fn write(&mut self, o: Object, version: u32, at: u64, data: &[Slice], maybe: bool) {
        let end = at + data.iter().map(|s| u64::from(s.len())).sum::<u64>();
        self.files[o as usize].touch(version);
        if self.writes_apart(o, (at, data), maybe) {
            return;
        }
        self.grow(o, version, end, Some((at, end)));
        let life = &mut self.files[o as usize];
        if let Some(size) = life.sizes.last_mut().filter(|s| s.version == version) {
            size.maybe = maybe;
        }
        for (block, new) in self.blocks_of(o, at, data) {
            self.alias(o, block, version, &new);
            self.set_block(o, block, version, new);
            let versions = self.files[o as usize].blocks.get_mut(&block);
            if let Some(last) = versions.and_then(|v| v.last_mut()) {
                last.maybe = maybe;
            }
        }
    }

    /// The blocks of a file that a write of these bytes changes, as they are after it.
    pub(super) fn blocks_of(&self, o: Object, at: u64, data: &[Slice]) -> Vec<(u64, Slice)> {
        let (end, bs) = (at + data.iter().map(|s| u64::from(s.len())).sum::<u64>(), self.block);
        let changed = |block: u64| {
            let (from, to) = (at.max(block * bs), end.min((block + 1) * bs));
            let part = joined(data, from - at, (to - from) as u32);
            if to - from == bs {
                return (block, part);
            }
            let mut bytes = self.block_now(o, block).to_vec();
            let off = (from - block * bs) as usize;
            part.copy_to(&mut bytes[off..off + (to - from) as usize]);
            (block, Slice::from_bytes(&bytes))
        };
        (at / bs..end.div_ceil(bs)).map(changed).collect()
    }

    pub(super) fn zero_range(&mut self, o: Object, version: u32, from: u64, to: u64) {
        for (block, data) in self.zeroed(o, from, to) {
            // Part of a block is zeroed in place, as a write would be; a whole one is given back.
            let whole = from <= block * self.block && (block + 1) * self.block <= to;
            if !whole {
                self.alias(o, block, version, &data);
            }
            self.set_block(o, block, version, data);
        }
    }

    /// Blocks that hold something of bytes `from..to`, with zeroes there.
    fn zeroed(&self, o: Object, from: u64, to: u64) -> Vec<(u64, Slice)> {
        let bs = self.block;
        let touched: Vec<u64> = match from < to {
            true => self.files[o as usize].blocks.range(from / bs..to.div_ceil(bs)),
            false => self.files[o as usize].blocks.range(0..0),
        }
        .map(|(b, _)| *b)
        .collect();
        let zero = |block: u64| {
            let mut bytes = self.block_now(o, block).to_vec();
            let (a, b) = (from.max(block * bs), to.min((block + 1) * bs));
            bytes[(a - block * bs) as usize..(b - block * bs) as usize].fill(0);
            (block, Slice::from_bytes(&bytes))
        };
        touched.into_iter().map(zero).collect()
    }
}

/// Bytes `from..from + len` of slices that are one behind the other.
fn joined(data: &[Slice], from: u64, len: u32) -> Slice {
    let (end, mut at, mut parts) = (from + u64::from(len), 0, Vec::new());
    for slice in data {
        let next = at + u64::from(slice.len());
        let (first, last) = (from.max(at), end.min(next));
        if first < last {
            parts.push(slice.sub((first - at) as u32, (last - first) as u32));
        }
        at = next;
    }
    match <[Slice; 1]>::try_from(parts) {
        Ok([whole]) => whole,
        Err(parts) => Slice::from_bytes(&parts.iter().flat_map(Slice::to_vec).collect::<Vec<u8>>()),
    }
}
