//! The journal's state: transactions, their lists, and the moves of buffers between them.
//!
//! Picture:    running (at most one) -> committing (at most one) -> checkpoint list (oldest first)
//!             -> gone. buffer: Reserved -> Metadata -> Shadow -> Forget -> (checkpoint list) and,
//!             if a newer transaction wants it, Reserved, Metadata or Forget of that one.
//! Invariants: 1. nothing here waits; every function leaves lists and flags consistent.
//!             2. a buffer on a transaction's list is never `Dirty`, only `JbdDirty`: it goes home
//!                after its commit.
//! Source:     Linux 6.1 `fs/jbd2/transaction.c` (`__jbd2_journal_{file,unfile,refile}_buffer`),
//!             `checkpoint.c`.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::rc::Rc;

use wp_base::live::{Kind as LiveKind, Tally};
use wp_base::{FsError, Span, Time};
use wp_cache::BufFlag;
use wp_medium::Slice;
use wp_rt::TaskId;

use crate::counters::JournalCounters;
use crate::disk::tid_after;
use crate::fast::FastArea;
use crate::heads::{Heads, Kind, List, On};
use crate::inode::JournalInode;
use crate::options::SPARE_BLOCKS;
use crate::site;

/// Life of a transaction. RUNNING -commit-> LOCKED -no handle left-> SWITCH -> FLUSH (a new one may
/// run) -> COMMIT (logging) -> DFLUSH (data on the device) -> JFLUSH (record) -> CALLBACK ->
/// FINISHED (checkpoint list).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TransactionState {
    /// Handles may join.
    Running,
    /// Waits for its handles; no new one anywhere in the file system.
    Locked,
    /// Its lists are put in order.
    Switch,
    /// It is the committing one; ordered data is submitted.
    Flush,
    /// Metadata is written to the log.
    Commit,
    /// Ordered data is complete; the log writes are waited for.
    CommitDflush,
    /// The commit record is written.
    CommitJflush,
    /// Commit callbacks run.
    CommitCallback,
    /// Committed; only its checkpoint list is left.
    Finished,
}

/// One compound transaction.
pub(crate) struct Transaction {
    pub state: TransactionState,
    pub started: Time,
    /// When it is to be committed by age.
    pub expires: Time,
    /// Open handles (`t_updates`).
    pub updates: u32,
    /// Log blocks that its handles may still need.
    pub outstanding: i64,
    /// Revoke records of its closed handles.
    pub outstanding_revokes: u32,
    pub handles: u32,
    /// A synchronous handle is in it.
    pub synchronous: bool,
    /// Asked for before its time.
    pub requested: bool,
    /// Ordered data was filed.
    pub need_data_flush: bool,
    /// Log block where it starts, once it is committing.
    pub log_start: u32,
    lists: [List; 5],
    pub checkpoint: List,
    /// Ordered-data inodes, oldest first.
    pub inodes: Vec<Rc<JournalInode>>,
    pub callbacks: Vec<Box<dyn FnOnce()>>,
    /// Buffers that it may not commit before an older transaction is over (`t_jh_wait_list`).
    pub waits: u32,
    /// Somebody wants it durable, not only in order (`t_flush_trigger`).
    pub flush_wanted: bool,
    /// Buffers that a newer transaction took while this one was not over.
    pub versions: Vec<Version>,
    /// When somebody asked for its commit.
    pub requested_at: Time,
    /// Of its checkpoint list, dropped without being written by us.
    pub dropped: u32,
    _tally: Tally,
}

/// What an older transaction keeps of a buffer that a newer one has taken (multi-version shadow
/// paging).
pub(crate) struct Version {
    pub key: u32,
    /// Its contents, if they still have to be logged.
    pub unlogged: Option<Slice>,
    /// They have to go home.
    pub goes_home: bool,
}

impl Transaction {
    pub fn list(&self, on: On) -> &List {
        &self.lists[on as usize]
    }
}

/// Transactions alive, by id. Ids follow each other, so they stand in a row.
#[derive(Default)]
pub(crate) struct Transactions {
    /// Id of the first place.
    first: u32,
    places: VecDeque<Option<Transaction>>,
}

impl Transactions {
    fn place(&self, tid: u32) -> usize {
        tid.wrapping_sub(self.first) as usize
    }

    pub fn get(&self, tid: u32) -> Option<&Transaction> {
        self.places.get(self.place(tid))?.as_ref()
    }

