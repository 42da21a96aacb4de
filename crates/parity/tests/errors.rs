//! Writes that fail: whom the kernel of this host tells, and what is in the cache afterwards,
//! beside ours of the same version, call by call.
//!
//! The host's device is a loop device over a file on tmpfs in which every block is there but some:
//! those that mkfs left free, or the log's. When the tmpfs is full, a write to such a block fails,
//! and no other does: `fail write fresh 0 always`, `fail write journal 0 always`. It needs root,
//! loop devices and no module.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, OFlags};
use wp_base::Sector;
use wp_campaign::programs::errors;
use wp_campaign::{Bench, play};
use wp_machine::testing::skipped;
use wp_medium::MediumView;
use wp_parity::host_kernel::release;
use wp_testkit::host;
use wp_workload::program::{Call, Program, Step};

/// Bytes of the file system.
const BYTES: u64 = 32 << 20;
/// Bytes of the tmpfs while nothing fails.
const ROOM: u64 = 64 << 20;

/// What a call answered: did it succeed, and for a read which bytes are there.
type Answer = (bool, Option<Vec<u8>>);

fn bench(options: &str) -> Bench {
    let device_params = vec![("capacity_bytes".to_owned(), BYTES)];
    let fresh = Bench::new(&wp_ext4::ENTRY, options).expect("options of ext4");
    Bench { device_params, stale: false, ..fresh }
}

/// Blocks that the host's file does not have at first.
const DATA: &str = "free";
const LOG: &str = "journal";

fn ours(bench: &Bench, program: &Program) -> Vec<Answer> {
    let played = play(bench, program).expect("played");
    let answer = |d: wp_crash::Did| {
        let read = matches!(d.call, Call::Pread { .. }) && d.error.is_none();
        (d.error.is_none(), read.then(|| wp_medium::Slice::concat(&d.read)))
    };
    played.dids.into_iter().map(answer).collect()
}

fn tool(name: &str, args: &[&str]) -> Result<String, String> {
    let out = Command::new(name).args(args).output().map_err(|e| format!("{name}: {e}"))?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).trim().to_owned();
    match out.status.success() {
        true => Ok(text(&out.stdout)),
        false => Err(format!("{name} {}: {}", args.join(" "), text(&out.stderr))),
    }
}

/// The host's ext4 over a tmpfs that can be full.
struct Host {
    dir: tempfile::TempDir,
    image: PathBuf,
    device: Option<String>,
}

