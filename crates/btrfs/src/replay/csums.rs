//! Checksums put into the checksum tree.

use wp_base::FsResult;

use crate::core::Core;
use crate::disk::misc::{csum_item_bytes_max, csum_key};
use crate::disk::{id, index, kind, wide};

const SECTOR: u64 = 4096;

/// Puts checksums from an address on into the tree, where none of them is: the item before is made
/// longer, as far as it may, then items are made up to the next one. `btrfs_csum_file_blocks`.
pub(super) fn insert(core: &mut Core<'_>, at: u64, sums: &[u8]) -> FsResult<()> {
    let each = core.common().csum.bytes();
    let most = csum_item_bytes_max(core.node_bytes(), each);
    let (mut at, mut sums) = (at, sums);
    while !sums.is_empty() {
        let before = match at.checked_sub(1) {
            Some(last) => core.last(id::CSUM_TREE, csum_key(0), csum_key(last))?,
            None => None,
        };
        if let Some((key, mut item)) = before
            && key.kind == kind::EXTENT_CSUM
            && key.offset.checked_add(wide(item.len() / each) * SECTOR) == Some(at)
            && item.len() < most
        {
            let path = core.path(id::CSUM_TREE, key)?;
            let room = core.leaf(&path)?.free_bytes() / each * each;
            let n = sums.len().min(most - item.len()).min(room.max(each));
            item.extend_from_slice(sums.get(..n).unwrap_or(&[]));
            core.replace_item(id::CSUM_TREE, key, &item)?;
            (at, sums) = (at + wide(n / each) * SECTOR, sums.get(n..).unwrap_or(&[]));
            continue;
        }
        let next = core.first(id::CSUM_TREE, csum_key(at), csum_key(u64::MAX))?;
        let free = next.map_or(u64::MAX, |(key, _)| (key.offset - at) / SECTOR);
        let n = sums.len().min(most).min(index(free).saturating_mul(each));
        core.insert_item(id::CSUM_TREE, csum_key(at), sums.get(..n.max(each)).unwrap_or(sums))?;
        let n = n.max(each);
        (at, sums) = (at + wide(n / each) * SECTOR, sums.get(n..).unwrap_or(&[]));
    }
    Ok(())
}