    pub fn get_mut(&mut self, tid: u32) -> Option<&mut Transaction> {
        let place = self.place(tid);
        self.places.get_mut(place)?.as_mut()
    }

    fn insert(&mut self, tid: u32, t: Transaction) {
        if self.places.is_empty() {
            self.first = tid;
        }
        assert_eq!(self.place(tid), self.places.len(), "transaction {tid} is out of order");
        self.places.push_back(Some(t));
    }

    fn remove(&mut self, tid: u32) {
        let place = self.place(tid);
        self.places[place] = None;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// Everything that changes in a journal but for its superblock.
pub(crate) struct State {
    /// Next transaction id.
    pub sequence: u32,
    /// Last one committed.
    pub commit_sequence: u32,
    /// Last one that was asked to commit.
    pub commit_request: u32,
    /// Oldest one in the log.
    pub tail_sequence: u32,
    /// Next log block to write.
    pub head: u32,
    /// Oldest log block in use.
    pub tail: u32,
    pub free: i64,
    pub first: u32,
    /// Block after the ring's last.
    pub last: u32,
    /// Most credits of one transaction.
    pub max_buffers: i64,
    /// Credits that a transaction starts with.
    pub base_credits: i64,
    /// Share of outstanding credits on top, as a shift.
    pub control_shift: Option<u32>,
    pub transactions: Transactions,
    pub running: Option<u32>,
    pub committing: Option<u32>,
    /// Dispatched and not over, oldest first (dual mode; `j_cpsetup_transactions`).
    pub flushing: VecDeque<u32>,
    /// Last one that is over: its buffers have gone on.
    pub settled_sequence: u32,
    /// Last one that the flush thread knows to be durable.
    pub flush_sequence: u32,
    /// Somebody wants a transaction durable that the flush thread passed without a flush.
    pub flush_owed: bool,
    /// Multi-version shadow paging: how many versions.
    pub versions: Option<NonZeroU32>,
    /// Committed transactions with buffers to write home, oldest first.
    pub checkpoint: VecDeque<u32>,
    pub heads: Heads,
    /// Two tables: one takes the running transaction's revokes, the other holds the committing
    ///             one's.
    pub revokes: [BTreeSet<u64>; 2],
    pub revoke_now: usize,
    pub reserved_credits: i64,
    /// Who keeps handles from starting (`j_barrier_count`).
    pub barriers: u32,
    pub fast: FastArea,
    /// The log is empty on disk: the superblock must be written before the first commit.
    pub flushed: bool,
    pub unmount: bool,
    pub thread_alive: bool,
    /// The flush thread of dual mode.
    pub flush_thread_alive: bool,
    pub abort: Option<FsError>,
    pub checkpoint_error: bool,
    pub average_commit: Span,
    pub last_sync_writer: Option<TaskId>,
    /// The commit timer is armed for this time.
    pub timer_armed: Option<Time>,
    pub counters: JournalCounters,
}

impl State {
    pub fn aborted(&self) -> bool {
        self.abort.is_some()
    }

    pub fn transaction(&self, tid: u32) -> &Transaction {
        self.transactions.get(tid).expect("a transaction is referred to only while it lives")
    }

    pub fn transaction_mut(&mut self, tid: u32) -> &mut Transaction {
        self.transactions.get_mut(tid).expect("a transaction is referred to only while it lives")
    }

    /// The next buffer of which only `tid`'s version is to be logged. None on an aborted journal.
    pub fn next_unlogged(&self, tid: u32) -> Option<u32> {
        let versions = &self.transaction(tid).versions;
        let next = versions.iter().find(|v| v.unlogged.is_some()).filter(|_| !self.aborted());
        next.map(|v| v.key)
    }

    /// What `tid` has to log of a buffer that a newer one took.
    pub fn take_unlogged(&mut self, tid: u32, key: u32) -> Option<Slice> {
        let versions = &mut self.transaction_mut(tid).versions;
        versions.iter_mut().find(|v| v.key == key)?.unlogged.take()
    }

    /// Is this one in its commit, and not over?
    pub fn is_committing(&self, tid: u32) -> bool {
        self.committing == Some(tid) || self.flushing.contains(&tid)
    }

    /// The newest that is in its commit and not over.
    pub fn newest_committing(&self) -> Option<u32> {
        self.committing.or(self.flushing.back().copied())
    }

    /// A new running transaction. Source: `jbd2_get_transaction`.
    pub fn begin_transaction(&mut self, now: Time, interval: Span) -> u32 {
        assert!(self.running.is_none(), "transaction {:?} is running already", self.running);
        let tid = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let t = Transaction {
            state: TransactionState::Running,
            started: now,
            expires: now + interval,
            updates: 0,
            outstanding: self.base_credits + self.reserved_credits,
            outstanding_revokes: 0,
            handles: 0,
            synchronous: false,
            requested: false,
            need_data_flush: false,
            log_start: 0,
            lists: [List::default(); 5],
            checkpoint: List::default(),
            inodes: Vec::new(),
            callbacks: Vec::new(),
            waits: 0,
            flush_wanted: false,
            versions: Vec::new(),
            requested_at: now,
            dropped: 0,
            _tally: Tally::new(LiveKind::Transaction),
        };
        self.transactions.insert(tid, t);
        self.running = Some(tid);
        tid
    }

    /// Free log blocks that nothing is promised. Source: `jbd2_log_space_left`.
    pub fn space_left(&self) -> i64 {
        let mut free = self.free - SPARE_BLOCKS;
        if let Some(tid) = self.committing {
            free -= self.with_control(self.transaction(tid).outstanding);
        }
        free.max(0)
    }

    /// What must be free before a handle may start.
    pub fn space_needed(&self) -> i64 {
        self.with_control(self.max_buffers)
    }

    fn with_control(&self, credits: i64) -> i64 {
        credits + self.control_shift.map_or(0, |s| credits >> s)
    }

    /// The next block of the ring. Panics if the credits did not guarantee one: a commit cannot
    /// make room.
    pub fn next_log_block(&mut self) -> u32 {
        assert!(self.free > 1, "log is full in a commit: {} free", self.free);
        let block = self.head;
        self.free -= 1;
        self.head += 1;
        if self.head == self.last {
            self.head = self.first;
        }
        block
    }

    /// Oldest transaction that the log must keep and where it starts; `None` if the tail cannot
    /// move.
    /// Source: `jbd2_journal_get_log_tail`.
    pub fn log_tail(&self) -> Option<(u32, u32)> {
        let (tid, block) = if let Some(tid) = self.checkpoint.front() {
            (*tid, self.transaction(*tid).log_start)
        } else if let Some(tid) = self.flushing.front().copied().or(self.committing) {
            (tid, self.transaction(tid).log_start)
        } else {
            (self.running.unwrap_or(self.sequence), self.head)
        };
        tid_after(tid, self.tail_sequence).then_some((tid, block))
    }

    /// Log blocks between the tail and `block`.
    pub fn freed_up_to(&self, block: u32) -> i64 {
        let freed = i64::from(block) - i64::from(self.tail);
        if freed < 0 { freed + i64::from(self.last - self.first) } else { freed }
    }

    /// Moves the tail.
    pub fn set_tail(&mut self, tid: u32, block: u32) {
        self.free += self.freed_up_to(block);
        self.tail_sequence = tid;
        self.tail = block;
    }

    /// Asks for the commit of `tid`; true if the thread must be woken. Source:
    /// `__jbd2_log_start_commit`.
    pub fn request_commit(&mut self, tid: u32, now: Time) -> bool {
        if self.commit_request == tid || self.running != Some(tid) {
            return false;
        }
        self.commit_request = tid;
        let t = self.transaction_mut(tid);
        t.requested = true;
        t.requested_at = now;
        true
    }

    /// Says that `tid`, the running one, gets the buffer when its owner is over.
    pub fn inherit(&mut self, key: u32, tid: u32) {
        self.heads.get_mut(key).next_owner = Some(tid);
        self.transaction_mut(tid).waits += 1;
    }

    /// Files a buffer on a list of `tid`. Source: `__jbd2_journal_file_buffer`.
    pub fn file(&mut self, key: u32, tid: u32, on: On) {
        let h = self.heads.get(key);
        assert!(
            h.owner.is_none_or(|o| o == tid),
            "block {} is transaction {:?}'s, not {tid}'s",
            h.buffer.block(),
            h.owner
        );
        if h.owner.is_some() && h.on == on {
            return;
        }
        let b = h.buffer.clone();
        let stays_dirty = b.flag(BufFlag::Dirty) && !site::UNDIRTY.on();
        let was_dirty = (!stays_dirty && h.map.clear_dirty(&b)) || b.clear(BufFlag::JbdDirty);
        if self.heads.get(key).owner.is_some() {
            self.unlink(key);
        }
        self.heads.get_mut(key).owner = Some(tid);
        self.heads.get_mut(key).on = on;
        let t = self.transactions.get_mut(tid).expect("buffers are filed on live transactions");
        self.heads.push_back(&mut t.lists[on as usize], Kind::Transaction, key);
        if was_dirty {
            b.set(BufFlag::JbdDirty);
        }
    }

    /// Takes a buffer off its list; what was to be logged may now go home.
    /// Source: `__jbd2_journal_temp_unlink_buffer`.
    pub(crate) fn unlink(&mut self, key: u32) {
        let h = self.heads.get_mut(key);
        let on = std::mem::replace(&mut h.on, On::Nothing);
        if on == On::Nothing {
            return;
        }
        let (b, owner) = (h.buffer.clone(), h.owner.expect("a listed buffer has an owner"));
        let t = self.transactions.get_mut(owner).expect("owners live");
        self.heads.unlink(&mut t.lists[on as usize], Kind::Transaction, key);
        if !self.heads.get(key).older.is_empty() {
            // The version of a transaction before is not durable: it goes home after that.
            return;
        }
        if b.clear(BufFlag::JbdDirty) && !self.aborted() && site::RELEASE_DIRTY.on() {
            self.heads.get(key).map.mark_dirty(&b);
        }
    }

    /// Takes a buffer out of its transaction. Source: `__jbd2_journal_unfile_buffer`.
    pub fn unfile(&mut self, key: u32) {
        assert!(self.heads.get(key).next_owner.is_none());
        self.unlink(key);
        let h = self.heads.get_mut(key);
        h.owner = None;
        h.frozen = None;
        h.committed = None;
        self.heads.put(key);
    }

    /// Hands a buffer on to the transaction that wants it next, or lets it go.
    /// Source: `__jbd2_journal_refile_buffer`.
    pub fn refile(&mut self, key: u32) {
        let Some(next) = self.heads.get(key).next_owner else {
            self.unfile(key);
            return;
        };
        let b = self.heads.get(key).buffer.clone();
        let was_dirty = b.clear(BufFlag::JbdDirty);
        self.unlink(key);
        self.transaction_mut(next).waits -= 1;
        let h = self.heads.get_mut(key);
        h.owner = Some(next);
        h.next_owner = None;
        let on = if b.flag(BufFlag::Freed) {
            On::Forget
        } else if h.modified {
            On::Metadata
        } else {
            On::Reserved
        };
        self.file(key, next, on);
        assert!(
            self.transaction(next).state <= TransactionState::Switch,
            "{next} cannot take buffers any more"
        );
        if was_dirty {
            b.set(BufFlag::JbdDirty);
        }
    }

    /// Moves a forgotten buffer to its transaction's Forget list, whatever list it is on.
    pub fn file_forget(&mut self, key: u32, tid: u32) {
        if self.heads.get(key).owner.is_some() {
            self.unlink(key);
        }
        self.file(key, tid, On::Forget);
    }

    /// Ends a truncated buffer's part in `tid`: kept on its Forget list only if an older log copy
    /// is needed until then.
    /// Source: `__dispose_buffer`.
    pub fn dispose(&mut self, key: u32, tid: u32) {
        let h = self.heads.get_mut(key);
        h.modified = false;
        let b = h.buffer.clone();
        h.map.clear_dirty(&b);
        b.clear(BufFlag::JbdDirty);
        if h.checkpoint.is_some() || !h.older.is_empty() {
            self.file_forget(key, tid);
        } else {
            self.unfile(key);
        }
    }

    /// The log copy in `tid` is needed until the buffer is home. Source:
    /// `__jbd2_journal_insert_checkpoint`.
    pub fn insert_checkpoint(&mut self, key: u32, tid: u32) {
        let h = self.heads.get_mut(key);
        assert!(h.checkpoint.is_none(), "block {} is on a checkpoint list", h.buffer.block());
        h.checkpoint = Some(tid);
        let t = self.transactions.get_mut(tid).expect("the committing one lives");
        self.heads.push_front(&mut t.checkpoint, Kind::Checkpoint, key);
    }

    /// The log copy is not needed any more. Returns the transaction if that was its last buffer and
    /// it is gone now. Source: `__jbd2_journal_remove_checkpoint`.
    pub fn remove_checkpoint(&mut self, key: u32) -> Option<Dropped> {
        let tid = self.heads.get(key).checkpoint?;
        if self.heads.get(key).buffer.flag(BufFlag::WriteError) {
            // The caller may not be able to abort the journal here.
            self.checkpoint_error = true;
        }
        let t = self.transactions.get_mut(tid).expect("checkpoint lists are of live transactions");
        t.dropped += 1;
        self.heads.unlink(&mut t.checkpoint, Kind::Checkpoint, key);
        self.heads.get_mut(key).checkpoint = None;
        self.heads.put(key);
        self.drop_if_done(tid)
    }

    /// Forgets a finished transaction with nothing to checkpoint. Source:
    /// `__jbd2_journal_drop_transaction`.
    pub fn drop_if_done(&mut self, tid: u32) -> Option<Dropped> {
        let t = self.transaction(tid);
        if t.state != TransactionState::Finished || !t.checkpoint.is_empty() {
            return None;
        }
        assert!(
            t.updates == 0 && t.lists.iter().all(List::is_empty),
            "transaction {tid} is not empty"
        );
        let dropped = Dropped { tid, buffers: t.dropped };
        self.checkpoint.retain(|c| *c != tid);
        self.transactions.remove(tid);
        Some(dropped)
    }

    /// Drops a checkpoint entry whose buffer is clean and idle. `Err` if it is neither.
    /// Source: `jbd2_journal_try_remove_checkpoint`.
    pub fn try_remove_checkpoint(&mut self, key: u32) -> Result<Option<Dropped>, Busy> {
        let h = self.heads.get(key);
        let b = &h.buffer;
        let busy = h.is_in_transaction()
            || [BufFlag::Dirty, BufFlag::Writeback, BufFlag::Reading].iter().any(|f| b.flag(*f));
        if busy && site::CLEAN_BUSY.on() { Err(Busy) } else { Ok(self.remove_checkpoint(key)) }
    }

    /// Drops what has gone home from the oldest transactions' checkpoint lists, as far as they are
    /// done; all of it with `destroy`. Source: `__jbd2_journal_clean_checkpoint_list`.
    pub fn clean_checkpoints(&mut self, destroy: bool) -> Vec<Dropped> {
        let mut gone = Vec::new();
        for tid in self.checkpoint.clone() {
            let mut released = false;
            while let Some(t) = self.transactions.get(tid) {
                let key = t.checkpoint.first;
                if key == 0 {
                    break;
                }
                let removed = if destroy {
                    Ok(self.remove_checkpoint(key))
                } else {
                    self.try_remove_checkpoint(key)
                };
                match removed {
                    Err(Busy) => break,
                    Ok(None) => {}
                    Ok(Some(d)) => {
                        gone.push(d);
                        released = true;
                    }
                }
            }
            if !released && !destroy {
                break;
            }
        }
        gone
    }
}

/// A transaction that has left the checkpoint list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropped {
    pub tid: u32,
    /// Buffers that left its checkpoint list.
    pub buffers: u32,
}

/// The buffer is dirty, in flight or in a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::TransactionState::Running;

