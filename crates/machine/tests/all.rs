//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod aio;
mod btrfs_trace;
mod call_costs;
mod differential;
mod differential_btrfs;
mod direct_reference;
mod direct_waits;
mod discard;
mod f2fs_log;
mod f2fs_trace;
mod filebench_oracle;
mod fio;
mod fsync_bios;
mod lives;
mod machines_end;
mod mail_loop;
mod placement;
mod power_cut;
mod raw;
mod spilled;
mod unmount;
mod untorn;
mod workloads;
