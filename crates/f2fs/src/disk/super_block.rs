//! The super block: 3072 bytes at byte 1024 of the first block, and again of the second.

use std::mem::offset_of;

use wp_base::{Corruption, FsError, FsResult};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Block, checksum, feature, wide};

/// One device of several. `struct f2fs_device`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DeviceEntry {
    /// `path`, padded with zeroes; all zero: no device.
    pub path: [u8; 64],
    /// `total_segments` on it; of the first device without what lies before segment 0.
    pub total_segments: U32,
}

/// The super block. `struct f2fs_super_block`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SuperBlock {
    /// `magic`, always [`Self::MAGIC`].
    pub magic: U32,
    /// `major_ver` of the format.
    pub major_ver: U16,
    /// `minor_ver` of the format.
    pub minor_ver: U16,
    /// `log_sectorsize`: a sector has `1 << log` bytes.
    pub log_sectorsize: U32,
    /// `log_sectors_per_block`.
    pub log_sectors_per_block: U32,
    /// `log_blocksize`, always 12 up to Linux 6.1.
    pub log_blocksize: U32,
    /// `log_blocks_per_seg`, always 9.
    pub log_blocks_per_seg: U32,
    /// `segs_per_sec`, segments of a section: what is cleaned and, if zoned, reset as one.
    pub segs_per_sec: U32,
    /// `secs_per_zone`, sections of a zone: no two logs write to one zone.
    pub secs_per_zone: U32,
    /// `checksum_offset` of `crc`, with SB_CHKSUM.
    pub checksum_offset: U32,
    /// `block_count`, blocks of all devices.
    pub block_count: U64,
    /// `section_count` of the main area.
    pub section_count: U32,
    /// `segment_count` from segment 0 on.
    pub segment_count: U32,
    /// `segment_count_ckpt`.
    pub segment_count_ckpt: U32,
    /// `segment_count_sit`, both copies.
    pub segment_count_sit: U32,
    /// `segment_count_nat`, both copies.
    pub segment_count_nat: U32,
    /// `segment_count_ssa`.
    pub segment_count_ssa: U32,
    /// `segment_count_main`.
    pub segment_count_main: U32,
    /// `segment0_blkaddr`, block where segments begin.
    pub segment0_blkaddr: U32,
    /// `cp_blkaddr`, first of the two packs; as `segment0_blkaddr`.
    pub cp_blkaddr: U32,
    /// `sit_blkaddr`.
    pub sit_blkaddr: U32,
    /// `nat_blkaddr`.
    pub nat_blkaddr: U32,
    /// `ssa_blkaddr`.
    pub ssa_blkaddr: U32,
    /// `main_blkaddr`.
    pub main_blkaddr: U32,
    /// `root_ino`, always 3.
    pub root_ino: U32,
    /// `node_ino`, always 1.
    pub node_ino: U32,
    /// `meta_ino`, always 2.
    pub meta_ino: U32,
    /// `uuid`; seeds the checksums of inodes.
    pub uuid: [u8; 16],
    /// `volume_name`, UTF-16.
    pub volume_name: [U16; 512],
    /// `extension_count`, entries of `extension_list` that name cold files.
    pub extension_count: U32,
    /// `extension_list`: names' endings, cold ones and then `hot_ext_count` hot ones.
    pub extension_list: [[u8; 8]; 64],
    /// `cp_payload`: blocks of a checkpoint beyond its first, for large bitmaps.
    pub cp_payload: U32,
    /// `version` of the kernel that mounted it last, text.
    pub version: [u8; 256],
    /// `init_version` of the kernel that made it, text.
    pub init_version: [u8; 256],
    /// `feature`, see [`feature`].
    pub feature: U32,
    /// `encryption_level`.
    pub encryption_level: u8,
    /// `encrypt_pw_salt`.
    pub encrypt_pw_salt: [u8; 16],
    /// `devs`, if there are several.
    pub devs: [DeviceEntry; 8],
    /// `qf_ino`, inodes of user, group and project quota.
    pub qf_ino: [U32; 3],
    /// `hot_ext_count`, entries of `extension_list` that name hot files.
    pub hot_ext_count: u8,
    /// `s_encoding` of file names, with CASEFOLD.
    pub encoding: U16,
    /// `s_encoding_flags`.
    pub encoding_flags: U16,
    /// `s_stop_reason`: how often checkpoints stopped, by reason (from 6.1).
    pub stop_reason: [u8; 32],
    /// `s_errors`: what was found wrong, a bit each (from 6.1).
    pub errors: [u8; 16],
    /// `reserved`.
    pub reserved: [u8; 258],
    /// `crc` of all bytes before it, with SB_CHKSUM.
    pub crc: U32,
}
const _: () = assert!(size_of::<SuperBlock>() == SuperBlock::BYTES);
const _: () = assert!(offset_of!(SuperBlock, checksum_offset) == 32);
const _: () = assert!(offset_of!(SuperBlock, segment0_blkaddr) == 72);
const _: () = assert!(offset_of!(SuperBlock, uuid) == 108);
const _: () = assert!(offset_of!(SuperBlock, extension_count) == 1148);
const _: () = assert!(offset_of!(SuperBlock, cp_payload) == 1664);
const _: () = assert!(offset_of!(SuperBlock, feature) == 2180);
const _: () = assert!(offset_of!(SuperBlock, devs) == 2201);
const _: () = assert!(offset_of!(SuperBlock, qf_ino) == 2745);
const _: () = assert!(offset_of!(SuperBlock, crc) == SuperBlock::CRC_AT);