    fn transaction(started: u64) -> Transaction {
        Transaction {
            state: Running,
            started: Time(started),
            expires: Time(started),
            updates: 0,
            outstanding: 0,
            outstanding_revokes: 0,
            handles: 0,
            synchronous: false,
            requested: false,
            need_data_flush: false,
            log_start: 0,
            lists: [List::default(); 5],
            checkpoint: List::default(),
            inodes: Vec::new(),
            callbacks: Vec::new(),
            waits: 0,
            flush_wanted: false,
            versions: Vec::new(),
            requested_at: Time(started),
            dropped: 0,
            _tally: Tally::new(LiveKind::Transaction),
        }
    }

    /// In any order of going, and where ids wrap, each is found while it lives and not after.
    #[test]
    fn transactions_are_found_by_id_while_they_live() {
        let mut rng = wp_base::Rng::stream(1, "transactions");
        let (mut ours, mut alive) = (Transactions::default(), BTreeSet::new());
        for n in 0..2000u64 {
            let tid = |n: u64| (u32::MAX - 1000).wrapping_add(n as u32);
            ours.insert(tid(n), transaction(n));
            alive.insert(n);
            for _ in 0..rng.below(3) {
                let gone = n.saturating_sub(rng.below(9));
                if alive.remove(&gone) {
                    ours.remove(tid(gone));
                }
            }
            for near in n.saturating_sub(40)..n + 9 {
                let found = ours.get(tid(near)).map(|t| t.started.0);
                assert_eq!(found, alive.contains(&near).then_some(near));
                assert_eq!(ours.get_mut(tid(near)).is_some(), found.is_some());
            }
        }
    }
}
