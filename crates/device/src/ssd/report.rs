//! What the FTL has done to its flash, for those who ask. Nothing here changes what it does.

use crate::ssd::Ssd;
use crate::ssd::ftl::SuperState;

/// A superblock as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuperblockReport {
    /// What it is used for.
    pub state: SuperState,
    /// Slots of 4 KiB that hold the newest data of their host slot.
    pub valid: u32,
    /// Times that it has been erased.
    pub erases: u32,
}

/// How full the flash is, block by block. A (flash) block is what one plane of one die erases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Superblocks that are erased.
    pub superblocks_free: u32,
    /// Superblocks that hold data, none of it valid: they can be used again for an erase each, with
    /// nothing copied.
    pub superblocks_reusable: u32,
    /// Flash blocks of which the same is true, each by itself. A drive that erased single blocks
    /// would gain these.
    pub blocks_reusable: u64,
    /// `blocks_by_valid[n]`: flash blocks that hold data and have `n` valid slots.
    pub blocks_by_valid: Vec<u64>,
}

impl Ssd {
    /// Every superblock, by number.
    pub fn superblocks(&self) -> Vec<SuperblockReport> {
        let all = (0..self.config.geometry.superblocks).map(|n| self.ftl.superblock(n));
        all.map(|s| SuperblockReport { state: s.state, valid: s.valid, erases: s.erases }).collect()
    }

    /// How full the flash is. Walks the whole device.
    pub fn usage(&self) -> Usage {
        let g = self.config.geometry;
        let planes = g.planes as usize;
        let block_slots = g.superblock_slots / (g.dies * g.planes);
        let mut usage =
            Usage { blocks_by_valid: vec![0; block_slots as usize + 1], ..Usage::default() };
        let mut valid = vec![0u32; g.dies as usize * planes];
        for number in 0..g.superblocks {
            let block = self.ftl.superblock(number);
            match block.state {
                SuperState::Free => usage.superblocks_free += 1,
                SuperState::Bad => {}
                SuperState::Open | SuperState::Closed | SuperState::Victim => {
                    usage.superblocks_reusable += u32::from(block.valid == 0);
                    valid.fill(0);
                    let in_blocks = &mut valid;
                    self.ftl.each_valid(number, |ppa| {
                        let die = g.die_of(ppa / g.unit_slots);
                        let plane = ppa % (g.page_slots * g.planes) / g.page_slots;
                        in_blocks[die as usize * planes + plane as usize] += 1;
                    });
                    valid.iter().for_each(|n| usage.blocks_by_valid[*n as usize] += 1);
                }
            }
        }
        usage.blocks_reusable = usage.blocks_by_valid[0];
        usage
    }

    /// Counters of the flash and its wear, after all others.
    pub(super) fn flash_counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counts;
        let programmed = c.slots_written + c.gc_slots_moved + c.slots_padded;
        let in_use = |number: &u32| self.ftl.superblock(*number).state != SuperState::Bad;
        let in_use = (0..self.config.geometry.superblocks).filter(in_use);
        let erases: Vec<u64> = in_use.map(|n| u64::from(self.ftl.superblock(n).erases)).collect();
        let sum: u64 = erases.iter().sum();
        let (bad, spare) = self.ftl.bad_and_spare();
        let per_mille = |n: u64, of: u64| n * 1000 / of.max(1);
        vec![
            ("flash_slots_programmed", programmed),
            ("write_amplification_permille", per_mille(programmed, c.slots_written)),
            ("gc_victims_for_wear", c.gc_victims_for_wear),
            ("superblock_erases_min", erases.iter().min().copied().unwrap_or(0)),
            ("superblock_erases_max", erases.iter().max().copied().unwrap_or(0)),
            ("superblock_erases_mean_permille", per_mille(sum, erases.len() as u64)),
            ("superblocks_in_use", erases.len() as u64),
            ("flash_blocks_bad", u64::from(bad)),
            ("flash_blocks_spare_least", u64::from(spare)),
            ("read_only", u64::from(self.read_only)),
        ]
    }
}
