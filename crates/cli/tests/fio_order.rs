//! Twenty jobs of the kinds that people publish, with libaio and io_uring at depths from 1 to 256:
//! order, places and lengths of all operations are those that the installed fio logs when it runs
//! them on this host.

use std::fs;
use std::path::Path;
use std::process::Command;

use wp_base::Rng;

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
            return wp_machine::testing::skipped("fio: order of jobs", "fio is not installed");
        };
        if !theirs.status.success() {
            let said = String::from_utf8_lossy(&theirs.stderr).into_owned();
            assert!(options.contains("io_uring"), "{what}: {said}");
            wp_machine::testing::skipped(&format!("fio: order of {what}"), &said);
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

/// Whole logs of jobs with one operation in flight: what is opened, closed, synced (with the offset
/// that fio's `io_u` had before) and read back, in fio's order.
const WHOLE: [&str; 30] = [
    "rw=write\nbs=4k\nsize=64k\nfsync=3\nend_fsync=1",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=md5\nfsync=2",
    "rw=write\nbs=4k\nsize=64k\nverify=md5\nloops=3\nfdatasync=5",
    "rw=write\nbs=4k\nsize=64k\nverify=md5\nverify_backlog=4\nfsync=4",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=crc32c\nverify_backlog=6\nverify_backlog_batch=2",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=md5\nrandom_generator=lfsr\nloops=2",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=md5\nnorandommap\nio_size=96k",
    "rw=randwrite\nbsrange=4k-16k\nsize=256k\nverify=md5",
    "rw=write\nbssplit=4k/50:8k/30:16k/20\nsize=256k\nverify=crc64",
    "rw=randrw\nbssplit=4k/50:8k/50\nsize=256k\nverify=md5",
    "rw=rw\nbs=4k\nsize=64k\nverify=md5\nrwmixread=30",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=md5\nnumber_ios=10",
    "rw=write\nbs=4k\nsize=64k\nverify=md5\nnumber_ios=10\nloops=3",
    "rw=write\nbs=4k\nsize=64k\nverify=md5\nverify_backlog=4\nnumber_ios=10",
    "rw=write\nbs=4k\nsize=64k\nverify=md5\nio_size=160k",
    "rw=randwrite\nbs=4k\nsize=64k\nverify=md5\nio_size=128k",
    "rw=write\nbs=4k\nsize=64k\nverify=null",
    "rw=write\nbs=4k\nsize=64k\nverify=md5\nend_fsync=1",
    "rw=write\nbs=4k\nsize=64k\nnrfiles=3\nfilename_format=f$filenum\nverify=md5",
    "rw=write\nbs=4k\nsize=64k\nioengine=null\nverify=md5\nfsync=3\nend_fsync=1",
    "rw=read\nbs=4k\nsize=64k\nloops=2",
    "rw=write\nbs=4k\nsize=32k\ntime_based\nruntime=1\nrate_iops=150",
    "rw=randwrite\nbs=4k\nsize=32k\ntime_based\nruntime=1\nrate_iops=150\nfsync=3",
    "rw=randread\nbs=4k\nsize=32k\ntime_based\nruntime=1\nrate_iops=150\nrandom_generator=lfsr",
    "rw=write\nbs=4k\nsize=32k\ntime_based\nruntime=1\nrate_iops=150\nnrfiles=2\n\
     filename_format=f$filenum",
    "rw=randwrite\nbs=4k\nsize=32k\ntime_based\nruntime=1\nrate_iops=150\nnrfiles=2\n\
     filename_format=f$filenum",
    "rw=write\nbs=4k\nsize=32k\ntime_based\nruntime=1\nrate_iops=150\nverify=md5",
    "rw=randrw\nbs=4k\nsize=32k\ntime_based\nruntime=1\nthinktime=5000\nnumber_ios=9\nloops=2",
    "rw=write:4k\nbs=4k\nsize=64k\noffset=8k\ntime_based\nruntime=1\nrate_iops=150",
    "rw=randwrite\nbsrange=4k-12k\nsize=64k\ntime_based\nruntime=1\nrate_iops=150",
];

/// Runs a job in both; lines of both logs.
fn both(options: &str) -> Option<[Vec<String>; 2]> {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let name = if options.contains("nrfiles") { "" } else { "filename=f\n" };
    let job = format!("[j]\nthread=1\n{name}{options}\nwrite_iolog=log\n");
    fs::write(at.join("job.fio"), &job).expect("written");
    let mut logs = Vec::new();
    for (program, arguments) in
        [(env!("CARGO_BIN_EXE_writepath"), &["fio", "job.fio"][..]), ("fio", &["job.fio"])]
    {
        let out = Command::new(program).args(arguments).current_dir(at).output().ok()?;
        assert!(out.status.success(), "{options}: {}", String::from_utf8_lossy(&out.stderr));
        let text = fs::read_to_string(at.join("log")).expect("a log");
        logs.push(text.lines().map(str::to_owned).collect());
        for entry in fs::read_dir(at).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|e| e != "fio") {
                fs::remove_file(path).expect("removed");
            }
        }
    }
    logs.try_into().ok()
}

