//! The page cache, block-granular, and the flusher that ages and cleans it.
//!
//! Picture:    [`Mapping`] (a file, or the block device) holds [`Buffer`]s by index; [`Bdev`] is
//!             the block device's mapping, where metadata lives; [`Writeback`] is one device's
//!             flusher with its dirty list.
//! Invariants: 1. a buffer's contents move by reference; writing to shared contents copies them
//!                first.
//!             2. a mapping with a dirty tag is on its flusher's dirty list (or being written).
//!             3. the cache never decides *where* a block goes: file systems do, through [`WbOps`].
//! Left out:   pages that hold several blocks. The unit of caching is the file-system block (at
//!             most 4 KiB); neighbouring blocks merge in the block layer, so device requests are
//!             the same.
//! Source:     Linux `fs/buffer.c`, `fs/fs-writeback.c`, `mm/page-writeback.c`.

mod bdev;
mod buffer;
mod dirty_list;
mod era;
mod errseq;
mod index;
mod mapping;
mod policy;
mod quasi;
mod readahead;
mod share;
pub mod site;
mod tags;
mod writeback;

use std::future::Future;
use std::pin::Pin;

pub use bdev::Bdev;
pub use buffer::{BufFlag, Buffer};
pub use era::{Era, POLICIES};
pub use errseq::{ErrMark, ErrSeq};
pub use index::Index;
pub use mapping::{Mapping, WbControl, WbOps};
pub use policy::WbPolicy;
pub use readahead::{Advice, Ahead, Readahead, ReadaheadRules, SelfStart, WINDOW_PAGES};
pub use writeback::Writeback;

/// A boxed future of a file-system operation.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = wp_base::FsResult<T>> + 'a>>;
