//! Direct overwrites beside real kernels: the same calls on file systems of the same size give each
//! block the same address, before and after, and send as much.
//!
//! What was run is not written down in `testdata/reference/direct-io`; it was found by what it
//! left: devices of 700 MiB (mke2fs' reserved group descriptors and the places of F2FS' first
//! segments fit no other round size), and on each, in this order, files of 16 MiB that fio fills
//! with direct writes of 1 MiB and an fsync, and writes over with 256 writes of 4 KiB, 256 of 64
//! KiB (of which nothing is recorded) and 16 of 1 MiB, in order and at random, and then a `syncfs`.
//! The recorded window begins with the overwrites and ends behind the `syncfs`. Kernels: ext4 and
//! btrfs 6.18 (ours is of 6.12), F2FS 6.12, NILFS2 6.1. How much time went by is not known, so
//! timers may have fired elsewhere ([`RESTS`], [`DIFFERENCES`]).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use wp_base::event::{BlockAction, Class, Event, Flags, Op, Record};
use wp_base::{Sector, Span};
use wp_machine::profile::PROFILES;
use wp_machine::testing::reference;
use wp_machine::{Machine, MachineSpec};
use wp_medium::{Overlay, View};
use wp_vfs::{FsEntry, OpenFlags, Options, Vfs};
use wp_workload::fio;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Blocks of a file.
const BLOCKS: u64 = 16 * MIB / BLOCK;

/// A file system of the recorded runs: its name there, ours, and what fills its files besides.
struct System {
    name: &'static str,
    fs: &'static FsEntry,
    options: &'static str,
    kernel: (u16, u16),
    /// fio reserves the space of a new file where it can.
    fill: &'static str,
}

const SYSTEMS: [System; 6] = [
    System {
        name: "ext4",
        fs: &wp_ext4::ENTRY,
        options: "era=6.18",
        kernel: (6, 18),
        fill: "fallocate=native",
    },
    System {
        name: "btrfs",
        fs: &wp_btrfs::ENTRY,
        options: "era=6.12.117,metadata=single",
        kernel: (6, 12),
        fill: "fallocate=native",
    },
    System {
        name: "btrfs-nodatacow",
        fs: &wp_btrfs::ENTRY,
        options: "era=6.12.117,metadata=single,nodatacow",
        kernel: (6, 12),
        fill: "fallocate=native",
    },
    System {
        name: "f2fs",
        fs: &wp_f2fs::ENTRY,
        options: "era=6.12.117",
        kernel: (6, 12),
        fill: "fallocate=native",
    },
    System {
        name: "f2fs-lfs",
        fs: &wp_f2fs::ENTRY,
        options: "era=6.12.117,mode=lfs",
        kernel: (6, 12),
        fill: "fallocate=native",
    },
    System {
        name: "nilfs2",
        fs: &wp_nilfs2::ENTRY,
        options: "era=6.1",
        kernel: (6, 1),
        fill: "fallocate=none",
    },
];

/// Sizes of a write, how many there are, and the name of that in the recorded runs.
const SIZES: [(u64, u64, &str); 3] =
    [(4 << 10, 256, "4k"), (64 << 10, 256, "64k"), (MIB, 16, "1m")];

/// Seconds that went by between a fill and its window, and between the overwrites and the `syncfs`,
/// where what was written tells; nothing elsewhere.
const RESTS: &[(&str, [u64; 2])] = &[
    // Of the fill's metadata nothing is left to be written in the window: the flusher had been
    // there.
    ("ext4 1m write", [40, 0]),
    // A `syncfs` that finds no transaction flushes the device itself: the journal's timer (5 s) had
    // committed it.
    ("ext4 1m randwrite", [0, 6]),
];

const FLUSHER: &str = "the flusher's turn came within the window there: it wrote the fill's \
                       metadata, which the syncfs writes here";
const TWICE: &str = "as above; and it wrote the inode's block as the window began, so that the \
                     syncfs had it to write again";
