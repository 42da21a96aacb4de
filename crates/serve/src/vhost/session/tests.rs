//! A front end by hand: memory in a file, rings written there, messages to the session.

use std::os::unix::fs::FileExt;

use super::super::blk::{self, Said, Wish};
use super::super::config::{self, feature};
use super::super::testing::{pair, words};
use super::super::wire::request as r;
use super::*;
use crate::drive::What;
use proptest::prelude::*;

const MEMORY: u64 = 1 << 20;
/// The front end's address of the guest's address 0.
const USER: u64 = 0x7f00_0000_0000;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;

struct FrontEnd {
    session: Session,
    memory: File,
    available: u16,
}

fn header(request: u32, size: usize, flags: u32) -> Header {
    Header { request, flags: 1 | flags, size: size as u32 }
}

impl FrontEnd {
    fn new() -> FrontEnd {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(MEMORY).unwrap();
        let limits = *wp_device::find("fixed").unwrap().make(&[]).unwrap().limits();
        let session = Session::new(config::features(&limits, 2), config::space(&limits, 2), 2);
        FrontEnd { session, memory, available: 0 }
    }

    fn say(&mut self, request: u32, payload: &[u8], fds: Vec<OwnedFd>) -> Result<Outcome, String> {
        self.session.receive(header(request, payload.len(), 0), payload, fds)
    }

    fn ok(&mut self, request: u32, payload: &[u8]) -> Outcome {
        self.say(request, payload, Vec::new()).unwrap()
    }

    /// Sets queue 0 up, as User-Mode Linux does: a memory table with room for two regions.
    fn started() -> FrontEnd {
        let mut f = FrontEnd::new();
        let acked = F_PROTOCOL_FEATURES | feature::VERSION_1 | feature::INDIRECT_DESC;
        f.ok(r::SET_OWNER, &[]);
        f.ok(r::SET_FEATURES, &words(&[acked]));
        let table = [pair(1, 0), words(&[0, MEMORY, USER, 0]), words(&[0; 4])].concat();
        let fd = f.memory.try_clone().unwrap().into();
        f.say(r::SET_MEM_TABLE, &table, vec![fd]).unwrap();
        f.ok(r::SET_VRING_NUM, &pair(0, 8));
        f.ok(r::SET_VRING_BASE, &pair(0, 0));
        let parts = words(&[USER + DESCRIPTORS, USER + USED, USER + AVAILABLE, 0]);
        f.ok(r::SET_VRING_ADDR, &[pair(0, 0), parts].concat());
        f.ok(r::SET_VRING_ENABLE, &pair(0, 1));
        f
    }

    /// Puts a chain of (address, bytes, may it be written?) from descriptor 0 on into the queue.
    fn offer(&mut self, parts: &[(u64, u32, bool)]) {
        for (n, (at, len, writes)) in parts.iter().enumerate() {
            let next = n + 1 < parts.len();
            let flags = u16::from(next) | u16::from(*writes) << 1;
            let mut d = words(&[*at]);
            d.extend_from_slice(&len.to_le_bytes());
            d.extend_from_slice(&flags.to_le_bytes());
            d.extend_from_slice(&(n as u16 + 1).to_le_bytes());
            self.memory.write_all_at(&d, DESCRIPTORS + 16 * n as u64).unwrap();
        }
        let slot = AVAILABLE + 4 + 2 * u64::from(self.available % 8);
        self.memory.write_all_at(&[0, 0], slot).unwrap();
        self.available += 1;
        self.memory.write_all_at(&self.available.to_le_bytes(), AVAILABLE + 2).unwrap();
    }

    fn pop(&mut self) -> Option<super::super::ring::Chain> {
        let (ring, memory) = self.session.ring(0)?;
        ring.pop(memory)
    }

    fn bytes(&self, at: u64, n: usize) -> Vec<u8> {
        let mut out = vec![0; n];
        self.memory.read_exact_at(&mut out, at).unwrap();
        out
    }
}

fn blk_header(kind: u32, sector: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
}

#[test]
fn a_read_goes_through_the_ring_and_comes_back() {
    let mut f = FrontEnd::started();
    f.memory.write_all_at(&blk_header(0, 24), 0x8000).unwrap();
    f.offer(&[(0x8000, 16, false), (0x9000, 512, true), (0x9200, 512, true), (0xa000, 1, true)]);
    let kick = f.ok(r::VRING_KICK, &pair(0, 0));
    assert_eq!(kick.kicked, Some(0));
    let chain = f.pop().unwrap();
    let (wish, _) = blk::read(&chain).unwrap();
    let wanted = Wish::Drive { what: What::Read, at: wp_base::Sector(24), sectors: 2 };
    assert_eq!(wish, wanted);
    let data = [wp_medium::Slice::from_bytes(&[5; 1024])];
    assert_eq!(blk::write(&chain, Said::Ok, &data, None), 1025);
    let (ring, memory) = f.session.ring(0).unwrap();
    assert!(ring.give_back(memory, chain.head_index(), 1025));
    assert_eq!(f.bytes(0x9000, 1024), [5; 1024]);
    assert_eq!(f.bytes(USED + 2, 2), 1u16.to_le_bytes());
    assert_eq!(f.bytes(USED + 4, 8), pair(0, 1025));
    assert!(f.pop().is_none());
}

