//! Front ends of vhost-user-blk that hand over memory and counters and then go wrong: what a seed of
//! bytes cannot be, as descriptors come with the messages.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::write;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::rng::{NUMBERS, Rng};

/// Requests of the vhost-user protocol, "Front-end message types".
mod request {
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ENABLE: u32 = 18;
}

const MEMORY_BYTES: u64 = 1 << 20;
/// VIRTIO_F_VERSION_1 and VHOST_USER_F_PROTOCOL_FEATURES.
const FEATURES: u64 = 1 << 32 | 1 << 30;
/// Where the front end has its memory.
const USER: u64 = 0x7000_0000;

/// What goes wrong, once in so many messages.
const RARELY: usize = 12;

struct Client<'a> {
    rng: &'a mut Rng,
    stream: &'a UnixStream,
}

impl Client<'_> {
    /// A message, as it is to be or damaged; with its descriptors, others, or none.
    fn say(&mut self, what: u32, payload: &[u64], fds: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let rng = &mut *self.rng;
        let mut payload: Vec<u8> = payload.iter().flat_map(|n| n.to_le_bytes()).collect();
        if rng.once_in(RARELY) && !payload.is_empty() {
            let at = rng.below(payload.len() / 8) * 8;
            payload[at..at + 8]
                .copy_from_slice(&rng.pick(&NUMBERS).parse().unwrap_or(0u64).to_le_bytes());
        }
        let what = if rng.once_in(RARELY) { rng.below(45) as u32 } else { what };
        let bytes = if rng.once_in(4 * RARELY) { rng.next() as u32 } else { payload.len() as u32 };
        let header: Vec<u8> = [what, 1, bytes].iter().flat_map(|n| n.to_le_bytes()).collect();
        let given: Vec<BorrowedFd<'_>> = match rng.below(RARELY) {
            0 => Vec::new(),
            1 => fds.iter().copied().chain([self.stream.as_fd(); 3]).collect(),
            _ => fds.to_vec(),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !given.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&given));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(&payload)];
        sendmsg(self.stream, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// A front end from its greeting to its end. Errors: the host's; the server ends the connection of
/// one that goes wrong.
pub fn talk(rng: &mut Rng, stream: &UnixStream) -> std::io::Result<()> {
    let memory = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, MEMORY_BYTES)?;
    let counter = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let (kick, call): (OwnedFd, OwnedFd) = (counter()?, counter()?);
    let mut client = Client { rng, stream };
    client.say(request::SET_OWNER, &[], &[])?;
    client.say(request::SET_FEATURES, &[FEATURES], &[])?;
    // One region: guest address, length, user address, offset in the file.
    client.say(request::SET_MEM_TABLE, &[1, 0, MEMORY_BYTES, USER, 0], &[memory.as_fd()])?;
    // Indices are 32 bits: queue 0 with 64 descriptors.
    client.say(request::SET_VRING_NUM, &[64 << 32], &[])?;
    client.say(request::SET_VRING_BASE, &[0], &[])?;
    // Descriptors, used ring, available ring, log.
    client.say(request::SET_VRING_ADDR, &[0, USER, USER + 0x2000, USER + 0x1000, 0], &[])?;
    client.say(request::SET_VRING_CALL, &[0], &[call.as_fd()])?;
    client.say(request::SET_VRING_KICK, &[0], &[kick.as_fd()])?;
    client.say(request::SET_VRING_ENABLE, &[1 << 32], &[])?;
    for _ in 0..client.rng.below(20) {
        ring(client.rng, &memory)?;
        // A counter that is full has been rung.
        let _ = write(&kick, &1u64.to_ne_bytes());
        if client.rng.once_in(6) {
            // SIGBUS for whoever reads it through a mapping and has not thought of that.
            ftruncate(&memory, [0, 4096, MEMORY_BYTES][client.rng.below(3)])?;
        }
    }
    client.say(request::GET_VRING_BASE, &[0], &[])?;
    let mut reader = stream;
    // It may say nothing.
    let _ = reader.read(&mut [0; 512]);
    Ok(())
}

/// Descriptors of every sort, and some of them made available.
fn ring(rng: &mut Rng, memory: &OwnedFd) -> std::io::Result<()> {
    const DESCRIPTORS: usize = 64;
    let mut table = Vec::with_capacity(16 * DESCRIPTORS);
    for _ in 0..DESCRIPTORS {
        let at = if rng.once_in(RARELY) { rng.next() } else { rng.next() % MEMORY_BYTES };
        let length = *rng.pick(&[1, 16, 512, 4096, 1 << 20, u32::MAX]);
        table.extend(at.to_le_bytes());
        table.extend(length.to_le_bytes());
        // NEXT, WRITE, INDIRECT and a flag that is none.
        table.extend((rng.next() as u16 & 0xf).to_le_bytes());
        table.extend((rng.next() as u16 % 80).to_le_bytes());
    }
    let mut available = vec![0, 0];
    available.extend((rng.next() as u16 % 200).to_le_bytes());
    available.extend((0..DESCRIPTORS).flat_map(|_| (rng.next() as u16 % 70).to_le_bytes()));
    for (at, bytes) in [(0, table), (0x1000, available)] {
        rustix::io::pwrite(memory, &bytes, at)?;
    }
    // What a request says of itself: its sort and its first sector.
    for _ in 0..16 {
        let sort = *rng.pick(&[0u32, 1, 4, 8, 11, 13, 15, 16, 17, 18, 20, 99]);
        let mut header = sort.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend((rng.next() % 4096).to_le_bytes());
        rustix::io::pwrite(memory, &header, rng.next() % (MEMORY_BYTES - 16))?;
    }
    Ok(())
}
