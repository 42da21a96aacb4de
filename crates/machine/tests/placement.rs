//! Where blocks and inodes go, beside the kernel of this host: the same seeded programs on the same
//! image give each file the same inode number and the same extents.
//!
//! Needs root, loop devices, e2fsprogs and a kernel of the newest era; skipped by name elsewhere.
//!
//! What is made equal: the kernel's task stays on one CPU, since small files share a space by CPU;
//! commits come from fsync alone; the background reading of bitmaps is over when a program begins.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use wp_base::{FsResult, Rng, Sector, Span};
use wp_machine::files;
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::testing::skipped;
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Medium, Slice};
use wp_testkit::host::{tool, unmount};
use wp_vfs::{Fd, OpenFlags, Options, Vfs};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Op {
    Mkdir(String),
    /// Makes a file if there is none, for reading and writing.
    Open(String),
    Write(String, u64, u64),
    Fsync(String),
    Close(String),
    Unlink(String),
    Truncate(String, u64),
}

/// A program under way.
struct Script {
    ops: Vec<Op>,
    rng: Rng,
}

impl Script {
    fn new(seed: u64) -> Script {
        Script { ops: Vec::new(), rng: Rng::stream(seed, "placement") }
    }

    fn open(&mut self, name: &str) {
        self.ops.push(Op::Open(name.to_owned()));
    }

    fn write(&mut self, name: &str, at: u64, len: u64) {
        self.ops.push(Op::Write(name.to_owned(), at, len));
    }

    fn fsync(&mut self, name: &str) {
        self.ops.push(Op::Fsync(name.to_owned()));
    }

    fn close(&mut self, name: &str) {
        self.ops.push(Op::Close(name.to_owned()));
    }

    fn mkdir(&mut self, name: &str) {
        self.ops.push(Op::Mkdir(name.to_owned()));
    }

    fn unlink(&mut self, name: &str) {
        self.ops.push(Op::Unlink(name.to_owned()));
    }

    /// A file of `len` bytes, written in pieces, synced and closed.
    fn file(&mut self, name: &str, len: u64, piece: u64) {
        self.open(name);
        let mut at = 0;
        while at < len {
            let n = piece.min(len - at);
            self.write(name, at, n);
            at += n;
        }
        self.fsync(name);
        self.close(name);
    }

    fn len(&mut self, most: u64) -> u64 {
        // As many small ones as large ones.
        let doublings = u64::from((most / (4 * KIB)).ilog2());
        let top = (4 * KIB) << self.rng.below(doublings + 1);
        top / 2 + 1 + self.rng.below(top / 2)
    }
}

fn trees(s: &mut Script) {
    for d in 0..24 {
        s.mkdir(&format!("d{d}"));
        for e in 0..s.rng.below(4) {
            s.mkdir(&format!("d{d}/e{e}"));
            for f in 0..s.rng.below(4) {
                let len = s.len(64 * KIB);
                s.file(&format!("d{d}/e{e}/f{f}"), len, MIB);
            }
        }
        for f in 0..s.rng.below(4) {
            let len = s.len(64 * KIB);
            s.file(&format!("d{d}/f{f}"), len, MIB);
        }
    }
}

fn sequential(s: &mut Script) {
    for (i, len) in [4 * KIB, 16 * KIB, 64 * KIB, 68 * KIB, 100 * KIB, MIB, 4 * MIB, 64 * MIB]
        .into_iter()
        .enumerate()
    {
        s.file(&format!("s{i}"), len, MIB);
    }
    for i in 8..40 {
        let len = s.len(16 * MIB);
        s.file(&format!("s{i}"), len, MIB);
    }
}

fn interleaved(s: &mut Script) {
    for round in 0..4 {
        let names = [format!("a{round}"), format!("b{round}")];
        let piece = [4 * KIB, 20 * KIB, 64 * KIB, 300 * KIB][round];
        names.iter().for_each(|n| s.open(n));
        for i in 0..40 {
            for n in &names {
                s.write(n, i * piece, piece);
                s.fsync(n);
            }
        }
        names.iter().for_each(|n| s.close(n));
    }
}

fn random_order(s: &mut Script) {
    for f in 0..6 {
        let name = format!("r{f}");
        s.open(&name);
        for i in 0..120 {
            let at = s.rng.below(2048) * 4 * KIB;
            let len = 4 * KIB * (1 + s.rng.below(4));
            s.write(&name, at, len);
            if i % (f + 1) == 0 {
                s.fsync(&name);
            }
        }
        s.fsync(&name);
        s.close(&name);
    }
}