#[test]
fn a_write_is_read_out_of_the_guests_memory() {
    let mut f = FrontEnd::started();
    f.memory.write_all_at(&blk_header(1, 8), 0x8000).unwrap();
    f.memory.write_all_at(&[6; 1024], 0x9000).unwrap();
    f.offer(&[(0x8000, 16, false), (0x9000, 1024, false), (0xa000, 1, true)]);
    let chain = f.pop().unwrap();
    let (_, data) = blk::read(&chain).unwrap();
    let held: Vec<u8> = wp_medium::Slice::concat(&data);
    assert_eq!(held, [6; 1024]);
}

#[test]
fn chains_that_point_nowhere_are_errors() {
    for parts in [
        vec![(MEMORY, 16, false), (0xa000, 1, true)],
        vec![(0x8000, 8, false), (0xa000, 1, true)],
        vec![(0x8000, 16, false)],
        vec![(0x8000, 16, false), (MEMORY - 1, 4096, true)],
    ] {
        let mut f = FrontEnd::started();
        f.offer(&parts);
        let chain = f.pop().unwrap();
        assert!(blk::read(&chain).is_err(), "{parts:?}");
    }
}

#[test]
fn the_configuration_is_told_in_the_length_that_was_asked() {
    let mut f = FrontEnd::new();
    let ask = |offset: u32, size: u32| {
        [&offset.to_le_bytes()[..], &size.to_le_bytes(), &[0; 4], &vec![0; size as usize]].concat()
    };
    let reply = f.ok(r::GET_CONFIG, &ask(0, 24)).reply.unwrap();
    assert_eq!(reply.len(), 12 + 12 + 24);
    assert_eq!(reply[24 + 20..24 + 24], f.session.config[20..24]);
    assert!(f.say(r::GET_CONFIG, &ask(0, 1 << 20)[..12], Vec::new()).is_err());
    assert!(f.say(r::GET_CONFIG, &[0; 4], Vec::new()).is_err());
}

#[test]
fn a_reply_is_sent_where_it_was_agreed_and_asked_for() {
    let mut f = FrontEnd::new();
    let ask = |f: &mut FrontEnd| f.session.receive(header(r::SET_OWNER, 0, 8), &[], Vec::new());
    assert_eq!(ask(&mut f).unwrap().reply, None);
    f.ok(r::SET_PROTOCOL_FEATURES, &words(&[protocol::REPLY_ACK]));
    assert_eq!(ask(&mut f).unwrap().reply, Some(wire::reply(r::SET_OWNER, &[0; 8])));
}

#[test]
fn what_was_not_offered_and_what_is_not_there_is_refused() {
    let mut f = FrontEnd::started();
    for (request, payload) in [
        (r::SET_FEATURES, words(&[1 << 40])),
        (r::SET_PROTOCOL_FEATURES, words(&[1 << 20])),
        (r::SET_VRING_NUM, pair(7, 8)),
        (r::SET_VRING_NUM, pair(0, 9)),
        (r::SET_VRING_NUM, pair(0, 1 << 20)),
        (r::SET_VRING_BASE, pair(0, 1 << 16)),
        (r::VRING_KICK, pair(2, 0)),
        (r::SET_MEM_TABLE, pair(9, 0)),
        (r::SET_MEM_TABLE, pair(u32::MAX, 0)),
        (r::SET_BACKEND_REQ_FD, Vec::new()),
        (r::SET_CONFIG, Vec::new()),
        (4711, Vec::new()),
    ] {
        assert!(f.say(request, &payload, Vec::new()).is_err(), "message {request}");
    }
    let long = [pair(1, 0), words(&[0, 2 * MEMORY, USER, 0])].concat();
    let fd = f.memory.try_clone().unwrap().into();
    assert!(f.say(r::SET_MEM_TABLE, &long, vec![fd]).is_err(), "longer than its file");
}

#[test]
fn a_queue_that_is_stopped_says_where_it_was() {
    let mut f = FrontEnd::started();
    f.offer(&[(0x8000, 16, false), (0xa000, 1, true)]);
    f.pop().unwrap();
    let reply = f.ok(r::GET_VRING_BASE, &pair(0, 0)).reply.unwrap();
    assert_eq!(reply[12..], pair(0, 1));
    f.offer(&[(0x8000, 16, false), (0xa000, 1, true)]);
    assert!(f.pop().is_none(), "it is stopped");
}

proptest! {
    #[test]
    fn no_message_and_no_ring_harms_a_session(
        messages in proptest::collection::vec(
            (0u32..40, proptest::collection::vec(any::<u8>(), 0..80)), 0..60),
        garbage in proptest::collection::vec(any::<u8>(), 0x400),
        index in any::<u16>(),
    ) {
        let mut f = FrontEnd::started();
        for at in [DESCRIPTORS, AVAILABLE, USED, 0x8000] {
            f.memory.write_all_at(&garbage, at).unwrap();
        }
        f.memory.write_all_at(&(index % 9).to_le_bytes(), AVAILABLE + 2).unwrap();
        for _ in 0..16 {
            let Some(chain) = f.pop() else { break };
            drop(blk::read(&chain));
            blk::write_bytes(&chain, Said::Ok, &[1; 64]);
            let (ring, memory) = f.session.ring(0).unwrap();
            ring.give_back(memory, chain.head_index(), 1);
        }
        for (request, payload) in messages {
            drop(f.say(request, &payload, Vec::new()));
            f.pop();
        }
    }
}
