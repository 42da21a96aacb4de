//! Flowops that wait: for events, for each other, for so much to be done.
//!
//! Source: `flowop_library.c` and `eventgen.c` of filebench 1.5, by what they do.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, Span};
use wp_rt::{Rt, WaitQueue};

use super::super::model::{Flowop, Kind};
use super::Shared;
use super::thread::{Stop, Thread};

/// Periods of the rate between two posts of events.
const PERIODS: u64 = 10;
/// Seconds of events that are kept for later.
const KEPT_SECS: u64 = 5;
/// filebench's megabyte.
const MIB: u64 = 1 << 20;

/// Events that limits take.
pub(super) struct Events {
    is_on: Cell<bool>,
    ready: Cell<u64>,
    /// Who waits for events; one of them looks each time that some are posted.
    pub(super) queue: WaitQueue,
}

impl Events {
    pub(super) fn new(rt: &Rt) -> Events {
        let queue = WaitQueue::new(rt, "filebench: an event");
        Events { is_on: Cell::new(false), ready: Cell::new(0), queue }
    }
}

/// Posts `rate` events a second until the run is over.
pub(super) fn generate(shared: &Rc<Shared>, rate: u64) {
    shared.events.is_on.set(true);
    let shared = shared.clone();
    let rt = shared.vfs.rt().clone();
    rt.clone().spawn_daemon("filebench/eventgen", async move {
        let span = Span((PERIODS * 1_000_000_000 / rate).max(1000));
        // Parts of events, in billionths, that filebench loses or not by how late it wakes.
        let mut rest = 0u128;
        while !shared.is_over() {
            rt.sleep(span).await;
            rest += u128::from(rate) * u128::from(span.0);
            let count = (rest / 1_000_000_000) as u64;
            rest %= 1_000_000_000;
            let ready = &shared.events.ready;
            if ready.get() < KEPT_SECS.saturating_mul(rate) {
                ready.set(ready.get() + count);
            }
            shared.events.queue.wake_one();
        }
    });
}

/// What a limit remembers.
#[derive(Default)]
pub(super) struct Limit {
    last: u64,
    bucket: i64,
}

/// A flowop of one thread that others wake or post to.
pub(super) struct Post {
    low: Cell<i64>,
    high: Cell<i64>,
    queue: WaitQueue,
}

/// All of them, by name.
#[derive(Default)]
pub(super) struct Posts(BTreeMap<Rc<str>, Vec<Rc<Post>>>);

impl Posts {
    /// That of a flowop of a thread, if it is one that waits.
    pub(super) fn make(&mut self, rt: &Rt, f: &Flowop) -> Option<Rc<Post>> {
        if !matches!(f.kind, Kind::Block | Kind::Semblock) {
            return None;
        }
        let queue = WaitQueue::new(rt, "filebench: another thread");
        let (low, high) = (Cell::new(0), Cell::new(f.highwater as i64));
        let post = Rc::new(Post { low, high, queue });
        self.0.entry(f.name.clone()).or_default().push(post.clone());
        Some(post)
    }

    pub(super) fn wake(&self) {
        self.0.values().flatten().for_each(|p| p.queue.wake_all());
    }
}

/// filebench's semaphores take numbers of 16 bits.
fn short(n: u64) -> i64 {
    i64::from(n as u16 as i16)
}

impl Thread {
    /// The flowop of this thread that a limit or check looks at.
    fn target(&self, f: &Flowop) -> Result<Option<usize>, Stop> {
        let Some(name) = &f.target else { return Ok(None) };
        match self.list.flowops.iter().position(|f| f.name == *name) {
            Some(i) => Ok(Some(i)),
            None => {
                Err(FsError::Invalid("filebench: a flowop's target is not of its thread").into())
            }
        }
    }

    /// `eventlimit`: an event for each time.
    pub(super) async fn eventlimit(&mut self, i: usize) -> Result<(), Stop> {
        let shared = self.shared.clone();
        if !shared.events.is_on.get() {
            return Ok(());
        }
        let from = self.now();
        self.take_events(1).await?;
        self.count(i, from, 0);
        Ok(())
    }

