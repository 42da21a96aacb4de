//! Seeded damage to an image: one field of one structure, its checksum put right afterwards or not.

pub mod bases;
pub mod exceptions;
mod fuzz;
mod raw;
mod shape;
pub mod words;

use wp_base::Rng;
use wp_ext4::disk::inode::flag;
use wp_ext4::disk::{GroupDesc, SuperBlock, htree, ino};
use wp_ext4::image::{Image, InodeRecord};
use wp_medium::{Overlay, View};

/// Fields as (name, byte, bytes).
type Fields = &'static [(&'static str, usize, usize)];

const SUPER: Fields = &[
    ("s_inodes_count", 0x0, 4),
    ("s_blocks_count_lo", 0x4, 4),
    ("s_r_blocks_count_lo", 0x8, 4),
    ("s_free_blocks_count_lo", 0xC, 4),
    ("s_free_inodes_count", 0x10, 4),
    ("s_first_data_block", 0x14, 4),
    ("s_log_block_size", 0x18, 4),
    ("s_log_cluster_size", 0x1C, 4),
    ("s_blocks_per_group", 0x20, 4),
    ("s_clusters_per_group", 0x24, 4),
    ("s_inodes_per_group", 0x28, 4),
    ("s_mtime", 0x2C, 4),
    ("s_mnt_count", 0x34, 2),
    ("s_magic", 0x38, 2),
    ("s_state", 0x3A, 2),
    ("s_errors", 0x3C, 2),
    ("s_rev_level", 0x4C, 4),
    ("s_first_ino", 0x54, 4),
    ("s_inode_size", 0x58, 2),
    ("s_block_group_nr", 0x5A, 2),
    ("s_uuid", 0x68, 4),
    ("s_reserved_gdt_blocks", 0xCE, 2),
    ("s_journal_inum", 0xE0, 4),
    ("s_last_orphan", 0xE8, 4),
    ("s_hash_seed", 0xEC, 4),
    ("s_def_hash_version", 0xFC, 1),
    ("s_desc_size", 0xFE, 2),
    ("s_default_mount_opts", 0x100, 4),
    ("s_mkfs_time", 0x108, 4),
    ("s_blocks_count_hi", 0x150, 4),
    ("s_min_extra_isize", 0x15C, 2),
    ("s_want_extra_isize", 0x15E, 2),
    ("s_log_groups_per_flex", 0x174, 1),
    ("s_checksum_type", 0x175, 1),
    ("s_kbytes_written", 0x178, 4),
    ("s_error_count", 0x194, 4),
    ("s_overhead_clusters", 0x248, 4),
];

const GROUP: Fields = &[
    ("bg_block_bitmap_lo", 0x0, 4),
    ("bg_inode_bitmap_lo", 0x4, 4),
    ("bg_inode_table_lo", 0x8, 4),
    ("bg_free_blocks_count_lo", 0xC, 2),
    ("bg_free_inodes_count_lo", 0xE, 2),
    ("bg_used_dirs_count_lo", 0x10, 2),
    ("bg_flags", 0x12, 2),
    ("bg_block_bitmap_csum_lo", 0x18, 2),
    ("bg_inode_bitmap_csum_lo", 0x1A, 2),
    ("bg_itable_unused_lo", 0x1C, 2),
    ("bg_checksum", 0x1E, 2),
];

const INODE: Fields = &[
    ("i_mode", 0x0, 2),
    ("i_uid", 0x2, 2),
    ("i_size_lo", 0x4, 4),
    ("i_mtime", 0x10, 4),
    ("i_dtime", 0x14, 4),
    ("i_links_count", 0x1A, 2),
    ("i_blocks_lo", 0x1C, 4),
    ("i_flags", 0x20, 4),
    ("i_version", 0x24, 4),
    ("i_generation", 0x64, 4),
    ("i_file_acl_lo", 0x68, 4),
    ("i_size_high", 0x6C, 4),
    ("i_obso_faddr", 0x70, 4),
    ("i_blocks_high", 0x74, 2),
    ("i_file_acl_high", 0x76, 2),
    ("i_checksum_lo", 0x7C, 2),
    ("i_extra_isize", 0x80, 2),
    ("i_ctime_extra", 0x84, 4),
];

