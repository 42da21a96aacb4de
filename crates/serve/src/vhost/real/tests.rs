//! A front end with several queues, by hand, over a real socket: as QEMU does it, each queue with a
//! kick and a call of its own.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::super::config::feature;
use super::super::testing::{pair, words};
use super::super::wire::{F_PROTOCOL_FEATURES, HEADER_BYTES, protocol, request as r};
use super::*;
use crate::clock::ClockKind;
use crate::drive::Drive;
use crate::drive::freeze::Loss;

/// Memory of a queue: its parts, a header, data and a status.
const ROOM: u64 = 1 << 16;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADERS: u64 = 0x8000;
const DATA: u64 = 0x9000;
const STATUS: u64 = 0xf000;
/// The front end's address of the guest's address 0.
const USER: u64 = 0x7f00_0000_0000;
const SIZE: u16 = 16;
const BLOCK: usize = 4096;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;

/// A queue's notifications, and how many requests were put into it.
struct Queue {
    kick: File,
    call: File,
    available: u16,
}

struct FrontEnd {
    stream: UnixStream,
    memory: File,
    queues: Vec<Queue>,
}

fn event() -> File {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap().into()
}

impl FrontEnd {
    /// Connects, and sets `queues` queues up.
    fn new(socket: &Path, queues: u16, features: u64) -> FrontEnd {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(ROOM * u64::from(queues)).unwrap();
        let fresh = |_| Queue { kick: event(), call: event(), available: 0 };
        let queues: Vec<Queue> = (0..queues).map(fresh).collect();
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        let mut f = FrontEnd { stream, memory, queues };
        f.say(r::SET_OWNER, &[], &[]);
        let spoken = f.ask(r::GET_PROTOCOL_FEATURES, &[]);
        assert_ne!(spoken[0] & protocol::MQ as u8, 0, "several queues are spoken of");
        f.say(r::SET_PROTOCOL_FEATURES, &words(&[protocol::MQ | protocol::CONFIG]), &[]);
        let most = f.ask(r::GET_QUEUE_NUM, &[]);
        assert_eq!(most, words(&[f.queues.len() as u64]));
        let acked = F_PROTOCOL_FEATURES | feature::VERSION_1 | feature::MQ | features;
        f.say(r::SET_FEATURES, &words(&[acked]), &[]);
        let bytes = ROOM * f.queues.len() as u64;
        let table = [pair(1, 0), words(&[0, bytes, USER, 0])].concat();
        let memory = f.memory.try_clone().unwrap();
        f.say(r::SET_MEM_TABLE, &table, &[memory.as_fd()]);
        for q in 0..f.queues.len() {
            f.start(q, 0);
        }
        f
    }

    /// Sets a queue up, from a request's index on.
    fn start(&mut self, q: usize, base: u16) {
        let n = q as u32;
        let at = USER + ROOM * q as u64;
        self.say(r::SET_VRING_NUM, &pair(n, u32::from(SIZE)), &[]);
        self.say(r::SET_VRING_BASE, &pair(n, u32::from(base)), &[]);
        let parts = words(&[at + DESCRIPTORS, at + USED, at + AVAILABLE, 0]);
        self.say(r::SET_VRING_ADDR, &[pair(n, 0), parts].concat(), &[]);
        let kick = self.queues[q].kick.try_clone().unwrap();
        let call = self.queues[q].call.try_clone().unwrap();
        self.say(r::SET_VRING_KICK, &words(&[q as u64]), &[kick.as_fd()]);
        self.say(r::SET_VRING_CALL, &words(&[q as u64]), &[call.as_fd()]);
        self.say(r::SET_VRING_ENABLE, &pair(n, 1), &[]);
    }

    fn say(&mut self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut bytes = [request.to_le_bytes(), 1u32.to_le_bytes()].concat();
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let parts = [IoSlice::new(&bytes)];
        let sent = sendmsg(&self.stream, &parts, &mut control, SendFlags::empty()).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// The payload of the reply.
    fn ask(&mut self, request: u32, payload: &[u8]) -> Vec<u8> {
        self.say(request, payload, &[]);
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).unwrap();
        assert_eq!(header[..4], request.to_le_bytes());
        let mut reply = vec![0; usize::from(header[8])];
        self.stream.read_exact(&mut reply).unwrap();
        reply
    }

