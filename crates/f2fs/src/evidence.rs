//! Classes of an image's blocks, for those who explain what was written where.

use std::collections::BTreeMap;

use wp_base::FsResult;
use wp_medium::View;
use wp_vfs::BlockMap;

use crate::disk::{BLOCK_BYTES, Block, Footer, Log};
use crate::image::Image;

/// Blocks of a segment.
const SEGMENT: u64 = 512;

/// Class, and owner: inode and place in it.
type ErrSeqCursor = (&'static str, Option<(u64, u64)>);

/// Classes of the blocks of one image, without recovery.
pub struct Blocks {
    /// First blocks of the areas, in order, with their names.
    areas: Vec<(u64, &'static str)>,
    /// First block of the main area.
    main: u64,
    /// Blocks of the main area that are in use.
    used: BTreeMap<u64, ErrSeqCursor>,
    /// For each of its segments the log that it was given to last.
    logs: Vec<Option<Log>>,
}

/// What a block of a log holds, by the log and the block itself.
fn class_in(log: Log, block: &Block) -> &'static str {
    match log {
        log if log.is_node() && Footer::of(block).is_inode() => "inode",
        log if log.is_node() => "node",
        Log::HotData => "directory",
        _ => "data",
    }
}

impl Blocks {
    /// Reads them. Errors: those of opening the image; `Corrupt` for wrong SIT entries.
    pub fn read(view: &dyn View) -> FsResult<Blocks> {
        let image = Image::open(view)?;
        let g = image.geometry();
        let areas = [
            (0, "superblock"),
            (2, "free"),
            (g.cp, "checkpoint"),
            (g.sit, "sit"),
            (g.nat, "nat"),
            (g.ssa, "ssa"),
        ];
        let areas = areas.map(|(start, name)| (u64::from(start), name)).to_vec();
        let (mut used, mut logs) = (BTreeMap::new(), Vec::new());
        for segment in 0..g.segments {
            let entry = image.sit(segment)?;
            let log = Log::of(entry.kind());
            logs.push(log);
            for offset in (0..512).filter(|offset| entry.is_valid(*offset)) {
                let place = g.block(segment, offset);
                let told = match log {
                    Some(log) if log.is_node() => {
                        let block = image.read_block(place, "f2fs node")?;
                        let footer = Footer::of(&block);
                        let owner = (footer.ino.get().into(), footer.offset().into());
                        (class_in(log, &block), Some(owner))
                    }
                    Some(Log::HotData) => ("directory", None),
                    _ => ("data", None),
                };
                used.insert(u64::from(place), told);
            }
        }
        Ok(Blocks { areas, main: g.main.into(), used, logs })
    }
}

impl BlockMap for Blocks {
    fn block_bytes(&self) -> u32 {
        4096
    }
    fn class(&self, block: u64) -> &'static str {
        if block >= self.main {
            return self.used.get(&block).map_or("free", |(class, _)| class);
        }
        self.areas.iter().rev().find(|(s, _)| *s <= block).map_or("free", |a| a.1)
    }
    fn owner(&self, block: u64) -> Option<(u64, u64)> {
        self.used.get(&block)?.1
    }
    fn written(&self, view: &dyn View, block: u64) -> &'static str {
        let class = self.class(block);
        let segment = block.checked_sub(self.main).map(|n| n / SEGMENT);
        let log = segment.and_then(|n| *self.logs.get(usize::try_from(n).ok()?)?);
        let (Some(log), "free") = (log, class) else { return class };
        let mut bytes: Block = [0; BLOCK_BYTES];
        match view.read_at(block * 4096, &mut bytes) {
            Ok(()) => class_in(log, &bytes),
            Err(_) => class,
        }
    }
}
