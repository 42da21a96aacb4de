//! Jobs that end, slow down or change their depth by what they reach: steady states, latency
//! targets, least rates, and operations at random times of a rate.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code, the entry of the first job, and what was said beside it.
fn job(at: &Path, args: &[&str]) -> (i32, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    command.args(["fio", "--name=x", "--bs=4k", "--size=1g", "--output-format=json"]);
    let out = command.args(args).current_dir(at).output().expect("started");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let doc: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {said}"));
    (out.status.code().expect("no signal"), doc["jobs"][0].clone(), said)
}

/// Microseconds and offsets that fio 3.33 logs of `size=40k,rw=randwrite,bs=4k,rate_iops=20`,
/// `rate_process=poisson` on engine null, without the 141 of its beginning. It is up to a
/// millisecond late, and once, after it slept, four.
const POISSON: [(u64, u64); 10] = [
    (0, 0),
    (78586, 28672),
    (83514, 32768),
    (88617, 16384),
    (90263, 20480),
    (92519, 36864),
    (107_403, 12288),
    (109_169, 24576),
    (199_599, 4096),
    (325_459, 8192),
];

#[test]
fn operations_begin_at_the_random_times_of_fio() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--ioengine=null", "--size=40k", "--rw=randwrite", "--rate_iops=20"];
    let more = ["--rate_process=poisson", "--write_lat_log=l", "--log_offset=1"];
    let (code, _, said) = job(dir.path(), &[&args[..], &more].concat());
    assert_eq!(code, 0, "{said}");
    let log = std::fs::read_to_string(dir.path().join("l_lat.1.log")).expect("a log");
    let lines: Vec<(u64, u64)> = log
        .lines()
        .map(|l| {
            let all: Vec<u64> = l.split(", ").filter_map(|n| n.parse().ok()).collect();
            (all[0], all[4])
        })
        .collect();
    assert_eq!(lines.len(), POISSON.len(), "{log}");
    for ((ms, offset), (fio_us, fio_offset)) in lines.iter().zip(POISSON) {
        assert_eq!(*offset, fio_offset, "{log}");
        let late = (fio_us / 1000).checked_sub(*ms).expect("none is later than of fio");
        assert!(late <= 4, "{ms} ms, of fio {fio_us} us");
    }
    let args = ["fio", "--name=x", "--size=1m", "--rate_process=poisson"];
    let out = Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).output().expect("started");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("rate_process=poisson without a rate"), "{said}");
}

#[test]
fn a_job_ends_in_its_steady_state() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--ioengine=null", "--rw=randwrite", "--rate_iops=5000", "--time_based"];
    let more = ["--runtime=9", "--ss=iops:60%", "--ss_dur=4s", "--ss_ramp=1s"];
    let (code, x, said) = job(dir.path(), &[&args[..], &more].concat());
    assert_eq!(code, 0, "{said}");
    let s = &x["steadystate"];
    // The first second after the ramp is not noted, as in fio; which then takes 5.9 s.
    assert_eq!((&s["attained"], x["job_runtime"].as_u64()), (&1.into(), Some(5000)), "{x}");
    assert_eq!(s["ss"], "iops:60.000000%");
    let iops: Vec<u64> = serde_json::from_value(s["data"]["iops"].clone()).expect("numbers");
    assert!(iops.len() == 4 && iops.iter().all(|n| n.abs_diff(5000) <= 1), "{s}");
    // A group whose jobs are reported as one is steady as one.
    let args = ["--ioengine=null", "--rw=randwrite", "--rate_iops=500", "--time_based"];
    let more = ["--runtime=9", "--ss=iops:1%", "--ss_dur=2s", "--numjobs=3", "--group_reporting"];
    let (_, x, said) = job(dir.path(), &[&args[..], &more].concat());
    let s = &x["steadystate"];
    assert_eq!(s["attained"], 1, "{said}");
    assert!(s["data"]["iops_mean"].as_u64().is_some_and(|n| n.abs_diff(1500) <= 3), "{s}");
    // One that never is runs on; what is missing of its seconds is zero.
    let more = ["--runtime=2", "--ss=iops:1%", "--ss_dur=5s"];
    let (_, x, _) = job(dir.path(), &[&args[..], &more].concat());
    let s = &x["steadystate"];
    assert_eq!((&s["attained"], x["job_runtime"].as_u64()), (&0.into(), Some(2000)));
    assert_eq!(s["data"]["iops"][4], 0, "{s}");
}

