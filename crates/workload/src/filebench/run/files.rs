//! Flowops on files and directories.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_rt::{Completion, Join, WaitQueue};
use wp_vfs::{Advice, Fd, OpenFlags};

use super::super::fileset::{Files, Group, Picked, Want};
use super::super::model::Flowop;
use super::thread::{FDS, Open, Stop, Thread};

/// Bytes of a directory entry in C's library, without its name.
const DIRENT_BYTES: u64 = 279;
/// More writes than this are never out at once.
const AIO_MAX: usize = 4096;
/// Most bytes of one call.
const CALL_MAX: u64 = 1 << 30;

/// A write that a thread does not wait for.
pub(super) struct Aio {
    fd: Fd,
    done: Rc<Completion>,
    pub(super) task: Join<FsResult<()>>,
}

fn invalid(why: &'static str) -> Stop {
    Stop::Fs(FsError::Invalid(why))
}

impl Thread {
    /// Which of the thread's descriptors a flowop means.
    pub(super) fn descriptor(&mut self, f: &Flowop) -> Result<usize, Stop> {
        if f.fd > 0 || !f.opennext {
            let fd = f.fd as usize;
            return if fd < FDS { Ok(fd) } else { Err(invalid("filebench: `fd` is above 128")) };
        }
        // From the highest down, and again.
        if self.fd_rotor == 0 {
            self.fd_rotor = FDS - 1;
        }
        self.fd_rotor -= 1;
        Ok(self.fd_rotor)
    }

    fn fileset(f: &Flowop) -> Result<usize, Stop> {
        f.fileset.ok_or(invalid("filebench: a flowop has no fileset and no open file"))
    }

    /// Picks, and waits where filebench does.
    async fn pick(
        &self,
        set: usize,
        ask: impl Fn(&mut Files) -> Picked,
        idlers: impl Fn(&Files) -> Rc<WaitQueue>,
    ) -> Result<usize, Stop> {
        loop {
            let picked = ask(&mut self.shared.sets[set].borrow_mut());
            match picked {
                Picked::Entry(i) => return Ok(i),
                Picked::Nothing => return Err(Stop::NoMore),
                Picked::Wait => {
                    let queue = idlers(&self.shared.sets[set].borrow());
                    if !self.shared.wait(&queue).await {
                        return Err(Stop::Over);
                    }
                }
            }
        }
    }

    async fn pick_file(&self, set: usize, f: &Flowop, want: Want) -> Result<usize, Stop> {
        let entries = self.shared.sets[set].borrow().files.len().max(1) as u64;
        let index = f.indexed.map(|n| self.draw(n) % entries);
        let rotor = match want {
            Want::Existing if f.opennext => self.number + 1,
            _ => 0,
        };
        let ask =
            |files: &mut Files| files.files.pick(want, rotor, index, &mut self.chance.borrow_mut());
        self.pick(set, ask, |files| files.files.idlers.clone()).await
    }

    fn flags(&self, set: usize, f: &Flowop) -> OpenFlags {
        let write = !self.shared.sets[set].borrow().spec.readonly;
        OpenFlags { write, direct: f.directio, sync: f.dsync, ..OpenFlags::READ }
    }

    /// Opens a file that is there on a descriptor, and counts that as flowop `i`.
    pub(super) async fn open_existing(
        &mut self,
        i: usize,
        f: &Flowop,
        fd: usize,
    ) -> Result<(), Stop> {
        let set = Thread::fileset(f)?;
        if self.fds[fd].open.is_some() {
            return Err(invalid("filebench: a file is opened while one is open"));
        }
        let file = self.pick_file(set, f, Want::Existing).await?;
        self.fds[fd].file = Some((set, file));
        let from = self.now();
        let path = self.shared.sets[set].borrow().files.path(file).to_owned();
        let opened = self.vfs.open(&path, self.flags(set, f), 0o666).await;
        if let (Ok(fd), true) = (&opened, f.noreadahead) {
            self.vfs.fadvise(*fd, Advice::Random).await?;
        }
        self.opened(set, file, fd, opened, None)?;
        self.count(i, from, 0);
        Ok(())
    }

    fn opened(
        &mut self,
        set: usize,
        file: usize,
        fd: usize,
        opened: FsResult<Fd>,
        ring: Option<Want>,
    ) -> Result<(), Stop> {
        let mut files = self.shared.sets[set].borrow_mut();
        match opened {
            Ok(ours) => {
                files.files.release(file, ring, 1);
                self.fds[fd].open = Some(Open { fd: ours, at: 0 });
                Ok(())
            }
            Err(e) => {
                files.files.release(file, None, 0);
                Err(e.into())
            }
        }
    }

