//! Checksums of data that is freed go with it.

use wp_base::FsResult;

use crate::core::Core;
use crate::disk::misc::{check_csum_item, csum_key};
use crate::disk::{id, index, kind, wide};
use crate::tree::Purpose;

const TREE: u64 = id::CSUM_TREE;
const SECTOR: u64 = 4096;

impl Core<'_> {
    /// Removes the checksums of these addresses, as far as there are any. `btrfs_del_csums`.
    pub fn drop_csums(&mut self, start: u64, bytes: u64) -> FsResult<()> {
        let end = start + bytes;
        let each = self.common().csum.bytes();
        let mut upto = end;
        loop {
            let (mut path, is_there) = self.search(TREE, csum_key(upto - 1), Purpose::Delete)?;
            if !is_there {
                let Some(slot) = path.slot().checked_sub(1) else { return Ok(()) };
                path.set_slot(slot);
            }
            let at = self.place_of(&path);
            let Some((key, item)) = self.item(&path)? else { return Ok(()) };
            if key.kind != kind::EXTENT_CSUM || key.objectid != id::EXTENT_CSUM {
                return Ok(());
            }
            check_csum_item(key, item.len(), each, at)?;
            let (first, size) = (key.offset, item.len());
            let last = first + wide(size / each) * SECTOR;
            if last <= start {
                return Ok(());
            }
            let sums = |from: u64, to: u64| index((to - from) / SECTOR) * each;
            if first >= start && last <= end {
                // With those before it in the leaf that go as well.
                let leaf = self.leaf(&path)?;
                let slot = path.slot();
                let mut low = slot;
                while let Some(key) = low.checked_sub(1).and_then(|s| leaf.key(s)) {
                    if key.offset < start || key.kind != kind::EXTENT_CSUM {
                        break;
                    }
                    low -= 1;
                }
                let lowest = leaf.key(low).map_or(start, |k| k.offset);
                path.set_slot(low);
                self.remove_items(TREE, &mut path, slot + 1 - low)?;
                if lowest == start {
                    return Ok(());
                }
                upto = lowest.max(start + SECTOR);
            } else if first < start && last > end {
                // Split first; what is behind is then cut at its front.
                self.split_item(TREE, key, sums(first, start), csum_key(start))?;
            } else if last > end {
                let kept = sums(end, last);
                self.truncate_item_front(&path, kept, csum_key(end))?;
                if first <= start {
                    return Ok(());
                }
                upto = first.max(start + SECTOR);
            } else {
                self.truncate_item(&path, sums(first, start))?;
                return Ok(());
            }
        }
    }
}
