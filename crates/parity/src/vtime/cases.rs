//! The recorded programs (`tl.c` and `guest.sh` of the recorded runs), as program text.

use std::fmt::Write;

use wp_workload::program::Program;

/// A file system made, mounted, synced and left alone for 10 s; then the program.
pub struct Group {
    /// Name of its first case, by which its mount time is found.
    pub name: String,
    /// What runs on it.
    pub program: Program,
}

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// `guest.sh`: `sleep 10` between the parts.
const SETTLE_US: u64 = 10_000_000;

/// All groups, in the order of `guest.sh`, with `n_most` files at most.
pub fn all(n_most: u32) -> Vec<Group> {
    let mut groups: Vec<Group> =
        [1, 10, 100].into_iter().filter(|n| *n <= n_most).map(n_files).collect();
    groups.push(group("seq0", &sequence("seq0", 0)));
    groups.push(group("seq20ms", &sequence("seq20ms", 20_000)));
    groups.push(group("odirect", &direct("odirect", 20_000)));
    groups.push(group("idle", &idle()));
    groups
}

fn group(name: &str, text: &str) -> Group {
    let program = Program::parse(text).expect("a program that the test parses");
    Group { name: name.to_owned(), program }
}

macro_rules! line {
    ($t:expr, $($arg:tt)*) => { writeln!($t, $($arg)*).expect("a string takes it") };
}

/// `tl sync`, then the settling time.
fn settle(t: &mut String, case: &str) {
    line!(t, "case {case}.sync\nopen 0 . r\n@syncfs:0 syncfs 0\nexit\nnap {SETTLE_US}");
}

/// `tl nf`: `n` files, one write each, fsync of the last.
fn files(t: &mut String, prefix: &str, n: u32, mode: &str, case: &str) {
    let how = match mode {
        "create" | "one" | "new4k" => "rw,creat,trunc",
        _ => "rw",
    };
    let (len, at) = match mode {
        "create" => (0, 0),
        "one" => (1024, 0),
        "alloc3k" | "over3k" => (3072, 0),
        "ext" => (3072, 1024),
        _ => (4096, 0),
    };
    line!(t, "case {case}\nalign\nbegin writes {n}");
    for i in 0..n {
        line!(t, "open 0 {prefix}_{i} {how}");
        if len > 0 {
            line!(t, "pwrite 0 {len} {at} {i}");
        }
        if i + 1 < n {
            line!(t, "close 0");
        }
    }
    line!(t, "end");
    if !matches!(mode, "create" | "one") {
        line!(t, "@fsync:1 fsync 0\n@fsync_again:2 fsync 0");
    }
    line!(t, "close 0\nexit");
}

fn n_files(n: u32) -> Group {
    let mut t = String::new();
    let run = |t: &mut String, prefix: &str, mode: &str, name: &str| {
        let case = format!("N{n}.{name}");
        files(t, prefix, n, mode, &case);
        if !matches!(mode, "create" | "one") {
            line!(t, "nap 2000000");
        }
        settle(t, &case);
    };
    run(&mut t, "a", "create", "create_a");
    run(&mut t, "a", "alloc3k", "alloc3k");
    run(&mut t, "a", "over3k", "over3k");
    run(&mut t, "b", "create", "create_b");
    run(&mut t, "b", "alloc4k", "alloc4k");
    run(&mut t, "b", "over4k", "over4k");
    run(&mut t, "e", "one", "one");
    run(&mut t, "e", "ext", "extend_in_block");
    run(&mut t, "n", "new4k", "new4k");
    group(&format!("N{n}.create_a"), &t)
}

