//! What the kernel, the tools and the program say of one image.

use std::ffi::OsStr;
use std::fs::read_to_string;
use std::path::Path;

use serde_json::Value;

use super::guest::Guest;
use super::{Plan, compare};
use crate::verdicts::judge::{self as verdicts, Verdict};

/// How a difference begins that is a finding of ours.
const FINDS: &str = "found";

/// What came of an image.
pub struct Judged {
    /// Did the guest come to its end with it?
    pub is_made: bool,
    /// Did the kernel mount it?
    pub mounted: bool,
    /// All verdicts, in a few words.
    pub about: String,
    /// The feature, by its name, for which the program does not judge it.
    pub refused: Option<String>,
    /// What differs.
    pub differences: Vec<String>,
}

/// Judges an image. Errors: a program that cannot run, an image that was not made.
pub fn judge(
    plan: &Plan,
    guest: &Guest,
    fs: &str,
    name: &str,
    is_damaged: bool,
) -> Result<Judged, String> {
    let file = |end: &str| guest.share.join(format!("{name}.{end}"));
    let read = |end: &str| read_to_string(file(end)).unwrap_or_default();
    let image = file("img");
    let mut out = Judged {
        is_made: true,
        mounted: read("mount").trim() == "0",
        about: String::new(),
        refused: None,
        differences: Vec::new(),
    };
    if !file("mount").exists() {
        out.is_made = false;
        out.differences.push("the guest has not mounted it".to_owned());
        return Ok(out);
    }
    let played = read("played");
    if !is_damaged && played.is_empty() {
        out.is_made = false;
        out.differences.push(format!("no history: {}", read("err").trim()));
        return Ok(out);
    }
    let inspected = inspect(plan, &image)?;
    let (code, doc) = &inspected;
    if *code == 3 && !doc["files"].is_array() {
        let why = doc["error"]["message"].as_str().or(doc["unsupported"][0].as_str());
        out.refused = Some(why.unwrap_or("").replace(&*image.to_string_lossy(), "image"));
    }
    let kernel = mount_word(out.mounted, &read("mount_dmesg"), &read("mount_err"));
    let is_none = doc["error"]["code"] == "no-file-system";
    let ours = doc["mountable"]["answer"].as_str();
    let ours = ours.unwrap_or(if is_none { "no" } else { "none" }).to_owned();
    let why = doc["mountable"]["why"].as_str().unwrap_or("");
    let expected = if out.mounted { "yes" } else { "no" };
    if ours != expected && !(*code == 3 && doc["mountable"].is_null()) {
        out.differences.push(format!("mountable: {ours} {why}; the kernel: {kernel}"));
    }
    out.about =
        format!("{}; mountable {ours} {why} / {kernel}", played.lines().last().unwrap_or(""));
    if is_damaged {
        return Ok(out);
    }
    if out.refused.is_none() || doc["files"].is_array() {
        tree("inspect", doc, &file("tree"), &mut out)?;
    }
    // Without a journal a cut is damage: both say so, and nothing recovers it.
    if verdict(plan, guest, fs, &image, &mut out)? {
        out.differences.retain(|d| !d.starts_with(FINDS));
    } else {
        recovered(plan, guest, fs, name, &mut out)?;
    }
    Ok(out)
}

/// Why the kernel did not mount, or that it did.
fn mount_word(mounted: bool, dmesg: &str, said: &str) -> String {
    if mounted {
        return "mounted".to_owned();
    }
    let is_one = |l: &&str| l.contains("rror") || l.contains("ailed") || l.contains("nvalid");
    let line = dmesg.lines().find(is_one).unwrap_or(said.trim());
    format!("refused ({})", line.trim())
}

/// `writepath inspect --hash --json`: its exit code and document.
fn inspect(plan: &Plan, image: &Path) -> Result<(i32, Value), String> {
    let era = if plan.kernel == "debian" { "6.1" } else { "6.12" };
    let words = ["inspect", "--hash", "--json", "--era", era];
    let args: Vec<&OsStr> = words.iter().map(OsStr::new).chain([image.as_os_str()]).collect();
    let ended = verdicts::call(&plan.program, &args)?;
    let code = match verdicts::code(&ended) {
        Ok(code) => code,
        Err(why) => return Err(format!("inspect {}: {why}", image.display())),
    };
    let doc = serde_json::from_slice(&ended.said[0])
        .map_err(|e| format!("inspect {}: no document: {e}", image.display()))?;
    Ok((code, doc))
}

