//! Classes of an image's blocks, for those who explain what was written where.

use wp_base::FsResult;
use wp_medium::View;
use wp_vfs::BlockMap;

use crate::disk::{Footer, Log};
use crate::image::Image;

/// Classes of the blocks of one image, without recovery.
pub struct Blocks {
    /// First blocks of the areas, in order, with their names.
    areas: Vec<(u64, &'static str)>,
    /// For each block of the main area that is in use: class and owner.
    main: u64,
    used: Vec<(&'static str, Option<(u64, u64)>)>,
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
        let mut used = Vec::new();
        for segment in 0..g.segments {
            let entry = image.sit(segment)?;
            let log = Log::of(entry.kind());
            for offset in 0..512 {
                used.push(match log {
                    _ if !entry.is_valid(offset) => ("free", None),
                    Some(log) if log.is_node() => {
                        let block = image.read_block(g.block(segment, offset), "f2fs node")?;
                        let footer = Footer::of(&block);
                        let class = if footer.is_inode() { "inode" } else { "node" };
                        (class, Some((footer.ino.get().into(), footer.offset().into())))
                    }
                    Some(Log::HotData) => ("directory", None),
                    _ => ("data", None),
                });
            }
        }
        Ok(Blocks { areas, main: g.main.into(), used })
    }
}

impl BlockMap for Blocks {
    fn block_bytes(&self) -> u32 {
        4096
    }
    fn class(&self, block: u64) -> &'static str {
        match block.checked_sub(self.main) {
            Some(n) => usize::try_from(n)
                .ok()
                .and_then(|n| self.used.get(n))
                .map_or("free", |(class, _)| class),
            None => self.areas.iter().rev().find(|(s, _)| *s <= block).map_or("free", |a| a.1),
        }
    }
    fn owner(&self, block: u64) -> Option<(u64, u64)> {
        let n = usize::try_from(block.checked_sub(self.main)?).ok()?;
        self.used.get(n)?.1
    }
}
