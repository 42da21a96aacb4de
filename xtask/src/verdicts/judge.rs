//! Verdicts on a raw image: the tool's, and the program's.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::torture::judge::{Ended, wait};

/// Longest that a verdict may take.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Memory that a process may ask for.
pub const MEMORY_KIB: u64 = 4 << 20;

/// What is said of an image.
#[derive(PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// Something is.
    Damaged(i32),
    /// It is not judged: a feature that is not known.
    Refused(i32),
    /// It has no verdict: a signal, too much time, an exit code that there is not.
    Failed(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Clean => f.write_str("clean (0)"),
            Verdict::Damaged(code) => write!(f, "damaged ({code})"),
            Verdict::Refused(code) => write!(f, "refused ({code})"),
            Verdict::Failed(why) => write!(f, "no verdict ({why})"),
        }
    }
}

/// All that is said of an image.
pub struct Row {
    /// The tool.
    pub tool: &'static str,
    /// The tool's verdict.
    pub theirs: Verdict,
    /// That of `writepath fsck`.
    pub ours: Verdict,
    /// That of `writepath inspect`, which does not check all.
    pub inspect: Verdict,
    /// The first thing that was said to be wrong: by the program, or else by the tool.
    pub message: String,
}

impl Row {
    /// How the verdicts differ. `inspect` must only have one.
    pub fn difference(&self) -> Option<String> {
        for (verb, verdict) in [("fsck", &self.ours), ("inspect", &self.inspect)] {
            if let Verdict::Failed(why) = verdict {
                return Some(format!("{verb}: {why}"));
            }
        }
        let word = |v: &Verdict| match v {
            Verdict::Clean => "clean",
            Verdict::Damaged(_) => "damaged",
            Verdict::Refused(_) => "refused",
            Verdict::Failed(_) => "no verdict",
        };
        let is_same = match (&self.theirs, &self.ours) {
            (Verdict::Clean, Verdict::Clean) => true,
            // Tools end alike if they cannot go on and if they find something.
            (Verdict::Damaged(_) | Verdict::Refused(_), Verdict::Damaged(_)) => true,
            (Verdict::Refused(_), Verdict::Refused(_)) => true,
            _ => false,
        };
        (!is_same)
            .then(|| format!("{} {}, ours {}", self.tool, word(&self.theirs), word(&self.ours)))
    }
}

/// Is it a btrfs file system? By its magic, or else by its name.
fn is_btrfs(raw: &Path, original: &Path) -> bool {
    let has = |at: u64, magic: &[u8]| {
        let mut found = vec![0; magic.len()];
        File::open(raw).and_then(|f| f.read_exact_at(&mut found, at)).is_ok() && found == magic
    };
    if has((64 << 10) + 64, b"_BHRfS_M") {
        return true;
    }
    !has(1024 + 56, b"\x53\xef") && original.to_string_lossy().contains("btrfs")
}

/// A tool that judges images.
struct Tool {
    name: &'static str,
    arguments: &'static [&'static str],
}

const E2FSCK: Tool = Tool { name: "e2fsck", arguments: &["-fn"] };
const BTRFS: Tool = Tool { name: "btrfs", arguments: &["check", "--readonly"] };
const F2FS: Tool = Tool { name: "fsck.f2fs", arguments: &["--dry-run", "-f"] };
/// NILFS2 has no check; the kernel's mount is what it is compared with.
const NILFS2: Tool = Tool { name: "true", arguments: &[] };

impl Tool {
    /// What it says of an image, and its verdict. Errors: it does not start.
    fn judge(&self, image: &Path) -> Result<(Ended, Verdict), String> {
        let mut arguments: Vec<&OsStr> = self.arguments.iter().map(OsStr::new).collect();
        arguments.push(image.as_os_str());
        let said = call(Path::new(self.name), &arguments)?;
        let verdict = match code(&said) {
            Err(why) => Verdict::Failed(why),
            Ok(0) => Verdict::Clean,
            // An operational error.
            Ok(n) if self.name == E2FSCK.name && n & 8 != 0 => Verdict::Refused(n),
            Ok(n) => Verdict::Damaged(n),
        };
        Ok((said, verdict))
    }
}

/// What `fsck` says of an image that a mount puts right; tools do not replay when they only read.
const AFTER_RECOVERY: &str = "clean once it is recovered";

