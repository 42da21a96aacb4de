//! Torn pages over crash states, on a block device and on ext4, with clusters (bigalloc) too.
//!
//! Picture:    pages are written once, synced, and written over and over; every crash state (blocks
//!             tear at sectors, `--space sectors`) is read back, page by page. One that is of no
//!             single write is torn.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use wp_base::rng::Rng;
use wp_campaign::{Bench, Played, Space, play};
use wp_crash::{Explorer, FsSubject, Outcome, Pages, Plan, Profile, Subject, Survivor, Visit};
use wp_machine::{MachineError, registry, spec::file_system};
use wp_medium::{Slice, Sound};
use wp_vfs::{FileType, Options};
use wp_workload::program::{Program, contents};

use super::super::Ask;
use super::super::beside::params;

/// Pages that are written.
const PAGES: u64 = 3;
/// Blocks of the file system, and pages of memory.
const BLOCK: u64 = 4096;

/// What the pages are of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Device,
    /// A file of ext4.
    Ext4,
    /// A file of ext4 with bigalloc and clusters of 16 KiB.
    Clusters,
}

/// A set-up.
pub(super) struct Row {
    on: On,
    /// Bytes of a page.
    page: u32,
    /// What the drive keeps whole.
    drive: u32,
    /// With `RWF_ATOMIC`?
    atomic: bool,
}

const fn row(on: On, page: u32, drive: u32, atomic: bool) -> Row {
    Row { on, page, drive, atomic }
}

const EXT4: &str = "ext4,era=6.18,block_size=4096";
const CLUSTERS: &str = "ext4,era=6.18,block_size=4096,cluster=16k";
const K4: u32 = 4 << 10;
const K16: u32 = 16 << 10;

/// What can be: an untorn write of more than the drive keeps whole, or of more than a block (a
/// cluster) of ext4, is refused (`untorn.refuse`).
pub(super) const ROWS: [Row; 15] = [
    row(On::Device, K4, 512, false),
    row(On::Device, K4, K4, false),
    row(On::Device, K4, K4, true),
    row(On::Device, K16, K4, false),
    row(On::Device, K16, K16, false),
    row(On::Device, K16, K16, true),
    row(On::Ext4, K4, 512, false),
    row(On::Ext4, K4, K4, false),
    row(On::Ext4, K4, K4, true),
    row(On::Ext4, K16, K4, false),
    row(On::Ext4, K16, K16, false),
    row(On::Clusters, K4, K4, true),
    row(On::Clusters, K16, K4, false),
    row(On::Clusters, K16, K16, false),
    row(On::Clusters, K16, K16, true),
];

impl Row {
    /// Is it what `untorn.16k.plain` is about?
    pub(super) fn is_claimed_plain(&self) -> bool {
        self.on == On::Clusters && self.page == K16 && self.drive == K4 && !self.atomic
    }

    /// Is it what `untorn.16k` is about?
    pub(super) fn is_claimed_untorn(&self) -> bool {
        self.on == On::Clusters && self.page == K16 && self.atomic
    }

    /// Does anybody promise that no page is torn?
    #[cfg(test)]
    pub(super) fn is_promised(&self) -> bool {
        self.atomic
    }

    fn path(&self) -> &'static str {
        if self.on == On::Device { "dev/sda" } else { "table" }
    }

    fn bench(&self) -> Result<Bench, MachineError> {
        let (fs, options) = match self.on {
            On::Ext4 => file_system(EXT4).map_err(MachineError::Config)?,
            On::Clusters => file_system(CLUSTERS).map_err(MachineError::Config)?,
            On::Device => {
                let fs = registry::NONE;
                let options = Options::parse("era=6.18", fs.options);
                (fs, options.map_err(|e| MachineError::Config(e.to_string()))?)
            }
        };
        let drive = [("capacity_bytes", 32 << 20), ("atomic_bytes", u64::from(self.drive))];
        Ok(Bench { device_params: params(&drive), ..Bench::of(fs, options)? })
    }

    /// The program of a seed, what each page holds after each of its writes, and its calls up to
    /// the first sync.
    fn program(&self, seed: u64) -> (Program, Versions, u32) {
        let mut rng = Rng::stream(seed, "untorn pages");
        let how = if self.atomic { " atomic" } else { "" };
        let create = if self.on == On::Device { "rw,direct" } else { "rw,creat,direct" };
        let mut text = format!("open 0 {} {create}\n", self.path());
        let mut writes: Vec<Vec<u32>> = vec![Vec::new(); PAGES as usize];
        let mut number = 0;
        let mut write = |text: &mut String, page: u64| {
            number += 1;
            let at = page * u64::from(self.page);
            *text += &format!("pwrite 0 {} {at} {number}{how}\n", self.page);
            writes[page as usize].push(number);
        };
        (0..PAGES).for_each(|page| write(&mut text, page));
        text += "fsync 0\n";
        for _ in 0..6 {
            write(&mut text, rng.below(PAGES));
            if rng.below(3) == 0 {
                text += "fdatasync 0\n";
            }
        }
        // `open`, the first writes, their fsync.
        let synced = PAGES as u32 + 2;
        (Program::parse(&text).expect("text of our own"), versions(self, &writes), synced)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = match self.on {
            On::Device => "device",
            On::Ext4 => "ext4",
            On::Clusters => "ext4 bigalloc",
        };
        let drive = match self.drive {
            512 => "512".to_owned(),
            n => format!("{}k", n >> 10),
        };
        let how = if self.atomic { "RWF_ATOMIC" } else { "plain" };
        write!(f, "{on}: {}k, drive {drive}, {how}", self.page >> 10)
    }
}

