//! Choosing segments.
