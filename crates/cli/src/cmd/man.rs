//! `man` and `completions`: what a package has beside the program, made from its own declarations.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use serde_json::json;
use wp_base::plain::Shown as _;
use wp_machine::host::{Existing, output};

use crate::output::{Exit, Out};

/// Arguments of `man`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath man crash\n\
    \x20 writepath man --out man1")]
pub struct Man {
    /// Verb: `crash`, `kernels waits` [default: the program]
    verb: Vec<String>,
    /// Write every page to this folder, and replace older ones
    #[arg(long, conflicts_with = "verb")]
    out: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath completions bash")]
pub struct Completions {
    /// Shell that the script is for
    shell: Shell,
}

/// Runs `man`.
pub fn man(a: &Man, mut program: Command, out: &Out) -> ExitCode {
    program.build();
    if let Some(dir) = &a.out {
        return match write_all(&program, dir) {
            Ok(pages) => {
                let text = format!("{}: {} pages\n", dir.shown(), pages.len());
                out.result(&json!({ "schema": "writepath.man/1", "pages": pages }), &text)
            }
            Err(e) => out.host_error(dir, &e),
        };
    }
    let mut at = &program;
    for word in &a.verb {
        match at.find_subcommand(word) {
            Some(verb) => at = verb,
            None => {
                let what = format!("no verb `{word}`");
                return out.fail(Exit::Usage, "verb", &what, "`writepath --help` lists them");
            }
        }
    }
    match page(at) {
        Ok(text) => out.result(&json!({ "schema": "writepath.man/1", "page": text }), &text),
        Err(e) => out.host_error(Path::new("stdout"), &e),
    }
}

/// Runs `completions`.
pub fn completions(a: &Completions, mut program: Command, out: &Out) -> ExitCode {
    let mut bytes = Vec::new();
    clap_complete::generate(a.shell, &mut program, "writepath", &mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let document = json!({
        "schema": "writepath.completions/1", "shell": a.shell.to_string(), "script": text,
    });
    out.result(&document, &text)
}

/// Name of a verb's page: `writepath-kernels-waits`.
fn name_of(verb: &Command) -> String {
    verb.get_display_name().unwrap_or_else(|| verb.get_name()).to_owned()
}

/// One page, in roff.
fn page(verb: &Command) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let manual = format!("Writepath {}", env!("CARGO_PKG_VERSION"));
    // No date: the same program has the same pages.
    clap_mangen::Man::new(verb.clone())
        .title(name_of(verb).to_uppercase())
        .source(manual.clone())
        .manual(manual)
        .render(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes the pages of a command and of all verbs below it; returns their file names.
fn write_all(program: &Command, dir: &Path) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(dir)?;
    let mut names = Vec::new();
    let mut left = vec![program];
    while let Some(verb) = left.pop() {
        let name = format!("{}.1", name_of(verb));
        output::write(&dir.join(&name), page(verb)?.as_bytes(), Existing::Replace)?;
        names.push(name);
        left.extend(verb.get_subcommands().filter(|v| v.get_name() != "help"));
    }
    names.sort();
    Ok(names)
}
