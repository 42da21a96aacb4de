//! Asynchronous I/O: `io_setup`, `io_submit`, `io_getevents`; the same of io_uring; and that of the
//! C library, which is threads.
//!
//! Picture:    submit -> the file system's direct call in the caller's task, until its bios are on
//!             their way -> interrupt context -> (a write: kernel thread) -> event in the ring ->
//!             whoever waits in `get_events`.
//! Invariants: 1. a call that cannot be asynchronous (no `O_DIRECT`; the file system says so) is
//!                done when `submit` returns, and its event is in the ring.
//!             2. events are in the ring in the order in which the calls ended.
//!             3. what would block the caller of io_uring goes on in a worker (`io_wq`), and so
//!                does a write through the cache from its beginning. Linux undoes the try and
//!                begins again.
//! Source:     Linux `io_uring/rw.c` (`io_write`), `io_uring/io-wq.c`, `fs/aio.c` (`aio_read`,
//!             `aio_write`, `aio_fsync`, `aio_complete`, `read_events`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use wp_base::{FsError, FsResult};
use wp_block::PlugGuard;
use wp_medium::Slice;
use wp_rt::{Lock, WaitQueue};

use crate::file_type::FileType;
use crate::fs::SyncKind;
use crate::kiocb::Kiocb;
use crate::syscall::{Fd, OpenFile, Vfs};

/// Calls of one `io_submit` beyond which the kernel plugs the queue (`AIO_PLUG_THRESHOLD`).
const PLUG_ABOVE: usize = 2;

/// What is asked (`IOCB_CMD_*`).
#[derive(Clone, Debug)]
pub enum IoCall {
    /// `pread`: offset and length in bytes.
    Read(u64, u64),
    /// `pwrite` at an offset in bytes.
    Write(u64, Vec<Slice>),
    /// The same with `RWF_ATOMIC`, from one buffer: [`Vfs::pwrite_atomic`].
    WriteAtomic(u64, Vec<Slice>),
    /// `fsync`, `fdatasync`, by a kernel thread.
    Sync(SyncKind),
}

/// One call of a batch (`struct iocb`).
#[derive(Clone, Debug)]
pub struct Iocb {
    /// The open file.
    pub fd: Fd,
    /// What is asked.
    pub call: IoCall,
    /// Comes back in the event (`aio_data`).
    pub tag: u64,
}

/// The end of a call (`struct io_event`).
#[derive(Debug)]
pub struct IoEvent {
    /// Of the call.
    pub tag: u64,
    /// Bytes read or written.
    pub result: FsResult<u64>,
    /// What was read.
    pub data: Vec<Slice>,
}

/// Bytes done, and what was read.
type Ended = (u64, Vec<Slice>);

impl IoEvent {
    fn new(tag: u64, ended: FsResult<Ended>) -> IoEvent {
        match ended {
            Ok((bytes, data)) => IoEvent { tag, result: Ok(bytes), data },
            Err(e) => IoEvent { tag, result: Err(e), data: Vec::new() },
        }
    }
}

/// A ring of events, and the calls that are on their way to it (`aio_context_t`, `io_uring`).
/// Clones share it.
#[derive(Clone)]
pub struct IoContext {
    vfs: Vfs,
    style: Style,
    ring: Rc<Ring>,
    /// Of the C library's: who may call for a descriptor.
    turns: Rc<RefCell<BTreeMap<Fd, Rc<Lock<()>>>>>,
}

/// Whose system calls it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    /// `io_submit`, `io_getevents`.
    Aio,
    /// `io_uring_enter`; events are taken without a call.
    Uring,
    /// `aio_read`, `aio_write`, `aio_fsync` of glibc: a thread for each descriptor makes its calls,
    /// one after the other.
    Threads,
}

struct Ring {
    /// Calls that it takes at a time.
    room: usize,
    in_flight: Cell<usize>,
    events: RefCell<VecDeque<IoEvent>>,
    ended: WaitQueue,
}

impl Vfs {
    /// `io_setup`: a context for `room` calls at a time. Errors: `Invalid` for none.
    pub async fn io_setup(&self, room: u32) -> FsResult<IoContext> {
        self.context("io_setup", room, Style::Aio).await
    }

    /// `io_uring_setup`: as [`Vfs::io_setup`].
    pub async fn io_uring_setup(&self, room: u32) -> FsResult<IoContext> {
        self.context("io_uring_setup", room, Style::Uring).await
    }

