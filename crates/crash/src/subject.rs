//! What is recovered: a file system, by its line in the registry.

use std::rc::Rc;

use wp_base::{FsError, Sector};
use wp_medium::{Overlay, PAGE_BYTES, Page, Slice, Sound, View};
use wp_vfs::{FileType, FsEntry, Options, Stat, SurveyedFile};

use crate::state::Pages;

/// A file that recovery left.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Survivor {
    /// Path without a leading slash.
    pub path: String,
    /// Kind.
    pub kind: FileType,
    /// Inode number.
    pub ino: u64,
    /// Hard links that its inode claims.
    pub nlink: u32,
    /// Length in bytes.
    pub size: u64,
    /// Plain attributes; `None`: nobody looked.
    pub stat: Option<Stat>,
    /// Target of a symbolic link.
    pub target: Option<String>,
    /// Extended attributes, by name with its prefix; `None`: they cannot be read.
    pub xattrs: Option<Vec<(String, Vec<u8>)>>,
    /// Identity of each whole block below `size` that has a place: (block of the file, contents).
    /// All others are zero.
    pub blocks: Vec<(u64, u128)>,
    /// Bytes of the last block up to `size`, if it has a place and `size` ends within it.
    pub tail: Option<Vec<u8>>,
    /// Byte behind the last that has a place, written or not. `None`: nobody looked.
    pub allocated: Option<u64>,
}

/// What came out of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Why it cannot be mounted.
    pub refused: Option<String>,
    /// Plain attributes of the root directory; `None`: not known.
    pub root: Option<Stat>,
    /// Everything below the root, by path; without `lost+found`.
    pub files: Vec<Rc<Survivor>>,
    /// Snapshots, by the numbers of their checkpoints, each with its files.
    pub snapshots: Vec<(u64, Vec<Rc<Survivor>>)>,
    /// What a check of the recovered image finds.
    pub faults: Vec<String>,
    /// What recovery did, for people.
    pub did: String,
    /// The same as numbers by name, where the file system has some.
    pub counts: Vec<(&'static str, u64)>,
    /// Does recovering the recovered image give something else?
    pub not_idempotent: Option<String>,
    /// Does the image say that errors were seen?
    pub knows_errors: bool,
    /// Did anything of it go through a journal of its own?
    pub journaled: bool,
    /// Pages that recovery writes, stage by stage: (page, contents). A stage is written when the
    /// ones before it are durable.
    pub stages: Vec<Vec<(u64, Slice)>>,
    /// First sectors of the zones that it resets, and of those that it finishes.
    pub managed: (Vec<Sector>, Vec<Sector>),
    /// Those of which it does so when all pages are durable.
    pub managed_last: (Vec<Sector>, Vec<Sector>),
}

/// Something that recovers states.
pub trait Subject {
    /// Bytes of a block of the file system.
    fn block_bytes(&self) -> u32;
    /// Recovers, lists and checks; reads through `pages` only.
    fn recover(&self, pages: &dyn Pages) -> Outcome;
}

/// A file system of the registry.
pub struct FsSubject {
    /// Its line.
    pub entry: &'static FsEntry,
    /// Its options; the era says by whose rules it is recovered.
    pub options: Options,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Check every recovered state in full?
    pub check: bool,
    /// Keep what recovery writes, for cuts of it?
    pub keep_writes: bool,
    /// What the check found sound in states before. A subject serves one [`crate::Explorer`], whose
    /// states are one set.
    pub sound: Sound,
}

