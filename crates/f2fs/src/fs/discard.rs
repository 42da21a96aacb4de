//! Discards and zone resets.

/// Discards to be sent.
pub(crate) struct Discards {}
