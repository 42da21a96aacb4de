//! 4 KiB I/O per CPU-second through the whole stack: system call, ext4 with its journal or F2FS,
//! cache, block layer and SSD model, contents kept. An operation is what a row says before its
//! semicolon; what follows that is counted in the time and not as operations.
//!
//! `cargo bench -p wp-machine --bench fs [-- --json] [--fs f2fs] [--elevator mq-deadline] [--only
//! overwrite] [--times 2]`. Of F2FS with mq-deadline: its eras have no cfq.
//! Preset `ssd-128`, no modelled CPU costs, nothing recorded. The bar is 300,000 a CPU-second.

use std::fmt::Write;
use std::future::Future;

use wp_base::{Rng, Sector};
use wp_machine::registry;
use wp_machine::{Machine, MachineSpec};
use wp_medium::Slice;
use wp_rt::CpuModel;
use wp_vfs::{Fd, FsEntry, OpenFlags, Options, Vfs};

#[global_allocator]
static ALLOCATOR: wp_machine::memory::Allocator = wp_machine::memory::Allocator;

/// Nanoseconds of CPU time of this thread, so that a busy machine matters little.
fn cpu_ns() -> u64 {
    // The kernel counts at its ticks, every 4 ms, and where a thread gives way.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("this kernel has schedstat")
}

/// A file system and an elevator.
#[derive(Clone, Copy)]
struct On<'a> {
    fs: &'static FsEntry,
    elevator: &'a str,
}

