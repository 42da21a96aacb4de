//! NBD, fixed newstyle: a session as a state machine, and a server of many of them.
//!
//! Picture:    bytes -> [`session::Session`] -> [`session::Ask`]s to the drive -> answers -> bytes.
//! Source:     the NBD protocol document (doc/proto.md of the nbd project).
//! Left out:   TLS (refused as the protocol asks), extended headers, resize.

mod handshake;
pub mod server;
pub mod session;
mod wire;

pub use session::{Ask, Export, Session};