#[test]
fn a_job_that_waits_for_its_rate_ends_in_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--ioengine=null", "--rw=randwrite", "--size=1m", "--runtime=3"];
    for (rate, ios) in [("--rate=1", 1), ("--rate=1000", 1), ("--rate_iops=1", 3)] {
        let (code, x, said) = job(dir.path(), &[&args[..], &[rate]].concat());
        let found = (code, x["job_runtime"].as_u64(), x["write"]["total_ios"].as_u64());
        assert_eq!(found, (0, Some(3000), Some(ios)), "{rate}: {said}");
    }
    // Engines whose operations do nothing as well.
    for engine in ["filecreate", "filestat"] {
        let engine = format!("--ioengine={engine}");
        let args = [&engine, "--rw=write", "--size=1m", "--time_based", "--runtime=1"];
        let (code, x, said) = job(dir.path(), &args);
        assert_eq!((code, x["job_runtime"].as_u64()), (0, Some(1000)), "{said}");
    }
}

/// The job ends without an error, and what it wrote is all that another could have.
#[test]
fn a_job_fills_each_file_system() {
    for fs in ["ext4", "btrfs", "f2fs", "nilfs2"] {
        let dir = tempfile::tempdir().expect("a directory");
        let machine = [&format!("--set=fs={fs}"), "--set=partition-size=256m"];
        let args = ["--bs=64k", "--size=0", "--rw=write", "--fill_device=1", "--end_fsync=1"];
        for direct in ["--direct=0", "--direct=1"] {
            let (code, x, said) = job(dir.path(), &[&args[..], &machine, &[direct]].concat());
            assert_eq!((code, &x["error"]), (0, &0.into()), "{fs} {direct}: {said}");
            let mib = x["write"]["io_bytes"].as_u64().expect("a number") >> 20;
            assert!((64..256).contains(&mib), "{fs} {direct}: {mib} MiB");
        }
        // Nothing is reserved that could be refused at the start.
        let plain = ["--bs=64k", "--rw=write", "--fallocate=none"];
        let (code, x, _) = job(dir.path(), &[&plain[..], &machine].concat());
        assert_eq!((code, &x["error"]), (4, &28.into()), "{fs}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--size=0", "--rw=write", "--fill_device=1", "--bs=1m", "--filename=/dev/nvme0n1"];
    let small = ["--set=device=fixed", "--set=device.capacity_bytes=8388608"];
    let (code, x, said) = job(dir.path(), &[&args[..], &small].concat());
    assert_eq!((code, &x["write"]["io_bytes"]), (0, &(8u64 << 20).into()), "{said}");
}

#[test]
fn a_job_below_its_least_rate_ends_with_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--ioengine=null", "--rw=read", "--time_based", "--runtime=9", "--thinktime=1000"];
    let (code, x, said) = job(dir.path(), &[&args[..], &["--rate_iops_min=5000"]].concat());
    assert_eq!((code, &x["error"]), (4, &5.into()));
    assert!(said.contains("rate_iops_min=5000 not met, got 99"), "{said}");
    // Two seconds to settle, and one to reckon.
    assert!(x["job_runtime"].as_u64().is_some_and(|ms| (3000..3010).contains(&ms)), "{x}");
    let (code, x, _) = job(dir.path(), &[&args[..], &["--rate_min=3m"]].concat());
    assert_eq!((code, &x["error"]), (0, &0.into()), "a thousand of 4 KiB are more");
}

/// The fixed device answers in 100 us, 32 at a time: more in flight wait.
#[test]
fn the_depth_is_the_greatest_that_meets_the_target() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--ioengine=libaio", "--direct=1", "--filename=/dev/nvme0n1", "--rw=randread"];
    let more = ["--iodepth=128", "--time_based", "--runtime=20", "--latency_window=50ms"];
    let device = [
        "--set=device=fixed",
        "--set=device.latency_ns=100000",
        "--set=device.queue_depth=32",
        "--set=cpu=free",
    ];
    let deep = |target: &str, percentile: &str| {
        let all = [&args[..], &more, &device, &[target, percentile]].concat();
        let (_, x, said) = job(dir.path(), &all);
        (x["latency_depth"].as_u64().unwrap_or_else(|| panic!("{said}")), x)
    };
    let (depth, x) = deep("--latency_target=150", "--latency_percentile=99");
    assert_eq!(depth, 32);
    assert_eq!(x["latency_target"], 150_000);
    // Only the last window counts.
    assert!(x["job_runtime"].as_u64().is_some_and(|ms| (50..60).contains(&ms)), "{x}");
    let (free, _) = deep("--latency_target=1s", "--latency_percentile=100");
    assert_eq!(free, 128);
    let (none, x) = deep("--latency_target=50", "--latency_percentile=100");
    assert_eq!((none, &x["error"]), (1, &110.into()), "no depth meets it");
}
