//! The protocol without its socket: messages in, replies and kicks out.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use super::config::CONFIG_BYTES;
use super::memory::{Memory, Region};
use super::ring::Ring;
use super::wire::{self, F_PROTOCOL_FEATURES, Fields, Header, protocol, request};

/// What a message leads to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// To be sent back.
    pub reply: Option<Vec<u8>>,
    /// A queue that has something, told in the socket.
    pub kicked: Option<usize>,
}

/// A connection of a front end.
pub struct Session {
    features: u64,
    config: [u8; CONFIG_BYTES],
    acked: u64,
    protocol: u64,
    memory: Option<Memory>,
    rings: Vec<Ring>,
    /// The channel for calls of ours.
    backend: Option<OwnedFd>,
}

/// Bytes of a configuration space that can be asked for (the protocol's limit).
const MAX_CONFIG: usize = 256;

/// Bits of the number that comes with a descriptor: the queue, and that there is none.
const RING_MASK: u64 = 0xff;
const NO_FD: u64 = 1 << 8;

impl Session {
    /// A session of a device with these features and configuration, and `queues` queues.
    pub fn new(features: u64, config: [u8; CONFIG_BYTES], queues: u16) -> Session {
        Session {
            features,
            config,
            acked: 0,
            protocol: 0,
            memory: None,
            rings: (0..queues).map(|_| Ring::new()).collect(),
            backend: None,
        }
    }

    /// Features that the driver took.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// The channel for calls, where they are in band.
    pub fn backend(&self) -> Option<&OwnedFd> {
        let in_band = self.protocol & protocol::INBAND_NOTIFICATIONS != 0;
        self.backend.as_ref().filter(|_| in_band)
    }

    /// Its queues.
    pub fn rings(&mut self) -> &mut [Ring] {
        &mut self.rings
    }

    /// A queue and the memory that it is in.
    pub fn ring(&mut self, n: usize) -> Option<(&mut Ring, &Memory)> {
        self.rings.get_mut(n).zip(self.memory.as_ref())
    }

    /// Queues with a kick of their own: (number, file).
    pub fn kicks(&self) -> impl Iterator<Item = (usize, &File)> {
        let enabled = self.rings.iter().enumerate().filter(|(_, r)| r.enabled);
        enabled.filter_map(|(n, r)| r.kick.as_ref().map(|k| (n, k)))
    }

    /// Where a queue is called; `None`: in the channel, or nowhere.
    pub fn call(&self, n: usize) -> Option<&File> {
        self.rings.get(n).and_then(|r| r.call.as_ref())
    }

