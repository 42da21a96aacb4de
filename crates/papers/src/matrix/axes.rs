//! The axes, and what is at each of their crossings.

use std::collections::BTreeMap;

use wp_machine::MachineError;
use wp_vfs::{FsEntry, Options};

use super::Length;
use super::drives::Drive;
use crate::techniques::{self, Refusal};

/// A value of an axis: its name, and the techniques that it is made of.
type Value = (&'static str, &'static [&'static str]);

/// It is in no release.
const IOMAP: &str = "buffered-iomap";

/// ext4's eras.
const ERAS: &[Value] = &[
    ("3.4", &["inode-lists"]),
    ("3.8", &["no-filing"]),
    ("4.6", &["filed-at-allocation"]),
    ("5.10", &["unwritten-first"]),
    ("6.18", &["unwritten-first"]),
];
/// How it commits.
const JOURNALING: &[Value] = &[
    ("jbd2", &[]),
    ("nobarrier", &["nobarrier"]),
    ("barrierfs", &["dual-mode"]),
    ("cure", &["dual-mode", "versions", "coalescing", "compound-flush"]),
];
/// What it discards.
const DISCARD: &[Value] =
    &[("none", &[]), ("discard", &["discard"]), ("inode-block", &["discard", "inode-trim"])];
/// Drives of ext4, which lives on no zones.
const EXT4_DRIVES: [&str; 3] = ["volatile", "plp", "ordered"];

/// A technique of the literature beside what it would replace.
struct Beside {
    fs: &'static FsEntry,
    era: &'static str,
    values: [&'static str; 3],
    techniques: &'static [&'static str],
    drives: &'static [&'static str],
}

/// On ext4 the value in the middle stands for journaling.
const fn on_ext4(
    era: &'static str,
    name: &'static str,
    techniques: &'static [&'static str],
    drives: &'static [&'static str],
) -> Beside {
    Beside { fs: &wp_ext4::ENTRY, era, values: [era, name, "none"], techniques, drives }
}

/// On F2FS the last value stands for OPRW. Its fsync is `posix`.
const fn on_f2fs(
    name: &'static str,
    techniques: &'static [&'static str],
    drives: &'static [&'static str],
) -> Beside {
    let values = ["posix", "linux-6.18", name];
    Beside { fs: &wp_f2fs::ENTRY, era: "6.18", values, techniques, drives }
}

/// Each beside plain jbd2 or plain F2FS of the same kernel.
const LITERATURE: &[Beside] = &[
    on_ext4("6.18", "force-copy", &["unwritten-first", "force-copy"], &["volatile", "plp"]),
    on_ext4("6.18", "optr", &["unwritten-first", "optr"], &["optr", "volatile"]),
    on_ext4("6.18", "optr-nobarrier", &["unwritten-first", "optr-nobarrier"], &["optr"]),
    on_ext4("6.18", "fast-commit", &["unwritten-first", "fast-commit"], &["volatile", "plp"]),
    on_ext4("6.18", "ijournaling", &["unwritten-first", "ijournaling"], &["volatile", "plp"]),
    on_ext4(wp_vfs::Version::NEXT, IOMAP, &[IOMAP], &["volatile", "plp"]),
    on_ext4("6.18", "untorn", &["unwritten-first", "untorn"], &["whole-blocks", "volatile"]),
    on_ext4("6.18", "queue-depth", &["unwritten-first", "queue-depth"], &["volatile", "plp"]),
    on_ext4("3.4", "qasio", &["inode-lists", "qasio"], &["volatile", "plp"]),
    on_f2fs("rflush", &["posix", "direct-in-place", "rflush"], &["ranges", "volatile"]),
    on_f2fs("rflush-published", &["posix", "direct-in-place", "rflush-published"], &["ranges"]),
    on_f2fs("f2fs-atomic", &["posix", "direct-in-place", "f2fs-atomic"], &["volatile", "plp"]),
];

/// F2FS' modes of fsync.
const MODES: &[Value] = &[
    ("posix", &["posix"]),
    ("strict", &["strict"]),
    ("strict_fixed", &["strict-fixed"]),
    ("nobarrier", &["fsync-nobarrier"]),
];
/// Where its direct writes go: the kernel, and how.
const DIRECT: &[(&str, &str, &[&str])] = &[
    ("in-place-3.13", "3.13", &["direct-in-place"]),
    ("linux-6.18", "6.18", &["direct-in-place"]),
    ("log", "6.18", &["direct-log"]),
];
/// Without and with.
const OPRW: &[Value] = &[("plain", &[]), ("oprw", &["oprw"])];
/// Its drives.
const F2FS_DRIVES: [&str; 4] = ["volatile", "plp", "zones", "zones-plp"];

/// A crossing.
#[derive(Clone)]
pub struct Combination {
    /// File system.
    pub fs: &'static FsEntry,
    /// Kernel whose rules apply.
    pub era: &'static str,
    /// The drive.
    pub drive: &'static Drive,
    /// Values of the axes between, in their order.
    pub values: Vec<&'static str>,
    /// Techniques.
    pub techniques: Vec<&'static str>,
}

