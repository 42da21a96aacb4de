//! Where the fields of an image's structures stand.

use std::collections::BTreeSet;
use std::mem::offset_of;

use wp_f2fs::disk::{
    CheckpointHead, DentryArea, DentryEntry, Footer, Geometry, Inode, InodeExtra, Log, NatEntry,
    SitEntry, Summary, SummaryFooter, SuperBlock, ZERO_BLOCK, addr, inode, nid,
};
use wp_f2fs::image::{Image, InodeRecord};

/// What has to be made right behind a damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seal {
    Nothing,
    /// The checkpoint's checksum, at both ends of its pack.
    Pack,
    /// The super block's, and its copy.
    Super,
    /// That of the inode in this block.
    Inode,
}

/// A field on the disk.
pub struct Place {
    /// Structure and field, whichever file it is of.
    pub field: String,
    /// Whose.
    pub whose: String,
    pub at: u64,
    pub bytes: usize,
    pub seal: Seal,
}

/// Name, offset and size of fields.
type Fields = Vec<(&'static str, usize, usize)>;

macro_rules! fields {
    ($of:ty: $($name:ident)+) => {{
        fn size<T, F>(_: fn(&T) -> &F) -> usize {
            size_of::<F>()
        }
        vec![$((stringify!($name), offset_of!($of, $name), size(|s: &$of| &s.$name))),+]
    }};
}

fn checkpoint() -> Fields {
    let mut out = fields!(CheckpointHead: checkpoint_ver user_block_count valid_block_count
        rsvd_segment_count overprov_segment_count free_segment_count ckpt_flags
        cp_pack_total_block_count cp_pack_start_sum valid_node_count valid_inode_count
        next_free_nid sit_ver_bitmap_bytesize nat_ver_bitmap_bytesize checksum_offset
        elapsed_time);
    for n in 0..3 {
        out.push(("cur_node_segno", offset_of!(CheckpointHead, cur_node_segno) + 4 * n, 4));
        out.push(("cur_node_blkoff", offset_of!(CheckpointHead, cur_node_blkoff) + 2 * n, 2));
        out.push(("cur_data_segno", offset_of!(CheckpointHead, cur_data_segno) + 4 * n, 4));
        out.push(("cur_data_blkoff", offset_of!(CheckpointHead, cur_data_blkoff) + 2 * n, 2));
        out.push(("alloc_type", offset_of!(CheckpointHead, alloc_type) + n, 1));
    }
    // Which copy of the SIT and the NAT is the current one.
    out.extend([("sit_bitmap", 192, 1), ("nat_bitmap", 192 + 64, 1)]);
    out
}

fn super_block() -> Fields {
    fields!(SuperBlock: magic log_sectorsize log_sectors_per_block log_blocksize
        log_blocks_per_seg segs_per_sec secs_per_zone checksum_offset block_count section_count
        segment_count segment_count_ckpt segment_count_sit segment_count_nat segment_count_ssa
        segment_count_main segment0_blkaddr cp_blkaddr sit_blkaddr nat_blkaddr ssa_blkaddr
        main_blkaddr root_ino node_ino meta_ino extension_count cp_payload feature
        qf_ino hot_ext_count encoding)
}

fn inode() -> Fields {
    let mut out = fields!(Inode: mode advise inline links size blocks current_depth xattr_nid
        flags pino namelen name dir_level);
    let ext = offset_of!(Inode, ext);
    out.extend([("ext.fofs", ext, 4), ("ext.blk", ext + 4, 4), ("ext.len", ext + 8, 4)]);
    // Words of addresses, and at their end the nodes.
    out.extend([("addr0", 360, 4), ("addr1", 364, 4), ("addr9", 396, 4)]);
    out.extend([("nid0", 4052, 4), ("nid1", 4056, 4), ("nid2", 4060, 4), ("nid4", 4068, 4)]);
    out
}

/// The fields of an image, those of one file of each sort.
pub struct Places<'a> {
    image: &'a Image<'a>,
    out: Vec<Place>,
}

