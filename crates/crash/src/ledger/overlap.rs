//! Calls that overlap in time, in threads: in which orders they can have taken effect.
//!
//! Picture:    tape -> which calls had returned when each one began -> orders that keep that ->
//!             one ledger for each.
//! Invariants: 1. a call that returned before another one began is before it in every order;
//!             2. a call that syncs changes nothing. It is behind the calls that had returned when
//!                it began, and before all others that these do not need: what was in progress
//!                then is not promised;
//!             3. orders that differ only in calls that do not touch the same files or names are
//!                one, that in which each is as late as it can be;
//!             4. an order that contradicts what the calls answered is left out.
//! Left out:   stores and direct writes are not atomic: beside each other, each block may have
//!             either, and neither is promised. A copy takes what one moment has.
//! Source:     Herlihy and Wing, "Linearizability", TOPLAS 1990; Godefroid, "Partial-Order Methods
//!             for the Verification of Concurrent Systems", 1996 (sleep sets).

use std::cell::OnceCell;
use std::rc::Rc;

use wp_base::FsError;
use wp_vfs::RenameHow;
use wp_workload::program::Call;

use crate::paths::Follow;
use crate::tape::{Entry, Tape};

use super::{Before, Did, Ledger, Walk};

/// Orders of a run's calls, at most.
const ORDERS_MAX: usize = 1024;

/// A page: stores and direct writes that touch the same one are not told apart.
const PAGE: u64 = 4096;

/// A file behind a descriptor of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// Its inode.
    pub ino: u64,
    /// Was it opened with `O_DIRECT`?
    pub direct: bool,
}

/// Which calls of a run had returned when each one began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlaps {
    /// For each call: number of calls that had returned when it began.
    before: Vec<u32>,
    /// For each call: number of calls that had returned when it did.
    rank: Vec<u32>,
}

impl Overlaps {
    /// No call begins before the one before has returned.
    pub fn none(calls: usize) -> Overlaps {
        let each: Vec<u32> = (0..calls as u32).collect();
        Overlaps { before: each.clone(), rank: each }
    }

    /// Those on a tape of `calls` calls.
    pub fn of(tape: &Tape, calls: usize) -> Overlaps {
        let (mut before, mut rank) = (vec![0; calls], vec![u32::MAX; calls]);
        let mut returned = 0;
        for (_, entry) in &tape.entries {
            match entry {
                Entry::Begin(n) => before[*n as usize] = returned,
                Entry::End(n) => {
                    rank[*n as usize] = returned;
                    returned += 1;
                }
                _ => {}
            }
        }
        Overlaps { before, rank }
    }

    /// Had call `a` returned when call `b` began?
    fn precedes(&self, a: u32, b: u32) -> bool {
        self.rank[a as usize] < self.before[b as usize]
    }

    fn overlap(&self, a: u32, b: u32) -> bool {
        a != b && !self.precedes(a, b) && !self.precedes(b, a)
    }
}

/// An order of a run's calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// Numbers of the calls.
    pub(super) operations: Vec<u32>,
    /// For each number the version that it makes.
    versions: Vec<u32>,
    /// For each place the number of calls that had returned before.
    ranks: Vec<u32>,
    /// For each number of calls that have begun the newest version that they make.
    newest: Vec<u32>,
}

impl Order {
    pub(super) fn new(operations: Vec<u32>, overlaps: &Overlaps) -> Order {
        let mut versions = vec![0; operations.len()];
        for (n, number) in operations.iter().enumerate() {
            versions[*number as usize] = n as u32 + 1;
        }
        let mut newest = vec![0];
        for version in &versions {
            newest.push(newest[newest.len() - 1].max(*version));
        }
        let ranks = operations.iter().map(|n| overlaps.rank[*n as usize]).collect();
        Order { operations, versions, ranks, newest }
    }

    /// The calls in this order.
    pub(super) fn of<'a>(&'a self, dids: &'a [Did]) -> impl Iterator<Item = &'a Did> {
        self.operations.iter().filter_map(|n| dids.get(*n as usize))
    }

    /// The number of the call at a place.
    pub(super) fn number(&self, place: u32) -> u32 {
        self.operations.get(place as usize).copied().unwrap_or(place)
    }

    /// The version that a call makes.
    pub(super) fn version(&self, number: u32) -> Option<u32> {
        self.versions.get(number as usize).copied()
    }

    /// Versions up to this one may be there when `begun` calls have begun.
    pub(crate) fn newest_begun(&self, begun: u32) -> u32 {
        self.newest.get(begun as usize).copied().unwrap_or(begun)
    }

