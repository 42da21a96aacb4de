//! What system calls cost their caller in CPU time on this host: where the orders of magnitude of a
//! CPU profile come from. Not a measurement of Writepath.
//!
//! `cargo bench -p wp-machine --bench host_costs [-- DIRECTORY]`: in a new directory there (a file
//! system in memory, or ext4 over a loop device on one, keeps the device out of it); `/dev/shm` if
//! left out.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

/// Files.
const FILES: usize = 5000;

/// Nanoseconds of CPU time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("this kernel has schedstat")
}

/// Prints what `each` takes a file, the best of three turns.
fn row(
    name: &str,
    turns: &mut [(String, f64)],
    each: &mut dyn FnMut(usize) -> std::io::Result<()>,
) {
    let before = cpu_ns();
    for n in 0..FILES {
        if let Err(e) = each(n) {
            eprintln!("{name}: {e}");
            std::process::exit(1);
        }
    }
    let us = (cpu_ns() - before) as f64 / FILES as f64 / 1e3;
    match turns.iter_mut().find(|(known, _)| known == name) {
        Some((_, best)) => *best = best.min(us),
        None => unreachable!("every row has its place"),
    }
}

fn main() {
    let given = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let base = PathBuf::from(given.unwrap_or_else(|| "/dev/shm".to_owned()));
    let dir = tempfile::tempdir_in(base).expect("a directory that can be written to");
    let dir = dir.path();
    let path = |n: usize| dir.join(format!("{n:08}"));
    let names =
        ["create and close", "open and close", "append 8 KiB", "read 8 KiB", "fsync", "unlink"];
    let mut turns: Vec<(String, f64)> =
        names.iter().map(|n| ((*n).to_owned(), f64::INFINITY)).collect();
    let mut buffer = vec![0u8; 1 << 20];
    for _ in 0..3 {
        row("create and close", &mut turns, &mut |n| File::create_new(path(n)).map(drop));
        row("open and close", &mut turns, &mut |n| File::open(path(n)).map(drop));
        row("append 8 KiB", &mut turns, &mut |n| {
            OpenOptions::new().append(true).open(path(n))?.write_all(&[7; 8192])
        });
        row("read 8 KiB", &mut turns, &mut |n| File::open(path(n))?.read(&mut buffer).map(drop));
        row("fsync", &mut turns, &mut |n| File::open(path(n))?.sync_all());
        row("unlink", &mut turns, &mut |n| std::fs::remove_file(path(n)));
    }
    let open = turns[1].1;
    println!("{:<18} {:>8}", "caller's CPU time", "us");
    for (name, us) in &turns {
        let opens = !matches!(name.as_str(), "create and close" | "open and close" | "unlink");
        println!("{name:<18} {:>8.2}", if opens { us - open } else { *us });
    }
}