impl Places<'_> {
    pub fn of(image: &Image<'_>) -> Vec<Place> {
        let mut p = Places { image, out: Vec::new() };
        p.tables();
        p.data_segments();
        let mut sorts = BTreeSet::new();
        for ino in nid::ROOT..image.geometry().nids().min(600) {
            let Ok(record) = image.inode(ino) else { continue };
            let i = record.inode();
            let nodes = (0..5).map(|n| i.nid(n) != 0).collect::<Vec<_>>();
            let sort = (i.kind(), i.inline, i.links.get() > 1, nodes, i.xattr_nid.get() != 0);
            if sorts.insert(sort) {
                p.file(&record);
            }
        }
        p.out
    }

    fn add(&mut self, of: &str, whose: &str, at: u64, seal: Seal, fields: Fields) {
        for (name, offset, bytes) in fields {
            let (field, whose) = (format!("{of}.{name}"), whose.to_owned());
            let at = at + offset as u64;
            self.out.push(Place { field, whose, at, bytes: bytes.min(8), seal });
        }
    }

    fn tables(&mut self) {
        let (g, cp) = (self.image.geometry(), self.image.checkpoint());
        let pack = g.pack(self.image.is_second_pack());
        self.add("super", "", SuperBlock::AT as u64, Seal::Super, super_block());
        self.add("checkpoint", "", Geometry::byte_of(pack), Seal::Pack, checkpoint());
        // Journals of the NAT and of the SIT, compacted or not.
        let sums = Geometry::byte_of(pack + cp.head().cp_pack_start_sum.get());
        let journals = vec![("n_nats", 0, 2), ("nat0", 2, 4), ("nat0.addr", 11, 4)];
        self.add("summaries", "", sums, Seal::Nothing, journals);
        let journals = vec![("n_sits", 507, 2), ("sit0", 509, 4), ("sit0.blocks", 513, 2)];
        self.add("summaries", "", sums, Seal::Nothing, journals);
        for log in Log::ALL {
            self.segment(log.name(), cp.log(log).0);
        }
    }

    fn segment(&mut self, whose: &str, segment: u32) {
        let (g, cp) = (self.image.geometry(), self.image.checkpoint());
        let (block, k) = g.sit_place(segment);
        let at = Geometry::byte_of(g.current_sit_block(block, cp));
        let at = at + (k * size_of::<SitEntry>()) as u64;
        self.add("sit", whose, at, Seal::Nothing, fields!(SitEntry: vblocks valid_map mtime));
        let at = Geometry::byte_of(g.summary_block(segment));
        let summary = fields!(Summary: nid version ofs_in_node);
        self.add("ssa", whose, at, Seal::Nothing, summary);
        let at = at + 4096 - size_of::<SummaryFooter>() as u64;
        self.add("ssa footer", whose, at, Seal::Nothing, vec![("entry_type", 0, 1)]);
    }

    /// Segments of files' data that no log is in.
    fn data_segments(&mut self) {
        let cp = self.image.checkpoint();
        let open: Vec<u32> = Log::ALL.iter().map(|l| cp.log(*l).0).collect();
        let closed = (0..self.image.geometry().segments).filter(|s| !open.contains(s));
        let used = closed.filter(|s| self.image.sit(*s).is_ok_and(|e| e.valid_blocks() > 0));
        for segment in used.take(2).collect::<Vec<_>>() {
            self.segment("closed", segment);
        }
    }

    fn file(&mut self, record: &InodeRecord) {
        let i = record.inode();
        let who = match record.ino {
            nid::ROOT => "root".to_owned(),
            _ => String::from_utf8_lossy(i.own_name()).into_owned(),
        };
        let footer = fields!(Footer: nid ino flag cp_ver next_blkaddr);
        let end = 4096 - size_of::<Footer>() as u64;
        self.add("inode", &who, record.at, Seal::Inode, inode());
        self.add("inode footer", &who, record.at + end, Seal::Inode, footer.clone());
        if i.has_inline(inode::inline::EXTRA_ATTR) {
            let extra = fields!(InodeExtra: extra_isize inline_xattr_size projid inode_checksum
                crtime compr_blocks compress_algorithm log_cluster_size compress_flag);
            // What else there is would be made right.
            let seal = |name: &str| match name {
                "inode_checksum" => Seal::Nothing,
                _ => Seal::Inode,
            };
            for field in extra {
                self.add("inode extra", &who, record.at + 360, seal(field.0), vec![field]);
            }
        }
        if i.has_inline(inode::inline::XATTR) {
            let start = i.xattr_area(&record.shape).as_ptr() as usize;
            let start = record.at + (start - record.block.as_ptr() as usize) as u64;
            let header = vec![("magic", 0, 4), ("refcount", 4, 4)];
            let entry = vec![("index", 24, 1), ("name_len", 25, 1), ("value_size", 26, 2)];
            self.add("xattr", &who, start, Seal::Inode, [header, entry].concat());
        }
        self.nat(&who, record.ino);
        for n in (0..5).filter(|_| !i.has_inline(inode::inline::DATA | inode::inline::DENTRY)) {
            let Ok((at, _)) = self.image.node(i.nid(n)) else { continue };
            self.add("node", &who, at, Seal::Nothing, vec![("word0", 0, 4), ("word9", 36, 4)]);
            self.add("node footer", &who, at + end, Seal::Nothing, footer.clone());
            self.nat(&who, i.nid(n));
        }
        if i.is_dir() {
            self.names(&who, record);
        }
    }

    fn nat(&mut self, who: &str, nid: u32) {
        let (g, cp) = (self.image.geometry(), self.image.checkpoint());
        let (block, k) = g.nat_place(nid);
        let at = Geometry::byte_of(g.current_nat_block(block, cp));
        let at = at + (k * size_of::<NatEntry>()) as u64;
        self.add("nat", who, at, Seal::Nothing, fields!(NatEntry: version ino block_addr));
    }

    /// The first names of a directory.
    fn names(&mut self, who: &str, record: &InodeRecord) {
        let i = record.inode();
        let first = self.image.address(record, 0).unwrap_or(0);
        let (start, area, seal) = if i.has_inline(inode::inline::DENTRY) {
            let bytes = i.inline_area(&record.shape);
            let start = bytes.as_ptr() as usize - record.block.as_ptr() as usize;
            let area = DentryArea::inline(bytes.len() as u32);
            (record.at + start as u64, area, Seal::Inode)
        } else if addr::is_block(first) {
            (Geometry::byte_of(first), DentryArea::BLOCK, Seal::Nothing)
        } else {
            return;
        };
        let mut bytes = ZERO_BLOCK;
        self.image.view().read_at(start, &mut bytes).expect("within");
        let bitmap = vec![("first", 0, 1), ("second", 1, 1), ("third", 2, 1)];
        self.add("names bitmap", who, start, seal, bitmap);
        for d in area.names(&bytes, 0).expect("names").iter().take(5) {
            let whose = format!("{who}/{}", String::from_utf8_lossy(d.name));
            let at = start + area.entry_range(d.slot).start as u64;
            let entry = fields!(DentryEntry: hash_code ino name_len file_type);
            self.add("name", &whose, at, seal, entry);
            let at = start + area.name_range(d.slot, d.name.len()).start as u64;
            let text = vec![("byte0", 0, 1), ("byte1", 1, 1), ("last byte", d.name.len() - 1, 1)];
            self.add("name", &whose, at, seal, text);
        }
    }
}