impl Host {
    fn new(bench: &Bench, holes: &str) -> Result<Host, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (tmpfs, at) = (dir.path().join("t"), dir.path().join("m"));
        for d in [&tmpfs, &at] {
            std::fs::create_dir(d).map_err(|e| e.to_string())?;
        }
        let image = tmpfs.join("image");
        let mut host = Host { dir, image, device: None };
        tool("mount", &["-t", "tmpfs", "-o", &format!("size={ROOM}"), "none", &host.path("t")])?;
        host.write_image(bench, holes).map_err(|e| e.to_string())?;
        let device = tool("losetup", &["-f", "--show", &host.path("t/image")])?;
        host.device = Some(device.clone());
        let commit = bench.fs_options.get("commit", bench.fs.options).unwrap_or("5");
        let commit = format!("commit={commit}");
        let how = ["-t", "ext4", "-o", &commit, &device, &host.path("m")];
        tool("mount", &how)?;
        Ok(host)
    }

    fn path(&self, of: &str) -> String {
        self.dir.path().join(of).display().to_string()
    }

    /// All blocks but those of the class `holes` are there.
    fn write_image(&self, bench: &Bench, holes: &str) -> std::io::Result<()> {
        let other = |e: wp_base::FsError| std::io::Error::other(e.to_string());
        let medium = (bench.fs.mkfs)(&bench.fs_options, BYTES).map_err(other)?;
        let view = MediumView { medium: medium.clone(), start: Sector(0), bytes: BYTES };
        let blocks = (bench.fs.blocks)(&view).map_err(other)?;
        let file = File::create(&self.image)?;
        let mut bytes = vec![0; 4096];
        for n in 0..BYTES / 4096 {
            if blocks.class(n) != holes {
                medium.read_bytes(n * 4096, &mut bytes);
                file.write_all_at(&bytes, n * 4096)?;
            }
        }
        // The length, without blocks.
        let keep = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        file.set_len(BYTES)?;
        rustix::fs::fallocate(&file, keep, BYTES - 4096, 4096)?;
        Ok(())
    }

    /// Has the tmpfs no room left, or room again?
    fn fill(&self, full: bool) {
        let used = rustix::fs::statvfs(&self.image).expect("a tmpfs");
        let used = (used.f_blocks - used.f_bfree) * used.f_frsize;
        let size = if full { used } else { ROOM };
        tool("mount", &["-o", &format!("remount,size={size}"), &self.path("t")]).expect("remounts");
    }

    fn run(&self, program: &Program) -> Vec<Answer> {
        let mut open: BTreeMap<u32, File> = BTreeMap::new();
        let mut answers = Vec::new();
        for step in &program.0 {
            match step {
                Step::Fail(_) => self.fill(true),
                Step::Heal => self.fill(false),
                Step::Nap(us) => std::thread::sleep(std::time::Duration::from_micros(*us)),
                Step::Call(_, call) => answers.push(self.call(&mut open, call)),
                _ => {}
            }
        }
        answers
    }

    fn call(&self, open: &mut BTreeMap<u32, File>, call: &Call) -> Answer {
        let at = Path::new(&self.path("m")).to_owned();
        let done = |done: std::io::Result<()>| (done.is_ok(), None);
        match call {
            Call::Open(fd, path, how) => {
                let flag = |on: bool, f: OFlags| if on { f } else { OFlags::empty() };
                let flags = flag(how.dsync, OFlags::DSYNC)
                    | flag(how.sync, OFlags::SYNC)
                    | flag(how.direct, OFlags::DIRECT);
                let file = File::options()
                    .read(true)
                    .write(how.write)
                    .create(how.create)
                    .truncate(how.truncate)
                    .custom_flags(flags.bits() as i32)
                    .open(if path == "." { at } else { at.join(path) });
                done(file.map(|f| drop(open.insert(*fd, f))))
            }
            Call::Close(fd) => (open.remove(fd).is_some(), None),
            Call::Pwrite { fd, len, at, data, .. } => {
                // `O_DIRECT` wants its buffer at a whole block.
                let bytes: Vec<u8> =
                    data.slices(*at, *len).iter().flat_map(wp_medium::Slice::to_vec).collect();
                let len = *len as usize;
                let mut room = vec![0u8; len + 4096];
                let from = room.as_ptr().align_offset(4096);
                room[from..from + len].copy_from_slice(&bytes);
                done(open[fd].write_all_at(&room[from..from + len], *at))
            }
            Call::Fsync(fd) => done(open[fd].sync_all()),
            Call::Fdatasync(fd) => done(open[fd].sync_data()),
            Call::Syncfs(fd) => done(rustix::fs::syncfs(&open[fd]).map_err(Into::into)),
            Call::Pread { fd, len, at } => {
                let mut bytes = vec![0; *len as usize];
                match open[fd].read_at(&mut bytes, *at) {
                    Ok(n) => (true, Some(bytes[..n].to_vec())),
                    Err(_) => (false, None),
                }
            }
            Call::DropCaches => done(std::fs::write("/proc/sys/vm/drop_caches", "1")),
            other => panic!("{other}: no call of these programs"),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.fill(false);
        for at in ["m", "t"] {
            host::end_mount(&self.path(at));
            if let Some(device) = self.device.take() {
                drop(tool("losetup", &["-d", &device]));
            }
        }
    }
}

/// The host's kernel and ours of its version; `None`, and said so, where it cannot be had.
fn both(check: &str, commit: u32) -> Option<Bench> {
    let (_, major, minor) = match release() {
        Ok(r) => r,
        Err(why) => {
            skipped(check, &why);
            return None;
        }
    };
    let bench = bench(&format!("era={major}.{minor},commit={commit}"));
    match Host::new(&bench, DATA) {
        Ok(_) => Some(bench),
        Err(why) => {
            skipped(check, &why);
            None
        }
    }
}

