//! `discard` of ext4 beside the real kernel's: `testdata/reference/ext4-trim`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use wp_base::event::{BlockAction, Class, Event, Op};
use wp_base::{Sector, Span};
use wp_machine::files;
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::testing::host::{self, Bios, is_linux};
use wp_machine::testing::{reference, skipped};
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Medium, MediumView, Slice};
use wp_vfs::{OpenFlags, Options};

const FILES: u32 = 2000;

/// A device's blocks and what was done to them.
#[derive(Default)]
struct Seen {
    /// Blocks that were written and not discarded later.
    live: BTreeSet<u64>,
    /// (first block, blocks) of each discard, and the task that sent it.
    discards: Vec<(u64, u32, String)>,
}

/// 2000 files of 4 KiB, sync, all deleted, sync, an unmount; as era `era` of ext4 with `discard`.
fn trim(image: &Medium, era: &str, more: &str) -> Seen {
    play(image, &format!("era={era},discard{more}"), false)
}

/// The same with ext4's options `options`, and `fstrim` before the unmount if `fstrim`.
fn play(image: &Medium, options: &str, fstrim: bool) -> Seen {
    let fs = registry::FILE_SYSTEMS[0];
    let spec = MachineSpec {
        seed: 1,
        cpu: Profile::known("i7-4770").model(),
        device: "fixed".to_owned(),
        device_params: vec![("capacity_bytes".to_owned(), 1 << 30)],
        more: Vec::new(),
        elevator: "none".to_owned(),
        start: Sector(0),
        sectors: None,
        fs,
        fs_options: Options::parse(options, fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 18),
    };
    let m = Machine::new(spec, Some(image.clone())).expect("builds");
    m.record(Class::BLOCK);
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    m.block_on("program", async move {
        let name = |n: u32| format!("t_{n}");
        for n in 0..FILES {
            let fd = v.open(&name(n), OpenFlags::CREATE, 0o644).await.expect("opens");
            v.pwrite(fd, 0, &[Slice::pattern(u64::from(n), 0, 4096)]).await.expect("writes");
            v.close(fd).await.expect("closes");
        }
        v.sync().await.expect("syncs");
        for n in 0..FILES {
            v.unlink(&name(n)).await.expect("goes");
        }
        v.sync().await.expect("syncs");
        // As long as tables may take to be zeroed.
        v.rt().sleep(Span::secs(60)).await;
        if fstrim {
            let bytes = v.fstrim(0, u64::MAX, 0).await.expect("discards");
            assert_eq!(v.fstrim(0, u64::MAX, 0).await, Ok(0), "there is nothing new to discard");
            println!("fstrim: {bytes} bytes");
        }
    })
    .expect("runs");
    m.unmount(&vfs).expect("unmounts");
    let mut seen = Seen::default();
    for r in m.rt.probe().take() {
        let Event::Block { action: BlockAction::Queue, op, at, sectors, .. } = r.event else {
            continue;
        };
        let blocks = at.0 / 8..(at.0 + u64::from(sectors)).div_ceil(8);
        match op {
            Op::Write => seen.live.extend(blocks),
            Op::Discard => {
                seen.live.retain(|b| !blocks.contains(b));
                seen.discards.push((at.0 / 8, sectors / 8, r.task.to_string()));
            }
            _ => {}
        }
    }
    seen
}

/// A new file system as the reference of `discard` has it. `None`: there is no mke2fs.
fn made() -> Option<Medium> {
    made_with("6012af9e-ad05-4670-a38f-7dfa049cb575", "lazy_itable_init=0,lazy_journal_init=0,")
}

/// The same with another seed of hashes, and what mke2fs is told besides, each with a comma.
fn made_with(seed: &str, extended: &str) -> Option<Medium> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    std::fs::File::create(&path).and_then(|f| f.set_len(1 << 30)).expect("made");
    let how = format!("{extended}hash_seed={seed}");
    let uuid = "f3d1a6bb-7df8-4273-b90b-69b8618c9d83";
    let args = ["-q", "-F", "-t", "ext4", "-b", "4096", "-U", uuid, "-E", how.as_str()];
    let done = Command::new("mke2fs").args(args).arg(&path).status().ok()?;
    assert!(done.success());
    Some(files::load(&path).expect("readable").0)
}

