//! Extended attributes, in inodes and in blocks.

use zerocopy::FromBytes;

use crate::disk::xattr::{self, XattrEntry, XattrHeader};
use crate::disk::{Inode, compat};

use super::blocks;
use super::finding::Kind;
use super::state::State;

/// The attributes behind `i_extra_isize`.
pub(super) fn in_inode(s: &mut State<'_>, number: u32, raw: &[u8], extra_isize: u16) {
    let area = raw.get(Inode::BYTES + usize::from(extra_isize)..).unwrap_or(&[]);
    if area.first_chunk::<4>() != Some(&xattr::MAGIC.to_le_bytes()) {
        return;
    }
    entries(s, &format!("inode {number}"), xattr::load(area, 0, 4, 4), true);
}

fn entries(
    s: &mut State<'_>,
    place: &str,
    found: Result<Vec<XattrEntry<'_>>, wp_base::Corruption>,
    hash_may_be_0: bool,
) {
    let list = match found {
        Ok(list) => list,
        Err(c) => {
            s.add(Kind::XattrEntry, format!("{place}, {}", c.field), c.found, c.expected);
            return;
        }
    };
    for e in &list {
        let stored = e.header.hash.get();
        let right = xattr::entry_hash(e.name, e.value);
        // Kernels before 6.2 counted characters as signed where their machine did.
        let is_right = stored == right || stored == signed_hash(e);
        let is_unset = hash_may_be_0 && stored == 0;
        if e.header.name_index == 0 {
            s.add(Kind::XattrEntry, format!("{place}, e_name_index"), 0, "a known prefix");
        } else if e.header.value_inum.get() != 0 {
            let expected = "no attribute inodes without ea_inode";
            let found = e.header.value_inum.get();
            s.add(Kind::XattrEntry, format!("{place}, e_value_inum"), found, expected);
        } else if !is_right && !is_unset {
            s.add(Kind::XattrEntry, format!("{place}, e_hash"), stored, right);
        }
    }
}

/// [`xattr::entry_hash`] with signed characters.
fn signed_hash(e: &XattrEntry<'_>) -> u32 {
    // A character from 128 on has all higher bits set: flip those of what it adds.
    let extra = e
        .name
        .iter()
        .fold(0u32, |h, c| h << 5 ^ h >> 27 ^ if c.is_ascii() { 0 } else { 0xFFFF_FF00 });
    // Both parts go through the value's words alike, as all of it is rotations and exclusive or.
    let words = e.value.len().div_ceil(4);
    let turned = if words.is_multiple_of(2) { extra } else { extra << 16 ^ extra >> 16 };
    xattr::entry_hash(e.name, e.value) ^ turned
}

/// The attribute block of an inode; how many blocks it has of them, 0 or 1.
pub(super) fn block(s: &mut State<'_>, number: u32, i: &Inode) -> u64 {
    let at = i.file_acl();
    if at == 0 {
        return 0;
    }
    let place = format!("inode {number}, i_file_acl");
    if !s.sb.has_compat(compat::EXT_ATTR) {
        s.add(Kind::XattrBlock, place, at, "0 without ext_attr");
        return 0;
    }
    if !s.g.holds(at, 1) {
        s.add(Kind::XattrBlock, place, at, "a block of the file system");
        return 0;
    }
    if let Some((users, _)) = s.xattr_blocks.get_mut(&at) {
        *users += 1;
        return 1;
    }
    blocks::claim(s, &place, at);
    let Some(bytes) = s.read(at) else { return 1 };
    let place = format!("block {at}");
    let Ok((head, _)) = XattrHeader::read_from_prefix(&bytes) else { return 1 };
    s.xattr_blocks.insert(at, (1, head.refcount.get()));
    if head.magic.get() != xattr::MAGIC || head.blocks.get() != 1 {
        s.add(Kind::XattrBlock, place, head.magic.get(), xattr::MAGIC);
        return 1;
    }
    if !s.sums.xattr_block_ok(at, &bytes) {
        let right = s.sums.xattr_block(at, &bytes);
        s.add(Kind::XattrChecksum, place.clone(), head.checksum.get(), right);
    }
    entries(s, &place, xattr::load(&bytes, 0, size_of::<XattrHeader>(), 0), false);
    1
}

/// Compares the blocks' counts of users with the users.
pub(super) fn refcounts(s: &mut State<'_>) {
    for (at, (users, stored)) in std::mem::take(&mut s.xattr_blocks) {
        if users != stored {
            s.add(Kind::XattrRefcount, format!("block {at}, h_refcount"), stored, users);
        }
    }
}
