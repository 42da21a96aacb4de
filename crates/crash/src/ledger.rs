//! The ledger: every version of every file and of the tree of names, by operation.
//!
//! Versions are numbered by the operation that made them; what was there before the program is
//! version 0, operation `n` makes version `n + 1`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_medium::Slice;
use wp_vfs::FileType;
use wp_workload::program::{Alloc, Call, contents};

/// What an operation of a program did.
#[derive(Clone, Debug)]
pub struct Did {
    /// The call.
    pub call: Call,
    /// Did it succeed?
    pub ok: bool,
    /// For `open`: the inode behind the descriptor.
    pub ino: Option<u64>,
}

/// Number of a file, directory or link: no two in a run have the same.
pub type Object = u32;

/// The contents of a block from some operation on.
#[derive(Clone, Debug)]
pub(crate) struct BlockVersion {
    /// Version.
    pub version: u32,
    /// What it holds.
    pub data: Slice,
    /// Identity of that.
    pub id: u128,
}

/// A length from some operation on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeVersion {
    /// Version.
    pub version: u32,
    /// Length before, and after. A write that grows a file may have grown it by any number of
    /// blocks when the power goes.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// Bytes that the operation wrote, if it wrote.
    pub wrote: Option<(u64, u64)>,
}

/// The life of one file.
#[derive(Clone, Debug)]
pub(crate) struct FileLife {
    pub kind: FileType,
    pub ino: Option<u64>,
    pub blocks: BTreeMap<u64, Vec<BlockVersion>>,
    pub sizes: Vec<SizeVersion>,
}

/// What a completed operation promises to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// One file: data and size, and with `names` all of its names.
    File { object: Object, names: bool },
    /// Bytes of a file, as an `O_DSYNC` write promises them: others may be as old as they like.
    Range { object: Object, from: u64, to: u64 },
    /// The names in a directory.
    Dir(Object),
    /// Everything.
    All,
}

/// A promise, made when the operation returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// The operation.
    pub operation: u32,
    /// Versions up to this one (inclusive) are covered.
    pub covers: u32,
    /// Of what.
    pub scope: Scope,
    /// Nobody made it; some programs rely on it all the same.
    pub assumed: bool,
}

/// A file that took the name of another, or its own contents' place.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// Version.
    pub version: u32,
    /// The name.
    pub path: String,
    /// Who has it now.
    pub object: Object,
    /// Was it cut to nothing and written anew, and closed then? That holds once a directory was
    /// synced after it, which commits whatever runs: this operation. `None`: it holds at once.
    pub after: Option<u32>,
}

/// The tree of names: path to object.
pub(crate) type Names = BTreeMap<String, Object>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Ledger {
    block: u64,
    pub(crate) files: Vec<FileLife>,
    /// The tree after each version.
    pub(crate) names: Vec<Rc<Names>>,
    pub(crate) promises: Vec<Promise>,
    pub(crate) replacements: Vec<Replacement>,
    /// Inode -> objects that had it.
    pub(crate) by_ino: BTreeMap<u64, Vec<Object>>,
    /// Contents of whole blocks -> whose they are: object, block, version.
    pub(crate) owners: BTreeMap<u128, (Object, u64, u32)>,
    pub(crate) zero: u128,
    /// What each operation was, as text.
    pub(crate) texts: Vec<String>,
}

/// An open descriptor.
#[derive(Clone, Copy)]
struct Open {
    object: Object,
    synced: bool,
    direct: bool,
    /// Cut to nothing through it, or when it was opened.
    emptied: bool,
}

/// Object of the root directory.
const ROOT: Object = 0;

