//! The project checks itself: `cargo xtask layers [--bless]` and `cargo xtask tidy [--fix]`.
//!
//! Exit codes: 0 clean, 1 findings, 2 wrong usage or an unreadable workspace.

mod layers;
mod repo;
mod scan;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  layers [--bless]   dependencies go down only; the graph in ARCHITECTURE.md is the real one
                     (--bless writes it there)
  tidy [--fix]       line and file lengths, banned words, what would make a run unrepeatable
                     (--fix wraps comments that are too wide)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["layers"] => layers::run(false),
        ["layers", "--bless"] => layers::run(true),
        ["tidy"] => tidy::run(false),
        ["tidy", "--fix"] => tidy::run(true),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::from(2)
        }
    }
}
