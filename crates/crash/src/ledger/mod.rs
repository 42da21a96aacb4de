//! The ledger: every version of every file and of the tree of names, by operation.
//!
//! Versions are numbered by the operation that made them; what was there before the program is
//! version 0, operation `n` makes version `n + 1`. Of operations that overlapped, in threads, one
//! ledger has one order; it knows the others ([`overlap`]).

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::FsError;
use wp_medium::Slice;
use wp_vfs::FileType;
use wp_workload::program::Call;

use crate::paths::{Follow, ROOT_PATH};

mod atomic;
mod calls;
mod checkpoints;
mod contents;
mod did;
mod life;
mod named;
mod overlap;
mod subvolumes;
mod trees;

pub(crate) use atomic::{AtomicWrites, Commit};
pub(crate) use checkpoints::Checkpoints;
pub use did::{Before, Did};
use life::XattrVersion;
pub(crate) use life::{BlockVersion, FileLife, SizeVersion};

use overlap::{Loose, Order};
pub use overlap::{Overlaps, Used};

/// Number of a file, directory or link: no two in a run have the same.
pub type Object = u32;

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
    /// The file has this name of [`Ledger::marks`].
    Name { object: Object, mark: u32 },
}

/// Why somebody relies on a promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Basis {
    /// The call that returned makes it.
    Call,
    /// `fsync` or `fdatasync` returned.
    Sync,
    /// Nobody made it: an atomic write was committed.
    Commit,
    /// `fbarrier` or `fdatabarrier` returned: it is kept where something is there of what was
    /// called after that.
    Order,
    /// Nobody made it: an `O_DIRECT` write without fsync.
    Direct,
    /// Nobody made it: the program told the world of a name.
    Mark,
    /// Nobody made it: fsync answered 0, and this is what a read showed.
    Read,
    /// The file is new, and fdatasync returned: ext4's.
    New,
    /// `fallocate` through a synchronous descriptor asked for space up to a byte, and so much
    /// length is there: ext4's.
    Reserved,
}

/// A promise, made when the operation returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// The operation; `None`: it holds from the beginning.
    pub operation: Option<u32>,
    /// Versions up to this one (inclusive) are covered.
    pub covers: u32,
    /// Of what.
    pub scope: Scope,
    /// Who made it.
    pub basis: Basis,
    /// Of a directory: of its own attributes too, as fsync has it and fdatasync has not.
    pub is_full: bool,
    /// Where the device has failed: only of versions after this is it due, because the open file
    /// was there then and has not been told of a failure since.
    pub since_own: u32,
    /// The same if it is enough that any open file was told.
    pub since_any: u32,
}

impl Promise {
    /// The version that its operation made; 0: it holds from the beginning.
    pub fn version(&self) -> u32 {
        self.operation.map_or(0, |n| n + 1)
    }
}

/// A file that took the name of another, or was cut to nothing and written anew.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// Version.
    pub version: u32,
    /// The name.
    pub path: String,
    /// Who has it now.
    pub object: Object,
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
    /// The same by name; made when somebody asks.
    by_name: OnceCell<named::ByName>,
    pub(crate) promises: Vec<Promise>,
    pub(crate) replacements: Vec<Replacement>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) atomic: AtomicWrites,
    /// Names that the program told of.
    pub(crate) marks: Vec<String>,
    /// Calls that named a directory which recovery does not list: see [`Ledger::hidden`].
    hidden: Option<u32>,
    /// Calls of `mark` for which there was no such name.
    vain_marks: Vec<u32>,
    /// Reads that found something older than the read before: operation, path, offset, words.
    pub(crate) stale_reads: Vec<(u32, String, u64, String)>,
    /// The device failed requests of the run.
    pub(crate) failed: bool,
    /// The operation whose return says that the file system, stopped for an error, left word of it.
    pub(crate) error_recorded_on_disk: Option<u32>,
    /// Inode -> objects that had it.
    pub(crate) by_ino: BTreeMap<u64, Vec<Object>>,
    /// Contents of whole blocks -> whose they are: object, block, version.
    pub(crate) owners: BTreeMap<u128, (Object, u64, u32)>,
    pub(crate) zero: u128,
    /// What each operation was, as text, in their order here.
    pub(crate) texts: Vec<String>,
    /// What made version 0.
    first_words: &'static str,
    /// In which order the operations are here.
    pub(crate) order: Order,
    /// Does everything that the calls answered fit this order?
    fits: bool,
    /// The run, and other orders that its calls can have had.
    others: Option<Rc<overlap::Others>>,
}