fn appended(s: &mut Script) {
    for f in 0..24 {
        let name = format!("g{f}");
        let mut at = 0;
        for _ in 0..1 + s.rng.below(12) {
            s.open(&name);
            for _ in 0..1 + s.rng.below(4) {
                let len = s.len(256 * KIB);
                s.write(&name, at, len);
                at += len;
                s.fsync(&name);
            }
            s.close(&name);
        }
    }
}

fn churn(s: &mut Script) {
    let mut there: Vec<String> = Vec::new();
    s.open("log");
    for i in 0..160u64 {
        match s.rng.below(5) {
            0 | 1 if there.len() > 4 => {
                let k = s.rng.below(there.len() as u64) as usize;
                let name = there.remove(k);
                s.unlink(&name);
                if s.rng.below(2) == 0 {
                    s.write("log", i * 4 * KIB, 4 * KIB);
                    s.fsync("log");
                }
            }
            2 if !there.is_empty() => {
                let k = s.rng.below(there.len() as u64) as usize;
                let to = s.rng.below(100) * 4 * KIB;
                s.ops.push(Op::Truncate(there[k].clone(), to));
            }
            _ => {
                let name = format!("c{i}");
                let len = s.len(2 * MIB);
                s.file(&name, len, MIB);
                there.push(name);
            }
        }
    }
    s.close("log");
}

/// Closed before their blocks have a place.
fn closed_first(s: &mut Script) {
    for f in 0..40 {
        let name = format!("k{f}");
        let len = s.len(MIB);
        s.open(&name);
        s.write(&name, 0, len);
        s.close(&name);
        s.open("any");
        s.close("any");
        // Opened for reading it would be the same; what counts is that nobody writes.
    }
    for f in 0..40 {
        s.ops.push(Op::Fsync(format!("k{f}")));
    }
}

fn nearly_full(s: &mut Script) {
    for i in 0..200 {
        let len = s.len(2 * MIB);
        s.file(&format!("n{i}"), len, 64 * KIB);
        if i % 9 == 8 {
            s.unlink(&format!("n{}", i - 4));
        }
    }
}

/// Name, MiB of the image, arguments of `mkfs.ext4`, a rotating disk?, the program.
type Class = (&'static str, u64, &'static str, bool, fn(&mut Script));

const CLASSES: &[Class] = &[
    ("trees", 1024, "-b 4096", false, trees),
    ("trees, no flex groups", 1024, "-b 4096 -O ^flex_bg", false, trees),
    ("sequential", 1024, "-b 4096", false, sequential),
    ("sequential, 1 KiB blocks", 512, "-b 1024", false, sequential),
    ("interleaved", 1024, "-b 4096", false, interleaved),
    ("random order", 1024, "-b 4096", false, random_order),
    ("appended", 1024, "-b 4096", false, appended),
    ("churn", 512, "-b 4096", false, churn),
    ("closed first", 512, "-b 4096", false, closed_first),
    ("indirect blocks", 512, "-b 4096 -O ^extents,^64bit", false, sequential),
    ("sequential on 20 groups", 2560, "-b 4096", false, sequential),
    ("trees on 20 groups", 2560, "-b 4096", false, trees),
    ("sequential on 20 groups of a disk", 2560, "-b 4096", true, sequential),
    ("churn, 1 KiB blocks, of a disk", 512, "-b 1024", true, churn),
    ("nearly full", 64, "-b 4096", false, nearly_full),
];

/// Classes in which a block of an extent tree may lie elsewhere: one fsync sends more extents than
/// an inode holds, and how often a tree's block comes and goes depends on how soon the device
/// answers, after which unwritten extents are converted and merge.
const TIMED_NODES: &[&str] = &["sequential, 1 KiB blocks"];

