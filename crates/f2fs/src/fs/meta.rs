//! Blocks before the main area.
