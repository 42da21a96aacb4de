//! The side of the simulation: what the kernel asks for, as calls of a program.

mod attributes;
mod lists;
mod names;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wp_base::{FsError, FsResult, Time};
use wp_medium::Slice;
use wp_vfs::{
    AtomicWrite, Attr, AttrChange, DeviceNumber, DirEntry, FileType, Seek, StatFs, TimeSpec, Vfs,
};
use wp_workload::program::{Alloc, Call, Data, Flags, Player, Program, Step};

use crate::control::{Control, Lines};
use crate::nodes::{Nodes, ROOT};
use crate::recording::Recording;

/// Shorter pauses are the kernel's way from one request to the next, and not the program's.
const THINK: Duration = Duration::from_micros(100);

/// Has the drive do what a step of a program says about it. Errors: the step is about something
/// else.
pub type Obey = Rc<dyn Fn(&Step) -> bool>;

/// An open file of the kernel's.
struct Handle {
    /// Of which file.
    node: u64,
    /// Opened with `O_SYNC` or `O_DSYNC`.
    is_synced: bool,
    /// It was written since its last fsync: the kernel sends one of its own behind a write through
    /// the page cache (`generic_write_sync`), which has been done with the write.
    owes_sync: Cell<bool>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
}

/// Attributes that are to change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<When>,
    pub mtime: Option<When>,
}

/// A time that is set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    At(TimeSpec),
}

/// A mounted file system of ours with the kernel as its only process.
pub struct Live {
    vfs: Vfs,
    player: Player,
    nodes: RefCell<Nodes>,
    handles: RefCell<BTreeMap<u32, Handle>>,
    /// Directories that are being listed, by handle: what was there when they were opened.
    lists: RefCell<BTreeMap<u64, Vec<(u64, DirEntry)>>>,
    recording: RefCell<Recording>,
    records: bool,
    /// Name of the task whose request is done.
    task: RefCell<Rc<str>>,
    /// What has come of a line that is not whole.
    acks: RefCell<Lines>,
    faults: RefCell<Lines>,
    /// `None`: the drive does not fail.
    obey: Option<Obey>,
    epoch_secs: i64,
    /// When the last request was answered.
    answered: Cell<Option<Instant>>,
    /// How long nothing was asked for since the last call that is kept.
    idle: Cell<Duration>,
}

impl Live {
    /// Files of `vfs`, whose calendar begins `epoch_secs` seconds after 1970; with `records` all
    /// calls are kept.
    pub fn new(vfs: Vfs, epoch_secs: i64, records: bool) -> Live {
        let root = vfs.fs().root();
        Live {
            player: Player::new(vfs.clone()),
            vfs,
            nodes: RefCell::new(Nodes::new(root)),
            handles: RefCell::default(),
            lists: RefCell::default(),
            recording: RefCell::default(),
            records,
            task: RefCell::new("".into()),
            acks: RefCell::default(),
            faults: RefCell::default(),
            obey: None,
            epoch_secs,
            answered: Cell::new(None),
            idle: Cell::default(),
        }
    }

    /// Its drive can be told to fail.
    pub fn with_faults(self, obey: Obey) -> Live {
        Live { obey: Some(obey), ..self }
    }

    /// The file of a name in a directory that is no file of the file system.
    fn control(&self, dir: u64, name: &[u8]) -> Option<Control> {
        let found = Control::named(name).filter(|_| dir == ROOT)?;
        (found == Control::Ack || self.obey.is_some()).then_some(found)
    }

    /// The program has ended: what was recorded.
    pub fn end(&self) -> Recording {
        let rest = self.acks.take().rest();
        if let Some(line) = rest {
            self.acknowledge(&line);
        }
        self.recording.take()
    }

    /// The next request is this task's.
    pub(crate) fn set_task(&self, name: &Rc<str>) {
        *self.task.borrow_mut() = name.clone();
    }

    /// A request has come: what passed since the last answer is the program's time.
    pub(crate) fn asked(&self) {
        let idle = self.answered.take().map(|at| at.elapsed()).filter(|idle| *idle >= THINK);
        self.idle.set(self.idle.get() + idle.unwrap_or_default());
    }

    /// A request has been answered.
    pub(crate) fn answered(&self) {
        #[expect(clippy::disallowed_methods, reason = "programs of the host think in its time")]
        self.answered.set(Some(Instant::now()));
    }

    /// Calls so far, and lines that were acknowledged.
    pub fn progress(&self) -> (u64, u64) {
        let recording = self.recording.borrow();
        (recording.calls(), recording.acknowledged())
    }

    /// Makes a call.
    async fn call(&self, call: Call) -> FsResult<()> {
        let done = self.player.call(&call).await;
        self.note(call, done.as_ref().err());
        done
    }

