//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod common;
mod cpu;
mod epochs;
mod events;
mod mq;
mod prop;
mod queue;
mod untorn;
mod zoned;
