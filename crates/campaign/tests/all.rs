//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod alike;
mod barriers;
mod btrfs_logs;
mod bugs;
mod crash;
mod mutants;
mod rest_of_calls;
mod states;
mod subvolumes;
mod techniques;
mod threads;
mod two_devices;
