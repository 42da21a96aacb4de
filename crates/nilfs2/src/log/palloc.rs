//! Entries of the DAT and of inode files are given out and taken back.

use std::ops::Range;

use wp_base::{FsError, FsResult};

use crate::disk::palloc::{
    bit, clear_bit_from, free_entries, fresh_desc_block, set_bit, set_free_entries,
};
use crate::disk::{Palloc, index};

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
            file.block_mut(via, desc, 0..0, || fresh_desc_block(bytes).into())?;
        }
        let described = file.bytes(via, desc)?.map_or(0, |held| free_entries(held, desc_at));
        if described > 0 {
            let map = p.bitmap_block(group);
            if !file.load_block(via, map)? {
                file.block_mut(via, map, 0..0, || Block::zero(bytes))?;
            }
            let held = file.bytes(via, map)?.ok_or(FsError::Io)?;
            let end = p.group_entries;
            let after = clear_bit_from(held, from, end);
            let before = || clear_bit_from(held, 0, from);
            if let Some(n) = after.or_else(before) {
                put_bit(file, via, map, n, true)?;
                let entry = file.existing_mut(via, desc, free_at(desc_at))?;
                set_free_entries(entry, 0, described - 1);
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
    if !put_bit(file, via, p.bitmap_block(group), within, false)? {
        return Ok(());
    }
    let desc = file.existing_mut(via, p.desc_block(group), free_at(p.desc_at(group)))?;
    let free = free_entries(desc, 0);
    set_free_entries(desc, 0, free.saturating_add(1));
    Ok(())
}

/// Sets or clears bit `n` of the bitmap in block `map`. Was it set?
fn put_bit(file: &mut MetaFile, via: &mut Via<'_>, map: u64, n: u64, on: bool) -> FsResult<bool> {
    let at = index(n / 8);
    let byte = file.existing_mut(via, map, at..at + 1)?;
    let was = bit(byte, n % 8);
    set_bit(byte, n % 8, on);
    Ok(was)
}

/// The bytes of a group's count of free entries, which begins at byte `at` of its block.
fn free_at(at: usize) -> Range<usize> {
    at..at + size_of::<u32>()
}