const NEIGHBOUR: &str = "one bio fewer begins where another ended; which is not recorded";
const RACE: &str = "the flusher and the thread of checkpoints share the metadata between them, and \
                    the sum is always the same";
const FEWER: &str = "one block of metadata fewer there: not known why";
const LATE: &str = "an inode's item is written late there, by the commit (btrfs_delayed_update_inode), \
                    which copies the leaf once more that the flusher had sent; and so the flusher \
                    of the syncfs may find nothing yet";
const TREES: &str = "as for nodatacow; what else the flusher and the commit have to send depends on \
                     when the last commit was, in the rounds before and the fill, which is not \
                     recorded";
const FLUSH: &str = "above 3600 dirty blocks the thread writes what a write has so far: 20 blocks \
                     of the 15th in 1m write here and there, 20 here and 54 there in randwrite, a \
                     race; and one block of metadata more in the rounds of 64 KiB, which are not \
                     recorded";
const SEGMENTS: &str = "pages that lie side by side in memory share a segment \
                        of a bio there, so that a log of 258 blocks may be one bio, not two";

/// What differs, as `system round field: ours, theirs`, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("ext4 4k write by kworker: 0, 5", FLUSHER),
    ("ext4 4k write by wl: 6, 1", FLUSHER),
    ("ext4 4k randwrite bios: 264, 265", TWICE),
    ("ext4 4k randwrite by kworker: 0, 5", TWICE),
    ("ext4 4k randwrite by wl: 5, 1", TWICE),
    ("ext4 4k randwrite pages: 264, 265", TWICE),
    ("ext4 1m randwrite seq_bios: 5, 4", NEIGHBOUR),
    ("btrfs 4k write bios: 271, 275", TREES),
    ("btrfs 4k write by kworker: 28, 36", TREES),
    ("btrfs 4k write by wl: 22, 30", TREES),
    ("btrfs 4k write pages: 306, 322", TREES),
    ("btrfs 4k write seq_bios: 266, 270", TREES),
    ("btrfs 4k randwrite bios: 277, 284", TREES),
    ("btrfs 4k randwrite by kworker: 44, 64", TREES),
    ("btrfs 4k randwrite by wl: 30, 38", TREES),
    ("btrfs 4k randwrite pages: 330, 358", TREES),
    ("btrfs 4k randwrite seq_bios: 271, 278", TREES),
    ("btrfs 1m write bios: 40, 47", TREES),
    ("btrfs 1m write by kworker: 52, 68", TREES),
    ("btrfs 1m write by wl: 34, 46", TREES),
    ("btrfs 1m write pages: 4182, 4210", TREES),
    ("btrfs 1m write seq_bios: 32, 39", TREES),
    ("btrfs 1m randwrite bios: 38, 41", TREES),
    ("btrfs 1m randwrite by kworker: 48, 44", TREES),
    ("btrfs 1m randwrite by wl: 30, 46", TREES),
    ("btrfs 1m randwrite pages: 4174, 4186", TREES),
    ("btrfs 1m randwrite seq_bios: 31, 34", TREES),
    ("btrfs-nodatacow 4k write by kworker: 4, 0", LATE),
    ("btrfs-nodatacow 4k write by wl: 14, 18", LATE),
    ("btrfs-nodatacow 4k randwrite bios: 263, 264", LATE),
    ("btrfs-nodatacow 4k randwrite by wl: 14, 18", LATE),
    ("btrfs-nodatacow 4k randwrite pages: 274, 278", LATE),
    ("btrfs-nodatacow 4k randwrite seq_bios: 2, 3", LATE),
    ("btrfs-nodatacow 1m write by kworker: 4, 0", LATE),
    ("btrfs-nodatacow 1m write by wl: 14, 18", LATE),
    ("btrfs-nodatacow 1m randwrite bios: 23, 24", LATE),
    ("btrfs-nodatacow 1m randwrite by wl: 14, 18", LATE),
    ("btrfs-nodatacow 1m randwrite pages: 4114, 4118", LATE),
    ("btrfs-nodatacow 1m randwrite seq_bios: 4, 5", LATE),
    ("f2fs 4k write by f2fs_ckpt: 4, 5", RACE),
    ("f2fs 4k write by kworker: 13, 12", RACE),
    ("f2fs 4k randwrite by f2fs_ckpt: 5, 4", RACE),
    ("f2fs 4k randwrite by kworker: 12, 13", RACE),
    ("f2fs 1m write by f2fs_ckpt: 4, 5", RACE),
    ("f2fs 1m write by kworker: 13, 12", RACE),
    ("f2fs 1m randwrite by f2fs_ckpt: 4, 5", RACE),
    ("f2fs 1m randwrite by kworker: 13, 12", RACE),
    ("f2fs-lfs 4k write by f2fs_ckpt: 4, 5", RACE),
    ("f2fs-lfs 4k write by kworker: 13, 12", RACE),
    ("f2fs-lfs 4k randwrite by f2fs_ckpt: 4, 5", RACE),
    ("f2fs-lfs 4k randwrite by kworker: 18, 17", RACE),
    ("f2fs-lfs 1m write bios: 27, 26", FEWER),
    ("f2fs-lfs 1m write by kworker: 25, 24", FEWER),
    ("f2fs-lfs 1m write pages: 4125, 4124", FEWER),
    ("f2fs-lfs 1m randwrite by f2fs_ckpt: 5, 6", RACE),
    ("f2fs-lfs 1m randwrite by kworker: 25, 24", RACE),
    ("nilfs2 1m write all blocks further on before: 1, 0", FLUSH),
    ("nilfs2 1m write blocks elsewhere before: 1, 0", FLUSH),
    ("nilfs2 1m write all blocks further on after: 1, 0", FLUSH),
    ("nilfs2 1m write blocks elsewhere after: 2, 0", FLUSH),
    ("nilfs2 1m write bios: 36, 28", SEGMENTS),
    ("nilfs2 1m write seq_bios: 32, 24", SEGMENTS),
    ("nilfs2 1m randwrite all blocks further on before: 1, 0", FLUSH),
    ("nilfs2 1m randwrite blocks elsewhere before: 2, 0", FLUSH),
    ("nilfs2 1m randwrite all blocks further on after: 1, 0", FLUSH),
    ("nilfs2 1m randwrite blocks elsewhere after: 494, 0", FLUSH),
    ("nilfs2 1m randwrite bios: 36, 28", SEGMENTS),
    ("nilfs2 1m randwrite by segctord: 374, 373", FLUSH),
    ("nilfs2 1m randwrite pages: 4245, 4244", FLUSH),
    ("nilfs2 1m randwrite seq_bios: 32, 24", SEGMENTS),
];

