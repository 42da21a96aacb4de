//! Free, dirty and emptied segments.

/// Segments by state.
pub(crate) struct Segments {}