fn assert_same(bench: &Bench, holes: &str, program: &Program, what: &str) -> usize {
    let host = Host::new(bench, holes).expect("it could be made before");
    let (theirs, ours) = (host.run(program), ours(bench, program));
    let calls: Vec<&Call> = program
        .0
        .iter()
        .filter_map(|s| if let Step::Call(_, c) = s { Some(c) } else { None })
        .collect();
    for (n, call) in calls.iter().enumerate() {
        assert!(
            theirs[n] == ours[n],
            "{what}: call {n}, `{call}`: the host {}, we {}; of\n{program}",
            words(&theirs[n]),
            words(&ours[n])
        );
    }
    theirs.iter().filter(|(ok, _)| !ok).count()
}

fn words((ok, read): &Answer) -> String {
    let read = read.as_ref().map(|r| format!(", {} bytes, {:?}", r.len(), r.get(..8)));
    format!("{}{}", if *ok { "succeeds" } else { "fails" }, read.unwrap_or_default())
}

#[test]
fn the_hosts_kernel_tells_the_same_open_files_of_failed_writes() {
    let check = "failed writes beside the host's kernel";
    let Some(bench) = both(check, 300) else { return };
    let rounds = std::env::var("ERROR_ROUNDS").map_or(12, |n| n.parse().expect("a number"));
    let mut failed = 0;
    for seed in 0..rounds {
        let program = errors::fresh_blocks(seed);
        failed += assert_same(&bench, DATA, &program, &format!("seed {seed}"));
    }
    assert!(failed as u64 > rounds, "{failed} calls failed: too few to have shown anything");
}

/// N1: since 6.15 the extent of a failed write stays unwritten, and the page, still cached,
/// believes that it has its place: what is written to it next is never converted.
#[test]
fn a_block_whose_first_write_failed_is_lost_when_it_is_written_again() {
    let check = "a failed write, written again, beside the host's kernel";
    let Some(bench) = both(check, 300) else { return };
    let text = "open 0 f rw,creat\npwrite 0 16384 0 1\nfsync 0\nfail write fresh 0 always\n\
                pwrite 0 4096 16384 2\nfsync 0\nheal\npwrite 0 4096 16384 3\nfsync 0\nfsync 0\n\
                pread 0 4096 16384\ndrop_caches\npread 0 4096 16384\n";
    let program = Program::parse(text).expect("a program");
    assert_eq!(assert_same(&bench, DATA, &program, "N1"), 1, "only the first fsync fails");
    let host = Host::new(&bench, DATA).expect("it could be made before");
    let theirs = host.run(&program);
    let last = theirs.last().and_then(|a| a.1.clone()).expect("a read");
    if release().is_ok_and(|(_, major, minor)| (major, minor) >= (6, 18)) {
        assert!(last.iter().all(|b| *b == 0), "mended in this kernel: the era needs a rule");
    }
}

/// A commit that the timer began fails, and nobody waits for it. Until somebody starts a handle the
/// file system does not know that its journal is aborted, and fsync, whose transaction is neither
/// running nor committing, answers 0: so does Linux 6.18.44 (`jbd2_complete_transaction`).
#[test]
fn fsync_says_0_after_a_commit_failed_in_the_background() {
    let text = "open 0 a rw,creat\npwrite 0 4096 0 1\nfsync 0\nopen 1 b rw,creat,direct\n\
                fail write journal 0 always\npwrite 1 4096 0 2\nnap 4000000\nfsync 1\nfsync 0\n\
                pwrite 1 4096 4096 3\nfsync 1\nfsync 0\n";
    let program = Program::parse(text).expect("a program");
    let answers = |bench: &Bench| -> Vec<bool> {
        ours(bench, &program).into_iter().skip(4).map(|(ok, _)| ok).collect()
    };
    // The write, fsync twice, then a write that finds the journal aborted, and fsync twice.
    let today = [true, true, true, false, false, false];
    assert_eq!(answers(&bench("era=6.18,commit=1")), today);
    // Until 3.10 fsync did not look whether the file system had been stopped.
    let before = [true, true, true, false, true, true];
    assert_eq!(answers(&bench("era=3.4,commit=1")), before);
    let Some(bench) = both("a failed commit beside the host's kernel", 1) else { return };
    assert_same(&bench, LOG, &program, "a failed commit");
}