/// Pages that stay, by class as the references name it.
fn pages(image: &Medium, seen: &Seen) -> BTreeMap<String, u64> {
    let view = MediumView { medium: image.clone(), start: Sector(0), bytes: 1 << 30 };
    let classes = (registry::FILE_SYSTEMS[0].blocks)(&view).expect("readable");
    let mut ours = BTreeMap::new();
    for block in &seen.live {
        let class = match classes.class(*block) {
            "free" => "root_dir",
            class if class.starts_with("journal") => "journal",
            "superblock" => "super",
            "directory" => "root_dir",
            class => class,
        };
        *ours.entry(class.to_owned()).or_default() += 1;
    }
    ours
}

/// What a reference counted of them.
fn their_pages(path: &std::path::Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(path).expect("readable");
    let recorded: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let counts = recorded["live_pages_since_mount"].as_object().expect("counts");
    counts.iter().map(|(class, n)| (class.clone(), n.as_u64().expect("a number"))).collect()
}

#[test]
fn pages_that_stay_are_those_of_the_real_kernel() {
    let Some(image) = made() else { return skipped("discard of ext4", "mke2fs is missing") };
    let view = MediumView { medium: image.clone(), start: Sector(0), bytes: 1 << 30 };
    let classes = (registry::FILE_SYSTEMS[0].blocks)(&view).expect("readable");
    let seen = trim(&image, "6.18", "");
    let ours = pages(&image, &seen);
    println!("{ours:?} {:?}", seen.discards);
    assert_eq!(seen.discards.iter().map(|d| d.1).sum::<u32>(), FILES);
    assert!(seen.discards.iter().all(|d| d.2.starts_with("kworker")), "{:?}", seen.discards);
    let data = |b: u64| matches!(classes.class(b), "free" | "data");
    let ends = seen.discards.iter().flat_map(|(at, n, _)| [*at, at + u64::from(*n) - 1]);
    assert!(ends.into_iter().all(data), "nothing but data: {:?}", seen.discards);
    assert_eq!(ours, their_pages(&reference("ext4-trim/discard.json")));
}

/// Who sends them, and when the blocks can be had again.
#[test]
fn each_era_discards_in_its_way() {
    let Some(image) = made() else { return skipped("discard by era", "mke2fs is missing") };
    for (era, task) in [("3.10", "jbd2"), ("4.14", "jbd2"), ("5.10", "jbd2"), ("5.15", "kworker")] {
        let seen = trim(&image, era, "");
        assert_eq!(seen.discards.iter().map(|d| d.1).sum::<u32>(), FILES, "{era}");
        let of = |d: &(u64, u32, String)| d.2.starts_with(task);
        assert!(seen.discards.iter().all(of), "{era}: {:?}", seen.discards);
    }
    // Nothing waits for a commit in this mode: the one who deletes sends them.
    let seen = trim(&image, "6.18", ",data=writeback");
    assert_eq!(seen.discards.len(), FILES as usize);
    assert!(seen.discards.iter().all(|d| d.2 == "program"), "{:?}", &seen.discards[..3]);
}

