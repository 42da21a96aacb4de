//! One queue: where it is, how it is notified, which of its requests the drive has.

use std::fs::File;

use virtio_queue::{DescriptorChain, Queue, QueueT};

use super::memory::{Memory, Shared};

/// Largest queue.
pub const MAX_SIZE: u16 = 1024;

/// A request as the guest has put it.
pub type Chain = DescriptorChain<Shared>;

/// A queue.
pub struct Ring {
    queue: Queue,
    size: u16,
    /// Addresses of its parts in the front end's process: descriptors, used, available.
    addresses: Option<(u64, u64, u64)>,
    base: u16,
    /// Was it stopped, and not begun again?
    stopped: bool,
    /// Is it enabled by the front end?
    pub enabled: bool,
    /// The front end's kicks, if they do not come in the socket.
    pub kick: Option<File>,
    /// Where we call, if not through the socket.
    pub call: Option<File>,
}

impl Ring {
    /// A queue that is not set up.
    pub fn new() -> Ring {
        Ring {
            // A power of two that is not 0.
            queue: Queue::new(MAX_SIZE).expect("a size that queues have"),
            size: MAX_SIZE,
            addresses: None,
            base: 0,
            stopped: false,
            enabled: false,
            kick: None,
            call: None,
        }
    }

    /// Its size. Errors: none that a queue can have.
    pub fn set_size(&mut self, size: u32) -> Result<(), String> {
        let fits = u16::try_from(size).ok().filter(|s| s.is_power_of_two() && *s <= MAX_SIZE);
        self.size = fits.ok_or_else(|| format!("a queue of {size} descriptors"))?;
        Ok(())
    }

    /// Where its parts are: descriptors, used, available.
    pub fn set_addresses(&mut self, parts: (u64, u64, u64)) {
        self.addresses = Some(parts);
    }

    /// The index that the next request has.
    pub fn set_base(&mut self, base: u32) -> Result<(), String> {
        self.base = u16::try_from(base).map_err(|_| format!("a queue begins at {base}"))?;
        self.queue.set_ready(false);
        self.stopped = false;
        Ok(())
    }

    /// Stops it. Returns the index of the next request.
    pub fn stop(&mut self) -> u16 {
        if self.queue.ready() {
            self.base = self.queue.next_avail();
        }
        self.queue.set_ready(false);
        self.stopped = true;
        self.enabled = false;
        (self.kick, self.call) = (None, None);
        self.base
    }

    /// Its memory has moved: it is found again at the next request.
    pub fn moved(&mut self) {
        if self.queue.ready() {
            self.base = self.queue.next_avail();
            self.queue.set_ready(false);
        }
    }

    /// The next request; `None`: there is none, or the queue is not one that can be read.
    pub fn pop(&mut self, memory: &Memory) -> Option<Chain> {
        if !self.enabled {
            return None;
        }
        if !self.queue.ready() {
            self.start(memory)?;
        }
        self.queue.pop_descriptor_chain(memory.shared().clone())
    }

    /// Finds its parts in memory.
    fn start(&mut self, memory: &Memory) -> Option<()> {
        let (descriptors, used, available) = self.addresses?;
        let q = &mut self.queue;
        q.reset();
        q.try_set_size(self.size).ok()?;
        q.try_set_desc_table_address(memory.physical(descriptors)?).ok()?;
        q.try_set_avail_ring_address(memory.physical(available)?).ok()?;
        q.try_set_used_ring_address(memory.physical(used)?).ok()?;
        q.set_next_avail(self.base);
        // What was used before goes on where it was.
        let idx = q.used_idx(&**memory.shared(), std::sync::atomic::Ordering::Acquire).ok()?;
        q.set_next_used(idx.0);
        q.set_ready(true);
        let valid = q.is_valid(&**memory.shared());
        q.set_ready(valid);
        self.stopped &= !valid;
        valid.then_some(())
    }

    /// Gives a request back, with how many bytes were written into it. Does the guest want to be
    /// called?
    pub fn give_back(&mut self, memory: &Memory, head: u16, bytes: u32) -> bool {
        // Memory may have moved while the drive had the request.
        if !self.queue.ready() && (self.stopped || self.start(memory).is_none()) {
            return false;
        }
        let shared = &**memory.shared();
        self.queue.add_used(shared, head, bytes).is_ok()
            && self.queue.needs_notification(shared).unwrap_or(true)
    }
}
