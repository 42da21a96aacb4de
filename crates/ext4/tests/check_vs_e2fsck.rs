//! Our check against e2fsck: the same verdict on seeded damaged images, and the same class of
//! structure where e2fsck's words tell it.
//!
//! `CHECK_ROUNDS` sets the number of damaged images. Disagreements are listed in [`KNOWN`], each
//! with its reason; another one fails. Skipped, and says so, where e2fsck or mke2fs is missing.

mod damage;
mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use damage::Target;
use support::{Setup, World, assert_e2fsck_clean, assert_nothing_lives, has, save};
use wp_base::{FsError, FsResult, Rng};
use wp_ext4::check::{CheckOptions, Class, Report, check};
use wp_ext4::mkfs::Features;
use wp_medium::{MediumView, Overlay, Slice, View};
use wp_vfs::{OpenFlags, Vfs};

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

/// A disagreement that is meant: what was damaged, what e2fsck says, what we say, and why.
struct Known {
    /// Part of the description of the damage.
    damage: &'static str,
    /// Part of e2fsck's text; empty: whatever.
    says: &'static str,
    /// Does e2fsck call the image clean?
    e2fsck_clean: bool,
    why: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        damage: "",
        says: "IGNORED.",
        e2fsck_clean: true,
        why: "a descriptor's checksum alone is wrong: with -n e2fsck names it and goes on, \
              a kernel refuses to mount",
    },
    Known {
        damage: "journal: s_first",
        says: "",
        e2fsck_clean: true,
        why: "e2fsck reads the field when it replays only; a kernel refuses the journal",
    },
    Known {
        damage: "journal: s_maxlen",
        says: "",
        e2fsck_clean: true,
        why: "e2fsck does not mind a log of no length; a kernel refuses the journal",
    },
    Known {
        damage: "eh_depth",
        says: "",
        e2fsck_clean: true,
        why: "e2fsck counts levels itself and asks nothing of an empty node; a kernel refuses \
              a depth that its parent does not demand, and an empty inner node",
    },
    Known {
        damage: "group",
        says: "uninitialized without feature set",
        e2fsck_clean: false,
        why: "without checksums of descriptors their flags mean nothing to a kernel, \
              but e2fsck skips what they call unused",
    },
    Known {
        damage: "group 0: block bitmap",
        says: "",
        e2fsck_clean: true,
        why: "tables of a group whose own bitmap is uninitialised: e2fsck sets their bits in \
              memory, wherever they lie, and does not see that the disk has them clear",
    },
    Known {
        damage: "i_file_acl",
        says: "",
        e2fsck_clean: true,
        why: "e2fsck asks whether the block exists only of inodes that a name leads to, \
              so not of the journal and the orphan file",
    },
    Known {
        damage: "journal: s_errno",
        says: "Can't read next inode",
        e2fsck_clean: false,
        why: "with some images e2fsck stops with an error of its own; with others it is content",
    },
    Known {
        damage: "e_value_size 0x12c -> 0x12b",
        says: "",
        e2fsck_clean: true,
        why: "e2fsck hashes a value's padding as it stands, we as the zeroes that it should be",
    },
];

/// Classes that e2fsck's words name.
fn classes(text: &str) -> Vec<Class> {
    if text.contains("Cannot proceed") || text.contains("aborted") {
        // It gave up at the first thing, which may follow from another.
        return Vec::new();
    }
    const WORDS: &[(&str, &[Class])] = &[
        ("bitmap differences", &[Class::Bitmap]),
        ("adding at end of", &[Class::Bitmap]),
        ("count wrong", &[Class::Count]),
        ("ref count is", &[Class::Links]),
        ("Unattached", &[Class::Links]),
        ("Unconnected", &[Class::Links]),
        ("llegal block", &[Class::Map, Class::Inode]),
        ("xtent tree", &[Class::Map, Class::Inode]),
        ("extent", &[Class::Map, Class::Inode]),
        ("Multiply-claimed", &[Class::Map]),
        ("i_size is", &[Class::Inode]),
        ("i_blocks is", &[Class::Inode, Class::Resize]),
        ("bitmap uninitialized", &[Class::Group]),
        ("i_faddr", &[Class::Inode]),
        ("extra size", &[Class::Inode]),
        ("Symlink", &[Class::Inode]),
        ("INDEX_FL", &[Class::Inode]),
        ("has encrypt flag", &[Class::Inode]),
        ("orphaned inode list", &[Class::Inode]),
        ("super-block", &[Class::Super]),
        ("HTREE", &[Class::Htree]),
        ("Entry '", &[Class::Dir, Class::Links]),
        ("Directory inode", &[Class::Dir]),
        ("ournal", &[Class::Journal]),
        ("Resize inode", &[Class::Resize]),
        ("xtended attribute", &[Class::Xattr]),
        ("superblock", &[Class::Super]),
        ("roup descriptor", &[Class::Group]),
        ("for group", &[Class::Group, Class::Count, Class::Bitmap]),
    ];
    let found = WORDS.iter().filter(|(word, _)| text.contains(word));
    found.flat_map(|(_, c)| c.iter().copied()).collect()
}