/// What each call answers, in the eras: `.` for success, `E` for `EIO`, `R` for `EROFS`.
fn letters(options: &str, text: &str) -> String {
    let program = Program::parse(text).expect("a program");
    let played = play(&bench(options), &program).expect("played");
    let letter = |d: &wp_crash::Did| match &d.error {
        None => '.',
        Some(wp_base::FsError::Io) => 'E',
        Some(wp_base::FsError::ReadOnly) => 'R',
        Some(other) => panic!("{}: {other}", d.call),
    };
    played.dids.iter().map(letter).collect()
}

#[test]
fn each_era_tells_whom_it_tells() {
    let eras = ["era=3.8", "era=4.6", "era=4.14", "era=4.19", "era=5.4", "era=5.10", "era=6.18"];
    let of = |text: &str| -> Vec<String> { eras.iter().map(|era| letters(era, text)).collect() };
    // Two descriptors, each asks twice: the first is told; since 4.13 both are, once each.
    let two = "open 0 f rw,creat\nopen 1 f rw\nfail write data 0 1\npwrite 0 4096 0 1\n\
               fsync 0\nfsync 1\nfsync 0\nfsync 1\n";
    let (first, each) = ("...E...", "...EE..");
    assert_eq!(of(two), [first, first, each, each, each, each, each]);
    // The flusher meets the error; then the file is opened, and asked through the new descriptor.
    let late = "open 0 f rw,creat\nfail write data 0 1\npwrite 0 4096 0 1\nnap 40000000\n\
                open 1 f rw\nfsync 1\nfsync 0\n";
    let (taken, lost, unseen) = ("...E.", "....E", "...EE");
    assert_eq!(of(late), [taken, taken, lost, unseen, unseen, unseen, unseen]);
    // `syncfs` took the flag until 4.3, and tells itself since 5.8.
    let syncfs = "open 0 f rw,creat\nopen 1 . r\nfail write data 0 1\npwrite 0 4096 0 1\n\
                  syncfs 1\nsyncfs 1\nfsync 0\n";
    let (forgets, keeps, tells) = ("......", ".....E", "...E.E");
    assert_eq!(of(syncfs), [forgets, keeps, keeps, keeps, keeps, tells, tells]);
    // A write with O_DSYNC is an fsync of what it wrote; one past the cache is told itself.
    let direct = "open 0 f rw,creat,dsync\nopen 1 f rw,direct\nfail write data 0 2\n\
                  pwrite 0 4096 0 1\npwrite 1 4096 4096 2\nfsync 1\n";
    let answers = of(direct);
    assert!(answers.iter().all(|a| a.starts_with("..EE")), "{answers:?}");
    assert_eq!((&answers[1][4..], &answers[6][4..]), (".", "E"));
}

#[test]
fn a_log_or_a_cache_that_fails_stops_the_file_system() {
    for era in ["era=4.6", "era=6.18"] {
        for what in ["write journal", "write fua", "flush any"] {
            let text = format!(
                "open 0 f rw,creat\nfail {what} 0 1\npwrite 0 4096 0 1\nfsync 0\n\
                 pwrite 0 4096 4096 2\nfsync 0\n"
            );
            let answers = letters(era, &text);
            assert!(answers.starts_with("..E"), "{era}, {what}: {answers}");
            assert!(answers.ends_with('R'), "{era}, {what}: {answers}");
        }
        // A failed write of ordered data stops nothing (`data_err=ignore`).
        let text = "open 0 f rw,creat\nopen 1 g rw,creat\nfail write data 0 1\n\
                    pwrite 0 4096 0 1\nfsync 0\npwrite 1 4096 0 2\nfsync 1\n";
        assert_eq!(letters(era, text), "...E..", "{era}");
    }
}
