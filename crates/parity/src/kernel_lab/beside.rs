//! Our own recovery beside the kernel's: of every state that a cut has left, what our file system
//! makes of it in memory, as a digest that the guest's program computes too; and on zones what
//! order-preserving recovery would have made of it.

use wp_base::{FsResult, Sector, Zone};
use wp_machine::registry::FILE_SYSTEMS;
use wp_medium::{Medium, MediumView, Overlay, View};
use wp_vfs::{FsEntry, Options, SurveyedFile, Version};

/// Bytes of a block of the files.
pub(super) const BLOCK: u64 = 4096;

/// What a recovery has made of a state.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The files' digest.
    Files(u64),
    /// The mount failed; why.
    Refused(String),
}

/// What we make of a state.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Ours {
    /// With the kernel's rules.
    pub outcome: Outcome,
    /// Blocks that hold no version of their own with order-preserving recovery (paper `f2fs-oprw`,
    /// algorithm 1), or that cannot be read; `None`: the drive has no zones, or the file system no
    /// such recovery.
    pub oprw_garbage: Option<u64>,
}

/// A state that a cut has left, with the zones' write pointers.
struct Left {
    view: MediumView,
    zones: Vec<Zone>,
}

impl View for Left {
    fn len_bytes(&self) -> u64 {
        self.view.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.view.read_at(at, out)
    }
    fn zones(&self) -> Vec<Zone> {
        self.zones.clone()
    }
}

/// The file system that recovers, and the files that are read.
#[derive(Clone)]
pub struct Beside {
    entry: &'static FsEntry,
    options: Options,
    /// The same with order-preserving recovery, where the file system has it.
    oprw: Option<Options>,
    jobs: u64,
    blocks: u64,
}

/// What is read of a recovered state, block by block.
trait Reader {
    /// Block `name`, of which `bytes` were read; `None`: it cannot be.
    fn block(&mut self, name: u64, bytes: Option<&[u8; BLOCK as usize]>);
}

impl Beside {
    /// With the rules of this version of the kernel (`6.12.117`); `None`: the file system is none
    /// of ours, or the version none that it knows.
    pub fn new(fs: &str, version: &str, jobs: u64, blocks: u64) -> Option<Beside> {
        let entry = FILE_SYSTEMS.iter().copied().find(|e| e.name == fs)?;
        let era = era_of(version)?.to_string();
        entry.check_era(&era).ok()?;
        let mut options = Options::default();
        options.set("era", &era, entry.options).ok()?;
        let mut oprw = options.clone();
        let oprw = oprw.set("oprw", "true", entry.options).is_ok().then_some(oprw);
        Some(Beside { entry, options, oprw, jobs, blocks })
    }

    /// What we make of a state of a device of `bytes` bytes.
    pub fn recover(&self, medium: &Medium, bytes: u64, zones: &[Zone]) -> Ours {
        let view = MediumView { medium: medium.clone(), start: Sector(0), bytes };
        let left = Left { view, zones: zones.to_vec() };
        let mut digest = Digest(FNV_OFFSET);
        let outcome = match self.read(&left, &self.options, &mut digest) {
            Ok(()) => Outcome::Files(digest.0),
            Err(why) => Outcome::Refused(why),
        };
        let oprw = self.oprw.as_ref().filter(|_| !zones.is_empty());
        let oprw_garbage = oprw.map(|options| {
            let mut garbage = Garbage(0);
            match self.read(&left, options, &mut garbage) {
                Ok(()) => garbage.0,
                Err(_) => self.jobs * self.blocks,
            }
        });
        Ours { outcome, oprw_garbage }
    }

    /// Recovers and reads all files. Errors: what the mount would answer; a file that is not there.
    fn read(&self, left: &Left, options: &Options, to: &mut dyn Reader) -> Result<(), String> {
        let overlay = Overlay::new(left);
        let survey = (self.entry.survey)(&overlay, options).map_err(|e| e.to_string())?;
        for job in 0..self.jobs {
            let path = format!("file{job}");
            let file = survey.files.iter().find(|f| f.path == path);
            let file = file.ok_or_else(|| format!("{path} is missing"))?;
            for block in 0..self.blocks {
                let bytes = block_of(file, block * BLOCK, &overlay);
                to.block(job * self.blocks + block, bytes.as_ref());
            }
        }
        Ok(())
    }
}