/// A directory tree with what maps and directories can look like.
fn source(dir: &Path) {
    std::fs::create_dir_all(dir.join("dir/sub/deep")).expect("made");
    std::fs::create_dir_all(dir.join("many")).expect("made");
    for n in 0..20usize {
        let len = n * n * 700;
        std::fs::write(dir.join(format!("dir/f{n}")), vec![n as u8; len]).expect("written");
    }
    for n in 0..220 {
        std::fs::write(dir.join(format!("many/a-longer-name-{n}")), []).expect("written");
    }
    let holes = File::create(dir.join("dir/holes")).expect("made");
    for n in 0..30u64 {
        holes.write_all_at(&[7; 4096], n * 3 * 4096).expect("written");
    }
    std::fs::hard_link(dir.join("dir/f3"), dir.join("dir/sub/again")).expect("linked");
    std::os::unix::fs::symlink("short", dir.join("dir/short")).expect("linked");
    std::os::unix::fs::symlink("x".repeat(200), dir.join("dir/sub/long")).expect("linked");
}

fn run(tool: &str, args: &[&str], path: &Path) {
    let now = ("E2FSPROGS_FAKE_TIME", "1700000000");
    let out = Command::new(tool).args(args).arg(path).env(now.0, now.1).output().expect("runs");
    let ok = out.status.code().is_some_and(|c| c <= 1);
    assert!(ok, "{tool}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The base images by name; all are clean.
fn bases(dir: &Path) -> Vec<(&'static str, Bytes)> {
    let tree = dir.join("tree");
    source(&tree);
    let tree = tree.to_str().expect("text").to_owned();
    let era = "^64bit,^metadata_csum,^orphan_file,uninit_bg";
    let no_extents = "^extent,^64bit,^metadata_csum";
    let mut out = Vec::new();
    for (name, mib, features, bs) in [
        ("today", 8, "orphan_file", "1024"),
        ("today, groups", 40, "orphan_file", "1024"),
        ("era", 8, era, "1024"),
        ("era, groups", 40, era, "1024"),
        ("indirect", 8, no_extents, "1024"),
        ("today, 4096", 16, "metadata_csum", "4096"),
    ] {
        let path = dir.join("base");
        let _ = std::fs::remove_file(&path);
        File::create(&path).and_then(|f| f.set_len(mib << 20)).expect("made");
        let id = "0f0f0f0f-0000-4000-8000-000000000112";
        let seed = format!("hash_seed={id}");
        let args = ["-q", "-F", "-t", "ext4", "-b", bs, "-O", features, "-U", id, "-E", &seed];
        let args = [&args[..], &["-d", &tree]].concat();
        run("mke2fs", &args, &path);
        for n in 0..3 {
            let set = format!("ea_set dir/f{n} user.attribute {}", "v".repeat(300));
            run("debugfs", &["-w", "-R", &set], &path);
        }
        run("debugfs", &["-w", "-R", "mknod dir/pipe p"], &path);
        run("debugfs", &["-w", "-R", "mknod dir/device c 4 5"], &path);
        run("e2fsck", &["-fyD"], &path);
        out.push((name, Bytes(std::fs::read(&path).expect("read"))));
    }
    for (name, features) in
        [("ours, era", Features::era_2012()), ("ours, today", Features::today())]
    {
        let mut setup = Setup::new("4.6");
        (setup.mib, setup.block_size, setup.features) = (16, 1024, features);
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move { program(&v).await });
        w.unmount(&vfs);
        let path = dir.join("ours");
        save(&w.medium(), setup.mib, &path);
        drop(vfs);
        w.end();
        out.push((name, Bytes(std::fs::read(&path).expect("read"))));
    }
    assert_nothing_lives();
    out
}

async fn program(v: &Vfs) {
    for d in 0..4 {
        v.mkdir(&format!("d{d}"), 0o755).await.expect("makes a directory");
        for n in 0..20u64 {
            let name = format!("d{d}/file-{n}");
            let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
            for k in 0..n {
                v.pwrite(fd, k * 3000, &[Slice::pattern(n, 0, 900)]).await.expect("writes");
            }
            v.close(fd).await.expect("closes");
        }
    }
    for n in 0..10 {
        v.unlink(&format!("d1/file-{n}")).await.expect("removes");
    }
    v.symlink("d1/file-3", "short").await.expect("links");
    v.symlink(&"y".repeat(150), "long").await.expect("links");
    v.link("d1/file-15", "d2/other").await.expect("links");
}

fn rounds() -> u64 {
    std::env::var("CHECK_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(240)
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
    let out = Command::new("e2fsck").arg("-fn").arg(path).output().expect("runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    (out.status.success(), text + &String::from_utf8_lossy(&out.stderr))
}

#[test]
fn damaged_images_get_the_verdict_that_e2fsck_gives() {
    let name = "check against e2fsck";
    if !has("e2fsck", name) || !has("mke2fs", name) || !has("debugfs", name) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let bases = bases(dir.path());
    let (mut counts, mut used) = ([0u64; 5], vec![0u64; KNOWN.len()]);
    let mut wrong = Vec::new();
    for (n, (name, base)) in bases.iter().enumerate() {
        let path = dir.path().join(format!("image{n}"));
        std::fs::write(&path, &base.0).expect("written");
        let file = File::options().write(true).open(&path).expect("opens");
        let (is_clean, text) = e2fsck(&path);
        assert!(is_clean, "{name}: {text}");
        let report = check(base, &CheckOptions::default()).expect("can be checked");
        assert!(report.is_clean_as_it_stands(), "{name}:\n{}", said(&report));
        let target = Target::new(base);
        for seed in (0..rounds()).filter(|seed| seed % bases.len() as u64 == n as u64) {
            let damaged = Overlay::new(base);
            let mut rng = Rng::stream(seed, name);
            let what = target.damage(&damaged, &mut rng);
            for (page, data) in damaged.pages() {
                file.write_all_at(data.bytes(), page * 4096).expect("written");
            }
            let (theirs, text) = e2fsck(&path);
            for (page, _) in damaged.pages() {
                let from = page as usize * 4096;
                file.write_all_at(&base.0[from..from + 4096], from as u64).expect("written");
            }
            let report = match check(&damaged, &CheckOptions::default()) {
                Ok(report) => report,
                Err(FsError::Unsupported(_)) => {
                    counts[4] += 1;
                    continue;
                }
                Err(e) => panic!("{name}, seed {seed}, {what}: {e}"),
            };
            let ours = report.is_clean_as_it_stands();
            let named = classes(&text);
            // A damaged super block makes e2fsck read the rest with other eyes.
            let is_super = what.starts_with("super block");
            let is_named = |c| named.contains(&c) || is_super && c == Class::Super;
            let same_class =
                named.is_empty() || report.findings.iter().any(|f| is_named(f.kind.class()));
            let agrees = ours == theirs && (ours || same_class);
            counts[match (ours, theirs) {
                (true, true) => 0,
                (false, false) => 1,
                (true, false) => 2,
                (false, true) => 3,
            }] += 1;
            if agrees {
                continue;
            }
            let known = KNOWN.iter().position(|k| {
                what.contains(k.damage) && text.contains(k.says) && k.e2fsck_clean == theirs
            });
            match known {
                Some(k) => used[k] += 1,
                None => wrong.push(format!(
                    "{name}, seed {seed}: {what}\n e2fsck ({}):\n{text} we ({}):\n{}",
                    if theirs { "clean" } else { "not clean" },
                    if ours { "clean" } else { "not clean" },
                    said(&report)
                )),
            }
        }
    }
    println!(
        "{} images: both clean {}, both not {}, only e2fsck complains {}, only we do {}, beyond us {}",
        rounds(),
        counts[0],
        counts[1],
        counts[2],
        counts[3],
        counts[4]
    );
    for (k, n) in KNOWN.iter().zip(&used) {
        println!("known: {} x {}: {}", n, k.damage, k.why);
    }
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n---\n"));
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
