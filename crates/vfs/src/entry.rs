//! What a file system registers: one [`FsEntry`], from which command line, tests and lists know it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use wp_base::stage::Stages;
use wp_base::{DeviceNumber, FsError, FsResult, Sector, Zone};
use wp_block::Partition;
use wp_cache::Fut;
use wp_medium::{Medium, Overlay, Slice, Sound, View, Writes};
use wp_rt::Rt;

use crate::file_type::FileType;
use crate::flags::FileFlags;
use crate::fs::{FileSystem, TimeSpec};
use crate::promises::Promises;
use crate::{EraRule, Misread};

/// All that a file system may touch.
#[derive(Clone)]
pub struct Env {
    /// Time, tasks, randomness.
    pub rt: Rt,
    /// Where it lies.
    pub part: Partition,
    /// Further devices of the same file system, in order.
    pub more: Vec<Partition>,
    /// Name of that partition as the kernel has it (`sdb1`), for task names.
    pub disk: String,
    /// Device number of the whole disk.
    pub device: (u32, u32),
    /// Seconds since 1970 at power-on.
    pub epoch_secs: i64,
}

/// When an option counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// When the image is made.
    Mkfs,
    /// When it is mounted.
    Mount,
    /// Both.
    Always,
}

/// An option that a file system knows.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its key.
    pub key: &'static str,
    /// When it counts.
    pub when: When,
    /// What stands for it if it is not given; empty: nothing.
    pub default: &'static str,
    /// One line of help.
    pub help: &'static str,
}

/// An invalid option: which, what was given, and the hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    /// The key.
    pub key: String,
    /// What was given.
    pub value: String,
    /// Why it cannot be, and what can.
    pub why: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {}={}: {}", self.key, self.value, self.why)
    }
}

/// Options given to a file system: key to value, checked against its [`OptionSpec`]s.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Parses `key=value,key,…` against `specs`; a key alone means `true`. Errors: a key that
    /// nobody knows.
    pub fn parse(text: &str, specs: &[OptionSpec]) -> Result<Options, OptionError> {
        let mut out = Options::default();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, "true"));
            out.set(key, value, specs)?;
        }
        Ok(out)
    }

    /// Sets one option. Errors: a key that `specs` does not have.
    pub fn set(&mut self, key: &str, value: &str, specs: &[OptionSpec]) -> Result<(), OptionError> {
        if !specs.iter().any(|s| s.key == key) {
            if let Some(new) = renamed(key).filter(|new| specs.iter().any(|s| s.key == *new)) {
                return Err(OptionError {
                    key: key.to_owned(),
                    value: value.to_owned(),
                    why: format!("the option was renamed: write {new}={value}"),
                });
            }
            let known: Vec<&str> = specs.iter().map(|s| s.key).collect();
            let near = known.iter().min_by_key(|k| distance(k, key)).copied().unwrap_or("");
            return Err(OptionError {
                key: key.to_owned(),
                value: value.to_owned(),
                why: format!("no such option; did you mean `{near}`? Known: {}", known.join(", ")),
            });
        }
        self.0.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// The value given, or the default of `specs`; `None` if there is neither.
    pub fn get<'a>(&'a self, key: &str, specs: &'a [OptionSpec]) -> Option<&'a str> {
        self.0.get(key).map(String::as_str).or_else(|| {
            specs.iter().find(|s| s.key == key).map(|s| s.default).filter(|d| !d.is_empty())
        })
    }

    /// What was given, in order of keys.
    pub fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// The name that replaced an old option of a file system.
pub fn renamed(key: &str) -> Option<&'static str> {
    (key == "mend").then_some("fix")
}

/// Edit distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// A file of an image, as `inspect` lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    /// Path without a leading slash.
    pub path: String,
    /// `file`, `dir`, `symlink`, …
    pub kind: &'static str,
    /// Inode number.
    pub ino: u64,
    /// Permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Digest of the contents ([`crate::Digest`]) for regular files if hashing was asked for.
    pub sha256: Option<String>,
    /// Target of a symbolic link.
    pub target: Option<String>,
    /// Extended attributes: name and value (escaped where it is not text).
    pub xattrs: Vec<(String, String)>,
}