/// Consecutive blocks of a file in consecutive places: first block, first place, blocks.
type Extent = (u64, u64, u64);

/// A bio: sector, sectors, task without numbers.
type Sent = (u64, u64, String);

/// A round of overwrites.
struct Round {
    before: Vec<Extent>,
    after: Vec<Extent>,
    /// Writes, in the order in which they were queued.
    writes: Vec<Sent>,
    /// Counts as in the recorded summary.
    counts: BTreeMap<String, u64>,
    /// Logs of NILFS2 that fio wrote.
    logs: usize,
}

fn machine(system: &System) -> Machine {
    let spec = MachineSpec {
        seed: 1,
        cpu: PROFILES[1].model(),
        device: "sata-disk-nofua".to_owned(),
        device_params: vec![("capacity_bytes".to_owned(), 700 * MIB)],
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs: system.fs,
        fs_options: Options::parse(system.options, system.fs.options).expect("options"),
        disk: "loop0".to_owned(),
        device_number: (7, 0),
        kernel: system.kernel,
    };
    Machine::new(spec, None).expect("a machine")
}

/// Where the blocks of a file lie: what recovery would find.
fn extents(m: &Machine, name: &str) -> Vec<Extent> {
    let (view, spec) = (m.view(), m.spec());
    let survey = (spec.fs.survey)(&Overlay::new(&view), &spec.fs_options).expect("is sound");
    let file = survey.files.iter().find(|f| f.path == name).expect("the file");
    joined(file.map.iter().map(|r| (r.at / BLOCK, r.place / BLOCK, r.bytes / BLOCK)))
}