/// The kernel's tree and ours.
fn tree(verb: &str, doc: &Value, tree: &Path, out: &mut Judged) -> Result<(), String> {
    let Ok(text) = read_to_string(tree) else { return Ok(()) };
    let kernel = compare::of_guest(&text)?;
    let is_unread = doc["unsupported"].as_array().is_some_and(|a| !a.is_empty());
    let ours = compare::of_inspect(doc)?;
    let found = compare::differences(&kernel, &ours, is_unread);
    out.differences.extend(found.into_iter().map(|d| format!("{verb}: {d}")));
    for finding in doc["findings"].as_array().into_iter().flatten().take(3) {
        out.differences.push(format!("{FINDS} ({verb}): {finding}"));
    }
    if kernel.is_empty() && !text.is_empty() {
        out.differences.push("the kernel's tree is empty".to_owned());
    }
    out.about += &format!("; {} files", kernel.len());
    Ok(())
}

/// The tool's verdict and that of `fsck`. Answers whether a recovery could not make it clean: both
/// find damage, or it has what `fsck` does not check.
fn verdict(
    plan: &Plan,
    guest: &Guest,
    fs: &str,
    image: &Path,
    out: &mut Judged,
) -> Result<bool, String> {
    let row = verdicts::judge_as(fs, image, &plan.program, &guest.share)?;
    out.about += &format!("; {} {}, fsck {}", row.tool, row.theirs, row.ours);
    if let Verdict::Refused(_) = row.ours {
        out.refused.get_or_insert(row.message.clone());
        return Ok(false);
    }
    if let Some(what) = row.difference() {
        if row.ours == Verdict::Clean && fsck_passes_over_quotas(plan, image)? {
            out.refused.get_or_insert("fsck says that it does not check quotas".to_owned());
            return Ok(true);
        }
        out.differences.push(format!("{what}: {}", row.message));
    }
    let damaged = |v: &Verdict| matches!(v, Verdict::Damaged(_));
    Ok(damaged(&row.theirs) && damaged(&row.ours))
}

/// Says `fsck` that the image has quotas and that it did not check them? The kernel's recovery of
/// orphans changes them, and that of `recover` does not.
fn fsck_passes_over_quotas(plan: &Plan, image: &Path) -> Result<bool, String> {
    let ended = verdicts::call(&plan.program, &["fsck".as_ref(), image.as_os_str()])?;
    let said = String::from_utf8_lossy(&ended.said[0]).into_owned();
    Ok(said.lines().any(|l| l.contains("not checked:") && l.contains("quotas")))
}

/// What `writepath recover` makes of it: clean for the tool and for `fsck`, and the same tree.
fn recovered(
    plan: &Plan,
    guest: &Guest,
    fs: &str,
    name: &str,
    out: &mut Judged,
) -> Result<(), String> {
    if out.refused.is_some() || !out.mounted {
        return Ok(());
    }
    let image = guest.share.join(format!("{name}.img"));
    let copy = guest.share.join(format!("{name}.recovered"));
    let args = ["recover".as_ref(), image.as_os_str(), "--to".as_ref(), copy.as_os_str()];
    let ended = verdicts::call(&plan.program, &args)?;
    if verdicts::code(&ended) != Ok(0) {
        let said = String::from_utf8_lossy(&ended.said[1]).into_owned();
        out.differences.push(format!("recover: {:?} {said}", verdicts::code(&ended)));
        return Ok(());
    }
    let (_, doc) = inspect(plan, &copy)?;
    tree("recover", &doc, &guest.share.join(format!("{name}.tree")), out)?;
    let row = verdicts::judge_as(fs, &copy, &plan.program, &guest.share)?;
    if let Some(what) = row.difference() {
        out.differences.push(format!("recovered: {what}: {}", row.message));
    }
    if row.theirs != Verdict::Clean {
        out.differences.push(format!("recovered: {} says {}", row.tool, row.theirs));
    }
    Ok(())
}
