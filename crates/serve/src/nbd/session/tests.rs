use super::*;
use crate::nbd::wire::option;
use proptest::prelude::*;

fn export() -> Export {
    Export {
        name: "disk".to_owned(),
        about: "a test".to_owned(),
        bytes: 1 << 20,
        block: 512,
        read_only: false,
        trim: true,
    }
}

fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.u64(IHAVEOPT);
    out.u32(number);
    out.u32(data.len() as u32);
    out.extend_from_slice(data);
    out
}

fn go_data(name: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    data.u32(name.len() as u32);
    data.extend_from_slice(name);
    data.u16(0);
    data
}

fn request_bytes(number: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut out = Vec::new();
    out.u32(wire::REQUEST);
    out.u16(flags);
    out.u16(number);
    out.u64(0xc00c1e);
    out.u64(offset);
    out.u32(length);
    out
}

/// Everything that it says to some bytes, and what it asks.
fn tell(s: &mut Session, bytes: &[u8]) -> (Vec<u8>, Option<Ask>) {
    s.receive(bytes);
    let ask = s.ask();
    let out = s.output().to_vec();
    s.sent(out.len());
    (out, ask)
}

fn flags(n: u16) -> [u8; 4] {
    u32::from(n).to_be_bytes()
}

/// A session in which requests are due.
fn ready(structured: bool) -> Session {
    let mut s = Session::new(export());
    tell(&mut s, &flags(FIXED_NEWSTYLE | NO_ZEROES));
    if structured {
        tell(&mut s, &option_bytes(option::STRUCTURED_REPLY, &[]));
        let mut context = Vec::new();
        context.u32(0);
        context.u32(1);
        context.u32(15);
        context.extend_from_slice(b"base:allocation");
        tell(&mut s, &option_bytes(option::SET_META_CONTEXT, &context));
        assert!(s.agreed.allocation);
    }
    tell(&mut s, &option_bytes(option::GO, &go_data(b"")));
    assert_eq!(s.state, State::Requests);
    s
}

fn simple_error(out: &[u8]) -> u32 {
    let mut r = Reader(out);
    assert_eq!(r.u32(), Some(wire::SIMPLE_REPLY));
    let error = r.u32().unwrap();
    assert_eq!((r.u64(), r.0.len()), (Some(0xc00c1e), 0));
    error
}

#[test]
fn it_greets_and_hands_an_export_out_by_its_old_option() {
    let mut s = Session::new(export());
    let (hello, _) = tell(&mut s, &[]);
    assert_eq!(hello[..8], *b"NBDMAGIC");
    assert_eq!(hello[8..16], *b"IHAVEOPT");
    assert_eq!(hello[16..], [0, 3]);
    let (out, _) = tell(&mut s, &flags(FIXED_NEWSTYLE));
    assert!(out.is_empty());
    let (out, _) = tell(&mut s, &option_bytes(option::EXPORT_NAME, b"disk"));
    assert_eq!(out.len(), 8 + 2 + 124, "padded, as the client did not decline it");
    assert_eq!(out[..8], (1u64 << 20).to_be_bytes());
    assert_eq!(s.state, State::Requests);
}

#[test]
fn who_does_not_speak_fixed_newstyle_is_let_go() {
    for wrong in [0u32, 2, 4 | 1, u32::MAX] {
        let mut s = Session::new(export());
        tell(&mut s, &wrong.to_be_bytes());
        assert!(s.is_over(), "flags {wrong}");
    }
}