/// The 60 bytes that map blocks, as a node; blocks of nodes have the same start.
const NODE: Fields = &[
    ("eh_magic", 0, 2),
    ("eh_entries", 2, 2),
    ("eh_max", 4, 2),
    ("eh_depth", 6, 2),
    ("eh_generation", 8, 4),
    ("ee_block", 12, 4),
    ("ee_len", 16, 2),
    ("ee_start_hi", 18, 2),
    ("ee_start_lo", 20, 4),
    ("ee_block 2", 24, 4),
    ("ee_len 2", 28, 2),
    ("ee_start_lo 2", 32, 4),
];

const JOURNAL: Fields = &[
    ("h_magic", 0, 4),
    ("h_blocktype", 4, 4),
    ("s_blocksize", 12, 4),
    ("s_maxlen", 16, 4),
    ("s_first", 20, 4),
    ("s_sequence", 24, 4),
    ("s_start", 28, 4),
    ("s_errno", 32, 4),
    ("s_feature_compat", 36, 4),
    ("s_feature_incompat", 40, 4),
    ("s_feature_ro_compat", 44, 4),
    ("s_uuid", 48, 4),
    ("s_nr_users", 64, 4),
    ("s_checksum_type", 80, 1),
];

const TREE: Fields = &[
    ("reserved_zero", 24, 4),
    ("hash_version", 28, 1),
    ("info_length", 29, 1),
    ("indirect_levels", 30, 1),
    ("unused_flags", 31, 1),
    ("limit", 32, 2),
    ("count", 34, 2),
    ("block 1", 36, 4),
    ("hash 2", 40, 4),
    ("block 2", 44, 4),
    ("hash 3", 48, 4),
];

const XATTR: Fields = &[
    ("h_magic", 0, 4),
    ("h_refcount", 4, 4),
    ("h_blocks", 8, 4),
    ("h_checksum", 16, 4),
    ("e_name_len", 32, 1),
    ("e_name_index", 33, 1),
    ("e_value_offs", 34, 2),
    ("e_value_size", 40, 4),
    ("e_hash", 44, 4),
];

/// A base image, with what damage needs to know.
pub struct Target<'a> {
    image: Image<'a>,
    inodes: Vec<InodeRecord>,
    blocks: raw::Blocks,
}

fn pick<'a, T>(rng: &mut Rng, list: &'a [T]) -> &'a T {
    &list[rng.below(list.len() as u64) as usize]
}

fn get(at: u64, len: usize, o: &Overlay<'_>) -> Vec<u8> {
    let mut bytes = vec![0; len];
    o.read_at(at, &mut bytes).expect("within the image");
    bytes
}

impl<'a> Target<'a> {
    pub fn new(view: &'a dyn View) -> Target<'a> {
        let image = Image::open(view).expect("a sound image");
        let numbers = image.used_inodes().expect("bitmaps");
        let inodes = numbers.iter().map(|n| image.inode(*n).expect("a sound inode")).collect();
        let blocks = raw::blocks(&image);
        Target { image, inodes, blocks }
    }

    fn bs(&self) -> u64 {
        self.image.geometry().block_size.bytes().into()
    }

    /// Damages `o` by `seed`; says what it did.
    pub fn damage(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let seal = rng.below(4) != 0;
        let what = match rng.below(40) {
            20..=30 => self.raw(o, rng, seal),
            31 => self.swap(o, rng),
            32..=39 => self.shape(o, rng, seal),
            0 | 1 => self.super_block(o, rng, seal),
            2 | 3 => self.group(o, rng, seal),
            4 | 5 => self.bitmap(o, rng, seal),
            6..=9 => self.inode(o, rng, seal),
            10 | 11 => self.node(o, rng, seal),
            12..=15 => self.dir(o, rng, seal),
            16 => self.journal(o, rng),
            17 => self.xattr(o, rng, seal),
            _ => self.tree(o, rng, seal),
        };
        format!("{what}{}", if seal { ", sealed" } else { "" })
    }

    /// Changes a field at byte `base` of `bytes`; `(name, old, new)`.
    fn field(rng: &mut Rng, bytes: &mut [u8], fields: Fields) -> String {
        let (name, at, len) = *pick(rng, fields);
        let Some(place) = bytes.get_mut(at..at + len) else { return "nothing".to_owned() };
        let mut word = [0u8; 8];
        word[..len].copy_from_slice(place);
        let old = u64::from_le_bytes(word);
        let new = match rng.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => old ^ 1 << rng.below(len as u64 * 8),
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            5 => old.wrapping_add(rng.below(64)),
            6 => rng.below(4096),
            _ => rng.next_u64(),
        };
        place.copy_from_slice(&new.to_le_bytes()[..len]);
        let mut word = [0u8; 8];
        word[..len].copy_from_slice(place);
        format!("{name} {old:#x} -> {:#x}", u64::from_le_bytes(word))
    }

