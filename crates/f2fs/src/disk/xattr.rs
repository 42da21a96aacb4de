//! Extended attributes: a header and entries, in the inode and, where that is not enough, a node.
//!
//! Picture:    [words of the inode | body of the attribute node] = header | entry | entry | 0; the
//!             two pieces are read as one, and an entry may lie across the border.
//! Source:     fs/f2fs/xattr.h; `read_all_xattrs`, `write_all_xattrs`.

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Start of the attributes. `struct f2fs_xattr_header`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct XattrHeader {
    /// `h_magic`, [`Self::MAGIC`]; anything else: there are none.
    pub magic: U32,
    /// `h_refcount`, always 1.
    pub refcount: U32,
    /// `h_reserved`.
    pub reserved: [U32; 4],
}

impl XattrHeader {
    /// Its size in bytes.
    pub const BYTES: usize = 24;
    /// `F2FS_XATTR_MAGIC`.
    pub const MAGIC: u32 = 0xF2F5_2011;
}

/// Start of an entry: name and value follow, then up to three zeroes. `struct f2fs_xattr_entry`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct XattrEntry {
    /// `e_name_index`, see [`prefix`].
    pub name_index: u8,
    /// `e_name_len`.
    pub name_len: u8,
    /// `e_value_size`.
    pub value_size: U16,
}

impl XattrEntry {
    /// Its size in bytes.
    pub const BYTES: usize = 4;

    /// Size of the whole entry. `ENTRY_SIZE`.
    pub fn whole(&self) -> usize {
        let len = Self::BYTES + usize::from(self.name_len) + usize::from(self.value_size.get());
        len.next_multiple_of(4)
    }
}

/// What an index of names stands for; `None` for one that nobody has. `F2FS_XATTR_INDEX_*`.
pub fn prefix(name_index: u8) -> Option<&'static str> {
    Some(match name_index {
        1 => "user.",
        2 => "system.posix_acl_access",
        3 => "system.posix_acl_default",
        4 => "trusted.",
        5 => "lustre.",
        6 => "security.",
        7 => "system.advise",
        9 => "encryption.",
        11 => "verity.",
        _ => return None,
    })
}

/// Index and rest of a full name; `None` for one that has no index.
pub fn split_name(full: &str) -> Option<(u8, &str)> {
    (1..=11).find_map(|n| {
        let rest = full.strip_prefix(prefix(n)?)?;
        let is_whole = !prefix(n)?.ends_with('.');
        (is_whole == rest.is_empty()).then_some((n, rest))
    })
}

/// One attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// Index of its name, see [`prefix`].
    pub name_index: u8,
    /// The rest of the name.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Attribute {
    /// Its name with its prefix, as `listxattr` shows it.
    pub fn full_name(&self) -> String {
        let prefix = prefix(self.name_index).unwrap_or("unknown.");
        format!("{prefix}{}", String::from_utf8_lossy(&self.name))
    }
}

/// Reads all attributes from the joined pieces. `at`: byte address of the first, for the error.
///
/// Errors: an entry that reaches beyond them.
pub fn load(bytes: &[u8], at: u64) -> Result<Vec<Attribute>, Corruption> {
    let mut out = Vec::new();
    let has_header = XattrHeader::read_from_prefix(bytes)
        .is_ok_and(|(h, _)| h.magic.get() == XattrHeader::MAGIC);
    if !has_header {
        return Ok(out);
    }
    let mut here = XattrHeader::BYTES;
    loop {
        let rest = bytes.get(here..).unwrap_or(&[]);
        // Four zeroes end the list; so does the end of the room, which leaves four of them.
        let Some(head) = rest.first_chunk::<4>().filter(|h| **h != [0; 4]) else {
            return Ok(out);
        };
        let entry = XattrEntry::read_from_bytes(head).expect("its size");
        let name_end = XattrEntry::BYTES + usize::from(entry.name_len);
        let value_end = name_end + usize::from(entry.value_size.get());
        let (Some(name), Some(value)) =
            (rest.get(XattrEntry::BYTES..name_end), rest.get(name_end..value_end))
        else {
            return Err(Corruption {
                structure: "f2fs attribute",
                field: "e_value_size",
                at: at + super::wide(here),
                found: entry.value_size.get().into(),
                expected: format!("an entry within {} bytes", rest.len()),
            });
        };
        let (name, value) = (name.to_vec(), value.to_vec());
        out.push(Attribute { name_index: entry.name_index, name, value });
        here += entry.whole();
    }
}

/// Bytes that attributes take with header and end; empty without attributes.
pub fn store(attributes: &[Attribute]) -> Vec<u8> {
    if attributes.is_empty() {
        return Vec::new();
    }
    let header = XattrHeader {
        magic: XattrHeader::MAGIC.into(),
        refcount: 1.into(),
        reserved: [0.into(); 4],
    };
    let mut out = header.as_bytes().to_vec();
    for a in attributes {
        let head = XattrEntry {
            name_index: a.name_index,
            name_len: super::lo8(super::count(a.name.len())),
            value_size: super::lo16(super::count(a.value.len())).into(),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&a.name);
        out.extend_from_slice(&a.value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    // `XATTR_PADDING_SIZE`.
    out.extend_from_slice(&[0; 4]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let all = [
            Attribute { name_index: 1, name: b"k".to_vec(), value: b"value".to_vec() },
            Attribute { name_index: 6, name: b"selinux".to_vec(), value: vec![7; 300] },
            Attribute { name_index: 2, name: Vec::new(), value: vec![1, 0, 0, 0] },
        ];
        let bytes = store(&all);
        assert_eq!(load(&bytes, 0).expect("well formed"), all);
        let cut = bytes.get(..bytes.len() - 8).expect("longer");
        assert_eq!(load(cut, 0).expect_err("the last entry is cut").structure, "f2fs attribute");
        assert_eq!(load(&[0; 64], 0).expect("no header"), []);
        assert_eq!(store(&[]), Vec::<u8>::new());
    }

    #[test]
    fn full_names_are_split_and_joined() {
        assert_eq!(split_name("user.k"), Some((1, "k")));
        assert_eq!(split_name("system.posix_acl_access"), Some((2, "")));
        assert_eq!(split_name("system.posix_acl_accessx"), None);
        assert_eq!(split_name("user."), None);
        assert_eq!(split_name("nobody.knows"), None);
    }
}
