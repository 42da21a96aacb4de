//! Recovery of logs that real kernels left behind. Without the reference data each test says that
//! it is skipped.

mod image;
mod images;
mod mutations;
