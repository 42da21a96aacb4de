//! `filebench`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_machine::workload::filebench;
use wp_workload::filebench::wml::{WORDS, Word};
use wp_workload::filebench::{PERSONALITIES, built_in};
use wp_workload::fio::Severity;

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Check a workload model: which words are exact, approximated or refused.
    Check(Check),
    /// Print a built-in workload model.
    Show {
        /// Name, such as varmail
        #[arg(value_name = "NAME")]
        personality: String,
    },
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath filebench check model.f\n\
    \x20 writepath filebench check --all")]
struct Check {
    /// Workload model (.f file)
    file: Option<PathBuf>,
    /// Values of its variables: NAME:VALUE;NAME:VALUE
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    set: String,
    /// List all words of WML instead of those of a file
    #[arg(long, conflicts_with = "file", required_unless_present = "file")]
    all: bool,
}

fn line(text: &mut String, at: &str, w: &Word) {
    let shown = format!("{} {}", w.owner.word(), w.name);
    writeln!(text, "{at:>5} {shown:<28} {:<13} {}", w.class.word(), w.note)
        .expect("a string takes it");
}

fn info(w: &Word) -> Value {
    let (owner, class) = (w.owner.word(), w.class.word());
    json!({ "owner": owner, "word": w.name, "class": class, "note": w.note })
}

/// Checks one file, as `filebench check` does.
pub fn check_file(path: &std::path::Path, set: &str, out: &Out) -> ExitCode {
    let (file, set) = (Some(path.to_owned()), set.to_owned());
    run(&Args { what: What::Check(Check { file, set, all: false }) }, out)
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match &a.what {
        What::Check(c) => check(c, out),
        What::Show { personality } => {
            let Some(found) = PERSONALITIES.iter().find(|p| p.name == personality.as_str()) else {
                let names: Vec<&str> = PERSONALITIES.iter().map(|p| p.name).collect();
                let message = format!("no workload model called `{personality}`");
                let help = format!("models: {}", names.join(", "));
                return out.fail(Exit::Usage, "personality", &message, &help);
            };
            let file = built_in(found.name, &Default::default()).expect("it comes with it");
            let doc = json!({
                "schema": "writepath.filebench-personality/1", "name": found.name,
                "variables": file.variables, "text": found.text,
            });
            out.result(&doc, found.text)
        }
    }
}

fn check(check: &Check, out: &Out) -> ExitCode {
    let mut text = String::new();
    let Some(path) = &check.file else {
        WORDS.iter().for_each(|w| line(&mut text, "", w));
        let all: Vec<Value> = WORDS.iter().map(info).collect();
        return out
            .result(&json!({ "schema": "writepath.filebench-words/1", "words": all }), &text);
    };
    let given = match filebench::variables(&check.set) {
        Ok(v) => v,
        Err(e) => return out.fail(Exit::Usage, "set", &e, ""),
    };
    let file = match filebench::read(path, &given) {
        Ok((file, _)) => file,
        Err(e) => return out.host_error(path, &e),
    };
    let mut words = Vec::new();
    for u in &file.used {
        line(&mut text, &u.at.line.to_string(), u.word);
        let mut word = info(u.word);
        word["line"] = u.at.line.into();
        word["column"] = u.at.column.into();
        words.push(word);
    }
    for d in &file.diagnostics {
        write!(text, "\n{d}\n").expect("a string takes it");
    }
    let diagnostics = file.diagnostics.iter().map(|d| {
        let severity = if d.severity == Severity::Error { "error" } else { "warning" };
        json!({
            "severity": severity, "file": &*d.at.file, "line": d.at.line,
            "column": d.at.column, "message": d.message, "help": d.help,
        })
    });
    let doc = json!({
        "schema": "writepath.filebench-check/1", "words": words, "variables": file.variables,
        "diagnostics": diagnostics.collect::<Vec<Value>>(),
    });
    out.answer(if file.has_errors() { Exit::Usage } else { Exit::Ok }, &doc, &text)
}
