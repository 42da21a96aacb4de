//! Changes of one tree block in memory, in the kernel's layout and with its placement.
//!
//! Invariants: called for blocks that [`crate::disk::NodeRef::verify`] saw or that were made here,
//!             with slots that exist and room that was looked for before. Then ranges lie within
//!             the block; what else a caller did wrong shows as a panic here, not as a bad block.
//! Source:     fs/btrfs/ctree.c, for where bytes go.

use zerocopy::IntoBytes;

use crate::disk::node::{HEADER_BYTES, Header, ITEM_BYTES, Item, PTR_BYTES, leaf_space};
use crate::disk::{DiskKey, Key, KeyPtr, NodeRef, at32, lo32, view_mut};

const H: usize = HEADER_BYTES;

/// The header, to be changed.
pub fn header(b: &mut [u8]) -> &mut Header {
    view_mut(b, 0).expect("a block has a header")
}

/// Items or pointers.
pub fn len(b: &[u8]) -> usize {
    NodeRef::trusted(b).len()
}

fn set_len(b: &mut [u8], n: usize) {
    header(b).nritems = lo32(n).into();
}

fn item(b: &[u8], slot: usize) -> (usize, usize) {
    let item = NodeRef::trusted(b).item(slot).expect("a slot of the leaf");
    (at32(item.offset.get()), at32(item.size.get()))
}

fn item_mut(b: &mut [u8], slot: usize) -> &mut Item {
    view_mut(b, H + slot * ITEM_BYTES).expect("a slot of the leaf")
}

/// Where an item's bytes end, from the header's end.
fn end_of(b: &[u8], slot: usize) -> usize {
    let (offset, size) = item(b, slot);
    offset + size
}

/// Where the bytes of the last item begin, from the header's end. `leaf_data_end`.
pub fn data_end(b: &[u8]) -> usize {
    match len(b).checked_sub(1) {
        Some(last) => item(b, last).0,
        None => leaf_space(b.len()),
    }
}

/// Bytes that these items take, heads included. `leaf_space_used`.
pub fn space_used(b: &[u8], start: usize, n: usize) -> usize {
    if n == 0 {
        return 0;
    }
    let last = (start + n).min(len(b)) - 1;
    end_of(b, start) - item(b, last).0 + ITEM_BYTES * n
}

/// Sets the key in a slot of a leaf or node.
pub fn set_key(b: &mut [u8], slot: usize, key: Key) {
    let step = if NodeRef::trusted(b).level() == 0 { ITEM_BYTES } else { PTR_BYTES };
    *view_mut::<DiskKey>(b, H + slot * step).expect("a slot") = key.into();
}

/// Gives all items from `from` on their offsets by their sizes.
fn lay_out(b: &mut [u8], from: usize) {
    let mut end = if from == 0 { leaf_space(b.len()) } else { item(b, from - 1).0 };
    for slot in from..len(b) {
        let item = item_mut(b, slot);
        end -= at32(item.size.get());
        item.offset = lo32(end).into();
    }
}

/// Makes room for new items from `slot` on, and gives them keys and sizes. Their bytes are what
/// stood there. `setup_items_for_insert`.
pub fn insert(b: &mut [u8], slot: usize, new: &[(Key, usize)]) {
    let n = len(b);
    let total: usize = new.iter().map(|(_, size)| size).sum();
    let low = data_end(b);
    let high = if slot == n { low } else { end_of(b, slot) };
    b.copy_within(H + low..H + high, H + low - total);
    let (from, end) = (H + slot * ITEM_BYTES, H + n * ITEM_BYTES);
    b.copy_within(from..end, from + new.len() * ITEM_BYTES);
    for (i, (key, size)) in new.iter().enumerate() {
        let (key, size) = ((*key).into(), lo32(*size).into());
        *item_mut(b, slot + i) = Item { key, offset: 0.into(), size };
    }
    set_len(b, n + new.len());
    lay_out(b, slot);
}

/// Removes `count` items from `slot` on. `btrfs_del_items`, its first part.
pub fn remove(b: &mut [u8], slot: usize, count: usize) {
    let n = len(b);
    if slot + count < n {
        let (low, high) = (data_end(b), item(b, slot + count - 1).0);
        let gone = end_of(b, slot) - high;
        b.copy_within(H + low..H + high, H + low + gone);
        let from = H + (slot + count) * ITEM_BYTES;
        b.copy_within(from..H + n * ITEM_BYTES, H + slot * ITEM_BYTES);
    }
    set_len(b, n - count);
    lay_out(b, slot);
}

/// Makes an item longer at its end. `btrfs_extend_item`.
pub fn extend(b: &mut [u8], slot: usize, by: usize) {
    let (low, high) = (data_end(b), end_of(b, slot));
    b.copy_within(H + low..H + high, H + low - by);
    let item = item_mut(b, slot);
    item.size = (item.size.get() + lo32(by)).into();
    lay_out(b, slot);
}

/// Makes an item shorter: keeps its first `size` bytes. `btrfs_truncate_item`.
pub fn truncate(b: &mut [u8], slot: usize, size: usize) {
    let (low, (offset, old)) = (data_end(b), item(b, slot));
    let gone = old - size;
    b.copy_within(H + low..H + offset + size, H + low + gone);
    item_mut(b, slot).size = lo32(size).into();
    lay_out(b, slot);
}

/// Makes an item shorter: keeps its last `size` bytes. The key is the caller's.
pub fn truncate_front(b: &mut [u8], slot: usize, size: usize) {
    let (low, (offset, old)) = (data_end(b), item(b, slot));
    let gone = old - size;
    b.copy_within(H + low..H + offset, H + low + gone);
    item_mut(b, slot).size = lo32(size).into();
    lay_out(b, slot);
}

