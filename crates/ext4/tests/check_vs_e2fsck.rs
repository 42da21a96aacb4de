//! Our check against e2fsck: the same verdict on seeded damaged images, and the structure that
//! e2fsck names first among those that we name (`damage::words` says what is about what).
//!
//! `CHECK_ROUNDS` sets the number of damaged images (1000 or more: over all bases), `CHECK_SEED`
//! the first seed, `CHECK_BASE` part of the name of the bases, `CHECK_KEEP` a directory for the
//! damaged images. Disagreements that are meant are listed in `damage::exceptions`; another one
//! fails. Skipped, and says so, where e2fsck, mke2fs or debugfs is missing.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::damage::bases::{Base, bases, program};
use crate::damage::exceptions::KNOWN;
use crate::damage::{Target, words};
use crate::support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives, has};
use wp_base::{FsError, FsResult, Rng};
use wp_ext4::check::{CheckOptions, Class, Kind, Report, Severity, check};
use wp_ext4::mkfs::Features;
use wp_medium::{MediumView, Overlay, View};

/// An image in memory.
struct Bytes(Vec<u8>);

impl View for Bytes {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let from = usize::try_from(at).map_err(|_| FsError::Io)?;
        let bytes = from.checked_add(out.len()).and_then(|to| self.0.get(from..to));
        out.copy_from_slice(bytes.ok_or(FsError::Io)?);
        Ok(())
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

fn rounds() -> u64 {
    number("CHECK_ROUNDS", 300)
}

fn said(report: &Report) -> String {
    let line = |f: &wp_ext4::check::Finding| {
        format!(
            "  {} ({}): {}: {} for {}\n",
            f.kind.name(),
            f.severity.name(),
            f.place,
            f.found,
            f.expected
        )
    };
    report.findings.iter().take(12).map(line).collect()
}

/// `e2fsck -fn`: is it clean, and what does it say?
fn e2fsck(path: &Path) -> (bool, String) {
    // Some damage makes it wait for another host's multiple-mount protection.
    let out = Command::new("timeout").args(["10", "e2fsck", "-fn"]).arg(path).output();
    let out = out.expect("runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.code() == Some(124) {
        return (false, "TIMEOUT".to_owned());
    }
    (out.status.success(), text + &String::from_utf8_lossy(&out.stderr))
}

/// What became of the images of one base.
#[derive(Default)]
struct Totals {
    both_clean: u64,
    both_not: u64,
    only_theirs: u64,
    only_ours: u64,
    beyond_us: u64,
    /// e2fsck did not end.
    beyond_them: u64,
    /// Of those that both call damaged: the same set of classes; ours has more; theirs has.
    same_set: u64,
    first_agrees: u64,
    used: Vec<u64>,
    /// What we have found at least once where e2fsck complained too.
    kinds: BTreeSet<Kind>,
    unmapped: Vec<String>,
    wrong: Vec<String>,
}

impl Totals {
    fn add(&mut self, o: Totals) {
        self.both_clean += o.both_clean;
        self.both_not += o.both_not;
        self.only_theirs += o.only_theirs;
        self.only_ours += o.only_ours;
        self.beyond_us += o.beyond_us;
        self.beyond_them += o.beyond_them;
        self.same_set += o.same_set;
        self.first_agrees += o.first_agrees;
        self.used.resize(KNOWN.len(), 0);
        for (to, n) in self.used.iter_mut().zip(o.used) {
            *to += n;
        }
        self.kinds.extend(o.kinds);
        self.unmapped.extend(o.unmapped);
        self.wrong.extend(o.wrong);
    }

