//! Block devices as files, without a file system: `/dev/NAME`, as a drive is benchmarked.
//!
//! Picture:    [`wp_vfs::Vfs`] -> [`Raw`], whose tree is `/dev` with a node for each device ->
//!             a node: page cache ([`wp_cache::Bdev`]) or bios (`O_DIRECT`) -> block layer.
//! Invariants: 1. `fsync` writes what is cached and sends a flush, always: nobody knows whether
//!                there was a write since the last one.
//!             2. a direct write holds no lock. One through the cache holds the node's.
//!             3. the last close writes everything and empties the cache.
//! Source:     Linux `block/fops.c` (`blkdev_direct_IO`, `blkdev_fsync`, `blkdev_write_iter`),
//!             `block/ioctl.c` (`blk_ioctl_discard`), `block/bdev.c` (`bdev_release`).

mod direct;
mod entry;
mod node;
mod ops;

pub use entry::{ENTRY, NAME};
pub use ops::Raw;
