//! Block traces: files of other tools, read and written.

pub mod blktrace;