/// Ends in `errno` where a call fails.
fn theirs(root: &Path, ops: &[Op]) -> Vec<Result<u64, i32>> {
    let mut open: BTreeMap<&str, File> = BTreeMap::new();
    let failed = |e: std::io::Error| e.raw_os_error().unwrap_or(0);
    let full = |n: &str| root.join(n);
    ops.iter()
        .map(|op| match op {
            Op::Mkdir(n) => std::fs::create_dir(full(n)).map(|()| 0).map_err(failed),
            Op::Open(n) => {
                let mut how = File::options();
                let f = how.read(true).write(true).create(true).truncate(false).open(full(n));
                f.map(|f| drop(open.insert(n, f))).map(|()| 0).map_err(failed)
            }
            Op::Write(n, at, len) => {
                let bytes = Slice::pattern(1, *at, *len as u32).to_vec();
                let Some(f) = open.get(n.as_str()) else { return Err(9) };
                f.write_at(&bytes, *at).map(|n| n as u64).map_err(failed)
            }
            Op::Fsync(n) => match open.get(n.as_str()) {
                Some(f) => f.sync_all().map(|()| 0).map_err(failed),
                None => File::open(full(n)).and_then(|f| f.sync_all()).map(|()| 0).map_err(failed),
            },
            Op::Close(n) => open.remove(n.as_str()).map(|_| 0).ok_or(9),
            Op::Unlink(n) => std::fs::remove_file(full(n)).map(|()| 0).map_err(failed),
            Op::Truncate(n, len) => File::options()
                .write(true)
                .open(full(n))
                .and_then(|f| f.set_len(*len))
                .map(|()| 0)
                .map_err(failed),
        })
        .collect()
}

async fn one(v: &Vfs, open: &mut BTreeMap<String, Fd>, op: &Op) -> FsResult<u64> {
    match op {
        Op::Mkdir(n) => v.mkdir(n, 0o755).await.map(|()| 0),
        Op::Open(n) => {
            let fd = v.open(n, OpenFlags::CREATE, 0o644).await?;
            open.insert(n.clone(), fd);
            Ok(0)
        }
        Op::Write(n, at, len) => {
            let Some(fd) = open.get(n) else { return Err(wp_base::FsError::BadFile) };
            v.pwrite(*fd, *at, &[Slice::pattern(1, *at, *len as u32)]).await
        }
        Op::Fsync(n) => match open.get(n) {
            Some(fd) => v.fsync(*fd).await.map(|()| 0),
            None => {
                let fd = v.open(n, OpenFlags::READ, 0).await?;
                v.fsync(fd).await?;
                v.close(fd).await.map(|()| 0)
            }
        },
        Op::Close(n) => match open.remove(n) {
            Some(fd) => v.close(fd).await.map(|()| 0),
            None => Err(wp_base::FsError::BadFile),
        },
        Op::Unlink(n) => v.unlink(n).await.map(|()| 0),
        Op::Truncate(n, len) => v.truncate(n, *len).await.map(|()| 0),
    }
}

fn machine(options: &str, mib: u64, image: Medium) -> Machine {
    let fs = registry::FILE_SYSTEMS[0];
    let spec = MachineSpec {
        seed: 1,
        cpu: Profile::known("i7-4770").model(),
        device: "fixed".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: "none".to_owned(),
        start: Sector(0),
        sectors: Some(mib << 11),
        fs,
        fs_options: Options::parse(options, fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 18),
    };
    let m = Machine::new(spec, Some(image)).expect("builds");
    m.rt.run_until(m.rt.now() + Span::secs(20));
    m
}

/// Inode number and extents of each name, as `debugfs` has them, and apart from them the blocks of
/// its extent tree.
fn places(image: &str, names: &[String]) -> BTreeMap<String, (String, String)> {
    let mut script = String::new();
    for n in names {
        writeln!(script, "stat /{n}").expect("text");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("cmds");
    std::fs::write(&file, script).expect("written");
    let (_, text) =
        tool("debugfs", &["-f", &file.display().to_string(), image]).expect("debugfs exists");
    let mut out = BTreeMap::new();
    for part in text.split("debugfs: stat /").skip(1) {
        let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
        let ino = rest.lines().find_map(|l| l.strip_prefix("Inode: "));
        let ino = ino.and_then(|l| l.split_whitespace().next()).unwrap_or("none");
        let blocks = rest.split_once("EXTENTS:\n").or_else(|| rest.split_once("BLOCKS:\n"));
        let blocks = blocks.map_or("", |(_, b)| b).replace("\n\n", "\n");
        let (nodes, data): (Vec<&str>, Vec<&str>) =
            blocks.split(',').map(str::trim).partition(|b| b.starts_with("(ETB"));
        out.insert(
            name.trim().to_owned(),
            (format!("inode {ino}: {}", data.join(", ")), nodes.join(", ")),
        );
    }
    out
}

/// CPUs that the host may have, as its kernel counts them (`num_possible_cpus`).
fn possible_cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<u32>().ok());
    last.map_or(1, |n| n + 1)
}

