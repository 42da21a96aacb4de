//! One queue: where it is, how it is notified, which of its requests the drive has.
//!
//! Source: virtio 1.3, 2.7 (split virtqueues). A guest that wants no calls
//!         (`VIRTQ_AVAIL_F_NO_INTERRUPT`) is called all the same, which the standard permits.

use std::fs::File;

pub use super::chain::Chain;
use super::memory::{Fault, Memory};

/// Largest queue.
pub const MAX_SIZE: u16 = 1024;

/// Where a queue's parts are in the guest's memory, and how far it has come.
struct Queue {
    descriptors: u64,
    used: u64,
    available: u64,
    next_available: u16,
    next_used: u16,
    /// What the first entry of the used ring names.
    first_used: u32,
}

/// A queue.
pub struct Ring {
    /// `None`: its parts are not looked for yet.
    queue: Option<Queue>,
    size: u16,
    /// What was there and is no more: the guest has shortened its memory.
    fault: Option<Fault>,
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
            queue: None,
            size: MAX_SIZE,
            fault: None,
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
        self.queue = None;
        self.stopped = false;
        Ok(())
    }

    /// Stops it. Returns the index of the next request.
    pub fn stop(&mut self) -> u16 {
        self.moved();
        self.stopped = true;
        self.enabled = false;
        (self.kick, self.call) = (None, None);
        self.base
    }

    /// Its memory has moved: it is found again at the next request.
    pub fn moved(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.base = queue.next_available;
        }
    }

    /// What of its memory was there and is no more.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The next request; `None`: there is none, or the queue is not one that can be read.
    pub fn pop(&mut self, memory: &Memory) -> Option<Chain> {
        if !self.enabled {
            return None;
        }
        if self.queue.is_none() {
            self.start(memory)?;
        }
        match self.next(memory) {
            Ok(chain) => chain,
            Err(fault) => {
                self.fault = Some(fault);
                None
            }
        }
    }

    fn next(&mut self, memory: &Memory) -> Result<Option<Chain>, Fault> {
        let (size, Some(q)) = (self.size, &mut self.queue) else { return Ok(None) };
        let shared = memory.shared();
        let waiting = shared.load(q.available + 2)?.wrapping_sub(q.next_available);
        // More than the queue holds is nonsense.
        if waiting == 0 || waiting > size {
            return Ok(None);
        }
        let mut head = [0; 2];
        shared.read(q.available + 4 + 2 * u64::from(q.next_available % size), &mut head)?;
        let chain = Chain::follow(shared, q.descriptors, size, u16::from_le_bytes(head))?;
        q.next_available = q.next_available.wrapping_add(1);
        Ok(Some(chain))
    }

    /// Finds its parts in memory.
    fn start(&mut self, memory: &Memory) -> Option<()> {
        let (descriptors, used, available) = self.addresses?;
        let (shared, size) = (memory.shared(), u64::from(self.size));
        let part = |user: u64, bytes: u64, align: u64| {
            let at = memory.physical(user).filter(|at| *at != 0 && at.is_multiple_of(align))?;
            shared.holds(at, bytes).then_some(at)
        };
        let descriptors = part(descriptors, 16 * size, 16)?;
        let available = part(available, 6 + 2 * size, 2)?;
        let used = part(used, 6 + 8 * size, 4)?;
        // What was used before goes on where it was.
        let next_used = shared.load(used + 2).ok()?;
        let mut first = [0; 4];
        shared.read(used + 4, &mut first).ok()?;
        let first_used = u32::from_le_bytes(first);
        let next_available = self.base;
        let queue = Queue { descriptors, used, available, next_available, next_used, first_used };
        self.queue = Some(queue);
        self.stopped = false;
        Some(())
    }

    /// Gives a request back, with how many bytes were written into it. Does the guest want to be
    /// called?
    pub fn give_back(&mut self, memory: &Memory, head: u16, bytes: u32) -> bool {
        // Memory may have moved while the drive had the request.
        if self.queue.is_none() && (self.stopped || self.start(memory).is_none()) {
            return false;
        }
        match self.put(memory, head, bytes) {
            Ok(()) => true,
            Err(fault) => {
                self.fault = Some(fault);
                false
            }
        }
    }

    fn put(&mut self, memory: &Memory, head: u16, bytes: u32) -> Result<(), Fault> {
        let (size, Some(q)) = (self.size, &mut self.queue) else { return Ok(()) };
        let (shared, place) = (memory.shared(), q.next_used % size);
        let name = u32::from(head);
        let entry = [name.to_le_bytes(), bytes.to_le_bytes()].concat();
        shared.write(q.used + 4 + 8 * u64::from(place), &entry)?;
        if place == 0 {
            q.first_used = name;
        }
        q.next_used = q.next_used.wrapping_add(1);
        shared.store_used(q.used, q.next_used, q.first_used)
    }
}