impl Ledger {
    /// Of a program, with what each of its operations did, on a file system with blocks of `block`
    /// bytes whose tree was empty.
    pub fn new(operations: &[Did], block: u32) -> Ledger {
        let root =
            FileLife { kind: FileType::Dir, ino: None, blocks: BTreeMap::new(), sizes: Vec::new() };
        let mut ledger = Ledger {
            block: u64::from(block),
            files: vec![root],
            names: vec![Rc::new(Names::new())],
            promises: Vec::new(),
            replacements: Vec::new(),
            by_ino: BTreeMap::new(),
            owners: BTreeMap::new(),
            zero: Slice::zero(block).id(),
            texts: operations.iter().map(|d| d.call.to_string()).collect(),
        };
        let mut open = BTreeMap::new();
        for (n, did) in operations.iter().enumerate() {
            let last = ledger.names.len() - 1;
            let names = ledger.names[last].clone();
            ledger.names.push(names);
            if did.ok {
                ledger.operation(n as u32, did, &mut open);
            }
        }
        ledger
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block
    }

    /// An operation as text; versions are one higher than operations.
    pub fn text(&self, version: u32) -> &str {
        match version {
            0 => "before the program",
            v => self.texts.get(v as usize - 1).map_or("", String::as_str),
        }
    }

    /// Operations that made the files that had `path` at some time.
    pub fn makers(&self, path: &str) -> BTreeSet<u32> {
        let objects = self.names.iter().filter_map(|n| n.get(path));
        let first = |o: &Object| self.files[*o as usize].sizes.first().map_or(0, |s| s.version);
        objects.map(first).filter(|v| *v > 0).map(|v| v - 1).collect()
    }

    /// All paths at some time of the files that the operations `makers` made.
    pub fn paths(&self, makers: &BTreeSet<u32>) -> BTreeSet<String> {
        let made = |o: &Object| {
            let first = self.files[*o as usize].sizes.first();
            first.is_some_and(|s| s.version > 0 && makers.contains(&(s.version - 1)))
        };
        let all = self.names.iter().flat_map(|n| n.iter());
        all.filter(|(_, o)| made(o)).map(|(p, _)| p.clone()).collect()
    }

    /// A path of the file with this inode number, the last that it had.
    pub fn name_of(&self, ino: u64) -> Option<&str> {
        let objects = self.by_ino.get(&ino)?;
        let named =
            |n: &'_ Rc<Names>| -> Option<usize> { n.iter().position(|(_, o)| objects.contains(o)) };
        let (at, names) = self.names.iter().rev().find_map(|n| Some((named(n)?, n)))?;
        names.keys().nth(at).map(String::as_str)
    }

    /// Who wrote a block of these contents: its number in the file, and the version; version 0 is
    /// zeroes. `None`: the program did not.
    pub fn writer(&self, id: u128) -> Option<(u64, u32)> {
        match self.owners.get(&id) {
            _ if id == self.zero => Some((0, 0)),
            Some((_, block, version)) => Some((*block, *version)),
            None => None,
        }
    }

    fn names_now(&mut self) -> &mut Names {
        let last = self.names.len() - 1;
        Rc::make_mut(&mut self.names[last])
    }

    fn at(&self, path: &str) -> Option<Object> {
        if path == "." {
            return Some(ROOT);
        }
        self.names.last().and_then(|n| n.get(path)).copied()
    }

    fn make(&mut self, version: u32, path: &str, kind: FileType, ino: Option<u64>) -> Object {
        let object = self.files.len() as Object;
        let sizes = vec![SizeVersion { version, from: 0, to: 0, wrote: None }];
        self.files.push(FileLife { kind, ino, blocks: BTreeMap::new(), sizes });
        if let Some(ino) = ino {
            self.by_ino.entry(ino).or_default().push(object);
        }
        self.names_now().insert(path.to_owned(), object);
        object
    }

    fn promise(&mut self, operation: u32, covers: u32, scope: Scope) {
        self.promises.push(Promise { operation, covers, scope, assumed: false });
    }

    fn scope_of(&self, object: Object, names: bool) -> Scope {
        match self.files[object as usize].kind {
            FileType::Dir => Scope::Dir(object),
            _ => Scope::File { object, names },
        }
    }

