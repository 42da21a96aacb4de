//! Entries of the DAT and of inode files are given out and taken back.

use wp_base::{FsError, FsResult};

use crate::disk::Palloc;
use crate::disk::palloc::{
    bit, clear_bit_from, free_entries, fresh_desc_block, set_bit, set_free_entries,
};

use super::block::Block;
use super::dat::Via;
use super::meta_file::MetaFile;

/// Gives out the first free entry from `goal` on, and then from the beginning.
/// `nilfs_palloc_prepare_alloc_entry`.
///
/// Errors: `NoSpace` if all are in use.
pub(super) fn take(file: &mut MetaFile, via: &mut Via<'_>, p: &Palloc, goal: u64) -> FsResult<u64> {
    let bytes = via.disk.g.block_bytes();
    let (first, mut from) = p.group_of(goal);
    let groups = p.groups_max();
    for i in 0..groups {
        let group = first.wrapping_add(i) % groups;
        let (desc, desc_at) = (p.desc_block(group), p.desc_at(group));
        if !file.load_block(via, desc)? {
            file.block_mut(via, desc, || fresh_desc_block(bytes).into())?;
        }
        let described = file.bytes(via, desc)?.map_or(0, |held| free_entries(held, desc_at));
        if described > 0 {
            let map = p.bitmap_block(group);
            if !file.load_block(via, map)? {
                file.block_mut(via, map, || Block::zero(bytes))?;
            }
            let held = file.bytes(via, map)?.ok_or(FsError::Io)?;
            let end = p.group_entries;
            let after = clear_bit_from(held, from, end);
            let before = || clear_bit_from(held, 0, from);
            if let Some(n) = after.or_else(before) {
                set_bit(file.existing_mut(via, map)?, n, true);
                set_free_entries(file.existing_mut(via, desc)?, desc_at, described - 1);
                return Ok(group * p.group_entries + n);
            }
        }
        from = 0;
    }
    Err(FsError::NoSpace)
}

/// Takes an entry back. `nilfs_palloc_commit_free_entry`.
pub(super) fn give(file: &mut MetaFile, via: &mut Via<'_>, p: &Palloc, n: u64) -> FsResult<()> {
    let (group, within) = p.group_of(n);
    let map = file.existing_mut(via, p.bitmap_block(group))?;
    if !bit(map, within) {
        return Ok(());
    }
    set_bit(map, within, false);
    let at = p.desc_at(group);
    let desc = file.existing_mut(via, p.desc_block(group))?;
    let free = free_entries(desc, at);
    set_free_entries(desc, at, free.saturating_add(1));
    Ok(())
}