    /// Puts a request for a block, or a flush, into a queue, without a kick.
    fn put(&mut self, q: usize, kind: u32, sector: u64) {
        let at = ROOM * q as u64;
        let n = self.queues[q].available;
        // Three descriptors a request.
        let first = n * 3 % (SIZE - 1);
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.memory.write_all_at(&header, at + HEADERS).unwrap();
        let mut parts = vec![(HEADERS, 16u32, 0u16), (STATUS, 1, 2)];
        if kind != FLUSH {
            parts.insert(1, (DATA, BLOCK as u32, if kind == IN { 2 } else { 0 }));
        }
        for (i, (part, bytes, flags)) in parts.iter().enumerate() {
            let here = first + i as u16;
            let next = u16::from(i + 1 < parts.len());
            let mut d = words(&[at + part]);
            d.extend_from_slice(&bytes.to_le_bytes());
            d.extend_from_slice(&(flags | next).to_le_bytes());
            d.extend_from_slice(&(here + 1).to_le_bytes());
            self.memory.write_all_at(&d, at + DESCRIPTORS + 16 * u64::from(here)).unwrap();
        }
        self.memory.write_all_at(&[0xff], at + STATUS).unwrap();
        let slot = at + AVAILABLE + 4 + 2 * u64::from(n % SIZE);
        self.memory.write_all_at(&first.to_le_bytes(), slot).unwrap();
        self.memory.write_all_at(&(n + 1).to_le_bytes(), at + AVAILABLE + 2).unwrap();
        self.queues[q].available += 1;
    }

    fn kick(&mut self, q: usize) {
        self.queues[q].kick.write_all(&1u64.to_le_bytes()).unwrap();
    }

    /// Waits until a queue is called. `false`: that takes long.
    fn is_called(&mut self, q: usize, seconds: i64) -> bool {
        let call = &mut self.queues[q].call;
        let wait = Timespec { tv_sec: seconds, tv_nsec: 200_000_000 };
        let n = poll(&mut [PollFd::new(&*call, PollFlags::IN)], Some(&wait)).unwrap();
        n > 0 && call.read(&mut [0; 8]).is_ok()
    }

    /// Puts a request into a queue and waits for its answer: all that was put in is given back.
    fn does(&mut self, q: usize, kind: u32, sector: u64) {
        self.put(q, kind, sector);
        self.kick(q);
        self.is_answered(q);
    }

    fn is_answered(&mut self, q: usize) {
        assert!(self.is_called(q, 20), "queue {q} is called");
        let at = ROOM * q as u64;
        assert_eq!(self.bytes(at + USED + 2, 2), self.queues[q].available.to_le_bytes());
        assert_eq!(self.bytes(at + STATUS, 1), [0], "queue {q}");
    }

    fn bytes(&self, at: u64, n: usize) -> Vec<u8> {
        let mut out = vec![0; n];
        self.memory.read_exact_at(&mut out, at).unwrap();
        out
    }

    fn fill(&self, q: usize, byte: u8) {
        self.memory.write_all_at(&[byte; BLOCK], ROOM * q as u64 + DATA).unwrap();
    }

    fn holds(&self, q: usize) -> Vec<u8> {
        self.bytes(ROOM * q as u64 + DATA, BLOCK)
    }
}

/// Serves a drive with four queues while `client` runs; what was taken out of each queue, and what
/// there was to complain of.
fn serving(
    preset: &str,
    clock: ClockKind,
    client: impl FnOnce(&Path) + Send,
) -> (Vec<u64>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("d0");
    let device = wp_device::find(preset).unwrap().make(&[]).unwrap();
    let mut machine = Machine::new();
    machine.add(Drive::new(preset, device, Loss::Model), &socket, 4).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&socket)));
            stop.store(true, Ordering::Relaxed);
            done
        });
        machine.serve_real(&Clock::start(clock), None, &stop, false).unwrap();
        if let Err(panic) = ends.join().unwrap() {
            std::panic::resume_unwind(panic);
        }
    });
    (machine.taken(0).to_vec(), machine.complaints().to_vec())
}

#[test]
fn every_queue_has_its_own_requests_answers_and_calls() {
    for clock in [ClockKind::Free, ClockKind::Paced] {
        let (taken, complaints) = serving("ssd-128", clock, |socket| {
            let mut f = FrontEnd::new(socket, 4, feature::FLUSH);
            // All are under way at once.
            for q in 0..4 {
                f.fill(q, q as u8 + 1);
                f.put(q, OUT, 8 * q as u64);
            }
            (0..4).for_each(|q| f.kick(q));
            (0..4).for_each(|q| f.is_answered(q));
            f.does(3, FLUSH, 0);
            // What one queue has written another reads.
            for q in 0..4 {
                let other = (q + 1) % 4;
                f.does(other, IN, 8 * q as u64);
                assert_eq!(f.holds(other), [q as u8 + 1; BLOCK]);
                let quiet = (other + 1) % 4;
                assert!(!f.is_called(quiet, 0), "queue {quiet} has nothing to be called for");
            }
        });
        assert_eq!(taken, [2, 2, 2, 3]);
        assert_eq!(complaints, [""; 0]);
    }
}

#[test]
fn one_queue_is_stopped_and_begun_again_while_the_others_go_on() {
    let (taken, complaints) = serving("ssd-128", ClockKind::Free, |socket| {
        let mut f = FrontEnd::new(socket, 4, 0);
        f.fill(1, 7);
        f.does(1, OUT, 80);
        assert_eq!(f.ask(r::GET_VRING_BASE, &pair(1, 0)), pair(1, 1));
        f.put(1, IN, 80);
        f.kick(1);
        f.does(2, IN, 80);
        assert_eq!(f.holds(2), [7; BLOCK]);
        assert!(!f.is_called(1, 0), "it is stopped");
        f.fill(1, 0);
        f.start(1, 1);
        f.is_answered(1);
        assert_eq!(f.holds(1), [7; BLOCK]);
    });
    assert_eq!(taken, [0, 2, 1, 0]);
    assert_eq!(complaints, [""; 0]);
}