/// `fstrim` behind the same program, without the mount option: which blocks it discards.
///
/// The kernel's program ran on two CPUs: blocks for small files come from what is set aside for
/// each, so what is still aside then is not the same. All else is.
#[test]
fn fstrim_discards_what_the_real_kernel_does() {
    const ASIDE: std::ops::Range<u64> = 33_280..36_864;
    let Some(image) = made_with(
        "34b02750-054c-4861-8c5d-f2b517074ef9",
        "lazy_itable_init=0,lazy_journal_init=0,",
    ) else {
        return skipped("fstrim of ext4", "mke2fs is missing");
    };
    let seen = play(&image, "era=6.18", true);
    println!("{:?}", seen.discards);
    let path = reference("ext4-trim/fstrim.json");
    let text = std::fs::read_to_string(path).expect("readable");
    let recorded: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let theirs = recorded["discards_first40"].as_array().expect("a list");
    assert_eq!(recorded["n_discards"].as_u64(), Some(theirs.len() as u64), "all are listed");
    let number = |v: &serde_json::Value| v.as_u64().expect("a number");
    let theirs: Vec<(u64, u64)> = theirs.iter().map(|d| (number(&d[1]), number(&d[2]))).collect();
    let ours: Vec<(u64, u64)> = seen.discards.iter().map(|d| (d.0, u64::from(d.1))).collect();
    let apart = |all: &[(u64, u64)]| -> (BTreeSet<u64>, u64) {
        let blocks: BTreeSet<u64> = all.iter().flat_map(|(at, n)| *at..*at + *n).collect();
        let here = blocks.range(ASIDE).count() as u64;
        (
            blocks.into_iter().filter(|b| !ASIDE.contains(b)).collect(),
            ASIDE.end - ASIDE.start - here,
        )
    };
    let ((ours, aside), (theirs, their_aside)) = (apart(&ours), apart(&theirs));
    assert_eq!(ours, theirs);
    // A group of 512 blocks for each CPU at most.
    assert!(aside <= 512 && their_aside <= 1024, "{aside} and {their_aside} blocks kept");
}

/// A full file system whose last free blocks are being discarded: who wants them waits.
#[test]
fn space_that_is_being_discarded_is_waited_for() {
    let fs = registry::FILE_SYSTEMS[0];
    let spec = MachineSpec {
        seed: 1,
        cpu: Profile::known("i7-4770").model(),
        device: "ssd-128".to_owned(),
        // A discard takes long.
        device_params: vec![("discard_overhead_ns".to_owned(), 50_000_000)],
        more: Vec::new(),
        elevator: "none".to_owned(),
        start: Sector(0),
        sectors: Some(16 << 11),
        fs,
        fs_options: Options::parse("era=6.18,discard", fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 18),
    };
    let m = Machine::new(spec, None).expect("builds");
    let vfs = m.mount().expect("mounts");
    let v = vfs.clone();
    m.block_on("program", async move {
        let block = |n: u64| [Slice::pattern(n, 0, 4096)];
        let fd = v.open("a", OpenFlags::CREATE, 0o644).await.expect("opens");
        let mut blocks = 0;
        while v.pwrite(fd, blocks * 4096, &block(blocks)).await.is_ok() {
            blocks += 1;
        }
        assert!(blocks > 1000, "{blocks} blocks until it was full");
        v.close(fd).await.expect("closes");
        v.sync().await.expect("syncs");
        for round in 0..4 {
            v.unlink("a").await.expect("goes");
            // Durable: nothing is pending, and the worker has it all.
            v.sync().await.expect("syncs");
            let fd = v.open("a", OpenFlags::CREATE, 0o644).await.expect("opens");
            for n in 0..blocks - 8 {
                v.pwrite(fd, n * 4096, &block(n + round)).await.expect("there is room");
            }
            v.fsync(fd).await.expect("is written");
            v.close(fd).await.expect("closes");
        }
    })
    .expect("runs");
    m.unmount(&vfs).expect("unmounts");
}

/// Inode tables that mkfs left to the kernel: it zeroes them while the program runs, and every
/// block of them stays written.
#[test]
fn tables_that_are_zeroed_late_stay_written_too() {
    // Of a file mke2fs knows that what it discards is zero; of the reference's device it did not.
    let made = made_with("9e5979cc-9a34-4ba4-97f7-2b74cb561d60", "nodiscard,");
    let Some(image) = made else { return skipped("lazy tables", "mke2fs is missing") };
    let seen = play(&image, "era=6.18,discard", false);
    let mut ours = pages(&image, &seen);
    println!("{ours:?}");
    let mut theirs = their_pages(&reference("ext4-trim/lazy.json"));
    // Commits of the zeroing thread fall where chance has them.
    let journals =
        [ours.remove("journal"), theirs.remove("journal")].map(Option::unwrap_or_default);
    assert!(journals[0].abs_diff(journals[1]) < 16, "{journals:?}");
    assert_eq!(ours, theirs);
}

