//! Protocols of served drives: NBD, vhost-user-blk, a guest's calendar, control lines.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use wp_base::Time;
use wp_campaign::bugs::ZONES;
use wp_serve::calendar::{Calendar, Message, Turn, op};
use wp_serve::control::{self, Command, Speaker, Verb};
use wp_serve::drive::freeze::Loss;
use wp_serve::nbd::session::MAX_PENDING;
use wp_serve::nbd::{Ask, Export, Session};
use wp_serve::vhost::blk::{self, Said, Wish};
use wp_serve::vhost::{Header, features, session, space};
use wp_serve::{Answer, Drive, Request, What};

use super::feed::Feed;

/// Bytes of the drives.
const BYTES: u64 = 1 << 20;

fn drive(preset: &str, params: &[(&str, u64)]) -> Drive {
    let model = wp_device::find(preset).expect("a device of ours").make(params);
    Drive::new(preset, model.expect("a possible device"), Loss::Contract)
}

/// Lets everything happen that the drive has been asked for; its answers, in order.
fn settle(drive: &mut Drive) -> Vec<Answer> {
    let mut answers = Vec::new();
    loop {
        answers.extend(std::iter::from_fn(|| drive.take()));
        let next = drive.next().filter(|_| drive.unanswered() > 0);
        let Some(at) = next else { return answers };
        drive.run_until(at.max(drive.now()));
    }
}

/// An NBD client's bytes. The first byte says what is served and whether the drive answers at once,
/// the second in what portions they come; the answers do not depend on that.
pub fn nbd(input: &[u8]) {
    let mut feed = Feed::new(input);
    let (how, portion) = (feed.u8(), usize::from(feed.u8()) + 1);
    let bytes = feed.rest();
    let whole = served(how, bytes.len().max(1), bytes);
    let parts = served(how, portion, bytes);
    // Requests that the drive has at the same time may be answered in another order.
    assert!(how & 16 != 0 || whole == parts, "answers depend on how bytes are cut");
}

/// What a server says to bytes that come in portions.
fn served(how: u8, portion: usize, bytes: &[u8]) -> Vec<u8> {
    let mut session = Session::new(Export {
        name: "disk".to_owned(),
        about: "a disk".to_owned(),
        bytes: BYTES,
        block: if how & 4 == 0 { 512 } else { 4096 },
        read_only: how & 1 != 0,
        trim: how & 2 != 0,
    });
    let mut drive = drive("fixed", &[("capacity_bytes", BYTES)]);
    let (mut said, mut tags) = (Vec::new(), BTreeSet::new());
    for part in bytes.chunks(portion) {
        session.receive(part);
        while let Some(ask) = session.ask() {
            match ask {
                Ask::Request { tag, what, at, sectors, fua, data } => {
                    assert!(tags.insert(tag), "a name that was given before");
                    let now = drive.now();
                    drive.submit(now, Request { tag, what, at, sectors, fua, data });
                }
                Ask::Extents { tag, at, sectors } => {
                    session.extents(tag, &drive.extents(at, sectors));
                }
            }
            if how & 16 == 0 {
                answer(&mut session, &mut drive);
            }
        }
        answer(&mut session, &mut drive);
        assert!(session.pending() <= MAX_PENDING);
        said.extend_from_slice(session.output());
        let n = session.output().len();
        session.sent(n);
    }
    assert_eq!(session.pending(), 0, "every request was answered");
    session.hang_up();
    assert!(session.is_over() && session.output().is_empty());
    said
}

fn answer(session: &mut Session, drive: &mut Drive) {
    for a in settle(drive) {
        session.answer(a.tag, a.status, &a.data);
    }
}

/// Bytes of the guest's memory, where its process has it, and bytes of it for a queue.
const MEMORY: u64 = 64 << 10;
const USER: u64 = 0x1000_0000;
const QUEUE: u64 = 0x2000;
/// Where the parts of a queue lie in that, and how many requests it has.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x1800;
const SIZE: u32 = 16;