fn joined(all: impl Iterator<Item = Extent>) -> Vec<Extent> {
    let mut out: Vec<Extent> = Vec::new();
    for (at, place, n) in all {
        match out.last_mut() {
            Some(l) if l.0 + l.2 == at && l.1 + l.2 == place => l.2 += n,
            _ => out.push((at, place, n)),
        }
    }
    out
}

/// Does a log of NILFS2 begin at a sector?
fn begins_log(m: &Machine, sector: u64) -> bool {
    let mut magic = [0; 4];
    m.view().read_at(sector * 512 + 8, &mut magic).expect("on the device");
    u32::from_le_bytes(magic) == 0x1eaf_fa11
}

/// The place of each block.
fn places(all: &[Extent]) -> Vec<u64> {
    let each = all.iter().flat_map(|(_, place, n)| *place..place + n);
    each.collect()
}

/// A task without its numbers: `fio/1`, `jbd2/loop0-8`, `f2fs_ckpt-7:0`, `kworker/u4:1`.
fn task(name: &str) -> String {
    name.split(['/', '-', ':']).next().unwrap_or(name).to_owned()
}

async fn job(v: Vfs, text: String) {
    let jobs = fio::parse("job", text.as_bytes(), &|_| None, &fio::Variables::default());
    assert!(!jobs.has_errors(), "{}", jobs.rendered());
    fio::run(&v, &jobs, fio::RunOptions::default()).await.expect("runs");
}

fn round(
    system: &System,
    m: &Machine,
    vfs: &Vfs,
    (bytes, n, size): (u64, u64, &str),
    how: &str,
) -> Round {
    let name = format!("{size}-{how}");
    let head = format!("[job]\nfilename={name}\nsize=16m\ndirect=1\n");
    let fill = format!("{head}rw=write\nbs=1m\nend_fsync=1\n{}\n", system.fill);
    m.block_on("fio", job(vfs.clone(), fill)).expect("goes on");
    let place = format!("{} {size} {how}", system.name);
    let rests = RESTS.iter().find(|(p, _)| *p == place).map_or([0, 0], |(_, rests)| *rests);
    rest(m, vfs, rests[0]);
    let before = extents(m, &name);
    m.record(Class::BLOCK);
    let over = format!("{head}rw={how}\nbs={bytes}\nio_size={}\n", bytes * n);
    m.block_on("fio", job(vfs.clone(), over)).expect("goes on");
    rest(m, vfs, rests[1]);
    let (v, path) = (vfs.clone(), format!("/{name}"));
    let sync = async move {
        let fd = v.open(&path, OpenFlags::READ, 0).await.expect("opens");
        v.syncfs(fd).await.expect("syncs");
        v.close(fd).await.expect("closes");
    };
    m.block_on("wl", sync).expect("goes on");
    m.record(Class(0));
    let (writes, counts) = counted(&m.rt.probe().take());
    let logs = writes.iter().filter(|w| w.2 == "fio" && begins_log(m, w.0)).count();
    Round { before, after: extents(m, &name), writes, counts, logs }
}

fn rest(m: &Machine, vfs: &Vfs, seconds: u64) {
    let rt = vfs.rt().clone();
    m.block_on("sleep", async move { rt.sleep(Span::secs(seconds)).await }).expect("goes on");
}