#[test]
fn an_option_that_is_wrong_is_refused_and_another_may_follow() {
    let kind = |out: &[u8]| u32::from_be_bytes(out[12..16].try_into().unwrap());
    let mut s = Session::new(export());
    tell(&mut s, &flags(FIXED_NEWSTYLE));
    for (number, data, wanted) in [
        (4711, vec![1, 2, 3], reply::ERR_UNSUP),
        (option::LIST, vec![0], reply::ERR_INVALID),
        (option::GO, vec![0, 0, 0, 9, 1], reply::ERR_INVALID),
        (option::GO, go_data(b"other"), reply::ERR_UNKNOWN),
        (option::SET_META_CONTEXT, go_data(b""), reply::ERR_INVALID),
        (option::INFO, go_data(b"disk"), reply::INFO),
        (77, vec![0; 70_000], reply::ERR_TOO_BIG),
    ] {
        let (out, _) = tell(&mut s, &option_bytes(number, &data));
        assert_eq!(kind(&out), wanted, "option {number}");
        assert_eq!(s.state, State::Options);
    }
    tell(&mut s, &option_bytes(option::ABORT, &[]));
    assert!(s.is_over());
}

#[test]
fn a_write_in_single_bytes_is_one_request() {
    let mut s = ready(false);
    let mut bytes = request_bytes(command::WRITE, command_flag::FUA, 4096, 1024);
    bytes.extend_from_slice(&[7; 1024]);
    let (last, first) = bytes.split_last().unwrap();
    for b in first {
        assert!(tell(&mut s, &[*b]).1.is_none());
    }
    let Some(Ask::Request { tag, what: What::Write, at: Sector(8), sectors: 2, fua: true, data }) =
        tell(&mut s, &[*last]).1
    else {
        panic!("no write");
    };
    let held: Vec<u8> = Slice::concat(&data);
    assert_eq!(held, [7; 1024]);
    s.answer(tag, Ok(()), &[]);
    assert_eq!(simple_error(s.output()), 0);
}

#[test]
fn what_is_out_of_range_or_unknown_has_its_number() {
    for (number, flags, offset, length, wanted) in [
        (command::READ, 0, 1 << 20, 512, error::INVAL),
        (command::READ, 0, u64::MAX, 512, error::INVAL),
        (command::READ, 0, 0, 511, error::INVAL),
        (command::READ, 0x8000, 0, 512, error::INVAL),
        (command::TRIM, 0, (1 << 20) - 512, 1024, error::NOSPC),
        (command::WRITE_ZEROES, 0, 1 << 40, 512, error::NOSPC),
        (command::BLOCK_STATUS, 0, 0, 512, error::INVAL),
        (5, 0, 0, 512, error::INVAL),
        (4711, 0, 0, 512, error::INVAL),
    ] {
        let mut s = ready(false);
        let (out, ask) = tell(&mut s, &request_bytes(number, flags, offset, length));
        assert!(ask.is_none());
        assert_eq!(simple_error(&out), wanted, "command {number} at {offset}");
    }
    let mut s = ready(false);
    let mut bytes = request_bytes(command::WRITE, 0, (1 << 20) - 512, 1024);
    bytes.extend_from_slice(&[1; 1024]);
    assert_eq!(simple_error(&tell(&mut s, &bytes).0), error::NOSPC);
    assert_eq!(s.state, State::Requests, "the payload is passed over");
}

#[test]
fn reads_come_in_chunks_with_holes_and_whole_if_they_must() {
    let data = [Slice::from_bytes(&[9; 512]), Slice::zero(1024), Slice::from_bytes(&[8; 512])];
    for (flags, chunks) in [(0, 3), (command_flag::DF, 1)] {
        let mut s = ready(true);
        let ask = tell(&mut s, &request_bytes(command::READ, flags, 0, 2048)).1;
        let Some(Ask::Request { tag, what: What::Read, sectors: 4, .. }) = ask else {
            panic!("no read");
        };
        s.answer(tag, Ok(()), &data);
        let mut r = Reader(s.output());
        let (mut n, mut held) = (0, 0);
        while let Some(magic) = r.u32() {
            assert_eq!(magic, wire::STRUCTURED_REPLY);
            let (done, kind, _, length) = (r.u16(), r.u16(), r.u64(), r.u32().unwrap());
            let body = r.take(length as usize).unwrap();
            held += match kind {
                Some(chunk::OFFSET_HOLE) => u32::from_be_bytes(body[8..12].try_into().unwrap()),
                _ => length - 8,
            };
            n += 1;
            assert_eq!(done == Some(chunk::DONE), n == chunks);
        }
        assert_eq!((n, held), (chunks, 2048));
    }
}