/// All of them: ext4's, F2FS', then techniques of the literature.
pub fn combinations() -> Vec<Combination> {
    let mut all = Vec::new();
    for era in ERAS {
        for journaling in JOURNALING {
            for discard in DISCARD {
                for drive in EXT4_DRIVES {
                    all.push(Combination {
                        fs: &wp_ext4::ENTRY,
                        era: era.0,
                        drive: Drive::of(drive),
                        values: vec![era.0, journaling.0, discard.0],
                        techniques: [era.1, journaling.1, discard.1].concat(),
                    });
                }
            }
        }
    }
    for mode in MODES {
        for direct in DIRECT {
            for oprw in OPRW {
                for drive in F2FS_DRIVES.map(Drive::of) {
                    let zoned: &[&str] = if drive.is_zoned() { &["zoned-f2fs"] } else { &[] };
                    all.push(Combination {
                        fs: &wp_f2fs::ENTRY,
                        era: direct.1,
                        drive,
                        values: vec![mode.0, direct.0, oprw.0],
                        techniques: [zoned, mode.1, direct.2, oprw.1].concat(),
                    });
                }
            }
        }
    }
    for row in LITERATURE {
        all.extend(row.drives.iter().map(|drive| Combination {
            fs: row.fs,
            era: row.era,
            drive: Drive::of(drive),
            values: row.values.to_vec(),
            techniques: row.techniques.to_vec(),
        }));
    }
    all
}

impl Combination {
    /// Is it in a matrix of this length? A quick one leaves out what hardly differs from another: a
    /// journal without barriers on the ordered drive; `nobarrier` with discards where it loses; era
    /// 5.10; F2FS' `strict`; Linux's direct writes on zones, which go through the cache.
    pub fn is_in(&self, length: Length) -> bool {
        let is_ext4 = self.fs.name == "ext4";
        let is_plain = is_ext4 && !self.has("dual-mode");
        let loses = self.has("nobarrier") && self.has("discard") && self.drive.is_volatile();
        let cached = self.has("direct-in-place") && self.drive.is_zoned();
        let is_left_out = is_plain && self.drive.name == "ordered"
            || loses
            || is_ext4 && self.era == "5.10"
            || self.has("strict")
            || cached;
        length == Length::Whole || !is_left_out
    }

    /// Its name: file system, values, drive.
    pub fn name(&self) -> String {
        format!("{}/{}/{}", self.fs.name, self.values.join("/"), self.drive.name)
    }

    /// Kernel version as two numbers.
    pub fn kernel(&self) -> (u16, u16) {
        let v = wp_vfs::Version::parse(self.era).expect("an era of our own table");
        (v.0, v.1)
    }

    /// The elevator: the one for SSDs in each kernel's block layer, with the parameters of the
    /// techniques.
    pub fn elevator(&self) -> String {
        let is_old = self.kernel() < (5, 0) && !self.drive.is_zoned();
        let name = if is_old { "deadline" } else { "mq-deadline" };
        let parameters = self.techniques.iter().map(|t| techniques::find(t).elevator);
        let all: Vec<&str> =
            std::iter::once(name).chain(parameters.filter(|p| !p.is_empty())).collect();
        all.join(",")
    }

    /// Why it cannot be. Errors: a drive that none can be.
    pub fn refused(&self) -> Result<Option<Refusal>, MachineError> {
        Ok(techniques::refusal(&self.techniques, self.kernel(), &self.drive.limits()?))
    }

    /// Options of mkfs and mount: those of the techniques, then `more` (which replace them, but for
    /// `fix`, `fast_fix` and `iomap_fix`, whose values are joined).
    ///
    /// Errors: one that the file system does not have.
    pub fn options(&self, more: &[&str]) -> Result<Options, MachineError> {
        let specs = self.fs.options;
        let mut options = Options::default();
        let config = |e: wp_vfs::OptionError| MachineError::Config(e.to_string());
        for name in &self.techniques {
            for (key, value) in techniques::find(name).options() {
                options.set(key, value, specs).map_err(config)?;
            }
        }
        options.set("era", self.era, specs).map_err(config)?;
        let mut fixes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for part in more.iter().flat_map(|m| m.split(',')).filter(|p| !p.is_empty()) {
            match part.split_once('=').unwrap_or((part, "true")) {
                (key @ ("fix" | "fast_fix" | "iomap_fix"), rule) => {
                    fixes.entry(key).or_default().push(rule)
                }
                (key, value) => options.set(key, value, specs).map_err(config)?,
            }
        }
        for (key, values) in fixes {
            options.set(key, &values.join("+"), specs).map_err(config)?;
        }
        Ok(options)
    }

    /// Has it this technique?
    pub fn has(&self, technique: &str) -> bool {
        self.techniques.contains(&technique)
    }
}