    fn note(&self, call: Call, error: Option<&FsError>) {
        let task = self.task.borrow().clone();
        let idle = self.idle.take().as_micros();
        if self.records && idle > 0 {
            let us = u64::try_from(idle).unwrap_or(u64::MAX);
            self.recording.borrow_mut().step(Step::Think(us));
        }
        self.recording.borrow_mut().push(&task, call, error, self.records);
    }

    fn acknowledge(&self, line: &[u8]) {
        self.note(Call::Ack(Data::given(line)), None);
    }

    fn path(&self, node: u64) -> FsResult<String> {
        self.nodes.borrow().path(node)
    }

    fn path_in(&self, dir: u64, name: &[u8]) -> FsResult<String> {
        if self.control(dir, name).is_some() {
            return Err(FsError::NotPermitted);
        }
        self.nodes.borrow().path_in(dir, name)
    }

    fn now(&self) -> TimeSpec {
        let Time(ns) = self.vfs.rt().now();
        let secs = self.epoch_secs + (ns / 1_000_000_000) as i64;
        TimeSpec { secs, nanos: (ns % 1_000_000_000) as u32 }
    }

    fn control_attr(&self, control: Control) -> Attr {
        let now = self.now();
        Attr {
            ino: wp_base::Ino(control.node()),
            kind: FileType::File,
            mode: 0o666,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            blocks_512: 0,
            device: DeviceNumber::default(),
            atime: now,
            mtime: now,
            ctime: now,
        }
    }

    pub(crate) async fn lookup(&self, dir: u64, name: &[u8]) -> FsResult<(u64, Attr)> {
        if let Some(control) = self.control(dir, name) {
            return Ok((control.node(), self.control_attr(control)));
        }
        let fs = self.vfs.fs();
        let parent = self.nodes.borrow().ino(dir)?;
        let ino = fs.lookup(parent, name).await?;
        let attr = fs.attr(ino).await?;
        Ok((self.nodes.borrow_mut().tell(dir, name, ino), attr))
    }

    pub(crate) fn forget(&self, node: u64, times: u64) {
        self.nodes.borrow_mut().forget(node, times);
    }

    pub(crate) async fn attr(&self, node: u64) -> FsResult<Attr> {
        if let Some(control) = Control::of(node) {
            return Ok(self.control_attr(control));
        }
        let (ino, last) = {
            let nodes = self.nodes.borrow();
            (nodes.ino(node)?, nodes.last(node))
        };
        match last {
            // Nothing keeps it any more but the kernel's memory: fifos, and what `O_PATH` opened.
            Some(attr) if self.handles.borrow().values().all(|h| h.node != node) => Ok(attr),
            _ => self.vfs.fs().attr(ino).await,
        }
    }

    pub(crate) async fn set_attr(
        &self,
        node: u64,
        fd: Option<u32>,
        change: Change,
    ) -> FsResult<Attr> {
        if let Some(control) = Control::of(node) {
            return Ok(self.control_attr(control));
        }
        let now = self.attr(node).await?;
        if let Some(size) = change.size {
            match fd {
                Some(fd) => self.call(Call::Ftruncate(fd, size)).await?,
                None => self.call(Call::Truncate(self.path(node)?, size)).await?,
            }
        }
        let plain = AttrChange {
            size: None,
            mode: change.mode.map(|m| m & 0o7777),
            uid: change.uid,
            gid: change.gid,
            atime: change.atime.map(|t| self.at(t)),
            mtime: change.mtime.map(|t| self.at(t)),
        };
        let path = self.path(node);
        // Calls of programs follow links, and name files: what they cannot say is done all the
        // same, and not recorded.
        let Some(path) = path.ok().filter(|_| now.kind != FileType::Symlink) else {
            let ino = self.nodes.borrow().ino(node)?;
            self.vfs.fs().set_attr(ino, &plain).await?;
            return self.attr(node).await;
        };
        if plain.uid.is_some() || plain.gid.is_some() {
            let (uid, gid) = (plain.uid.unwrap_or(now.uid), plain.gid.unwrap_or(now.gid));
            self.call(Call::Chown(path.clone(), uid, gid)).await?;
        }
        if let Some(mode) = plain.mode {
            self.call(Call::Chmod(path.clone(), mode)).await?;
        }
        if plain.atime.is_some() || plain.mtime.is_some() {
            let times = (plain.atime.unwrap_or(now.atime), plain.mtime.unwrap_or(now.mtime));
            self.call(Call::Utimensat(path, times.0, times.1)).await?;
        }
        self.attr(node).await
    }

    fn at(&self, when: When) -> TimeSpec {
        match when {
            When::Now => self.now(),
            When::At(time) => time,
        }
    }

    /// A descriptor that is free.
    fn descriptor(&self) -> u32 {
        let handles = self.handles.borrow();
        (0..).find(|fd| !handles.contains_key(fd)).unwrap_or_default()
    }

