//! Making a file system, byte for byte as mke2fs 1.47.0 does.
//!
//! Picture:    [`MkfsOptions`] -> sizes (`plan`) -> places of tables (`tables`) -> files (`files`)
//!             -> bitmaps, descriptors, super blocks (`seal`) -> [`Layout`].
//! Invariants: 1. pure: no device, no clock, no randomness; same options, same bytes.
//!             2. every block that is not all zero is in the layout, once; the medium must read as
//!                zeroes elsewhere.
//! Left out:   meta_bg, bigalloc with blocks of 1 KiB or fast_commit, inline_data, quota,
//!             encryption, external journals, journals without extents, sparse_super2, RAID
//!             geometry: one clear [`MkfsError`] each.
//! Source:     mke2fs(8), mke2fs.conf(5), Linux Documentation/filesystems/ext4; rules of placement
//!             and rounding as e2fsprogs 1.47.0 behaves and its sources describe (facts, no code);
//!             `tests/mkfs_vs_mke2fs.rs` compares with the real one.

mod files;
mod meter;
mod options;
mod plan;
mod seal;
mod space;
mod tables;

use std::collections::BTreeMap;

use wp_base::Sector;
use wp_medium::Medium;

use crate::disk::{Checksums, Geometry, SuperBlock};

pub use options::{Features, InodeTables, JournalSize, MkfsError, MkfsOptions};

/// A finished file system.
#[derive(Clone)]
pub struct Layout {
    /// Its geometry.
    pub geometry: Geometry,
    /// Its super block, as it stands at byte 1024.
    pub super_block: SuperBlock,
    /// Pieces of the journal: (first log block, device block, blocks). Empty without a journal.
    pub journal: Vec<(u32, u64, u32)>,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Layout {
    /// What must be written, in order: (byte address, bytes). Everything else must read as zeroes.
    pub fn writes(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let bytes = u64::from(self.geometry.block_size.bytes());
        self.blocks.iter().map(move |(block, data)| (block * bytes, data.as_slice()))
    }

    /// Makes it on `medium` from sector `start` on: discards the whole range first, as mke2fs does.
    pub fn write_to(&self, medium: &mut Medium, start: Sector) {
        medium.discard(start, self.geometry.bytes().div_ceil(512));
        for (at, data) in self.writes() {
            medium.write_bytes(start.bytes() + at, data);
        }
    }
}

/// Makes a file system.
///
/// Errors: one for each thing that cannot be; see [`MkfsError`].
pub fn mkfs(o: &MkfsOptions) -> Result<Layout, MkfsError> {
    let plan = plan::plan(o)?;
    let g = Geometry::from_super(&plan.sb).expect("the plan describes a possible file system");
    let mut space = space::Space::new(g.first_data_block.into(), g.blocks_count);
    let mut touched = tables::Touched::new(g.groups);
    let places = tables::place(&g, &mut space, &mut touched)?;
    // Tables are placed block by block, and what comes behind them cluster by cluster.
    space.round_to_clusters(g.cluster_bits);
    let metadata = space.taken_in(0, g.blocks_count) >> g.cluster_bits;
    let mut maker = files::Maker {
        g,
        sb: plan.sb,
        sums: Checksums::of(&plan.sb),
        now: o.now,
        space,
        touched,
        blocks: BTreeMap::new(),
        inodes: BTreeMap::new(),
        made: files::Made::default(),
        plan: &plan,
    };
    maker.files()?;
    let journal = g.clusters_of(plan.journal_blocks.into());
    let overhead = metadata + journal + u64::from(g.first_data_block);
    maker.seal(&places, o.inode_tables, overhead);
    maker.blocks.retain(|_, data| data.iter().any(|b| *b != 0));
    Ok(Layout {
        geometry: g,
        super_block: maker.sb,
        journal: maker.made.journal,
        blocks: maker.blocks,
    })
}