/// An open descriptor.
#[derive(Clone, Copy)]
struct Open {
    object: Object,
    synced: bool,
    /// Writes go to the end, wherever they ask for.
    append: bool,
    direct: bool,
    /// Version at which it was opened, or was last told of a failure.
    since: u32,
    /// The same of failures that `syncfs` tells.
    since_fs: u32,
    /// It cut a file whose contents were durable.
    replaces: bool,
}

/// A write that was submitted and whose end the program does not know.
struct InFlight {
    operation: u32,
    /// As it was opened.
    open: Open,
    at: u64,
    data: Slice,
    /// Another call changed the same bytes meanwhile, or the file's length: nobody knows which of
    /// both was later.
    is_raced: bool,
}

/// What is followed while operations are gone through.
#[derive(Default)]
struct Walk {
    open: BTreeMap<u32, Open>,
    /// Asynchronous writes.
    in_flight: Vec<InFlight>,
    /// Version at which any open file of the object was last told of a failure.
    told: BTreeMap<Object, u32>,
    /// Version that the last read of a block showed.
    seen: BTreeMap<(Object, u64), u32>,
    /// Version of the last fsync that answered 0.
    synced: BTreeMap<Object, u32>,
    /// Does the operation write beside another one that writes the same bytes, so that of each
    /// block either may be the later one?
    is_mixed: bool,
}

impl InFlight {
    /// Does it write any of these bytes?
    fn touches(&self, object: Object, (from, to): (u64, u64)) -> bool {
        let end = self.at + u64::from(self.data.len());
        self.open.object == object && from < end && self.at < to
    }
}

impl Walk {
    /// Is another write to these bytes on its way?
    fn is_raced(&self, object: Object, range: (u64, u64)) -> bool {
        self.is_mixed || self.in_flight.iter().any(|w| w.touches(object, range))
    }

    /// A call that changes a file beside asynchronous writes to it.
    fn race(&mut self, call: &Call) {
        let (Call::Pwrite { fd, .. }
        | Call::MmapWrite { fd, .. }
        | Call::CopyFileRange { to: fd, .. }
        | Call::Reflink { to: fd, .. }
        | Call::Ftruncate(fd, _)
        | Call::Fallocate(fd, ..)) = call
        else {
            return;
        };
        let object = self.open.get(fd).map(|o| o.object);
        let beside = self.in_flight.iter_mut().filter(|w| Some(w.open.object) == object);
        beside.for_each(|w| w.is_raced = true);
    }
}

/// `S_ISGID`.
const SET_GROUP: u32 = 0o2000;
/// Object of the root directory.
pub(crate) const ROOT: Object = 0;
/// The directory in the root that surveys leave out.
const LOST_FOUND: &str = "lost+found";

impl Ledger {
    /// Of a program, with what each of its operations did, on a file system with blocks of `block`
    /// bytes whose tree was empty.
    pub fn new(operations: &[Did], block: u32) -> Ledger {
        Ledger::after(&[], operations, block)
    }

    /// The same on a file system with these files, all of which are durable.
    pub fn after(before: &[Before], operations: &[Did], block: u32) -> Ledger {
        let one_by_one = Overlaps::none(operations.len());
        let as_called = (0..operations.len() as u32).collect();
        Ledger::in_order(before, operations, block, (Order::new(as_called, &one_by_one), None))
    }