    fn operation(&mut self, n: u32, did: &Did, open: &mut BTreeMap<u32, Open>) {
        let version = n + 1;
        let object = |fd: &u32| open.get(fd).map(|o| o.object);
        match &did.call {
            Call::Open(fd, path, how) => {
                let mut emptied = false;
                let object = match self.at(path) {
                    Some(o) => {
                        emptied = how.truncate && self.size(o) > 0;
                        if how.truncate && self.files[o as usize].kind == FileType::File {
                            self.resize(o, version, 0);
                        }
                        o
                    }
                    None => self.make(version, path, FileType::File, did.ino),
                };
                open.insert(
                    *fd,
                    Open { object, synced: how.dsync || how.sync, direct: how.direct, emptied },
                );
            }
            Call::Close(fd) => {
                let Some(o) = open.remove(fd).filter(|o| o.emptied) else { return };
                let names = self.names_now().iter();
                if let Some(path) = names.filter(|(_, n)| **n == o.object).map(|(p, _)| p).next() {
                    let path = path.clone();
                    let after = Some(u32::MAX);
                    self.replacements.push(Replacement { version, path, object: o.object, after });
                }
            }
            Call::Pwrite { fd, len, at, seed } => {
                let Some(o) = open.get(fd).copied() else { return };
                self.write(o.object, version, *at, &contents(*seed, *at, *len));
                if o.synced || o.direct {
                    let (from, to) = (*at, *at + u64::from(*len));
                    self.promise(n, version, Scope::Range { object: o.object, from, to });
                    let assumed = !o.synced;
                    self.promises
                        .iter_mut()
                        .next_back()
                        .into_iter()
                        .for_each(|p| p.assumed = assumed);
                }
            }
            Call::Fsync(fd) | Call::Fdatasync(fd) => {
                let full = matches!(did.call, Call::Fsync(_));
                if let Some(o) = object(fd) {
                    let scope = self.scope_of(o, full);
                    self.promise(n, version, scope);
                    if matches!(scope, Scope::Dir(_)) {
                        let waits = self.replacements.iter_mut();
                        let waits = waits.filter(|r| r.after == Some(u32::MAX));
                        waits.for_each(|r| r.after = Some(n));
                    }
                }
            }
            Call::Syncfs(_) | Call::Sync => self.promise(n, version, Scope::All),
            Call::Ftruncate(fd, len) => {
                if let Some(o) = open.get_mut(fd) {
                    o.emptied |= *len == 0 && self.size(o.object) > 0;
                    self.resize(o.object, version, *len);
                }
            }
            Call::Fallocate(fd, how, at, len) => {
                let Some(o) = object(fd) else { return };
                let size = self.size(o);
                match how {
                    Alloc::Punch => self.zero_range(o, version, *at, (at + len).min(size)),
                    Alloc::Zero => {
                        self.zero_range(o, version, *at, (at + len).min(size));
                        self.grow(o, version, at + len, None);
                    }
                    Alloc::Extend => {
                        self.grow(o, version, at + len, None);
                        if at + len > size && open.get(fd).is_some_and(|o| o.synced) {
                            // The length is durable; of what was written before nothing is said.
                            let to = at + len;
                            let from = to.next_multiple_of(self.block);
                            self.promise(n, version, Scope::Range { object: o, from, to });
                        }
                    }
                    Alloc::Keep => {}
                }
            }
            Call::Rename(a, b) => self.rename(version, a, b),
            Call::Link(a, b) => {
                if let Some(o) = self.at(a) {
                    self.names_now().insert(b.clone(), o);
                }
            }
            Call::Unlink(a) | Call::Rmdir(a) => {
                self.names_now().remove(a);
            }
            Call::Mkdir(a) => {
                self.make(version, a, FileType::Dir, None);
            }
        }
    }

