//! The trees: searched, changed, kept in shape.
//!
//! Picture:    `Core::search` goes down from a root with a [`Path`]; if the tree is to be changed
//!             it copies each block on the way to a new place (`cow`), and splits (`insert`) or
//!             merges (`delete`) nodes so that the leaf can take, or lose, an item.
//! Invariants: 1. a block that was written is never changed: it is copied to a free place first.
//!             2. blocks of a path are in memory until the next call that changes a tree.
//! Left out:   locks, read-ahead, the log of changes for those who read old versions, and blocks
//!             that balance moves.
//! Source:     fs/btrfs/ctree.c, for which block is split, shares with which neighbour and is
//!             merged, so that trees come out as the kernel's.

#![deny(clippy::indexing_slicing)]

mod cow;
mod delete;
mod insert;
pub mod page;
mod path;
mod search;
mod split;
mod use_items;
mod verify;

pub use path::Path;
pub use search::Purpose;
pub use verify::Shape;
