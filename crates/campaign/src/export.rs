//! Recovered trees as files of the host, one after the other in one directory: what is as it was in
//! the last one stays.
//!
//! Picture:    recovery -> [`Contents`] (where the run is) -> [`Layout`] (for any thread) ->
//!             [`Tree`].
//! Invariants: 1. what a check has changed in a tree is not there in the next one;
//!             2. contents are remembered by their identity, so a recovery is read again only where
//!                it holds something new.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, StatVfsMountFlags, Timespec, Timestamps, statfs, statvfs, utimensat,
};
use rustix::process::{getegid, geteuid};
use wp_base::FsError;
use wp_crash::{Outcome, Survivor};
use wp_medium::{Overlay, View as _};
use wp_vfs::{FileType, SurveyedFile};

use super::story::Cut;

/// Bytes of contents that are remembered.
const REMEMBERED: usize = 256 << 20;

/// A file as it is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wanted {
    kind: FileType,
    size: u64,
    target: Option<String>,
    /// The first name of the same file, if this is another one.
    first: Option<String>,
    blocks: Vec<(u64, u128)>,
    tail: Option<Vec<u8>>,
    mode: Option<u32>,
    /// User and group, where this process may give files away.
    owner: Option<(u32, u32)>,
}

/// What a file of the host was when it was laid out. Whoever changes it changes `mtime`, which is
/// long past, even within the tick of the clock (4 ms). `ctime` changes more often: SQLite, as
/// root, gives a log to its owner whenever it opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    ino: u64,
    size: u64,
    mtime: (i64, i64),
    atime: (i64, i64),
    /// Owner, group, kind and permissions.
    access: (u32, u32, u32),
}

impl Stamp {
    fn of(m: &Metadata) -> Stamp {
        Stamp {
            ino: m.ino(),
            size: m.size(),
            mtime: (m.mtime(), m.mtime_nsec()),
            atime: (m.atime(), m.atime_nsec()),
            access: (m.uid(), m.gid(), m.mode()),
        }
    }
}

/// When files of a tree were read and written last, seconds: long ago, so that the host notes both
/// also with `relatime`.
const LONG_AGO: i64 = 1_000_000_000;

/// Gives a new file its times, and says what it is from now on.
fn stamp(at: &Path, kind: FileType) -> io::Result<Stamp> {
    if kind == FileType::File {
        let then = Timespec { tv_sec: LONG_AGO, tv_nsec: 0 };
        let times = Timestamps { last_access: then, last_modification: then };
        utimensat(CWD, at, &times, AtFlags::empty())?;
    }
    Ok(Stamp::of(&fs::symlink_metadata(at)?))
}

/// How the files of a directory show that they were changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shows {
    /// By their times.
    Always,
    /// Stores through a mapping change no time (tmpfs), and only what was read or mapped has
    /// another `atime`.
    Read,
    /// Not even that: mounted with `noatime`.
    Nothing,
}

impl Shows {
    fn of(dir: &Path) -> io::Result<Shows> {
        // Source: include/uapi/linux/magic.h.
        const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
        let there = statfs(dir)?;
        let mount = statvfs(dir)?;
        Ok(match IN_MEMORY.contains(&(there.f_type as i64)) {
            false => Shows::Always,
            true if mount.f_flag.contains(StatVfsMountFlags::NOATIME) => Shows::Nothing,
            true => Shows::Read,
        })
    }
}

/// A directory with the last tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    shows: Shows,
    /// User and group of new files.
    own: (u32, u32),
    laid: BTreeMap<String, (Wanted, Option<Stamp>)>,
    /// Contents of its blocks.
    contents: Blocks,
}

/// Contents of blocks by their identity.
type Blocks = BTreeMap<u128, Arc<[u8]>>;

/// A recovered tree with its contents, without the run that it comes from.
#[derive(Debug)]
pub(super) struct Layout {
    files: BTreeMap<String, Wanted>,
    contents: Blocks,
    /// Bytes of a block.
    block: u64,
    /// Bytes of memory that it takes, about: its lists, and the contents that no layout before it
    /// had.
    pub bytes: usize,
}

/// Contents of blocks of recoveries, as long as they do not take too much memory.
#[derive(Debug, Default)]
pub(super) struct Contents {
    known: Blocks,
    bytes: usize,
}