/// Pages and states.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Found {
    /// States that were read.
    pub states: u64,
    /// Torn pages in all of them.
    pub torn: u64,
}

/// A block device, of which only the pages are examined.
struct Device {
    bytes: u64,
}

impl Subject for Device {
    fn block_bytes(&self) -> u32 {
        BLOCK as u32
    }

    fn recover(&self, pages: &dyn Pages) -> Outcome {
        let blocks = (0..self.bytes / BLOCK).map(|page| (page, pages.page_id(page))).collect();
        let device = Survivor {
            path: "dev/sda".to_owned(),
            kind: FileType::File,
            ino: 0,
            nlink: 1,
            size: self.bytes,
            stat: None,
            target: None,
            xattrs: None,
            blocks,
            tail: None,
            allocated: None,
        };
        Outcome { files: vec![Rc::new(device)], ..Outcome::default() }
    }
}

/// What each block of a page holds after each of its writes.
type Versions = Vec<Vec<Vec<u128>>>;

fn versions(row: &Row, writes: &[Vec<u32>]) -> Versions {
    let blocks = row.page / BLOCK as u32;
    let of = |page: u64, seed: u32| {
        let at = page * u64::from(row.page);
        let data = contents(seed, at, row.page);
        (0..blocks).map(|n| data.sub(n * BLOCK as u32, BLOCK as u32).id()).collect()
    };
    let page = |(page, seeds): (u64, &Vec<u32>)| seeds.iter().map(|s| of(page, *s)).collect();
    (0u64..).zip(writes).map(page).collect()
}

/// Pages of a file that are of no single write. Before its first write a page is whatever it was.
fn torn_in(outcome: &Outcome, path: &str, versions: &Versions) -> u64 {
    let Some(file) = outcome.files.iter().find(|f| f.path == path) else { return 0 };
    let held: BTreeMap<u64, u128> = file.blocks.iter().copied().collect();
    let hole = Slice::zero(BLOCK as u32).id();
    let mut torn = 0;
    for (page, known) in versions.iter().enumerate() {
        let blocks = known[0].len() as u64;
        let at = |n: u64| held.get(&(page as u64 * blocks + n)).copied();
        let seen: Vec<u128> = (0..blocks).map(|n| at(n).unwrap_or(hole)).collect();
        let is = |version: &Vec<u128>| seen == *version;
        torn += u64::from(!known.iter().any(is));
    }
    torn
}

/// Explores the states of a run from its first sync on, when every page has been written.
fn explore(
    row: &Row,
    bench: &Bench,
    played: &Played,
    (versions, synced): (&Versions, u32),
    found: &mut Found,
) {
    let space = Space::named("sectors", None).expect("a space of ours");
    let history = space.history(played);
    let device = Device { bytes: PAGES * u64::from(row.page) };
    let ext4 = FsSubject {
        entry: bench.fs,
        options: bench.fs_options.clone(),
        block_bytes: BLOCK as u32,
        check: false,
        keep_writes: false,
        sound: Sound::default(),
    };
    let subject: &dyn Subject = if row.on == On::Device { &device } else { &ext4 };
    let how = wp_crash::Options {
        plan: Plan { complete: 10, pairs: 32, samples: 64, pages: Plan::PAGES, most: u64::MAX },
        seed: 1,
        profile: Profile { image_alone: true, ..Profile::POSIX },
        partition: played.partition,
        keep: 0,
        prune: true,
        recovery_in_order: true,
        second_cuts: 0,
    };
    let mut explorer = Explorer::new(subject, how);
    explorer.expect(std::iter::once(&history));
    explorer.watch(|visit: &Visit<'_>| {
        if visit.operations.1 >= synced {
            found.states += 1;
            found.torn += torn_in(visit.outcome, row.path(), versions);
        }
    });
    explorer.explore(&played.tape, &history, &played.ledger, &mut |_| true);
}