fn spec(on: On<'_>) -> MachineSpec {
    let On { fs, elevator } = on;
    let kernel = match (fs.name, elevator) {
        ("f2fs", _) => "6.12",
        (_, "cfq") => "4.6",
        _ => "5.10",
    };
    let fs_options = Options::parse(&format!("era={kernel}"), fs.options).expect("an era");
    let numbers: Vec<u16> = kernel.split('.').filter_map(|n| n.parse().ok()).collect();
    MachineSpec {
        seed: 1,
        cpu: CpuModel::free(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: elevator.to_owned(),
        start: Sector(2048),
        sectors: Some(8 << 21),
        fs,
        fs_options,
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (numbers[0], numbers[1]),
    }
}

/// I/O per CPU-second of `run`, which says how many it did. `prepare` is not counted.
fn measure<P, R>(
    on: On<'_>,
    prepare: impl FnOnce(Vfs) -> P + 'static,
    run: impl FnOnce(Vfs, Vec<Fd>) -> R + 'static,
) -> f64
where
    P: Future<Output = Vec<Fd>> + 'static,
    R: Future<Output = u64> + 'static,
{
    let machine = Machine::new(spec(on), None).expect("a machine");
    let vfs = machine.mount().expect("mounts");
    let fds = machine.block_on("prepare", prepare(vfs.clone())).expect("prepares");
    let begin = cpu_ns();
    // A clone: with the last one the file system goes, which is not the run's.
    let done = machine.block_on("run", run(vfs.clone(), fds)).expect("runs");
    let rate = done as f64 * 1e9 / (cpu_ns() - begin) as f64;
    machine.rt.cut();
    rate
}

/// How many times as long as usual the rows with a bar are: `--times`. What a profiler counts more
/// of 2 than of 1 is theirs, without the way there.
fn times() -> u64 {
    let mut args = std::env::args().skip_while(|a| a != "--times").skip(1);
    args.next().map_or(1, |n| n.parse().expect("a number"))
}

async fn nothing(_: Vfs) -> Vec<Fd> {
    Vec::new()
}

fn page(tag: u64, n: u64) -> [Slice; 1] {
    [Slice::pattern(tag, n * 4096, 4096)]
}

/// 20,000 files of one block each, made, written and closed; then a sync.
async fn create(vfs: Vfs, _: Vec<Fd>) -> u64 {
    const FILES: u64 = 1000;
    let dirs = 20 * times();
    let mut name = String::new();
    for d in 0..dirs {
        name.clear();
        write!(name, "d{d}").expect("strings grow");
        vfs.mkdir(&name, 0o755).await.expect("made");
        let in_dir = name.len();
        for f in 0..FILES {
            name.truncate(in_dir);
            write!(name, "/f{f}").expect("strings grow");
            let fd = vfs.open(&name, OpenFlags::CREATE, 0o644).await.expect("made");
            vfs.pwrite(fd, 0, &page(d, f)).await.expect("written");
            vfs.close(fd).await.expect("closed");
        }
    }
    vfs.sync().await.expect("synced");
    dirs * FILES
}

/// 100 files of 1 MiB, made, written from their start to their end in 256 calls and closed; then a
/// sync.
async fn append(vfs: Vfs, _: Vec<Fd>) -> u64 {
    const FILES: u64 = 100;
    const CALLS: u64 = 256;
    for f in 0..FILES {
        let fd = vfs.open(&format!("f{f}"), OpenFlags::CREATE, 0o644).await.expect("made");
        for n in 0..CALLS {
            vfs.write(fd, &page(f, n)).await.expect("written");
        }
        vfs.close(fd).await.expect("closed");
    }
    vfs.sync().await.expect("synced");
    FILES * CALLS
}

/// One file of 64 MiB in each of `count`.
async fn filled(vfs: Vfs, count: u64) -> Vec<Fd> {
    let mut fds = Vec::new();
    for i in 0..count {
        let name = format!("f{i}");
        let flags = OpenFlags::CREATE;
        let fd = vfs.open(&name, flags, 0o644).await.expect("made");
        for n in 0..PAGES {
            vfs.pwrite(fd, n * 4096, &page(100 + i, n)).await.expect("written");
        }
        fds.push(fd);
    }
    vfs.sync().await.expect("synced");
    fds
}

const PAGES: u64 = 16_384;

/// filebench's mail server with 8 threads, 1500 times through the list each, and its layout.
async fn varmail(vfs: Vfs, _: Vec<Fd>) -> u64 {
    let personality = wp_workload::filebench::varmail(8);
    let length = wp_workload::filebench::RunLength::Loops(1500);
    let found = wp_workload::filebench::run(&vfs, &personality, length, 1).await.expect("it runs");
    found.operations()
}

/// Random overwrites in the cache; the flusher and one sync at the end write them.
async fn overwrite(vfs: Vfs, fds: Vec<Fd>) -> u64 {
    const COUNT: u64 = 400_000;
    let mut rng = Rng::stream(3, "fs");
    for n in 0..COUNT {
        vfs.pwrite(fds[0], rng.below(PAGES) * 4096, &page(7, n)).await.expect("written");
    }
    vfs.sync().await.expect("synced");
    COUNT
}

/// Random overwrites, each followed by an fsync, by as many tasks as there are files.
async fn overwrite_fsync(vfs: Vfs, fds: Vec<Fd>) -> u64 {
    let count = 10_000 * times();
    let tasks = fds.len() as u64;
    let rt = vfs.rt().clone();
    let all: Vec<_> = (0u64..)
        .zip(fds)
        .map(|(i, fd)| {
            let vfs = vfs.clone();
            rt.spawn("io", async move {
                let mut rng = Rng::stream(i, "fs");
                for n in 0..count {
                    let at = rng.below(PAGES) * 4096;
                    vfs.pwrite(fd, at, &page(9 + i, n)).await.expect("written");
                    vfs.fsync(fd).await.expect("durable");
                }
            })
        })
        .collect();
    for task in all {
        task.await;
    }
    count * tasks
}

/// Random overwrites past the cache.
async fn overwrite_direct(vfs: Vfs, _: Vec<Fd>) -> u64 {
    let count = 50_000 * times();
    let flags = OpenFlags { direct: true, ..OpenFlags::WRITE };
    let fd = vfs.open("f0", flags, 0).await.expect("opened");
    let mut rng = Rng::stream(5, "fs");
    for n in 0..count {
        vfs.pwrite(fd, rng.below(PAGES) * 4096, &page(8, n)).await.expect("written");
    }
    count
}

/// Reads in order of what the cache holds.
async fn read(vfs: Vfs, fds: Vec<Fd>) -> u64 {
    for n in 0..16 * PAGES {
        let got = vfs.pread(fds[0], n % PAGES * 4096, 4096).await.expect("read");
        assert_eq!(got[0].len(), 4096);
    }
    16 * PAGES
}

fn main() {
    wp_machine::memory::keep_freed();
    let args: Vec<String> = std::env::args().collect();
    let chosen = args.iter().position(|a| a == "--elevator").and_then(|i| args.get(i + 1));
    let only = args.iter().position(|a| a == "--only").and_then(|i| args.get(i + 1));
    let fs = args.iter().position(|a| a == "--fs").and_then(|i| args.get(i + 1));
    let wanted = |key: &str| only.is_none_or(|only| only == key);
    let json = args.iter().any(|a| a == "--json");
    let mut fields = Vec::new();
    for entry in registry::FILE_SYSTEMS.iter().copied().filter(|e| e.mount.is_some()) {
        if fs.is_some_and(|fs| fs != entry.name) {
            continue;
        }
        let default = if entry.name == "f2fs" { "mq-deadline" } else { "cfq" };
        let elevator = chosen.map_or(default, String::as_str);
        let rows = calls(On { fs: entry, elevator }, &wanted);
        fields.extend(rows.iter().map(|r| format!("\"{}_{}_per_s\": {:.0}", entry.name, r.0, r.2)));
        if !json && !rows.is_empty() {
            let name = entry.name;
            println!(
                "{name} on {elevator} and the SSD model, 4 KiB, contents kept, per CPU-second:"
            );
            for (_, what, rate) in rows {
                println!("  {what:<58} {rate:>10.0}");
            }
        }
    }
    if json {
        println!("{{{}}}", fields.join(", "));
    }
}

/// Key, what an operation is, and how many a CPU-second.
type Row = (&'static str, &'static str, f64);

fn best(f: &dyn Fn() -> f64) -> f64 {
    (0..3).map(|_| f()).fold(0.0, f64::max)
}

fn calls(on: On<'_>, wanted: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let all: [(&'static str, &'static str, &dyn Fn() -> f64); 8] = [
        ("create_write", "create, write 4 KiB, close (a file); sync", &|| {
            measure(on, nothing, create)
        }),
        ("append", "append 4 KiB, new file of 1 MiB; sync", &|| measure(on, nothing, append)),
        ("overwrite", "random buffered overwrite; sync", &|| {
            measure(on, |v| filled(v, 1), overwrite)
        }),
        ("read", "buffered read, cached", &|| measure(on, |v| filled(v, 1), read)),
        ("overwrite_fsync", "random overwrite and fsync, 1 task", &|| {
            measure(on, |v| filled(v, 1), overwrite_fsync)
        }),
        ("overwrite_fsync_8", "random overwrite and fsync, 8 tasks", &|| {
            measure(on, |v| filled(v, 8), overwrite_fsync)
        }),
        ("overwrite_direct", "random overwrite with O_DIRECT", &|| {
            measure(on, |v| filled(v, 1), overwrite_direct)
        }),
        ("varmail_8", "filebench's varmail, 8 threads (a flowop); its files made", &|| {
            measure(on, nothing, varmail)
        }),
    ];
    let wanted = all.into_iter().filter(|(key, _, _)| wanted(key));
    wanted.map(|(key, what, run)| (key, what, best(run))).collect()
}
