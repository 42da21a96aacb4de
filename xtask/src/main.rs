//! The project checks itself: `cargo xtask layers [--bless]`, `tidy [--fix]`, `licences
//! [--bless]`; packs itself: `cargo xtask dist`; and runs its tests: `cargo xtask test`.
//!
//! Exit codes: 0 clean, 1 findings, 2 wrong usage or an unreadable workspace.

mod corpus;
mod dist;
mod layers;
mod licences;
mod pgo;
mod repo;
mod scan;
mod tests;
mod tidy;
mod torture;
mod verdicts;
mod wheel;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  layers [--bless]   dependencies go down only; the graph in ARCHITECTURE.md is the real one
                     (--bless writes it there)
  tidy [--fix]       line and file lengths, banned words, what would make a run unrepeatable, the
                     language of documents, doc comments and the command's texts (--fix wraps
                     comments that are too wide)
  licences [--bless] crates of others in the program are those of docs/dependencies.md, under
                     licences that may be (--bless writes the table there)
  dist [--binary F]  a static program with manual pages, completions and licences, as a
                     repeatable archive in target/dist; --binary packs one that is there
  wheel [--quick]    the Python package as a wheel and an sdist in target/wheels, by maturin;
                     --quick builds the wheel with the dev profile
  pgo [ARGUMENTS]    the bench `fs`, built with a profile of itself, run with the arguments
                     (`--fs ext4 --only create_write`)
  test [ARGUMENTS]   all tests, as many programs of them at once as there are processors;
                     arguments are cargo test's (--lib, -p CRATE, --locked)
  torture [--seconds N] [--cases N] [--seed S] [--kind K] [--binary F]
                     hostile inputs for the program: damaged images, texts, arguments, clients,
                     signals, full disks; problems and their inputs in target/torture
  verdicts DIR [--only NAME] [--binary F] [--reasons F]
                     every image below DIR through `e2fsck -fn` or `btrfs check --readonly` and
                     through fsck and inspect: a table; differences need a reason in
                     xtask/verdicts.txt
  corpus [--fs NAMES] [--images N] [--seed S] [--kernel 6.12|debian] [--damage N] [--keep DIR]
         [--guest SCRIPT] [--binary F]
                     images that a guest's kernel makes by random histories: its tree, its mount
                     and the tools' verdicts against fsck, inspect and recover; --damage compares
                     mounts of N damaged copies of each";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["help", ..] | [.., "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        ["layers"] => layers::run(false),
        ["layers", "--bless"] => layers::run(true),
        ["tidy"] => tidy::run(false),
        ["tidy", "--fix"] => tidy::run(true),
        ["licences"] => licences::run(false),
        ["licences", "--bless"] => licences::run(true),
        ["dist"] => dist::run(None),
        ["dist", "--binary", binary] => dist::run(Some(binary)),
        ["wheel"] => wheel::run(false),
        ["wheel", "--quick"] => wheel::run(true),
        ["pgo", arguments @ ..] => pgo::run(arguments),
        ["test", selection @ ..] => tests::run(selection),
        ["torture", options @ ..] => torture::command(options),
        ["corpus", options @ ..] => corpus::command(options),
        ["verdicts", options @ ..] => verdicts::command(options),
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
