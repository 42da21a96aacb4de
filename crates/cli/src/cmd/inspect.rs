//! `inspect`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use wp_lab::files::FileView;
use wp_lab::registry;
use wp_vfs::{Inspection, ListedFile, Options};

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Image files.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// Hash every file's contents (SHA-256).
    #[arg(long)]
    hash: bool,
    /// Kernel whose recovery rules apply.
    #[arg(long, default_value = "6.18")]
    era: String,
}

/// Runs the verb. Exit 1 if any image is damaged.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let mut docs = Vec::new();
    let mut text = String::new();
    let mut damaged = false;
    for path in &a.images {
        let view = match FileView::open(path) {
            Ok(v) => v,
            Err(e) => return out.host_error(path, &e),
        };
        let Some(fs) = registry::FILE_SYSTEMS.iter().find(|f| (f.probe)(&view)) else {
            let known: Vec<&str> = registry::FILE_SYSTEMS.iter().map(|f| f.name).collect();
            return out.fail(
                Exit::No,
                "no-file-system",
                &format!(
                    "{}: no file system that this build knows ({})",
                    path.display(),
                    known.join(", ")
                ),
                "is it a partition table, an encrypted volume, or cut off before byte 2048?",
            );
        };
        let mut options = Options::default();
        if let Err(e) = options.set("era", &a.era, fs.options) {
            return out.fail(Exit::Usage, "era", &e.to_string(), "");
        }
        let found = match (fs.inspect)(&view, &options, a.hash) {
            Ok(i) => i,
            Err(e) => return out.fs_error(&path.display().to_string(), &e),
        };
        damaged |= !found.findings.is_empty();
        text.push_str(&as_text(path, fs.name, &found));
        docs.push(as_json(path, fs.name, &a.era, &found));
    }
    let doc = match docs.len() {
        1 => docs.remove(0),
        _ => json!({ "schema": "writepath.inspect/1", "images": docs }),
    };
    out.answer(if damaged { Exit::No } else { Exit::Ok }, &doc, &text)
}

fn as_json(path: &std::path::Path, fs: &str, era: &str, i: &Inspection) -> Value {
    json!({
        "schema": "writepath.inspect/1", "image": path, "fs": fs, "era": era,
        "recovered": i.recovered,
        "findings": i.findings, "files": i.files.iter().map(file_json).collect::<Vec<_>>(),
    })
}

fn file_json(f: &ListedFile) -> Value {
    let mut m = Map::new();
    m.insert("path".into(), json!(f.path));
    m.insert("type".into(), json!(f.kind));
    m.insert("ino".into(), json!(f.ino));
    m.insert("mode".into(), json!(format!("{:04o}", f.mode)));
    m.insert("nlink".into(), json!(f.nlink));
    m.insert("uid".into(), json!(f.uid));
    m.insert("gid".into(), json!(f.gid));
    m.insert("size".into(), json!(f.size));
    if let Some(h) = &f.sha256 {
        m.insert("sha256".into(), json!(h));
    }
    if let Some(t) = &f.target {
        m.insert("target".into(), json!(t));
    }
    let attrs: Map<String, Value> = f.xattrs.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    m.insert("xattrs".into(), Value::Object(attrs));
    Value::Object(m)
}

fn as_text(path: &std::path::Path, fs: &str, i: &Inspection) -> String {
    let mut t = String::new();
    let state = if i.recovered { "recovered in memory" } else { "clean" };
    writeln!(t, "{}: {fs}, {state}, {} files", path.display(), i.files.len())
        .expect("a string takes it");
    for f in &i.findings {
        writeln!(t, "  finding: {f}").expect("a string takes it");
    }
    for f in &i.files {
        let hash = f.sha256.as_deref().unwrap_or("");
        let target = f.target.as_deref().map(|x| format!(" -> {x}")).unwrap_or_default();
        writeln!(
            t,
            "  {:<7} {:04o} {:>3} {:>12} {:>6} {}{target} {hash}",
            f.kind, f.mode, f.nlink, f.size, f.ino, f.path
        )
        .expect("a string takes it");
    }
    t
}
