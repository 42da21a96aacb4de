//! Recovery of logs that real kernels left behind.

mod image;
mod images;
mod mutations;