/// Would a mount, read-write and without options, succeed by the kernel version that was asked for?
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Mountable {
    /// It would.
    #[default]
    Yes,
    /// It would end with an error: what is wrong.
    No(String),
}

impl Mountable {
    /// No, because of an error.
    pub fn no(error: &FsError) -> Mountable {
        Mountable::No(match error {
            FsError::Corrupt(c) => c.to_string(),
            FsError::Io => "the image ends before its data".to_owned(),
            other => other.to_string(),
        })
    }
}

/// What `inspect` finds in an image, after recovering in memory.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Would that kernel mount it?
    pub mountable: Mountable,
    /// Did it have to be recovered?
    pub recovered: bool,
    /// What is wrong.
    pub findings: Vec<String>,
    /// What is right for all that is known, and this build cannot read: compressed contents.
    pub unsupported: Vec<String>,
    /// What recovery left out, piece by piece, and why.
    pub left_out: Vec<String>,
    /// Checkpoints of a file system that keeps them, in order.
    pub checkpoints: Vec<ListedCheckpoint>,
    /// Every file but the root and lost+found, by path.
    pub files: Vec<ListedFile>,
}

/// A checkpoint, as [`Inspection`] lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedCheckpoint {
    /// Its number.
    pub number: u64,
    /// Is it a snapshot, which the cleaner leaves alone?
    pub is_snapshot: bool,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Blocks of its files.
    pub blocks: u64,
}

impl Inspection {
    /// An image that no mount opens, for this reason. Errors: `Unsupported`, which says nothing of
    /// the image.
    pub fn not_mountable(error: FsError) -> FsResult<Inspection> {
        match error {
            FsError::Unsupported(_) => Err(error),
            error => Ok(Inspection { mountable: Mountable::no(&error), ..Inspection::default() }),
        }
    }

    /// Adds what a listing could not read.
    #[must_use]
    pub fn with_misread(mut self, misread: &[Misread]) -> Inspection {
        for Misread { path, error } in misread {
            let told = format!("/{}: {error}", String::from_utf8_lossy(path));
            match error {
                FsError::Unsupported(_) => self.unsupported.push(told),
                _ => self.findings.push(told),
            }
        }
        self
    }
}

/// One thing that a check of an image found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What, by a stable name.
    pub kind: &'static str,
    /// The part of the format that it is about.
    pub structure: &'static str,
    /// `error`, `fixed-by-replay` or `harmless`.
    pub severity: &'static str,
    /// Where.
    pub place: String,
    /// What stands there.
    pub found: String,
    /// What would have been right.
    pub expected: String,
}

/// The outcome of a check of an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Is nothing wrong? Harmless faults, and those that a replay puts right, do not count.
    pub is_clean: bool,
    /// Did it have to be recovered first?
    pub recovered: bool,
    /// What was found.
    pub faults: Vec<Fault>,
    /// Faults beyond those listed.
    pub left_out: u64,
    /// What this image has and the check did not look at, in words.
    pub not_checked: Vec<String>,
}

/// Where a run of a file's bytes lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First byte in the file; a multiple of the block size, as is the length.
    pub at: u64,
    /// Byte address in the image.
    pub place: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A file as a survey finds it: what `stat` would tell, and where its contents lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SurveyedFile {
    /// Path without a leading slash.
    pub path: String,
    /// Kind.
    pub kind: FileType,
    /// Inode number: no two files have the same.
    pub ino: u64,
    /// Is it the root directory of a subvolume?
    pub subvolume: bool,
    /// Hard links that the inode claims.
    pub nlink: u32,
    /// Length in bytes.
    pub size: u64,
    /// Plain attributes.
    pub stat: Stat,
    /// Target of a symbolic link.
    pub target: Option<String>,
    /// Extended attributes, by name with its prefix. `None`: they cannot be read, and the survey's
    /// faults say why.
    pub xattrs: Option<Vec<(String, Vec<u8>)>>,
    /// What has a place and was written, in order; everything else below `size` reads as zero.
    pub map: Vec<Run>,
    /// Byte behind the last that has a place, written or not. `None`: the survey does not look.
    pub allocated: Option<u64>,
}