    /// The operations in this order, of several that they can have had if some are `loose`.
    fn in_order(
        before: &[Before],
        operations: &[Did],
        block: u32,
        (order, loose): (Order, Option<&Loose>),
    ) -> Ledger {
        let root = FileLife::new(FileType::Dir, None, Vec::new());
        let mut ledger = Ledger {
            block: u64::from(block),
            files: vec![root],
            names: vec![Rc::new(Names::new())],
            by_name: OnceCell::new(),
            promises: Vec::new(),
            replacements: Vec::new(),
            checkpoints: Checkpoints::default(),
            atomic: AtomicWrites::default(),
            marks: Vec::new(),
            hidden: None,
            vain_marks: Vec::new(),
            stale_reads: Vec::new(),
            failed: false,
            error_recorded_on_disk: None,
            by_ino: BTreeMap::new(),
            owners: BTreeMap::new(),
            zero: Slice::zero(block).id(),
            first_words: "before the program",
            texts: order.of(operations).map(Did::text).collect(),
            order,
            fits: true,
            others: None,
        };
        if !before.is_empty() {
            ledger.first_words = "what recovery left";
            before.iter().for_each(|file| ledger.begin_with(file));
            let (covers, scope, basis, is_full) = (0, Scope::All, Basis::Call, true);
            let (operation, since_own, since_any) = (None, 0, 0);
            let kept = Promise { operation, covers, scope, basis, is_full, since_own, since_any };
            ledger.promises.push(kept);
        }
        let mut walk = Walk::default();
        for (n, number) in ledger.order.operations.clone().into_iter().enumerate() {
            let did = &operations[number as usize];
            let is_void = loose.is_some_and(|loose| loose.void.contains(&number));
            walk.is_mixed = loose.is_some_and(|loose| loose.mixed.contains(&number));
            if loose.is_some() && !is_void {
                ledger.fits = ledger.fits && ledger.agrees(did, &walk);
            }
            let last = ledger.names.len() - 1;
            let names = ledger.names[last].clone();
            ledger.names.push(names);
            if is_void {
                continue;
            }
            match &did.error {
                None => ledger.operation(n as u32, did, &mut walk),
                Some(FsError::Io | FsError::ReadOnly) => ledger.failure(n as u32, did, &mut walk),
                Some(FsError::NoSpace) => ledger.partly(n as u32, did, &walk),
                Some(_) => {}
            }
            ledger.atomic_call(n as u32, did, &walk);
        }
        ledger
    }

    /// A file of the beginning.
    fn begin_with(&mut self, file: &Before) {
        if file.path == ROOT_PATH {
            let life = &mut self.files[ROOT as usize];
            life.modes = vec![(0, file.stat.mode)];
            life.owners = vec![(0, file.stat.owner)];
            life.flags = vec![(0, Some(file.stat.flags))];
            return;
        }
        let known = self.by_ino.get(&file.ino).and_then(|all| all.first()).copied();
        if let Some(object) = known.filter(|_| file.kind != FileType::Dir) {
            self.names_now().insert(file.path.clone(), object);
            return;
        }
        let object = self.make(0, &file.path, file.kind, Some(file.ino));
        let life = &mut self.files[object as usize];
        life.modes = vec![(0, file.stat.mode)];
        life.owners = vec![(0, file.stat.owner)];
        life.mtimes = vec![(0, Some(file.stat.mtime))];
        life.flags = vec![(0, Some(file.stat.flags))];
        life.device = file.stat.device;
        life.subvolume = file.subvolume;
        life.target.clone_from(&file.target);
        let value = |v: &Vec<u8>| vec![XattrVersion { version: 0, value: Some(v.clone()) }];
        life.xattrs = file.xattrs.iter().map(|(n, v)| (n.clone(), value(v))).collect();
        if file.kind != FileType::File {
            return;
        }
        for (at, data) in &file.data {
            self.write(object, 0, *at, std::slice::from_ref(data), false);
        }
        let (from, to) = (file.size, file.size);
        let sized = SizeVersion { version: 0, from, to, wrote: None, maybe: false };
        self.files[object as usize].sizes = vec![sized];
        self.files[object as usize].mtimes = vec![(0, Some(file.stat.mtime))];
    }

    /// Says that the file system had stopped for an error and left word of that, once operation
    /// `operation` has returned.
    pub fn set_error_recorded_on_disk(&mut self, operation: u32) {
        self.error_recorded_on_disk = Some(operation);
    }

    /// Says that the device failed requests of the run: what calls promise is then judged by whom
    /// they told of it ([`crate::Rule::Errors`]).
    pub fn set_failed(&mut self) {
        self.failed = true;
    }

