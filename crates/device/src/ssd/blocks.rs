//! Flash blocks that are bad from the factory or wear out, and the spare ones that stand in.
//!
//! Picture:    A superblock is a block of every plane of every die, but not of the same number:
//!             where the block of its turn is bad the next good one of the plane takes its place.
//!             So there are as many superblocks as the plane with the fewest good blocks has; what
//!             the other planes have above that is spare. A block that fails when it is erased is
//!             replaced by a spare one of its plane. Where the plane has none the superblock is
//!             given up, and its other blocks are spare.
//! Laws:       a block bears from `endurance` erases to a quarter more, evenly spread; one that
//!             fails does so at the end of its erase, which takes its time, and holds no data.
//! Left out:   programs that fail, reads that need retries, data that fade; blocks of a plane that
//!             stands in for another's.

use wp_base::rng::mix64;

use crate::nand::Geometry;

/// See the module.
#[derive(Clone)]
pub(crate) struct Blocks {
    /// Planes of all dies.
    planes: u32,
    /// Erases that every block bears; 0: any number.
    endurance: u32,
    seed: u64,
    /// Lives drawn so far.
    drawn: u64,
    /// Good blocks in no superblock, by plane: erases that each still bears.
    spare: Vec<Vec<u32>>,
    /// By superblock and plane: after how many erases of the superblock its block there fails.
    ends: Vec<u32>,
    bad: u32,
}

/// What an erase has brought about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Erased {
    /// All its blocks are good, or have been replaced.
    Good,
    /// There was no spare block for one that failed.
    GivenUp,
}

/// Bad blocks of each plane from the factory.
fn factory_bad(g: &Geometry, permille: u32, seed: u64) -> impl Iterator<Item = u32> {
    let (planes, blocks) = (g.dies * g.planes, u64::from(g.superblocks));
    (0..u64::from(planes)).map(move |plane| {
        let draw = |b: u64| mix64(mix64(seed ^ 0xBAD) ^ (plane * blocks + b));
        (0..blocks).filter(|b| draw(*b) % 1000 < u64::from(permille)).count() as u32
    })
}

/// Superblocks of a drive on which `permille` of a thousand flash blocks are bad.
pub(crate) fn superblocks_of(g: &Geometry, permille: u32, seed: u64) -> u32 {
    match permille {
        0 => g.superblocks,
        _ => g.superblocks - factory_bad(g, permille, seed).max().unwrap_or(0),
    }
}

impl Blocks {
    /// Fresh from the factory, but for `erases` of each superblock.
    pub(crate) fn new(
        g: &Geometry,
        (permille, endurance): (u32, u32),
        seed: u64,
        erases: u32,
    ) -> Blocks {
        let bad: Vec<u32> = factory_bad(g, permille, seed).collect();
        let superblocks = g.superblocks - bad.iter().max().unwrap_or(&0);
        let planes = g.dies * g.planes;
        let mut blocks = Blocks {
            planes,
            endurance,
            seed,
            drawn: 0,
            spare: Vec::new(),
            ends: Vec::new(),
            bad: bad.iter().sum(),
        };
        blocks.spare = bad
            .iter()
            .map(|bad| (superblocks + bad..g.superblocks).map(|_| blocks.life()).collect())
            .collect();
        if endurance > 0 {
            let ends = (0..superblocks * planes).map(|_| blocks.life().max(erases + 1));
            blocks.ends = ends.collect();
        }
        blocks
    }

    /// Erases that the next block to be used bears.
    fn life(&mut self) -> u32 {
        if self.endurance == 0 {
            return u32::MAX;
        }
        self.drawn += 1;
        let more =
            mix64(mix64(self.seed ^ 0x11FE) ^ self.drawn) % (u64::from(self.endurance) / 4 + 1);
        self.endurance + more as u32
    }

    /// Superblock `number` has been erased for the `erases`-th time.
    pub(crate) fn erased(&mut self, number: u32, erases: u32) -> Erased {
        if self.endurance == 0 {
            return Erased::Good;
        }
        let first = (number * self.planes) as usize;
        let ends = &mut self.ends[first..first + self.planes as usize];
        let mut lacking = false;
        for (end, spare) in ends.iter_mut().zip(&mut self.spare) {
            if *end > erases {
                continue;
            }
            self.bad += 1;
            match spare.pop() {
                Some(life) => *end = erases.saturating_add(life),
                None => lacking = true,
            }
        }
        if !lacking {
            return Erased::Good;
        }
        for (end, spare) in ends.iter().zip(&mut self.spare) {
            if *end > erases {
                spare.push(end - erases);
            }
        }
        Erased::GivenUp
    }

    /// Blocks that are bad.
    pub(crate) fn bad(&self) -> u32 {
        self.bad
    }

    /// Blocks that stand by, in the plane that has the fewest.
    pub(crate) fn spare_least(&self) -> u32 {
        self.spare.iter().map(|s| s.len() as u32).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry {
        channels: 2,
        dies_per_channel: 2,
        planes: 2,
        page_slots: 1,
        pages_per_program: 1,
        rows: 4,
        superblocks: 200,
        dies: 4,
        unit_slots: 2,
        superblock_units: 16,
        superblock_slots: 32,
    };

    #[test]
    fn a_drive_has_as_many_superblocks_as_its_worst_plane_has_good_blocks() {
        let bad: Vec<u32> = factory_bad(&G, 20, 7).collect();
        assert_eq!(bad.len(), 8);
        let all: u32 = bad.iter().sum();
        // Of 1600 blocks 32 are expected; 4 standard deviations are 22.
        assert!((10..=54).contains(&all), "{all}");
        let most = bad.iter().max().copied().expect("eight planes");
        assert_eq!(superblocks_of(&G, 20, 7), 200 - most);
        let blocks = Blocks::new(&G, (20, 0), 7, 0);
        assert_eq!((blocks.bad(), blocks.spare_least()), (all, 0));
        let spare: usize = blocks.spare.iter().map(Vec::len).sum();
        assert_eq!(spare as u32, 8 * most - all, "every good block is in a superblock or spare");
        assert_eq!(superblocks_of(&G, 0, 7), 200);
    }

    #[test]
    fn a_worn_block_is_replaced_while_its_plane_has_spare_ones() {
        let mut blocks = Blocks::new(&G, (50, 100), 3, 0);
        let superblocks = superblocks_of(&G, 50, 3);
        let (mut given_up, mut erases) = (0, vec![0u32; superblocks as usize]);
        let mut alive: Vec<u32> = (0..superblocks).collect();
        let before = blocks.bad();
        // No block fails before it has borne its endurance.
        for _ in 0..99 {
            for number in &alive {
                erases[*number as usize] += 1;
                assert_eq!(blocks.erased(*number, erases[*number as usize]), Erased::Good);
            }
        }
        assert_eq!(blocks.bad(), before);
        for _ in 0..400 {
            alive.retain(|number| {
                erases[*number as usize] += 1;
                let good = blocks.erased(*number, erases[*number as usize]) == Erased::Good;
                given_up += u32::from(!good);
                good
            });
        }
        assert!(alive.is_empty(), "nothing lasts for ever");
        assert_eq!(given_up, superblocks);
        // A superblock is given up for a block that failed in a plane without spare ones.
        assert!(blocks.bad() > before + superblocks);
        let left: usize = blocks.spare.iter().map(Vec::len).sum();
        assert_eq!(blocks.bad() as usize + left, 1600, "every block is bad or left");
        assert_eq!(blocks.spare_least(), 0);
    }
}
