//! How an SSD's FTL manages its flash: the policies that differ between drives, as numbers of a
//! preset.
//!
//! Every default is what the FTL does without the setting: one host stream, greedy collection, no
//! levelling, discards of whole slots that read zeroes, no bad blocks, and a drive fresh from the
//! factory.

use crate::config::{ConfigError, Param, Settings};
use crate::nand::SLOT_BYTES;
use crate::preset::p;

/// Which superblock is collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GcPolicy {
    /// The one with the least valid slots.
    Greedy,
    /// The one with the greatest age × (1 − u) / 2u, where u is the valid part of it and its age
    /// the host writes since its youngest data (Kawaguchi, Nishioka, Motoda: "A flash-memory based
    /// file system", USENIX 1995; after Rosenblum and Ousterhout's LFS).
    CostBenefit,
    /// The one with the least valid slots of this number of superblocks drawn at random (Van Houdt:
    /// "A mean field model for a class of garbage collection algorithms in flash-based solid state
    /// drives", SIGMETRICS 2013). 1 is the random policy.
    Choices(u32),
}

/// State that a drive starts in, if it does not start fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgedStart {
    /// Host slots that hold data: those from 0 on.
    pub mapped_slots: u32,
    /// Times that each superblock has been erased.
    pub erases: u32,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FtlConfig {
    /// Which superblock is collected.
    pub gc: GcPolicy,
    /// Are host writes to slots that are overwritten often kept apart from the others? By the rule
    /// of dynamic data clustering (Chiang, Lee, Chang: "Using data clustering to improve cleaning
    /// performance for flash memory", 1999): what is overwritten young moves to the hotter region,
    /// what is collected to the coldest.
    pub hot_cold: bool,
    /// Most erases by which superblocks may differ before the least worn is moved; 0: never.
    pub wear_gap: u32,
    /// Slots of a discard's unit; of a discard, whole units are forgotten.
    pub trim_slots: u32,
    /// Does a discarded slot read as what it held until the flash below is erased?
    pub old_after_trim: bool,
    /// Flash blocks of a thousand that are bad from the factory.
    pub bad_permille: u32,
    /// Erases that a flash block endures: for each block between this number and a quarter more; 0:
    /// any number.
    pub endurance: u32,
    /// What it starts as, if not fresh.
    pub aged: Option<AgedStart>,
    /// All chance in the FTL is drawn from this.
    pub seed: u64,
}

/// Its numbers in a preset.
pub(crate) const FTL: [Param; 11] = [
    p("gc_policy", 0, "choice", "assumed: 0 greedy, 1 cost-benefit, 2 d-choices"),
    p("gc_choices", 10, "count", "superblocks sampled by d-choices; 10 as in Van Houdt 2013"),
    p("hot_cold", 0, "switch", "assumed: one host stream; moved data always has its own"),
    p("wear_gap", 0, "count", "assumed: no static wear levelling"),
    p("trim_granularity_bytes", SLOT_BYTES, "bytes", "assumed: the mapping unit"),
    p(
        "read_after_trim",
        0,
        "choice",
        "assumed: 0 zeroes (SATA RZAT, NVMe DLFEAT 1), 1 old data until the erase",
    ),
    p("bad_blocks", 0, "permille", "assumed: none; data sheets allow 20 of 1000 from the factory"),
    p("endurance_cycles", 0, "count", "assumed: unlimited; MLC endures about 3000 erases"),
    p("aged_fill", 0, "permille", "0: new drive; else the share that is filled, in steady state"),
    p("aged_erases", 0, "count", "initial erase count of an aged drive's superblocks"),
    p("ftl_seed", 1, "count", "assumed: seed of all random numbers of the FTL"),
];

impl FtlConfig {
    /// From a preset's values, for a drive that shows `user_slots`. Errors: a number out of range.
    pub fn from_settings(s: &Settings, user_slots: u64) -> Result<FtlConfig, ConfigError> {
        let gc = match s.get("gc_policy") {
            0 => GcPolicy::Greedy,
            1 => GcPolicy::CostBenefit,
            2 => GcPolicy::Choices(s.count("gc_choices", 1 << 20)?),
            value => {
                let reason = "must be 0 (greedy), 1 (cost-benefit) or 2 (d-choices)";
                return Err(ConfigError::new("gc_policy", value, reason));
            }
        };
        let trim_bytes = s.get("trim_granularity_bytes");
        if trim_bytes == 0 || !trim_bytes.is_multiple_of(SLOT_BYTES) || trim_bytes > 1 << 30 {
            let reason = "must be a multiple of 4096 (the mapping unit) up to 1 GiB";
            return Err(ConfigError::new("trim_granularity_bytes", trim_bytes, reason));
        }
        let fill = at_most(s, "aged_fill", 1000)?;
        let erases = at_most(s, "aged_erases", 1 << 30)?;
        let endurance = at_most(s, "endurance_cycles", 1 << 30)?;
        if endurance > 0 && erases >= endurance {
            let reason = format!("must be below endurance_cycles ({endurance})");
            return Err(ConfigError::new("aged_erases", u64::from(erases), reason));
        }
        // A part of what the flash has in slots, and those were counted in 32 bits.
        let mapped_slots = (user_slots * u64::from(fill) / 1000) as u32;
        let aged = (mapped_slots > 0).then_some(AgedStart { mapped_slots, erases });
        if aged.is_none() && erases > 0 {
            let reason = "must be 0 on a new drive (aged_fill = 0)";
            return Err(ConfigError::new("aged_erases", u64::from(erases), reason));
        }
        Ok(FtlConfig {
            gc,
            hot_cold: s.switch("hot_cold")?,
            wear_gap: at_most(s, "wear_gap", 1 << 30)?,
            trim_slots: (trim_bytes / SLOT_BYTES) as u32,
            old_after_trim: s.switch("read_after_trim")?,
            bad_permille: at_most(s, "bad_blocks", 500)?,
            endurance,
            aged,
            seed: s.get("ftl_seed"),
        })
    }
}

impl FtlConfig {
    /// Streams of host data that are kept apart.
    pub(crate) fn host_streams(&self) -> u32 {
        1 + u32::from(self.hot_cold)
    }

    /// Superblocks that are filled at once.
    pub(crate) fn open_superblocks(&self) -> u32 {
        self.host_streams() + 1 + u32::from(self.wear_gap > 0)
    }
}

/// Value of `key` as a number from 0 to `most`. Errors: it is not.
fn at_most(s: &Settings, key: &str, most: u32) -> Result<u32, ConfigError> {
    match u32::try_from(s.get(key)) {
        Ok(value) if value <= most => Ok(value),
        _ => Err(ConfigError::new(key, s.get(key), format!("must be at most {most}"))),
    }
}