/// Plain attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Stat {
    /// Permission bits (low 12).
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Last change of contents.
    pub mtime: TimeSpec,
    /// Number of a device; 0 otherwise.
    pub device: DeviceNumber,
    /// Those of its flags that have words.
    pub flags: FileFlags,
}

/// What a mount after a crash would find.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// What recovery did, in words.
    pub did: String,
    /// Plain attributes of the root directory, if it can be read.
    pub root: Option<Stat>,
    /// Every file but the root and lost+found, by path.
    pub files: Vec<SurveyedFile>,
    /// Snapshots, by the numbers of their checkpoints, each with its files.
    pub snapshots: Vec<(u64, Vec<SurveyedFile>)>,
    /// Files that cannot be read, and why.
    pub faults: Vec<String>,
    /// First sectors of the zones that recovery resets before it writes anything, and of those that
    /// it finishes.
    pub managed: (Vec<Sector>, Vec<Sector>),
    /// Those that it resets and finishes when all that it wrote is durable.
    pub managed_last: (Vec<Sector>, Vec<Sector>),
    /// Does the image say, when it is recovered, that errors were seen?
    pub knows_errors: bool,
    /// Does anything of the recovery go through a journal of its own, as orphans do?
    pub journaled: bool,
    /// Numbers that say what recovery did, by name.
    pub counts: Vec<(&'static str, u64)>,
}

/// Classes of an image's blocks, read from its bytes.
pub trait BlockMap {
    /// Block size in bytes.
    fn block_bytes(&self) -> u32;
    /// Class of a block: `superblock`, `gdt`, `block_bitmap`, `inode_bitmap`, `inode_table`,
    /// `journal`, `directory`, `data`, `free`, ….
    fn class(&self, block: u64) -> &'static str;
    /// For file data and the like: the inode and the logical block.
    fn owner(&self, block: u64) -> Option<(u64, u64)>;
    /// Class of what was written there last, though nothing may use it any more: what stands in the
    /// image decides where nothing else tells. `view`: the image. By default as
    /// [`BlockMap::class`].
    fn written(&self, view: &dyn View, block: u64) -> &'static str {
        let _ = view;
        self.class(block)
    }
}

/// What recovery makes of an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryPlan {
    /// What must be written, stage by stage: all of a stage is durable before the next one begins.
    /// Within a stage the order is free. Any cut, even of a stage, recovers again to the same.
    pub stages: Vec<Writes>,
    /// The zones behind it.
    pub zones: Vec<Zone>,
}

impl RecoveryPlan {
    /// Of an overlay that was recovered into.
    pub fn of(overlay: &Overlay<'_>) -> RecoveryPlan {
        RecoveryPlan { stages: overlay.staged_writes(), zones: overlay.zones() }
    }

    /// Pages that are written, each counted once.
    pub fn pages(&self) -> usize {
        let all = self.stages.iter().flatten().map(|(at, _)| *at);
        all.collect::<BTreeSet<Sector>>().len()
    }

    /// All of it, in order.
    pub fn writes(&self) -> impl Iterator<Item = &(Sector, Slice)> {
        self.stages.iter().flatten()
    }
}

/// Mounts what lies on an environment's partition.
pub type Mount = for<'a> fn(&'a Env, &'a Options) -> Fut<'a, Rc<dyn FileSystem>>;

/// A device, or a partition of one, that a file system is to be made on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// What the system calls it, for super blocks that name their devices.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its zones, addressed from its start; none of a conventional device.
    pub zones: Vec<Zone>,
}

/// Makes an image for devices one behind the other.
pub type MkfsDisks = fn(&Options, &[Disk]) -> FsResult<Medium>;

