//! Serves simulated drives over NBD, or over vhost-user-blk for guests, in real or virtual time;
//! the power of a drive can fail while a client uses it.
//!
//! Picture:    client -> socket -> protocol machine ([`nbd::Session`], `vhost::Session`) ->
//!             [`drive::Drive`] -> device model; the time comes from a [`clock::Clock`], or from
//!             the [`calendar`] that a guest in time travel asks for it.
//! Invariants: 1. protocols and drives are state machines without sockets; only the servers touch
//!                them;
//!             2. one thread: what a drive does depends on the order of requests and on time, never
//!                on a scheduler;
//!             3. bytes of a client are never trusted: they are bounded before they are kept.

pub mod calendar;
pub mod clock;
pub mod control;
mod control_socket;
pub mod drive;
pub mod nbd;
pub mod vhost;

pub use clock::{Clock, ClockKind};
pub use drive::{Answer, Drive, Request, What};
