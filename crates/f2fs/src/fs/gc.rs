//! Garbage collection.

/// State of garbage collection.
pub(crate) struct GcState {}
