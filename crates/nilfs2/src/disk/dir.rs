//! Entries of directories, as ext2 has them but with 64-bit inode numbers.
//!
//! Picture:    a block = entries, each as long as `rec_len` says, to its very end
//! Invariants: an entry starts at a multiple of 8 bytes and has room for its name.

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{lo8, lo16, view, wide};

/// Longest name, in bytes. `NILFS_NAME_LEN`.
pub const NAME_MAX: usize = 255;

/// Head of an entry; the name follows. `struct nilfs_dir_entry`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DirEntry {
    /// `inode`, 0: a free place.
    pub inode: U64,
    /// `rec_len`, bytes to the next entry.
    pub rec_len: U16,
    /// `name_len`.
    pub name_len: u8,
    /// `file_type`, see [`wp_vfs::FileType::entry`].
    pub file_type: u8,
}
const _: () = assert!(size_of::<DirEntry>() == DirEntry::BYTES);

impl DirEntry {
    /// Bytes before the name.
    pub const BYTES: usize = 12;

    /// Bytes that an entry with such a name needs. `NILFS_DIR_REC_LEN`.
    pub const fn bytes_for(name: usize) -> usize {
        (Self::BYTES + name).next_multiple_of(8)
    }

    /// Bytes to the next entry: 65535 stands for 64 KiB, which does not fit.
    pub fn reach(&self) -> usize {
        match self.rec_len.get() {
            u16::MAX => 1 << 16,
            n => usize::from(n),
        }
    }
}

/// A name in a block, and where its entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot<'a> {
    /// Byte in the block.
    pub at: usize,
    /// The entry's head.
    pub entry: DirEntry,
    /// The name.
    pub name: &'a [u8],
}

/// All entries of a block, free places included. `at`: byte address of the block, for the error.
///
/// Errors: a length that is no multiple of 8, too short for the name, or leads beyond the block.
/// Source: `nilfs_check_folio`.
pub fn slots(block: &[u8], at: u64) -> Result<Vec<Slot<'_>>, Corruption> {
    each(block, at).collect()
}

/// The same, one after the other; an error is the last.
pub fn each(block: &[u8], at: u64) -> impl Iterator<Item = Result<Slot<'_>, Corruption>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        if next >= block.len() {
            return None;
        }
        let slot = slot(block, next, at);
        next = slot.as_ref().map_or(block.len(), |slot| next + slot.entry.reach());
        Some(slot)
    })
}

/// The entry at byte `next` of a block, whose byte address `at` is.
fn slot(block: &[u8], next: usize, at: u64) -> Result<Slot<'_>, Corruption> {
    let wrong = |field, found: u64, expected: String| Corruption {
        structure: "nilfs2 directory entry",
        field,
        at: at + wide(next),
        found,
        expected,
    };
    let entry = *view::<DirEntry>(block, next)
        .ok_or_else(|| wrong("rec_len", 0, "an entry to the block's end".to_owned()))?;
    let (reach, left) = (entry.reach(), block.len() - next);
    let least = DirEntry::bytes_for(usize::from(entry.name_len).max(1));
    if reach < least || reach > left || !reach.is_multiple_of(8) {
        let expected = format!("a multiple of 8 from {least} to {left}");
        return Err(wrong("rec_len", wide(reach), expected));
    }
    let name = next + DirEntry::BYTES..next + DirEntry::BYTES + usize::from(entry.name_len);
    let name = block.get(name).unwrap_or(&[]);
    Ok(Slot { at: next, entry, name })
}

/// The entry at byte `at` of a block reaches `reach` bytes from now on.
///
/// Panics: if there is no entry that may.
pub fn set_reach(block: &mut [u8], at: usize, reach: usize) {
    let room = block.len().saturating_sub(at);
    let entry = super::view_mut::<DirEntry>(block, at).expect("an entry");
    let least = DirEntry::bytes_for(usize::from(entry.name_len));
    assert!(reach >= least && reach <= room, "no room");
    entry.rec_len = rec_len(reach);
}

/// A length as `rec_len` has it.
fn rec_len(reach: usize) -> U16 {
    if reach == 1 << 16 { u16::MAX } else { lo16(wide(reach)) }.into()
}

/// Writes an entry that reaches `reach` bytes to byte `at` of a block.
///
/// Panics: if it does not fit.
pub fn put(block: &mut [u8], at: usize, reach: usize, inode: u64, file_type: u8, name: &[u8]) {
    assert!(reach >= DirEntry::bytes_for(name.len()) && at + reach <= block.len(), "no room");
    let entry = DirEntry {
        inode: inode.into(),
        rec_len: rec_len(reach),
        name_len: lo8(wide(name.len())),
        file_type,
    };
    let (_, rest) = block.split_at_mut(at);
    entry.write_to_prefix(rest).expect("there is room");
    if let Some(place) = rest.get_mut(DirEntry::BYTES..DirEntry::BYTES + name.len()) {
        place.copy_from_slice(name);
    }
}

#[cfg(test)]
mod tests {
    use wp_vfs::FileType;

    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        let mut block = vec![0; 1024];
        put(&mut block, 0, 16, 2, FileType::Dir.entry(), b".");
        put(&mut block, 16, 1008, 77, FileType::Symlink.entry(), b"name");
        let all = slots(&block, 0).expect("good");
        assert_eq!(all.iter().map(|s| s.name).collect::<Vec<_>>(), [b".".as_slice(), b"name"]);
        let last = all.last().expect("two").entry;
        let kind = FileType::from_entry(last.file_type);
        assert_eq!((last.inode.get(), kind), (77, Some(FileType::Symlink)));
        // 64 KiB in one entry.
        let mut large = vec![0; 1 << 16];
        put(&mut large, 0, 1 << 16, 2, FileType::Dir.entry(), b".");
        assert_eq!(slots(&large, 0).expect("good").len(), 1);
        assert!(slots(&[0; 1024], 0).is_err(), "no length at all");
    }
}
