//! One record: 48 bytes, and what follows them.

use std::mem::{offset_of, size_of};

use wp_base::{Sector, Time};
use zerocopy::byteorder::{BE, ByteOrder, LE, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The upper three bytes of a magic number.
pub(crate) const MAGIC: u32 = 0x6561_7400;
/// The lowest: the only version that is known. (The kernel's `SETUP2` writes it too.)
pub(crate) const VERSION: u32 = 7;

/// A record's header in the byte order `O` of the machine that wrote it. `struct blk_io_trace`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header<O: ByteOrder> {
    /// `magic`: `MAGIC` and the version.
    pub magic: U32<O>,
    /// `sequence`, number of the event on its CPU.
    pub sequence: U32<O>,
    /// `time`, nanoseconds since the trace began.
    pub time: U64<O>,
    /// `sector`, of 512 bytes.
    pub sector: U64<O>,
    /// `bytes`.
    pub bytes: U32<O>,
    /// `action`: a code below, categories above.
    pub action: U32<O>,
    /// `pid`.
    pub pid: U32<O>,
    /// `device`, `major << 20 | minor`.
    pub device: U32<O>,
    /// `cpu`.
    pub cpu: U32<O>,
    /// `error` of a completion.
    pub error: U16<O>,
    /// `pdu_len`, bytes that follow.
    pub pdu_len: U16<O>,
}

/// Length of a header.
pub(crate) const HEADER_BYTES: usize = size_of::<Header<LE>>();
const _: () = assert!(HEADER_BYTES == 48);
const _: () = assert!(offset_of!(Header<LE>, action) == 28);
const _: () = assert!(offset_of!(Header<LE>, pdu_len) == 46);

/// A record as it stands in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Raw {
    /// Number of the event, from 1; notes have 0.
    pub sequence: u32,
    /// When.
    pub at: Time,
    /// First sector.
    pub sector: Sector,
    /// Bytes.
    pub bytes: u32,
    /// Code in the lower half, categories in the upper.
    pub action: u32,
    /// Process.
    pub pid: u32,
    /// `major << 20 | minor`.
    pub device: u32,
    /// CPU.
    pub cpu: u32,
    /// Error of a completion.
    pub error: u16,
    /// What stands behind the header.
    pub pdu: Vec<u8>,
}

impl Raw {
    /// Appends the record, in the byte order that all machines have that we know of.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let pdu_len =
            u16::try_from(self.pdu.len()).expect("what follows a header of ours is short");
        let header = Header::<LE> {
            magic: (MAGIC | VERSION).into(),
            sequence: self.sequence.into(),
            time: self.at.0.into(),
            sector: self.sector.0.into(),
            bytes: self.bytes.into(),
            action: self.action.into(),
            pid: self.pid.into(),
            device: self.device.into(),
            cpu: self.cpu.into(),
            error: self.error.into(),
            pdu_len: pdu_len.into(),
        };
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(&self.pdu);
    }

    /// The record of a header, still without what follows, and how many bytes that are. Errors:
    /// another magic number or version.
    pub(crate) fn load(header: &[u8; HEADER_BYTES]) -> Result<(Raw, usize), String> {
        let magic = [header[0], header[1], header[2], header[3]];
        let little = u32::from_le_bytes(magic);
        let big = u32::from_be_bytes(magic);
        let version = match (little & !0xff, big & !0xff) {
            (MAGIC, _) => little & 0xff,
            (_, MAGIC) => big & 0xff,
            _ => return Err(format!("no record starts here: magic {little:#010x}")),
        };
        if version != VERSION {
            return Err(format!("version {version}; only {VERSION} is supported"));
        }
        let is_little = little & !0xff == MAGIC;
        Ok(if is_little { Raw::of::<LE>(header) } else { Raw::of::<BE>(header) })
    }

    fn of<O: ByteOrder>(header: &[u8; HEADER_BYTES]) -> (Raw, usize) {
        let h: &Header<O> = zerocopy::transmute_ref!(header);
        let raw = Raw {
            sequence: h.sequence.get(),
            at: Time(h.time.get()),
            sector: Sector(h.sector.get()),
            bytes: h.bytes.get(),
            action: h.action.get(),
            pid: h.pid.get(),
            device: h.device.get(),
            cpu: h.cpu.get(),
            error: h.error.get(),
            pdu: Vec::new(),
        };
        (raw, usize::from(h.pdu_len.get()))
    }
}

/// Does a file begin with a record?
pub fn begins(bytes: &[u8]) -> bool {
    let Some(magic) = bytes.first_chunk::<4>() else { return false };
    [u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)].iter().any(|m| m & !0xff == MAGIC)
}
