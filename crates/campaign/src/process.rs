//! The process of a program: its steps, one after the other, or in several threads.
//!
//! Picture:    the steps in order -> the thread of each -> one task for each thread.
//! Invariants: 1. calls begin in the order of the steps, and are numbered so: one begins when its
//!                thread's call before has returned and the step before has begun;
//!             2. a `join` waits until all calls have returned; so do `exit` and the end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Ino, Span, Time};
use wp_crash::{Did, Faults, Recorder, Used};
use wp_rt::WaitQueue;
use wp_vfs::Vfs;
use wp_workload::program::{Call, Player, Program, Step};

/// Makes the calls of `steps`, and notes on the tape when each begins and returns.
///
/// Errors: a call that is not modelled, damage that one finds, threads without an order, a power
///         failure among the steps.
pub(super) async fn run(
    vfs: Vfs,
    steps: &[Step],
    tape: &Recorder,
    faults: &Faults,
) -> FsResult<Vec<Did>> {
    let program = Program(steps.to_vec());
    if !program.has_threads() {
        return one_thread(vfs, steps, tape, faults).await;
    }
    if !program.is_in_order() {
        let what = "threads in a program that does not say the order of their calls (`in_order`)";
        return Err(FsError::Unsupported(what.to_owned()));
    }
    let process = Rc::new(Process {
        changed: WaitQueue::new(vfs.rt(), "threads of a program"),
        player: Player::new(vfs.clone()),
        vfs,
        tape: tape.clone(),
        threads: RefCell::default(),
        is_over: Cell::new(false),
        dids: RefCell::default(),
        error: RefCell::default(),
    });
    let done = process.clone().steps(steps, faults).await;
    let error = process.error.take();
    error.map_or(done, Err)?;
    Ok(process.dids.take().into_values().collect())
}

async fn one_thread(
    vfs: Vfs,
    steps: &[Step],
    tape: &Recorder,
    faults: &Faults,
) -> FsResult<Vec<Did>> {
    let rt = vfs.rt().clone();
    let player = Player::new(vfs.clone());
    let mut dids = Vec::new();
    for step in steps {
        match step {
            Step::Case(_)
            | Step::Task(_)
            | Step::Think(_)
            | Step::Begin(_)
            | Step::End
            | Step::Expect(_)
            | Step::Join
            | Step::InOrder => {}
            Step::Align | Step::Nap(_) => pause(&vfs, step).await,
            Step::Exit => player.exit().await?,
            Step::PowerFailure => return Err(once()),
            Step::Fail(_) | Step::Slow(_) | Step::Tear(_) | Step::Heal => {
                faults.obey(step);
            }
            Step::Call(_, call) => {
                let n = dids.len() as u32;
                tape.operation(rt.now(), n, false);
                let answer = answer(&player, call, n).await?;
                tape.operation(rt.now(), n, true);
                dids.push(with_attributes(&player, answer).await);
            }
        }
    }
    Ok(dids)
}

fn once() -> FsError {
    FsError::Unsupported("power_failure in a program that is run once".to_owned())
}

/// A step that takes time and is no call.
async fn pause(vfs: &Vfs, step: &Step) {
    let rt = vfs.rt();
    match step {
        Step::Align => {
            const TICK_NS: u64 = 4_000_000;
            rt.sleep_until(Time((rt.now().0 / TICK_NS + 1) * TICK_NS)).await;
        }
        Step::Nap(us) => rt.sleep(Span(us * 1000)).await,
        _ => {}
    }
}

/// Makes call number `n`. Errors: it is not modelled, or finds damage.
async fn answer(player: &Player, call: &Call, n: u32) -> FsResult<Did> {
    let mut did = Did::of(call.clone());
    let answer = match call {
        Call::Pread { fd, len, at } => player.read(*fd, *at, *len).await.map(|got| did.read = got),
        Call::Pwrite { fd, len, at, data, atomic } => {
            let wrote = player.write(*fd, *at, &data.slices(*at, *len), *atomic).await;
            wrote.map(|n| did.short = u32::try_from(n).ok().filter(|n| n < len))
        }
        Call::CopyFileRange { len, .. } => {
            let copied = player.copy(call).await;
            let fewer = |n: &u32| u64::from(*n) < *len;
            copied.map(|n| did.short = u32::try_from(n).ok().filter(fewer))
        }
        Call::Mkcp(_) => player.mkcp(call).await.map(|number| did.checkpoint = Some(number)),
        Call::AioWrite { .. } | Call::AioRead { .. } => player.submit(call, n).await,
        Call::AioWait(least) => player.take_ended(*least).await.map(|e| did.ended = e),
        call => player.call(call).await,
    };
    did.error = match answer {
        Err(e @ (FsError::Unsupported(_) | FsError::Corrupt(_))) => return Err(e),
        other => other.err(),
    };
    did.ino = match call {
        Call::Open(fd, ..) => player.ino(*fd).map(|Ino(ino)| ino),
        _ => None,
    };
    Ok(did)
}

