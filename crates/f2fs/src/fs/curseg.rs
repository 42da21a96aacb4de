//! The six logs.

/// The six logs.
pub(crate) struct Logs {}
