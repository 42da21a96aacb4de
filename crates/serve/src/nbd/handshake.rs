//! Option haggling: what an export is, and what of the protocol both sides speak.

use super::session::Export;
use super::wire::{self, Put, Reader, flag, info, option, reply};

/// What was agreed on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Agreed {
    /// No padding behind the old reply to a name.
    pub no_zeroes: bool,
    /// Replies in chunks.
    pub structured: bool,
    /// The context `base:allocation`, for this export.
    pub allocation: bool,
}

/// What an option leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// More options.
    Options,
    /// Requests.
    Requests,
    /// The end of the connection.
    Close,
}

/// Number of the context in replies.
pub(super) const ALLOCATION_ID: u32 = 1;
const ALLOCATION: &[u8] = b"base:allocation";

/// Answers one option, whose data are whole.
pub(super) fn answer(
    export: &Export,
    agreed: &mut Agreed,
    (number, data): (u32, &[u8]),
    out: &mut Vec<u8>,
) -> Next {
    match number {
        option::EXPORT_NAME => {
            // The old way in has no way to say no but to hang up.
            if !export.is_called(data) {
                return Next::Close;
            }
            out.u64(export.bytes);
            out.u16(export.flags(agreed.structured));
            if !agreed.no_zeroes {
                out.extend_from_slice(&[0; 124]);
            }
            return Next::Requests;
        }
        option::ABORT => {
            wire::option_reply(out, number, reply::ACK, &[]);
            return Next::Close;
        }
        option::INFO | option::GO => match wanted(data) {
            None => refuse(out, number, reply::ERR_INVALID, WRONG_LENGTH),
            Some((name, _)) if !export.is_called(name) => {
                refuse(out, number, reply::ERR_UNKNOWN, NO_EXPORT);
            }
            Some((_, infos)) => {
                tell(export, agreed, number, &infos, out);
                return if number == option::GO { Next::Requests } else { Next::Options };
            }
        },
        option::LIST | option::STRUCTURED_REPLY if !data.is_empty() => {
            refuse(out, number, reply::ERR_INVALID, "the option carries no data");
        }
        option::LIST => {
            let mut server = Vec::new();
            server.u32(export.name.len() as u32);
            server.extend_from_slice(export.name.as_bytes());
            wire::option_reply(out, number, reply::SERVER, &server);
            wire::option_reply(out, number, reply::ACK, &[]);
        }
        option::STRUCTURED_REPLY => {
            agreed.structured = true;
            wire::option_reply(out, number, reply::ACK, &[]);
        }
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            contexts(export, agreed, (number, data), out);
        }
        _ => refuse(out, number, reply::ERR_UNSUP, "this server does not support the option"),
    }
    Next::Options
}

const WRONG_LENGTH: &str = "the option has a wrong length";
const NO_EXPORT: &str = "there is no such export";

fn refuse(out: &mut Vec<u8>, number: u32, kind: u32, text: &str) {
    wire::option_reply(out, number, kind, text.as_bytes());
}

/// Lists or sets contexts: there is `base:allocation`.
fn contexts(export: &Export, agreed: &mut Agreed, (number, data): (u32, &[u8]), out: &mut Vec<u8>) {
    if !agreed.structured {
        return refuse(out, number, reply::ERR_INVALID, "structured replies come first");
    }
    let Some((name, queries)) = queries(data) else {
        return refuse(out, number, reply::ERR_INVALID, WRONG_LENGTH);
    };
    let sets = number == option::SET_META_CONTEXT;
    if sets {
        agreed.allocation = false;
    }
    if !export.is_called(name) {
        return refuse(out, number, reply::ERR_UNKNOWN, NO_EXPORT);
    }
    let is_asked = |q: &&[u8]| *q == ALLOCATION || !sets && *q == b"base:";
    if queries.iter().any(is_asked) || !sets && queries.is_empty() {
        let mut context = Vec::new();
        context.u32(if sets { ALLOCATION_ID } else { 0 });
        context.extend_from_slice(ALLOCATION);
        wire::option_reply(out, number, reply::META_CONTEXT, &context);
        agreed.allocation |= sets;
    }
    wire::option_reply(out, number, reply::ACK, &[]);
}

/// Name and wanted informations of INFO and GO. `None`: malformed.
fn wanted(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut r = Reader(data);
    let name = r.text()?;
    let n = r.u16()?;
    let infos: Option<Vec<u16>> = (0..n).map(|_| r.u16()).collect();
    r.0.is_empty().then_some((name, infos?))
}

/// Name and queries of the options about contexts. `None`: malformed.
fn queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut r = Reader(data);
    let name = r.text()?;
    let n = r.u32()?;
    // Each has four bytes at least, so a lie about their number ends soon.
    let mut queries = Vec::new();
    for _ in 0..n {
        queries.push(r.text()?);
    }
    r.0.is_empty().then_some((name, queries))
}

/// Everything about the export that was asked for, and what is always told.
fn tell(export: &Export, agreed: &Agreed, number: u32, infos: &[u16], out: &mut Vec<u8>) {
    let mut one = |kind: u16, fill: &dyn Fn(&mut Vec<u8>)| {
        let mut data = Vec::new();
        data.u16(kind);
        fill(&mut data);
        wire::option_reply(out, number, reply::INFO, &data);
    };
    one(info::EXPORT, &|d| {
        d.u64(export.bytes);
        d.u16(export.flags(agreed.structured));
    });
    if infos.contains(&info::NAME) {
        one(info::NAME, &|d| d.extend_from_slice(export.name.as_bytes()));
    }
    if infos.contains(&info::DESCRIPTION) {
        one(info::DESCRIPTION, &|d| d.extend_from_slice(export.about.as_bytes()));
    }
    one(info::BLOCK_SIZE, &|d| {
        d.u32(export.block);
        d.u32(export.block.max(4096));
        d.u32(wire::MAX_PAYLOAD);
    });
    wire::option_reply(out, number, reply::ACK, &[]);
}

impl Export {
    /// May a client call it this? The empty name is that of the only export.
    fn is_called(&self, name: &[u8]) -> bool {
        name.len() <= wire::MAX_NAME && (name.is_empty() || name == self.name.as_bytes())
    }

    /// Transmission flags.
    fn flags(&self, structured: bool) -> u16 {
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN;
        if self.read_only {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::SEND_WRITE_ZEROES;
            if self.trim {
                flags |= flag::SEND_TRIM;
            }
        }
        if structured {
            flags |= flag::SEND_DF;
        }
        flags
    }
}
