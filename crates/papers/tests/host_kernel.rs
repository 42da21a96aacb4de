//! Images against the kernel of this host: it mounts what we wrote, and replays what we crashed, as
//! we do.
//!
//! Needs root and loop devices; skipped by name elsewhere.

use std::collections::BTreeMap;
use std::path::Path;

use wp_base::event::{BlockAction, Class, Event};
use wp_base::{Rng, Sector, Time};
use wp_machine::files;
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::results::sha256;
use wp_machine::testing::skipped;
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Medium, Slice};
use wp_papers::ext4_fsync::{self, RunPlan};
use wp_testkit::host::{tool, unmount};
use wp_vfs::{FileType, OpenFlags, Options, Vfs};

/// Path to (size, hash of the bytes), directories with size 0 and no hash.
type Tree = BTreeMap<String, (u64, String)>;

/// An image that the host's kernel has mounted, through a loop device that goes with it.
struct Mounted<'a> {
    at: Option<&'a str>,
}

impl<'a> Mounted<'a> {
    /// Errors: what `mount` says.
    fn new(image: &str, at: &'a str) -> Result<Mounted<'a>, String> {
        match tool("mount", &["-o", "loop", "-t", "ext4", image, at]) {
            Some((true, _)) => Ok(Mounted { at: Some(at) }),
            Some((false, text)) => Err(text),
            None => Err("mount is not installed".to_owned()),
        }
    }

    /// Panics if it cannot be: what was written is not all in the image then, and the mount would
    /// stay behind.
    fn unmount(mut self) {
        unmount(self.at.expect("it is unmounted once"));
        self.at = None;
    }
}

impl Drop for Mounted<'_> {
    /// The test has failed meanwhile: nothing of it may stay on the host.
    fn drop(&mut self) {
        if let Some(at) = self.at {
            let done = tool("umount", &[at]).is_some_and(|r| r.0)
                || tool("umount", &["--lazy", at]).is_some_and(|r| r.0);
            if !done {
                eprintln!("{at} is still mounted");
            }
        }
    }
}

/// Can this host mount an image at all?
fn can_mount(check: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("i"), dir.path().join("m"));
    std::fs::create_dir(&at).expect("made");
    std::fs::File::create(&image).and_then(|f| f.set_len(16 << 20)).expect("made");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let made = tool("mke2fs", &["-q", "-F", "-t", "ext4", &i]).is_some_and(|r| r.0);
    if let (true, Ok(mounted)) = (made, Mounted::new(&i, &m)) {
        mounted.unmount();
        return true;
    }
    skipped(
        check,
        "this host cannot mount an ext4 image through a loop device (root and mke2fs are needed)",
    );
    false
}

fn walk(dir: &Path, prefix: &str, out: &mut Tree) {
    for entry in std::fs::read_dir(dir).expect("readable") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if path == "lost+found" {
            continue;
        }
        let meta = entry.metadata().expect("readable");
        if meta.is_dir() {
            out.insert(path.clone(), (0, String::new()));
            walk(&entry.path(), &format!("{path}/"), out);
        } else {
            let bytes = std::fs::read(entry.path()).expect("readable");
            out.insert(path, (bytes.len() as u64, sha256(&bytes)));
        }
    }
}

/// What the host's kernel finds after mounting (and so recovering) the image.
fn kernel_tree(medium: &Medium, start: Sector, bytes: u64) -> Result<Tree, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&at).expect("made");
    files::save(medium, start, bytes, &image).expect("saved");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let mounted = Mounted::new(&i, &m)?;
    let mut tree = Tree::new();
    walk(&at, "", &mut tree);
    mounted.unmount();
    let (clean, text) = tool("e2fsck", &["-fn", &i]).expect("e2fsck exists");
    if clean { Ok(tree) } else { Err(format!("e2fsck after the kernel's recovery:\n{text}")) }
}

async fn vfs_walk(v: &Vfs) -> Tree {
    let mut out = Tree::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for e in v.read_dir(&dir).await.expect("lists") {
            let name = String::from_utf8_lossy(&e.name).into_owned();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            if path == "lost+found" {
                continue;
            }
            if e.kind == FileType::Dir {
                out.insert(path.clone(), (0, String::new()));
                todo.push(path);
            } else {
                let fd = v.open(&path, OpenFlags::READ, 0).await.expect("opens");
                let bytes = v.pread(fd, 0, 1 << 30).await.expect("reads");
                let bytes = Slice::concat(&bytes);
                v.close(fd).await.expect("closes");
                out.insert(path, (bytes.len() as u64, sha256(&bytes)));
            }
        }
    }
    out
}

fn spec(era: &str, mib: u64, block_size: u32, seed: u64) -> MachineSpec {
    let fs = registry::FILE_SYSTEMS[0];
    MachineSpec {
        seed,
        cpu: Profile::known("i7-4770").model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: "cfq".to_owned(),
        start: Sector(2048),
        sectors: Some(mib << 11),
        fs,
        fs_options: Options::parse(&format!("era={era},block_size={block_size}"), fs.options)
            .expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (4, 6),
    }
}

/// A seeded mix of everything that a name or a file can go through.
async fn program(v: Vfs, seed: u64) {
    let mut rng = Rng::stream(seed, "program");
    for d in 0..2 {
        v.mkdir(&format!("d{d}"), 0o755).await.expect("makes a directory");
    }
    for step in 0..120u64 {
        let name = format!("d{}/f{}", rng.below(2), rng.below(8));
        match rng.below(10) {
            0..=4 => {
                let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
                let (at, len) = (rng.below(30_000), 1 + rng.below(12_000) as u32);
                v.pwrite(fd, at, &[Slice::pattern(step, 0, len)]).await.expect("writes");
                if rng.below(2) == 0 {
                    v.fsync(fd).await.expect("syncs");
                }
                v.close(fd).await.expect("closes");
            }
            5 => drop(v.unlink(&name).await),
            6 => drop(v.truncate(&name, rng.below(40_000)).await),
            7 => drop(v.rename(&name, &format!("d{}/g{}", rng.below(2), rng.below(4))).await),
            8 => v.rt().sleep(wp_base::Span::millis(rng.below(7_000))).await,
            _ => drop(v.link(&name, &format!("d{}/l{}", rng.below(2), rng.below(4))).await),
        }
    }
}