/// Counts torn pages over the states of some programs.
///
/// Errors: a machine that cannot be; a call that fails.
pub(super) fn count(row: &Row, ask: Ask) -> Result<Found, MachineError> {
    count_in(row, &row.bench()?, ask, &|seed| row.program(seed))
}

/// The program of a seed, what each page holds after each of its writes, and its calls up to the
/// first sync.
type Programs<'a> = dyn Fn(u64) -> (Program, Versions, u32) + 'a;

fn count_in(
    row: &Row,
    bench: &Bench,
    ask: Ask,
    programs: &Programs<'_>,
) -> Result<Found, MachineError> {
    let mut found = Found::default();
    for seed in 0..ask.pick(8, 64) {
        let (program, versions, synced) = programs(ask.seed << 8 | seed);
        let played = play(bench, &program)?;
        if let Some(did) = played.dids.iter().find(|did| did.error.is_some()) {
            let what = format!("{row}: `{}` failed: {:?}", did.call, did.error);
            return Err(MachineError::Config(what));
        }
        explore(row, bench, &played, (&versions, synced), &mut found);
    }
    if found.states == 0 {
        return Err(MachineError::Config(format!("{row}: no crash state was read")));
    }
    Ok(found)
}

/// Pages of which some blocks are written, others unwritten or holes; then each is written untorn.
fn mixed_program(seed: u64) -> (Program, Versions, u32) {
    let mut rng = Rng::stream(seed, "mixed pages");
    let (page_bytes, blocks) = (u64::from(K16), u64::from(K16) / BLOCK);
    let mut text = "open 0 table rw,creat,direct\n".to_owned();
    text += &format!("ftruncate 0 {}\n", PAGES * page_bytes);
    let (mut number, mut calls) = (0, 2);
    let zero = Slice::zero(BLOCK as u32).id();
    let mut versions: Versions = Vec::new();
    for page in 0..PAGES {
        if rng.below(2) == 0 {
            text += &format!("fallocate 0 keep {} {page_bytes}\n", page * page_bytes);
            calls += 1;
        }
        let mut first = vec![zero; blocks as usize];
        // Neither none of them nor all.
        let written = 1 + rng.below((1 << blocks) - 2);
        for n in (0..blocks).filter(|n| written >> n & 1 == 1) {
            number += 1;
            let at = page * page_bytes + n * BLOCK;
            text += &format!("pwrite 0 {BLOCK} {at} {number}\n");
            calls += 1;
            first[n as usize] = contents(number, at, BLOCK as u32).sub(0, BLOCK as u32).id();
        }
        versions.push(vec![first]);
    }
    text += "fsync 0\n";
    calls += 1;
    for page in 0..PAGES {
        number += 1;
        let at = page * page_bytes;
        text += &format!("pwrite 0 {K16} {at} {number} atomic\n");
        let data = contents(number, at, K16);
        let ids = (0..blocks).map(|n| data.sub((n * BLOCK) as u32, BLOCK as u32).id());
        versions[page as usize].push(ids.collect());
        if rng.below(3) == 0 {
            text += "fdatasync 0\n";
        }
    }
    (Program::parse(&text).expect("text of our own"), versions, calls)
}

/// Counts torn pages where pages have mixed mappings; `commits`: with the commit before the data.
///
/// Errors: as [`count`].
pub(super) fn count_mixed(ask: Ask, commits: bool) -> Result<Found, MachineError> {
    let row = row(On::Clusters, K16, K16, true);
    let site = wp_campaign::mutate::step("ext4/untorn/commit-first");
    let site = site.map_err(MachineError::Config)?;
    let bench = Bench { without: (!commits).then_some(site), ..row.bench()? };
    count_in(&row, &bench, ask, &mixed_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_torn_that_is_promised_and_others_are() {
        let ask = Ask { seed: 1, quick: true };
        for row in &ROWS {
            let found = count(row, ask).unwrap_or_else(|e| panic!("{row}: {e}"));
            let is_torn = found.torn > 0;
            let is_within = row.page <= row.drive;
            assert!(found.states > 50, "{row}: {found:?}");
            assert!(!(row.is_promised() && is_torn), "{row}: {found:?}");
            assert!(is_within || is_torn, "{row}: {found:?}");
        }
    }

    #[test]
    fn mixed_pages_are_torn_without_the_commit_only() {
        let ask = Ask { seed: 1, quick: true };
        let [with, without] = [true, false].map(|c| count_mixed(ask, c).expect("runs"));
        assert!(with.states > 50 && with.torn == 0, "{with:?}");
        assert!(without.torn > 0, "{without:?}");
    }
}
