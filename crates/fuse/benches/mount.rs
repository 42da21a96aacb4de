//! Files made, written and closed a second through FUSE: by a program that is recorded on a
//! simulated file system (`crash -- CMD`), beside a file system of `fuser` that is empty and keeps
//! nothing, in turns on the same host. What it lacks to the second is the simulation; the rest is
//! the kernel's.
//!
//! `cargo bench -p wp-fuse --bench mount [-- [--files N] [--turns N] [--fs NAME]]`, as root or with
//! `fusermount3`.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyWrite, Request, Session,
    WriteFlags,
};
use tempfile::NamedTempFile;
use wp_campaign::Bench;
use wp_fuse::{config, entered, record};

#[global_allocator]
static ALLOCATOR: wp_machine::memory::Allocator = wp_machine::memory::Allocator;

/// Answers what the program of this benchmark asks for, and keeps nothing.
struct Empty(AtomicU64);

const FOREVER: Duration = Duration::from_secs(3600);

fn attr(node: u64) -> FileAttr {
    let is_root = node == 1;
    FileAttr {
        ino: INodeNo(node),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_root { FileType::Directory } else { FileType::RegularFile },
        perm: if is_root { 0o777 } else { 0o644 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Empty {
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOENT);
    }
    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &attr(node.0));
    }
    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let node = self.0.fetch_add(1, Ordering::Relaxed);
        let flags = FopenFlags::FOPEN_KEEP_CACHE;
        reply.created(&FOREVER, &attr(node), Generation(0), FileHandle(node), flags);
    }
    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

/// What this program is called with to be the program that makes files.
const WORK: &str = "--work";

/// Makes files in the working directory, and writes to `into` how many a second.
fn work(files: u64, into: &Path) {
    #[expect(clippy::disallowed_methods, reason = "what is measured is the host")]
    let begin = Instant::now();
    for n in 0..files {
        let path = format!("file-{n}");
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).expect("made");
        file.write_all(&[7; 100]).expect("written");
    }
    let rate = files as f64 / begin.elapsed().as_secs_f64();
    std::fs::write(into, rate.to_string()).expect("written");
}

/// The command line of [`work`], and where its rate comes.
fn worker(files: u64) -> (Vec<OsString>, NamedTempFile) {
    let rate = NamedTempFile::new().expect("a file");
    let program = std::env::current_exe().expect("this program");
    let words = [program.into(), WORK.into(), files.to_string().into(), rate.path().into()];
    (words.to_vec(), rate)
}

fn rate(of: &NamedTempFile) -> f64 {
    std::fs::read_to_string(of.path()).expect("read").parse().expect("a number")
}

fn empty(files: u64) -> f64 {
    let dir = tempfile::tempdir().expect("a directory");
    let session = Session::new(Empty(AtomicU64::new(2)), dir.path(), &config("empty"));
    let session = session.and_then(Session::spawn).expect("mounted");
    let (words, file) = worker(files);
    let mut command = Command::new(&words[0]);
    let status = command.args(&words[1..]).current_dir(dir.path()).status();
    assert!(status.is_ok_and(|s| s.success()));
    drop(session);
    rate(&file)
}

fn ours(bench: &Bench, files: u64) -> f64 {
    let (words, file) = worker(files);
    let recorded = record(bench, &words, &AtomicBool::new(false)).expect("recorded");
    assert_eq!((recorded.code, recorded.recording.calls()), (0, 3 * files));
    rate(&file)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let (mut files, mut turns, mut fs) = (10_000, 5, "ext4,era=6.18".to_owned());
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = entered(&words) {
        std::process::exit(code.into());
    }
    if let [what, files, into] = &words[..]
        && what == WORK
    {
        let files = files.to_str().and_then(|n| n.parse().ok()).expect("a number");
        return work(files, Path::new(into));
    }
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_default();
        match arg.as_str() {
            "--files" => files = value().parse().expect("a number"),
            "--turns" => turns = value().parse().expect("a number"),
            "--fs" => fs = value(),
            _ => {}
        }
    }
    let (entry, options) = wp_machine::spec::recoverable(&fs).expect("a file system");
    let mut bench = Bench::of(entry, options).expect("a machine");
    bench.device_params = vec![("capacity_bytes".to_owned(), 512 << 20)];
    let (mut ours_all, mut empty_all) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        empty_all.push(empty(files));
        ours_all.push(ours(&bench, files));
    }
    let (ours, empty) = (median(ours_all), median(empty_all));
    println!("{files} files made, written (100 bytes) and closed, median of {turns} turns:");
    println!("  {fs:<24} {ours:>8.0} files/s");
    println!("  {:<24} {empty:>8.0} files/s", "empty fuser file system");
    println!("  ratio {:.2}", ours / empty);
}
