//! virtio-blk over vhost-user: drives for guests (User-Mode Linux, QEMU), in real or virtual time.
//!
//! Picture:    guest -> socket -> [`session::Session`] (memory, rings) -> [`blk`] requests ->
//!             drive; back come used descriptors and a call.
//! Own code:   the `vhost` crate knows the flag of in-band notifications and not the message
//!             (`VRING_KICK`), and takes no memory table that is longer than its regions, as that
//!             of User-Mode Linux is. Rings and chains of `virtio-queue` need memory that is
//!             mapped, which a client can shorten (SIGBUS): `memory` has what is done instead.
//! Trust:      what stands in guest memory is checked; a client that shortens it loses its
//!             connection.
//! Left out:   logging of dirty memory and in-flight tracking (migration), packed rings.
//! Source:     docs/interop/vhost-user.rst of QEMU; virtio 1.3, 5.2; `drivers/block/virtio_blk.c`
//!             and `arch/um/drivers/virtio_uml.c` of Linux 6.12.

pub mod blk;
mod chain;
mod config;
mod connection;
mod control_disk;
pub mod cpu;
mod external;
mod machine;
mod memory;
mod real;
mod ring;
pub mod session;
#[cfg(test)]
mod testing;
mod wire;

pub use config::{features, space};
pub use external::{Ended, Guest};
pub use machine::Machine;
pub use wire::Header;