#[test]
fn jobs_that_wait_have_fios_whole_log() {
    let mut wrong = Vec::new();
    for options in WHOLE {
        let Some(logs) = both(options) else {
            return wp_machine::testing::skipped("fio: whole logs", "fio is not installed");
        };
        let [ours, theirs] = logs.map(|lines| -> Vec<String> {
            let lines = lines.iter().skip(1).filter_map(|l| l.split_once(' '));
            lines.map(|(_, rest)| rest.to_owned()).collect()
        });
        let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        // How many operations there is time for is the host's affair.
        let is_same = match options.contains("time_based") {
            // Two rounds of the job are there even on a loaded host.
            true => same > 40 && same + 4 >= ours.len().min(theirs.len()),
            false => same == ours.len() && same == theirs.len(),
        };
        if !is_same {
            let show = |l: &[String]| l[same..l.len().min(same + 4)].join("; ");
            let (counts, ours, theirs) = ((ours.len(), theirs.len()), show(&ours), show(&theirs));
            wrong.push(format!("{options:?} line {same} of {counts:?}: {ours}\n fio: {theirs}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A job that writes at random, and verifies more often than not.
fn any_job(rng: &mut Rng, number: u64) -> String {
    fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
        of[rng.below(of.len() as u64) as usize]
    }
    let rw = pick(rng, &["write", "randwrite", "randwrite", "rw", "randrw"]);
    let lengths = ["bs=4k", "bs=4k", "bs=8k", "bsrange=4k-16k", "bssplit=4k/50:8k/50", "bs=4k,8k"];
    let lengths = pick(rng, &lengths);
    let engine = pick(rng, &["psync", "psync", "sync", "null"]);
    let files = [1, 1, 2, 3][rng.below(4) as usize];
    let size = (8 + rng.below(33)) * 4 * files;
    let mut lines = vec![
        format!("[j{number}]\nrw={rw}\n{lengths}\nioengine={engine}\nsize={size}k"),
        format!("nrfiles={files}\nfilename_format=f{number}.$filenum\nwrite_iolog=log{number}"),
    ];
    if files > 1 {
        let service = pick(rng, &["roundrobin", "sequential", "random"]);
        lines.push(format!("file_service_type={service}"));
    }
    let mut sometimes = |percent: u64, make: &dyn Fn(&mut Rng) -> String| {
        if rng.below(100) < percent {
            lines.push(make(rng));
        }
    };
    sometimes(85, &|r| format!("verify={}", ["md5", "crc32c", "null"][r.below(3) as usize]));
    sometimes(35, &|r| format!("verify_backlog={}", 1 + r.below(9)));
    sometimes(10, &|r| format!("verify_backlog_batch={}", 1 + r.below(9)));
    sometimes(30, &|r| format!("fsync={}", 1 + r.below(6)));
    sometimes(20, &|r| format!("fdatasync={}", 1 + r.below(6)));
    sometimes(20, &|_| "end_fsync=1".to_owned());
    sometimes(30, &|r| format!("loops={}", 2 + r.below(2)));
    sometimes(25, &|r| format!("io_size={}k", 20 + r.below(280)));
    sometimes(25, &|r| format!("number_ios={}", 3 + r.below(57)));
    if rw.starts_with("rand") {
        sometimes(25, &|_| "norandommap".to_owned());
        if !lengths.contains([',', '-', ':']) {
            sometimes(20, &|_| "random_generator=lfsr".to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// Forty of them; `WRITEPATH_FIO_SEED` gives others. One run of fio has all.
#[test]
fn jobs_that_verify_at_random_have_fios_whole_log() {
    const JOBS: u64 = 40;
    let seed = std::env::var("WRITEPATH_FIO_SEED").ok().and_then(|n| n.parse().ok());
    let mut rng = Rng::stream(seed.unwrap_or(1), "fio verify");
    let jobs: Vec<String> = (0..JOBS).map(|n| any_job(&mut rng, n)).collect();
    let dir = tempfile::tempdir().expect("a directory");
    let mut logs: Vec<Vec<Vec<String>>> = Vec::new();
    for (folder, program, arguments) in [
        ("ours", env!("CARGO_BIN_EXE_writepath"), &["fio", "--compat", "bugs", "job.fio"][..]),
        ("theirs", "fio", &["job.fio"]),
    ] {
        let at = dir.path().join(folder);
        fs::create_dir(&at).expect("made");
        // One after the other: how threads take turns is no matter here.
        let text = format!("[global]\nthread=1\nstonewall\n{}", jobs.concat());
        fs::write(at.join("job.fio"), text).expect("written");
        // A job that ends with EILSEQ in both is as good as another.
        let Ok(out) = Command::new(program).args(arguments).current_dir(&at).output() else {
            return wp_machine::testing::skipped("fio: logs of verify", "fio is not installed");
        };
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let read = |n: u64| {
            let text = fs::read_to_string(at.join(format!("log{n}")));
            let text = text.unwrap_or_else(|e| panic!("{folder} {n}: {e}: {said}"));
            let lines = text.lines().skip(1).filter_map(|l| l.split_once(' '));
            lines.map(|(_, rest)| rest.to_owned()).collect()
        };
        logs.push((0..JOBS).map(read).collect());
    }
    let mut lines = 0;
    for ((job, ours), theirs) in jobs.iter().zip(&logs[0]).zip(&logs[1]) {
        let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let show = |l: &[String]| l[same..l.len().min(same + 4)].join("; ");
        assert_eq!(ours, theirs, "{job}line {same}: {}\n fio: {}", show(ours), show(theirs));
        lines += ours.len();
    }
    assert!(lines > 2000, "{lines}");
}

/// At the times of a log that a job with a rate wrote, a replay takes as long as the job.
#[test]
fn a_replay_at_the_times_of_a_log_spans_the_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
        let out = command.args(arguments).current_dir(dir.path()).output().expect("built");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let job = ["--name=j", "--rw=write", "--bs=4k", "--size=64k", "--rate_iops=20"];
    run(&[&["fio"], &job[..], &["--write_iolog=log"]].concat());
    let doc = run(&["replay", "log", "--mode", "timed", "--json"]);
    let doc: serde_json::Value = serde_json::from_slice(&doc).expect("one JSON document");
    let ns = doc["virtual_ns"].as_u64().expect("a number");
    assert!((700_000_000..900_000_000).contains(&ns), "{ns}");
}

/// Times of a log are microseconds, as fio 3.33 writes them.
#[test]
fn times_of_a_log_are_those_of_the_run() {
    let job = "rw=write\nbs=4k\nsize=64k\nrate_iops=20";
    let Some(logs) = both(job) else {
        return wp_machine::testing::skipped("fio: times of a log", "fio is not installed");
    };
    for lines in logs {
        let times: Vec<u64> = lines
            .iter()
            .filter(|l| l.contains(" write "))
            .map(|l| l.split(' ').next().and_then(|t| t.parse().ok()).expect("a time"))
            .collect();
        let spans: Vec<u64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(spans.len(), 15, "{lines:?}");
        // A host with other work is late, and catches up.
        let all: u64 = spans.iter().sum();
        assert!((700_000..60_000_000).contains(&all), "{spans:?}");
    }
}

/// A log with pauses, two files, syncs, and a file that is closed and opened again.
const LOG: &str = "fio version 3 iolog\n\
    1000 a add\n1000 b add\n1000 a open\n1000 a write 0 4096\n101000 b open\n\
    101000 b write 8192 16384\n201000 a sync 0 0\n201000 a read 0 4096\n\
    401000 a close\n401000 b datasync 0 0\n411000 a open\n411000 a write 4096 512\n\
    411000 b close\n411000 a close\n";

/// Operations, bytes and milliseconds of the only job of a report in JSON: reads, writes, syncs.
fn totals(report: &[u8]) -> ([u64; 5], u64) {
    let text = String::from_utf8_lossy(report);
    let start = text.find('{').unwrap_or_else(|| panic!("no JSON: {text}"));
    let doc: serde_json::Value = serde_json::from_str(&text[start..]).expect("JSON");
    let x = &doc["jobs"][0];
    let n = |v: &serde_json::Value| v.as_u64().expect("a number");
    let (r, w) = (&x["read"], &x["write"]);
    let all = [&r["total_ios"], &r["io_bytes"], &w["total_ios"], &w["io_bytes"]].map(n);
    ([all[0], all[1], all[2], all[3], n(&x["sync"]["total_ios"])], n(&x["job_runtime"]))
}

/// Replayed by `read_iolog`: as many operations, bytes and syncs as of the installed fio, in the
/// log's own order, and at its times.
#[test]
fn a_log_is_replayed_as_by_fio() {
    let replay = |program: &Path, more: &[&str], options: &[&str]| {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("log"), LOG).expect("written");
        let mut command = Command::new(program);
        let args = ["--name=x", "--read_iolog=log", "--write_iolog=out", "--output-format=json"];
        command.args(more).args(args);
        let out = command.args(options).current_dir(dir.path()).output().ok()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{program:?} {options:?}: {said}");
        // fio writes none where it reads one.
        let log = fs::read_to_string(dir.path().join("out")).unwrap_or_default();
        Some((totals(&out.stdout), log))
    };
    let ours = Path::new(env!("CARGO_BIN_EXE_writepath"));
    for (options, ms) in [
        (&[][..], 410),
        (&["--ioengine=libaio", "--iodepth=4"], 410),
        (&["--replay_no_stall=1"], 0),
        (&["--replay_time_scale=200"], 205),
        (&["--replay_redirect=c"], 410),
        (&["--replay_scale=2", "--replay_align=4k"], 410),
    ] {
        let (here, log) = replay(ours, &["fio"], options).expect("the program");
        // What the calls themselves take comes on top.
        assert!((ms..ms + 40).contains(&here.1), "{options:?}: {} ms", here.1);
        if options.is_empty() {
            let words = |log: &str| -> Vec<String> {
                let rows = log.lines().skip(1).filter_map(|l| l.split_once(' '));
                rows.map(|(_, what)| what.to_owned()).filter(|w| !w.contains("sync")).collect()
            };
            let (found, asked) = (words(&log), words(LOG));
            let without_add = |w: &[String]| -> Vec<String> {
                w.iter().filter(|w| !w.ends_with(" add")).cloned().collect()
            };
            assert_eq!(without_add(&found), without_add(&asked));
        }
        let Some((there, _)) = replay(Path::new("fio"), &[], options) else {
            return wp_machine::testing::skipped("fio: read_iolog", "fio is not installed");
        };
        // Where a file is closed with operations in flight, or by another's line, fio loses bytes,
        // and ends at once.
        if !options.iter().any(|o| o.contains("iodepth") || o.contains("redirect")) {
            assert_eq!(here.0, there.0, "{options:?}");
            // On a host with other work it takes longer.
            assert!(there.1 + 5 >= ms, "{options:?}: {} ms there", there.1);
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("log"), "fio version 3 iolog\n1 a read 0 4096\n").expect("written");
    let mut command = Command::new(ours);
    let args = ["fio", "--name=x", "--read_iolog=log"];
    let out = command.args(args).current_dir(dir.path()).output().expect("started");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("`log` line 2: the file is not open"), "{said}");
}