fn counted(records: &[Record]) -> (Vec<Sent>, BTreeMap<String, u64>) {
    let (mut writes, mut counts, mut last) = (Vec::new(), BTreeMap::new(), None);
    let mut count = |what: &str, n: u64| *counts.entry(what.to_owned()).or_default() += n;
    for r in records {
        let Event::Block { action: BlockAction::Queue, op, flags, at, sectors, .. } = r.event
        else {
            continue;
        };
        let (sectors, is_write) = (u64::from(sectors), op == Op::Write && sectors > 0);
        count("bios", u64::from(is_write || op == Op::Flush));
        // As the summary counts them: what has an F among its flags.
        let is_flush = [Flags::PREFLUSH, Flags::FUA].iter().any(|f| flags.has(*f));
        count("flushes", u64::from(op == Op::Flush || is_flush));
        if is_write {
            count("pages", sectors / 8);
            count("seq_bios", u64::from(last == Some(at.0)));
            last = Some(at.0 + sectors);
            count(&format!("by {}", task(&r.task)), sectors / 8);
            writes.push((at.0, sectors, task(&r.task)));
        }
    }
    (writes, counts)
}

/// What is recorded of a round.
struct Recorded {
    before: Vec<Extent>,
    after: Vec<Extent>,
    /// The first writes; nothing for 1 MiB.
    writes: Vec<Sent>,
    counts: BTreeMap<String, u64>,
    has_moved: bool,
}