impl Contents {
    /// The tree of `outcome`, which is what `cut` recovers to. Errors: `InvalidData` where the
    /// state cannot be read.
    pub fn layout(&mut self, outcome: &Outcome, cut: &Cut<'_>) -> io::Result<Layout> {
        let files = wanted(outcome);
        let read = self.learn(&files, cut)?;
        let blocks = files.values().flat_map(|w| &w.blocks);
        let of = |id: &u128| Some((*id, self.known.get(id)?.clone()));
        let contents: Blocks = blocks.filter_map(|(_, id)| of(id)).collect();
        let lists: usize = files.iter().map(|(path, w)| path.len() + w.bytes()).sum();
        let bytes = read + lists + contents.len() * size_of::<(u128, Arc<[u8]>)>();
        Ok(Layout { files, contents, block: cut.played.ledger.block_bytes(), bytes })
    }

    /// Reads what is new of a recovery; how many bytes.
    fn learn(&mut self, wanted: &BTreeMap<String, Wanted>, cut: &Cut<'_>) -> io::Result<usize> {
        let is_new = |w: &Wanted| w.blocks.iter().any(|(_, id)| !self.known.contains_key(id));
        if !wanted.values().any(is_new) {
            return Ok(0);
        }
        if self.bytes > REMEMBERED {
            *self = Contents::default();
        }
        let before = self.bytes;
        let bad = |e: FsError| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        let block = cut.played.ledger.block_bytes();
        let view = cut.device();
        let overlay = Overlay::new(&view);
        let survey = (cut.fs.0.survey)(&overlay, cut.fs.1).map_err(bad)?;
        for file in &survey.files {
            let Some(want) = wanted.get(&file.path) else { continue };
            for (n, id) in &want.blocks {
                if self.known.contains_key(id) {
                    continue;
                }
                let bytes = contents(file, &overlay, n * block, block as usize);
                self.bytes += bytes.len();
                self.known.insert(*id, bytes.into());
            }
        }
        Ok(self.bytes - before)
    }
}

/// The files of a recovery that a directory of the host can hold.
fn wanted(outcome: &Outcome) -> BTreeMap<String, Wanted> {
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    let links: BTreeSet<&str> = outcome
        .files
        .iter()
        .filter(|f| f.kind == FileType::Symlink)
        .map(|f| f.path.as_str())
        .collect();
    let mut all = BTreeMap::new();
    for f in &outcome.files {
        // Names that no directory of the host can hold are damage, which O1 is about; so is a file
        // below a link (two entries of one name): it would go where that leads.
        let odd = f.path.split('/').any(|w| w.is_empty() || w == "." || w == "..");
        let mut above = Path::new(&f.path).ancestors().skip(1).filter_map(Path::to_str);
        let is_node = !matches!(f.kind, FileType::File | FileType::Dir | FileType::Symlink);
        if odd || is_node || above.any(|p| links.contains(p)) || all.contains_key(&f.path) {
            continue;
        }
        all.insert(f.path.clone(), Wanted::of(f, &mut first));
    }
    all
}

impl Wanted {
    fn of(f: &Survivor, names: &mut BTreeMap<u64, String>) -> Wanted {
        let is_file = f.kind == FileType::File;
        let first = names.get(&f.ino).filter(|_| is_file).cloned();
        names.entry(f.ino).or_insert_with(|| f.path.clone());
        Wanted {
            kind: f.kind,
            size: if is_file { f.size } else { 0 },
            target: f.target.clone(),
            first,
            blocks: if is_file { f.blocks.clone() } else { Vec::new() },
            tail: f.tail.clone().filter(|_| is_file),
            mode: f.stat.map(|s| s.mode & 0o777),
            owner: f.stat.map(|s| s.owner).filter(|_| geteuid().is_root()),
        }
    }
}

impl Wanted {
    /// Bytes of memory that it takes, about.
    fn bytes(&self) -> usize {
        size_of::<Wanted>() + self.blocks.len() * size_of::<(u64, u128)>()
    }

    /// Gives the file at `at` to its owner, if it has another one: that of the file `before` it
    /// there, or `own` if it is new.
    fn give(&self, at: &Path, (before, own): (Option<&Wanted>, (u32, u32))) -> io::Result<()> {
        let Some(owner) = self.owner else { return Ok(()) };
        if before.map_or(own, |b| b.owner.unwrap_or(own)) == owner {
            return Ok(());
        }
        lchown(at, Some(owner.0), Some(owner.1))
    }
}