impl Subject for FsSubject {
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn recover(&self, pages: &dyn Pages) -> Outcome {
        let view = Below(pages);
        let overlay = Overlay::new(&view);
        let mut out = Outcome::default();
        let survey = match (self.entry.survey)(&overlay, &self.options) {
            Ok(survey) => survey,
            Err(e) => {
                out.refused = Some(e.to_string());
                return out;
            }
        };
        out.did = survey.did;
        out.root = survey.root;
        out.counts = survey.counts;
        out.managed = survey.managed;
        out.managed_last = survey.managed_last;
        out.journaled = survey.journaled;
        out.knows_errors = survey.knows_errors;
        if self.keep_writes {
            let slice = |(page, p)| (page, Slice::of_page(p, 0, PAGE_BYTES as u32));
            let stages = overlay.stages().into_iter();
            out.stages = stages.map(|s| s.into_iter().map(slice).collect()).collect();
        }
        for file in survey.files {
            match self.survivor(file, &overlay, pages) {
                Ok(file) => out.files.push(Rc::new(file)),
                Err((path, e)) => out.faults.push(format!("{path}: {e}")),
            }
        }
        for (number, files) in survey.snapshots {
            let mut kept = Vec::new();
            for file in files {
                match self.survivor(file, &overlay, pages) {
                    Ok(file) => kept.push(Rc::new(file)),
                    Err((path, e)) => out.faults.push(format!("snapshot {number}, {path}: {e}")),
                }
            }
            out.snapshots.push((number, kept));
        }
        out.faults.extend(survey.faults);
        if self.check {
            match (self.entry.check)(&overlay, &self.options, false, &self.sound) {
                Ok(checked) => {
                    out.faults.extend(checked.faults.iter().filter(|f| f.severity == "error").map(
                        |f| format!("{} {}: {}, not {}", f.kind, f.place, f.found, f.expected),
                    ))
                }
                Err(e) => out.faults.push(e.to_string()),
            }
        }
        out
    }
}

impl FsSubject {
    fn survivor(
        &self,
        file: SurveyedFile,
        overlay: &Overlay<'_>,
        pages: &dyn Pages,
    ) -> Result<Survivor, (String, FsError)> {
        let bs = u64::from(self.block_bytes);
        let mut blocks = Vec::new();
        let mut tail = None;
        for run in &file.map {
            let mut at = run.at;
            while at < run.at + run.bytes && at < file.size {
                let place = run.place + (at - run.at);
                // Data kept in an inode may end before the file does: the rest is a hole.
                let here = (run.at + run.bytes - at).min(bs);
                if at + bs <= file.size && here == bs {
                    blocks.push((at / bs, block_id(overlay, pages, place, bs)));
                } else {
                    let mut bytes = vec![0; (file.size - at).min(bs) as usize];
                    let held = bytes.len().min(here as usize);
                    let read = overlay.read_at(place, &mut bytes[..held]);
                    read.map_err(|e| (file.path.clone(), e))?;
                    if at + bs <= file.size {
                        blocks.push((at / bs, Slice::from_bytes(&bytes).id()));
                    } else {
                        tail = Some(bytes);
                    }
                }
                at += bs;
            }
        }
        blocks.sort_unstable();
        Ok(Survivor {
            path: file.path,
            kind: file.kind,
            ino: file.ino,
            nlink: file.nlink,
            size: file.size,
            stat: Some(file.stat),
            target: file.target,
            xattrs: file.xattrs,
            blocks,
            tail,
            allocated: file.allocated,
        })
    }
}

/// Identity of the block at byte `place`.
fn block_id(overlay: &Overlay<'_>, pages: &dyn Pages, place: u64, bytes: u64) -> u128 {
    let page = place / PAGE_BYTES as u64;
    if bytes == PAGE_BYTES as u64 {
        return match overlay.page(page) {
            Some(over) => over.id(),
            None => pages.page_id(page),
        };
    }
    let mut block = vec![0; bytes as usize];
    match overlay.read_at(place, &mut block) {
        Ok(()) => Slice::from_bytes(&block).id(),
        Err(_) => 0,
    }
}

/// A `dyn Pages` as a `dyn View`.
struct Below<'a>(&'a dyn Pages);

impl View for Below<'_> {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> wp_base::FsResult<()> {
        self.0.read_at(at, out)
    }
    fn has_crc32(&self, at: u64, bytes: u64, sums: (u32, u32)) -> wp_base::FsResult<bool> {
        self.0.has_crc32(at, bytes, sums)
    }
    fn is_fixed(&self, at: u64, bytes: u64) -> bool {
        self.0.is_fixed(at, bytes)
    }
    fn page_at(&self, at: u64) -> wp_base::FsResult<Option<Page>> {
        self.0.page_at(at)
    }
    fn zones(&self) -> Vec<wp_base::Zone> {
        self.0.zones()
    }
}
