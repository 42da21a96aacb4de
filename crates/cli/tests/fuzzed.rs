//! Replays what the fuzzers began with and what they found, through the same functions
//! (`fuzz/src`).
//!
//! Each input is a file: `fuzz/seeds/TARGET/NAME`, or `fuzz/regressions/TARGET/NAME` for one that
//! once showed something wrong.

#[path = "../../ext4/tests/damage/exceptions.rs"]
mod exceptions;
#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use fuzz::base::Family;
use wp_base::{FsError, Rng};
use wp_ext4::check::{CheckOptions, Kind, Severity, check};
use wp_ext4::disk::{SuperBlock, incompat};
use wp_medium::{Overlay, View};

/// Files of a target's folder, by name; none if there is no such folder.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// Runs every input of a kind; says which ones fail.
fn replay(kind: &str) {
    let root = fuzz::base::root().join(kind);
    let mut count = 0;
    let mut failed = Vec::new();
    for target in fuzz::TARGETS {
        for path in inputs(&root.join(target.name)) {
            count += 1;
            let input = std::fs::read(&path).expect("readable");
            if target.needs_reference(&input) {
                let check = format!("fuzz/{kind}/{}: {}", target.name, path.display());
                wp_machine::testing::skipped(&check, "its base is of the reference data");
                continue;
            }
            if catch_unwind(AssertUnwindSafe(|| fuzz::run(target.name, &input))).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "of {count} inputs these fail: {failed:#?}");
    assert!(count > 0, "no inputs in {}", root.display());
}

#[test]
fn what_the_fuzzers_found_is_mended() {
    replay("regressions");
}

#[test]
fn what_the_fuzzers_begin_with_is_sound() {
    replay("seeds");
}

/// A mutation of what is refused reaches little more than the refusal.
#[test]
fn seeds_of_experiments_and_devices_are_taken() {
    let root = fuzz::base::root().join("seeds");
    let experiments = inputs(&root.join("experiment"));
    assert!(!experiments.is_empty());
    for path in experiments {
        let text = std::fs::read(&path).expect("readable");
        let nowhere = Path::new("/there/is/none");
        let parsed = wp_experiment::parse("x.toml", &text, nowhere, None);
        assert!(parsed.experiment.is_some(), "{}: {:?}", path.display(), parsed.diagnostics);
    }
    let text = std::fs::read_to_string(root.join("lists/device")).expect("readable");
    let text = text.strip_prefix("device\n").expect("its first line says what it is");
    let device = wp_machine::device_file::parse("device", text).expect("a device file");
    assert!(!device.numbers.is_empty());
}

#[test]
fn every_base_image_goes_through_every_target_as_it_is() {
    // Those of real kernels are larger, and have tests of their own.
    let mut tried = 0;
    for target in fuzz::TARGETS {
        let Some(family) = target.images else { continue };
        for n in (0..family.count()).filter(|n| !family.is_of_reference(*n)) {
            for how in [0, 3, 4, 8, 16] {
                target.take(&[n as u8, 1, how]);
                tried += 1;
            }
        }
    }
    assert!(tried >= (15 * 4 + (2 + 5 + 2) * 3) * 5, "{tried}");
}

/// An input of an image's target: one of these bases, and patches at random, mostly sealed.
fn mutated(bases: &[usize], rng: &mut Rng) -> Vec<u8> {
    let base = bases[rng.below(bases.len() as u64) as usize];
    let flags = if rng.below(5) > 0 { 1 } else { rng.below(4) as u8 };
    let mut input = vec![base as u8, flags];
    let bytes = 6 + rng.below(40);
    input.extend((0..bytes).map(|_| rng.next_u64() as u8));
    input
}

/// `FUZZED_ROUNDS` inputs of each target of images whose name begins with `FUZZED_TARGETS`, from
/// the seed `FUZZED_SEED` on; with `FUZZED_REFERENCE`, bases of real kernels are among theirs,
/// which take seconds to unpack. One that fails is printed as a command that makes it.
#[test]
fn images_with_patches_at_random_end_in_an_error_or_a_result() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
    };
    let (rounds, first) = (number("FUZZED_ROUNDS", 200), number("FUZZED_SEED", 0));
    let only = std::env::var("FUZZED_TARGETS").unwrap_or_default();
    let has_reference = std::env::var_os("FUZZED_REFERENCE").is_some();
    let (mut tried, mut failed) = (0, Vec::new());
    for target in fuzz::TARGETS.iter().filter(|t| t.name.starts_with(&only)) {
        let Some(family) = target.images else { continue };
        let is_base = |n: &usize| match family.is_of_reference(*n) {
            true => has_reference && family.base(*n).is_some(),
            false => true,
        };
        let bases: Vec<usize> = (0..family.count()).filter(is_base).collect();
        for seed in first..first + rounds {
            let input = mutated(&bases, &mut Rng::stream(seed, target.name));
            if catch_unwind(AssertUnwindSafe(|| target.take(&input))).is_err() {
                let hex: String = input.iter().map(|b| format!("\\x{b:02x}")).collect();
                failed.push(format!("{}, seed {seed}: printf '{hex}'", target.name));
            }
        }
        println!("{}: {rounds} inputs", target.name);
        tried += 1;
    }
    assert!(tried > 0, "no target of images begins with `{only}`");
    assert!(failed.is_empty(), "{} of {rounds} for each target fail: {failed:#?}", failed.len());
}