impl Tree {
    /// An empty one in a new directory. Errors: the host's.
    pub fn new(root: PathBuf) -> io::Result<Tree> {
        fs::create_dir_all(&root)?;
        let own = (geteuid().as_raw(), getegid().as_raw());
        let shows = Shows::of(&root)?;
        Ok(Tree { root, shows, own, laid: BTreeMap::new(), contents: Blocks::new() })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes it this tree. Errors: the host's.
    pub fn lay(&mut self, layout: &Layout) -> io::Result<()> {
        let Layout { files, contents, block, .. } = layout;
        let block = *block;
        self.clear(files, block)?;
        self.contents = contents.clone();
        for (path, want) in files {
            let at = self.root.join(path);
            let before = self.laid.get(path);
            if before.is_some_and(|(laid, _)| laid == want) {
                continue;
            }
            match want.kind {
                FileType::Dir => {
                    if before.is_none() {
                        fs::create_dir(&at)?;
                    }
                    // Servers refuse a directory that others may read.
                    if let Some(mode) = want.mode {
                        fs::set_permissions(&at, Permissions::from_mode(mode | 0o700))?;
                    }
                    want.give(&at, (before.map(|(laid, _)| laid), self.own))?;
                }
                FileType::Symlink => {
                    symlink(want.target.as_deref().unwrap_or(""), &at)?;
                    want.give(&at, (None, self.own))?;
                }
                _ => match &want.first {
                    Some(first) => fs::hard_link(self.root.join(first), &at)?,
                    None => {
                        let before = before.map(|(laid, _)| laid);
                        self.write(&at, before, want, block)?;
                        want.give(&at, (before, self.own))?;
                    }
                },
            }
            let stamp = match want.kind {
                FileType::Dir => None,
                kind => Some(stamp(&at, kind)?),
            };
            self.laid.insert(path.clone(), (want.clone(), stamp));
        }
        Ok(())
    }

    /// Removes what is not wanted, is another file now, or was changed.
    fn clear(&mut self, wanted: &BTreeMap<String, Wanted>, block: u64) -> io::Result<()> {
        let mut there = Vec::new();
        list(&self.root, "", &mut there)?;
        let mut gone = BTreeSet::new();
        for (path, m) in &there {
            let laid = self.laid.get(path);
            let want = wanted.get(path);
            let is_same = match (laid, want) {
                (Some((laid, stamp)), Some(want)) => {
                    let is_untouched = match stamp {
                        Some(stamp) => self.is_untouched(path, (laid, *stamp), m, block)?,
                        None => {
                            let given = |mode| m.mode() & 0o777 == mode | 0o700;
                            m.is_dir() && laid.mode.is_none_or(given)
                        }
                    };
                    // Contents of a file that is nobody else's are changed in place.
                    let is_near = laid.kind == want.kind
                        && (laid == want
                            || want.kind == FileType::Dir
                            || (want.kind == FileType::File
                                && laid.first.is_none()
                                && want.first.is_none()
                                && m.nlink() == 1));
                    is_untouched && is_near
                }
                _ => false,
            };
            if !is_same {
                gone.insert(path.clone());
            }
        }
        // All links of a file go together.
        let inodes: BTreeSet<u64> = there
            .iter()
            .filter(|(path, m)| gone.contains(path) && !m.is_dir())
            .map(|(_, m)| m.ino())
            .collect();
        for (path, m) in there.iter().rev() {
            let is_below = || {
                let mut above = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
                above.any(|p| gone.contains(p))
            };
            let is_link = !m.is_dir() && inodes.contains(&m.ino());
            if !gone.contains(path) && !is_link && !is_below() {
                continue;
            }
            let at = self.root.join(path);
            if m.is_dir() {
                fs::remove_dir(&at)?;
            } else {
                fs::remove_file(&at)?;
            }
            self.laid.remove(path);
        }
        // What a check has removed is not there either.
        let there: BTreeSet<&String> = there.iter().map(|(path, _)| path).collect();
        self.laid.retain(|path, _| there.contains(path));
        Ok(())
    }

    /// Is a file still what was laid there?
    fn is_untouched(
        &self,
        path: &str,
        (laid, stamp): (&Wanted, Stamp),
        m: &Metadata,
        block: u64,
    ) -> io::Result<bool> {
        let now = Stamp::of(m);
        let is_read = now.atime != stamp.atime;
        if now != (Stamp { atime: now.atime, ..stamp }) {
            return Ok(false);
        }
        match self.shows {
            _ if !m.is_file() => Ok(true),
            Shows::Always => Ok(true),
            Shows::Read if !is_read => Ok(true),
            Shows::Read | Shows::Nothing => self.holds(path, laid, block),
        }
    }

    /// Does a file hold what was laid there?
    fn holds(&self, path: &str, laid: &Wanted, block: u64) -> io::Result<bool> {
        let file = File::open(self.root.join(path))?;
        let mut bytes = vec![0; block as usize];
        let mut blocks = laid.blocks.iter().peekable();
        for n in 0..laid.size / block {
            file.read_exact_at(&mut bytes, n * block)?;
            let is_same = match blocks.next_if(|(at, _)| *at == n) {
                // What could not be read is written anew.
                Some((_, id)) => self.contents.get(id).is_some_and(|b| **b == *bytes),
                None => bytes.iter().all(|b| *b == 0),
            };
            if !is_same {
                return Ok(false);
            }
        }
        let mut tail = vec![0; (laid.size % block) as usize];
        file.read_exact_at(&mut tail, laid.size / block * block)?;
        Ok(match &laid.tail {
            Some(bytes) => *bytes == tail,
            None => tail.iter().all(|b| *b == 0),
        })
    }

    /// Writes a file, of which `before` is there.
    fn write(
        &self,
        at: &Path,
        before: Option<&Wanted>,
        want: &Wanted,
        block: u64,
    ) -> io::Result<()> {
        let file = match before {
            Some(before) => {
                let file = OpenOptions::new().write(true).open(at)?;
                if let Some(mode) = want.mode.filter(|_| before.mode != want.mode) {
                    file.set_permissions(Permissions::from_mode(mode | 0o600))?;
                }
                file
            }
            None => {
                let file = File::create_new(at)?;
                if let Some(mode) = want.mode.filter(|mode| *mode != 0o644) {
                    // Its owner reads and writes it whatever it says.
                    file.set_permissions(Permissions::from_mode(mode | 0o600))?;
                }
                file
            }
        };
        let old: BTreeMap<u64, u128> =
            before.map(|w| w.blocks.iter().copied().collect()).unwrap_or_default();
        if before.is_none_or(|w| w.size != want.size || w.tail != want.tail) {
            let whole = want.size / block * block;
            if let Some(w) = before {
                // What is behind the last whole block of both is written anew.
                file.set_len(whole.min(w.size / block * block))?;
            }
            file.set_len(want.size)?;
            if let Some(tail) = &want.tail {
                file.write_all_at(tail, whole)?;
            }
        }
        let kept = before.map_or(0, |w| w.size.min(want.size) / block);
        let new: BTreeMap<u64, u128> = want.blocks.iter().copied().collect();
        for n in old.keys().filter(|n| **n < kept && !new.contains_key(n)) {
            file.write_all_at(&vec![0; block as usize], n * block)?;
        }
        for (n, id) in &want.blocks {
            if *n < kept && old.get(n) == Some(id) {
                continue;
            }
            // What could not be read is a hole here; O1 says that it is damaged.
            if let Some(bytes) = self.contents.get(id) {
                file.write_all_at(bytes, n * block)?;
            }
        }
        Ok(())
    }
}

/// Everything below a directory, directories before what is in them.
fn list(root: &Path, dir: &str, into: &mut Vec<(String, Metadata)>) -> io::Result<()> {
    let mut names: Vec<_> = fs::read_dir(root.join(dir))?.collect::<Result<_, _>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    for name in names {
        let m = fs::symlink_metadata(name.path())?;
        let file = name.file_name().into_string();
        // Only a check makes such names; they go.
        let Ok(file) = file else {
            if m.is_dir() {
                fs::remove_dir_all(name.path())?
            } else {
                fs::remove_file(name.path())?
            }
            continue;
        };
        let path = if dir.is_empty() { file } else { format!("{dir}/{file}") };
        let is_dir = m.is_dir();
        into.push((path.clone(), m));
        if is_dir {
            list(root, &path, into)?;
        }
    }
    Ok(())
}

/// Bytes of a file as the recovery has them; what has no place or cannot be read is zeroes.
fn contents(file: &SurveyedFile, view: &Overlay<'_>, from: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let end = from + len as u64;
    for run in &file.map {
        let (first, last) = (from.max(run.at), end.min(run.at + run.bytes));
        if first < last {
            let part = &mut bytes[(first - from) as usize..(last - from) as usize];
            if view.read_at(run.place + (first - run.at), part).is_err() {
                part.fill(0);
            }
        }
    }
    bytes
}