/// Messages of vhost-user that a guest's set-up is made of.
mod message {
    pub const SET_FEATURES: u32 = 2;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
}

/// A guest: what it says, and its memory.
struct Guest {
    session: session::Session,
    memory: File,
    drive: Drive,
    features: u64,
}

/// A front end's messages, and requests in its queues. The first byte says which drive and how many
/// queues; then come steps: messages as they are, a set-up by rule, pieces of memory, kicks.
pub fn vhost(input: &[u8]) {
    let mut feed = Feed::new(input);
    let how = feed.u8();
    let queues = 1 + u16::from(how >> 1 & 3);
    let drive = match how & 1 {
        0 => drive("fixed", &[("capacity_bytes", BYTES)]),
        _ => drive(ZONES.0, ZONES.1),
    };
    let (limits, memory) = (*drive.limits(), memfd_create("memory", MemfdFlags::CLOEXEC));
    let memory = File::from(memory.expect("memory"));
    memory.set_len(MEMORY).expect("memory");
    let features = features(&limits, queues);
    let session = session::Session::new(features, space(&limits, queues), queues);
    let mut guest = Guest { session, memory, drive, features };
    while !feed.is_empty() {
        // A front end that breaks the protocol loses its connection.
        if guest.step(&mut feed).is_err() {
            return;
        }
    }
}

