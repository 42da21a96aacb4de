//! Extended attributes as `getxattr` shows them.

use wp_base::{Corruption, FsError, FsResult};
use wp_vfs::Xattr;
use zerocopy::FromBytes;

use crate::disk::Inode;
use crate::disk::inode::flag;
use crate::disk::xattr::{self, XattrEntry, XattrHeader};

use super::{Image, InodeRecord};

/// Bytes that hold attributes, with what it takes to find them there.
pub(super) struct Area {
    pub(super) bytes: Vec<u8>,
    pub(super) at: u64,
    first: usize,
    base: usize,
}

impl Area {
    pub(super) fn entries(&self) -> Result<Vec<XattrEntry<'_>>, Corruption> {
        xattr::load(&self.bytes, self.at, self.first, self.base)
    }
}

impl Image<'_> {
    /// All attributes of an inode, sorted by name. ACLs are in the form that programs see.
    pub fn xattrs(&self, record: &InodeRecord) -> FsResult<Vec<Xattr>> {
        let mut out = Vec::new();
        for area in self.inode_attributes(record)?.into_iter().chain(self.block_attributes(record)?)
        {
            for e in area.entries()? {
                let is_inline = record.inode.has(flag::INLINE_DATA)
                    && e.header.name_index == xattr::INDEX_SYSTEM
                    && e.name == xattr::INLINE_DATA_NAME;
                if !is_inline {
                    out.extend(self.attribute(&e, area.at)?);
                }
            }
        }
        out.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }

    /// `None`: one that is not listed, as those of encryption and verity, and any whose prefix no
    /// kernel knows. `ext4_xattr_list_entries`.
    fn attribute(&self, e: &XattrEntry<'_>, at: u64) -> FsResult<Option<Xattr>> {
        let index = e.header.name_index;
        let Some((_, prefix)) = xattr::PREFIXES.iter().find(|(i, _)| *i == index) else {
            return Ok(None);
        };
        let mut name = prefix.as_bytes().to_vec();
        name.extend_from_slice(e.name);
        let value = match e.header.value_inum.get() {
            0 => e.value.to_vec(),
            inode => self.value_inode(inode, e.header.value_size.get(), at)?,
        };
        let value = if matches!(index, 2 | 3) { xattr::acl_value(&value, at)? } else { value };
        Ok(Some(Xattr { name, value }))
    }

    /// The value that fills an inode of its own.
    fn value_inode(&self, number: u32, size: u32, at: u64) -> FsResult<Vec<u8>> {
        let record = self.inode(number)?;
        // XATTR_SIZE_MAX of Linux; more would be a way to make us read for ever.
        let fits = record.inode.has(flag::EA_INODE)
            && record.inode.size() == u64::from(size)
            && size <= 65536;
        if !fits {
            let expected = "an inode that holds a value of this size, at most 65536 bytes";
            return Err(FsError::corrupt(
                "ext4 xattr entry",
                "e_value_inum",
                at,
                number.into(),
                expected,
            ));
        }
        let mut value = Vec::with_capacity(size as usize);
        self.read_file(&record, &mut |part| part.append_to(&mut value, 65536))?;
        Ok(value)
    }

    /// The area behind the inode's fields, if it has attributes.
    pub(super) fn inode_attributes(&self, record: &InodeRecord) -> FsResult<Option<Area>> {
        let from = Inode::BYTES + usize::from(record.extra.extra_isize.get());
        let area = record.raw.get(from..).unwrap_or(&[]);
        let has_magic =
            area.first_chunk::<4>().is_some_and(|b| u32::from_le_bytes(*b) == xattr::MAGIC);
        if record.extra.extra_isize.get() == 0 || !has_magic {
            return Ok(None);
        }
        Ok(Some(Area { bytes: area.to_vec(), at: record.at + from as u64, first: 4, base: 4 }))
    }

    /// The attribute block, if there is one.
    pub(super) fn block_attributes(&self, record: &InodeRecord) -> FsResult<Option<Area>> {
        let block = record.inode.file_acl();
        if block == 0 {
            return Ok(None);
        }
        if !self.g.holds(block, 1) {
            let expected = format!("a block of the device (inode {})", record.number);
            return Err(FsError::corrupt("ext4 inode", "i_file_acl", record.at, block, expected));
        }
        let bytes = self.read_block(block, "ext4 xattr block")?;
        let at = self.byte_of(block);
        let wrong = |field, found: u64, expected: &str| {
            Err(FsError::corrupt("ext4 xattr block", field, at, found, expected))
        };
        let Ok((header, _)) = XattrHeader::read_from_prefix(&bytes) else {
            return wrong("h_magic", 0, "a whole header");
        };
        if header.magic.get() != xattr::MAGIC {
            return wrong("h_magic", header.magic.get().into(), "0xea020000");
        }
        if header.blocks.get() != 1 {
            return wrong("h_blocks", header.blocks.get().into(), "1");
        }
        if !self.sums.xattr_block_ok(block, &bytes) {
            let right = format!("{:#x}", self.sums.xattr_block(block, &bytes));
            return wrong("h_checksum", header.checksum.get().into(), &right);
        }
        Ok(Some(Area { bytes, at, first: size_of::<XattrHeader>(), base: 0 }))
    }
}