    /// Takes a message. Errors: what no front end may say; the connection is to be closed.
    pub fn receive(
        &mut self,
        header: Header,
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<Outcome, String> {
        let short = || format!("message {} has {} bytes", header.request, payload.len());
        let mut f = Fields(payload);
        let u64_reply = |n: u64| Some(wire::reply(header.request, &n.to_le_bytes()));
        let mut out = Outcome::default();
        match header.request {
            request::GET_FEATURES => out.reply = u64_reply(self.features | F_PROTOCOL_FEATURES),
            request::GET_PROTOCOL_FEATURES => out.reply = u64_reply(SPOKEN),
            request::GET_QUEUE_NUM => out.reply = u64_reply(self.rings.len() as u64),
            request::GET_VRING_BASE => {
                let n = f.u32().ok_or_else(short)?;
                let base = self.at(u64::from(n))?.stop();
                let state = [n, u32::from(base)].map(u32::to_le_bytes).concat();
                out.reply = Some(wire::reply(header.request, &state));
            }
            request::GET_CONFIG => {
                out.reply = Some(self.config(header, payload).ok_or_else(short)?)
            }
            request::VRING_KICK => {
                let n = f.u32().ok_or_else(short)?;
                self.at(u64::from(n))?;
                out.kicked = Some(n as usize);
            }
            _ => {
                self.set(header, payload, fds)?;
                // What was put in before it was enabled is looked for.
                if header.request == request::SET_VRING_ENABLE {
                    let ring = f.u32().map(|n| n as usize);
                    out.kicked = ring.filter(|n| self.rings.get(*n).is_some_and(|r| r.enabled));
                }
            }
        }
        if out.reply.is_none() && header.needs_reply() && self.protocol & protocol::REPLY_ACK != 0 {
            out.reply = u64_reply(0);
        }
        Ok(out)
    }

    /// The queue of this number. Errors: there is none.
    fn at(&mut self, n: u64) -> Result<&mut Ring, String> {
        let count = self.rings.len();
        let ring = usize::try_from(n).ok().and_then(|n| self.rings.get_mut(n));
        ring.ok_or_else(|| format!("queue {n}: the device has {count} queues"))
    }

    /// The part of the configuration that is asked for, in a reply as long as the request.
    fn config(&self, header: Header, payload: &[u8]) -> Option<Vec<u8>> {
        let mut f = Fields(payload);
        let (offset, bytes, _flags) = (f.u32()?, f.u32()?, f.u32()?);
        let mut reply = payload.get(..12)?.to_vec();
        let wanted = (offset as usize).checked_add(bytes as usize)?;
        // What lies behind what we know is zero.
        let mut space = self.config.to_vec();
        space.resize(wanted.clamp(CONFIG_BYTES, MAX_CONFIG), 0);
        reply.extend_from_slice(space.get(offset as usize..wanted)?);
        Some(wire::reply(header.request, &reply))
    }

    /// A message that sets something. Errors: a wrong one.
    fn set(&mut self, header: Header, payload: &[u8], fds: Vec<OwnedFd>) -> Result<(), String> {
        let short = || format!("message {} has {} bytes", header.request, payload.len());
        let mut f = Fields(payload);
        match header.request {
            request::SET_OWNER | request::RESET_OWNER | request::SET_VRING_ERR => Ok(()),
            request::SET_FEATURES => {
                let bits = f.u64().ok_or_else(short)?;
                let unknown = bits & !(self.features | F_PROTOCOL_FEATURES);
                if unknown != 0 {
                    return Err(format!("features {unknown:#x} that were not offered"));
                }
                self.acked = bits;
                // Without protocol features a queue runs as soon as it is set up.
                let enabled = bits & F_PROTOCOL_FEATURES == 0;
                self.rings.iter_mut().for_each(|r| r.enabled |= enabled);
                Ok(())
            }
            request::SET_PROTOCOL_FEATURES => {
                let bits = f.u64().ok_or_else(short)?;
                if bits & !SPOKEN != 0 {
                    let unknown = bits & !SPOKEN;
                    return Err(format!("protocol features {unknown:#x} that were not offered"));
                }
                self.protocol = bits;
                Ok(())
            }
            request::SET_BACKEND_REQ_FD => {
                let fd = fds.into_iter().next().ok_or("no descriptor for calls")?;
                never_blocks(&fd).map_err(|e| format!("the descriptor for calls: {e}"))?;
                self.backend = Some(fd);
                Ok(())
            }
            request::SET_MEM_TABLE => {
                let regions = regions(payload).ok_or_else(short)?;
                let files = fds.into_iter().map(File::from).collect();
                self.memory = Some(Memory::map(regions, files)?);
                self.rings.iter_mut().for_each(Ring::moved);
                Ok(())
            }
            request::SET_CONFIG => Err("the configuration is not the driver's to set".to_owned()),
            _ => self.set_ring(header, payload, fds),
        }
    }

    /// A message that sets something of a queue. Errors: a wrong one.
    fn set_ring(
        &mut self,
        header: Header,
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let short = || format!("message {} has {} bytes", header.request, payload.len());
        let mut f = Fields(payload);
        match header.request {
            request::SET_VRING_NUM | request::SET_VRING_BASE | request::SET_VRING_ENABLE => {
                let (n, value) = (f.u32().ok_or_else(short)?, f.u32().ok_or_else(short)?);
                let ring = self.at(u64::from(n))?;
                match header.request {
                    request::SET_VRING_NUM => ring.set_size(value),
                    request::SET_VRING_BASE => ring.set_base(value),
                    _ => {
                        ring.enabled = value != 0;
                        Ok(())
                    }
                }
            }
            request::SET_VRING_ADDR => {
                let (n, _flags) = (f.u32().ok_or_else(short)?, f.u32().ok_or_else(short)?);
                let mut one = || f.u64().ok_or_else(short);
                let parts = (one()?, one()?, one()?);
                self.at(u64::from(n))?.set_addresses(parts);
                Ok(())
            }
            request::SET_VRING_KICK | request::SET_VRING_CALL => {
                let n = f.u64().ok_or_else(short)?;
                let fd = fds.into_iter().next().filter(|_| n & NO_FD == 0);
                if let Some(fd) = &fd {
                    never_blocks(fd)
                        .map_err(|e| format!("the descriptor of queue {}: {e}", n & RING_MASK))?;
                }
                let fd = fd.map(File::from);
                let ring = self.at(n & RING_MASK)?;
                match header.request {
                    request::SET_VRING_KICK => ring.kick = fd,
                    _ => ring.call = fd,
                }
                Ok(())
            }
            other => Err(format!("message {other} is not known")),
        }
    }
}

/// Protocol features that we speak.
const SPOKEN: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INBAND_NOTIFICATIONS;

/// The regions of a memory table, which may be longer than they are. `None`: it is shorter.
fn regions(payload: &[u8]) -> Option<Vec<Region>> {
    let mut f = Fields(payload);
    let (n, _padding) = (f.u32()?, f.u32()?);
    let mut out = Vec::new();
    for _ in 0..n {
        let (guest, bytes, user, offset) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
        out.push(Region { guest, bytes, user, offset });
    }
    Some(out)
}

/// A descriptor of a client that would block would stop all guests. Errors: the host's.
fn never_blocks(fd: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
}

#[cfg(test)]
mod tests;