    fn put_super(&self, o: &Overlay<'_>, bytes: &mut [u8], seal: bool) {
        let sb = SuperBlock::load(bytes).expect("1024 bytes");
        if seal && sb.has_metadata_csum() {
            let sum = wp_ext4::disk::Checksums::super_block(&sb);
            bytes[1020..].copy_from_slice(&sum.to_le_bytes());
        }
        o.write_at(SuperBlock::AT, bytes).expect("written");
    }

    fn super_block(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let mut bytes = get(SuperBlock::AT, SuperBlock::BYTES, o);
        let what = Self::field(rng, &mut bytes, SUPER);
        self.put_super(o, &mut bytes, seal);
        format!("super block: {what}")
    }

    fn put_group(&self, o: &Overlay<'_>, n: u32, bytes: &mut [u8], seal: bool) {
        let mut desc = GroupDesc::load(bytes);
        if seal {
            self.image.checksums().seal_group_desc(n, &mut desc);
            desc.store(bytes);
        }
        let (block, offset) = self.image.geometry().desc_place(n);
        o.write_at(block * self.bs() + offset as u64, bytes).expect("written");
    }

    fn group_bytes(&self, o: &Overlay<'_>, n: u32) -> Vec<u8> {
        let g = self.image.geometry();
        let (block, offset) = g.desc_place(n);
        get(block * self.bs() + offset as u64, g.desc_bytes.into(), o)
    }

    fn group(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let n = rng.below(self.image.geometry().groups.into()) as u32;
        let mut bytes = self.group_bytes(o, n);
        let what = Self::field(rng, &mut bytes, GROUP);
        self.put_group(o, n, &mut bytes, seal);
        format!("group {n}: {what}")
    }

    fn bitmap(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let g = self.image.geometry();
        let n = rng.below(g.groups.into()) as u32;
        let mut desc_bytes = self.group_bytes(o, n);
        let mut desc = GroupDesc::load(&desc_bytes);
        let of_blocks = rng.below(2) == 0;
        // Earlier damage may have moved them.
        let places = &self.image.groups()[n as usize];
        let (at, len) = if of_blocks {
            (places.block_bitmap(), g.block_bitmap_bytes())
        } else {
            (places.inode_bitmap(), g.inode_bitmap_bytes())
        };
        let mut bytes = get(at * self.bs(), self.bs() as usize, o);
        let bit = match rng.below(4) {
            0 => rng.below(64),
            1 => rng.below(self.bs() * 8),
            _ => rng.below(len as u64 * 8),
        };
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        o.write_at(at * self.bs(), &bytes).expect("written");
        let sums = self.image.checksums();
        if seal && sums.metadata() {
            let sum = sums.bitmap(&bytes[..len]);
            if of_blocks {
                desc.set_block_bitmap_csum(sum);
            } else {
                desc.set_inode_bitmap_csum(sum);
            }
            desc.store(&mut desc_bytes);
            self.put_group(o, n, &mut desc_bytes, true);
        }
        format!("group {n}: {} bitmap, bit {bit}", if of_blocks { "block" } else { "inode" })
    }

    fn put_inode(&self, o: &Overlay<'_>, r: &InodeRecord, raw: &mut [u8], seal: bool) {
        if seal {
            self.image.checksums().seal_inode(r.number, raw);
        }
        o.write_at(r.at, raw).expect("written");
    }

    fn inode(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let r = pick(rng, &self.inodes);
        let mut raw = r.raw.clone();
        let what = Self::field(rng, &mut raw, INODE);
        self.put_inode(o, r, &mut raw, seal);
        format!("inode {}: {what}", r.number)
    }

    fn seed(&self, r: &InodeRecord) -> u32 {
        self.image.checksums().inode_seed(r.number, r.inode.generation.get())
    }

