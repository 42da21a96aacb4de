//! Contents with identity, and the persistent medium that holds them.
//!
//! Picture:    [`Slice`] = part of a [`Content`]; [`Medium`] = sector -> `Slice`, cloned in O(1).
//! Invariants: 1. a [`Page`] that two holders share never changes: writing to it copies first.
//!             2. nothing here has a clock; timing is the device's business.

mod content;
mod joined;
pub mod log_order;
mod medium;
mod packed;
mod pieces;
mod spill;
mod stored;
mod tree;
mod view;
mod walk;
pub mod write_log;

pub use content::{Content, PAGE_BYTES, Page, Slice, ZERO_PAGE, pattern_word};
pub use joined::Joined;
pub use medium::Medium;
pub use packed::Versions;
pub use pieces::{Pieces, join};
pub use spill::{Spill, held_and_spilled, spill_to};
pub use view::{MediumView, Overlay, Sound, View, Watched, Window, WithZones, Writes};