#[test]
fn the_host_kernel_mounts_what_the_papers_program_left_and_every_byte_agrees() {
    if !can_mount("host kernel mounts our images") {
        return;
    }
    for era in ext4_fsync::ERAS {
        for case in ext4_fsync::CASES {
            let r = ext4_fsync::run(&RunPlan::paper(era, case, 10, 3)).expect("runs");
            let tree = kernel_tree(&r.image.medium, r.image.start, r.image.bytes)
                .expect("mounts, and is clean");
            assert_eq!(tree.len(), 10, "{era} {case}");
            for i in 0..10u32 {
                let from = if case == "extend" { 1024 } else { 0 };
                let mut bytes =
                    wp_machine::workload::fsync_last::contents(i, 0, from, false).to_vec();
                bytes.extend(
                    wp_machine::workload::fsync_last::contents(i, from, 3072 - from, true).to_vec(),
                );
                assert_eq!(tree[&format!("f_{i}")], (3072, sha256(&bytes)), "{era} {case} f_{i}");
            }
        }
    }
}

#[test]
fn debugfs_reads_our_journal() {
    let r = ext4_fsync::run(&RunPlan::paper("3.4", "alloc", 10, 3)).expect("runs");
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    files::save(&r.image.medium, r.image.start, r.image.bytes, &image).expect("saved");
    let Some((ok, text)) = tool("debugfs", &["-R", "logdump -aO", &image.display().to_string()])
    else {
        skipped("debugfs logdump", "debugfs is not installed");
        return;
    };
    assert!(ok, "{text}");
    let commits = text.lines().filter(|l| l.contains("commit block")).count();
    assert!(commits >= 2, "debugfs sees {commits} commits:\n{text}");
    assert!(text.contains("inode table") || text.contains("FS block 1057"), "{text}");
}

/// Cut the power at completions all over the run: the host kernel's replay and ours give the same
/// files.
#[test]
fn crashed_anywhere_the_host_kernel_and_we_recover_the_same_files() {
    if !can_mount("host kernel replays our crashed journals") {
        return;
    }
    for (era, block_size, seed) in [
        ("3.4", 4096, 11),
        ("3.8", 1024, 12),
        ("4.6", 4096, 13),
        ("4.6,data=journal", 1024, 14),
        ("6.18,data=journal", 4096, 15),
        ("6.18,data=writeback", 4096, 16),
    ] {
        let completions = {
            let m = Machine::new(spec(era, 48, block_size, seed), None).expect("builds");
            let vfs = m.mount().expect("mounts");
            m.record(Class::BLOCK);
            let v = vfs.clone();
            m.block_on("program", program(v, seed)).expect("runs");
            let times: Vec<Time> = m
                .rt
                .probe()
                .take()
                .iter()
                .filter(|r| matches!(r.event, Event::Block { action: BlockAction::Complete, .. }))
                .map(|r| r.at)
                .collect();
            m.rt.cut();
            times
        };
        assert!(completions.len() > 100, "only {} completions", completions.len());
        let m = Machine::new(spec(era, 48, block_size, seed), None).expect("builds");
        let vfs = m.mount().expect("mounts");
        let v = vfs.clone();
        drop(m.rt.spawn("program", program(v, seed)));
        let mut rng = Rng::stream(seed, "cuts");
        let mut states = 0;
        for at in completions.iter().step_by(completions.len() / 30) {
            m.rt.run_until(*at);
            let view = m.queue.with_device(|d| d.crash_view(*at));
            // What was not flushed may be there or not, each unit for itself.
            let mut medium = view.medium.clone();
            for unit in &view.loss {
                if rng.below(2) == 0 {
                    unit.apply(&mut medium);
                }
            }
            let (start, bytes) = (m.spec().start, m.part.sectors() * 512);
            let theirs = kernel_tree(&medium, start, bytes)
                .unwrap_or_else(|e| panic!("{era} cut at {at}: {e}"));
            let mut part = Medium::new();
            copy(&medium, start, bytes, &mut part);
            let mut again = spec(era, 48, block_size, seed);
            again.start = Sector(0);
            let r = Machine::new(again, Some(part)).expect("builds");
            let vfs = r.mount().unwrap_or_else(|e| panic!("{era} cut at {at}: {e}"));
            let v = vfs.clone();
            let ours = r.block_on("walk", async move { vfs_walk(&v).await }).expect("walks");
            assert_eq!(ours, theirs, "{era} cut at {at}");
            drop(vfs);
            r.rt.cut();
            states += 1;
        }
        assert!(states >= 30);
        drop(vfs);
        m.rt.cut();
    }
}

fn copy(from: &Medium, start: Sector, bytes: u64, to: &mut Medium) {
    for (at, sectors) in from.runs() {
        let first = at.0.max(start.0);
        let last = (at.0 + sectors).min(start.0 + bytes / 512);
        let mut s = first;
        while s < last {
            let n = (last - s).min(1024) as u32;
            let mut place = Sector(s - start.0);
            for slice in from.read(Sector(s), n) {
                to.write(place, &slice);
                place = place.advance(u64::from(slice.len()) / 512);
            }
            s += u64::from(n);
        }
    }
}
