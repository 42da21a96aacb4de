//! `clean`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_machine::results::{Listed, found_below, remove};

use crate::output::{Exit, Out, path};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Folder whose results are removed.
    #[arg(default_value = "results")]
    folder: PathBuf,
    /// Show what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    /// Keep the newest result, that of `latest`.
    #[arg(long)]
    keep_latest: bool,
}

/// The results below a folder; on failure, also if there are none, says why and with which code to
/// end.
fn results(folder: &Path, out: &Out) -> Result<Vec<Listed>, ExitCode> {
    let all = found_below(folder).map_err(|e| out.host_error(folder, &e))?;
    if all.is_empty() {
        let what = format!("{}: no result found", folder.shown());
        return Err(out.fail(
            Exit::Usage,
            "results",
            &what,
            "name a folder that `run --out` wrote",
        ));
    }
    Ok(all)
}

/// A result's line and object.
fn row(r: &Listed, text: &mut String) -> Value {
    let mark = if r.is_latest { " (latest)" } else { "" };
    writeln!(
        text,
        "{:>12} bytes {:>10} events  {:<24} {}{mark}",
        r.bytes,
        r.events,
        r.schema,
        r.path.shown()
    )
    .expect("a string takes it");
    json!({
        "path": path(&r.path), "schema": r.schema, "bytes": r.bytes, "events": r.events,
        "is_latest": r.is_latest,
    })
}

/// The list of `list results`: its objects and text. Errors: reported, with the exit code.
pub fn list(folder: &Path, out: &Out) -> Result<(Value, String), ExitCode> {
    let all = results(folder, out)?;
    let mut text = String::new();
    let rows = all.iter().map(|r| row(r, &mut text)).collect();
    let bytes: u64 = all.iter().map(|r| r.bytes).sum();
    writeln!(text, "{} results, {bytes} bytes", all.len()).expect("a string takes it");
    Ok((rows, text))
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let mut all = match results(&a.folder, out) {
        Ok(all) => all,
        Err(code) => return code,
    };
    all.retain(|r| !(a.keep_latest && r.is_latest));
    let (mut text, mut rows, mut gone, mut bytes) = (String::new(), Vec::new(), 0, 0);
    for r in &all {
        let mut document = row(r, &mut text);
        let mut is_gone = true;
        if !a.dry_run {
            match remove(&a.folder, &r.path) {
                Ok(left) => {
                    if !left.is_empty() {
                        let names = left.join(", ");
                        is_gone = false;
                        writeln!(text, "  kept, because the run did not write it: {names}")
                            .expect("a string takes it");
                    }
                    document["kept_files"] = json!(left);
                }
                Err(e) => return out.host_error(&r.path, &e),
            }
        }
        if is_gone {
            gone += 1;
            bytes += r.bytes;
        }
        rows.push(document);
    }
    let done = if a.dry_run { "would be removed" } else { "removed" };
    writeln!(text, "{gone} results, {bytes} bytes {done}").expect("a string takes it");
    if gone < all.len() {
        writeln!(text, "{} results removed in part", all.len() - gone).expect("a string takes it");
    }
    let doc = json!({
        "schema": "writepath.clean/1", "dry_run": a.dry_run, "results": rows, "removed": gone,
        "bytes": bytes,
    });
    out.result(&doc, &text)
}