/// `tl seq`.
fn sequence(case: &str, nap_us: u64) -> String {
    let mut t = format!("case {case}\nalign\nopen 1 . r\n");
    let nap = |t: &mut String| {
        if nap_us > 0 {
            line!(t, "nap {nap_us}");
        }
    };
    line!(t, "@open_creat:0 open 0 s_a rw,creat");
    nap(&mut t);
    line!(t, "@fsync_empty:0 fsync 0");
    nap(&mut t);
    for (op, first, at, seed, sync) in [
        ("append", 0, 0, 0, "fsync"),
        ("append", 5, 5, 0, "fdatasync"),
        ("over", 0, 0, 7, "fsync"),
        ("over", 5, 0, 17, "fdatasync"),
    ] {
        for i in 0..5 {
            let offset = (at + i) * BLOCK;
            line!(t, "@{op}:{} pwrite 0 4096 {offset} {}", first + i, seed + i);
            line!(t, "@{op}.{sync}:{i} {sync} 0");
            nap(&mut t);
        }
    }
    line!(t, "@clean.fsync:0 fsync 0");
    nap(&mut t);
    for i in 0..2 {
        line!(t, "@dir.fsync:{i} fsync 1");
        nap(&mut t);
    }
    line!(t, "@rename:0 rename s_a s_b\n@rename.fsync:0 fsync 0");
    nap(&mut t);
    line!(t, "@rename.dirfsync:0 fsync 1");
    nap(&mut t);
    line!(t, "@trunc:0 ftruncate 0 8192\n@trunc.fsync:0 fsync 0");
    nap(&mut t);
    line!(t, "@link:0 link s_b s_l\n@link.fsync:0 fsync 0");
    nap(&mut t);
    line!(t, "@unlink:0 unlink s_l\n@unlink.dirfsync:0 fsync 1");
    nap(&mut t);
    line!(t, "@unlink:1 unlink s_b\n@unlink.dirfsync:1 fsync 1");
    nap(&mut t);
    line!(t, "@unlinked_open.fsync:0 fsync 0");
    nap(&mut t);
    line!(t, "@close_last:0 close 0\n@dir.fsync:2 fsync 1\n@syncfs:0 syncfs 1\n@syncfs:1 syncfs 1");
    line!(t, "exit");
    t
}

/// `tl odir`.
fn direct(case: &str, nap_us: u64) -> String {
    let mut t = format!("case {case}\nopen 0 d_a rw,creat,direct\nalign\n");
    line!(t, "@syncfs:0 syncfs 0\nnap {nap_us}");
    let mut next = 0;
    // Name, followed by what, first block (`None`: behind what was appended), seed.
    type Part = (&'static str, &'static str, Option<u64>, u32);
    let four = |t: &mut String, next: &mut u64, (op, sync, at, seed): Part| {
        for i in 0..4 {
            let block = at.map_or(*next, |at| at + i);
            *next += u64::from(at.is_none());
            line!(t, "@{op}:{i} pwrite 0 4096 {} {seed}", block * BLOCK);
            if !sync.is_empty() {
                line!(t, "@{op}.{sync}:{i} {sync} 0");
            }
            line!(t, "nap {nap_us}");
        }
    };
    four(&mut t, &mut next, ("dappend", "", None, 0));
    four(&mut t, &mut next, ("dappend_f", "fsync", None, 0));
    four(&mut t, &mut next, ("dover", "", Some(0), 1));
    four(&mut t, &mut next, ("dover_f", "fsync", Some(0), 2));
    four(&mut t, &mut next, ("dover_fd", "fdatasync", Some(0), 3));
    line!(t, "@fallocate:0 fallocate 0 extend {} {}", 64 * BLOCK, 8 * BLOCK);
    line!(t, "@fallocate.fsync:0 fsync 0\nnap {nap_us}");
    four(&mut t, &mut next, ("dunwritten", "", Some(64), 3));
    four(&mut t, &mut next, ("dunwritten_f", "fsync", Some(68), 3));
    // `o++` goes on counting, from block 80 on.
    next += 80;
    line!(t, "close 0\nopen 0 d_a rw,direct,dsync");
    four(&mut t, &mut next, ("dover_dsync", "", Some(0), 4));
    four(&mut t, &mut next, ("dappend_dsync", "", None, 4));
    line!(t, "close 0\nopen 0 d_a rw,dsync");
    four(&mut t, &mut next, ("bover_dsync", "", Some(0), 4));
    four(&mut t, &mut next, ("bappend_dsync", "", None, 4));
    line!(t, "exit");
    t
}

/// `tl dirty` of 100 files, then 130 s.
fn idle() -> String {
    let mut t = "case idle\nalign\nbegin dirty 100\n".to_owned();
    for i in 0..100 {
        let len = if i % 2 == 1 { 4096 } else { 3072 };
        line!(t, "open 0 i_{i} rw,creat\npwrite 0 {len} 0 {i}\nclose 0");
    }
    line!(t, "end\nexit\nnap 130000000");
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_appends_go_where_the_program_put_them() {
        let text = direct("odirect", 20_000);
        // o is 8 after the first appends, so the first O_DSYNC append is at block 88.
        assert!(text.contains(&format!("@dappend_dsync:0 pwrite 0 4096 {} 4", 88 * 4096)));
        assert!(text.contains(&format!("@bappend_dsync:3 pwrite 0 4096 {} 4", 95 * 4096)));
    }

    #[test]
    fn every_case_parses() {
        assert_eq!(all(100).len(), 7);
        assert_eq!(all(10).len(), 6);
    }
}
