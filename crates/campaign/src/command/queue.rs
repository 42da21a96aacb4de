//! Trees that wait to be checked, and the threads that check them.
//!
//! Invariants: 1. trees are checked in the order in which the explorer met them;
//!             2. of a tree that was not checked nobody waits for the verdict once the threads are
//!                gone: whoever meets it again checks it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::told::{Key, Told};
use super::{Command, LOOK, Runs};
use crate::export::Layout;

/// Bytes of memory from which on the explorer waits for checks.
const WAITING_BYTES: usize = 256 << 20;

/// Threads that check, at most: each has a directory and a process.
const CHECKERS: usize = 256;

/// A tree to check.
pub(super) struct Job {
    pub number: u64,
    pub key: Key,
    pub layout: Layout,
    pub told: Told,
    pub image: Option<PathBuf>,
}

/// What is known of a tree.
enum Verdict {
    Waiting,
    /// What is wrong with it, if anything is.
    Known(Option<String>),
}

/// What the threads share.
#[derive(Default)]
pub(super) struct Shared {
    /// Numbers of trees, in the order in which they were met.
    numbers: BTreeMap<Key, u64>,
    /// By number.
    verdicts: Vec<Verdict>,
    jobs: VecDeque<Job>,
    /// Bytes that they take.
    bytes: usize,
    /// Threads that check them; 0: whoever asks checks.
    checkers: usize,
    pub runs: Runs,
    pub error: Option<String>,
}

impl Command {
    /// The number of a tree, whether it is new, and whether threads check trees.
    pub(super) fn number(&self, key: Key) -> (u64, bool, bool) {
        let mut shared = self.shared();
        let is_served = shared.checkers > 0;
        if let Some(number) = shared.numbers.get(&key).copied() {
            shared.runs.cached += 1;
            return (number, false, is_served);
        }
        let number = shared.verdicts.len() as u64;
        shared.numbers.insert(key, number);
        shared.verdicts.push(Verdict::Waiting);
        (number, true, is_served)
    }

    /// Has a thread check a tree, as soon as there is room for it.
    pub(super) fn submit(&self, job: Job) {
        let mut shared = self.shared();
        while shared.bytes > WAITING_BYTES && shared.error.is_none() && !self.is_ended() {
            shared = self.wait(shared);
        }
        shared.bytes += job.layout.bytes;
        shared.runs.waiting += 1;
        shared.jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Notes a verdict.
    pub(super) fn answered(&self, number: u64, seen: Option<String>, spent: Duration) {
        let mut shared = self.shared();
        shared.runs.runs += 1;
        shared.runs.refused += u64::from(seen.is_some());
        shared.runs.spent += spent;
        shared.verdicts[number as usize] = Verdict::Known(seen);
        self.changed.notify_all();
    }

    /// The verdict of a tree, when it is there: what is wrong with it, if anything is. `None`: it
    /// does not come, or `go_on` says no.
    pub(super) fn answer(
        &self,
        number: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<Option<String>> {
        let mut shared = self.shared();
        loop {
            if let Some(Verdict::Known(seen)) = shared.verdicts.get(number as usize) {
                return Some(seen.clone());
            }
            if shared.error.is_some() || self.is_ended() {
                return None;
            }
            drop(shared);
            // It may ask for what was run.
            if !go_on() {
                return None;
            }
            shared = self.shared();
            if let Some(Verdict::Waiting) = shared.verdicts.get(number as usize) {
                shared = self.wait(shared);
            }
        }
    }

    /// Does `work`, while threads check the trees that explorers meet. They end with it.
    pub(crate) fn serve_while<T>(&self, checkers: usize, work: impl FnOnce() -> T) -> T {
        /// Also when the work panics: the scope waits for the threads.
        struct Close<'a>(&'a Command);
        impl Drop for Close<'_> {
            fn drop(&mut self) {
                self.0.close();
            }
        }
        let checkers = checkers.min(CHECKERS);
        std::thread::scope(|scope| {
            let _close = Close(self);
            self.shared().checkers = checkers;
            for n in 1..=checkers {
                scope.spawn(move || self.serve(n, checkers));
            }
            work()
        })
    }

    /// No tree is checked any more but those under way.
    fn close(&self) {
        let mut shared = self.shared();
        shared.checkers = 0;
        for job in std::mem::take(&mut shared.jobs) {
            shared.numbers.remove(&job.key);
            shared.runs.waiting -= 1;
        }
        shared.bytes = 0;
        self.changed.notify_all();
    }

    /// Checks trees until there are no more to come.
    fn serve(&self, n: usize, of: usize) {
        /// Nobody waits for a thread that has panicked.
        struct Fail<'a>(&'a Command, String);
        impl Drop for Fail<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.fail(std::mem::take(&mut self.1));
                }
            }
        }
        let _fail = Fail(self, format!("checker {n} of {of}: its thread has failed"));
        let named = |e: String| format!("checker {n} of {of}: {e}");
        let mut place = match self.place() {
            Ok(place) => place,
            Err(e) => return self.fail(named(e)),
        };
        while let Some(job) = self.next() {
            let done = self.check(&mut place, &job);
            self.shared().runs.waiting -= 1;
            match done {
                Ok(_) => {}
                // It was interrupted, and is not known.
                Err(_) if self.is_ended() => break,
                Err(e) => return self.fail(named(e)),
            }
        }
        self.places.lock().unwrap_or_else(|e| e.into_inner()).push(place);
    }

    /// The next tree to check; `None`: there is none any more.
    fn next(&self) -> Option<Job> {
        let mut shared = self.shared();
        loop {
            if shared.checkers == 0 || shared.error.is_some() || self.is_ended() {
                return None;
            }
            if let Some(job) = shared.jobs.pop_front() {
                shared.bytes -= job.layout.bytes;
                self.changed.notify_all();
                return Some(job);
            }
            shared = self.wait(shared);
        }
    }

    /// Is the campaign stopped?
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Waits for a change, or for a moment.
    fn wait<'a>(
        &self,
        shared: std::sync::MutexGuard<'a, Shared>,
    ) -> std::sync::MutexGuard<'a, Shared> {
        match self.changed.wait_timeout(shared, LOOK) {
            Ok((shared, _)) => shared,
            Err(e) => e.into_inner().0,
        }
    }
}
