//! A request as the guest has put it: a chain of descriptors, read once.
//!
//! Invariant: a chain ends. It has no more parts than its table has places (virtio 1.3, 2.7.5.3.1),
//!            and no more than 2^32 bytes (2.7.5.2).

use super::memory::{Fault, Shared};

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;

/// Flags of a descriptor.
mod flag {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
}

/// A request's parts.
#[derive(Clone)]
pub struct Chain {
    memory: Shared,
    head: u16,
    /// Parts that are read: (address, bytes).
    read: Vec<(u64, u32)>,
    /// Parts that are written.
    write: Vec<(u64, u32)>,
    /// Bytes of both.
    bytes: u64,
}

impl Chain {
    /// Follows a chain in the table at `table` of `size` descriptors. What is wrong with it ends
    /// it, as a device has it; who reads it finds what is missing.
    ///
    /// Errors: the memory of the table is not there.
    pub(super) fn follow(
        memory: &Shared,
        table: u64,
        size: u16,
        head: u16,
    ) -> Result<Chain, Fault> {
        let (read, write) = (Vec::new(), Vec::new());
        let mut chain = Chain { memory: memory.clone(), head, read, write, bytes: 0 };
        let mut one = [0; DESCRIPTOR];
        let (mut next, mut left) = (head, size);
        while left > 0 && next < size {
            let at = table.saturating_add(u64::from(next) * DESCRIPTOR as u64);
            memory.read(at, &mut one)?;
            let d = Descriptor::of(&one);
            if d.flags & flag::INDIRECT != 0 {
                chain.indirect(&d)?;
                break;
            }
            if !chain.take(&d) || d.flags & flag::NEXT == 0 {
                break;
            }
            (next, left) = (d.next, left - 1);
        }
        Ok(chain)
    }

    /// A table of its own, which is read at once. Errors: its memory is not there.
    fn indirect(&mut self, table: &Descriptor) -> Result<(), Fault> {
        let bytes = table.bytes as usize;
        if !bytes.is_multiple_of(DESCRIPTOR) || bytes / DESCRIPTOR > usize::from(u16::MAX) {
            return Ok(());
        }
        if !self.memory.holds(table.at, u64::from(table.bytes)) {
            return Ok(());
        }
        let mut all = vec![0; bytes];
        self.memory.read(table.at, &mut all)?;
        let (mut next, size) = (0, bytes / DESCRIPTOR);
        for _ in 0..size {
            let Some(one) = all.get(next * DESCRIPTOR..(next + 1) * DESCRIPTOR) else { break };
            let d = Descriptor::of(one);
            if d.flags & flag::INDIRECT != 0 || !self.take(&d) || d.flags & flag::NEXT == 0 {
                break;
            }
            next = usize::from(d.next);
        }
        Ok(())
    }

    /// Takes a part. `false`: the chain is too long with it.
    fn take(&mut self, d: &Descriptor) -> bool {
        self.bytes += u64::from(d.bytes);
        if self.bytes > u64::from(u32::MAX) {
            return false;
        }
        let to = if d.flags & flag::WRITE == 0 { &mut self.read } else { &mut self.write };
        to.push((d.at, d.bytes));
        true
    }

    /// The number that the guest knows it by.
    pub fn head_index(&self) -> u16 {
        self.head
    }

    /// Bytes that can be read. Errors: not all of them lie in the guest's memory.
    pub fn readable(&self) -> Result<usize, Fault> {
        self.sum(&self.read)
    }

    /// Bytes that can be written. Errors: not all of them lie in the guest's memory.
    pub fn writable(&self) -> Result<usize, Fault> {
        self.sum(&self.write)
    }

    fn sum(&self, parts: &[(u64, u32)]) -> Result<usize, Fault> {
        parts.iter().try_fold(0, |sum, &(at, bytes)| match self.memory.holds(at, bytes.into()) {
            true => Ok(sum + bytes as usize),
            false => Err(Fault { at }),
        })
    }

    /// Reads from byte `from` on. Errors: the chain has fewer bytes, or their memory is gone.
    pub fn read(&self, from: usize, out: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        for (at, bytes) in within(&self.read, from, out.len()) {
            self.memory.read(at, &mut out[done..done + bytes])?;
            done += bytes;
        }
        if done == out.len() { Ok(()) } else { Err(Fault { at: 0 }) }
    }

    /// Writes from byte `from` on. Errors: there is no room, or the memory is gone.
    pub fn write(&self, from: usize, data: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        for (at, bytes) in within(&self.write, from, data.len()) {
            self.memory.write(at, &data[done..done + bytes])?;
            done += bytes;
        }
        if done == data.len() { Ok(()) } else { Err(Fault { at: 0 }) }
    }
}

/// Pieces of parts that are `bytes` bytes from byte `from` on: (address, bytes).
fn within(
    parts: &[(u64, u32)],
    mut from: usize,
    mut bytes: usize,
) -> impl Iterator<Item = (u64, usize)> {
    parts.iter().filter_map(move |&(at, length)| {
        let skip = from.min(length as usize);
        let take = (length as usize - skip).min(bytes);
        (from, bytes) = (from - skip, bytes - take);
        (take > 0).then_some((at + skip as u64, take))
    })
}

struct Descriptor {
    at: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn of(bytes: &[u8]) -> Descriptor {
        let mut f = super::wire::Fields(bytes);
        // There are sixteen bytes.
        let (at, bytes) = (f.u64().unwrap_or(0), f.u32().unwrap_or(0));
        let both = f.u32().unwrap_or(0);
        Descriptor { at, bytes, flags: both as u16, next: (both >> 16) as u16 }
    }
}
