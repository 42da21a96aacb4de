//! One connection, without its socket: bytes in, requests to the drive; answers in, bytes out.
//!
//! Invariants: 1. whatever the bytes are, it keeps at most one option or one write's payload
//!                (`MAX_PAYLOAD`) of them beside `MAX_UNSENT` of requests under way and replies
//!                that wait to be sent, and one request more;
//!             2. each request is replied to once, or the session is closed.

use std::collections::BTreeMap;

use wp_base::{SECTOR_BYTES, Sector};
use wp_block::Status;
use wp_medium::Slice;

use super::handshake::{self, ALLOCATION_ID, Agreed, Next};
use super::wire::{
    self, FIXED_NEWSTYLE, Header, IHAVEOPT, NBDMAGIC, NO_ZEROES, Put, Reader, chunk, command,
    command_flag, error, reply,
};
use crate::drive::{Extent, What, slices_of};

/// Requests of one connection that may wait for the drive; more are not read until some are done.
pub const MAX_PENDING: usize = 256;
/// Bytes of replies that wait to be sent and of reads and writes that the drive has; at this number
/// of bytes, further requests are not read.
pub const MAX_UNSENT: usize = 64 << 20;

/// What is served.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub about: String,
    /// Its length.
    pub bytes: u64,
    /// Smallest unit that can be addressed, in bytes.
    pub block: u32,
    /// Is writing refused?
    pub read_only: bool,
    /// Does it take TRIM?
    pub trim: bool,
}

/// What a session wants of the drive.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A request; its answer goes to [`Session::answer`].
    Request {
        /// Name within the session.
        tag: u64,
        /// What to do.
        what: What,
        /// First sector.
        at: Sector,
        /// Length in sectors.
        sectors: u64,
        /// Durable when answered?
        fua: bool,
        /// What to write.
        data: Vec<Slice>,
    },
    /// Which of these sectors hold something; goes to [`Session::extents`].
    Extents {
        /// Name within the session.
        tag: u64,
        /// First sector.
        at: Sector,
        /// Length in sectors.
        sectors: u64,
    },
}

/// Where a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The client's flags are due.
    Flags,
    /// An option is due.
    Options,
    /// The rest of an option that is too long, `left` bytes, is skipped.
    Skip { option: u32, left: u64 },
    /// A request is due.
    Requests,
    /// Nothing more is read; what is to be sent still is.
    Closed,
}

/// A request that the drive has.
struct Pending {
    cookie: u64,
    command: u16,
    offset: u64,
    length: u32,
    flags: u16,
}

impl Pending {
    /// Bytes of it in our memory, now or when it is answered.
    fn held(&self) -> usize {
        match self.command {
            command::READ | command::WRITE => self.length as usize,
            _ => 0,
        }
    }
}

/// The session.
pub struct Session {
    export: Export,
    state: State,
    agreed: Agreed,
    input: Vec<u8>,
    /// Bytes of `input` that are done with.
    done: usize,
    /// To be sent, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    pending: BTreeMap<u64, Pending>,
    /// Bytes that these write or will read.
    held: usize,
    tag: u64,
}

impl Session {
    /// A session that greets.
    pub fn new(export: Export) -> Session {
        let mut output = Vec::new();
        output.u64(NBDMAGIC);
        output.u64(IHAVEOPT);
        output.u16(FIXED_NEWSTYLE | NO_ZEROES);
        Session {
            export,
            state: State::Flags,
            agreed: Agreed::default(),
            input: Vec::new(),
            done: 0,
            output,
            sent: 0,
            pending: BTreeMap::new(),
            held: 0,
            tag: 0,
        }
    }

