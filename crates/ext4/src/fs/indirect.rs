//! The block map of files without extents: pointers, and blocks of pointers.
//!
//! Picture:    15 words of the inode: 12 -> data; the 13th -> block of pointers -> data; the 14th
//!             through two such blocks; the 15th through three. 0 is a hole.
//! Invariants: 1. the map changes only under the inode's `map_lock` and in a handle.
//!             2. a block of pointers belongs to the inode, is counted in `i_blocks`, and is
//!                revoked when it is freed. It has no checksum.
//!             3. new pointer blocks are filled before the word that leads to them is set.
//! Source:     Linux `fs/ext4/indirect.c` (`ext4_block_to_path`, `ext4_ind_map_blocks`,
//!             `ext4_ind_truncate`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;

use super::extents::{GROUPS_PER_CUT, METADATA_PER_CUT, Run};
use super::inode::Inode;
use super::mballoc::{Purpose, Request};
use super::mount::Ext4;
use crate::disk::Inode as DiskInode;

/// Pointers of the inode that lead to data.
const DIRECT: u64 = DiskInode::DIRECT_BLOCKS as u64;

/// Where a pointer stands.
#[derive(Clone)]
enum Slot {
    /// In the inode.
    Root(usize),
    /// In a block of pointers.
    Node(Rc<Buffer>, usize),
}

/// How far the pointers lead towards a block.
struct Way {
    /// Pointers that were followed; the last one may be 0.
    slots: Vec<Slot>,
    /// Words of the path: which pointer of the inode, then which of each block.
    path: Vec<usize>,
    /// Where the last pointer of `slots` leads; 0 is a hole.
    end: u32,
}