#[test]
fn a_queue_that_is_stopped_with_requests_under_way_ends_them_and_time_goes_on() {
    for clock in [ClockKind::Free, ClockKind::Paced] {
        let (taken, complaints) = serving("ssd-128", clock, |socket| {
            let mut f = FrontEnd::new(socket, 4, 0);
            for n in 0..4 {
                f.put(0, OUT, 8 * n);
            }
            f.put(1, OUT, 80);
            // Kicks and the message are seen in one turn, or in two.
            (0..2).for_each(|q| f.kick(q));
            let state = f.ask(r::GET_VRING_BASE, &pair(0, 0));
            let base = u16::from_le_bytes([state[4], state[5]]);
            assert!(base <= 4, "{base}");
            // What was taken out has been given back by then.
            assert_eq!(f.bytes(USED + 2, 2), base.to_le_bytes());
            f.is_answered(1);
            f.start(0, base);
            f.put(0, IN, 8);
            f.kick(0);
            while f.bytes(USED + 2, 2) != f.queues[0].available.to_le_bytes() {
                assert!(f.is_called(0, 20), "the others are answered");
            }
        });
        assert_eq!(taken, [5, 1, 0, 0], "{clock:?}");
        assert_eq!(complaints, [""; 0]);
    }
}

#[test]
fn a_guest_that_writes_to_zones_that_it_was_not_told_of_is_complained_of_once() {
    for (features, complains) in [(0, true), (feature::ZONED, false)] {
        let (_, complaints) = serving("zn540", ClockKind::Free, |socket| {
            let mut f = FrontEnd::new(socket, 4, features);
            f.does(0, IN, 0);
            f.does(0, OUT, 0);
            f.does(1, OUT, 8);
        });
        assert_eq!(complaints.len(), usize::from(complains), "{complaints:?}");
    }
}

#[test]
fn a_client_that_shortens_its_memory_loses_its_connection_and_nobody_else_anything() {
    for clock in [ClockKind::Free, ClockKind::Paced] {
        for length in [0, 0x1000, DATA, ROOM, 3 * ROOM + USED] {
            let (_, complaints) = serving("ssd-128", clock, |socket| {
                let mut f = FrontEnd::new(socket, 4, 0);
                f.fill(0, 9);
                f.does(0, OUT, 0);
                // Some are in flight, others are not read yet.
                for q in 0..4 {
                    f.put(q, if q % 2 == 0 { IN } else { OUT }, 8);
                }
                (0..2).for_each(|q| f.kick(q));
                f.memory.set_len(length).unwrap();
                (0..4).for_each(|q| f.kick(q));
                // It is the end of the connection, said in either way.
                let ended = f.stream.read(&mut [0]);
                assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
                let mut other = FrontEnd::new(socket, 4, 0);
                other.does(0, IN, 0);
                assert_eq!(other.holds(0), [9; BLOCK]);
            });
            assert_eq!(complaints.len(), 1, "{length:#x}: {complaints:?}");
            assert!(complaints[0].contains("its connection was ended: its memory at"));
        }
    }
}

#[test]
fn a_front_end_that_floods_and_reads_no_reply_is_ended_and_keeps_nobody_waiting() {
    const MANY: usize = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let sockets = ["d0", "d1"].map(|name| dir.path().join(name));
    let mut machine = Machine::new();
    for socket in &sockets {
        let device = wp_device::find("ssd-128").unwrap().make(&[]).unwrap();
        machine.add(Drive::new("ssd-128", device, Loss::Model), socket, 4).unwrap();
    }
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut stream = loop {
                match UnixStream::connect(&sockets[0]) {
                    Ok(stream) => break stream,
                    Err(_) => std::thread::yield_now(),
                }
            };
            let message: Vec<u8> =
                [r::GET_FEATURES, 1, 0].iter().flat_map(|n: &u32| n.to_le_bytes()).collect();
            (0..MANY).find(|_| stream.write_all(&message).is_err())
        });
        let other = scope.spawn(|| {
            let done = std::panic::catch_unwind(|| {
                let mut f = FrontEnd::new(&sockets[1], 4, 0);
                (0..50).for_each(|n| f.does(0, OUT, 8 * n));
            });
            let sent = flood.join().unwrap();
            stop.store(true, Ordering::Relaxed);
            done.map(|()| sent)
        });
        machine.serve_real(&Clock::start(ClockKind::Free), None, &stop, false).unwrap();
        other.join().unwrap().unwrap()
    });
    assert!(sent.is_some(), "it was served {MANY} times and read nothing");
    assert_eq!(machine.taken(1)[0], 50);
}