/// Splits an item after its first `at` bytes; the rest gets the new key. `split_item`.
pub fn split_item(b: &mut [u8], slot: usize, at: usize, key: Key) {
    let n = len(b);
    let (offset, old) = item(b, slot);
    // The later part lies below the earlier one: they change places.
    let range = H + offset..H + offset + old;
    b.get_mut(range).expect("bytes of the item").rotate_left(at);
    let from = H + (slot + 1) * ITEM_BYTES;
    b.copy_within(from..H + n * ITEM_BYTES, from + ITEM_BYTES);
    item_mut(b, slot).size = lo32(at).into();
    let size = lo32(old - at).into();
    *item_mut(b, slot + 1) = Item { key: key.into(), offset: 0.into(), size };
    set_len(b, n + 1);
    lay_out(b, slot);
}

/// The bytes of an item, to be changed.
pub fn data_mut(b: &mut [u8], slot: usize) -> &mut [u8] {
    let (offset, size) = item(b, slot);
    b.get_mut(H + offset..H + offset + size).expect("bytes of the item")
}

fn copy(from: &[u8], to: &mut [u8], range: std::ops::Range<usize>, at: usize) {
    let bytes = from.get(range).expect("a range of the block");
    to.get_mut(at..at + bytes.len()).expect("room").copy_from_slice(bytes);
}

/// Moves the last `n` items of a leaf before those of its right neighbour.
pub fn push_right(left: &mut [u8], right: &mut [u8], n: usize) {
    let (have, there) = (len(left), len(right));
    let first = have - n;
    if n == 0 {
        return;
    }
    let (low, space) = (data_end(left), leaf_space(left.len()));
    let moved = end_of(left, first) - low;
    let right_low = data_end(right);
    right.copy_within(H + right_low..H + space, H + right_low - moved);
    copy(left, right, H + low..H + low + moved, H + space - moved);
    right.copy_within(H..H + there * ITEM_BYTES, H + n * ITEM_BYTES);
    copy(left, right, H + first * ITEM_BYTES..H + have * ITEM_BYTES, H);
    set_len(right, there + n);
    lay_out(right, 0);
    set_len(left, first);
}

/// Moves the first `n` items of a leaf behind those of its left neighbour.
pub fn push_left(left: &mut [u8], right: &mut [u8], n: usize) {
    let (have, there) = (len(right), len(left));
    if n == 0 {
        return;
    }
    let space = leaf_space(left.len());
    let high = item(right, n - 1).0;
    let (low, moved) = (data_end(left), space - high);
    copy(right, left, H..H + n * ITEM_BYTES, H + there * ITEM_BYTES);
    copy(right, left, H + high..H + space, H + low - moved);
    set_len(left, there + n);
    lay_out(left, there);
    let right_low = data_end(right);
    let rest = high - right_low;
    right.copy_within(H + right_low..H + high, H + space - rest);
    right.copy_within(H + n * ITEM_BYTES..H + have * ITEM_BYTES, H);
    set_len(right, have - n);
    lay_out(right, 0);
}

/// Puts a pointer into a slot of a node; those from there on move up. `insert_ptr`.
pub fn insert_ptr(b: &mut [u8], slot: usize, key: Key, child: u64, generation: u64) {
    let n = len(b);
    let from = H + slot * PTR_BYTES;
    b.copy_within(from..H + n * PTR_BYTES, from + PTR_BYTES);
    let (key, blockptr, generation) = (key.into(), child.into(), generation.into());
    let ptr = KeyPtr { key, blockptr, generation };
    b.get_mut(from..from + PTR_BYTES).expect("room").copy_from_slice(ptr.as_bytes());
    set_len(b, n + 1);
}

/// Removes a pointer.
pub fn remove_ptr(b: &mut [u8], slot: usize) {
    let n = len(b);
    let from = H + slot * PTR_BYTES;
    b.copy_within(from + PTR_BYTES..H + n * PTR_BYTES, from);
    set_len(b, n - 1);
}

/// Sets where a pointer leads, and the generation there.
pub fn set_ptr(b: &mut [u8], slot: usize, child: u64, generation: u64) {
    let ptr: &mut KeyPtr = view_mut(b, H + slot * PTR_BYTES).expect("a slot of the node");
    (ptr.blockptr, ptr.generation) = (child.into(), generation.into());
}

/// Moves the first `n` pointers of a node behind those of its left neighbour.
pub fn push_ptrs_left(left: &mut [u8], right: &mut [u8], n: usize) {
    let (have, there) = (len(right), len(left));
    copy(right, left, H..H + n * PTR_BYTES, H + there * PTR_BYTES);
    right.copy_within(H + n * PTR_BYTES..H + have * PTR_BYTES, H);
    set_len(right, have - n);
    set_len(left, there + n);
}

/// Moves the last `n` pointers of a node before those of its right neighbour.
pub fn push_ptrs_right(left: &mut [u8], right: &mut [u8], n: usize) {
    let (have, there) = (len(left), len(right));
    right.copy_within(H..H + there * PTR_BYTES, H + n * PTR_BYTES);
    copy(left, right, H + (have - n) * PTR_BYTES..H + have * PTR_BYTES, H);
    set_len(left, have - n);
    set_len(right, there + n);
}

/// Zeroes what no item or pointer has, as it is done before a block is written.
/// `prepare_eb_write`.
pub fn wipe(b: &mut [u8]) {
    let n = len(b);
    let range = if NodeRef::trusted(b).level() == 0 {
        H + n * ITEM_BYTES..H + data_end(b)
    } else {
        H + n * PTR_BYTES..b.len()
    };
    if let Some(bytes) = b.get_mut(range) {
        bytes.fill(0);
    }
}