/// With what a call left of its file, as the file system has it: the time of modification and the
/// flags that it gave, and the length after a call that the storage failed, which may have come
/// half-way.
async fn with_attributes(player: &Player, mut did: Did) -> Did {
    match did.error {
        None => {
            if let Call::Utimensat(path, ..) = &did.call {
                did.mtime = player.mtime(path).await.ok();
            }
            did.flags = player.flags(&did.call).await.unwrap_or(None);
        }
        Some(FsError::Io | FsError::NoSpace | FsError::ReadOnly) => {
            did.size = player.size(&did.call).await.unwrap_or(None);
        }
        Some(_) => {}
    }
    did
}

/// A process with threads.
struct Process {
    vfs: Vfs,
    player: Player,
    tape: Recorder,
    threads: RefCell<BTreeMap<u32, Rc<Thread>>>,
    /// A call has begun or returned.
    changed: WaitQueue,
    is_over: Cell<bool>,
    dids: RefCell<BTreeMap<u32, Did>>,
    /// What ended the run.
    error: RefCell<Option<FsError>>,
}

/// A thread. It does one step at a time.
#[derive(Default)]
struct Thread {
    /// The step that comes next, with the number of its call.
    next: RefCell<Option<(u32, Step)>>,
    /// It has a step, and is not done with it.
    is_busy: Cell<bool>,
}

impl Process {
    async fn steps(self: Rc<Self>, steps: &[Step], faults: &Faults) -> FsResult<()> {
        let done = self.clone().each(steps, faults).await;
        self.join().await;
        self.is_over.set(true);
        self.changed.wake_all();
        done
    }

    async fn each(self: Rc<Self>, steps: &[Step], faults: &Faults) -> FsResult<()> {
        let mut calls = 0;
        for step in steps {
            if self.error.borrow().is_some() {
                break;
            }
            match step {
                Step::Case(_)
                | Step::Task(_)
                | Step::Think(_)
                | Step::Begin(_)
                | Step::End
                | Step::Expect(_)
                | Step::InOrder => {}
                Step::Join => self.join().await,
                Step::Exit => {
                    self.join().await;
                    self.player.exit().await?;
                }
                Step::PowerFailure => return Err(once()),
                Step::Fail(_) | Step::Slow(_) | Step::Tear(_) | Step::Heal => {
                    let main = self.thread(0);
                    self.changed.wait_until(|| !main.is_busy.get()).await;
                    faults.obey(step);
                }
                Step::Align | Step::Nap(_) => self.begin(0, (calls, step)).await,
                Step::Call(by, _) => {
                    self.begin(by.thread, (calls, step)).await;
                    calls += 1;
                }
            }
        }
        Ok(())
    }

    /// Waits until no call is in progress.
    async fn join(&self) {
        let is_idle = || self.threads.borrow().values().all(|t| !t.is_busy.get());
        self.changed.wait_until(is_idle).await;
    }

    /// A thread by its number; it starts with its first step.
    fn thread(self: &Rc<Self>, number: u32) -> Rc<Thread> {
        if let Some(known) = self.threads.borrow().get(&number) {
            return known.clone();
        }
        let thread = Rc::new(Thread::default());
        self.threads.borrow_mut().insert(number, thread.clone());
        let body = self.clone().work(number, thread.clone());
        drop(self.vfs.rt().spawn(format!("thread {number}"), body));
        thread
    }

    /// Has a thread begin a step, as soon as it has returned from the one before.
    async fn begin(self: &Rc<Self>, number: u32, (n, step): (u32, &Step)) {
        let thread = self.thread(number);
        self.changed.wait_until(|| !thread.is_busy.get()).await;
        thread.is_busy.set(true);
        *thread.next.borrow_mut() = Some((n, step.clone()));
        self.changed.wake_all();
        self.changed.wait_until(|| thread.next.borrow().is_none()).await;
    }

    /// What a thread does.
    async fn work(self: Rc<Self>, number: u32, thread: Rc<Thread>) {
        loop {
            let has_step = || thread.next.borrow().is_some();
            self.changed.wait_until(|| has_step() || self.is_over.get()).await;
            let Some((n, step)) = thread.next.take() else { return };
            // The process goes on with the next step when this one waits for the first time.
            self.changed.wake_all();
            match &step {
                Step::Call(_, call) => self.call(number, n, call).await,
                pause_step => pause(&self.vfs, pause_step).await,
            }
            thread.is_busy.set(false);
            self.changed.wake_all();
        }
    }

    async fn call(&self, thread: u32, n: u32, call: &Call) {
        let rt = self.vfs.rt();
        let uses = self.uses(call);
        self.tape.operation(rt.now(), n, false);
        let done = answer(&self.player, call, n).await;
        self.tape.operation(rt.now(), n, true);
        match done {
            Ok(did) => {
                let did = with_attributes(&self.player, Did { thread, uses, ..did }).await;
                self.dids.borrow_mut().insert(n, did);
            }
            Err(e) => drop(self.error.borrow_mut().get_or_insert(e)),
        }
    }

    /// The files behind the descriptors that a call uses; none if it uses one that is not open.
    fn uses(&self, call: &Call) -> Vec<Used> {
        if matches!(call, Call::Open(..)) {
            return Vec::new();
        }
        let used = |fd: &mut u32| {
            let Ino(ino) = self.player.ino(*fd)?;
            Some(Used { ino, direct: self.player.opened(*fd)?.direct })
        };
        call.clone()
            .descriptors_mut()
            .into_iter()
            .map(used)
            .collect::<Option<_>>()
            .unwrap_or_default()
    }
}
