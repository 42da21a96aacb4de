//! The thread of the simulation: it takes requests and does them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use wp_base::Time;
use wp_machine::Machine;
use wp_rt::{Outcome, Rt};

use crate::live::Live;
use crate::recording::Recording;

/// What one request does, on the simulation's thread.
pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// A request: who asks, and what is to be done.
pub struct Job {
    /// The process, as the kernel that serves the mount numbers it.
    pub pid: u32,
    /// Its work, on the simulation's thread.
    pub begin: Box<dyn FnOnce(Rc<Live>) -> Work + Send>,
}

/// Where the simulation takes requests from.
pub struct Requests(pub(crate) Receiver<Job>);

/// The session is over: nothing is mounted any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over;

/// How long a request is looked for before the thread sleeps: the next one of a busy program comes
/// sooner than a sleeping thread wakes. Whoever else wants the CPU gets it meanwhile.
const EAGER: Duration = Duration::from_micros(100);

impl Requests {
    /// The next request; `None` after `patience`. Errors: the session is over.
    pub fn next(&self, patience: Duration) -> Result<Option<Job>, Over> {
        #[expect(clippy::disallowed_methods, reason = "how long the host's CPU is kept busy")]
        let begin = Instant::now();
        loop {
            match self.0.try_recv() {
                Ok(job) => return Ok(Some(job)),
                Err(TryRecvError::Disconnected) => return Err(Over),
                Err(TryRecvError::Empty) if begin.elapsed() > EAGER => break,
                Err(TryRecvError::Empty) => std::thread::yield_now(),
            }
        }
        match self.0.recv_timeout(patience) {
            Ok(job) => Ok(Some(job)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Over),
        }
    }
}

/// How virtual time and the wall clock go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// A request is done at once, one after the other: virtual time moves by what the stack does,
    /// and what a program does between its calls takes none.
    Free,
    /// Virtual time follows the wall clock, and an answer is held back until its moment has come.
    /// Requests of several processes are in progress together.
    Paced,
}

/// How long nobody looks whether the session is to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// Does what is asked for until the session is over or `is_over` says so, which is asked when there
/// are no requests. Tasks have the names of the processes.
///
/// Errors: the simulation cannot go on.
pub fn serve(
    rt: &Rt,
    live: &Rc<Live>,
    (requests, pace): (&Requests, Pace),
    is_over: impl Fn() -> bool,
) -> Result<(), Outcome> {
    let mut names = Names::default();
    #[expect(clippy::disallowed_methods, reason = "a paced clock is the wall's")]
    let (start, first) = (Instant::now(), rt.now());
    loop {
        let mut patience = PATIENCE;
        if pace == Pace::Paced {
            let elapsed = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let now = Time(first.0.saturating_add(elapsed));
            match rt.run_until(now) {
                Outcome::Reached | Outcome::Idle => {}
                outcome => return Err(outcome),
            }
            if let Some(next) = rt.next_timer() {
                patience = patience.min(Duration::from_nanos(next.0.saturating_sub(now.0)));
            }
        }
        match requests.next(patience) {
            Ok(Some(job)) => {
                let name = names.of(job.pid);
                // The kernel itself lets go of files: that is no process' call.
                if job.pid != 0 {
                    live.set_task(&name);
                }
                live.asked();
                let work = (job.begin)(live.clone());
                match pace {
                    Pace::Free => {
                        rt.block_on(&name, work)?;
                        live.answered();
                    }
                    Pace::Paced => drop(rt.spawn(name, work)),
                }
            }
            Ok(None) if is_over() => return Ok(()),
            Ok(None) => {}
            Err(Over) => return Ok(()),
        }
    }
}

/// Names of processes by their numbers.
#[derive(Default)]
struct Names(BTreeMap<u32, Rc<str>>);

impl Names {
    fn of(&mut self, pid: u32) -> Rc<str> {
        self.0.entry(pid).or_insert_with(|| name_of(pid)).clone()
    }
}

/// The name of a process, as the kernel has it; its number where it is gone.
fn name_of(pid: u32) -> Rc<str> {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.map_or_else(|_| format!("process {pid}").into(), |comm| comm.trim_end().into())
}

/// A simulation on the thread that takes requests from the kernel, in free time: no other thread
/// has to be woken for them.
pub struct Here {
    machine: Machine,
    live: Rc<Live>,
    names: Names,
}

impl Here {
    /// What is mounted on a machine.
    pub fn new(machine: Machine, live: Live) -> Here {
        Here { machine, live: Rc::new(live), names: Names::default() }
    }

    /// Does what a process asks for. Errors: the simulation cannot go on.
    pub(crate) fn work<F>(
        &mut self,
        pid: u32,
        begin: impl FnOnce(Rc<Live>) -> F,
    ) -> Result<(), Outcome>
    where
        F: Future<Output = ()> + 'static,
    {
        let name = self.names.of(pid);
        // As in `serve`.
        if pid != 0 {
            self.live.set_task(&name);
        }
        self.live.asked();
        self.machine.rt.block_on(&name, begin(self.live.clone()))?;
        self.live.answered();
        Ok(())
    }

    /// What was recorded.
    pub(crate) fn end(self) -> Recording {
        self.live.end()
    }
}