/// Host kernel's `major.minor`.
fn host_version() -> Option<(u32, u32)> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut parts = text.split('.').map(|p| p.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Stays on the first CPU: small files share a space by CPU.
fn stay_on_one_cpu() {
    let me = std::fs::read_link("/proc/thread-self").expect("Linux");
    let tid = me.file_name().expect("a number").to_string_lossy().into_owned();
    assert!(tool("taskset", &["-pc", "0", &tid]).is_some_and(|r| r.0), "taskset");
}

/// A loop device; it goes with this.
struct Loop(String);

impl Loop {
    fn new(image: &str, rotates: bool) -> Result<Loop, String> {
        let (ok, text) = tool("losetup", &["-f", "--show", image]).ok_or("no losetup")?;
        if !ok {
            return Err(text);
        }
        let device = Loop(text.trim().to_owned());
        let name = device.0.trim_start_matches("/dev/").to_owned();
        let setting = format!("/sys/block/{name}/queue/rotational");
        std::fs::write(&setting, if rotates { "1" } else { "0" })
            .map_err(|e| format!("{setting}: {e}"))?;
        Ok(device)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(tool("losetup", &["-d", &self.0]));
    }
}

/// Runs of a class on the host. While another program fills the page cache the host's flusher may
/// begin in the middle of a file, which then lies in two pieces.
const HOST_RUNS: usize = 3;

/// What one side did: an answer for each call, and the places of each name.
#[derive(PartialEq)]
struct Side {
    answers: Vec<Option<u64>>,
    places: BTreeMap<String, (String, String)>,
}

/// What a class came to: names; how many of them differ in inode number or extents, and in blocks
/// of the extent tree; the first difference.
struct Outcome {
    names: usize,
    data: usize,
    nodes: usize,
    /// Some call had another answer.
    answers: bool,
    note: String,
}

impl Outcome {
    fn new(names: &[String], ops: &[Op], here: &Side, there: &Side) -> Outcome {
        let (mut note, mut answers) = (String::new(), false);
        for (n, (a, b)) in here.answers.iter().zip(&there.answers).enumerate() {
            if a != b {
                answers = true;
                note = format!("call {n} {:?}: here {a:?}, there {b:?}; ", ops[n]);
                break;
            }
        }
        let (a, b) = (&here.places, &there.places);
        let differ: Vec<&String> = names.iter().filter(|n| a[*n].0 != b[*n].0).collect();
        let nodes: Vec<&String> = names.iter().filter(|n| a[*n].1 != b[*n].1).collect();
        for n in differ.iter().chain(&nodes).take(1) {
            note += &format!("{n}:\n    here  {:?}\n    there {:?}", a[*n], b[*n]);
        }
        Outcome { names: names.len(), data: differ.len(), nodes: nodes.len(), answers, note }
    }

    /// Is everything equal that must be?
    fn agrees(&self, class: &str) -> bool {
        let nodes = if TIMED_NODES.contains(&class) { 0 } else { self.nodes };
        self.data + nodes == 0 && !self.answers
    }
}

/// Runs a program on the host, on a copy of image `made`.
fn on_the_host(
    dir: &Path,
    made: &Path,
    (rotates, ops, names): (bool, &[Op], &[String]),
) -> Result<Side, String> {
    let (image, at) = (dir.join("there"), dir.join("mnt"));
    std::fs::create_dir_all(&at).expect("made");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let made = made.display().to_string();
    assert!(tool("cp", &["--sparse=always", &made, &i]).expect("cp exists").0, "{made} copied");
    let device = Loop::new(&i, rotates)?;
    let (ok, text) =
        tool("mount", &["-o", "commit=3600", "-t", "ext4", &device.0, &m]).expect("mount exists");
    if !ok {
        return Err(text);
    }
    std::thread::sleep(Duration::from_millis(5600));
    let answers = theirs(&at, ops).into_iter().map(Result::ok).collect();
    unmount(&m);
    drop(device);
    Ok(Side { answers, places: places(&i, names) })
}

/// Runs a program here, on what image `made` holds.
fn here(dir: &Path, made: &Path, class: &Class, ops: &[Op], names: &[String]) -> Side {
    let (name, mib, _, rotates, _) = class;
    let start = files::load(made).expect("read").0;
    let cpus = possible_cpus();
    let options = format!("era=6.18,commit=3600,cpus={cpus},rotational={rotates}");
    let here = machine(&options, *mib, start);
    let vfs = here.mount().expect("mounts");
    let (v, todo) = (vfs.clone(), ops.to_vec());
    let answers = here
        .block_on("program", async move {
            v.rt().sleep(Span::millis(5600)).await;
            let mut open = BTreeMap::new();
            let mut out = Vec::new();
            for op in &todo {
                out.push(one(&v, &mut open, op).await.ok());
            }
            out
        })
        .expect("runs");
    here.unmount(&vfs).expect("unmounts");
    let ours = dir.join("ours");
    files::save(&here.view().medium, Sector(0), mib << 20, &ours).expect("saved");
    drop(vfs);
    here.rt.cut();
    let o = ours.display().to_string();
    let (clean, text) = tool("e2fsck", &["-fn", &o]).expect("e2fsck exists");
    assert!(clean, "{name}: e2fsck says\n{text}");
    let places = places(&o, names);
    assert_eq!(places.len(), names.len(), "{name}");
    Side { answers, places }
}

/// What a class came to, with the host's runs that it took; without an outcome if no two of the
/// host's runs agree and none with ours.
fn compare(class: &Class) -> Result<(Option<Outcome>, usize), String> {
    let (name, mib, args, rotates, program) = class;
    let seed = std::env::var("PLACEMENT_SEED").ok().and_then(|n| n.parse().ok());
    let mut s = Script::new(seed.unwrap_or(7));
    program(&mut s);
    let ops = s.ops;
    let mut names: Vec<String> = Vec::new();
    for op in &ops {
        match op {
            Op::Mkdir(n) | Op::Open(n) if !names.contains(n) => names.push(n.clone()),
            _ => {}
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let made = dir.path().join("made");
    File::create(&made).and_then(|f| f.set_len(mib << 20)).expect("made");
    let path = made.display().to_string();
    let mut all: Vec<&str> = vec!["-q", "-F", "-E", "lazy_itable_init=0"];
    all.extend(args.split_whitespace());
    all.push(&path);
    assert!(tool("mkfs.ext4", &all).expect("mkfs.ext4 exists").0, "{name}");

    let ours = here(dir.path(), &made, class, &ops, &names);
    let mut seen: Vec<Side> = Vec::new();
    for run in 1..=HOST_RUNS {
        let theirs = on_the_host(dir.path(), &made, (*rotates, &ops, &names))?;
        let outcome = Outcome::new(&names, &ops, &ours, &theirs);
        if outcome.agrees(name) || seen.contains(&theirs) {
            return Ok((Some(outcome), run));
        }
        println!("{name}, run {run} on the host: {}", outcome.note);
        seen.push(theirs);
    }
    Ok((None, HOST_RUNS))
}

#[test]
fn files_lie_where_the_host_kernel_puts_them() {
    let check = "placement as on the host kernel";
    if host_version() != Some((6, 18)) {
        skipped(check, "the host's kernel is not 6.18");
        return;
    }
    let only = std::env::var("PLACEMENT_ONLY").unwrap_or_default();
    stay_on_one_cpu();
    let (mut wrong, mut names) = (Vec::new(), 0);
    for class in CLASSES.iter().filter(|c| c.0.contains(&only)) {
        match compare(class) {
            Ok((Some(o), runs)) => {
                println!(
                    "{:<34} {:>4} of {:>4} names equal, {:>3} with other tree blocks, {runs} runs \
                     on the host; {}",
                    class.0,
                    o.names - o.data,
                    o.names,
                    o.nodes,
                    o.note
                );
                names += o.names;
                if !o.agrees(class.0) {
                    wrong.push(class.0);
                }
            }
            Ok((None, runs)) => {
                let why = format!("each of {runs} runs on the host placed files otherwise");
                skipped(&format!("{check}: {}", class.0), &why);
            }
            Err(why) => {
                skipped(check, &format!("this host cannot mount an image: {why}"));
                return;
            }
        }
    }
    println!("{names} names");
    assert!(wrong.is_empty(), "not as on the host: {wrong:?}");
    assert!(names > 0, "no class could be compared");
}
