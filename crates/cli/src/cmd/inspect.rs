//! `inspect`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use wp_base::plain;
use wp_vfs::{Inspection, ListedCheckpoint, ListedFile, Mountable, Version};

use crate::images::{Images, Part, recovery_options};
use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath inspect disk.img\n\
    \x20 writepath inspect crashed.img --hash --era 4.6")]
pub struct Args {
    /// Image files, raw or in a container; with --zones all devices, in order
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// Print the SHA-256 of each file's contents
    ///
    /// `sparse:` marks the hash of a file with over 256 MiB of zeroes.
    #[arg(long)]
    hash: bool,
    /// Kernel version whose recovery rules apply [default: the newest]
    #[arg(long)]
    era: Option<String>,
    #[command(flatten)]
    part: Part,
    /// Output of `blkzone report` for the last device, after the crash
    #[arg(long, value_name = "REPORT")]
    zones: Option<PathBuf>,
    /// Use order-preserving recovery (F2FS on zones); list nodes left out
    #[arg(long, requires = "zones")]
    oprw: bool,
}

/// Runs the verb. Exit 1 if any image is damaged, 3 if something cannot be read by this build.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    inspect(a, out).unwrap_or_else(|e| e)
}

fn inspect(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    let mut docs = Vec::new();
    let mut text = String::new();
    let (mut damaged, mut unsupported) = (false, false);
    let together: Vec<&[PathBuf]> = match a.zones {
        Some(_) => vec![&a.images],
        None => a.images.chunks(1).collect(),
    };
    for paths in together {
        let images = Images::open(paths, &a.part, a.zones.as_deref(), out)?;
        let name = images.name();
        let (fs, found) = images.with(out, |view, fs| {
            let mut options = recovery_options(fs, a.era.as_deref(), out)?;
            if a.oprw {
                let set = options.set("oprw", "true", fs.options);
                set.map_err(|e| out.fail(Exit::Usage, "oprw", &e.to_string(), ""))?;
            }
            Ok::<_, ExitCode>((fs, (fs.inspect)(view, &options, a.hash)))
        })??;
        let found = found.map_err(|e| out.fs_error(&name, &e))?;
        damaged |= !found.findings.is_empty() || found.mountable != Mountable::Yes;
        unsupported |= !found.unsupported.is_empty();
        let era = a.era.as_deref().unwrap_or(fs.newest());
        text.push_str(&as_text(&name, fs.name, era, &found));
        docs.push(as_json(&name, fs.name, era, &found));
    }
    let doc = match docs.len() {
        1 => docs.remove(0),
        _ => json!({ "schema": "writepath.inspect/1", "images": docs }),
    };
    let exit = match (damaged, unsupported) {
        (true, _) => Exit::No,
        (false, true) => Exit::Unsupported,
        (false, false) => Exit::Ok,
    };
    Ok(out.answer(exit, &doc, &text))
}

fn as_json(image: &str, fs: &str, era: &str, i: &Inspection) -> Value {
    let mut doc = json!({
        "schema": "writepath.inspect/1", "image": image, "fs": fs, "era": era,
        "mountable": mountable_json(era, &i.mountable),
        "recovered": i.recovered, "checked": false,
        "findings": i.findings, "unsupported": i.unsupported, "left_out": i.left_out,
        "files": i.files.iter().map(file_json).collect::<Vec<_>>(),
    });
    if !i.checkpoints.is_empty() {
        let checkpoint = |cp: &ListedCheckpoint| {
            json!({
                "number": cp.number, "snapshot": cp.is_snapshot, "made": cp.made,
                "inodes": cp.inodes, "blocks": cp.blocks,
            })
        };
        doc["checkpoints"] = i.checkpoints.iter().map(checkpoint).collect();
    }
    doc
}

fn mountable_json(era: &str, mountable: &Mountable) -> Value {
    let (answer, why) = match mountable {
        Mountable::Yes => ("yes", Value::Null),
        Mountable::No(why) => ("no", json!(why)),
    };
    json!({ "kernel": era, "answer": answer, "why": why })
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

fn as_text(image: &str, fs: &str, era: &str, i: &Inspection) -> String {
    let mut t = String::new();
    let image = plain::name(image);
    let kernel = match Version::parse(era) {
        Some(version) if !era.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{version} ({era})")
        }
        _ => era.to_owned(),
    };
    let mountable = format!("mountable by Linux {kernel}");
    if let Mountable::No(why) = &i.mountable {
        // Nothing is listed of what no mount shows, and nothing was recovered.
        writeln!(t, "{image}: {fs}; {mountable}: no, because {}", plain::name(why))
            .expect("a string takes it");
    } else {
        // Not "clean": that word is fsck's, which looks at everything.
        let state = if i.recovered { "recovered in memory" } else { "no recovery needed" };
        let files = if i.files.len() == 1 { "file" } else { "files" };
        let n = i.files.len();
        writeln!(t, "{image}: {fs}; {mountable}: yes").expect("a string takes it");
        writeln!(t, "  {state}; {n} {files}; not checked (`writepath fsck`)")
            .expect("a string takes it");
    }
    for f in &i.findings {
        writeln!(t, "  finding: {}", plain::name(f)).expect("a string takes it");
    }
    for f in &i.unsupported {
        writeln!(t, "  not read: {}", plain::name(f)).expect("a string takes it");
    }
    for f in &i.left_out {
        writeln!(t, "  left out: {}", plain::name(f)).expect("a string takes it");
    }
    if !i.checkpoints.is_empty() {
        let snapshots = i.checkpoints.iter().filter(|cp| cp.is_snapshot).count();
        let (n, s) = (i.checkpoints.len(), if i.checkpoints.len() == 1 { "" } else { "s" });
        writeln!(t, "  {n} checkpoint{s}, {snapshots} of them snapshots")
            .expect("a string takes it");
    }
    for cp in i.checkpoints.iter().filter(|cp| cp.is_snapshot) {
        let (number, inodes, blocks) = (cp.number, cp.inodes, cp.blocks);
        writeln!(t, "  snapshot {number}: {inodes} inodes, {blocks} blocks")
            .expect("a string takes it");
    }
    for f in &i.files {
        let hash = f.sha256.as_deref().unwrap_or("");
        let target =
            f.target.as_deref().map(|x| format!(" -> {}", plain::name(x))).unwrap_or_default();
        writeln!(
            t,
            "  {:<7} {:04o} {:>3} {:>12} {:>6} {}{target} {hash}",
            f.kind,
            f.mode,
            f.nlink,
            f.size,
            f.ino,
            plain::name(&f.path)
        )
        .expect("a string takes it");
    }
    t
}