    pub(super) async fn create(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let fd = self.descriptor(f)?;
        if self.fds[fd].open.is_some() {
            return Err(invalid("filebench: a file is created while one is open"));
        }
        let set = Thread::fileset(f)?;
        let file = self.pick_file(set, f, Want::Missing).await?;
        self.fds[fd].file = Some((set, file));
        let from = self.now();
        let (path, dir) = {
            let files = self.shared.sets[set].borrow();
            (files.files.path(file).to_owned(), files.dirs[files.files.dir(file)].clone())
        };
        let flags = OpenFlags { create: true, ..self.flags(set, f) };
        // Is its directory there?
        let opened = match self.vfs.stat(&dir).await {
            Ok(_) => self.vfs.open(&path, flags, 0o666).await,
            Err(e) => Err(e),
        };
        self.opened(set, file, fd, opened, Some(Want::Existing))?;
        self.count(i, from, 0);
        Ok(())
    }

    /// Waits until nobody else is at a file.
    async fn wait_for(&self, set: usize, file: usize) -> Result<(), Stop> {
        loop {
            let queue = {
                let files = self.shared.sets[set].borrow();
                if !files.files.is_busy(file) {
                    return Ok(());
                }
                files.files.waiters.clone()
            };
            if !self.shared.wait(&queue).await {
                return Err(Stop::Over);
            }
        }
    }

    pub(super) async fn close(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let fd = self.descriptor(f)?;
        let slot = self.fds[fd];
        let Some(open) = slot.open else {
            return Err(invalid("filebench: closefile without an open file"));
        };
        let Some((set, file)) = slot.file else {
            return Err(invalid("filebench: closefile of a file that was deleted by `fd`"));
        };
        self.wait_for(set, file).await?;
        self.shared.sets[set].borrow_mut().files.hold_to_close(file);
        let from = self.now();
        let closed = self.vfs.close(open.fd).await;
        self.fds[fd].open = None;
        self.shared.sets[set].borrow_mut().files.release(file, None, -1);
        closed?;
        self.count(i, from, 0);
        Ok(())
    }