#[test]
fn every_target_has_its_binary_and_every_folder_of_inputs_its_target() {
    let root = fuzz::base::root();
    let names: BTreeSet<&str> = fuzz::TARGETS.iter().map(|t| t.name).collect();
    assert_eq!(names.len(), fuzz::TARGETS.len(), "two targets of one name");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("there");
    let manifest: toml::Table = manifest.parse().expect("a manifest");
    let bins: BTreeSet<&str> = manifest["bin"]
        .as_array()
        .expect("bins")
        .iter()
        .filter_map(|b| b["name"].as_str())
        .collect();
    assert_eq!(bins, names);
    for target in fuzz::TARGETS {
        let path = root.join(format!("fuzz_targets/{}.rs", target.name));
        let text = std::fs::read_to_string(&path).expect("a source of each target");
        assert!(text.contains(&format!("wp_fuzz::run(\"{}\", data)", target.name)), "{path:?}");
        assert!(!target.about.is_empty());
    }
    for kind in ["seeds", "regressions"] {
        for folder in inputs(&root.join(kind)) {
            let name = folder.file_name().and_then(|n| n.to_str()).expect("text");
            assert!(names.contains(name), "{kind}/{name} is of no target");
        }
    }
}

/// Answers of e2fsck and of our check.
#[derive(Default, Debug)]
struct Verdicts {
    both_clean: u32,
    both_not: u32,
    known: u32,
    /// One of the two did not read it: a feature that we refuse, an e2fsck that did not end.
    neither: u32,
    /// It needs recovery, which `-n` leaves out: counts in the super block may be old or not.
    unrecovered: u32,
    wrong: Vec<String>,
}

