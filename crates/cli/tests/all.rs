//! Every test of this crate beside its sources, as one program: a program each has the linker
//! and the code generator do the same work over and over.

mod applications;
mod bad_input;
mod containers;
mod crash;
mod crash_log;
mod docs;
mod exercise;
mod experiments;
mod fio_jobs;
mod fio_limits;
mod fio_order;
mod fio_verify;
mod fuzzed;
mod host;
mod hostile;
mod image_kinds;
mod interrupt;
mod kernel_lab;
mod matrix;
mod odd_inputs;
mod packaging;
mod page;
mod programs;
mod recover;
mod recover_cut;
mod reproduce;
mod results;
mod spellings;
mod trace_formats;
mod traces;
mod views;
mod work_done;
mod zoned_image;
