//! The one log of a new file system.

use wp_vfs::FileType;

use crate::disk::bmap::Map;
use crate::disk::checkpoint::{SnapshotList, flag as cp_flag};
use crate::disk::inode::mode;
use crate::disk::palloc::{fresh_desc_block, set_bit, set_free_entries};
use crate::disk::summary::{data_sum, flag, set_data_sum};
use crate::disk::usage::flag as usage_flag;
use crate::disk::{
    BlockInfo, BlockMap, Checkpoint, CheckpointHeader, DatEntry, FileInfo, Geometry, Inode, Palloc,
    SegmentUsage, Summary, SummaryHead, SuperRoot, UsageHeader, dir, ino, lo32, wide,
};

use super::{MkfsOptions, block, inode, pointers, put};

/// Its checkpoint.
const CNO: u64 = 1;
/// Name of the file that keeps the cleaner from running twice.
const NILFS: &[u8] = b".nilfs";
/// Reserved inodes that are there all the same.
const RESERVED: [u64; 5] = [1, ino::ATIME, ino::XATTR, 9, ino::SKETCH];

/// All blocks of the log, the summary first.
pub(super) fn log(o: &MkfsOptions, g: &Geometry) -> Vec<Vec<u8>> {
    // Virtual block numbers from 1 on, in the order of the blocks.
    let (root, ifile) = (vec![root_dir(g)], ifile(o, g));
    let of_ifile = wide(ifile.len());
    let (v_ifile, v_cpfile, v_sufile) = (2, 2 + of_ifile, 3 + of_ifile);
    let numbers = v_sufile;
    // The log has no more files than these, so its summary is one block.
    let payload = g.first_data_block + 1;
    let dat_blocks = 3;
    let dat_first = payload + numbers;
    let blocks = 1 + numbers + dat_blocks + 1;

    let mapped = |mut inode: Inode, first, n: u64| {
        inode.blocks = n.into();
        inode.bmap = BlockMap::store(&Map::Direct(pointers(first, n)));
        inode
    };
    let metadata = || inode(o, mode::FILE, 1);
    let ifile_inode = mapped(metadata(), v_ifile, of_ifile);
    let root_block = SuperRoot {
        nongc_ctime: o.now,
        dat: mapped(metadata(), dat_first, dat_blocks),
        cpfile: mapped(metadata(), v_cpfile, 1),
        sufile: mapped(metadata(), v_sufile, 1),
    };
    let files = [
        (ino::ROOT, CNO, 1, root),
        (ino::IFILE, CNO, v_ifile, ifile),
        (ino::CPFILE, CNO, v_cpfile, vec![cpfile(o, g, blocks, of_ifile, ifile_inode)]),
        (ino::SUFILE, CNO, v_sufile, vec![sufile(o, g, blocks)]),
        (ino::DAT, CNO, 0, dat(g, numbers, payload)),
    ];
    let infos = files.iter().map(|(number, cno, first, blocks)| {
        let virtual_block = |n| if *first == 0 { 0 } else { first + n };
        let infos = (0..wide(blocks.len())).map(|n| BlockInfo {
            virtual_block: virtual_block(n),
            offset: n,
            level: 0,
        });
        FileInfo { ino: *number, cno: *cno, data: infos.collect(), nodes: Vec::new() }
    });
    let head = SummaryHead {
        flags: (flag::BEGIN | flag::END | flag::SUPER_ROOT).into(),
        create: o.now.into(),
        next: g.segment(1).0.into(),
        nblocks: lo32(blocks).into(),
        cno: CNO.into(),
        ..SummaryHead::zeroed()
    };
    let mut all = vec![Summary { head, files: infos.collect() }.store(g)];
    all.extend(files.into_iter().flat_map(|(_, _, _, blocks)| blocks));
    all.push(root_block.store(g));
    assert_eq!(wide(all.len()), blocks, "as planned");
    let sum = data_sum(g.crc_seed, all.iter().map(Vec::as_slice));
    if let Some(first) = all.first_mut() {
        set_data_sum(first, sum);
    }
    all
}

fn root_dir(g: &Geometry) -> Vec<u8> {
    block(g, |b| {
        dir::put(b, 0, 16, ino::ROOT, FileType::Dir.entry(), b".");
        dir::put(b, 16, 16, ino::ROOT, FileType::Dir.entry(), b"..");
        dir::put(b, 32, g.block_bytes() - 32, ino::USER, FileType::File.entry(), NILFS);
    })
}

