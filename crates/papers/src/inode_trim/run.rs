//! One run of the paper's program, and the flash pages that it leaves valid.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wp_base::event::{BlockAction, Class, Event, Op, Record};
use wp_base::{Sector, Time};
use wp_machine::profile::Profile;
pub use wp_machine::workload::create_delete::Deleted;
use wp_machine::workload::create_delete::{self, Moments};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_vfs::Options;

/// Files of the paper's program.
pub const FILES: u32 = 2000;
/// Bytes of each, and of a flash page as it counts them.
const PAGE: u64 = 4096;

/// The flash of the SSD that comes with DiskSim, whose parameters the paper does not give: eight
/// elements, pages of 4 KiB, 64 of them a block. Assumed. (Times are ssd-128's; no claim is about
/// one.)
pub const DISKSIM: [(&str, u64); 7] = [
    ("channels", 8),
    ("dies_per_channel", 1),
    ("planes", 1),
    ("page_bytes", 4096),
    ("pages_per_block", 64),
    ("blocks_per_plane", 40_960),
    ("capacity_bytes", 72 << 30),
];

/// What ext4 discards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trim {
    /// Nothing.
    None,
    /// Blocks of data.
    Discard,
    /// Blocks of inode tables too, at once.
    Naive,
    /// Blocks of inode tables too, when that is durable.
    Safe,
}

impl Trim {
    /// All.
    pub const ALL: [Trim; 4] = [Trim::None, Trim::Discard, Trim::Naive, Trim::Safe];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Trim::None => "no discard",
            Trim::Discard => "discard",
            Trim::Naive => "inode trim, naive",
            Trim::Safe => "inode trim, safe",
        }
    }

    /// Options of the mount.
    pub fn options(self) -> &'static str {
        match self {
            Trim::None => "",
            Trim::Discard => ",discard",
            Trim::Naive => ",discard,inode_trim=naive",
            Trim::Safe => ",discard,inode_trim=safe",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Kernel version whose rules apply.
    pub era: String,
    /// Options of mkfs and mount besides, beginning with a comma.
    pub more: String,
    /// What is discarded.
    pub trim: Trim,
    /// What is deleted.
    pub deleted: Deleted,
    /// Device preset.
    pub device: String,
    /// Replaced parameters of it.
    pub device_params: Vec<(String, u64)>,
    /// First sector of the partition.
    pub start: Sector,
    /// Bytes of it.
    pub bytes: u64,
    /// What the files' names begin with; a number follows.
    pub name: String,
    /// Are they in a directory of their own?
    pub in_directory: bool,
    /// Seed.
    pub seed: u64,
}

impl RunPlan {
    /// The paper's: Linux 3.18.25, 2000 files. Assumed: the drive ([`DISKSIM`]), a partition of 8
    /// GiB, names, and that they are in the root directory.
    pub fn paper(trim: Trim, deleted: Deleted, seed: u64) -> RunPlan {
        RunPlan {
            era: "3.18.25".to_owned(),
            more: String::new(),
            trim,
            deleted,
            device: "ssd-128".to_owned(),
            device_params: DISKSIM.map(|(key, n)| (key.to_owned(), n)).to_vec(),
            start: Sector(2048),
            bytes: 8 << 30,
            // As fio calls those of a job without a name.
            name: "fio.0.".to_owned(),
            in_directory: false,
            seed,
        }
    }

    /// What is run.
    fn program(&self) -> create_delete::Plan {
        create_delete::Plan {
            files: FILES,
            bytes: PAGE as u32,
            name: self.name.clone(),
            in_directory: self.in_directory,
            deleted: self.deleted,
            inodes_per_block: self.inodes_per_block(),
        }
    }

    /// Inodes of a block.
    fn inodes_per_block(&self) -> u64 {
        let size = self.more.split(',').find_map(|o| o.strip_prefix("inode_size="));
        PAGE / size.and_then(|s| s.parse().ok()).unwrap_or(256)
    }
}

/// Pages that a run wrote and that are still valid, by what they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages(pub BTreeMap<String, u64>);

impl Pages {
    /// All of them: what the paper cannot have counted.
    pub fn with_journal(&self) -> u64 {
        self.counted().saturating_add(self.of("journal"))
    }

    /// By the counting rule: the journal's area left out.
    pub fn counted(&self) -> u64 {
        let counted = self.0.iter().filter(|(class, _)| *class != "journal");
        counted.fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Of one class.
    pub fn of(&self, class: &str) -> u64 {
        self.0.get(class).copied().unwrap_or(0)
    }
}

/// What a run left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// When `sync` has returned behind the last unlink.
    pub deleted: Pages,
    /// A minute later: what was dirty has been written back.
    pub written_back: Pages,
    /// After a clean unmount.
    pub unmounted: Pages,
    /// Blocks of inode tables that were discarded, each counted once.
    pub tables_trimmed: u64,
    /// How often in all: one that is written home while its discard is under way is discarded
    /// again.
    pub table_discards: u64,
    /// Blocks of data that were discarded.
    pub data_trimmed: u64,
    /// Blocks of the flash that hold data, none of it valid.
    pub blocks_without_valid: u64,
}