fn text(path: &Path) -> String {
    let file = std::fs::File::open(path).expect("opens");
    let mut out = String::new();
    zstd::Decoder::new(file).and_then(|mut d| d.read_to_string(&mut out)).expect("reads");
    out
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn recorded(dir: &Path, system: &str, size: &str, how: &str) -> Recorded {
    let map = |when: &str| {
        let text = text(&dir.join(format!("{system}-{size}-{how}.{when}.zst")));
        joined(text.lines().map(|l| {
            let f: Vec<u64> = l.split_whitespace().map(number).collect();
            (f[0], f[2], f[4])
        }))
    };
    let trace = dir.join(format!("{system}-{size}-{how}.bp.txt.zst"));
    let trace = if trace.exists() { text(&trace) } else { String::new() };
    let queued = trace.lines().filter_map(|l| {
        let f: Vec<&str> = l.split_whitespace().collect();
        let is_write = f[5] == "Q" && f[6].contains('W');
        is_write.then(|| (number(f[7]), number(f[9]), task(f[10].trim_matches(['[', ']']))))
    });
    let summary = std::fs::read_to_string(dir.join("summary.txt")).expect("reads");
    let start = format!("{system} bs={size} {how} ");
    let line = summary.lines().find(|l| l.starts_with(&start)).expect("that round");
    let mut counts = BTreeMap::new();
    for word in line.split_whitespace() {
        if let Some((key, n)) = word
            .split_once('=')
            .filter(|(key, _)| key.ends_with("s") && *key != "bs" && *key != "iops")
        {
            counts.insert(key.to_owned(), number(n));
        } else if let Some((who, n)) = word.rsplit_once(':').filter(|(who, _)| who.starts_with('['))
        {
            counts.insert(format!("by {}", task(who.trim_matches(['[', ']']))), number(n));
        }
    }
    Recorded {
        before: map("before"),
        after: map("after"),
        writes: queued.collect(),
        counts,
        has_moved: line.contains(" MOVED "),
    }
}

/// By how much most of the places differ, and how many differ by something else.
fn shifted(ours: &[u64], theirs: &[u64]) -> (i64, u64) {
    let by = |(x, y): (&u64, &u64)| *x as i64 - *y as i64;
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    ours.iter().zip(theirs).for_each(|pair| *counts.entry(by(pair)).or_default() += 1);
    let (most, n) = counts.into_iter().max_by_key(|(_, n)| *n).expect("files of some blocks");
    (most, ours.len() as u64 - n)
}

/// How two rounds differ, as `field: ours, theirs`.
fn differences(ours: &Round, theirs: &Recorded) -> Vec<String> {
    let mut out = Vec::new();
    let [a, b] = [&ours.before, &ours.after].map(|m| places(m));
    let [c, d] = [&theirs.before, &theirs.after].map(|m| places(m));
    assert!([&a, &b, &c, &d].iter().all(|m| m.len() as u64 == BLOCKS), "files without holes");
    let moved =
        |x: &[u64], y: &[u64]| -> Vec<bool> { x.iter().zip(y).map(|(x, y)| x != y).collect() };
    let (mine, other) = (moved(&a, &b), moved(&c, &d));
    let wrong = mine.iter().zip(&other).filter(|(x, y)| x != y).count();
    assert_eq!(other.contains(&true), theirs.has_moved, "the summary's word");
    let mut tell = |what: &str, ours: u64, theirs: u64| {
        if ours != theirs {
            out.push(format!("{what}: {ours}, {theirs}"));
        }
    };
    tell("blocks that move here or there only", wrong as u64, 0);
    for (when, x, y) in [("before", &a, &c), ("after", &b, &d)] {
        let (by, elsewhere) = shifted(x, y);
        tell(&format!("all blocks further on {when}"), by as u64, 0);
        tell(&format!("blocks elsewhere {when}"), elsewhere, 0);
    }
    tell("extents before", ours.before.len() as u64, theirs.before.len() as u64);
    tell("extents after", ours.after.len() as u64, theirs.after.len() as u64);
    let by_fio =
        |all: &[Sent]| -> Vec<Sent> { all.iter().filter(|s| s.2 == "fio").cloned().collect() };
    let (mine, other) = (by_fio(&ours.writes), by_fio(&theirs.writes));
    let same = mine.iter().zip(&other).filter(|(x, y)| x == y).count();
    tell("fio's first bios as there", same as u64, other.len() as u64);
    let mut fields: Vec<&String> = ours.counts.keys().chain(theirs.counts.keys()).collect();
    fields.sort();
    fields.dedup();
    for field in fields {
        let of = |c: &BTreeMap<String, u64>| c.get(field).copied().unwrap_or(0);
        tell(field, of(&ours.counts), of(&theirs.counts));
    }
    out
}

/// In how many pieces the writes that moved blocks lie: a log each, and one more where a segment of
/// NILFS2 ends within one.
fn pieces(before: &[Extent], after: &[Extent], bytes: u64) -> usize {
    let (old, new) = (places(before), places(after));
    let begins =
        |at: usize| (at as u64).is_multiple_of(bytes / BLOCK) || new[at - 1] + 1 != new[at];
    (0..old.len()).filter(|at| old[*at] != new[*at] && begins(*at)).count()
}

#[test]
fn every_block_lies_where_it_does_in_linux_before_and_after_unless_listed() {
    let dir = reference("direct-io");
    let mut found = Vec::new();
    for system in &SYSTEMS {
        let m = machine(system);
        let vfs = m.mount().expect("mounts");
        for size in SIZES {
            for how in ["write", "randwrite"] {
                let ours = round(system, &m, &vfs, size, how);
                let is_nilfs2 = system.name == "nilfs2";
                let logs = pieces(&ours.before, &ours.after, size.0);
                // Where more than 3600 blocks are dirty, the thread writes what is there of one
                // write, and its checkpoint the rest.
                let by_thread = if size.0 * size.1 / BLOCK > 3600 { 2 } else { 0 };
                let expected = if is_nilfs2 { logs - by_thread } else { 0 };
                assert_eq!(ours.logs, expected, "{} {}", size.2, how);
                if size.2 == "64k" {
                    continue;
                }
                let theirs = recorded(&dir, system.name, size.2, how);
                let place = format!("{} {} {how} ", system.name, size.2);
                if is_nilfs2 && size.2 == "4k" {
                    let there = pieces(&theirs.before, &theirs.after, size.0);
                    assert_eq!((logs, there), (256, 256), "a log for each write");
                }
                found.extend(differences(&ours, &theirs).into_iter().map(|d| place.clone() + &d));
            }
        }
    }
    let listed: Vec<&str> = DIFFERENCES.iter().map(|(what, _)| *what).collect();
    assert!(DIFFERENCES.iter().all(|(_, why)| !why.is_empty()));
    assert_eq!(found, listed, "differences, and what is listed:\n{}", found.join("\n"));
}
