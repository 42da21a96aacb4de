//! What programs can say, for people: each line's form, an example, and what it does.

/// A kind of line.
#[derive(Clone, Copy, Debug)]
pub struct Syntax {
    /// Its words: capitals stand for what is to be filled in.
    pub form: &'static str,
    /// One that parses.
    pub example: &'static str,
    /// What it does.
    pub what: &'static str,
}

const fn line(form: &'static str, example: &'static str, what: &'static str) -> Syntax {
    Syntax { form, example, what }
}

/// All kinds. A descriptor FD is a number from 0 to 65535; a path begins in the root directory,
/// which is `.`, and has white space as octal escapes (`\\040`). SEED selects the contents of a
/// write, which can be `base64:DATA` or `zeroes` instead.
pub const SYNTAX: &[Syntax] = &[
    line(
        "open FD PATH FLAGS",
        "open 0 a rw,creat",
        "r, rw, creat, excl, tmpfile (PATH is a directory), trunc, append, direct, dsync, sync, mode=0600",
    ),
    line("close FD", "close 0", "close"),
    line("pwrite FD BYTES OFFSET SEED", "pwrite 0 4096 0 1", "write; with append at the end"),
    line(
        "pwrite FD BYTES OFFSET SEED atomic",
        "pwrite 0 4096 0 1 atomic",
        "pwritev2 with RWF_ATOMIC: whole or not at all after a power failure; needs direct",
    ),
    line("pread FD BYTES OFFSET", "pread 0 4096 0", "read"),
    line(
        "mmap_write FD BYTES OFFSET SEED",
        "mmap_write 0 100 4000 3",
        "mmap with MAP_SHARED, a store, munmap; EFAULT behind the last page of the file",
    ),
    line("msync FD OFFSET BYTES", "msync 0 0 4096", "msync with MS_SYNC"),
    line("fsync FD", "fsync 0", "fsync; of a directory: open it with r"),
    line("fdatasync FD", "fdatasync 0", "fdatasync"),
    line("sync_file_range FD OFFSET BYTES", "sync_file_range 0 0 0", "with all three flags"),
    line("syncfs FD", "syncfs 0", "syncfs"),
    line("sync", "sync", "sync"),
    line("fbarrier FD", "fbarrier 0", "order without a wait (BarrierFS)"),
    line("fdatabarrier FD", "fdatabarrier 0", "the same for data (BarrierFS)"),
    line("ftruncate FD LENGTH", "ftruncate 0 8192", "ftruncate"),
    line("truncate PATH LENGTH", "truncate a 8192", "truncate"),
    line(
        "fallocate FD MODE OFFSET BYTES",
        "fallocate 0 keep 0 8192",
        "extend, keep, punch, zero, zero-keep, collapse, insert",
    ),
    line(
        "copy_file_range FD OFFSET FD OFFSET BYTES",
        "copy_file_range 0 0 1 4096 100",
        "from, to; on btrfs whole blocks are shared",
    ),
    line(
        "reflink FD OFFSET FD OFFSET BYTES",
        "reflink 0 0 1 0 8192",
        "ioctl FICLONERANGE: from, to; BYTES 0: up to the end of the source; btrfs",
    ),
    line(
        "dedupe FD OFFSET FD OFFSET BYTES",
        "dedupe 0 0 1 0 4096",
        "ioctl FIDEDUPERANGE: from, to; EBADE if the bytes differ; btrfs",
    ),
    line("seek_data FD OFFSET", "seek_data 0 4096", "lseek with SEEK_DATA; moves nothing"),
    line("seek_hole FD OFFSET", "seek_hole 0 4096", "lseek with SEEK_HOLE; moves nothing"),
    line("fadvise FD ADVICE", "fadvise 0 dontneed", "normal, sequential, random, dontneed"),
    line("aio_write FD BYTES OFFSET SEED", "aio_write 0 4096 0 1", "io_submit of one pwrite"),
    line("aio_read FD BYTES OFFSET", "aio_read 0 4096 0", "io_submit of one pread"),
    line("aio_wait N", "aio_wait 1", "io_getevents: waits for N, takes all that have ended"),
    line("rename PATH PATH", "rename a b", "rename"),
    line("renameat2 PATH PATH FLAG", "renameat2 a b exchange", "noreplace, exchange, whiteout"),
    line("link PATH PATH", "link a b", "link"),
    line("linkat FD PATH", "linkat 0 a", "with AT_EMPTY_PATH: names an open file, also a tmpfile"),
    line("unlink PATH", "unlink a", "unlink"),
    line("symlink TARGET PATH", "symlink a b", "symlink"),
    line("mkdir PATH", "mkdir d", "mkdir"),
    line("rmdir PATH", "rmdir d", "rmdir"),
    line("mknod PATH KIND MAJOR MINOR", "mknod c char 1 3", "char, block"),
    line("mkfifo PATH", "mkfifo p", "mkfifo"),
    line("chmod PATH BITS", "chmod a 600", "octal"),
    line("chown PATH USER GROUP", "chown a 1000 100", "numbers"),
    line(
        "utimensat PATH ACCESS MODIFICATION",
        "utimensat a 1000000000 1000000000.000000001",
        "seconds since 1970",
    ),
    line(
        "chattr PATH FLAGS",
        "chattr a append,sync",
        "none, or some of append, immutable, nodump, noatime, sync, dirsync, journal-data, nocow, \
         compress",
    ),
    line("subvolume_create PATH", "subvolume_create s", "an empty subvolume; btrfs"),
    line("snapshot SUBVOLUME PATH", "snapshot . s", "a subvolume of what SUBVOLUME has; btrfs"),
    line("snapshot SUBVOLUME PATH readonly", "snapshot . s readonly", "the same, read-only; btrfs"),
    line("subvolume_delete PATH", "subvolume_delete s", "with all that is in it; btrfs"),
    line("setxattr PATH NAME BYTES SEED", "setxattr a user.x 40 1", "setxattr"),
    line("removexattr PATH NAME", "removexattr a user.x", "removexattr"),
    line(
        "atomic_start FD",
        "atomic_start 0",
        "F2FS_IOC_START_ATOMIC_WRITE: writes up to atomic_commit are all there or none; F2FS, else \
         ENOTTY",
    ),
    line("atomic_replace FD", "atomic_replace 0", "the same, and the file begins empty"),
    line("atomic_commit FD", "atomic_commit 0", "without a start: fdatasync"),
    line("atomic_abort FD", "atomic_abort 0", "none of the writes since the start is there"),
    line(
        "mkcp [-s]",
        "mkcp -s",
        "a checkpoint of everything; -s: and a snapshot of it; NILFS2, else ENOTTY",
    ),
    line("chcp MODE N", "chcp ss 3", "checkpoint N becomes a snapshot (ss), or one no more (cp)"),
    line("rmcp N", "rmcp 3", "removes checkpoint N; EBUSY of a snapshot"),
    line("drop_caches", "drop_caches", "what is cached and clean is forgotten"),
    line("exit", "exit", "the process ends: every descriptor is closed"),
    line("nap MICROSECONDS", "nap 20000", "sleep"),
    line("think MICROSECONDS", "think 1500", "pause of a recorded program; run --think keeps it"),
    line(
        "ack WORD",
        "ack 7",
        "the program tells the world WORD; a check of the tree gets what was told",
    ),
    line("mark PATH", "mark a", "the program tells the world that there is such a file"),
    line("expect ERROR", "expect ENOENT", "the next call must fail with this error"),
    line(
        "power_failure",
        "power_failure",
        "power fails; what follows is called after recovery, by a new process",
    ),
    line("thread N: CALL", "thread 1: sync", "thread 1 to 8 of the process makes the call"),
    line("join", "join", "with threads: every call above returns before one below begins"),
    line("task NAME", "task sqlite3", "who makes the calls below, for `explain` and `trace`"),
    line("in_order", "in_order", "with threads, first line: calls begin in this order"),
    line("fail OP WHERE AFTER TIMES", "fail write data 2 1", "the device fails requests"),
    line("slow OP WHERE AFTER TIMES MICROSECONDS", "slow write data 2 1 50000", "it is late"),
    line(
        "tear OP WHERE AFTER TIMES FROM TO",
        "tear write data 2 1 512 1024",
        "it leaves out bytes",
    ),
    line("heal", "heal", "the device fails no more"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    #[test]
    fn every_example_parses_and_begins_as_its_form_does() {
        for s in SYNTAX {
            // What is about threads means nothing in a program without.
            let text = format!("{}\nthread 2: sync", s.example);
            let is_of_threads = ["join", "in_order"].contains(&s.example);
            let text = if is_of_threads { &text } else { s.example };
            let parsed = Program::parse(text).unwrap_or_else(|e| panic!("{}: {e}", s.example));
            assert_eq!(parsed.0.len(), text.lines().count(), "{}", s.example);
            let words = |text: &str| text.split(' ').count();
            assert_eq!(s.form.split(' ').next(), s.example.split(' ').next());
            assert_eq!(words(s.form), words(s.example), "{}", s.form);
        }
    }
}