    pub(super) async fn delete(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let fd = self.descriptor(f)?;
        let given = if fd > 0 { self.fds[fd].file.take() } else { None };
        let (set, file) = match given {
            Some((set, file)) => {
                self.wait_for(set, file).await?;
                self.shared.sets[set].borrow_mut().files.hold(file);
                (set, file)
            }
            None => {
                let set = Thread::fileset(f)?;
                (set, self.pick_file(set, f, Want::Existing).await?)
            }
        };
        // Its own descriptor may be open.
        let mine = i64::from(fd > 0 && self.fds[fd].open.is_some());
        let (path, opens) = {
            let mut files = self.shared.sets[set].borrow_mut();
            let opens = files.files.opens(file);
            if opens > mine {
                files.files.release(file, None, 0);
                return Ok(());
            }
            (files.files.path(file).to_owned(), opens)
        };
        let from = self.now();
        let unlinked = self.vfs.unlink(&path).await;
        self.count(i, from, 0);
        self.shared.sets[set].borrow_mut().files.release(file, Some(Want::Missing), -opens);
        match unlinked {
            // filebench does not look.
            Ok(()) | Err(FsError::NotFound) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) async fn stat(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let fd = self.descriptor(f)?;
        if fd > 0
            && let Some(open) = self.fds[fd].open
        {
            let from = self.now();
            self.vfs.fstat(open.fd).await?;
            self.count(i, from, 0);
            return Ok(());
        }
        let set = Thread::fileset(f)?;
        let file = self.pick_file(set, f, Want::Existing).await?;
        let path = self.shared.sets[set].borrow().files.path(file).to_owned();
        let from = self.now();
        let found = self.vfs.stat(&path).await;
        self.count(i, from, 0);
        self.shared.sets[set].borrow_mut().files.release(file, None, 0);
        match found {
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The descriptor of a flowop that reads or writes; opens a file where none is open.
    async fn set_up(&mut self, i: usize, f: &Flowop) -> Result<usize, Stop> {
        let fd = self.descriptor(f)?;
        if let (Some((set, _)), Some(named)) = (self.fds[fd].file, f.fileset)
            && fd > 0
            && set != named
        {
            return Err(invalid("filebench: a flowop names another fileset than its `fd` has"));
        }
        if self.fds[fd].open.is_none() {
            self.open_existing(i, f, fd).await?;
        }
        Ok(fd)
    }

    /// Where in its memory a thread reads or writes: a number drawn, and of no consequence.
    fn buffer(&self, f: &Flowop, bytes: u64) -> Result<(), Stop> {
        if bytes == 0 {
            return Err(invalid("filebench: a read or write of iosize 0"));
        }
        if bytes > CALL_MAX {
            return Err(invalid("filebench: a read or write of more than 1 GiB"));
        }
        let bytes = bytes + if f.directio { 512 } else { 0 };
        if self.memory == 0 {
            return Ok(());
        }
        if self.memory < bytes {
            return Err(invalid("filebench: a thread's `memsize` is below an `iosize`"));
        }
        self.chance.borrow_mut().below(self.memory, bytes);
        Ok(())
    }

    /// Bytes of the file that are used.
    fn working_set(&self, i: usize, fd: usize) -> u64 {
        match (self.own[i].workingset, self.fds[fd].file) {
            (0, Some((set, file))) => self.shared.sets[set].borrow().files.size(file),
            (n, _) => n,
        }
    }

    fn open_at(&self, fd: usize) -> Result<Open, Stop> {
        self.fds[fd].open.ok_or(Stop::Fs(FsError::BadFile))
    }

    fn seek(&mut self, fd: usize, at: u64) {
        if let Some(open) = &mut self.fds[fd].open {
            open.at = at;
        }
    }

    /// A random offset for `bytes` bytes.
    fn place(&self, used: u64, bytes: u64) -> Result<u64, Stop> {
        if used < bytes {
            return Err(invalid("filebench: a file is smaller than an `iosize`"));
        }
        Ok(self.chance.borrow_mut().below(used, bytes))
    }

    pub(super) async fn read(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let bytes = self.draw(f.iosize);
        let fd = self.set_up(i, f).await?;
        let used = self.working_set(i, fd);
        self.buffer(f, bytes)?;
        let open = self.open_at(fd)?;
        let at = if f.random { self.place(used, bytes)? } else { open.at };
        let from = self.now();
        let data = self.vfs.pread(open.fd, at, bytes).await?;
        let n: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        self.count(i, from, n);
        if n == 0 {
            self.seek(fd, 0);
        } else if !f.random {
            self.seek(fd, at + n);
        }
        Ok(())
    }

    pub(super) async fn write(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let bytes = self.draw(f.iosize);
        let fd = self.set_up(i, f).await?;
        let used = self.working_set(i, fd);
        self.buffer(f, bytes)?;
        let open = self.open_at(fd)?;
        let at = if f.random { self.place(used, bytes)? } else { open.at };
        let from = self.now();
        self.vfs.pwrite(open.fd, at, &[self.shared.contents(bytes)]).await?;
        self.count(i, from, bytes);
        if !f.random {
            self.seek(fd, at + bytes);
        }
        Ok(())
    }

    pub(super) async fn read_whole(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let fd = self.set_up(i, f).await?;
        let iosize = match self.draw(f.iosize) {
            0 => self.working_set(i, fd),
            n => n,
        };
        // A file of no bytes is read with a buffer of its own.
        if iosize > 0 {
            self.buffer(f, iosize)?;
        }
        let (open, from, mut at) = (self.open_at(fd)?, self.now(), 0);
        loop {
            let data = self.vfs.pread(open.fd, at, iosize).await?;
            let n: u64 = data.iter().map(|s| u64::from(s.len())).sum();
            if n == 0 {
                break;
            }
            at += n;
        }
        self.seek(fd, at);
        self.count(i, from, at);
        Ok(())
    }

    pub(super) async fn write_whole(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let fd = self.set_up(i, f).await?;
        let mut whole = self.working_set(i, fd);
        let iosize = match self.draw(f.iosize) {
            0 => whole,
            n => n,
        };
        if iosize > 0 {
            self.buffer(f, iosize)?;
        }
        let source = self.fds.get(f.srcfd as usize).and_then(|s| s.file);
        match source {
            Some((set, file)) => whole = self.shared.sets[set].borrow().files.size(file),
            None if f.srcfd > 0 => return Err(invalid("filebench: no file is open on `srcfd`")),
            None => {}
        }
        let open = self.open_at(fd)?;
        let (from, mut at) = (self.now(), open.at);
        // The length of each call is what was left before the last one: a file that is longer than
        // `iosize` and no multiple of it ends with a whole call too.
        let (mut done, mut size, mut bytes) = (0, whole.min(iosize), 0);
        while done < whole {
            at += self.vfs.pwrite(open.fd, at, &[self.shared.contents(size)]).await?;
            bytes += size;
            size = (whole - done).min(iosize);
            done += size;
        }
        self.seek(fd, at);
        self.count(i, from, bytes);
        Ok(())
    }

    pub(super) async fn append(&mut self, i: usize, f: &Flowop, bytes: u64) -> Result<(), Stop> {
        let fd = self.set_up(i, f).await?;
        self.buffer(f, bytes)?;
        let (open, from) = (self.open_at(fd)?, self.now());
        // Its end is asked for, as by lseek.
        let end = self.vfs.fstat(open.fd).await?.size;
        self.vfs.pwrite(open.fd, end, &[self.shared.contents(bytes)]).await?;
        self.seek(fd, end + bytes);
        self.count(i, from, bytes);
        Ok(())
    }

    /// Writes without waiting; those to one descriptor go one after the other, as in C's library.
    pub(super) async fn aio_write(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let bytes = self.draw(f.iosize);
        let fd = self.set_up(i, f).await?;
        let used = self.working_set(i, fd);
        self.buffer(f, bytes)?;
        if !f.random {
            return Err(invalid("filebench: aiowrite needs `random`"));
        }
        let (at, open) = (self.place(used, bytes)?, self.open_at(fd)?);
        let from = self.now();
        let before = self.aio.iter().rev().find(|a| a.fd == open.fd).map(|a| a.done.clone());
        let done = Rc::new(Completion::new(self.vfs.rt(), "filebench: aiowrite"));
        let (vfs, data, ours) = (self.vfs.clone(), self.shared.contents(bytes), done.clone());
        let task = async move {
            if let Some(before) = before {
                before.wait().await;
            }
            let written = vfs.pwrite(open.fd, at, &[data]).await;
            ours.done();
            written.map(|_| ())
        };
        let name = format!("filebench/{}/aio", self.number + 1);
        let task = self.vfs.rt().spawn(name, task);
        self.aio.push(Aio { fd: open.fd, done, task });
        self.count(i, from, bytes);
        Ok(())
    }

    /// Looks at what is out, the last first, and takes half of it at most of what is done. It waits
    /// for nothing, unless very much is out.
    pub(super) async fn aio_wait(&mut self, i: usize) -> Result<(), Stop> {
        let from = self.now();
        loop {
            let out = self.aio.len();
            let mut todo = if out > AIO_MAX { AIO_MAX } else { (out / 2).max(1) };
            let mut at = out;
            while at > 0 && todo > 0 {
                at -= 1;
                if let Some(done) = self.aio[at].task.try_take() {
                    done?;
                    self.aio.remove(at);
                    todo -= 1;
                }
            }
            if self.aio.len() <= AIO_MAX {
                break;
            }
            let oldest = self.aio[0].done.clone();
            oldest.wait().await;
        }
        self.count(i, from, 0);
        Ok(())
    }

    async fn pick_leafdir(&self, set: usize, f: &Flowop, want: Want) -> Result<usize, Stop> {
        let entries = self.shared.sets[set].borrow().leafdirs.len().max(1) as u64;
        // Of half of the entries, as filebench multiplies here.
        let index = f.indexed.map(|n| self.draw(n).wrapping_mul(entries / 2) % entries);
        let ask =
            |files: &mut Files| files.leafdirs.pick(want, 0, index, &mut self.chance.borrow_mut());
        self.pick(set, ask, |files| files.leafdirs.idlers.clone()).await
    }

    fn leafdirs(&self, set: usize, change: impl FnOnce(&mut Group)) {
        change(&mut self.shared.sets[set].borrow_mut().leafdirs);
    }

    pub(super) async fn make_dir(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let set = Thread::fileset(f)?;
        let dir = self.pick_leafdir(set, f, Want::Missing).await?;
        let path = self.shared.sets[set].borrow().leafdirs.path(dir).to_owned();
        let from = self.now();
        let made = self.vfs.mkdir(&path, 0o755).await;
        self.count(i, from, 0);
        self.leafdirs(set, |g| g.release(dir, Some(Want::Existing), 0));
        made.map_err(Stop::Fs)
    }

    pub(super) async fn remove_dir(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let set = Thread::fileset(f)?;
        let dir = self.pick_leafdir(set, f, Want::Existing).await?;
        let path = self.shared.sets[set].borrow().leafdirs.path(dir).to_owned();
        let from = self.now();
        let removed = self.vfs.rmdir(&path).await;
        self.count(i, from, 0);
        self.leafdirs(set, |g| g.release(dir, Some(Want::Missing), 0));
        removed.map_err(Stop::Fs)
    }

    pub(super) async fn list_dir(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let set = Thread::fileset(f)?;
        let dir = self.pick(set, Files::pick_dir, |files| files.dir_idlers.clone()).await?;
        let path = self.shared.sets[set].borrow().dirs[dir].clone();
        let from = self.now();
        let listed = self.vfs.read_dir(&path).await;
        self.shared.sets[set].borrow_mut().release_dir(dir);
        // `.` and `..` are entries too.
        let names: u64 = listed?.iter().map(|e| e.name.len() as u64 + DIRENT_BYTES).sum();
        self.count(i, from, names + 3 + 2 * DIRENT_BYTES);
        Ok(())
    }
}
