//! The super root: last block of a log that makes a checkpoint count.

use wp_base::Corruption;
use wp_base::crc::crc32_le;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Geometry, Inode, lo16, view, view_mut, wide};

/// Its head; three inodes follow: DAT, checkpoints, usage of segments. `struct nilfs_super_root`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    /// `sr_sum`, checksum of what follows.
    sum: U32,
    /// `sr_bytes`, length.
    bytes: U16,
    /// `sr_flags`, reserved.
    flags: U16,
    /// `sr_nongc_ctime`, when the last log was written that was not the cleaner's.
    nongc_ctime: U64,
}
const _: () = assert!(size_of::<Head>() == 16);

/// What a super root says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperRoot {
    /// When the last log was written that was not the cleaner's, in seconds since 1970.
    pub nongc_ctime: u64,
    /// Inode of the DAT.
    pub dat: Inode,
    /// Inode of the file of checkpoints.
    pub cpfile: Inode,
    /// Inode of the file of segments' usage.
    pub sufile: Inode,
}

impl SuperRoot {
    fn bytes(g: &Geometry) -> usize {
        size_of::<Head>() + 3 * g.inode_bytes
    }

    /// Reads and checks one. `at`: byte address of the block, for the error.
    ///
    /// Source: `nilfs_read_super_root_block`.
    pub fn load(block: &[u8], g: &Geometry, at: u64) -> Result<SuperRoot, Corruption> {
        let wrong = |field, found: u64, expected: String| Corruption {
            structure: "nilfs2 super root",
            field,
            at,
            found,
            expected,
        };
        let short = || wrong("sr_bytes", 0, format!("{}", Self::bytes(g)));
        let head = view::<Head>(block, 0).ok_or_else(short)?;
        let bytes = usize::from(head.bytes.get());
        let covered = block.get(4..bytes).filter(|_| bytes >= Self::bytes(g));
        let covered = covered.ok_or_else(|| {
            wrong("sr_bytes", wide(bytes), format!("{} or more, within the block", Self::bytes(g)))
        })?;
        let right = crc32_le(g.crc_seed, covered);
        if head.sum.get() != right {
            return Err(wrong("sr_sum", head.sum.get().into(), format!("{right:#x}")));
        }
        let inode = |n| {
            view::<Inode>(block, size_of::<Head>() + n * g.inode_bytes).copied().ok_or_else(short)
        };
        Ok(SuperRoot {
            nongc_ctime: head.nongc_ctime.get(),
            dat: inode(0)?,
            cpfile: inode(1)?,
            sufile: inode(2)?,
        })
    }

    /// The block that holds it.
    pub fn store(&self, g: &Geometry) -> Vec<u8> {
        let mut block = vec![0; g.block_bytes()];
        for (inode, n) in [&self.dat, &self.cpfile, &self.sufile].into_iter().zip(0..) {
            if let Some(place) =
                view_mut::<Inode>(&mut block, size_of::<Head>() + n * g.inode_bytes)
            {
                *place = *inode;
            }
        }
        let bytes = Self::bytes(g);
        if let Some(head) = view_mut::<Head>(&mut block, 0) {
            head.bytes = lo16(wide(bytes)).into();
            head.nongc_ctime = self.nongc_ctime.into();
        }
        let sum = crc32_le(g.crc_seed, block.get(4..bytes).unwrap_or(&[]));
        if let Some(head) = view_mut::<Head>(&mut block, 0) {
            head.sum = sum.into();
        }
        block
    }
}
