//! `cargo xtask verdicts DIR`: what `e2fsck -fn` or `btrfs check --readonly` says of every image
//! below a folder, and what `writepath fsck` and `writepath inspect` say.
//!
//! Picture:    images below DIR ([`images`]) -> unpacked to a raw image ([`unpack`]) -> verdicts of
//!             the tool and of the program ([`judge`]) -> a table; each difference needs a line in
//!             `xtask/verdicts.txt` ([`reasons`]).
//! Invariants: 1. an image that cannot be unpacked or judged is a row too, never left out;
//!             2. no process runs longer than [`judge::LIMIT`] or has more memory than
//!                [`judge::MEMORY_KIB`];
//!             3. a run without images fails.

mod images;
pub mod judge;
mod reasons;
mod unpack;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::repo;
use images::Image;
use judge::{Row, Verdict};

/// The file of reasons, from the root of the repository.
const REASONS: &str = "xtask/verdicts.txt";

/// Reads the options, and runs. Errors: as [`run`], and options that are none.
pub fn command(words: &[&str]) -> Result<bool, String> {
    let (mut dir, mut binary, mut reasons, mut only) = (None, None, None, None);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().copied().ok_or_else(|| format!("{word} takes a value"));
        match *word {
            "--binary" => binary = Some(value()?),
            "--reasons" => reasons = Some(value()?),
            "--only" => only = Some(value()?),
            word if word.starts_with('-') => return Err(format!("verdicts has no option {word}")),
            word if dir.is_none() => dir = Some(word),
            word => return Err(format!("verdicts takes one folder, not also {word}")),
        }
    }
    let dir = dir.ok_or("verdicts takes a folder with images")?;
    let root = repo::root()?;
    let program = match binary {
        Some(path) => std::fs::canonicalize(path).map_err(|e| format!("{path}: {e}"))?,
        None => crate::torture::build(&root)?,
    };
    let reasons = reasons.map_or_else(|| root.join(REASONS), PathBuf::from);
    let scratch = repo::target(&root).join(format!("verdicts-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let done = run(Path::new(dir), only, &program, &reasons, &scratch);
    std::fs::remove_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    done
}

/// Counts of a tool.
#[derive(Default)]
struct Counts {
    images: u64,
    same: u64,
    with_reason: u64,
    without: u64,
}

/// Judges every image whose name contains `only`. No if a difference has no reason.
///
/// Errors: no image, an unreadable folder or file of reasons, and what the machine refuses.
fn run(
    dir: &Path,
    only: Option<&str>,
    program: &Path,
    reasons: &Path,
    scratch: &Path,
) -> Result<bool, String> {
    let reasons = reasons::read(reasons)?;
    let all = images::find(dir)?;
    let chosen = |i: &&Image| only.is_none_or(|only| i.name.contains(only));
    let chosen: Vec<&Image> = all.iter().filter(chosen).collect();
    if chosen.is_empty() {
        return Err(format!("{}: no image in it, nothing was compared", dir.display()));
    }
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut stale = Vec::new();
    println!("image\ttool\tverdict\twritepath fsck\tinspect\toutcome\tfirst message");
    for image in chosen {
        let row = one(image, program, scratch)?;
        let count = counts.entry(row.tool).or_default();
        count.images += 1;
        let reason = reasons.get(&image.name);
        let outcome = match (row.difference(), reason) {
            (None, None) => {
                count.same += 1;
                "same".to_owned()
            }
            (None, Some(_)) => {
                count.same += 1;
                stale.push(&image.name);
                "same".to_owned()
            }
            (Some(what), Some(reason)) => {
                count.with_reason += 1;
                format!("differs: {what} (known: {reason})")
            }
            (Some(what), None) => {
                count.without += 1;
                format!("DIFFERS: {what}")
            }
        };
        println!(
            "{}\t{}\t{}\t{}\t{}\t{outcome}\t{}",
            image.name, row.tool, row.theirs, row.ours, row.inspect, row.message
        );
    }
    for name in &stale {
        println!("note: {name} has a reason in the list and no difference");
    }
    let mut is_good = true;
    for (tool, c) in &counts {
        println!(
            "{tool}: {} images, {} same, {} differ with a reason, {} differ without",
            c.images, c.same, c.with_reason, c.without
        );
        is_good &= c.without == 0;
    }
    Ok(is_good)
}

/// Judges an image. Errors: of the machine.
fn one(image: &Image, program: &Path, scratch: &Path) -> Result<Row, String> {
    let raw = scratch.join("image.raw");
    let row = match unpack::raw(&image.path, &raw, scratch) {
        Ok(()) => judge::judge(&raw, &image.path, program, scratch),
        Err(why) => Ok(Row {
            tool: "unpacked",
            theirs: Verdict::Failed(why),
            ours: Verdict::Clean,
            inspect: Verdict::Clean,
            message: String::new(),
        }),
    };
    for left in [raw, scratch.join("dump")] {
        // What was not made is not there.
        let _ = std::fs::remove_file(left);
    }
    row
}