    /// POSIX asynchronous I/O as glibc has it (`aio_init`): of one descriptor a call at a time is
    /// under way, made by a thread. Errors: as [`Vfs::io_setup`].
    pub fn aio_threads(&self, room: u32) -> FsResult<IoContext> {
        match room {
            0 => Err(FsError::Invalid("a context without room for events")),
            room => Ok(self.new_context(room, Style::Threads)),
        }
    }

    /// A write of a batch.
    async fn queued_write(
        self,
        file: Rc<OpenFile>,
        at: u64,
        data: Vec<Slice>,
        io: Rc<Kiocb>,
    ) -> FsResult<Ended> {
        let may = if io.is_untorn() { self.may_be_untorn(&file, at, &[&data]) } else { Ok(()) };
        let out = match may {
            Ok(()) => self.write_at(&file, at, &data, &io).await,
            Err(e) => Err(e),
        };
        self.note_failure("io_submit: pwrite", &out);
        out.map(|n| (n, Vec::new()))
    }

    fn new_context(&self, room: u32, style: Style) -> IoContext {
        IoContext {
            vfs: self.clone(),
            style,
            turns: Rc::default(),
            ring: Rc::new(Ring {
                room: room as usize,
                in_flight: Cell::new(0),
                events: RefCell::default(),
                ended: WaitQueue::new(self.rt(), "io_getevents"),
            }),
        }
    }

    async fn context(&self, name: &'static str, room: u32, style: Style) -> FsResult<IoContext> {
        let body = async {
            if room == 0 {
                return Err(FsError::Invalid("a context without room for events"));
            }
            Ok(self.new_context(room, style))
        };
        self.call(name, || room.to_string(), |_| 0, body).await
    }
}

impl IoContext {
    /// Calls that have begun and whose events nobody has taken.
    pub fn in_flight(&self) -> usize {
        self.ring.in_flight.get() + self.ring.events.borrow().len()
    }

    /// `io_submit`, or `io_uring_enter` to submit: begins each call in order. Returns how many:
    /// fewer than all, if the context has no room for more or a descriptor is none.
    ///
    /// Waits: for what each call waits for before its bios are on their way; for all of a call that
    /// cannot be asynchronous. Errors: `Invalid` if not even the first has room (`EAGAIN`),
    /// `BadFile`.
    pub async fn submit(&self, calls: Vec<Iocb>) -> FsResult<u64> {
        let body = async {
            let plug: Option<PlugGuard> =
                (calls.len() > PLUG_ABOVE).then(|| self.vfs.fs().plug()).flatten();
            let mut begun = 0;
            for iocb in calls {
                if self.in_flight() >= self.ring.room {
                    if begun == 0 {
                        return Err(FsError::Invalid("io_submit: the context is full"));
                    }
                    break;
                }
                match self.begin(iocb).await {
                    Ok(()) => begun += 1,
                    Err(e) if begun == 0 => return Err(e),
                    Err(_) => break,
                }
            }
            drop(plug);
            Ok(begun)
        };
        let name = match self.style {
            Style::Aio => "io_submit",
            Style::Uring => "io_uring_enter",
            // No call of the kernel's.
            Style::Threads => return body.await,
        };
        self.vfs.call(name, String::new, |n| *n, body).await
    }

