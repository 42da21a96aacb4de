//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod direct_io;
mod f2fs_oprw;
mod host_kernel;
mod journal_conflicts;
mod kernels;
mod matrix;
mod table_trim;
mod thousand_files;
mod today;
mod verdicts;