    /// Is the call at a place one of the first `ended` that returned?
    pub(crate) fn has_returned(&self, place: u32, ended: u32) -> bool {
        self.ranks.get(place as usize).copied().unwrap_or(place) < ended
    }
}

/// Calls of which nobody knows all that they did.
#[derive(Clone, Debug)]
pub(super) struct Loose {
    /// Each block of what they wrote may be of another call that wrote it meanwhile.
    pub(super) mixed: Vec<u32>,
    /// They sync a descriptor that was opened or closed meanwhile, and promise nothing.
    pub(super) void: Vec<u32>,
}

/// A run, and further orders that its calls can have had.
#[derive(Clone, Debug)]
pub(super) struct Others {
    before: Vec<Before>,
    dids: Vec<Did>,
    overlaps: Overlaps,
    loose: Loose,
    orders: Vec<Vec<u32>>,
    ledgers: OnceCell<Vec<Ledger>>,
}

impl Ledger {
    /// Of a run, some of whose calls may have overlapped. Errors: they can have had too many
    /// orders.
    pub fn of_run(
        before: &[Before],
        dids: &[Did],
        block: u32,
        overlaps: &Overlaps,
    ) -> Result<Ledger, String> {
        let overlapped = (0..dids.len()).any(|n| (overlaps.before[n] as usize) < n);
        if !overlapped {
            return Ok(Ledger::after(before, dids, block));
        }
        let run = Run { dids, overlaps };
        let too_many = || {
            format!(
                "more than {ORDERS_MAX} orders of the calls that overlap: fewer calls in threads, \
                 or a `join` between them"
            )
        };
        let orders = run.orders().ok_or_else(too_many)?;
        let loose = Loose { mixed: run.mixed(), void: run.void() };
        let make = |order: &Vec<u32>| {
            let order = Order::new(order.clone(), overlaps);
            Ledger::in_order(before, dids, block, (order, Some(&loose)))
        };
        let first = orders.iter().enumerate().map(|(n, order)| (n, make(order)));
        let fitting = first.into_iter().find(|(_, ledger)| ledger.fits);
        // What the calls answered fits no order: then each is as good as any other.
        let (skip, mut ledger) = fitting.unwrap_or_else(|| (0, make(&orders[0])));
        let (before, dids) = (before.to_vec(), dids.to_vec());
        let (orders, overlaps) = (orders[skip + 1..].to_vec(), overlaps.clone());
        let ledgers = OnceCell::new();
        let others = Others { before, dids, overlaps, loose, orders, ledgers };
        ledger.others = (!others.orders.is_empty()).then(|| Rc::new(others));
        Ok(ledger)
    }

    /// Can its calls have had other orders?
    pub(crate) fn has_other_orders(&self) -> bool {
        self.others.is_some()
    }

    /// The ledgers of the other orders.
    pub(crate) fn others(&self) -> &[Ledger] {
        let Some(others) = &self.others else { return &[] };
        others.ledgers.get_or_init(|| {
            let make = |order: &Vec<u32>| {
                let order = (Order::new(order.clone(), &others.overlaps), Some(&others.loose));
                Ledger::in_order(&others.before, &others.dids, self.block as u32, order)
            };
            others.orders.iter().map(make).filter(|l| l.fits || !self.fits).collect()
        })
    }