/// Compares both on the image of an input of a patch list.
fn compare(input: &Path, scratch: &Path, verdicts: &mut Verdicts) {
    let bytes = std::fs::read(input).expect("readable");
    let Some((number, records)) = bytes.split_first() else { return };
    let Some(base) = Family::Ext4.base((*number).into()) else { return };
    let over = Overlay::new(&base.image);
    // Both must see the same length, which is a whole number of blocks.
    let patched = fuzz::patch::apply(records, &base, &over);
    if patched.bytes != over.len_bytes() {
        return;
    }
    let mut head = [0; SuperBlock::BYTES];
    over.read_at(SuperBlock::AT, &mut head).expect("an image in memory");
    if SuperBlock::load(&head).is_some_and(|sb| sb.has_incompat(incompat::RECOVER)) {
        verdicts.unrecovered += 1;
        return;
    }
    let mut image = vec![0; over.len_bytes() as usize];
    over.read_at(0, &mut image).expect("an image in memory");
    std::fs::write(scratch, &image).expect("written");
    let out = Command::new("timeout").args(["10", "e2fsck", "-fn"]).arg(scratch).output();
    let out = out.expect("runs");
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    if out.status.code() == Some(124) || text.contains("ignal (11)") {
        verdicts.neither += 1;
        return;
    }
    let theirs = out.status.success();
    let report = match check(&over, &CheckOptions::default()) {
        Ok(report) => report,
        Err(FsError::Unsupported(_)) => {
            verdicts.neither += 1;
            return;
        }
        Err(e) => panic!("{}: {e}", input.display()),
    };
    let ours = report.is_clean_as_it_stands();
    let errors = || report.findings.iter().filter(|f| f.severity != Severity::Harmless);
    let kinds: BTreeSet<Kind> = errors().map(|f| f.kind).collect();
    match (ours, theirs) {
        (true, true) => verdicts.both_clean += 1,
        (false, false) => verdicts.both_not += 1,
        _ => {
            // What was damaged is not said of an input: the rest must fit.
            let known = exceptions::KNOWN.iter().find(|k| {
                text.contains(k.says)
                    && k.e2fsck_clean == theirs
                    && kinds.iter().all(|kind| k.finds.contains(kind))
            });
            if let Some(k) = known {
                println!("known: {}: {} ({}): {}", input.display(), k.damage, k.function, k.why);
                verdicts.known += 1;
                return;
            }
            let lines: Vec<&str> = text.lines().take(12).collect();
            let found: Vec<String> = errors().take(8).map(|f| format!("{f:?}")).collect();
            verdicts.wrong.push(format!(
                "{} on `{}`: e2fsck ({theirs}): {lines:#?}, we ({ours}): {found:#?}",
                input.display(),
                Family::Ext4.name((*number).into())
            ));
        }
    }
}

/// Of the seeds and regressions, and of a corpus if `FUZZ_CORPUS` names one (`FUZZ_STEP`: every so
/// many of its files).
#[test]
fn e2fsck_calls_the_same_inputs_clean() {
    let check = "verdicts of e2fsck on fuzzed images";
    if Command::new("e2fsck").arg("-V").output().is_err() {
        wp_machine::testing::skipped(check, "e2fsck is not installed");
        return;
    }
    let root = fuzz::base::root();
    let mut all: Vec<PathBuf> = Vec::new();
    for target in fuzz::TARGETS.iter().filter(|t| t.images == Some(Family::Ext4)) {
        all.extend(inputs(&root.join("regressions").join(target.name)));
    }
    if let Some(corpus) = std::env::var_os("FUZZ_CORPUS") {
        let step = std::env::var("FUZZ_STEP").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        all.extend(inputs(Path::new(&corpus)).into_iter().step_by(step));
    }
    let dir = tempfile::tempdir().expect("a directory");
    // Every base of ours and of mke2fs, as it is.
    for n in (0..Family::Ext4.count()).filter(|n| !Family::Ext4.is_of_reference(*n)) {
        let path = dir.path().join(format!("base-{n}"));
        std::fs::write(&path, [n as u8, 0, 0]).expect("written");
        all.push(path);
    }
    let mut verdicts = Verdicts::default();
    for input in &all {
        compare(input, &dir.path().join("image"), &mut verdicts);
    }
    println!(
        "{} inputs: both clean {}, both not {}, known disagreements {}, not read by one {}, in need \
         of recovery {}",
        all.len(),
        verdicts.both_clean,
        verdicts.both_not,
        verdicts.known,
        verdicts.neither,
        verdicts.unrecovered
    );
    let wrong = verdicts.wrong;
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n---\n"));
}
