//! Flags of inodes, seeks for data and holes, set-group-ID directories, writes of no bytes, and
//! what calls refuse: programs as Linux 6.12 answered them, on all file systems, with power
//! failures.

use std::sync::Arc;

use wp_campaign::lives::Lives;
use wp_campaign::{Bench, Campaign, Findings, Source, run};
use wp_crash::Rule;
use wp_vfs::FsEntry;
use wp_workload::program::Program;

const ALL: [&FsEntry; 4] = [&wp_ext4::ENTRY, &wp_f2fs::ENTRY, &wp_btrfs::ENTRY, &wp_nilfs2::ENTRY];

/// Explores a program, whose every call must answer as it says.
fn explored(fs: &'static FsEntry, options: &str, text: &str) -> Findings {
    let program = Program::parse(&text.replace("; ", "\n")).expect(text);
    let mut bench = Bench::new(fs, options).expect("options");
    // btrfs and NILFS2 make nothing smaller.
    bench.device_params = vec![("capacity_bytes".to_owned(), 256 << 20)];
    let source = Source::Text(program.clone());
    let mut c = Campaign { check: true, ..Campaign::new(bench, source, (0, 1)) };
    if let Some(lives) =
        Lives::of(&c.bench, c.space, &program, (100, 1)).expect("lives that are played")
    {
        c.programs = (0, lives.count());
        c.source = Source::Lives(Arc::new(lives));
    }
    let f = run(&c, 1, &|_| true);
    assert!(f.not_played.is_empty(), "{}: {text}: {:?}", fs.name, f.not_played);
    assert_eq!(f.calls.failed, 0, "{}: {text}: {:?}", fs.name, f.calls.first);
    // F2FS does not keep a new file's data from its node (`fsync_mode=posix`).
    let rules = [Rule::Recoverable, Rule::Metadata, Rule::Exposure];
    for rule in &rules[..if fs.name == "f2fs" { 2 } else { 3 }] {
        let broken: Vec<_> = f.found.iter().filter(|x| x.violation.rule == *rule).collect();
        assert!(broken.is_empty(), "{}: {text}: {broken:#?}", fs.name);
    }
    f
}

#[test]
fn an_immutable_file_refuses_what_linux_refuses() {
    let open = "open 0 a rw,creat; pwrite 0 5000 0 1; open 1 b rw,creat; pwrite 1 5000 0 1; \
                mkdir d; open 2 d/x rw,creat; close 2; chattr a immutable";
    let refused = [
        "open 2 a rw",
        "open 2 a r,trunc",
        "open 2 a rw,append",
        "truncate a 100",
        "chmod a 600",
        "chown a 1 1",
        "utimensat a 1 1",
        "unlink a",
        "rename a c",
        "rename b a",
        "link a c",
    ];
    let in_dir = [
        "open 3 d/y rw,creat",
        "unlink d/x",
        "mkdir d/z",
        "rename d/x q",
        "rename b d/b",
        "rename b d/x",
        "link b d/b",
        "rmdir d",
        "chmod d 700",
        "symlink x d/s",
        "mkfifo d/p",
    ];
    let eperm = |calls: &[&str]| {
        calls.iter().map(|call| format!("expect EPERM; {call}")).collect::<Vec<_>>().join("; ")
    };
    let text = format!(
        "{open}; {}; open 2 a r; chattr a none; unlink a; chattr d immutable; {}; chattr d none; \
         open 3 d/y rw,creat; sync",
        eperm(&refused),
        eperm(&in_dir)
    );
    for fs in ALL {
        explored(fs, "", &text);
    }
    // A descriptor from before: ext4 and F2FS look at the flag again, btrfs and NILFS2 do not.
    let before = "open 0 a rw,creat; pwrite 0 5000 0 1; chattr a immutable";
    for fs in [&wp_ext4::ENTRY, &wp_f2fs::ENTRY] {
        let calls = "expect EPERM; pwrite 0 100 0 2; expect EPERM; pwrite 0 0 0 2; \
                     expect EFAULT; mmap_write 0 100 0 2; expect EPERM; ftruncate 0 100; \
                     expect EPERM; fallocate 0 keep 0 8192; fsync 0";
        explored(fs, "", &format!("{before}; {calls}"));
    }
    for fs in [&wp_btrfs::ENTRY, &wp_nilfs2::ENTRY] {
        explored(fs, "", &format!("{before}; pwrite 0 100 0 2; mmap_write 0 100 0 2; fsync 0"));
    }
}

#[test]
fn an_append_only_file_grows_and_does_nothing_else() {
    let text = "open 0 a rw,creat; pwrite 0 5000 0 1; mkdir d; open 1 d/x rw,creat; \
                chattr a append; expect EPERM; open 2 a rw; open 2 a rw,append; \
                expect EPERM; open 3 a r,trunc; pwrite 2 100 0 2; pwrite 0 100 0 2; \
                expect EACCES; mmap_write 0 100 0 2; expect EPERM; ftruncate 0 100; \
                expect EPERM; truncate a 100; expect EPERM; chmod a 600; expect EPERM; unlink a; \
                expect EPERM; rename a c; expect EPERM; link a c; fsync 0; chattr a none; \
                chattr d append; expect EPERM; unlink d/x; expect EPERM; rename d/x q; \
                link a d/l; chattr d none; unlink d/x; sync";
    for fs in ALL {
        explored(fs, "", text);
    }
}

