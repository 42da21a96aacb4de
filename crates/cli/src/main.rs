//! The program `writepath`: its allocator, and its words.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: wp_machine::memory::Allocator = wp_machine::memory::Allocator;

fn main() -> ExitCode {
    writepath::main(std::env::args_os().collect())
}