impl SuperBlock {
    /// Its size in bytes.
    pub const BYTES: usize = 3072;
    /// Where it lies in a block, in bytes. `F2FS_SUPER_OFFSET`.
    pub const AT: usize = 1024;
    /// Copies: in blocks 0 and 1.
    pub const COPIES: u32 = 2;
    /// `F2FS_SUPER_MAGIC`.
    pub const MAGIC: u32 = 0xF2F5_2010;
    /// Where its checksum stands.
    pub const CRC_AT: usize = 3068;
    /// `F2FS_MAX_SEGMENT`.
    pub const SEGMENTS_MAX: u32 = 8 << 20;
    /// `F2FS_MIN_SEGMENTS`.
    pub const SEGMENTS_MIN: u32 = 9;
    /// `F2FS_MAX_EXTENSION`.
    pub const EXTENSIONS_MAX: u32 = 64;

    /// All zero.
    pub fn zeroed() -> SuperBlock {
        SuperBlock::read_from_bytes(&[0; Self::BYTES]).expect("the size is right")
    }

    /// The super block in a block.
    pub fn load(block: &Block) -> SuperBlock {
        let (_, rest) = block.split_at(Self::AT);
        SuperBlock::read_from_prefix(rest).expect("a block has room for it").0
    }

    /// Puts it into a block.
    pub fn store(&self, block: &mut Block) {
        let (_, rest) = block.split_at_mut(Self::AT);
        self.write_to_prefix(rest).expect("a block has room for it");
    }

    /// Has it all bits of `feature`?
    pub fn has(&self, feature: u32) -> bool {
        self.feature.get() & feature == feature
    }

    /// What its checksum has to be.
    pub fn right_crc(&self) -> u32 {
        checksum::crc32(self.as_bytes().get(..Self::CRC_AT).unwrap_or(&[]))
    }

    /// Sets its checksum and where that stands, if it has one.
    pub fn seal(&mut self) {
        if self.has(feature::SB_CHKSUM) {
            self.checksum_offset = super::count(Self::CRC_AT).into();
            self.crc = self.right_crc().into();
        }
    }