    /// The first operation that used `lost+found`. It belongs to fsck, and no recovery lists what
    /// is in it, so nothing can be said of such a program.
    pub fn hidden(&self) -> Option<u32> {
        self.hidden.map(|n| self.order.number(n))
    }

    /// Operations that marked a name which was not there.
    pub fn vain_marks(&self) -> Vec<u32> {
        self.vain_marks.iter().map(|n| self.order.number(*n)).collect()
    }

    /// Where the symbolic link `path` points; `None`: it is none.
    pub(crate) fn link_target(&self, path: &str) -> Option<&str> {
        self.at(path).and_then(|o| self.files[o as usize].target.as_deref())
    }

    /// [`Ledger::resolve`] of a path of operation `n`.
    fn name(&mut self, n: u32, path: &str, follow: Follow) -> String {
        let name = self.resolve(path, follow);
        if name.split('/').next() == Some(LOST_FOUND) {
            self.hidden.get_or_insert(n);
        }
        name
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block
    }

    /// An operation as text, by its number in the order in which they were called.
    pub fn called(&self, number: u32) -> &str {
        self.order.version(number).map_or("", |version| self.text(version))
    }

    /// What made a version, as text.
    pub fn text(&self, version: u32) -> &str {
        match version {
            0 => self.first_words,
            v => self.texts.get(v as usize - 1).map_or("", String::as_str),
        }
    }

    /// Operations that made the files that had `path` at some time.
    pub fn makers(&self, path: &str) -> BTreeSet<u32> {
        let objects = self.names.iter().filter_map(|n| n.get(path));
        let first = |o: &Object| self.files[*o as usize].sizes.first().map_or(0, |s| s.version);
        objects.map(first).filter(|v| *v > 0).map(|v| self.order.number(v - 1)).collect()
    }