    fn images(&self) -> u64 {
        self.both_clean
            + self.both_not
            + self.only_theirs
            + self.only_ours
            + self.beyond_us
            + self.beyond_them
    }
}

/// Compares all damaged images of one base.
fn compare(base: &Base, dir: &Path, seeds: &mut dyn Iterator<Item = u64>) -> Totals {
    let mut totals = Totals { used: vec![0; KNOWN.len()], ..Totals::default() };
    let name = base.name;
    let view = Bytes(base.bytes.clone());
    let path = dir.join(format!("image-{}", name.replace([' ', ','], "-")));
    std::fs::write(&path, &view.0).expect("written");
    let file = File::options().write(true).open(&path).expect("opens");
    let (is_clean, text) = e2fsck(&path);
    assert!(is_clean || !base.is_clean, "{name}: {text}");
    let report = check(&view, &CheckOptions::default()).expect("can be checked");
    assert_eq!(report.is_clean_as_it_stands(), is_clean, "{name}:\n{text}\n{}", said(&report));
    let target = Target::new(&view);
    for seed in seeds {
        let damaged = Overlay::new(&view);
        let mut rng = Rng::stream(seed, name);
        let what = target.damage(&damaged, &mut rng);
        for (page, data) in damaged.pages() {
            file.write_all_at(data.bytes(), page * 4096).expect("written");
        }
        let (theirs, text) = e2fsck(&path);
        if let Some(keep) = std::env::var_os("CHECK_KEEP") {
            let to = Path::new(&keep).join(format!("{}-{seed}", name.replace([' ', ','], "-")));
            std::fs::copy(&path, to).expect("kept");
        }
        for (page, _) in damaged.pages() {
            let from = page as usize * 4096;
            file.write_all_at(&view.0[from..from + 4096], from as u64).expect("written");
        }
        // A crash of e2fsck (it has its own handler of signals) is no verdict either.
        if text == "TIMEOUT" || text.contains("ignal (11)") {
            eprintln!("{name}, seed {seed}: {what}: e2fsck does not end");
            totals.beyond_them += 1;
            continue;
        }
        let report = match check(&damaged, &CheckOptions::default()) {
            Ok(report) => report,
            Err(FsError::Unsupported(_)) => {
                totals.beyond_us += 1;
                continue;
            }
            Err(e) => panic!("{name}, seed {seed}, {what}: {e}"),
        };
        let ours = report.is_clean_as_it_stands();
        let lines = words::lines(&text, path.to_str().expect("text"));
        totals.unmapped.extend(lines.iter().filter_map(|l| l.clone().err()));
        let named: Vec<&[Class]> = lines.into_iter().flatten().collect();
        let errors = || report.findings.iter().filter(|f| f.severity != Severity::Harmless);
        let found: BTreeSet<Class> = errors().map(|f| f.kind.class()).collect();
        // Every line of theirs is about something that we name, and the reverse.
        let theirs_in_ours = named.iter().all(|l| l.iter().any(|c| found.contains(c)));
        let ours_in_theirs = found.iter().all(|c| named.iter().any(|l| l.contains(c)));
        let first = named.first().is_none_or(|l| l.iter().any(|c| found.contains(c)));
        // Where e2fsck gives up, or reads on with a damaged super block, the rest may follow.
        let any = named.iter().any(|l| l.iter().any(|c| found.contains(c)));
        match (ours, theirs) {
            (true, true) => totals.both_clean += 1,
            (false, false) => {
                totals.both_not += 1;
                totals.same_set += u64::from(theirs_in_ours && ours_in_theirs);
                totals.first_agrees += u64::from(first);
                totals.kinds.extend(errors().map(|f| f.kind));
            }
            (true, false) => totals.only_theirs += 1,
            (false, true) => totals.only_ours += 1,
        }
        let only_super = what.contains("super block") && found.iter().all(|c| *c == Class::Super);
        if ours == theirs && (ours || first || only_super || any && ours_in_theirs) {
            continue;
        }
        let kinds: BTreeSet<Kind> = errors().map(|f| f.kind).collect();
        let known = KNOWN.iter().position(|k| {
            what.contains(k.damage)
                && text.contains(k.says)
                && k.e2fsck_clean == theirs
                && ours != theirs
                && kinds.iter().all(|kind| k.finds.contains(kind))
        });
        match known {
            Some(k) => totals.used[k] += 1,
            None => totals.wrong.push(format!(
                "{name}, seed {seed}: {what}\n e2fsck ({}):\n{} we ({}):\n{}",
                if theirs { "clean" } else { "not clean" },
                text.lines().take(40).collect::<Vec<_>>().join("\n"),
                if ours { "clean" } else { "not clean" },
                said(&report)
            )),
        }
    }
    std::fs::remove_file(&path).expect("removed");
    totals
}

#[test]
fn damaged_images_get_the_verdict_that_e2fsck_gives() {
    let name = "check against e2fsck";
    if !has("e2fsck", name) || !has("mke2fs", name) || !has("debugfs", name) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let only = std::env::var("CHECK_BASE").unwrap_or_default();
    let mut bases = bases(dir.path(), name, if rounds() < 1000 { 3 } else { 1 });
    bases.retain(|b| b.name.contains(&only));
    let first = number("CHECK_SEED", 0);
    let (many, seeds) = (bases.len() as u64, first..first + rounds());
    // Two threads, each with its own images: most of the time is e2fsck's.
    let parts: Vec<Totals> = std::thread::scope(|scope| {
        let spawn = |t: u64| {
            let (bases, seeds, dir) = (&bases, seeds.clone(), dir.path());
            scope.spawn(move || {
                let mut totals = Totals::default();
                for (n, base) in bases.iter().enumerate().filter(|(n, _)| *n as u64 % 2 == t) {
                    let mut own = seeds.clone().filter(|seed| seed % many == n as u64);
                    totals.add(compare(base, dir, &mut own));
                }
                totals
            })
        };
        let threads = [spawn(0), spawn(1)];
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    let mut totals = Totals::default();
    parts.into_iter().for_each(|t| totals.add(t));
    println!(
        "{} images of {many} bases, seeds {first}..{}: both clean {}, both not {}, only e2fsck \
         complains {}, only we do {}, beyond us {}, e2fsck does not end {}",
        totals.images(),
        seeds.end,
        totals.both_clean,
        totals.both_not,
        totals.only_theirs,
        totals.only_ours,
        totals.beyond_us,
        totals.beyond_them
    );
    println!(
        "of the {} damaged ones: the structure that e2fsck names first is among ours in {}, the \
         same set of structures in {}",
        totals.both_not, totals.first_agrees, totals.same_set
    );
    for (k, n) in KNOWN.iter().zip(&totals.used).filter(|(_, n)| **n > 0) {
        println!("known: {n} x {:?} ({}): {}", k.finds, k.function, k.why);
    }
    let never = Kind::ALL.iter().filter(|k| !totals.kinds.contains(k)).map(|k| k.name());
    println!("kinds that were never found: {:?}", never.collect::<Vec<_>>());
    totals.unmapped.sort();
    totals.unmapped.dedup();
    println!("unexplained: {}", totals.wrong.len());
    let (wrong, unmapped) = (&totals.wrong, &totals.unmapped);
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n---\n"));
    assert!(unmapped.is_empty(), "messages of no class: {unmapped:#?}");
}

#[test]
fn features_that_we_cannot_check_are_refused_by_name() {
    let name = "check refuses features";
    if !has("mke2fs", name) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    for feature in
        ["meta_bg,^resize_inode", "inline_data", "ea_inode", "encrypt", "casefold", "verity"]
    {
        File::create(&path).and_then(|f| f.set_len(32 << 20)).expect("made");
        let args = ["-q", "-F", "-t", "ext4", "-b", "4096", "-O", feature];
        let made = Command::new("mke2fs").args(args).arg(&path).output().expect("runs");
        assert!(made.status.success(), "{feature}: {}", String::from_utf8_lossy(&made.stderr));
        let image = Bytes(std::fs::read(&path).expect("read"));
        let refused = check(&image, &CheckOptions::default());
        let Err(FsError::Unsupported(why)) = refused else { panic!("{feature}: {refused:?}") };
        let word = feature.split(',').next().expect("a word");
        assert!(why.contains(word), "{feature}: {why}");
    }
}

#[test]
fn the_check_uses_nothing_of_the_file_system_that_it_checks() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed = ["disk", "image"];
    for dir in ["check", "image", "image/fast_commit"] {
        let mut files = 0;
        for entry in std::fs::read_dir(src.join(dir)).expect("lists") {
            let path = entry.expect("lists").path();
            if path.is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("read");
            files += 1;
            for part in text.split("crate::").skip(1) {
                let word = part.split(|c: char| !c.is_alphanumeric() && c != '_').next();
                let word = word.expect("a word");
                // Recovery has crash-safety points, which are a table.
                let is_point = word == "site" && dir != "check";
                assert!(allowed.contains(&word) || is_point, "{}: crate::{word}", path.display());
                // Of the readers only recovery, if that is asked for.
                let is_root = path.ends_with("check/mod.rs");
                assert!(dir != "check" || word != "image" || is_root, "{}", path.display());
            }
        }
        assert!(files > 5, "{dir}: {files} files");
    }
}

#[test]
fn images_of_our_file_system_are_clean_and_so_is_what_recovery_makes_of_a_crash() {
    for features in [Features::era_2012(), Features::today()] {
        let mut setup = Setup::new("4.6");
        (setup.mib, setup.block_size, setup.features) = (16, 1024, features);
        let view =
            |medium| MediumView { medium, start: wp_base::Sector(0), bytes: setup.mib << 20 };
        let w = World::fresh(&setup);
        let made = check(&view(w.medium()), &CheckOptions::default()).expect("can be checked");
        assert!(made.findings.is_empty(), "{}", said(&made));
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move {
            program(&v).await;
            v.sync().await.expect("syncs");
        });
        let crashed = view(w.medium());
        let recover = CheckOptions { recover: true, ..CheckOptions::default() };
        let report = check(&crashed, &recover).expect("can be checked");
        assert!(report.recovered && report.is_clean(), "{}", said(&report));
        // As it stands it may be anything that a replay puts right.
        let report = check(&crashed, &CheckOptions::default()).expect("can be checked");
        assert!(report.is_clean(), "{}", said(&report));
        w.unmount(&vfs);
        let report = check(&view(w.medium()), &CheckOptions::default()).expect("can be checked");
        assert!(report.findings.is_empty(), "{}", said(&report));
        assert_e2fsck_clean(&w.medium(), setup.mib, "check");
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
}

#[test]
fn whatever_the_bytes_the_check_ends_with_a_report() {
    for (features, block_size) in [(Features::today(), 1024), (Features::era_2012(), 4096)] {
        let mut setup = Setup::new("4.6");
        (setup.mib, setup.block_size, setup.features) = (16, block_size, features);
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move { program(&v).await });
        w.unmount(&vfs);
        let base =
            MediumView { medium: w.medium(), start: wp_base::Sector(0), bytes: setup.mib << 20 };
        let target = Target::new(&base);
        for seed in 0..rounds() {
            let damaged = Overlay::new(&base);
            let mut rng = Rng::stream(seed, "whatever");
            for _ in 0..1 + rng.below(20) {
                target.damage(&damaged, &mut rng);
            }
            if rng.below(4) == 0 {
                // Noise over some of the metadata, behind the super block.
                let mut noise = vec![0; 1 + rng.below(3000) as usize];
                rng.fill(&mut noise);
                damaged.write_at(4096 + rng.below(1 << 20), &noise).expect("written");
            }
            let options = CheckOptions { recover: seed % 3 == 0, ..CheckOptions::default() };
            match check(&damaged, &options) {
                Ok(report) => assert!(report.findings.len() <= options.findings_max),
                Err(FsError::Unsupported(_)) => {}
                Err(e) => panic!("seed {seed}: {e}"),
            }
        }
        drop(vfs);
        w.end();
    }
    assert_nothing_lives();
}