/// Descriptors and bitmap of such a file with its first `used` entries given out.
fn allocated(g: &Geometry, p: &Palloc, used: u64) -> [Vec<u8>; 2] {
    let mut desc = fresh_desc_block(g.block_bytes());
    set_free_entries(&mut desc, 0, lo32(p.group_entries - used));
    [desc, block(g, |b| (0..used).for_each(|n| set_bit(b, n, true)))]
}

fn ifile(o: &MkfsOptions, g: &Geometry) -> Vec<Vec<u8>> {
    let used = ino::USER + 1;
    let mut blocks = allocated(g, &g.ifile, used).to_vec();
    blocks.resize(2 + crate::disk::index(used.div_ceil(g.ifile.per_block)), block(g, |_| ()));
    let mut root = inode(o, mode::DIR | 0o755, 2);
    root.size = wide(g.block_bytes()).into();
    root.blocks = 1.into();
    root.bmap = BlockMap::store(&Map::Direct(pointers(1, 1)));
    let nilfs = inode(o, mode::FILE | 0o644, 1);
    let reserved = RESERVED.map(|n| (n, inode(o, mode::FILE, 1)));
    for (number, inode) in reserved.into_iter().chain([(ino::ROOT, root), (ino::USER, nilfs)]) {
        let (n, at) = g.ifile.place(number);
        let place = blocks.get_mut(crate::disk::index(n)).expect("a block for each inode");
        put(place, at, &inode);
    }
    blocks
}

fn cpfile(o: &MkfsOptions, g: &Geometry, log: u64, of_ifile: u64, ifile_inode: Inode) -> Vec<u8> {
    let none = SnapshotList { next: 0.into(), prev: 0.into() };
    let head =
        CheckpointHeader { ncheckpoints: 1.into(), nsnapshots: 0.into(), snapshot_list: none };
    block(g, |b| {
        put(b, 0, &head);
        for (cno, at) in g.cpfile.in_block(0) {
            let mut cp = Checkpoint {
                flags: cp_flag::INVALID.into(),
                checkpoints_count: 0.into(),
                snapshot_list: none,
                cno: cno.into(),
                create: 0.into(),
                nblk_inc: 0.into(),
                inodes_count: 0.into(),
                blocks_count: 0.into(),
                ifile_inode: Inode::zeroed(),
            };
            if cno == CNO {
                cp.flags = 0.into();
                cp.create = o.now.into();
                cp.nblk_inc = log.into();
                // The root and `.nilfs`; the root's block, and the inode file.
                cp.inodes_count = 2.into();
                cp.blocks_count = (1 + of_ifile).into();
                cp.ifile_inode = ifile_inode;
            }
            put(b, at, &cp);
        }
    })
}

fn sufile(o: &MkfsOptions, g: &Geometry, log: u64) -> Vec<u8> {
    let flags = usage_flag::ACTIVE | usage_flag::DIRTY;
    let first =
        SegmentUsage { lastmod: o.now.into(), nblocks: lo32(log).into(), flags: flags.into() };
    let second = SegmentUsage { lastmod: 0.into(), nblocks: 0.into(), flags: flags.into() };
    let head = UsageHeader {
        ncleansegs: (g.segments - 2).into(),
        ndirtysegs: 2.into(),
        last_alloc: (g.segments - 1).into(),
    };
    block(g, |b| {
        put(b, 0, &head);
        put(b, g.sufile.place(0).1, &first);
        put(b, g.sufile.place(1).1, &second);
    })
}

/// Numbers from 1 to `numbers`, whose blocks start at `first`; 0 is never given out.
fn dat(g: &Geometry, numbers: u64, first: u64) -> Vec<Vec<u8>> {
    let entries = block(g, |b| {
        for (number, blocknr) in (1..=numbers).zip(first..) {
            let entry = DatEntry {
                blocknr: blocknr.into(),
                start: CNO.into(),
                end: DatEntry::LIVE.into(),
                rsv: 0.into(),
            };
            put(b, g.dat.place(number).1, &entry);
        }
    });
    let [desc, map] = allocated(g, &g.dat, numbers + 1);
    vec![desc, map, entries]
}