/// The same program on an ext4 of the host's kernel, on a loop device. `None`: it cannot be had.
fn theirs(image: &std::path::Path, dir: &std::path::Path) -> Option<Seen> {
    let at = dir.join("mnt");
    std::fs::create_dir(&at).expect("made");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let trace = Bios::new(8192).ok()?;
    // Taken before the trace: what another test's loop device of that number did is not ours.
    let taken = host::run("losetup", &["--find", "--show", &i])?;
    trace.enable(true).expect("traced");
    let mounted = host::run("mount", &["-o", "discard", "-t", "ext4", &taken, &m]);
    // From now on it goes with the mount.
    host::run("losetup", &["--detach", &taken]);
    mounted?;
    let device = host::run("findmnt", &["-n", "-o", "MAJ:MIN", &m]);
    let done = (|| {
        for n in 0..FILES {
            std::fs::write(at.join(format!("t_{n}")), vec![n as u8; 4096])?;
        }
        host::run("sync", &["-f", &m]);
        for n in 0..FILES {
            std::fs::remove_file(at.join(format!("t_{n}")))?;
        }
        host::run("sync", &["-f", &m]);
        std::io::Result::Ok(())
    })();
    let unmounted = host::run("umount", &[&m]).or_else(|| host::run("umount", &["--lazy", &m]));
    trace.enable(false).expect("traced");
    unmounted.expect("unmounted");
    done.expect("files are made and go");
    let mut seen = Seen::default();
    for (flags, at, sectors) in trace.asked(&device?).expect("readable") {
        let blocks = at / 8..(at + u64::from(sectors)).div_ceil(8);
        if flags.starts_with('D') {
            seen.live.retain(|b| !blocks.contains(b));
            seen.discards.push((at / 8, sectors / 8, String::new()));
        } else if flags.contains('W') && sectors > 0 {
            seen.live.extend(blocks);
        }
    }
    Some(seen)
}

/// Inodes of 128 and of 256 bytes beside the host's kernel, live.
#[test]
fn pages_that_stay_are_those_of_the_hosts_kernel() {
    let check = "discard of ext4 beside the host's kernel";
    if let Err(why) = is_linux("6.18") {
        return skipped(check, &why);
    }
    for (inode_size, tables) in [(128, 63), (256, 126)] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        std::fs::File::create(&path).and_then(|f| f.set_len(1 << 30)).expect("made");
        let how = "lazy_itable_init=0,lazy_journal_init=0";
        let size = inode_size.to_string();
        let i = path.display().to_string();
        let args = ["-q", "-F", "-t", "ext4", "-b", "4096", "-I", &size, "-E", how, &i];
        if host::run("mke2fs", &args).is_none() {
            return skipped(check, "mke2fs is missing");
        }
        let image = files::load(&path).expect("readable").0;
        let Some(theirs) = theirs(&path, dir.path()) else {
            return skipped(check, "no loop mounts, no tracefs or no findmnt here");
        };
        let (ours, theirs) = (pages(&image, &trim(&image, "6.18", "")), pages(&image, &theirs));
        println!("inodes of {inode_size}: {ours:?}, the host's {theirs:?}");
        assert_eq!(ours["inode_table"], tables);
        for class in ["inode_table", "inode_bitmap", "gdt", "super", "root_dir"] {
            assert_eq!(ours.get(class), theirs.get(class), "{class}, inodes of {inode_size}");
        }
        // Small files are placed by each CPU for itself, perhaps in another group.
        assert!(ours["block_bitmap"].abs_diff(theirs["block_bitmap"]) <= 1);
        assert!(ours["journal"].abs_diff(theirs["journal"]) < 24, "{ours:?} {theirs:?}");
    }
}