    /// Takes bytes of the client in; [`Session::ask`] makes something of them.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.state != State::Closed {
            self.input.drain(..self.done);
            self.done = 0;
            self.input.extend_from_slice(bytes);
        }
    }

    /// The client has hung up: nothing more comes, and nobody reads.
    pub fn hang_up(&mut self) {
        self.close();
        self.output = Vec::new();
        self.sent = 0;
        self.pending.clear();
        self.held = 0;
    }

    /// Will it take more bytes?
    pub fn wants_input(&self) -> bool {
        self.state != State::Closed && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.pending.len() < MAX_PENDING && self.output.len() + self.held < MAX_UNSENT
    }

    /// What is to be sent; [`Session::sent`] tells how much of it was.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// The first `n` bytes of the output are sent.
    pub fn sent(&mut self, n: usize) {
        self.sent += n.min(self.output.len() - self.sent);
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Is it over: nothing to send, nothing to wait for?
    pub fn is_over(&self) -> bool {
        self.state == State::Closed && self.output.is_empty() && self.pending.is_empty()
    }

    /// Bytes that wait for their rest or to be sent.
    pub fn waiting(&self) -> usize {
        self.input.len() - self.done + self.output.len() - self.sent
    }

    /// Requests that the drive has.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.input = Vec::new();
        self.done = 0;
    }

    /// The next thing to ask the drive; `None`: more bytes are needed, or room.
    pub fn ask(&mut self) -> Option<Ask> {
        while self.has_room() {
            match self.state {
                State::Flags => self.flags()?,
                State::Options => self.option()?,
                State::Skip { option, left } => self.skip(option, left)?,
                State::Requests => {
                    if let Some(ask) = self.request()? {
                        return Some(ask);
                    }
                }
                State::Closed => return None,
            }
        }
        None
    }

    /// The client's flags. `None`: they are not whole yet.
    fn flags(&mut self) -> Option<()> {
        let flags = Reader(&self.input[self.done..]).u32()?;
        self.done += 4;
        // Unknown flags, and clients that cannot be answered an error, are let go.
        let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
        if flags & !known != 0 || flags & u32::from(FIXED_NEWSTYLE) == 0 {
            self.close();
        } else {
            self.agreed.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
            self.state = State::Options;
        }
        Some(())
    }

    /// Passes over an option that is too long. `None`: there is more of it to come.
    fn skip(&mut self, option: u32, left: u64) -> Option<()> {
        let have = (self.input.len() - self.done) as u64;
        let n = left.min(have);
        self.done += n as usize;
        if n < left {
            self.state = State::Skip { option, left: left - n };
            return None;
        }
        let text = b"the option is too long";
        wire::option_reply(&mut self.output, option, reply::ERR_TOO_BIG, text);
        self.state = State::Options;
        Some(())
    }

    /// One option. `None`: it is not whole yet.
    fn option(&mut self) -> Option<()> {
        let mut r = Reader(&self.input[self.done..]);
        let (magic, number, length) = (r.u64()?, r.u32()?, r.u32()?);
        if magic != IHAVEOPT {
            self.close();
            return Some(());
        }
        if length > wire::MAX_OPTION {
            self.done += 16;
            self.state = State::Skip { option: number, left: length.into() };
            return Some(());
        }
        let data = r.take(length as usize)?;
        let next =
            handshake::answer(&self.export, &mut self.agreed, (number, data), &mut self.output);
        self.done += 16 + length as usize;
        match next {
            Next::Options => {}
            Next::Requests => self.state = State::Requests,
            Next::Close => self.close(),
        }
        Some(())
    }

    /// One request. `None`: it is not whole yet; `Some(None)`: there is nothing to ask.
    fn request(&mut self) -> Option<Option<Ask>> {
        let bytes = &self.input[self.done..];
        if bytes.len() < Header::BYTES {
            return None;
        }
        // Nobody waits for gigabytes that are thrown away.
        let header = Header::parse(bytes)
            .filter(|h| h.command != command::WRITE || h.length <= wire::MAX_PAYLOAD)
            .filter(|h| h.command != command::DISC);
        let Some(header) = header else {
            self.close();
            return Some(None);
        };
        let mut payload: &[u8] = &[];
        if header.command == command::WRITE {
            payload = bytes[Header::BYTES..].get(..header.length as usize)?;
        }
        let verdict = self.judge(&header);
        let at = Sector(header.offset / SECTOR_BYTES);
        let data = match verdict {
            Ok(What::Write) => slices_of(at, payload),
            _ => Vec::new(),
        };
        self.done += Header::BYTES + payload.len();
        match verdict {
            Ok(what) => Some(self.take_on(&header, what, data)),
            Err(number) => {
                self.fail(header.cookie, header.command, number);
                Some(None)
            }
        }
    }

    /// A request that may be done.
    fn take_on(&mut self, header: &Header, what: What, data: Vec<Slice>) -> Option<Ask> {
        self.tag += 1;
        let tag = self.tag;
        let pending = Pending {
            cookie: header.cookie,
            command: header.command,
            offset: header.offset,
            length: header.length,
            flags: header.flags,
        };
        self.held += pending.held();
        self.pending.insert(tag, pending);
        let at = Sector(header.offset / SECTOR_BYTES);
        let sectors = u64::from(header.length) / SECTOR_BYTES;
        if what == What::Flush {
            let at = Sector(0);
            return Some(Ask::Request { tag, what, at, sectors: 0, fua: false, data });
        }
        if header.command == command::BLOCK_STATUS {
            return Some(Ask::Extents { tag, at, sectors });
        }
        if sectors == 0 {
            // Nothing to be done, which the protocol leaves open: it is done, and well.
            self.answer(tag, Ok(()), &[]);
            return None;
        }
        let fua = header.flags & command_flag::FUA != 0;
        Some(Ask::Request { tag, what, at, sectors, fua, data })
    }

    /// What a request comes to. Errors: the number that it is refused with.
    fn judge(&self, h: &Header) -> Result<What, u32> {
        let (what, allowed) = match h.command {
            command::READ => (What::Read, command_flag::FUA | command_flag::DF),
            command::WRITE => (What::Write, command_flag::FUA),
            command::FLUSH => (What::Flush, command_flag::FUA),
            command::TRIM if self.export.trim => (What::Discard, command_flag::FUA),
            command::WRITE_ZEROES => {
                let unmap = h.flags & command_flag::NO_HOLE == 0;
                let allowed = command_flag::FUA | command_flag::NO_HOLE;
                (What::WriteZeroes { unmap }, allowed)
            }
            command::BLOCK_STATUS if self.agreed.allocation => {
                (What::Read, command_flag::FUA | command_flag::REQ_ONE)
            }
            _ => return Err(error::INVAL),
        };
        if h.flags & !allowed != 0 {
            return Err(error::INVAL);
        }
        if what == What::Flush {
            return Ok(what);
        }
        let writes = what != What::Read;
        if writes && self.export.read_only {
            return Err(error::PERM);
        }
        let end = h.offset.checked_add(h.length.into());
        if end.is_none_or(|end| end > self.export.bytes) {
            return Err(if writes { error::NOSPC } else { error::INVAL });
        }
        let block = u64::from(self.export.block);
        if !h.offset.is_multiple_of(block) || !u64::from(h.length).is_multiple_of(block) {
            return Err(error::INVAL);
        }
        if h.command == command::READ && h.length > wire::MAX_PAYLOAD {
            return Err(error::OVERFLOW);
        }
        if h.command == command::BLOCK_STATUS && h.length == 0 {
            return Err(error::INVAL);
        }
        Ok(what)
    }

    /// The reply to a request that failed.
    fn fail(&mut self, cookie: u64, what: u16, number: u32) {
        let chunked = matches!(what, command::READ | command::BLOCK_STATUS);
        if self.agreed.structured && chunked {
            wire::structured(&mut self.output, chunk::DONE, chunk::ERROR, cookie, 6);
            self.output.u32(number);
            self.output.u16(0);
        } else {
            wire::simple(&mut self.output, number, cookie);
        }
    }

    /// The drive's answer to a request, with what a read found.
    pub fn answer(&mut self, tag: u64, status: Result<(), Status>, data: &[Slice]) {
        let Some(p) = self.pending.remove(&tag) else { return };
        self.held -= p.held();
        if let Err(status) = status {
            let number = match status {
                Status::NotSupported => error::NOTSUP,
                _ => error::IO,
            };
            return self.fail(p.cookie, p.command, number);
        }
        match p.command {
            command::READ if self.agreed.structured => self.read(&p, data),
            command::READ => {
                wire::simple(&mut self.output, 0, p.cookie);
                copy(data, &mut self.output);
            }
            _ => wire::simple(&mut self.output, 0, p.cookie),
        }
    }

    /// A read in chunks: data, and holes where nothing is stored; one chunk if the client wants it
    /// whole.
    fn read(&mut self, p: &Pending, data: &[Slice]) {
        let out = &mut self.output;
        if p.flags & command_flag::DF != 0 || p.length == 0 {
            wire::structured(out, chunk::DONE, chunk::OFFSET_DATA, p.cookie, 8 + p.length);
            out.u64(p.offset);
            copy(data, out);
            return;
        }
        let is_hole = |s: &Slice| matches!(s.content(), wp_medium::Content::Zero);
        let runs: Vec<&[Slice]> = data.chunk_by(|a, b| is_hole(a) == is_hole(b)).collect();
        let mut at = p.offset;
        for (n, run) in runs.iter().enumerate() {
            let last = if n + 1 == runs.len() { chunk::DONE } else { 0 };
            let bytes: u32 = run.iter().map(Slice::len).sum();
            if run.first().is_some_and(is_hole) {
                wire::structured(out, last, chunk::OFFSET_HOLE, p.cookie, 12);
                out.u64(at);
                out.u32(bytes);
            } else {
                wire::structured(out, last, chunk::OFFSET_DATA, p.cookie, 8 + bytes);
                out.u64(at);
                copy(run, out);
            }
            at += u64::from(bytes);
        }
    }

    /// The drive's answer about extents.
    pub fn extents(&mut self, tag: u64, extents: &[Extent]) {
        /// Most extents in one reply.
        const MOST: usize = 1024;
        let Some(p) = self.pending.remove(&tag) else { return };
        self.held -= p.held();
        let most = if p.flags & command_flag::REQ_ONE != 0 { 1 } else { MOST };
        let told = &extents[..extents.len().min(most)];
        let length = 4 + 8 * told.len() as u32;
        let out = &mut self.output;
        wire::structured(out, chunk::DONE, chunk::BLOCK_STATUS, p.cookie, length);
        out.u32(ALLOCATION_ID);
        for e in told {
            out.u32((e.sectors * SECTOR_BYTES) as u32);
            out.u32(if e.is_hole { wire::HOLE_AND_ZERO } else { 0 });
        }
    }
}

/// Appends what slices hold.
fn copy(data: &[Slice], out: &mut Vec<u8>) {
    for slice in data {
        let at = out.len();
        out.resize(at + slice.len() as usize, 0);
        slice.copy_to(&mut out[at..]);
    }
}

#[cfg(test)]
mod tests;
