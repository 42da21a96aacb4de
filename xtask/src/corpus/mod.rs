//! `cargo xtask corpus`: images that real kernels make by long random histories, and what the
//! kernel, the tools and the program say of them.
//!
//! Picture:    seed -> mkfs with features, mount options and calls ([`history`]) -> a guest's
//!             kernel plays them, and lists what a mount of the image shows ([`guest`]) ->
//!             verdicts of the file system's own check and of `writepath fsck`, `inspect` and
//!             `recover`, and the tree ([`compare`]). With `--damage`, images are damaged with
//!             right checksums ([`damage`]), and the kernel's mount is compared with `inspect`.
//! Invariants: 1. an image that was not made or not judged is a problem, never left out;
//!             2. a seed makes the same history again (what the kernel makes of it has times).
//! Source:     the guest is a User-Mode Linux of `uml.sh`, kept outside the repository.

mod compare;
mod damage;
mod guest;
mod history;
mod judge;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repo;
use crate::torture::rng::Rng;
use guest::Guest;
use history::{End, History};
use judge::Judged;

/// Images of a boot.
const BATCH: u64 = 12;
/// Images that a boot mounts.
const LOOKS: usize = 24;
/// Where the guest's script stands, from the root of the repository.
const SCRIPT: &str = "../shared/tools/kernel-guest/uml.sh";

/// What to do.
struct Plan {
    file_systems: Vec<String>,
    images: u64,
    seed: u64,
    kernel: String,
    damage: u64,
    keep: Option<PathBuf>,
    program: PathBuf,
}

/// Reads the options, and runs. Errors: as [`run`], and options that are none.
pub fn command(words: &[&str]) -> Result<bool, String> {
    let root = repo::root()?;
    let (mut fs, mut script, mut binary) = (None, None, None);
    let mut plan = Plan {
        file_systems: Vec::new(),
        images: BATCH,
        seed: 1,
        kernel: "6.12".to_owned(),
        damage: 0,
        keep: None,
        program: PathBuf::new(),
    };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().copied().ok_or_else(|| format!("{word} takes a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{word} {text}?"));
        match *word {
            "--fs" => fs = Some(value()?),
            "--images" => plan.images = number(value()?)?,
            "--seed" => plan.seed = number(value()?)?,
            "--damage" => plan.damage = number(value()?)?,
            "--kernel" => plan.kernel = value()?.to_owned(),
            "--guest" => script = Some(PathBuf::from(value()?)),
            "--keep" => plan.keep = Some(PathBuf::from(value()?)),
            "--binary" => binary = Some(value()?),
            word => return Err(format!("corpus has no option {word}")),
        }
    }
    plan.file_systems = match fs {
        Some(fs) => fs.split(',').map(str::to_owned).collect(),
        None => history::FILE_SYSTEMS.map(str::to_owned).to_vec(),
    };
    plan.program = match binary {
        Some(path) => std::fs::canonicalize(path).map_err(|e| format!("{path}: {e}"))?,
        None => crate::torture::build(&root)?,
    };
    let script = script.unwrap_or_else(|| root.join(SCRIPT));
    let scratch = repo::target(&root).join(format!("corpus-{}", std::process::id()));
    let guest = Guest::make(&script, &plan.kernel, &scratch)?;
    let done = run(&plan, &guest);
    std::fs::remove_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    done
}

/// Counts of a file system.
#[derive(Default)]
struct Counts {
    images: u64,
    mounted: u64,
    same: u64,
    refused: u64,
    not_made: u64,
    differ: u64,
}

/// Makes and judges all. No if something differs.
///
/// Errors: no image at all, a guest or a tool that cannot run.
fn run(plan: &Plan, guest: &Guest) -> Result<bool, String> {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    for fs in &plan.file_systems {
        let mut done = 0;
        while done < plan.images {
            let batch: Vec<u64> = (done..plan.images.min(done + BATCH)).collect();
            done += batch.len() as u64;
            let made = make(plan, guest, fs, &batch)?;
            let ready = match plan.damage {
                0 => made,
                _ => damaged(plan, guest, fs, &made)?,
            };
            look(guest, fs, &ready);
            for (name, what) in &ready {
                let judged = judge::judge(plan, guest, fs, name, plan.damage > 0)?;
                let count = counts.entry(fs).or_default();
                count.images += 1;
                count.mounted += u64::from(judged.mounted);
                match () {
                    () if !judged.is_made => count.not_made += 1,
                    () if !judged.differences.is_empty() => count.differ += 1,
                    () if judged.refused.is_some() => count.refused += 1,
                    () => count.same += 1,
                }
                report(fs, name, what, &judged);
                finish(plan, guest, name, &judged)?;
            }
        }
    }
    let mut is_good = !counts.is_empty();
    for (fs, c) in &counts {
        println!(
            "{fs}: {} images ({} mounted), {} same, {} refused by name, {} not made, {} differ",
            c.images, c.mounted, c.same, c.refused, c.not_made, c.differ
        );
        is_good &= c.differ == 0 && c.not_made == 0 && c.images > 0;
    }
    Ok(is_good)
}