    fn rename(&mut self, version: u32, a: &str, b: &str) {
        let Some(object) = self.at(a) else { return };
        if self.at(b) == Some(object) {
            // Two names of one file: nothing happens.
            return;
        }
        let is_file = |o: Object| self.files[o as usize].kind == FileType::File;
        if self.at(b).is_some_and(is_file) && is_file(object) {
            let path = b.to_owned();
            self.replacements.push(Replacement { version, path, object, after: None });
        }
        let below: Vec<(String, Object)> = {
            let prefix = format!("{a}/");
            let names = self.names_now();
            names
                .range(prefix.clone()..)
                .take_while(|(p, _)| p.starts_with(&prefix))
                .map(|(p, o)| (p.clone(), *o))
                .collect()
        };
        let names = self.names_now();
        names.remove(a);
        names.insert(b.to_owned(), object);
        for (path, o) in below {
            names.remove(&path);
            names.insert(format!("{b}{}", &path[a.len()..]), o);
        }
    }

    fn size(&self, o: Object) -> u64 {
        self.files[o as usize].sizes.last().map_or(0, |s| s.to)
    }

    fn grow(&mut self, o: Object, version: u32, to: u64, wrote: Option<(u64, u64)>) {
        let from = self.size(o);
        if to > from {
            self.files[o as usize].sizes.push(SizeVersion { version, from, to, wrote });
        }
    }

    fn resize(&mut self, o: Object, version: u32, to: u64) {
        let from = self.size(o);
        if to < from {
            self.zero_range(o, version, to, from);
            // It goes at once, however many transactions the blocks take.
            self.files[o as usize].sizes.push(SizeVersion { version, from: to, to, wrote: None });
        } else if to > from {
            self.files[o as usize].sizes.push(SizeVersion { version, from: to, to, wrote: None });
        }
    }

    fn block_now(&self, o: Object, block: u64) -> Slice {
        let versions = self.files[o as usize].blocks.get(&block);
        let last = versions.and_then(|v| v.last());
        last.map_or_else(|| Slice::zero(self.block as u32), |v| v.data.clone())
    }

    fn set_block(&mut self, o: Object, block: u64, version: u32, data: Slice) {
        let id = data.id();
        self.owners.entry(id).or_insert((o, block, version));
        let versions = self.files[o as usize].blocks.entry(block).or_default();
        versions.push(BlockVersion { version, data, id });
    }

    fn write(&mut self, o: Object, version: u32, at: u64, data: &Slice) {
        let (end, bs) = (at + u64::from(data.len()), self.block);
        self.grow(o, version, end, Some((at, end)));
        for block in at / bs..end.div_ceil(bs) {
            let (from, to) = (at.max(block * bs), end.min((block + 1) * bs));
            let part = data.sub((from - at) as u32, (to - from) as u32);
            let new = match to - from == bs {
                true => part,
                false => {
                    let mut bytes = self.block_now(o, block).to_vec();
                    let off = (from - block * bs) as usize;
                    part.copy_to(&mut bytes[off..off + (to - from) as usize]);
                    Slice::from_bytes(&bytes)
                }
            };
            self.set_block(o, block, version, new);
        }
    }

    fn zero_range(&mut self, o: Object, version: u32, from: u64, to: u64) {
        let bs = self.block;
        let touched: Vec<u64> = match from < to {
            true => self.files[o as usize].blocks.range(from / bs..to.div_ceil(bs)),
            false => self.files[o as usize].blocks.range(0..0),
        }
        .map(|(b, _)| *b)
        .collect();
        for block in touched {
            let mut bytes = self.block_now(o, block).to_vec();
            let (a, b) = (from.max(block * bs), to.min((block + 1) * bs));
            bytes[(a - block * bs) as usize..(b - block * bs) as usize].fill(0);
            self.set_block(o, block, version, Slice::from_bytes(&bytes));
        }
    }
}