    /// Can the call answer what it did, after those before it?
    pub(super) fn agrees(&self, did: &Did, walk: &Walk) -> bool {
        if did.uses.iter().zip(did.call.clone().descriptors_mut()).any(|(used, fd)| {
            let open = walk.open.get(fd).map(|o| &self.files[o.object as usize]);
            open.is_none_or(|life| life.ino.is_some_and(|ino| ino != used.ino))
        }) {
            return false;
        }
        let is = |path: &str, follow| self.at(&self.resolve(path, follow)).is_some();
        let (end, all) = (Follow::Parents, Follow::All);
        let has_parent = |path: &str| {
            let path = self.resolve(path, end);
            path.rsplit_once('/').is_none_or(|(parent, _)| self.at(parent).is_some())
        };
        match (&did.call, &did.error) {
            (Call::Open(_, path, how), None) => {
                let known = self.at(&self.resolve(path, all));
                let life = known.map(|o| &self.files[o as usize]);
                let same = life.and_then(|l| l.ino).zip(did.ino).is_none_or(|(a, b)| a == b);
                how.tmpfile || same && (known.is_some() || how.create && has_parent(path))
            }
            (Call::Open(_, path, how), Some(FsError::NotFound)) => {
                !(is(path, all) || how.create && has_parent(path))
            }
            (Call::Open(_, path, _), Some(FsError::Exists)) => is(path, end),
            (Call::Unlink(path) | Call::Rmdir(path), error) => match error {
                None => is(path, end),
                Some(FsError::NotFound) => !is(path, end),
                _ => true,
            },
            (
                Call::Mkdir(path)
                | Call::Mkfifo(path)
                | Call::Mknod(path, ..)
                | Call::Symlink(_, path)
                | Call::Linkat(_, path),
                error,
            ) => match error {
                None => !is(path, end) && has_parent(path),
                Some(FsError::Exists) => is(path, end),
                Some(FsError::NotFound) => !has_parent(path),
                _ => true,
            },
            (Call::Link(a, b), None) => is(a, end) && !is(b, end) && has_parent(b),
            (Call::Link(_, b), Some(FsError::Exists)) => is(b, end),
            (Call::Rename(a, b), None) => is(a, end) && has_parent(b),
            (Call::Renameat2(a, b, how), None) => {
                is(a, end)
                    && match how {
                        RenameHow::Exchange => is(b, end),
                        RenameHow::NoReplace => !is(b, end) && has_parent(b),
                        _ => has_parent(b),
                    }
            }
            (Call::Renameat2(_, b, RenameHow::NoReplace), Some(FsError::Exists)) => is(b, end),
            (
                Call::Rename(a, b) | Call::Link(a, b) | Call::Renameat2(a, b, _),
                Some(FsError::NotFound),
            ) => {
                let needs_target = matches!(did.call, Call::Renameat2(_, _, RenameHow::Exchange));
                !is(a, end) || !has_parent(b) || needs_target && !is(b, end)
            }
            (
                Call::Chmod(path, _)
                | Call::Chattr(path, _)
                | Call::Chown(path, ..)
                | Call::Utimensat(path, ..)
                | Call::Truncate(path, _)
                | Call::SetXattr { path, .. }
                | Call::RemoveXattr(path, _),
                error,
            ) => match error {
                None => path == "." || is(path, all),
                Some(FsError::NotFound) => !is(path, all),
                _ => true,
            },
            _ => true,
        }
    }
}

/// The calls of a run.
struct Run<'a> {
    dids: &'a [Did],
    overlaps: &'a Overlaps,
}

impl Run<'_> {
    fn call(&self, n: u32) -> &Call {
        &self.dids[n as usize].call
    }

    /// Orders of all calls, that of their returns first; `None`: too many.
    fn orders(&self) -> Option<Vec<Vec<u32>>> {
        let all = 0..self.dids.len() as u32;
        let (syncs, mut rest): (Vec<u32>, Vec<u32>) = all.partition(|n| only_syncs(self.call(*n)));
        rest.sort_by_key(|n| self.overlaps.rank[*n as usize]);
        let mut found = Vec::new();
        let is_all = self.extend(&mut Vec::new(), &rest, Vec::new(), &mut found);
        is_all.then(|| found.into_iter().map(|order| self.with_syncs(order, &syncs)).collect())
    }

    /// Adds the orders that begin with `placed`, with `rest` still to come. `asleep`: calls that
    /// lead to an order that is known. Returns whether there was room.
    fn extend(
        &self,
        placed: &mut Vec<u32>,
        rest: &[u32],
        mut asleep: Vec<u32>,
        found: &mut Vec<Vec<u32>>,
    ) -> bool {
        if rest.is_empty() {
            found.push(placed.clone());
            return found.len() <= ORDERS_MAX;
        }
        for (at, next) in rest.iter().enumerate() {
            // The rest is in the order of returns: what must come before includes the first of it.
            if asleep.contains(next) || at > 0 && self.overlaps.precedes(rest[0], *next) {
                continue;
            }
            let still = asleep.iter().copied().filter(|n| !self.conflict(*n, *next)).collect();
            let mut left = rest.to_vec();
            left.remove(at);
            placed.push(*next);
            let had_room = self.extend(placed, &left, still, found);
            placed.pop();
            if !had_room {
                return false;
            }
            asleep.push(*next);
        }
        true
    }

    /// Puts each sync behind what had returned when it began.
    fn with_syncs(&self, order: Vec<u32>, syncs: &[u32]) -> Vec<u32> {
        let place = |sync: &u32| {
            order.iter().rposition(|n| self.overlaps.precedes(*n, *sync)).map_or(0, |at| at + 1)
        };
        let places: Vec<(usize, u32)> = syncs.iter().map(|sync| (place(sync), *sync)).collect();
        let mut out = Vec::new();
        for at in 0..=order.len() {
            out.extend(places.iter().filter(|(p, _)| *p == at).map(|(_, sync)| *sync));
            out.extend(order.get(at));
        }
        out
    }

    /// Does one of two calls open or close a descriptor of the other?
    fn change_descriptor(&self, a: u32, b: u32) -> bool {
        let fds = |n: u32| -> Vec<u32> {
            self.call(n).clone().descriptors_mut().into_iter().map(|fd| *fd).collect()
        };
        let changes = |n: u32| matches!(self.call(n), Call::Open(..) | Call::Close(_));
        (changes(a) || changes(b)) && fds(a).iter().any(|fd| fds(b).contains(fd))
    }

    /// See [`Loose::void`].
    fn void(&self) -> Vec<u32> {
        let all = 0..self.dids.len() as u32;
        let is_void = |n: &u32| {
            let mut others = 0..self.dids.len() as u32;
            only_syncs(self.call(*n))
                && others.any(|m| self.overlaps.overlap(*n, m) && self.change_descriptor(*n, m))
        };
        all.filter(is_void).collect()
    }

    /// Does it matter which of two calls comes first?
    fn conflict(&self, a: u32, b: u32) -> bool {
        let (did, other) = (&self.dids[a as usize], &self.dids[b as usize]);
        if self.change_descriptor(a, b) {
            return true;
        }
        let ends = |did: &Did| matches!(did.call, Call::AioWait(_));
        if ends(did) || ends(other) {
            return true;
        }
        match (touches_names(&did.call), touches_names(&other.call)) {
            (true, true) => true,
            (false, false) => did.uses.iter().any(|u| other.uses.iter().any(|o| o.ino == u.ino)),
            (true, false) => !only_names(&did.call),
            (false, true) => !only_names(&other.call),
        }
    }

    /// See [`Loose::mixed`]: direct writes and stores, which no lock of the file keeps apart.
    fn mixed(&self) -> Vec<u32> {
        let writes = |n: u32| written(&self.dids[n as usize]);
        let all = 0..self.dids.len() as u32;
        let is_mixed = |a: &u32| {
            let Some((file, from, to, by_page)) = writes(*a) else { return false };
            (0..self.dids.len() as u32).any(|b| {
                self.overlaps.overlap(*a, b)
                    && writes(b).is_some_and(|other| {
                        other.0 == file && other.1 < to && from < other.2 && (by_page || other.3)
                    })
            })
        };
        all.filter(is_mixed).collect()
    }
}

