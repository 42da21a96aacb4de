//! Messages of vhost-user as bytes. Numbers are of the host's byte order, which both sides share.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// Largest payload that is read.
pub const MAX_PAYLOAD: u32 = 4096;
/// Most file descriptors of a message.
pub const MAX_FDS: usize = 8;

/// Version, in the lowest bits of the flags.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
/// It is a reply.
const REPLY: u32 = 1 << 2;
/// It wants one.
const NEED_REPLY: u32 = 1 << 3;

/// Requests of the front end (the guest's side).
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const VRING_KICK: u32 = 35;
}

/// A request of ours: there is something in a ring.
pub const BACKEND_VRING_CALL: u32 = 4;

/// Protocol features.
pub mod protocol {
    pub const MQ: u64 = 1;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INBAND_NOTIFICATIONS: u64 = 1 << 14;
}

/// The bit of the device's features that says that there are protocol features.
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;

/// A header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What is said (`request`).
    pub request: u32,
    /// Version, and what kind of message it is.
    pub flags: u32,
    /// Bytes of its payload.
    pub size: u32,
}

impl Header {
    /// Of its bytes. Errors: another version, a payload that is too long.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, String> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let h = Header { request: word(0), flags: word(4), size: word(8) };
        if h.flags & VERSION_MASK != VERSION {
            return Err(format!("version {} of the protocol", h.flags & VERSION_MASK));
        }
        if h.size > MAX_PAYLOAD {
            return Err(format!("message {} has {} bytes", h.request, h.size));
        }
        Ok(h)
    }

    /// Does it want a reply, whatever it is?
    pub fn needs_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// Is it a reply to one of ours?
    pub fn is_reply(&self) -> bool {
        self.flags & REPLY != 0
    }
}

/// A message of ours.
fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
    for word in [request, VERSION | flags, payload.len() as u32] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(payload);
    out
}

/// The reply to a request.
pub fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    message(request, REPLY, payload)
}

/// Calls the guest's attention to a ring; with `acked` it says when it has heard.
pub fn call(ring: u32, acked: bool) -> Vec<u8> {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&ring.to_le_bytes());
    message(BACKEND_VRING_CALL, if acked { NEED_REPLY } else { 0 }, &payload)
}

/// Takes numbers off the front of a payload; `None` when there are too few.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn u32(&mut self) -> Option<u32> {
        let (front, rest) = self.0.split_at_checked(4)?;
        self.0 = rest;
        Some(u32::from_le_bytes(front.try_into().ok()?))
    }
    pub fn u64(&mut self) -> Option<u64> {
        let (front, rest) = self.0.split_at_checked(8)?;
        self.0 = rest;
        Some(u64::from_le_bytes(front.try_into().ok()?))
    }
}