#[test]
fn each_file_system_takes_the_flags_that_linux_takes() {
    let nodelalloc = "nodelalloc";
    let text = "open 0 a rw,creat; pwrite 0 5000 0 1; mkdir d; symlink a l; mkfifo p; \
                expect EOPNOTSUPP; chattr l sync; expect EOPNOTSUPP; chattr p sync; \
                expect ENOENT; chattr nope sync; chattr a nodump,noatime; chattr d dirsync; \
                open 1 d/f rw,creat; mkdir d/e; rename d/f d/g; unlink d/g; chattr a sync; \
                pwrite 0 5000 5000 2; ftruncate 0 100; fsync 0";
    for fs in ALL {
        explored(fs, "", text);
    }
    let one =
        |fs, options, calls: &str| explored(fs, options, &format!("open 0 a rw,creat; {calls}"));
    for fs in [&wp_ext4::ENTRY, &wp_f2fs::ENTRY] {
        one(fs, "", "expect EOPNOTSUPP; chattr a dirsync; fsync 0");
    }
    one(&wp_ext4::ENTRY, "", "expect EOPNOTSUPP; chattr a nocow; chattr a compress; fsync 0");
    one(&wp_f2fs::ENTRY, "", "expect EOPNOTSUPP; chattr a compress; fsync 0");
    one(&wp_f2fs::ENTRY, "", "expect EOPNOTSUPP; chattr a journal-data; fsync 0");
    one(&wp_btrfs::ENTRY, "", "expect EOPNOTSUPP; chattr a journal-data; chattr a nocow; fsync 0");
    one(
        &wp_btrfs::ENTRY,
        "",
        "chattr a nocow; pwrite 0 8192 0 1; fsync 0; pwrite 0 4096 0 2; fsync 0",
    );
    one(&wp_btrfs::ENTRY, "", "chattr a nocow; expect EINVAL; chattr a compress; fsync 0");
    one(&wp_nilfs2::ENTRY, "", "chattr a journal-data,nocow,compress,dirsync; fsync 0");
    // Data through the journal, and back, with and without delayed allocation.
    for options in ["", nodelalloc] {
        let calls = "pwrite 0 9000 0 1; chattr a journal-data; pwrite 0 9000 4096 2; fsync 0; \
                     pwrite 0 4096 0 3; chattr a none; pwrite 0 4096 0 4; fsync 0";
        let f = one(&wp_ext4::ENTRY, options, calls);
        assert!(f.totals.raw > 10 && f.found.is_empty(), "{options}: {:#?}", f.found);
    }
}

#[test]
fn flags_of_a_synced_file_are_there_after_a_power_failure() {
    for fs in [&wp_ext4::ENTRY, &wp_btrfs::ENTRY] {
        let text = "open 0 a rw,creat; pwrite 0 4096 0 1; fsync 0; chattr a append,nodump; fsync 0";
        let f = explored(fs, "", text);
        assert!(f.found.is_empty() && f.totals.raw > 5, "{}: {:#?}", fs.name, f.found);
    }
    // A new mount refuses what the old one did.
    for fs in ALL {
        let text = "open 0 a rw,creat; pwrite 0 4096 0 1; chattr a immutable; sync; power_failure; \
                    expect EPERM; unlink a; chattr a none; unlink a; sync";
        explored(fs, "", text);
    }
}

#[test]
fn what_a_set_group_id_directory_gives_is_kept() {
    let text = "mkdir d; chown d 5 77; chmod d 2755; open 0 d/f rw,creat; mkdir d/e; \
                symlink f d/l; mkfifo d/p; chmod d/f 6755; pwrite 0 100 0 1; fsync 0; \
                ftruncate 0 10; chown d/f 1 1; fsync 0; sync";
    for fs in ALL {
        explored(fs, "", text);
    }
    let whiteout = "mkdir d; chown d 5 77; chmod d 2755; open 0 d/f rw,creat; \
                    renameat2 d/f d/g whiteout; open 1 d rw,tmpfile; linkat 1 d/t; sync";
    for fs in &ALL[..3] {
        explored(fs, "", whiteout);
    }
}

#[test]
fn writes_of_no_bytes_and_refusals_are_those_of_linux() {
    let text = "open 0 a rw,creat; open 1 a r; mkdir d; open 2 d r; pwrite 0 0 4096 1; \
                expect EBADF; pwrite 1 0 4096 1; open 4 a rw,direct; pwrite 4 0 100 1; \
                open 5 a rw,sync; pwrite 5 0 4096 1; aio_write 5 0 100 1; aio_wait 1; \
                open 6 a rw,append; pwrite 6 0 4096 1; sync_file_range 2 0 0; expect EINVAL; \
                open 3 . rw,creat,tmpfile; expect EISDIR; copy_file_range 0 0 2 0 100; \
                expect EISDIR; copy_file_range 2 0 0 0 100; expect EBADF; \
                copy_file_range 0 0 1 0 100; expect EACCES; mmap_write 1 100 0 1; \
                expect EACCES; mmap_write 2 100 0 1; expect EFAULT; mmap_write 0 100 0 1; \
                expect EINVAL; mmap_write 0 0 0 1; expect ENODEV; msync 2 0 100; \
                expect EINVAL; aio_read 2 100 0; expect EINVAL; fallocate 0 extend 0 0; \
                expect ENXIO; seek_data 0 0; expect ENXIO; seek_hole 0 0; fsync 0";
    for fs in ALL {
        let f = explored(fs, "", text);
        let names: Vec<&str> = f.found.iter().map(|x| x.violation.expected.as_str()).collect();
        assert!(!names.iter().any(|e| e.contains("length")), "{}: {names:?}", fs.name);
    }
}
