//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod aio;
mod atomic;
mod attributes;
mod contract;
mod order;
mod snapshots;
mod threads;
mod zoned;
