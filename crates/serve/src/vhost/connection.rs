//! A front end's connection: whole messages out of a socket that may bring them in pieces.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::session::Session;
use super::wire::{HEADER_BYTES, Header, MAX_FDS};

/// A front end's connection.
pub(super) struct Connection {
    pub stream: UnixStream,
    pub session: Session,
    /// The message that is being read, and what came with it.
    input: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Connection {
    /// One on which nothing was said yet.
    pub fn new(stream: UnixStream, session: Session) -> Connection {
        Connection { stream, session, input: Vec::new(), fds: Vec::new() }
    }

    /// The next whole message; its descriptors are in `fds`. `None`: it has not come. Errors: the
    /// end, or no message.
    pub fn message(&mut self) -> Result<Option<(Header, Vec<u8>)>, String> {
        loop {
            let wanted = match self.input.first_chunk::<HEADER_BYTES>() {
                None => HEADER_BYTES,
                Some(bytes) => HEADER_BYTES + Header::parse(bytes)?.size as usize,
            };
            if self.input.len() == wanted && wanted >= HEADER_BYTES {
                let bytes = self.input.first_chunk::<HEADER_BYTES>().ok_or("no header")?;
                let header = Header::parse(bytes)?;
                if self.input.len() == HEADER_BYTES + header.size as usize {
                    let payload = self.input.split_off(HEADER_BYTES);
                    self.input.clear();
                    return Ok(Some((header, payload)));
                }
            }
            // Only what belongs to this message is read: descriptors come with its first byte.
            let mut bytes = vec![0; wanted - self.input.len()];
            let n = match receive(&self.stream, &mut bytes, &mut self.fds) {
                Ok(0) => return Err(GONE.to_owned()),
                Ok(n) => n,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
                Err(e) => return Err(e.to_string()),
            };
            if self.fds.len() > MAX_FDS {
                return Err(format!("{} descriptors in a message", self.fds.len()));
            }
            self.input.extend_from_slice(&bytes[..n]);
        }
    }
}

/// Why a connection ends that was ended by the other side.
pub(super) const GONE: &str = "the front end disconnected";

/// Reads bytes, and the descriptors that come with them.
fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let got = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(got.bytes)
}