impl Guest {
    /// One step. Errors: the connection is ended.
    fn step(&mut self, feed: &mut Feed<'_>) -> Result<(), String> {
        let kind = feed.u8();
        let ring = u64::from(kind >> 4 & 3);
        match kind % 8 {
            0 => {
                let (request, how, n) = (feed.u8(), feed.u8(), feed.u8());
                let fds = (0..how >> 4 & 7).map(|_| self.file()).collect();
                self.say(u32::from(request), how & 1 != 0, feed.bytes(n.into()), fds)
            }
            1 => self.set_up(ring as u32),
            2 => {
                let (at, n) = (feed.u16(), feed.u8());
                self.poke(u64::from(at), feed.bytes(n.into()));
                Ok(())
            }
            3 => {
                // A descriptor: address, length, flags, the next.
                let n = u64::from(feed.u8() % 16);
                let (at, len) = (u64::from(feed.u16()), u32::from(feed.u16()));
                let (flags, next) = (u16::from(feed.u8()), u16::from(feed.u8()));
                let bytes = [
                    &at.to_le_bytes()[..],
                    &len.to_le_bytes(),
                    &flags.to_le_bytes(),
                    &next.to_le_bytes(),
                ]
                .concat();
                self.poke(ring * QUEUE + n * 16, &bytes);
                Ok(())
            }
            4 => {
                // One more is available.
                let at = ring * QUEUE + AVAILABLE;
                let mut index = [0; 2];
                self.memory.read_exact_at(&mut index, at + 2).expect("memory");
                let index = u16::from_le_bytes(index);
                let head = u16::from(feed.u8());
                let slot = 4 + 2 * u64::from(index % SIZE as u16);
                self.poke(at + slot, &head.to_le_bytes());
                self.poke(at + 2, &index.wrapping_add(1).to_le_bytes());
                Ok(())
            }
            5 => {
                // A request's header: what, and where.
                let at = u64::from(feed.u16());
                let (what, sector) = (u32::from(feed.u8()), u64::from(feed.u16()));
                let bytes = [&what.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
                self.poke(at, &bytes);
                Ok(())
            }
            _ => {
                self.pump(ring as usize);
                Ok(())
            }
        }
    }

    fn file(&self) -> OwnedFd {
        self.memory.try_clone().expect("a descriptor").into()
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        let room = MEMORY.saturating_sub(at).min(bytes.len() as u64) as usize;
        self.memory.write_all_at(&bytes[..room], at).expect("memory");
    }

    /// A message, and what is said to it.
    fn say(
        &mut self,
        request: u32,
        needs_reply: bool,
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let flags = if needs_reply { 1 | 8 } else { 1 };
        let head = [request, flags, payload.len() as u32].map(u32::to_le_bytes).concat();
        let header = Header::parse(head.first_chunk().expect("12 bytes"))?;
        let outcome = self.session.receive(header, payload, fds)?;
        if let Some(reply) = outcome.reply {
            let head = Header::parse(reply.first_chunk().expect("a header")).expect("ours");
            assert!(head.is_reply() && head.request == request);
            assert_eq!(reply.len(), 12 + head.size as usize);
        }
        if let Some(ring) = outcome.kicked {
            self.pump(ring);
        }
        Ok(())
    }

    /// Everything that a queue needs, as a driver says it.
    fn set_up(&mut self, ring: u32) -> Result<(), String> {
        let protocol = 1 << 30;
        let two = |a: u32, b: u32| [a, b].map(u32::to_le_bytes).concat();
        let queue = u64::from(ring) * QUEUE;
        let words = |all: &[u64]| all.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let table = words(&[1, 0, MEMORY, USER, 0]);
        let [descriptors, used, available] =
            [queue, queue + USED, queue + AVAILABLE].map(|at| USER + at);
        let address = [&two(ring, 0)[..], &words(&[descriptors, used, available, 0])].concat();
        let memory = vec![self.file()];
        self.say(message::SET_FEATURES, false, &words(&[self.features | protocol]), Vec::new())?;
        self.say(message::SET_PROTOCOL_FEATURES, false, &words(&[1 << 3]), Vec::new())?;
        self.say(message::SET_MEM_TABLE, true, &table, memory)?;
        self.say(message::SET_VRING_NUM, false, &two(ring, SIZE), Vec::new())?;
        self.say(message::SET_VRING_BASE, false, &two(ring, 0), Vec::new())?;
        self.say(message::SET_VRING_ADDR, false, &address, Vec::new())?;
        self.say(message::SET_VRING_ENABLE, true, &two(ring, 1), Vec::new())
    }

    /// Takes all requests of a queue, and answers them.
    fn pump(&mut self, ring: usize) {
        // A queue holds at most this number of requests before its guest adds more.
        for _ in 0..1024 {
            let Some((queue, memory)) = self.session.ring(ring) else { return };
            let Some(chain) = queue.pop(memory) else { return };
            let room = blk::room(&chain);
            let written = match blk::read(&chain) {
                Err(_) => 0,
                Ok((Wish::Id, _)) => blk::write_bytes(&chain, Said::Ok, &blk::id("disk")),
                Ok((Wish::Report(at), _)) => {
                    let report = blk::report(&self.drive.zones(), at, room);
                    blk::write_bytes(&chain, Said::Ok, &report)
                }
                Ok((Wish::Say(said), _)) => blk::write_bytes(&chain, said, &[]),
                Ok((Wish::Ranges(ranges), _)) => {
                    let mut said = Ok(());
                    for (what, at, sectors) in ranges {
                        let asked =
                            Request { tag: 1, what, at, sectors, fua: false, data: Vec::new() };
                        said = said.and(self.ask(asked).0);
                    }
                    blk::write(&chain, blk::said(said), &[], None)
                }
                Ok((Wish::Drive { what, at, sectors }, data)) => {
                    assert!(what != What::Write || !data.is_empty());
                    let asked = Request { tag: 1, what, at, sectors, fua: false, data };
                    let (status, data, appended) = self.ask(asked);
                    blk::write(&chain, blk::said(status), &data, appended)
                }
            };
            assert!(written as usize <= room + 1, "{written} bytes into {room}");
            let Some((queue, memory)) = self.session.ring(ring) else { return };
            queue.give_back(memory, chain.head_index(), written);
        }
    }

    /// What the drive answers to a request.
    fn ask(&mut self, request: Request) -> Asked {
        let now = self.drive.now();
        self.drive.submit(now, request);
        let answer = settle(&mut self.drive).pop().expect("every request is answered");
        (answer.status, answer.data, answer.appended)
    }
}

/// What a drive has answered: how, what a read found, where an append has written.
type Asked = (Result<(), wp_block::Status>, Vec<wp_medium::Slice>, Option<wp_base::Sector>);

/// A guest's messages to the calendar, while drives have events: time never goes back, and every
/// message that may be said is answered once.
pub fn calendar(input: &[u8]) {
    let mut feed = Feed::new(input);
    let mut calendar = Calendar::new(feed.u64());
    let mut drive = None;
    let mut last = Time(0);
    while !feed.is_empty() {
        if drive.is_none() && feed.u8() & 1 != 0 {
            let at = Time(last.0.saturating_add(feed.u16().into()));
            drive = Some(at);
            // A guest that runs is told when something comes before it would have asked.
            if calendar.granted().is_some_and(|granted| at < granted) {
                let free = calendar.free_until(drive);
                acknowledged(&mut calendar, free);
            }
        }
        match calendar.turn(drive) {
            Turn::Listen => {
                let (op, seq) = (u32::from(feed.u8() % 12), feed.u32());
                let time = match feed.u8() & 3 {
                    0 => feed.u64(),
                    _ => last.0.saturating_add(feed.u16().into()),
                };
                let Ok(answer) = calendar.receive(Message { op, seq, time }) else { return };
                match answer {
                    None => assert_eq!(op, op::ACK),
                    Some(a) => assert_eq!((a.op, a.seq), (op::ACK, seq)),
                }
            }
            Turn::Drive(at) => {
                assert_eq!(Some(at), drive.take());
                calendar.advance(at);
            }
            Turn::Guest => {
                let free = calendar.free_until(drive);
                acknowledged(&mut calendar, free);
                let run = calendar.run(drive);
                acknowledged(&mut calendar, run);
                assert!(drive.is_none_or(|at| at >= calendar.now()), "a drive's event was passed");
            }
            Turn::Never => return,
        }
        assert!(calendar.now() >= last, "time goes back");
        last = calendar.now();
        // What the drive was to do has been done by then, or the guest was stopped in time.
        drive = drive.filter(|at: &Time| *at >= last);
    }
}

/// The guest answers a message of ours.
fn acknowledged(calendar: &mut Calendar, ours: Message) {
    assert_eq!(Message::parse(&ours.bytes()), ours);
    let answer = calendar.receive(Message { op: op::ACK, ..ours });
    assert_eq!(answer, Ok(None));
    assert!(!calendar.is_unanswered());
}

/// Control lines, of a guest, with writes between them: each has an answer, and a guest writes no
/// file and ends nothing.
pub fn control(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut drive = drive("ssd-128", &[("capacity_bytes", 64 << 20)]);
    for (n, line) in text.lines().take(64).enumerate() {
        let now = drive.now();
        let what = if n % 3 == 2 { What::Flush } else { What::Write };
        let (at, sectors) = match what {
            What::Flush => (wp_base::Sector(0), 0),
            _ => (wp_base::Sector(8 * (n as u64 % 4)), 8),
        };
        let data = wp_medium::Slice::pattern(n as u64, at.bytes(), 4096);
        let data = if sectors > 0 { vec![data] } else { Vec::new() };
        drive.submit(now, Request { tag: n as u64, what, at, sectors, fua: false, data });
        let verb = Command::parse(line).map(|c| c.verb);
        let (answer, quits) = control::run(&mut [&mut drive], now, line, Speaker::Guest);
        let is_good = answer["ok"].as_bool().expect("every answer says whether it went well");
        assert!(!quits && (is_good || answer["error"].is_string()));
        assert!(!is_good || !matches!(verb, Err(_) | Ok(Verb::Save { .. } | Verb::Quit)));
        if n % 2 == 1 {
            settle(&mut drive);
        }
    }
}
