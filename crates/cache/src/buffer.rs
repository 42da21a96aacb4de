//! One cached block and its state (`struct buffer_head`).

use std::cell::{Cell, OnceCell, RefCell};

use wp_base::live::{Kind, Tally};
use wp_medium::{Slice, Versions};
use wp_rt::{Rt, WaitQueue};

/// A bit of a buffer's state. Names are those of `BH_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum BufFlag {
    /// The contents are those of the medium, or newer.
    Uptodate = 1 << 0,
    /// To be written to its home. Set and cleared through [`crate::Bdev`] or [`crate::Mapping`].
    Dirty = 1 << 1,
    /// Dirty, but the journal must log it before it may go home.
    JbdDirty = 1 << 2,
    /// Its contents are under journal I/O without a copy.
    Shadow = 1 << 3,
    /// A write to its home is in flight.
    Writeback = 1 << 4,
    /// A read is in flight.
    Reading = 1 << 5,
    /// Has a place on the device ([`Buffer::phys`]).
    Mapped = 1 << 6,
    /// Space is reserved, the place not chosen yet (delayed allocation).
    Delay = 1 << 7,
    /// Just allocated: what stands on the device is garbage.
    New = 1 << 8,
    /// Allocated as an unwritten extent.
    Unwritten = 1 << 9,
    /// Freed by the committing transaction; must not be checkpointed.
    Freed = 1 << 10,
    /// Revoked in the running transaction.
    Revoked = 1 << 11,
    /// [`BufFlag::Revoked`] is meaningful.
    RevokeValid = 1 << 12,
    /// File-system metadata: home writes carry META.
    Meta = 1 << 13,
    /// The last write to its home failed.
    WriteError = 1 << 14,
    /// Its checksum has been verified since it was read.
    Verified = 1 << 15,
    /// Home writes carry PRIO.
    Prio = 1 << 16,
    /// A file system's own use.
    Private1 = 1 << 17,
    /// A file system's own use.
    Private2 = 1 << 18,
    /// Its use starts the next window of readahead (`PG_readahead`).
    Ahead = 1 << 19,
}

/// One cached block.
///
/// `index` is its place in its mapping: the device block for metadata, the logical block for file
/// data. `phys` is where file data goes on the device, valid while `Mapped`.
pub struct Buffer {
    index: u64,
    phys: Cell<u64>,
    len: u32,
    data: RefCell<Slice>,
    changes: Cell<u64>,
    flags: Cell<u32>,
    jh: Cell<u32>,
    rt: Rt,
    wait: OnceCell<Box<WaitQueue>>,
    _tally: Tally,
}

impl Buffer {
    /// A block of `len` zero bytes, in no state.
    pub fn new(rt: &Rt, index: u64, len: u32) -> Buffer {
        assert!(len as usize <= wp_medium::PAGE_BYTES, "a buffer is at most a page");
        Buffer {
            index,
            phys: Cell::new(u64::MAX),
            len,
            data: RefCell::new(Slice::zero(len)),
            changes: Cell::new(0),
            flags: Cell::new(0),
            jh: Cell::new(0),
            rt: rt.clone(),
            wait: OnceCell::new(),
            _tally: Tally::new(Kind::Buffer),
        }
    }

    /// Its place in its mapping; the device block for metadata.
    pub fn block(&self) -> u64 {
        self.index
    }

    /// Where file data lives on the device, in blocks. Meaningful while `Mapped`.
    pub fn phys(&self) -> u64 {
        debug_assert!(self.flag(BufFlag::Mapped));
        self.phys.get()
    }

    /// Gives file data its place on the device.
    pub fn map_to(&self, phys: u64) {
        self.phys.set(phys);
        self.set(BufFlag::Mapped);
    }

    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Shows its bytes.
    pub fn with<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        if let Some(bytes) = self.data.borrow().held() {
            return f(bytes);
        }
        self.data.replace_with(|data| Slice::of_page(data.to_page(), 0, self.len));
        f(self.data.borrow().held().expect("a page holds it now"))
    }

    /// Shows its bytes for writing. Copies them first if a bio, a journal copy or the medium holds
    /// them too. `f` may not look at this buffer in another way.
    pub fn with_mut<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.changes.set(self.changes.get() + 1);
        let mut data = self.data.borrow_mut();
        if let Some(bytes) = data.held_mut() {
            return f(bytes);
        }
        *data = Slice::of_page(data.to_page(), 0, self.len);
        f(data.held_mut().expect("a page holds it now"))
    }

    /// Puts `chunk` at byte `skip`: by reference if it is all of the block.
    pub fn put(&self, skip: u32, chunk: &Slice) {
        if chunk.len() == self.len() {
            self.set_contents(chunk.clone());
            return;
        }
        let (from, to) = (skip as usize, (skip + chunk.len()) as usize);
        self.with_mut(|bytes| chunk.copy_to(&mut bytes[from..to]));
    }

    /// How often its contents have been given away for writing or replaced. While it stands still,
    /// they are the same bytes.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Its contents, by reference: later writes to the buffer do not change them.
    pub fn snapshot(&self) -> Slice {
        self.data.borrow().clone()
    }

    /// Its contents, held compactly: what of them is not zero. For what is mostly zeroes and
    /// changes again soon: whoever gets them does not share the buffer's own page, which is not
    /// copied then.
    pub fn compact(&self) -> Slice {
        self.with(|bytes| Slice::of_page(Versions::only(bytes), 0, self.len))
    }

    /// Replaces its contents, by reference. `contents` must be as long as the buffer.
    pub fn set_contents(&self, contents: Slice) {
        assert_eq!(contents.len(), self.len);
        self.changes.set(self.changes.get() + 1);
        *self.data.borrow_mut() = contents;
    }

    /// Is the bit set?
    pub fn flag(&self, f: BufFlag) -> bool {
        self.flags.get() & f as u32 != 0
    }

    /// Sets the bit.
    pub fn set(&self, f: BufFlag) {
        self.flags.set(self.flags.get() | f as u32);
    }

    /// Clears the bit; true if it was set.
    pub fn clear(&self, f: BufFlag) -> bool {
        let was = self.flag(f);
        self.flags.set(self.flags.get() & !(f as u32));
        was
    }

    /// The journal's private word (a slab key; 0 = none).
    pub fn jh(&self) -> u32 {
        self.jh.get()
    }

    /// Sets the journal's private word.
    pub fn set_jh(&self, key: u32) {
        self.jh.set(key);
    }

    /// Woken when a read or a write of it ends, and when its `Shadow` is cleared.
    pub fn io_wait(&self) -> &WaitQueue {
        self.wait.get_or_init(|| Box::new(WaitQueue::new(&self.rt, "buffer I/O")))
    }

    /// Wakes those who wait on it, if there ever were any.
    pub fn wake(&self) {
        if let Some(w) = self.wait.get() {
            w.wake_all();
        }
    }

    /// Waits while the bit is set. Waits: for [`Buffer::wake`].
    pub async fn wait_clear(&self, f: BufFlag) {
        while self.flag(f) {
            self.io_wait().wait().await;
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} flags {:#x} jh {})", self.index, self.flags.get(), self.jh.get())
    }
}