    /// Devices in the table; none for a file system on a single one.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceEntry> {
        self.devs.iter().take_while(|d| d.path.first() != Some(&0))
    }

    /// Endings of names: (cold, hot). Errors in their numbers are cut off.
    pub fn extensions(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let cold = super::index(self.extension_count.get());
        let text = |e: &'_ [u8; 8]| e.iter().position(|b| *b == 0).unwrap_or(e.len());
        let all: Vec<&[u8]> =
            self.extension_list.iter().map(|e| e.get(..text(e)).unwrap_or(&[])).collect();
        let (first, rest) = all.split_at(cold.min(all.len()));
        (first.to_vec(), rest.iter().take(self.hot_ext_count.into()).copied().collect())
    }

    /// Refuses formats that are not done here, by name, of a super block whose checksum, if it has
    /// one, is right. Errors: `Unsupported`.
    ///
    /// An image of the feature `ro` has no SSA and two logs. Blocks as large as the page of the
    /// machine that made it can be 16 KiB, since Linux 6.7.
    pub fn refuse(&self) -> FsResult<()> {
        let is_sealed = !self.has(feature::SB_CHKSUM) || self.crc.get() == self.right_crc();
        if self.magic.get() != Self::MAGIC || !is_sealed {
            return Ok(());
        }
        let log = self.log_blocksize.get();
        if (13..=16).contains(&log) {
            return Err(FsError::Unsupported(format!("f2fs with blocks of {} bytes", 1u32 << log)));
        }
        match self.has(feature::RO) {
            true => {
                Err(FsError::Unsupported("f2fs with feature ro (a read-only image)".to_owned()))
            }
            false => Ok(()),
        }
    }

    /// Checks what a mount checks. `at`: byte address of the copy, for the error.
    ///
    /// Source: `sanity_check_raw_super`, `sanity_check_area_boundary`.
    pub fn verify(&self, at: u64) -> Result<(), Corruption> {
        let wrong = |field, found: u64, expected: String| {
            Err(Corruption { structure: "f2fs super block", field, at, found, expected })
        };
        if self.magic.get() != Self::MAGIC {
            return wrong("magic", self.magic.get().into(), format!("{:#x}", Self::MAGIC));
        }
        if self.has(feature::SB_CHKSUM) {
            if self.checksum_offset.get() != super::count(Self::CRC_AT) {
                let expected = Self::CRC_AT.to_string();
                return wrong("checksum_offset", self.checksum_offset.get().into(), expected);
            }
            if self.crc.get() != self.right_crc() {
                let expected = format!("{:#x}", self.right_crc());
                return wrong("crc", self.crc.get().into(), expected);
            }
        }
        let exact = [
            ("log_blocksize", self.log_blocksize, 12),
            ("log_blocks_per_seg", self.log_blocks_per_seg, 9),
            ("node_ino", self.node_ino, 1),
            ("meta_ino", self.meta_ino, 2),
            ("root_ino", self.root_ino, 3),
        ];
        for (field, found, right) in exact {
            if found.get() != right {
                return wrong(field, found.get().into(), right.to_string());
            }
        }
        let sector = self.log_sectorsize.get();
        if !(9..=12).contains(&sector) {
            return wrong("log_sectorsize", sector.into(), "9 to 12".to_owned());
        }
        if self.log_sectors_per_block.get() != 12 - sector {
            let found = self.log_sectors_per_block.get().into();
            return wrong("log_sectors_per_block", found, (12 - sector).to_string());
        }
        self.verify_counts(&wrong)?;
        self.verify_areas(&wrong)
    }

    fn verify_counts(
        &self,
        wrong: &dyn Fn(&'static str, u64, String) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        let segments = self.segment_count.get();
        let (main, sections) = (self.segment_count_main.get(), self.section_count.get());
        let (per_section, per_zone) = (self.segs_per_sec.get(), self.secs_per_zone.get());
        if !(Self::SEGMENTS_MIN..=Self::SEGMENTS_MAX).contains(&segments) {
            let expected = format!("{} to {}", Self::SEGMENTS_MIN, Self::SEGMENTS_MAX);
            return wrong("segment_count", segments.into(), expected);
        }
        if per_section == 0 || per_section > segments {
            return wrong("segs_per_sec", per_section.into(), format!("1 to {segments}"));
        }
        if sections == 0 || sections > main || sections > segments / per_section {
            return wrong("section_count", sections.into(), format!("1 to {main}"));
        }
        if u64::from(main) != u64::from(sections) * u64::from(per_section) {
            let expected = format!("{sections} sections of {per_section} segments");
            return wrong("segment_count_main", main.into(), expected);
        }
        if u64::from(segments) > self.block_count.get() >> 9 {
            let expected = format!("{segments} segments or more");
            return wrong("block_count", self.block_count.get(), expected);
        }
        if self.devices().next().is_some() {
            let sum: u64 = self.devices().map(|d| u64::from(d.total_segments.get())).sum();
            if sum != u64::from(segments) {
                return wrong("devs.total_segments", sum, format!("{segments} in all"));
            }
        }
        if per_zone == 0 || per_zone > sections {
            return wrong("secs_per_zone", per_zone.into(), format!("1 to {sections}"));
        }
        let extensions = u64::from(self.extension_count.get()) + u64::from(self.hot_ext_count);
        if extensions > u64::from(Self::EXTENSIONS_MAX) {
            return wrong("extension_count", extensions, format!("up to {}", Self::EXTENSIONS_MAX));
        }
        // Two checkpoint blocks and six summaries must fit a pack besides.
        if self.cp_payload.get() >= 512 - 2 - 6 {
            return wrong("cp_payload", self.cp_payload.get().into(), "less than 504".to_owned());
        }
        Ok(())
    }

    fn verify_areas(
        &self,
        wrong: &dyn Fn(&'static str, u64, String) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        let areas = [
            ("cp_blkaddr", self.cp_blkaddr, self.segment_count_ckpt),
            ("sit_blkaddr", self.sit_blkaddr, self.segment_count_sit),
            ("nat_blkaddr", self.nat_blkaddr, self.segment_count_nat),
            ("ssa_blkaddr", self.ssa_blkaddr, self.segment_count_ssa),
            ("main_blkaddr", self.main_blkaddr, self.segment_count_main),
        ];
        let start = u64::from(self.segment0_blkaddr.get());
        let mut next = start;
        for (field, found, segments) in areas {
            if u64::from(found.get()) != next {
                return wrong(field, found.get().into(), next.to_string());
            }
            next += u64::from(segments.get()) << 9;
        }
        let end = start + (u64::from(self.segment_count.get()) << 9);
        // Less is mounted too: what is left over behind the main area is not used.
        if next > end || end > u64::from(u32::MAX) {
            return wrong("segment_count_main", wide(0) + next, format!("an end by block {end}"));
        }
        if self.segment_count_ckpt.get() < 2 {
            let found = self.segment_count_ckpt.get().into();
            return wrong("segment_count_ckpt", found, "2 or more".to_owned());
        }
        Ok(())
    }
}
