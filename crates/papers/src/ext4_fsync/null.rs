//! Null predictors: what somebody would say of figures 10 and 11 who has no model of the stack.
//!
//! Picture:    inputs (inode size, rated times of one command) -> closed forms -> beside ours.
//! - *counts*: each block that an fsync writes costs one write at depth 1, each flush one flush;
//!   how many there are follows from the inputs (16 inodes a table block, inodes from 12).
//! - *log-linear*: latency grows by the same for each tenfold N; its one constant is the paper's
//!   own largest growth, so it knows an answer that ours does not.
//! - *no era*: 3.4 does what later kernels do, one data block whatever N.
//!
//! A claim that a closed form meets as well is `follows-from-inputs`: it says nothing for the
//! model. How far each is from the paper is the mean of |ln(predicted / paper)| over the paper's
//! ratios of latencies.

use serde::{Deserialize, Serialize};
use wp_device::{DeviceEntry, Settings};

use super::Point;

/// First inode of a file, and inodes in a block of the table (4096 / 256).
const FIRST_INODE: u32 = 12;
const INODES_PER_BLOCK: u32 = 16;

/// Blocks of the inode table that the inodes of `n` files lie in.
fn table_blocks(n: u32) -> u32 {
    let at = |ino: u32| (ino - 1) / INODES_PER_BLOCK;
    at(FIRST_INODE + n - 1) - at(FIRST_INODE) + 1
}

/// Metadata blocks that an fsync journals, by inputs alone: an allocation also logs the bitmap and
/// the group descriptors.
pub(super) fn metadata_blocks(case: &str, n: u32) -> u32 {
    table_blocks(n) + if case == "alloc" { 2 } else { 0 }
}

/// Times of single commands, from a preset.
pub struct Costs {
    write: f64,
    flush: f64,
}

impl Costs {
    /// Of an SSD preset: a 4 KiB write at depth 1, and a flush that programs one page.
    pub fn of(device: &DeviceEntry) -> Costs {
        let s = Settings::of(device.params);
        let ns = |key: &str| s.get(key) as f64;
        let transfer = 4096.0 * 1000.0 / ns("link_mb_s");
        Costs {
            write: ns("command_ns") + ns("write_overhead_ns") + transfer,
            flush: ns("command_ns") + ns("flush_overhead_ns") + ns("program_ns"),
        }
    }

    /// An fsync: data, descriptor and metadata, commit record; two flushes.
    fn fsync(&self, case: &str, n: u32, data: u32) -> f64 {
        f64::from(data + 1 + metadata_blocks(case, n) + 1) * self.write + 2.0 * self.flush
    }

    /// From the first dispatch to that of the commit record: one flush, and no record.
    fn span(&self, case: &str, n: u32, data: u32) -> f64 {
        f64::from(data + 1 + metadata_blocks(case, n)) * self.write + self.flush
    }

    /// 3.4 extending: N over 1.
    pub fn growth(&self, n: u32) -> f64 {
        self.fsync("extend", n, n) / self.fsync("extend", 1, 1)
    }

    /// Extending 10 files: 3.4 over 3.8, first dispatch to commit dispatch.
    pub(super) fn ratio(&self) -> f64 {
        self.span("extend", 10, 10) / self.span("extend", 10, 1)
    }

    /// Allocating: increase from 100 to 1000 over increase from 1 to 100.
    pub(super) fn step(&self) -> f64 {
        let at = |n| self.fsync("alloc", n, 1);
        (at(1000) - at(100)) / (at(100) - at(1))
    }
}

/// Does the count of metadata blocks grow at every step of N (1 = yes)?
pub(super) fn grows(files: &[u32]) -> f64 {
    let yes =
        files.windows(2).all(|w| metadata_blocks("alloc", w[0]) < metadata_blocks("alloc", w[1]));
    f64::from(u8::from(yes))
}

/// A ratio of latencies: the paper's, ours, and what the null predictors say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The claim that it is from.
    pub id: String,
    /// The paper's ratio.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// From counts of blocks and flushes.
    pub counts: f64,
    /// From log N and the paper's largest growth.
    pub log_linear: f64,
    /// Without a difference between eras.
    pub no_era: f64,
}

/// All of them, with the mean distance of each from the paper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nulls {
    /// The ratios.
    pub ratios: Vec<Beside>,
    /// Mean |ln(predicted / paper)|: ours, counts, log-linear, no era. Empty without ratios.
    pub distance: Vec<f64>,
}

impl Nulls {
    /// `paper` and `ours` of each: growth at N=10, largest growth, 3.4 over 3.8, all as ratios.
    pub(super) fn new(costs: &Costs, points: &[Point], paper: [f64; 3], ours: [f64; 3]) -> Nulls {
        let later = |n: u32| {
            let at = |files: u32| {
                let found = points
                    .iter()
                    .find(|p| p.era == "3.8" && p.case == "extend" && p.files == files);
                found.map_or(f64::NAN, |p| p.fsync_ns as f64)
            };
            at(n) / at(1)
        };
        let ids = [
            "fig10.3.4.extend.min_growth",
            "fig10.3.4.extend.max_growth",
            "fig10.n10.3.4_over_3.8",
        ];
        let counts = [costs.growth(10), costs.growth(1000), costs.ratio()];
        let log_linear = [1.0 + (paper[1] - 1.0) / 3.0, paper[1], 1.0];
        let no_era = [later(10), later(1000), 1.0];
        let ratios: Vec<Beside> = (0..ids.len())
            .map(|i| Beside {
                id: ids[i].to_owned(),
                paper: paper[i],
                ours: ours[i],
                counts: counts[i],
                log_linear: log_linear[i],
                no_era: no_era[i],
            })
            .collect();
        let distance = [ours, counts, log_linear, no_era].map(|predicted| {
            let each = predicted.iter().zip(&paper).map(|(a, b)| (a / b).ln().abs());
            each.sum::<f64>() / paper.len() as f64
        });
        Nulls { ratios, distance: distance.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_blocks_follow_from_inode_numbers() {
        let of = |case: &str| [1, 10, 100, 1000].map(|n| metadata_blocks(case, n));
        assert_eq!(of("alloc"), [3, 4, 9, 66]);
        assert_eq!(of("extend"), [1, 2, 7, 64]);
        assert_eq!(grows(&[1, 10, 100, 1000]), 1.0);
        assert_eq!(grows(&[1, 2]), 0.0);
    }

    #[test]
    fn costs_are_those_of_single_commands() {
        let costs = Costs::of(wp_device::find("ssd-128").expect("in the list"));
        assert!((costs.write - 25_447.3).abs() < 0.1, "{}", costs.write);
        assert!((costs.flush - 970_000.0).abs() < 0.1, "{}", costs.flush);
        assert!((costs.growth(10) - 1.1246).abs() < 1e-3, "{}", costs.growth(10));
        assert!((costs.step() - 9.5).abs() < 1e-9, "{}", costs.step());
    }
}