/// Calls that not every file system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offers {
    /// `fallocate`.
    pub fallocate: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Ranges that are taken out of files and put into them.
    pub moves_ranges: bool,
    /// Files without a name, exchanges and whiteouts.
    pub unnamed: bool,
    /// `copy_file_range`, as Linux does it there.
    pub copies: bool,
    /// Blocks that files share: `ioctl(FICLONERANGE)` and `ioctl(FIDEDUPERANGE)`.
    pub shares: bool,
    /// Subvolumes and snapshots.
    pub subvolumes: bool,
    /// Checkpoints that are made, removed and made snapshots: `mkcp`, `chcp`, `rmcp`.
    pub checkpoints: bool,
}

impl Offers {
    /// All of them.
    pub const ALL: Offers = Offers {
        fallocate: true,
        xattrs: true,
        moves_ranges: true,
        unnamed: true,
        copies: true,
        shares: true,
        subvolumes: true,
        checkpoints: true,
    };
    /// None.
    pub const NONE: Offers = Offers {
        fallocate: false,
        xattrs: false,
        moves_ranges: false,
        unnamed: false,
        copies: false,
        shares: false,
        subvolumes: false,
        checkpoints: false,
    };
}

/// A file system, as the registry has it.
pub struct FsEntry {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Kernel versions whose rules it has: the oldest and the newest.
    pub kernels: [&'static str; 2],
    /// The oldest whose requests it has as long as the power stays: of versions before `kernels`
    /// nothing is known of what a power failure leaves.
    pub runs_since: &'static str,
    /// What era `next` rests on. `None`: there is no such era.
    pub next: Option<&'static str>,
    /// Kernel versions whose behaviour it has, validated against the real kernels.
    pub held: &'static [&'static str],
    /// What it must keep besides POSIX.
    pub promises: Promises,
    /// Which of the calls it has that not all have.
    pub offers: Offers,
    /// Options of the ways to mount it that promise what its default does, from none on.
    pub modes: &'static [&'static str],
    /// Makes an image of `bytes` bytes: what must be written to a zeroed device.
    pub mkfs: fn(&Options, u64) -> Result<Medium, FsError>,
    /// The same for a zoned device, or for several. `None`: it can live on neither.
    pub mkfs_disks: Option<MkfsDisks>,
    /// Mounts what lies on the environment's partition. `None`: images can be made, read,
    /// recovered and checked, but not mounted yet.
    pub mount: Option<Mount>,
    /// Does the image look like one of this file system's?
    pub probe: fn(&dyn View) -> bool,
    /// Recovers in memory and lists; with `hash`, hashes every file. Never writes.
    pub inspect: fn(&dyn View, &Options, bool) -> FsResult<Inspection>,
    /// Recovers in memory; what must be written, in stages. A cut of it may lose nothing, whatever
    /// a kernel's own recovery does.
    pub recover: fn(&dyn View, &Options) -> FsResult<RecoveryPlan>,
    /// Checks the whole image; with `recover`, what recovery in memory makes of it. Never writes.
    /// What it found sound in other images of the same set is passed over.
    pub check: fn(&dyn View, &Options, bool, &Sound) -> FsResult<Checked>,
    /// Recovers into the overlay as a mount would, and surveys the result: for many states a
    /// second, so nothing is read that it does not need. Errors: what the mount would answer.
    pub survey: fn(&Overlay<'_>, &Options) -> FsResult<Survey>,
    /// Classes of the image's blocks as it stands, without recovery.
    pub blocks: fn(&dyn View) -> FsResult<Box<dyn BlockMap>>,
    /// What a kernel version resolves to.
    pub eras: fn(&str) -> Option<Vec<EraRule>>,
    /// Words for what it writes, by the classes of [`FsEntry::blocks`].
    pub stages: &'static Stages,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec { key: "era", when: When::Always, default: "4.6", help: "" },
        OptionSpec { key: "nobarrier", when: When::Mount, default: "", help: "" },
    ];

    #[test]
    fn options_have_defaults_and_names_alone_mean_true() {
        let o = Options::parse("nobarrier", SPECS).expect("known");
        assert_eq!(o.get("nobarrier", SPECS), Some("true"));
        assert_eq!(o.get("era", SPECS), Some("4.6"));
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let e = Options::parse("nobarier=1", SPECS).expect_err("unknown");
        assert!(e.why.contains("`nobarrier`"), "{e}");
    }
}