    fn node(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let r = pick(rng, &self.inodes);
        let nodes = self.image.map(r).map(|m| m.nodes).unwrap_or_default();
        if nodes.is_empty() || r.number == ino::RESIZE || rng.below(2) == 0 {
            let mut raw = r.raw.clone();
            let what = Self::field(rng, &mut raw[0x28..0x64], NODE);
            self.put_inode(o, r, &mut raw, seal);
            return format!("inode {}, i_block: {what}", r.number);
        }
        let at = *pick(rng, &nodes) * self.bs();
        let mut bytes = get(at, self.bs() as usize, o);
        let what = Self::field(rng, &mut bytes, NODE);
        // A header without room for its tail cannot be sealed.
        let sums = self.image.checksums();
        if seal && r.inode.has(flag::EXTENTS) && sums.extent_block(0, &bytes).is_some() {
            sums.seal_extent_block(self.seed(r), &mut bytes);
        }
        o.write_at(at, &bytes).expect("written");
        format!("inode {}, node in block {}: {what}", r.number, at / self.bs())
    }

    fn dir(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let dirs: Vec<_> = self.inodes.iter().filter(|r| r.inode.is_dir()).collect();
        let r = *pick(rng, &dirs);
        let runs = self.image.map(r).expect("a sound map").runs;
        let run = pick(rng, &runs);
        let block = run.start + rng.below(run.blocks.into());
        let mut bytes = get(block * self.bs(), self.bs() as usize, o);
        // The start of some entry.
        let mut at = 0usize;
        for _ in 0..rng.below(8) {
            let len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
            if len >= 12 && at + len + 24 < bytes.len() {
                at += len;
            }
        }
        let fields: Fields = &[
            ("inode", 0, 4),
            ("rec_len", 4, 2),
            ("name_len", 6, 1),
            ("file_type", 7, 1),
            ("name", 8, 1),
            ("name", 8, 2),
        ];
        let what = match rng.below(4) {
            0 => {
                let other = pick(rng, &self.inodes).number;
                bytes[at..at + 4].copy_from_slice(&other.to_le_bytes());
                format!("inode -> {other}")
            }
            _ => Self::field(rng, &mut bytes[at..], fields),
        };
        self.put_dir(o, r, block, &mut bytes, seal);
        format!("directory {}, block {block}, byte {at}: {what}", r.number)
    }

    fn put_dir(&self, o: &Overlay<'_>, r: &InodeRecord, block: u64, bytes: &mut [u8], seal: bool) {
        let sums = self.image.checksums();
        let is_node = r.inode.has(flag::INDEX) && htree::entries_at(bytes).is_some();
        if seal && is_node {
            let from = htree::entries_at(bytes).expect("just seen");
            if sums.htree_block(0, bytes, from).is_some() {
                sums.seal_htree_block(self.seed(r), bytes, from);
            }
        } else if seal {
            sums.seal_dir_block(self.seed(r), bytes);
        }
        o.write_at(block * self.bs(), bytes).expect("written");
    }

    fn journal(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let Some(r) = self.inodes.iter().find(|r| r.number == ino::JOURNAL) else {
            return "nothing".to_owned();
        };
        let map = self.image.map(r).expect("a sound map");
        let Some(block) = map.block(0) else { return "nothing".to_owned() };
        let mut bytes = get(block * self.bs(), self.bs() as usize, o);
        let what = Self::field(rng, &mut bytes, JOURNAL);
        o.write_at(block * self.bs(), &bytes).expect("written");
        format!("journal: {what}")
    }

    fn xattr(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let with: Vec<_> = self.inodes.iter().filter(|r| r.inode.file_acl() != 0).collect();
        if with.is_empty() {
            return self.inode(o, rng, seal);
        }
        let block = pick(rng, &with).inode.file_acl();
        let mut bytes = get(block * self.bs(), self.bs() as usize, o);
        let what = Self::field(rng, &mut bytes, XATTR);
        if seal {
            self.image.checksums().seal_xattr_block(block, &mut bytes);
        }
        o.write_at(block * self.bs(), &bytes).expect("written");
        format!("attributes in block {block}: {what}")
    }

    fn tree(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let with: Vec<_> = self.inodes.iter().filter(|r| r.inode.has(flag::INDEX)).collect();
        if with.is_empty() {
            return self.dir(o, rng, seal);
        }
        let r = *pick(rng, &with);
        let block = self.image.map(r).expect("a sound map").block(0).expect("a root");
        let mut bytes = get(block * self.bs(), self.bs() as usize, o);
        let what = Self::field(rng, &mut bytes, TREE);
        let sums = self.image.checksums();
        if seal && sums.htree_block(0, &bytes, htree::ROOT_ENTRIES_AT).is_some() {
            sums.seal_htree_block(self.seed(r), &mut bytes, htree::ROOT_ENTRIES_AT);
        }
        o.write_at(block * self.bs(), &bytes).expect("written");
        format!("hash tree of {}: {what}", r.number)
    }
}
