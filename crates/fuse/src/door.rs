//! The side of the kernel: a job for the simulation's thread for each request of FUSE, from which
//! its answer goes straight back.

use std::cell::RefCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};

use fuser::{Config, MountOption, Request, SessionACL};
use wp_machine::{MachineError, describe};

use crate::live::Live;
use crate::recording::Recording;
use crate::serve::{Here, Job, Requests, Work};

/// Makes the simulation on the thread that it will stay on.
pub type Make = Box<dyn FnOnce() -> Result<Here, MachineError> + Send>;

/// What was recorded. Errors: the simulation cannot be, or could not go on.
pub type Ended = Result<Recording, MachineError>;

/// Who does what is asked for.
enum Does {
    /// Another thread.
    There(Sender<Job>),
    /// The thread that asks.
    Here { make: Mutex<Option<Make>>, ended: Sender<Ended> },
}

thread_local! {
    /// The simulation of this thread. One that nobody has ended is left as it is when the thread
    /// ends: what it needs of the thread may be gone by then.
    static HERE: RefCell<Option<ManuallyDrop<Here>>> = const { RefCell::new(None) };
}

/// What the kernel talks to.
pub struct Door {
    does: Does,
    /// Files may have capabilities: somebody set some, or the file system was not made here.
    pub(crate) has_capabilities: AtomicBool,
}

impl Door {
    /// A door, and where its requests come out. `is_new`: the file system has no files yet.
    pub fn new(is_new: bool) -> (Door, Requests) {
        let (jobs, requests) = channel();
        let has_capabilities = AtomicBool::new(!is_new);
        (Door { does: Does::There(jobs), has_capabilities }, Requests(requests))
    }

    /// A door to a new file system whose simulation does requests at once, where they are read;
    /// `ended` is told what it has recorded when its program is over, or why it could not go on.
    pub fn here(make: Make, ended: Sender<Ended>) -> Door {
        let does = Does::Here { make: Mutex::new(Some(make)), ended };
        Door { does, has_capabilities: AtomicBool::new(false) }
    }

    /// Hands work on. If the simulation is gone, so is the reply, which answers EIO by itself.
    pub(crate) fn ask<F>(
        &self,
        request: &Request,
        begin: impl FnOnce(Rc<Live>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let (make, ended) = match &self.does {
            Does::There(jobs) => {
                let begin = Box::new(move |live: Rc<Live>| Box::pin(begin(live)) as Work);
                let _ = jobs.send(Job { pid: request.pid(), begin });
                return;
            }
            Does::Here { make, ended } => (make, ended),
        };
        HERE.with_borrow_mut(|here| {
            if let Some(make) = make.lock().unwrap_or_else(|e| e.into_inner()).take() {
                match make() {
                    Ok(made) => *here = Some(ManuallyDrop::new(made)),
                    Err(e) => drop(ended.send(Err(e))),
                }
            }
            let Some(simulation) = here else { return };
            if let Err(outcome) = simulation.work(request.pid(), begin) {
                drop(ended.send(Err(MachineError::Stall(describe(&outcome)))));
                *here = None;
            }
        });
    }

    /// The program has ended.
    pub(crate) fn end(&self) {
        let Does::Here { make, ended } = &self.does else { return };
        let recording = match HERE.take() {
            Some(here) => ManuallyDrop::into_inner(here).end(),
            // Nothing was asked for.
            None if make.lock().is_ok_and(|make| make.is_some()) => Recording::default(),
            None => return,
        };
        drop(ended.send(Ok(recording)));
    }
}

/// How the kernel mounts it: permissions are its business, and everybody may come.
pub fn config(source: &str) -> Config {
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        MountOption::Subtype("writepath".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
    ];
    config
}