    fn opened(&self, node: u64, fd: u32, how: Flags) {
        let is_synced = how.sync || how.dsync;
        let handle = Handle { node, is_synced, owes_sync: Cell::new(false) };
        self.handles.borrow_mut().insert(fd, handle);
    }

    pub(crate) async fn open(&self, node: u64, how: Flags) -> FsResult<u32> {
        let (fd, path) = (self.descriptor(), self.path(node)?);
        self.call(Call::Open(fd, path, how)).await?;
        self.opened(node, fd, how);
        Ok(fd)
    }

    pub(crate) async fn release(&self, fd: u32) -> FsResult<()> {
        if self.handles.borrow_mut().remove(&fd).is_none() {
            return Err(FsError::BadFile);
        }
        self.call(Call::Close(fd)).await
    }

    pub(crate) async fn read(&self, fd: u32, at: u64, len: u32) -> FsResult<Vec<u8>> {
        let read = self.player.read(fd, at, len).await?;
        Ok(read.iter().flat_map(Slice::to_vec).collect())
    }

    pub(crate) async fn write(
        &self,
        fd: u32,
        at: u64,
        bytes: &[u8],
        is_mapped: bool,
    ) -> FsResult<u32> {
        let (len, data) = (bytes.len() as u32, Data::written(bytes));
        if is_mapped {
            self.call(Call::MmapWrite { fd, len, at, data }).await?;
            return Ok(len);
        }
        if let Some(handle) = self.handles.borrow().get(&fd) {
            handle.owes_sync.set(handle.is_synced);
        }
        let wrote = self.player.write(fd, at, &data.slices(at, len), false).await;
        let call = Call::Pwrite { fd, len, at, data, atomic: false };
        self.note(call, wrote.as_ref().err());
        Ok(wrote? as u32)
    }

    /// Takes what was written to a control file. Errors: a line that says nothing about the drive.
    pub(crate) fn told(&self, control: Control, bytes: &[u8]) -> FsResult<()> {
        match control {
            Control::Ack => {
                for line in self.acks.borrow_mut().take(bytes) {
                    self.acknowledge(&line);
                }
            }
            Control::Fault => {
                for line in self.faults.borrow_mut().take(bytes) {
                    self.fault(&line)?;
                }
            }
        }
        Ok(())
    }

    /// The drive fails from here on as the line says, or no more.
    fn fault(&self, line: &[u8]) -> FsResult<()> {
        const WRONG: FsError = FsError::Invalid("a line that is no fail, slow, tear or heal");
        let text = std::str::from_utf8(line).map_err(|_| WRONG)?;
        let program = Program::parse(text).map_err(|_| WRONG)?;
        for step in program.0 {
            if !self.obey.as_ref().is_some_and(|obey| obey(&step)) {
                return Err(WRONG);
            }
            self.recording.borrow_mut().step(step);
        }
        Ok(())
    }

    pub(crate) async fn fsync(&self, fd: u32, data_only: bool) -> FsResult<()> {
        if self.handles.borrow().get(&fd).is_some_and(|h| h.owes_sync.replace(false)) {
            return Ok(());
        }
        self.call(if data_only { Call::Fdatasync(fd) } else { Call::Fsync(fd) }).await
    }

    pub(crate) async fn atomic_write(&self, fd: u32, what: AtomicWrite) -> FsResult<()> {
        self.call(Call::Atomic(fd, what)).await
    }

    pub(crate) async fn allocate(&self, fd: u32, mode: i32, at: u64, len: u64) -> FsResult<()> {
        const KEEP: i32 = 1;
        let how = match mode {
            0 => Alloc::Extend,
            KEEP => Alloc::Keep,
            // FALLOC_FL_PUNCH_HOLE, ZERO_RANGE, COLLAPSE_RANGE, INSERT_RANGE
            0x03 => Alloc::Punch,
            0x10 => Alloc::Zero,
            0x11 => Alloc::ZeroKeep,
            0x08 => Alloc::Collapse,
            0x20 => Alloc::Insert,
            _ => return Err(FsError::NotInKernel),
        };
        self.call(Call::Fallocate(fd, how, at, len)).await
    }

    pub(crate) async fn seek(&self, fd: u32, at: u64, what: Seek) -> FsResult<u64> {
        self.player.seek(&Call::Seek(fd, what, at)).await
    }

    pub(crate) async fn copy(&self, from: (u32, u64), to: (u32, u64), len: u64) -> FsResult<u32> {
        // As much as one call of a program copies.
        let len = len.min(1 << 30);
        let call =
            Call::CopyFileRange { from: from.0, from_at: from.1, to: to.0, to_at: to.1, len };
        let copied = self.player.copy(&call).await;
        self.note(call, copied.as_ref().err());
        Ok(copied? as u32)
    }

    pub(crate) async fn stat_fs(&self) -> FsResult<StatFs> {
        self.vfs.stat_fs().await
    }
}
