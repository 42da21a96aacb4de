//! Classes of an image's blocks, for those who explain what was written where.

mod owners;

use wp_base::FsResult;
use wp_medium::View;
use wp_vfs::BlockMap;

use crate::disk::summary::flag;
use crate::disk::{Geometry, Summary, SummaryHead, SuperBlock, ino};
use crate::image::Image;
use owners::Owners;

/// Classes of the blocks of one image, without recovery: as the summaries of its logs tell.
pub struct Blocks {
    g: Geometry,
    /// The block with the super block at the end of the device.
    last: u64,
    told: Owners,
    /// The same of segments that are free again.
    past: Owners,
}

impl Blocks {
    /// Reads them. Errors: those of opening the image.
    pub fn read(view: &dyn View) -> FsResult<Blocks> {
        let image = Image::open(view)?;
        let g = image.geometry().clone();
        let (mut told, mut past) = (Owners::default(), Owners::default());
        for segment in 0..g.segments {
            let used = u64::from(image.usage(segment)?.nblocks.get());
            let (start, end) = g.segment(segment);
            read_segment(&image, start, (start + used).min(end), &mut told)?;
            if used == 0 {
                read_segment(&image, start, end, &mut past)?;
            }
        }
        // Logs behind the checkpoint are in no usage yet.
        if let Some(orphans) = image.tip().orphans {
            let (_, end) = g.segment(g.segment_of(orphans.start));
            read_segment(&image, orphans.start, end, &mut told)?;
        }
        let last = SuperBlock::second_at(view.len_bytes()) >> g.block_bits;
        Ok(Blocks { g, last, told, past })
    }
}

/// The logs of one segment, as far as they look like some.
fn read_segment(image: &Image<'_>, mut start: u64, end: u64, told: &mut Owners) -> FsResult<()> {
    let g = image.geometry();
    while start < end {
        let mut bytes = image.read_block(start, "nilfs2 log")?;
        let head = SummaryHead::load(&bytes);
        let (blocks, used) = (u64::from(head.nblocks.get()), head.summary_blocks(g));
        let fits = blocks > 0 && start + blocks <= end && used <= blocks;
        if head.magic.get() != SummaryHead::MAGIC || !fits {
            return Ok(());
        }
        for block in start + 1..start + used {
            bytes.append(&mut image.read_block(block, "nilfs2 log")?);
        }
        let Ok(summary) = Summary::load(&bytes, g, g.byte_of(start)) else { return Ok(()) };
        (start..start + used).for_each(|b| told.insert(b, ("summary", None)));
        let mut block = start + used;
        for file in &summary.files {
            let class = class_of(image, file.ino);
            for info in &file.data {
                told.insert(block, (class, Some((file.ino, info.offset))));
                block += 1;
            }
            for _ in &file.nodes {
                let class = if file.ino == ino::DAT { class } else { "btree" };
                told.insert(block, (class, Some((file.ino, 0))));
                block += 1;
            }
        }
        if head.has(flag::SUPER_ROOT) {
            told.insert(start + blocks - 1, ("super_root", None));
        }
        start += blocks;
    }
    Ok(())
}

fn class_of(image: &Image<'_>, number: u64) -> &'static str {
    match number {
        ino::DAT => "dat",
        ino::CPFILE => "cpfile",
        ino::SUFILE => "sufile",
        ino::IFILE => "ifile",
        _ => match image.inode(number) {
            Ok(file) if file.inode.is_dir() => "directory",
            _ => "data",
        },
    }
}

impl BlockMap for Blocks {
    fn block_bytes(&self) -> u32 {
        1 << self.g.block_bits
    }
    fn class(&self, block: u64) -> &'static str {
        if block < self.g.first_data_block || block == self.last {
            return "superblock";
        }
        self.told.get(block).map_or("free", |(class, _)| class)
    }
    fn owner(&self, block: u64) -> Option<(u64, u64)> {
        self.told.get(block)?.1
    }
    fn written(&self, _: &dyn View, block: u64) -> &'static str {
        match (self.class(block), self.past.get(block)) {
            ("free", Some((class, _))) => class,
            (class, _) => class,
        }
    }
}