fn word(bytes: &[u8], n: usize) -> u32 {
    bytes.get(4 * n..4 * n + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// The words that lead to block `logical`; `None` beyond the third level.
fn path_to(logical: u64, per: u64) -> Option<Vec<usize>> {
    if logical < DIRECT {
        return Some(vec![logical as usize]);
    }
    let mut rest = logical - DIRECT;
    for level in 1..=3u32 {
        let span = per.pow(level);
        if rest < span {
            let mut path = vec![DIRECT as usize + level as usize - 1];
            path.extend((0..level).rev().map(|l| (rest / per.pow(l) % per) as usize));
            return Some(path);
        }
        rest -= span;
    }
    None
}

/// First block that pointer `n` of the inode covers, and through how many blocks of pointers.
fn root_start(n: usize, per: u64) -> (u64, u32) {
    let level = (n as u64 + 1).saturating_sub(DIRECT) as u32;
    let before: u64 = (1..level).map(|l| per.pow(l)).sum();
    (if level == 0 { n as u64 } else { DIRECT + before }, level)
}

impl Ext4 {
    fn pointers_per_block(&self) -> u64 {
        u64::from(self.bs().bytes() / 4)
    }

    fn pointer(&self, inode: &Inode, slot: &Slot) -> u32 {
        match slot {
            Slot::Root(n) => inode.disk.borrow().pointer(*n),
            Slot::Node(b, n) => b.with(|bytes| word(bytes, *n)),
        }
    }

    /// A block of pointers. Every pointer must lead into the file system
    /// (`ext4_check_indirect_blockref`).
    async fn pointer_block(&self, inode: &Inode, block: u32) -> FsResult<Rc<Buffer>> {
        let wrong = |at: u64, found: u64| {
            let expected = format!("a block of this file system (inode {})", inode.ino);
            Err(FsError::corrupt("ext4 block pointer", "block", at, found, expected))
        };
        if !self.geo.holds(u64::from(block), 1) {
            return wrong(0, u64::from(block));
        }
        let buf = self.bdev.read(u64::from(block)).await?;
        if !buf.flag(BufFlag::Verified) {
            let bad = buf.with(|b| {
                (0..b.len() / 4)
                    .map(|n| u64::from(word(b, n)))
                    .find(|p| *p != 0 && !self.geo.holds(*p, 1))
            });
            if let Some(p) = bad {
                return wrong(u64::from(block) * u64::from(self.bs().bytes()), p);
            }
            buf.set(BufFlag::Verified);
        }
        Ok(buf)
    }

    async fn way(&self, inode: &Inode, logical: u64) -> FsResult<Way> {
        let path = path_to(logical, self.pointers_per_block()).ok_or(FsError::TooBig)?;
        let mut slots = vec![Slot::Root(path[0])];
        let mut end = inode.disk.borrow().pointer(path[0]);
        for n in path.iter().skip(1) {
            if end == 0 {
                break;
            }
            let buf = self.pointer_block(inode, end).await?;
            end = buf.with(|b| word(b, *n));
            slots.push(Slot::Node(buf, *n));
        }
        if end != 0 && !self.geo.holds(u64::from(end), 1) {
            let expected = format!("a block of this file system (inode {})", inode.ino);
            return Err(FsError::corrupt("ext4 inode", "i_block", 0, u64::from(end), expected));
        }
        Ok(Way { slots, path, end })
    }

    /// Pointers from `slot` on that stand together with it: in the inode or its block.
    fn run_of(
        &self,
        inode: &Inode,
        slot: &Slot,
        most: u32,
        next: impl Fn(u32, u32) -> bool,
    ) -> u32 {
        let (first, end) = match slot {
            Slot::Root(n) => (*n, DIRECT as usize),
            Slot::Node(_, n) => (*n, self.pointers_per_block() as usize),
        };
        let at = |n: usize| match slot {
            Slot::Root(_) => inode.disk.borrow().pointer(n),
            Slot::Node(b, _) => b.with(|bytes| word(bytes, n)),
        };
        let mut len = 1;
        while len < most && first + (len as usize) < end && next(at(first + len as usize), len) {
            len += 1;
        }
        len
    }

    /// See [`Ext4::lookup`].
    pub(super) async fn indirect_lookup(
        &self,
        inode: &Inode,
        logical: u64,
    ) -> FsResult<Result<Run, u64>> {
        let per = self.pointers_per_block();
        let way = match self.way(inode, logical).await {
            Err(FsError::TooBig) => return Ok(Err(u64::MAX - logical)),
            other => other?,
        };
        let last = way.slots.last().expect("a way has a pointer");
        if way.slots.len() == way.path.len() && way.end != 0 {
            let start = way.end;
            let len = self.run_of(inode, last, u32::MAX, |p, n| p == start.wrapping_add(n));
            return Ok(Ok(Run { logical, phys: u64::from(start), len, unwritten: false }));
        }
        // What the missing pointer would cover, from here on.
        let missing = (way.path.len() - way.slots.len()) as u32;
        let inside = way.path.iter().rev().take(missing as usize).rev();
        let skipped = inside.fold(0, |n, word| n * per + *word as u64);
        Ok(Err(per.pow(missing) - skipped))
    }

    /// Where a block should go (`ext4_find_near`): after the block of the pointer before it; near
    /// the block of pointers that it stands in; in the inode's group.
    fn indirect_goal(&self, inode: &Inode, slot: &Slot) -> u64 {
        let (n, at): (usize, Option<u64>) = match slot {
            Slot::Root(n) => (*n, None),
            Slot::Node(b, n) => (*n, Some(b.block())),
        };
        let before = (0..n).rev().find_map(|i| {
            let p = match slot {
                Slot::Root(_) => inode.disk.borrow().pointer(i),
                Slot::Node(b, _) => b.with(|bytes| word(bytes, i)),
            };
            (p != 0).then_some(u64::from(p))
        });
        match (before, at) {
            (Some(goal), _) => goal,
            (None, Some(block)) => block,
            (None, None) => self.first_goal(inode),
        }
    }

    /// See [`Ext4::allocate`].
    pub(super) async fn indirect_allocate(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        logical: u64,
        want: u32,
        promised: bool,
    ) -> FsResult<Run> {
        let way = self.way(inode, logical).await?;
        let slot = way.slots.last().expect("a way has a pointer").clone();
        let missing = way.path.len() - way.slots.len();
        let leaf_word = *way.path.last().expect("a path has a word");
        let want = if missing > 0 {
            want.min((self.pointers_per_block() as usize - leaf_word) as u32)
        } else {
            self.run_of(inode, &slot, want, |p, _| p == 0)
        };
        let mut goal = self.indirect_goal(inode, &slot);
        let mut nodes: Vec<u64> = Vec::new();
        let taken = async {
            for _ in 0..missing {
                let (block, _) = self.take_blocks(h, &Request::meta(inode, goal)).await?;
                nodes.push(block);
                goal = block;
            }
            let data = inode.disk.borrow().is_file();
            let purpose = if data { Purpose::Data } else { Purpose::Meta };
            let (left, right) = (None, None);
            let rq = Request { inode, purpose, logical, goal, want, left, right, promised };
            self.take_blocks(h, &rq).await
        }
        .await;
        let (phys, len) = match taken {
            Ok(run) => run,
            Err(e) => {
                for block in nodes {
                    self.return_blocks(h, block, 1, false).await?;
                }
                return Err(e);
            }
        };
        // Pointers have 32 bits; blocks beyond are for files with extents.
        let top = (phys + u64::from(len)).max(nodes.iter().copied().max().unwrap_or(0));
        if u32::try_from(top).is_err() {
            for block in nodes {
                self.return_blocks(h, block, 1, false).await?;
            }
            self.return_blocks(h, phys, len, false).await?;
            return Err(FsError::NoSpace);
        }
        if !inode.is_dir() {
            self.forget_aliases(phys, len).await;
        }
        // From the data upwards: what is not linked yet is nobody's.
        let words = &way.path[way.slots.len()..];
        for (i, (block, n)) in nodes.iter().zip(words).enumerate().rev() {
            let buf = self.bdev.get(*block);
            h.get_create_access(&buf).await?;
            let targets: Vec<u32> = match nodes.get(i + 1) {
                Some(below) => vec![*below as u32],
                None => (phys..phys + u64::from(len)).map(|b| b as u32).collect(),
            };
            buf.with_mut(|b| {
                b.fill(0);
                for (k, t) in targets.iter().enumerate() {
                    b[4 * (n + k)..4 * (n + k) + 4].copy_from_slice(&t.to_le_bytes());
                }
            });
            buf.set(BufFlag::Verified);
            self.dirty(h, &buf)?;
        }
        let targets: Vec<u32> = match nodes.first() {
            Some(first) => vec![*first as u32],
            None => (phys..phys + u64::from(len)).map(|b| b as u32).collect(),
        };
        inode.add_blocks(i64::from(len) + nodes.len() as i64, self.bs().sectors())?;
        self.set_pointers(h, inode, &slot, &targets).await?;
        self.write_inode(h, inode).await?;
        if crate::site::INDIRECT_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        Ok(Run { logical, phys, len, unwritten: false })
    }

    /// Sets pointers from `slot` on. The caller writes the inode.
    async fn set_pointers(
        &self,
        h: &Handle,
        inode: &Inode,
        slot: &Slot,
        targets: &[u32],
    ) -> FsResult<()> {
        match slot {
            Slot::Root(n) => {
                let mut d = inode.disk.borrow_mut();
                for (k, t) in targets.iter().enumerate() {
                    d.set_pointer(n + k, *t);
                }
                Ok(())
            }
            Slot::Node(buf, n) => {
                h.get_write_access(buf).await?;
                buf.with_mut(|b| {
                    for (k, t) in targets.iter().enumerate() {
                        b[4 * (n + k)..4 * (n + k) + 4].copy_from_slice(&t.to_le_bytes());
                    }
                });
                self.dirty(h, buf)
            }
        }
    }

    /// See [`Ext4::cut_once`].
    pub(super) async fn indirect_cut(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        metadata: bool,
    ) -> FsResult<bool> {
        let per = self.pointers_per_block();
        let root = (0..15usize).rev().find(|n| inode.disk.borrow().pointer(*n) != 0);
        let Some(n) = root else { return Ok(true) };
        let (start, level) = root_start(n, per);
        if start + per.pow(level) <= from {
            return Ok(true);
        }
        if level == 0 {
            let first = from.min(n as u64) as usize;
            let cut =
                self.free_pointers(h, inode, &Slot::Root(first), n + 1 - first, metadata).await?;
            self.write_inode(h, inode).await?;
            return Ok(cut);
        }
        // Down to the last block of pointers to data that reaches beyond `from`.
        let mut chain: Vec<(Slot, Rc<Buffer>)> = Vec::new();
        let (mut slot, mut start, mut level) = (Slot::Root(n), start, level);
        let done = loop {
            let buf = self.pointer_block(inode, self.pointer(inode, &slot)).await?;
            chain.push((slot, buf.clone()));
            let span = per.pow(level - 1);
            let last = buf.with(|b| (0..per as usize).rev().find(|i| word(b, *i) != 0));
            let Some(i) = last else { break false };
            let child = start + i as u64 * span;
            if child + span <= from {
                break true;
            }
            if level == 1 {
                let first = (from.max(start) - start) as usize;
                let place = Slot::Node(buf, first);
                self.free_pointers(h, inode, &place, i + 1 - first, metadata).await?;
                break false;
            }
            (slot, start, level) = (Slot::Node(buf, i), child, level - 1);
        };
        // Blocks of pointers that lead nowhere now go too, also those that cover what stays
        // (`ext4_find_shared`).
        while let Some((slot, buf)) = chain.pop() {
            if buf.with(|b| b.iter().any(|byte| *byte != 0)) {
                break;
            }
            self.set_pointers(h, inode, &slot, &[0]).await?;
            inode.add_blocks(-1, self.bs().sectors())?;
            self.return_blocks(h, buf.block(), 1, true).await?;
        }
        self.write_inode(h, inode).await?;
        Ok(done)
    }

    /// Frees what `count` pointers from `slot` on lead to, from the last one down, as far as a
    /// handle reaches, and clears them. `true`: all of them.
    async fn free_pointers(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        slot: &Slot,
        count: usize,
        metadata: bool,
    ) -> FsResult<bool> {
        let at = |k: usize| match slot {
            Slot::Root(n) => Slot::Root(n + k),
            Slot::Node(b, n) => Slot::Node(b.clone(), n + k),
        };
        let mut runs: Vec<(u64, u32)> = Vec::new();
        let mut groups: Vec<u32> = Vec::new();
        let mut room = if metadata { METADATA_PER_CUT } else { u32::MAX };
        let mut left = count;
        while left > 0 {
            let p = u64::from(self.pointer(inode, &at(left - 1)));
            if p != 0 {
                let group = self.geo.locate_block(p).map_or(0, |(g, _)| g);
                let is_new = !groups.contains(&group);
                if room == 0 || (is_new && groups.len() >= GROUPS_PER_CUT) {
                    break;
                }
                if is_new {
                    groups.push(group);
                }
                room -= 1;
                match runs.last_mut() {
                    Some((first, len)) if p + 1 == *first => (*first, *len) = (p, *len + 1),
                    _ => runs.push((p, 1)),
                }
            }
            left -= 1;
        }
        self.set_pointers(h, inode, &at(left), &vec![0; count - left]).await?;
        for (start, len) in runs {
            inode.add_blocks(-i64::from(len), self.bs().sectors())?;
            self.return_blocks(h, start, len, metadata).await?;
        }
        Ok(left == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{path_to, root_start};

    #[test]
    fn paths_and_coverage_agree_at_every_border() {
        for per in [256u64, 1024] {
            let borders = [12, 12 + per, 12 + per + per * per];
            for at in borders.iter().flat_map(|b| [b - 1, *b, b + per + 1]).chain([0, 11]) {
                let path = path_to(at, per).expect("within three levels");
                let (start, level) = root_start(path[0], per);
                assert_eq!(path.len() as u32, level + 1, "{at}");
                let inside = path[1..].iter().fold(0, |n, w| n * per + *w as u64);
                assert_eq!(start + inside, at);
            }
            assert_eq!(path_to(12 + per + per * per + per * per * per, per), None);
        }
    }
}
