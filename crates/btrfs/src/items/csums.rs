//! Checksums of data: added, and looked up. They go when the data is freed (`refs`).

use wp_base::FsResult;

use crate::core::Core;
use crate::disk::misc::{check_csum_item, csum_item_bytes_max, csum_key};
use crate::disk::{Key, id, index, kind, wide};
use crate::tree::{Path, Purpose};

const SECTOR: u64 = 4096;

/// What an item of checksums has to do with an address.
enum Found {
    /// It has its checksum: first byte in the item.
    Inside(Path, usize),
    /// It ends there.
    Before(Path, usize),
    /// None has.
    None,
}

impl Core<'_> {
    /// Adds checksums of data from address `start` on, a sector each; what is there is written
    /// over. `tree`: that of checksums, or a log tree. `btrfs_csum_file_blocks`.
    pub fn insert_csums(&mut self, tree: u64, start: u64, sums: &[u8]) -> FsResult<()> {
        let each = self.common().csum.bytes();
        let most = csum_item_bytes_max(self.node_bytes(), each);
        let is_log = self.csum_tree_is_log(tree)?;
        let mut rest = sums;
        let mut at = start;
        while !rest.is_empty() {
            let (path, from) = match self.find_csums(tree, at)? {
                Found::Inside(path, from) => (path, from),
                Found::Before(mut path, size) if size < most => {
                    if self.leaf(&path)?.free_bytes() < each {
                        let key = csum_key(at);
                        (path, _) = self.search(tree, key, Purpose::Extend(each))?;
                        let Some(slot) = path.slot().checked_sub(1) else {
                            self.insert_item(tree, key, rest.get(..each).unwrap_or(rest))?;
                            (rest, at) = (rest.get(each..).unwrap_or(&[]), at + SECTOR);
                            continue;
                        };
                        path.set_slot(slot);
                    }
                    let mut wanted = rest.len().min(most - size);
                    if is_log {
                        // Logs may have checksums of what comes next already.
                        let next = self.next_csum(tree, at)?;
                        wanted = wanted.min(self.csum_bytes(next - at));
                    }
                    let by = wanted.min(self.leaf(&path)?.free_bytes()) / each * each;
                    self.extend_item(&path, by)?;
                    (path, size)
                }
                Found::Before(..) => {
                    // The item before is as long as they get: a new one begins with one sum.
                    self.insert_item(tree, csum_key(at), rest.get(..each).unwrap_or(rest))?;
                    (rest, at) = (rest.get(each..).unwrap_or(&[]), at + SECTOR);
                    continue;
                }
                Found::None => {
                    let next = self.next_csum(tree, at)?;
                    let n = rest.len().min(self.csum_bytes(next - at)).min(most).max(each);
                    self.insert_item(tree, csum_key(at), rest.get(..n).unwrap_or(rest))?;
                    (rest, at) = (rest.get(n..).unwrap_or(&[]), at + wide(n / each) * SECTOR);
                    continue;
                }
            };
            let item = self.item_mut(&path)?;
            let n = rest.len().min(item.len().saturating_sub(from));
            let (now, later) = rest.split_at(n);
            if let Some(place) = item.get_mut(from..from + n) {
                place.copy_from_slice(now);
            }
            (rest, at) = (later, at + wide(n / each) * SECTOR);
        }
        Ok(())
    }

    /// Checksums of data from address `start` on: for each sector its sum, `None` where there is
    /// none. `btrfs_lookup_csums_list`.
    pub fn csums(&mut self, tree: u64, start: u64, sectors: u64) -> FsResult<Vec<Option<Vec<u8>>>> {
        let each = self.common().csum.bytes();
        let mut out = vec![None; index(sectors)];
        let end = start + sectors * SECTOR;
        let mut from = match self.last(tree, csum_key(0), csum_key(start))? {
            Some((key, _)) => key,
            None => csum_key(start),
        };
        while let Some((key, item)) = self.first(tree, from, csum_key(end.saturating_sub(1)))? {
            check_csum_item(key, item.len(), each, 0)?;
            for (n, sum) in (0..).zip(item.chunks(each)) {
                let at = key.offset + n * SECTOR;
                if at >= start
                    && let Some(place) = out.get_mut(index((at - start) / SECTOR))
                {
                    *place = Some(sum.to_vec());
                }
            }
            let Some(next) = key.next() else { break };
            from = next;
        }
        Ok(out)
    }

    fn csum_tree_is_log(&mut self, tree: u64) -> FsResult<bool> {
        self.open_root(tree)?;
        Ok(self.root(tree)?.owner == id::TREE_LOG)
    }

    /// Bytes of the checksums of `data` bytes of data.
    fn csum_bytes(&self, data: u64) -> usize {
        index(data / SECTOR).saturating_mul(self.common().csum.bytes())
    }

    /// The address of the first checksum item behind `at`.
    fn next_csum(&mut self, tree: u64, at: u64) -> FsResult<u64> {
        let next = self.first(tree, csum_key(at + 1), csum_key(u64::MAX))?;
        Ok(next.map_or(u64::MAX, |(key, _)| key.offset))
    }

    /// `btrfs_lookup_csum`.
    fn find_csums(&mut self, tree: u64, at: u64) -> FsResult<Found> {
        let each = self.common().csum.bytes();
        let (mut path, is_there) = self.search(tree, csum_key(at), Purpose::Change)?;
        if !is_there {
            let Some(slot) = path.slot().checked_sub(1) else { return Ok(Found::None) };
            path.set_slot(slot);
        }
        let place = self.place_of(&path);
        let Some((key, item)) = self.item(&path)? else { return Ok(Found::None) };
        if !is_csum(key) {
            return Ok(Found::None);
        }
        check_csum_item(key, item.len(), each, place)?;
        let from = self.csum_bytes(at - key.offset);
        Ok(match from.cmp(&item.len()) {
            std::cmp::Ordering::Less => Found::Inside(path, from),
            std::cmp::Ordering::Equal => Found::Before(path, item.len()),
            std::cmp::Ordering::Greater => Found::None,
        })
    }
}

fn is_csum(key: Key) -> bool {
    key.objectid == id::EXTENT_CSUM && key.kind == kind::EXTENT_CSUM
}