fn report(fs: &str, name: &str, what: &str, judged: &Judged) {
    let outcome = match (&judged.refused, judged.differences.is_empty()) {
        _ if !judged.is_made => "NOT MADE".to_owned(),
        (_, false) => "DIFFERS".to_owned(),
        (Some(why), true) => format!("refused: {why}"),
        (None, true) => "same".to_owned(),
    };
    println!("{fs}\t{name}\t{outcome}\t{}\t{what}", judged.about);
    for line in &judged.differences {
        println!("    {line}");
    }
}

/// Keeps what differs, if that was asked for, and removes the rest.
fn finish(plan: &Plan, guest: &Guest, name: &str, judged: &Judged) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{name}: {e}");
    for entry in std::fs::read_dir(&guest.share).map_err(at)? {
        let entry = entry.map_err(at)?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if !file.starts_with(&format!("{name}.")) {
            continue;
        }
        if let Some(keep) = plan.keep.as_ref().filter(|_| !judged.differences.is_empty()) {
            std::fs::create_dir_all(keep).map_err(at)?;
            guest::run(
                Command::new("cp").arg("--sparse=always").args([entry.path(), keep.join(file)]),
            )?;
        }
        std::fs::remove_file(entry.path()).map_err(at)?;
    }
    Ok(())
}

/// Makes images of histories; answers names and what each is.
fn make(
    plan: &Plan,
    guest: &Guest,
    fs: &str,
    batch: &[u64],
) -> Result<Vec<(String, String)>, String> {
    let (mut lines, mut made, mut after) = (String::new(), Vec::new(), Vec::new());
    for n in batch {
        let mut rng = Rng::of(plan.seed, *n);
        let history = history::random(fs, &mut rng, plan.kernel == "debian")?;
        let name = format!("{fs}-{}-{n}", plan.seed);
        let at = |e: std::io::Error| format!("{name}: {e}");
        let image = guest.share.join(format!("{name}.img"));
        std::fs::File::create(&image).and_then(|f| f.set_len(history.bytes)).map_err(at)?;
        let what = about(&history);
        mkfs(&history, &image).map_err(|e| format!("{name}: {what}: {e}"))?;
        let mut calls = history.calls.clone();
        if history.end == End::Cut {
            // By its path: the guest's shell has a `cp` of its own.
            calls += &format!("!/sbin/cp --sparse=always /share/{name}.img /share/{name}.cut\n");
        }
        std::fs::write(guest.share.join(format!("{name}.calls")), calls).map_err(at)?;
        let end = if history.end == End::Cut { "cut" } else { "" };
        lines += &format!("play {name} {fs} '{}' {end}\n", history.mount);
        after.push((image, history.after));
        made.push((name, what));
    }
    tell(guest.run(&lines));
    for (image, command) in after {
        let Some(command) = command else { continue };
        let command = command.replace("IMAGE", &image.display().to_string());
        // What a tool refuses to shrink stays as it is.
        let _ = guest::run(Command::new("sh").args(["-c", &command]));
    }
    Ok(made)
}

fn about(history: &History) -> String {
    let end = match history.end {
        End::Unmounted => "unmounted",
        End::Cut => "cut",
    };
    let after = history.after.as_ref().map_or("", |_| ", resized");
    let args = history.mkfs.join(" ");
    format!("{args}; {}; {} MiB; {end}{after}", history.mount, history.bytes >> 20)
}

fn mkfs(history: &History, image: &Path) -> Result<(), String> {
    let (program, args) = history.mkfs.split_first().ok_or("no mkfs")?;
    let has_place = args.iter().any(|a| a == "IMAGE");
    let mut command = Command::new(program);
    for arg in args {
        match arg.as_str() {
            "IMAGE" => command.arg(image),
            arg => command.arg(arg),
        };
    }
    if !has_place {
        command.arg(image);
    }
    guest::run(&mut command)
}

/// Lists what the kernel finds in each image.
fn look(guest: &Guest, fs: &str, images: &[(String, String)]) {
    // A mount that never ends takes the rest of its boot with it.
    for part in images.chunks(LOOKS) {
        let lines: String = part.iter().map(|(name, _)| format!("look {name} {fs}\n")).collect();
        tell(guest.run(&lines));
    }
}

/// A guest that fails leaves images that were not made or not mounted, which are problems.
fn tell(ended: Result<(), String>) {
    if let Err(why) = ended {
        println!("note: {why}");
    }
}

/// Damaged copies of images: names and what was done.
fn damaged(
    plan: &Plan,
    guest: &Guest,
    fs: &str,
    bases: &[(String, String)],
) -> Result<Vec<(String, String)>, String> {
    let mut out = Vec::new();
    for ((base, _), place) in bases.iter().zip(1..) {
        let from = guest.share.join(format!("{base}.img"));
        for n in 0..plan.damage {
            let name = format!("{base}d{n}");
            let to = guest.share.join(format!("{name}.img"));
            guest::run(Command::new("cp").arg("--sparse=always").args([&from, &to]))?;
            let mut rng = Rng::of(plan.seed, place * 1_000_000 + n);
            match damage::damage(fs, &to, &mut rng)? {
                // What was not damaged says nothing.
                what if what.starts_with(damage::NOTHING) => {
                    println!("note: {name}: {what}");
                    std::fs::remove_file(&to).map_err(|e| format!("{name}: {e}"))?;
                }
                what => out.push((name, what)),
            }
        }
        std::fs::remove_file(&from).map_err(|e| format!("{base}: {e}"))?;
    }
    Ok(out)
}