/// The block at byte `at` of a file; a hole is zeroes. `None`: it is behind the end, or cannot be
/// read.
fn block_of(file: &SurveyedFile, at: u64, view: &dyn View) -> Option<[u8; BLOCK as usize]> {
    let mut bytes = [0; BLOCK as usize];
    if let Some(run) = file.map.iter().find(|r| r.at <= at && at < r.at + r.bytes) {
        view.read_at(run.place + (at - run.at), &mut bytes).ok()?;
    }
    (at + BLOCK <= file.size).then_some(bytes)
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over 64-bit words, as `lab.c` has it.
struct Digest(u64);

impl Digest {
    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3);
    }
}

impl Reader for Digest {
    fn block(&mut self, _name: u64, bytes: Option<&[u8; BLOCK as usize]>) {
        match bytes {
            Some(bytes) => words(bytes).for_each(|w| self.word(w)),
            None => self.word(u64::MAX),
        }
    }
}

/// Counts blocks that hold no version of their own, or that cannot be read.
struct Garbage(u64);

impl Reader for Garbage {
    fn block(&mut self, name: u64, bytes: Option<&[u8; BLOCK as usize]>) {
        let own = bytes.is_some_and(|bytes| {
            let version = words(bytes).nth(1).unwrap_or(0);
            words(bytes).eq(contents(name, version))
        });
        self.0 += u64::from(!own);
    }
}

fn words(bytes: &[u8; BLOCK as usize]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w))
}

/// Words of a version of a block, as `fill` in `lab.c` makes them.
fn contents(name: u64, version: u64) -> impl Iterator<Item = u64> {
    (0..BLOCK / 8).map(move |i| match i {
        0 => name,
        1 => version,
        _ => mix((name << 32) ^ (version << 10) ^ i),
    })
}

/// The release of a kernel that says this of itself (`6.12.117`, `6.1.0-13-amd64`).
pub(super) fn era_of(version: &str) -> Option<Version> {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (release, _) = version.split_at(end.unwrap_or(version.len()));
    Version::parse(release)
}

/// As `mix` in `lab.c`.
pub(super) fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_its_own_is_no_garbage_and_any_other_is() {
        let bytes = |name, version| {
            let mut out = [0; BLOCK as usize];
            for (to, w) in out.as_chunks_mut::<8>().0.iter_mut().zip(contents(name, version)) {
                *to = w.to_le_bytes();
            }
            out
        };
        let mut found = Garbage(0);
        found.block(3, Some(&bytes(3, 0)));
        found.block(3, Some(&bytes(3, 77)));
        assert_eq!(found.0, 0);
        let mut torn = bytes(3, 77);
        torn[2048..].copy_from_slice(&bytes(3, 76)[2048..]);
        for wrong in [Some(&bytes(4, 77)), Some(&torn), Some(&[0; BLOCK as usize]), None] {
            found.block(3, wrong);
        }
        assert_eq!(found.0, 4);
    }

    #[test]
    fn versions_of_kernels_are_taken_and_file_systems_that_are_not_ours_are_not() {
        let f2fs = Beside::new("f2fs", "6.12.117", 1, 1).expect("6.12 is known");
        assert!(f2fs.oprw.is_some());
        assert!(Beside::new("ext4", "6.1.0-13-amd64", 1, 1).expect("known").oprw.is_none());
        assert!(Beside::new("xfs", "6.12.117", 1, 1).is_none());
        assert!(Beside::new("ext4", "", 1, 1).is_none());
        assert!(Beside::new("btrfs", "5.10.100", 1, 1).is_none(), "no era of btrfs");
        assert_eq!(era_of("6.12.117-um"), Some(Version(6, 12, 117)));
    }
}