/// Judges the image at `raw`, which was made of `original`. Errors: a program that does not start.
pub fn judge(raw: &Path, original: &Path, program: &Path, scratch: &Path) -> Result<Row, String> {
    let tool = if is_btrfs(raw, original) { BTRFS } else { E2FSCK };
    judge_by(&tool, raw, program, scratch)
}

/// Judges an image of the file system `fs`. Errors: a program that does not start.
pub fn judge_as(fs: &str, raw: &Path, program: &Path, scratch: &Path) -> Result<Row, String> {
    let tool = match fs {
        "btrfs" => BTRFS,
        "ext4" => E2FSCK,
        "f2fs" => F2FS,
        _ => NILFS2,
    };
    judge_by(&tool, raw, program, scratch)
}

fn judge_by(tool: &Tool, raw: &Path, program: &Path, scratch: &Path) -> Result<Row, String> {
    let (tools, mut theirs) = tool.judge(raw)?;
    let fsck = call(program, &["fsck".as_ref(), raw.as_os_str()])?;
    let inspect = call(program, &["inspect".as_ref(), raw.as_os_str()])?;
    let ours = own(&fsck);
    let is_after = String::from_utf8_lossy(&fsck.said[0]).contains(AFTER_RECOVERY);
    if ours == Verdict::Clean && is_after && theirs != Verdict::Clean {
        theirs = recovered(raw, tool, program, scratch, theirs)?;
    }
    let inspect = own(&inspect);
    let finding = first(&fsck, raw, |l| l.starts_with("error: "));
    let message = match &ours {
        Verdict::Clean => first(&tools, raw, |l| l.contains("? no") || l.contains("ERROR")),
        _ if finding.is_empty() => first(&fsck, raw, |_| true),
        _ => finding,
    };
    Ok(Row { tool: tool.name, theirs, ours, inspect, message })
}

/// The tool's verdict on what `writepath recover` makes of an image, if that is clean; else the
/// one that it had. Errors: a program that does not start.
fn recovered(
    raw: &Path,
    tool: &Tool,
    program: &Path,
    scratch: &Path,
    before: Verdict,
) -> Result<Verdict, String> {
    let copy = scratch.join("recovered");
    let arguments = ["recover".as_ref(), raw.as_os_str(), "--to".as_ref(), copy.as_os_str()];
    let ended = call(program, &arguments)?;
    let after = match code(&ended) {
        Ok(0) => tool.judge(&copy)?.1,
        _ => own(&ended),
    };
    // What was not made is not there.
    let _ = std::fs::remove_file(copy);
    Ok(if after == Verdict::Clean { Verdict::Clean } else { before })
}

/// The first line that a program said and that `is_it`.
fn first(ended: &Ended, image: &Path, is_it: impl Fn(&str) -> bool) -> String {
    let all = [&ended.said[0][..], &ended.said[1][..]].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    let found = all.lines().map(str::trim).find(|l| !l.is_empty() && is_it(l)).unwrap_or("");
    found.replace(&*image.to_string_lossy(), "image").replace('\t', " ")
}

/// The program's own verdict.
fn own(ended: &Ended) -> Verdict {
    match code(ended) {
        Ok(0) => Verdict::Clean,
        Ok(1) => Verdict::Damaged(1),
        Ok(3) => Verdict::Refused(3),
        Ok(n) => Verdict::Failed(format!("exit code {n}")),
        Err(why) => Verdict::Failed(why),
    }
}

/// The exit code, or why there is none.
pub fn code(ended: &Ended) -> Result<i32, String> {
    let Some(status) = ended.status else {
        return Err(format!("still busy after {} s", LIMIT.as_secs()));
    };
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(code),
        (None, signal) => Err(format!("signal {}", signal.unwrap_or(0))),
    }
}

/// Calls a program, within the limits. Errors: it does not start.
pub fn call(program: &Path, arguments: &[&OsStr]) -> Result<Ended, String> {
    let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &limited, "sh"])
        .arg(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let ended = wait(child, LIMIT)?;
    if matches!(ended.status.and_then(|s| s.code()), Some(126 | 127)) {
        return Err(format!("{} cannot be run: is it installed?", program.display()));
    }
    Ok(ended)
}