    /// Begins one. Errors: `BadFile`, `Invalid` for a read of a directory; everything else is in
    /// its event.
    async fn begin(&self, iocb: Iocb) -> FsResult<()> {
        let Iocb { fd, call, tag } = iocb;
        let file = match call {
            IoCall::Write(..) => self.vfs.file_to_write(fd)?,
            IoCall::WriteAtomic(..) => self.vfs.file_to_be_untorn(fd)?,
            IoCall::Read(..) | IoCall::Sync(_) => self.vfs.file(fd)?,
        };
        if matches!(call, IoCall::Read(..)) && self.vfs.kind(file.ino).await? == FileType::Dir {
            // A directory has no `read_iter` (`aio_read`).
            return Err(FsError::Invalid("an asynchronous read of a directory"));
        }
        self.ring.in_flight.set(self.ring.in_flight.get() + 1);
        if self.style == Style::Threads {
            self.hand_to_thread(fd, call, tag);
            return Ok(());
        }
        let rt = self.vfs.rt();
        let may_wait = self.style == Style::Aio;
        // No file system here writes to its cache without perhaps waiting (`FMODE_NOWAIT`).
        let begins_in_worker =
            !may_wait && !file.is_direct() && matches!(call, IoCall::Write(..) | IoCall::Sync(_));
        let untorn = matches!(call, IoCall::WriteAtomic(..));
        let io = Rc::new(Kiocb::asynchronous(self.vfs.rt(), untorn));
        let (vfs, kiocb) = (self.vfs.clone(), io.clone());
        let mut op: Pin<Box<dyn Future<Output = FsResult<Ended>>>> = match call {
            IoCall::Read(at, len) => Box::pin(async move {
                let out = vfs.read_at(&file, at, len, &kiocb).await;
                vfs.note_failure("io_submit: pread", &out);
                out.map(|data| (data.iter().map(|s| u64::from(s.len())).sum(), data))
            }),
            IoCall::Write(at, data) | IoCall::WriteAtomic(at, data) => {
                Box::pin(vfs.queued_write(file, at, data, kiocb))
            }
            IoCall::Sync(kind) => Box::pin(async move {
                if may_wait {
                    kiocb.queued().await;
                    kiocb.in_thread().await;
                }
                let out = vfs.sync_file(&file, kind).await;
                vfs.note_failure("io_submit: fsync", &out);
                out.map(|()| (0, Vec::new()))
            }),
        };
        let mut result = None;
        let mut blocks = begins_in_worker;
        if !blocks {
            poll_fn(|cx| match op.as_mut().poll(cx) {
                Poll::Ready(out) => {
                    result = Some(out);
                    Poll::Ready(())
                }
                Poll::Pending if io.is_queued() => Poll::Ready(()),
                // Computing is no waiting.
                Poll::Pending if may_wait || rt.is_computing() => Poll::Pending,
                Poll::Pending => {
                    blocks = true;
                    Poll::Ready(())
                }
            })
            .await;
        }
        if let Some(result) = result {
            self.ring.end(IoEvent::new(tag, result));
            return Ok(());
        }
        let ring = self.ring.clone();
        let rest = async move {
            let result = op.await;
            ring.end(IoEvent::new(tag, result));
        };
        if blocks {
            io.hand_on();
            rt.spawn_daemon("iou-wrk", rest);
        } else {
            rt.spawn_interrupt("kworker/dio", rest);
        }
        Ok(())
    }

    /// The descriptor's thread makes the call when it has made those before.
    fn hand_to_thread(&self, fd: Fd, call: IoCall, tag: u64) {
        let rt = self.vfs.rt();
        let new = || Rc::new(Lock::new(rt, "aio thread", ()));
        let turn = self.turns.borrow_mut().entry(fd).or_insert_with(new).clone();
        let (vfs, ring) = (self.vfs.clone(), self.ring.clone());
        rt.spawn_daemon("aio", async move {
            let _turn = turn.lock().await;
            let mut data = Vec::new();
            let result = match call {
                IoCall::Read(at, len) => vfs.pread(fd, at, len).await.map(|read| {
                    data = read;
                    data.iter().map(|s| u64::from(s.len())).sum()
                }),
                IoCall::Write(at, data) => vfs.pwrite(fd, at, &data).await,
                IoCall::WriteAtomic(at, data) => vfs.pwrite_atomic(fd, at, &[&data]).await,
                IoCall::Sync(SyncKind::Full) => vfs.fsync(fd).await.map(|()| 0),
                IoCall::Sync(SyncKind::DataOnly) => vfs.fdatasync(fd).await.map(|()| 0),
            };
            ring.end(IoEvent { tag, result, data });
        });
    }

    /// `io_getevents`, or `io_uring_enter` to wait: takes up to `max` events out of the ring, when
    /// `min` are there. Waits: for that. `min` beyond what is in flight is as much as that.
    pub async fn get_events(&self, min: usize, max: usize) -> FsResult<Vec<IoEvent>> {
        let body = async {
            let min = min.min(max).min(self.in_flight());
            self.ring.ended.wait_until(|| self.ring.events.borrow().len() >= min).await;
            let mut events = self.ring.events.borrow_mut();
            let n = max.min(events.len());
            Ok(events.drain(..n).collect())
        };
        let count = |events: &Vec<IoEvent>| events.len() as u64;
        let there = self.ring.events.borrow().len();
        match self.style {
            Style::Aio => self.vfs.call("io_getevents", String::new, count, body).await,
            Style::Threads => body.await,
            Style::Uring if there >= min.min(max).min(self.in_flight()) => body.await,
            Style::Uring => self.vfs.call("io_uring_enter", String::new, count, body).await,
        }
    }
}

impl Ring {
    fn end(&self, event: IoEvent) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.events.borrow_mut().push_back(event);
        self.ended.wake_all();
    }
}