/// Class of a block in these tables.
fn class(name: &str) -> &str {
    match name {
        name if name.starts_with("journal") => "journal",
        "superblock" => "super",
        // What the program's files held, and what its directory came to have.
        "free" => "data",
        name => name,
    }
}

/// Runs it.
///
/// Errors: a machine that cannot be; a file system that fails.
pub fn run(plan: &RunPlan) -> Result<RunOutcome, MachineError> {
    let config = |e: &dyn std::fmt::Display| MachineError::Config(e.to_string());
    let fs = wp_machine::registry::find(
        "file system",
        wp_machine::registry::FILE_SYSTEMS,
        |f| f.name,
        "ext4",
    )
    .map_err(|e| config(&e))?;
    let text = format!("era={}{}{}", plan.era, plan.trim.options(), plan.more);
    let fs_options = Options::parse(&text, fs.options).map_err(|e| config(&e))?;
    let version = wp_vfs::Version::parse(&plan.era)
        .ok_or_else(|| config(&format!("`{}` is not a kernel version", plan.era)))?;
    let machine = Machine::new(
        MachineSpec {
            seed: plan.seed,
            cpu: Profile::known("i7-4770").model(),
            device: plan.device.clone(),
            device_params: plan.device_params.clone(),
            more: Vec::new(),
            elevator: String::new(),
            start: plan.start,
            sectors: Some(plan.bytes / wp_base::SECTOR_BYTES),
            fs,
            fs_options,
            disk: "sdb1".to_owned(),
            device_number: (8, 16),
            kernel: (version.0, version.1),
        },
        None,
    )?;
    machine.record(Class::BLOCK);
    let vfs = machine.mount()?;
    let (v, what) = (vfs.clone(), plan.program());
    let done = machine.block_on("program", async move { create_delete::play(&v, &what).await })?;
    let Moments { deleted, written_back } =
        done.map_err(|error| MachineError::Fs { during: "workload", error })?;
    machine.unmount(&vfs)?;
    let wrong = |error| MachineError::Fs { during: "reading the image", error };
    let classes = (fs.blocks)(&machine.view()).map_err(wrong)?;
    let of = |block: u64| class(classes.class(block)).to_owned();
    let records = machine.rt.probe().take();
    let start = machine.spec().start;
    let pages = |until: Time| valid(&records, start, until, &of);
    let (mut tables, mut table_discards, mut data_trimmed) = (BTreeSet::new(), 0, 0);
    for (op, blocks) in requests(&records, start, Time(u64::MAX)) {
        if op != Op::Discard {
            continue;
        }
        let n = blocks.end - blocks.start;
        if blocks.clone().all(|b| of(b) == "inode_table") {
            table_discards += n;
            tables.extend(blocks);
        } else {
            data_trimmed += n;
        }
    }
    Ok(RunOutcome {
        deleted: pages(deleted),
        written_back: pages(written_back),
        unmounted: pages(Time(u64::MAX)),
        tables_trimmed: tables.len() as u64,
        table_discards,
        data_trimmed,
        blocks_without_valid: machine
            .queue
            .with_device(|d| d.flash_blocks().first().copied().unwrap_or(0)),
    })
}

/// Writes and discards until `until`, with the blocks of the partition that each is of.
fn requests(
    records: &[Record],
    start: Sector,
    until: Time,
) -> impl Iterator<Item = (Op, std::ops::Range<u64>)> {
    records.iter().filter(move |r| r.at <= until).filter_map(move |r| match r.event {
        Event::Block { action: BlockAction::Issue, op, at, sectors, .. }
            if sectors > 0 && matches!(op, Op::Write | Op::Discard) =>
        {
            let (first, end) = (at.0 - start.0, at.0 - start.0 + u64::from(sectors));
            let per = PAGE / wp_base::SECTOR_BYTES;
            Some((op, first / per..end.div_ceil(per)))
        }
        _ => None,
    })
}

/// Pages written and not discarded since.
fn valid(records: &[Record], start: Sector, until: Time, of: &dyn Fn(u64) -> String) -> Pages {
    let mut live = BTreeSet::new();
    for (op, blocks) in requests(records, start, until) {
        for block in blocks {
            match op {
                Op::Discard => live.remove(&block),
                _ => live.insert(block),
            };
        }
    }
    let mut pages = Pages::default();
    for block in live {
        *pages.0.entry(of(block)).or_default() += 1;
    }
    pages
}