    /// All paths at some time of the files that the operations `makers` made.
    pub fn paths(&self, makers: &BTreeSet<u32>) -> BTreeSet<String> {
        let made = |o: &Object| {
            let first = self.files[*o as usize].sizes.first();
            first.is_some_and(|s| {
                s.version > 0 && makers.contains(&self.order.number(s.version - 1))
            })
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
        if path == ROOT_PATH {
            return Some(ROOT);
        }
        self.names.last().and_then(|n| n.get(path)).copied()
    }

    fn make(&mut self, version: u32, path: &str, kind: FileType, ino: Option<u64>) -> Object {
        let object = self.make_unnamed(version, kind, ino);
        let dir = path.rsplit_once('/').map_or(ROOT_PATH, |(dir, _)| dir);
        self.inherits(object, self.at(dir));
        self.names_now().insert(path.to_owned(), object);
        object
    }

    /// In a set-group-ID directory what is made has its group, and a directory the bit too
    /// (`inode_init_owner`).
    fn inherits(&mut self, object: Object, dir: Option<Object>) {
        let Some(dir) = dir.map(|dir| &self.files[dir as usize]) else { return };
        let mode = dir.modes.last().map_or(0, |(_, mode)| *mode);
        let group = dir.owners.last().map_or(0, |(_, owner)| owner.1);
        if mode & SET_GROUP == 0 {
            return;
        }
        let life = &mut self.files[object as usize];
        life.owners.iter_mut().for_each(|(_, owner)| owner.1 = group);
        if life.kind == FileType::Dir {
            life.modes.iter_mut().for_each(|(_, mode)| *mode |= SET_GROUP);
        }
    }

    /// With these permission bits and not those that most programs give.
    fn made_with(&mut self, object: Object, mode: Option<u16>) {
        if let Some(mode) = mode {
            let life = &mut self.files[object as usize];
            life.modes.iter_mut().for_each(|(_, now)| *now = u32::from(mode));
        }
    }

    fn make_unnamed(&mut self, version: u32, kind: FileType, ino: Option<u64>) -> Object {
        let object = self.files.len() as Object;
        let sizes = vec![SizeVersion { version, from: 0, to: 0, wrote: None, maybe: false }];
        self.files.push(FileLife::new(kind, ino, sizes));
        if let Some(ino) = ino {
            self.by_ino.entry(ino).or_default().push(object);
        }
        object
    }

    fn promise(&mut self, operation: u32, scope: Scope, basis: Basis, since: (u32, u32)) {
        let (covers, (since_own, since_any)) = (operation + 1, since);
        let operation = Some(operation);
        let moved = match scope {
            Scope::File { object, .. } => &mut self.files[object as usize..=object as usize],
            Scope::All => &mut self.files[..],
            _ => &mut [],
        };
        if !matches!(basis, Basis::Order | Basis::Commit) {
            moved.iter_mut().for_each(|life| life.shifts.clear());
        }
        let is_full = true;
        let promise = Promise { operation, covers, scope, basis, is_full, since_own, since_any };
        self.promises.push(promise);
    }

    fn scope_of(&self, object: Object, names: bool) -> Scope {
        match self.files[object as usize].kind {
            FileType::Dir => Scope::Dir(object),
            _ => Scope::File { object, names },
        }
    }

    fn set_xattr(&mut self, version: u32, path: &str, name: &str, value: Option<Vec<u8>>) {
        let Some(object) = self.at(path) else { return };
        let versions = self.files[object as usize].xattrs.entry(name.to_owned()).or_default();
        versions.push(XattrVersion { version, value });
    }

    /// Has a sync promised some contents of the file, of which it has had some ever since?
    fn is_kept(&self, object: Object) -> bool {
        let sizes = &self.files[object as usize].sizes;
        let mut durable =
            self.promises.iter().rev().filter(|p| !matches!(p.basis, Basis::Order | Basis::Commit));
        let covers = durable.find_map(|p| match p.scope {
            Scope::File { object: o, .. } if o == object => Some(p.covers),
            Scope::All => Some(p.covers),
            _ => None,
        });
        let Some(covers) = covers else { return false };
        let then = sizes.iter().rev().find(|s| s.version <= covers);
        then.is_some_and(|s| s.to > 0)
            && sizes.iter().filter(|s| s.version > covers).all(|s| s.to > 0)
    }

    /// fdatasync of a file that the program made and that has the name it was made with.
    fn keeps_new(&mut self, n: u32, object: Object) {
        let life = &self.files[object as usize];
        let Some(born) = life.sizes.first().map(|s| s.version).filter(|v| *v > 0) else { return };
        let made = self.names.get(born as usize).unwrap_or(&self.names[self.names.len() - 1]);
        let path = made.iter().find(|(_, o)| **o == object).map(|(p, _)| p.clone());
        let Some(path) = path.filter(|p| self.at(p) == Some(object)) else { return };
        let scope = Scope::Name { object, mark: self.marks.len() as u32 };
        self.marks.push(path);
        self.promise(n, scope, Basis::New, (0, 0));
    }

    /// A read showed version `v` of a block, and fsync has said that all is well.
    fn relies(&mut self, n: u32, object: Object, block: u64, v: u32) {
        let scope = Scope::Range { object, from: block * self.block, to: (block + 1) * self.block };
        if v > 0 {
            self.promise(n, scope, Basis::Read, (0, 0));
            if let Some(p) = self.promises.last_mut() {
                p.covers = v;
            }
        }
    }

    /// What a read showed, block by block.
    fn looked(&mut self, n: u32, object: Object, at: u64, read: &[Slice], walk: &mut Walk) {
        let whole = |s: &&Slice| u64::from(s.len()) == self.block;
        if !at.is_multiple_of(self.block) || !read.iter().all(|s| whole(&s)) {
            return;
        }
        let synced = walk.synced.get(&object).copied().unwrap_or(0);
        for (block, slice) in (at / self.block..).zip(read) {
            let id = slice.id();
            let versions = self.files[object as usize].blocks.get(&block);
            let known = versions.and_then(|v| v.iter().rev().find(|v| v.id == id));
            let now = known.map_or(0, |v| v.version);
            let before = walk.seen.insert((object, block), now).unwrap_or(0);
            if now < before {
                let path = self.names.last().and_then(|names| {
                    names.iter().find(|(_, o)| **o == object).map(|(p, _)| p.clone())
                });
                let words = format!("`{}`, then `{}`", self.text(before), self.text(now));
                self.stale_reads.push((n, path.unwrap_or_default(), block * self.block, words));
            }
            if now > 0 && now <= synced {
                self.relies(n, object, block, now);
            }
        }
    }
}
