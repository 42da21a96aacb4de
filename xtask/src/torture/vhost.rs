//! Front ends of vhost-user-blk that hand over memory and counters and then go wrong: what a seed
//! of bytes cannot be, as descriptors come with the messages.

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
    pub const GET_FEATURES: u32 = 1;
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
/// Where the front end has its memory, and where in it the parts of the queue are.
const USER: u64 = 0x7000_0000;
const DESCRIPTORS: u64 = 0x4000;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;

/// One message or descriptor in this number goes wrong: most clients get as far as requests.
const RARELY: usize = 40;

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
        let bytes = if rng.once_in(RARELY) { rng.next() as u32 } else { payload.len() as u32 };
        let header: Vec<u8> = [what, 1, bytes].iter().flat_map(|n| n.to_le_bytes()).collect();
        let given: Vec<BorrowedFd<'_>> = match rng.below(2 * RARELY) {
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
    client.say(
        request::SET_VRING_ADDR,
        &[0, USER + DESCRIPTORS, USER + USED, USER + AVAILABLE, 0],
        &[],
    )?;
    client.say(request::SET_VRING_CALL, &[0], &[call.as_fd()])?;
    client.say(request::SET_VRING_KICK, &[0], &[kick.as_fd()])?;
    client.say(request::SET_VRING_ENABLE, &[1 << 32], &[])?;
    // It has taken all of this in when it answers.
    client.say(request::GET_FEATURES, &[], &[])?;
    let mut reader = stream;
    let _ = reader.read(&mut [0; 512]);
    let mut index = 0;
    for _ in 0..client.rng.below(20) {
        ring(client.rng, &memory, &mut index)?;
        // A counter that is full has been rung.
        let _ = write(&kick, &1u64.to_le_bytes());
        // The server works on it meanwhile.
        std::thread::sleep(std::time::Duration::from_micros(client.rng.next() % 500));
        if client.rng.once_in(10) {
            // SIGBUS for whoever reads it through a mapping and has not thought of that.
            ftruncate(&memory, [0, 4096, MEMORY_BYTES][client.rng.below(3)])?;
        }
    }
    client.say(request::GET_VRING_BASE, &[0], &[])?;
    // It may say nothing.
    let _ = reader.read(&mut [0; 512]);
    Ok(())
}

/// Requests of every sort, as three descriptors each (header, data, status), some of them damaged,
/// and a few of them made available, up to `index`.
fn ring(rng: &mut Rng, memory: &OwnedFd, index: &mut u16) -> std::io::Result<()> {
    const REQUESTS: usize = 20;
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const HEADERS: u64 = 0x8000;
    const DATA: u64 = 0x10000;
    let mut table: Vec<u8> = Vec::new();
    let mut headers: Vec<u8> = Vec::new();
    for n in 0..REQUESTS {
        let kinds = [0u32, 1, 4, 8, 11, 13, 15, 16, 17, 18, 20, 99];
        let kind = if rng.once_in(2) { *rng.pick(&[0, 1]) } else { *rng.pick(&kinds) };
        headers.extend(kind.to_le_bytes());
        headers.extend([0; 4]);
        headers.extend((rng.next() % 4096 * 8).to_le_bytes());
        // Reads and identifications are written by the device.
        let data_flags = if matches!(kind, 0 | 8 | 16) { NEXT | WRITE } else { NEXT };
        let first = 3 * n as u16;
        let data_bytes = *rng.pick(&[512, 4096, 4096, 16384]);
        let parts = [
            (HEADERS + 16 * n as u64, 16, NEXT, first + 1),
            (DATA + 16384 * n as u64, data_bytes, data_flags, first + 2),
            (HEADERS + 0x4000 + n as u64, 1, WRITE, 0),
        ];
        for (mut at, mut bytes, mut flags, mut next) in parts {
            match rng.below(8 * RARELY) {
                0 => at = rng.next(),
                1 => at = MEMORY_BYTES - 8,
                2 => bytes = *rng.pick(&[0, 1, 17, 1 << 20, u32::MAX]),
                3 => flags = rng.next() as u16 & 0xf,
                4 => next = rng.next() as u16 % 80,
                _ => {}
            }
            table.extend(at.to_le_bytes());
            table.extend(bytes.to_le_bytes());
            table.extend(flags.to_le_bytes());
            table.extend(next.to_le_bytes());
        }
    }
    // Flags, the index behind the last that is available, and the heads.
    let more = if rng.once_in(RARELY) { rng.next() as u16 } else { rng.below(20) as u16 };
    *index = index.wrapping_add(more);
    let mut available = vec![0, 0];
    available.extend(index.to_le_bytes());
    available.extend((0..64).flat_map(|_| (3 * rng.below(REQUESTS) as u16).to_le_bytes()));
    for (at, bytes) in [(DESCRIPTORS, table), (HEADERS, headers), (AVAILABLE, available)] {
        rustix::io::pwrite(memory, &bytes, at)?;
    }
    Ok(())
}
