//! Numbers of the protocol, and its messages as bytes. Everything is big-endian.

/// Largest payload of a write and of a read: what the protocol says everybody takes.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// Largest option that is read; longer ones are passed over and answered with an error.
pub const MAX_OPTION: u32 = 64 << 10;
/// Longest name of an export (the protocol's limit).
pub const MAX_NAME: usize = 4096;

pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST: u32 = 0x2560_9513;
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Handshake flags, both ways: fixed newstyle, no padding of 124 zeroes.
pub const FIXED_NEWSTYLE: u16 = 1;
pub const NO_ZEROES: u16 = 2;

pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub mod flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
}

/// Types of structured chunks, and their flag.
pub mod chunk {
    pub const DONE: u16 = 1;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// What base:allocation says of an extent: a hole that reads as zeroes.
pub const HOLE_AND_ZERO: u32 = 3;

/// Errors as the protocol numbers them.
pub mod error {
    pub const PERM: u32 = 1;
    pub const IO: u32 = 5;
    pub const INVAL: u32 = 22;
    pub const NOSPC: u32 = 28;
    pub const OVERFLOW: u32 = 75;
    pub const NOTSUP: u32 = 95;
}

/// A request's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

impl Header {
    pub const BYTES: usize = 28;

    /// Of 28 bytes; `None`: they are no request.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let mut r = Reader(bytes);
        (r.u32()? == REQUEST).then_some(())?;
        Some(Header {
            flags: r.u16()?,
            command: r.u16()?,
            cookie: r.u64()?,
            offset: r.u64()?,
            length: r.u32()?,
        })
    }
}

/// Takes numbers off the front of bytes; `None` when there are too few.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }
    /// A text with its length in front.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }
}

/// Appends numbers.
pub trait Put {
    fn u16(&mut self, n: u16);
    fn u32(&mut self, n: u32);
    fn u64(&mut self, n: u64);
}

impl Put for Vec<u8> {
    fn u16(&mut self, n: u16) {
        self.extend_from_slice(&n.to_be_bytes());
    }
    fn u32(&mut self, n: u32) {
        self.extend_from_slice(&n.to_be_bytes());
    }
    fn u64(&mut self, n: u64) {
        self.extend_from_slice(&n.to_be_bytes());
    }
}

/// The reply to an option.
pub fn option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.u64(OPTION_REPLY);
    out.u32(option);
    out.u32(kind);
    out.u32(data.len() as u32);
    out.extend_from_slice(data);
}

/// A simple reply without data.
pub fn simple(out: &mut Vec<u8>, error: u32, cookie: u64) {
    out.u32(SIMPLE_REPLY);
    out.u32(error);
    out.u64(cookie);
}

/// The header of a structured chunk.
pub fn structured(out: &mut Vec<u8>, flags: u16, kind: u16, cookie: u64, length: u32) {
    out.u32(STRUCTURED_REPLY);
    out.u16(flags);
    out.u16(kind);
    out.u64(cookie);
    out.u32(length);
}