/// Inode, first byte and end of what a call writes, in whole pages; and does it write page by page?
fn written(did: &Did) -> Option<(u64, u64, u64, bool)> {
    // Of a copy the file that it writes is named first.
    let file = did.uses.first()?;
    let (at, len, by_page) = match &did.call {
        Call::Pwrite { at, len, .. } => (*at, u64::from(*len), file.direct),
        Call::MmapWrite { at, len, .. } => (*at, u64::from(*len), true),
        Call::CopyFileRange { to_at, len, .. } => (*to_at, *len, true),
        // It holds the locks of both files, which only a store through a mapping goes past.
        Call::Reflink { to_at, len: 0, .. } => (*to_at, u64::MAX, false),
        Call::Reflink { to_at, len, .. } => (*to_at, *len, false),
        _ => return None,
    };
    let end = at.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    Some((file.ino, at / PAGE * PAGE, end, by_page))
}

/// Does the call change no file and no name?
fn only_syncs(call: &Call) -> bool {
    matches!(
        call,
        Call::Fsync(_)
            | Call::Fdatasync(_)
            | Call::Fbarrier(_)
            | Call::Fdatabarrier(_)
            | Call::Syncfs(_)
            | Call::Sync
            | Call::Mkcp(_)
            | Call::Chcp(..)
            | Call::Rmcp(_)
            | Call::Msync(..)
            | Call::SyncFileRange(..)
            | Call::Fadvise(..)
            | Call::DropCaches
    )
}

/// Does it read or change names?
fn touches_names(call: &Call) -> bool {
    !call.clone().paths_mut().is_empty() || matches!(call, Call::Close(_))
}

/// Does it leave the contents of files as they are?
fn only_names(call: &Call) -> bool {
    match call {
        Call::Open(_, _, how) => !how.truncate,
        Call::Mkdir(_)
        | Call::Rmdir(_)
        | Call::Mknod(..)
        | Call::Mkfifo(_)
        | Call::Symlink(..)
        | Call::Link(..)
        | Call::Linkat(..)
        | Call::Unlink(_)
        | Call::Chmod(..)
        | Call::SetXattr { .. }
        | Call::RemoveXattr(..)
        | Call::Ack(_)
        | Call::Mark(_) => true,
        _ => false,
    }
}