#[test]
fn extents_are_told_one_or_all() {
    let extents = [Extent { sectors: 8, is_hole: true }, Extent { sectors: 8, is_hole: false }];
    for (flags, n) in [(0, 2), (command_flag::REQ_ONE, 1)] {
        let mut s = ready(true);
        let ask = tell(&mut s, &request_bytes(command::BLOCK_STATUS, flags, 0, 8192)).1;
        let Some(Ask::Extents { tag, at: Sector(0), sectors: 16 }) = ask else { panic!("{ask:?}") };
        s.extents(tag, &extents);
        assert_eq!(s.output().len(), 20 + 4 + 8 * n);
        assert_eq!(s.output()[24..32], [0, 0, 16, 0, 0, 0, 0, 3]);
    }
}

#[test]
fn a_read_only_export_refuses_to_be_written() {
    let mut s = ready(false);
    s.export.read_only = true;
    let mut bytes = request_bytes(command::WRITE, 0, 0, 512);
    bytes.extend_from_slice(&[1; 512]);
    assert_eq!(simple_error(&tell(&mut s, &bytes).0), error::PERM);
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let mut s = ready(false);
    let mut asked = 0;
    for _ in 0..2 * MAX_PENDING {
        s.receive(&request_bytes(command::READ, 0, 0, 512));
        while s.ask().is_some() {
            asked += 1;
        }
    }
    assert_eq!((asked, s.wants_input()), (MAX_PENDING, false));
}

/// Bytes of a client that mostly knows the protocol.
fn client() -> impl Strategy<Value = Vec<u8>> {
    let some = || proptest::collection::vec(any::<u8>(), 0..64);
    let option = (any::<u8>(), some()).prop_map(|(n, data)| option_bytes(u32::from(n % 12), &data));
    let go = Just(option_bytes(option::GO, &go_data(b"disk")));
    let request = (0u16..9, any::<u16>(), any::<u64>(), any::<u32>(), some()).prop_map(
        |(number, flags, offset, length, data)| {
            let (flags, offset) = (flags & 0x1f, offset % (3 << 19));
            let mut out = request_bytes(number, flags, offset & !511, (length % (1 << 14)) & !511);
            out.extend_from_slice(&data);
            out
        },
    );
    prop_oneof![2 => option, 1 => go, 5 => request, 1 => some()]
}

proptest! {
    #[test]
    fn no_bytes_of_a_client_harm_a_session(
        begins in any::<bool>(),
        structured in any::<bool>(),
        parts in proptest::collection::vec(client(), 0..40),
        cut in 1usize..100,
    ) {
        let mut s = if begins { ready(structured) } else { Session::new(export()) };
        if !begins {
            tell(&mut s, &flags(FIXED_NEWSTYLE));
        }
        for bytes in parts.concat().chunks(cut) {
            s.receive(bytes);
            while let Some(ask) = s.ask() {
                match ask {
                    Ask::Request { tag, at, sectors, what, data, .. } => {
                        prop_assert!(at.0 + sectors <= s.export.bytes / 512);
                        let held: u64 = data.iter().map(|d| u64::from(d.len())).sum();
                        prop_assert_eq!(held, if what == What::Write { sectors * 512 } else { 0 });
                        let found = [Slice::zero(sectors as u32 * 512)];
                        s.answer(tag, Ok(()), if what == What::Read { &found } else { &[] });
                    }
                    Ask::Extents { tag, sectors, .. } => {
                        s.extents(tag, &[Extent { sectors, is_hole: true }]);
                    }
                }
            }
            prop_assert_eq!(s.pending(), 0);
            prop_assert!(s.input.len() <= (32 << 20) + 28);
            s.sent(usize::MAX);
        }
    }
}
