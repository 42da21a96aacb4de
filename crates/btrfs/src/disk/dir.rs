//! Names in directories, and extended attributes, which have the same form.

use wp_base::crc::crc32c;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DiskKey, Key, lo16, view};

/// Longest name in bytes. `BTRFS_NAME_LEN`.
pub const NAME_MAX: usize = 255;

/// Before name and value. `struct btrfs_dir_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DirItem {
    /// `location`: key of the inode item, or of a subvolume's root item; zero for attributes.
    pub location: DiskKey,
    /// `transid`, transaction that made it.
    pub transid: U64,
    /// `data_len`, bytes of value behind the name; 0 in directories.
    pub data_len: U16,
    /// `name_len`, bytes.
    pub name_len: U16,
    /// `type`, see [`wp_vfs::FileType::entry`] and [`XATTR`].
    pub kind: u8,
}
const _: () = assert!(size_of::<DirItem>() == 30);

/// Up to which index or hash a log has all names, from the key's offset on.
/// `struct btrfs_dir_log_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DirLogItem {
    /// `end`, the last that is covered.
    pub end: U64,
}
const _: () = assert!(size_of::<DirLogItem>() == 8);

/// `type` of a [`DirItem`] that is an extended attribute: `BTRFS_FT_XATTR`. The others are those of
/// [`wp_vfs::FileType::entry`].
pub const XATTR: u8 = 8;

/// One name with what belongs to it: an item holds several where hashes are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Key of what it names.
    pub location: Key,
    /// Transaction that made it.
    pub transid: u64,
    /// `type` as it stands there.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
    /// The value of an attribute.
    pub data: &'a [u8],
    /// Bytes of the item before it.
    pub at: usize,
    /// Bytes of it.
    pub bytes: usize,
}

/// The entries of a DIR_ITEM, DIR_INDEX or XATTR_ITEM item. One that reaches beyond the end is
/// `Err` with its place, and the last.
pub fn entries(item: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = item.get(at..).filter(|rest| !rest.is_empty())?;
        let one = entry(rest, at);
        let result = one.ok_or(at);
        at = one.map_or(item.len(), |e| at + e.bytes);
        Some(result)
    })
}

fn entry(rest: &[u8], at: usize) -> Option<Entry<'_>> {
    let head = view::<DirItem>(rest, 0)?;
    let name_end = size_of::<DirItem>() + usize::from(head.name_len.get());
    let end = name_end + usize::from(head.data_len.get());
    Some(Entry {
        location: head.location.get(),
        transid: head.transid.get(),
        kind: head.kind,
        name: rest.get(size_of::<DirItem>()..name_end)?,
        data: rest.get(name_end..end)?,
        at,
        bytes: end,
    })
}

/// The bytes of an entry.
pub fn entry_bytes(location: Key, transid: u64, kind: u8, name: &[u8], data: &[u8]) -> Vec<u8> {
    let head = DirItem {
        location: location.into(),
        transid: transid.into(),
        data_len: lo16(data.len()).into(),
        name_len: lo16(name.len()).into(),
        kind,
    };
    [head.as_bytes(), name, data].concat()
}

/// Offset of the key of a DIR_ITEM or XATTR_ITEM. `btrfs_name_hash`.
pub fn name_hash(name: &[u8]) -> u64 {
    crc32c(!1, name).into()
}

#[cfg(test)]
mod tests {
    use wp_vfs::FileType;

    use super::*;

    #[test]
    fn the_hash_of_default_is_the_one_in_every_root_tree() {
        assert_eq!(name_hash(b"default"), 2_378_154_706);
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let key = Key::new(257, 1, 0);
        let mut item = entry_bytes(key, 9, FileType::File.entry(), b"one", b"");
        item.extend(entry_bytes(Key::MIN, 10, XATTR, b"user.x", b"value"));
        let all: Result<Vec<_>, _> = entries(&item).collect();
        let all = all.expect("whole entries");
        let names: Vec<_> = all.iter().map(|e| (e.name, e.data, e.at)).collect();
        assert_eq!(names, [(&b"one"[..], &b""[..], 0), (b"user.x", b"value", 33)]);
        item.pop();
        let cut: Vec<_> = entries(&item).collect();
        assert_eq!((cut.len(), cut.last()), (2, Some(&Err(33))));
    }
}