    async fn take_events(&self, n: u64) -> Result<(), Stop> {
        let events = &self.shared.events;
        while events.ready.get() < n {
            if !self.shared.wait(&events.queue).await {
                return Err(Stop::Over);
            }
        }
        events.ready.set(events.ready.get() - n);
        Ok(())
    }

    /// `opslimit`, `iopslimit`, `bwlimit`: an event for each operation, I/O or MiB since it was
    /// here.
    pub(super) async fn limit(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        if !self.shared.events.is_on.get() {
            return Ok(());
        }
        let target = self.target(f)?;
        let control = self.shared.controls.borrow()[self.process];
        let done = match (f.kind, target) {
            (Kind::Bwlimit, Some(t)) => self.own[t].bytes,
            (Kind::Bwlimit, None) => control.bytes,
            (_, Some(t)) => self.own[t].ops,
            (Kind::Iopslimit, None) => control.ios,
            (_, None) => control.ops,
        };
        let limit = &mut self.own[i].limit;
        if limit.last == 0 {
            limit.last = done;
            return Ok(());
        }
        limit.bucket -= (done - limit.last) as i64;
        limit.last = done;
        let (bucket, from) = (limit.bucket, self.now());
        if bucket < 0 {
            let owed = bucket.unsigned_abs();
            let is_bytes = f.kind == Kind::Bwlimit;
            let events = if is_bytes { owed / MIB + 1 } else { owed };
            self.take_events(events).await?;
            let paid = if is_bytes { events * MIB } else { events };
            self.own[i].limit.bucket += paid as i64;
        }
        self.count(i, from, 0);
        Ok(())
    }

    /// `finishoncount`, `finishonbytes`: no more work once so much is done.
    pub(super) fn finish(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let target = self.target(f)?;
        let control = self.shared.controls.borrow()[self.process];
        let value = self.own[i].value;
        let is_done = match (f.kind, target) {
            (Kind::FinishOnBytes, Some(t)) => self.own[t].bytes > value,
            (Kind::FinishOnBytes, None) => control.bytes > value,
            (_, Some(t)) => self.own[t].ops >= value,
            (_, None) => control.ops >= value,
        };
        self.count(i, self.now(), 0);
        if is_done { Err(Stop::NoMore) } else { Ok(()) }
    }

    /// `block`: until another thread wakes it.
    pub(super) async fn block(&mut self, i: usize) -> Result<(), Stop> {
        let from = self.now();
        if let Some(post) = self.posts[i].clone()
            && !self.shared.wait(&post.queue).await
        {
            return Err(Stop::Over);
        }
        self.count(i, from, 0);
        Ok(())
    }

    fn targets(&self, f: &Flowop) -> Result<Vec<Rc<Post>>, Stop> {
        let name = f.target.as_deref().unwrap_or_default();
        let found = self.shared.posts.0.get(name).cloned();
        found.ok_or(FsError::Invalid("filebench: no flowop waits under a target's name").into())
    }

    /// `wakeup`: all of that name. Each counts.
    pub(super) fn wakeup(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        for post in self.targets(f)? {
            post.queue.wake_all();
            self.count(i, self.now(), 0);
        }
        Ok(())
    }

    /// `semblock`: until so much was posted to it.
    pub(super) async fn semblock(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let value = short(self.draw(f.value));
        let from = self.now();
        if let Some(post) = self.posts[i].clone() {
            post.high.set(post.high.get() + value);
            post.queue.wake_all();
            while post.low.get() < value {
                if !self.shared.wait(&post.queue).await {
                    return Err(Stop::Over);
                }
            }
            post.low.set(post.low.get() - value);
        }
        self.count(i, from, 0);
        Ok(())
    }

    /// `sempost`: to all of that name; with `blocking`, no further ahead than their `highwater`.
    pub(super) async fn sempost(&mut self, i: usize, f: &Flowop) -> Result<(), Stop> {
        let from = self.now();
        for post in self.targets(f)? {
            let value = short(self.draw(f.value));
            if f.blocking {
                while post.high.get() < value {
                    if !self.shared.wait(&post.queue).await {
                        return Err(Stop::Over);
                    }
                }
                post.high.set(post.high.get() - value);
            }
            post.low.set(post.low.get() + value);
            post.queue.wake_all();
        }
        self.count(i, from, 0);
        Ok(())
    }
}
