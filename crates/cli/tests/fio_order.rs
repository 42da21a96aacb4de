//! Twenty jobs of the kinds that people publish, with libaio and io_uring at depths from 1 to 256:
//! order, places and lengths of all operations are those that the installed fio logs when it runs
//! them on this host.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What each is like, and its options. Sizes are smaller than those that are published.
const JOBS: [(&str, &str); 20] = [
    ("fio-rand-read", "rw=randread\nbs=4k\nsize=2m\nioengine=libaio\niodepth=16\ndirect=1"),
    ("fio-rand-write", "rw=randwrite\nbs=4k\nsize=2m\nioengine=libaio\niodepth=32"),
    ("fio-rand-rw", "rw=randrw\nbs=4k\nrwmixread=60\nsize=2m\nioengine=libaio\niodepth=16"),
    ("fio-seq-rw", "rw=rw\nbs=256k\nrwmixread=80\nsize=8m\nioengine=libaio\niodepth=4"),
    ("fio-seq-write", "rw=write\nbs=256k\nsize=8m\nioengine=libaio\niodepth=64\nend_fsync=1"),
    (
        "iometer file server",
        "bssplit=512/10:1k/5:2k/5:4k/60:8k/2:16k/4:32k/4:64k/10\nrw=randrw\nrwmixread=80\n\
         size=2m\nioengine=libaio\niodepth=64",
    ),
    ("database log", "rw=write\nbs=4k\nsize=1m\nioengine=io_uring\niodepth=1\nfdatasync=1"),
    ("database pages", "rw=randrw\nbs=8k\nrwmixread=70\nsize=4m\nioengine=io_uring\niodepth=8"),
    ("16k pages", "rw=randwrite\nbs=16k\nsize=4m\nioengine=io_uring\niodepth=32\nfsync=32"),
    ("cloud IOPS", "rw=randread\nbs=4k\nsize=2m\nioengine=libaio\niodepth=256\ndirect=1"),
    ("cloud bandwidth", "rw=read\nbs=1m\nsize=16m\nioengine=libaio\niodepth=64"),
    ("kubernetes bench", "rw=randrw\nbs=4k\nrwmixread=75\nsize=2m\nioengine=libaio\niodepth=64"),
    ("aio-read", "rw=read\nbs=64k\nsize=4m\nioengine=libaio\niodepth=32\niodepth_batch=8"),
    ("ssd-test", "rw=randwrite\nbs=4k\nsize=1m\nioengine=libaio\niodepth=4\nnorandommap\nloops=2"),
    (
        "several files",
        "rw=randwrite\nbs=4k\nsize=2m\nnrfiles=8\nfile_service_type=random\nioengine=libaio\n\
         iodepth=16\nfilename_format=f$filenum",
    ),
    ("a range of blocks", "rw=randread\nbsrange=4k-64k\nsize=4m\nioengine=io_uring\niodepth=128"),
    (
        "half random",
        "rw=randwrite\nbs=4k\npercentage_random=50\nnorandommap\nsize=2m\n\
         ioengine=libaio\niodepth=8",
    ),
    ("strides", "rw=read:60k\nbs=4k\nsize=4m\nioengine=libaio\niodepth=8"),
    ("a part of a file", "rw=randrw\nbs=4k\noffset=1m\nsize=2m\nioengine=io_uring\niodepth=16"),
    (
        "number of operations",
        "rw=randwrite\nbs=4k\nsize=4m\nnumber_ios=300\nioengine=libaio\n\
         iodepth=128\niodepth_batch=32\niodepth_batch_complete=32",
    ),
];

/// The operations of a log, without times and what happens to files.
fn operations(log: &Path, has_syncs: bool) -> Vec<String> {
    let text = fs::read_to_string(log).expect("a log");
    let mut all = Vec::new();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[2] {
            "read" | "write" | "trim" => all.push(words[1..].join(" ")),
            // Its place is that of the operation before.
            "sync" | "datasync" if has_syncs => all.push(words[1..3].join(" ")),
            _ => {}
        }
    }
    all
}

#[test]
fn asynchronous_jobs_have_fios_order_places_and_lengths() {
    let mut operations_seen = 0;
    for (what, options) in JOBS {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path();
        let run = |program: &str, arguments: &[&str]| {
            Command::new(program).args(arguments).current_dir(at).output()
        };
        let name = if options.contains("nrfiles") { "" } else { "filename=f\n" };
        let job = format!("[j]\nthread=1\n{name}{options}\nwrite_iolog=log\n");
        fs::write(at.join("job.fio"), &job).expect("written");
        // Whatever is direct there is no matter here, and not every file system takes it.
        let host = job.replace("direct=1", "direct=0");
        fs::write(at.join("host.fio"), host).expect("written");
        let Ok(theirs) = run("fio", &["host.fio"]) else {
            return wp_lab::testing::skipped("fio: order of jobs", "fio is not installed");
        };
        if !theirs.status.success() {
            let said = String::from_utf8_lossy(&theirs.stderr).into_owned();
            assert!(options.contains("io_uring"), "{what}: {said}");
            wp_lab::testing::skipped(&format!("fio: order of {what}"), &said);
            continue;
        }
        fs::rename(at.join("log"), at.join("their-log")).expect("written");
        let ours = run(env!("CARGO_BIN_EXE_writepath"), &["fio", "job.fio"]).expect("built");
        assert!(ours.status.success(), "{what}: {}", String::from_utf8_lossy(&ours.stderr));
        // With io_uring fio makes one sync after the other until one has ended: how many, and
        // where, is the drive's affair.
        let has_syncs = !options.contains("io_uring") || options.contains("iodepth=1\n");
        let [ours, theirs] = ["log", "their-log"].map(|name| operations(&at.join(name), has_syncs));
        let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        assert!(
            ours == theirs,
            "{what}: operation {same}: {:?} here, {:?} in fio ({} and {})",
            ours.get(same),
            theirs.get(same),
            ours.len(),
            theirs.len()
        );
        operations_seen += ours.len();
    }
    assert!(operations_seen > 7000, "{operations_seen}");
    println!("{} jobs, {operations_seen} operations", JOBS.len());
}
