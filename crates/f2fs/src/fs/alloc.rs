//! Giving out blocks.
