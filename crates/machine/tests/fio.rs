//! fio jobs on a mounted ext4, and reports with the keys of fio's own.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use wp_base::Sector;
use wp_base::event::{Class, Event};
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::testing::skipped;
use wp_machine::workload::WorkloadReport;
use wp_machine::{Machine, MachineSpec};
use wp_vfs::Options;

fn machine() -> Machine {
    let fs = registry::FILE_SYSTEMS[0];
    let spec = MachineSpec {
        seed: 1,
        cpu: Profile::known("i7-4770").model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: "noop".to_owned(),
        start: Sector(2048),
        sectors: Some(64 << 11),
        fs,
        fs_options: Options::parse("era=4.6", fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (4, 6),
    };
    Machine::new(spec, None).expect("builds")
}

/// Runs a job file; its report, and how often each system call was made while it ran.
fn run(job: &str, options: &str) -> (WorkloadReport, Vec<&'static str>, u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("job.fio");
    std::fs::write(&path, job).expect("written");
    let entry = registry::find("workload", registry::WORKLOADS, |w| w.name, "fio").expect("there");
    let text = format!("job={}{options}", path.display());
    let o = Options::parse(&text, entry.options).expect("known options");
    (entry.check)(&o).map_err(|e| e.to_string()).expect("a job that can run");
    let m = machine();
    let vfs = m.mount().expect("mounts");
    m.record(Class::SYSCALL);
    let v = vfs.clone();
    let start = m.rt.now();
    let report =
        m.block_on("t", async move { (entry.run)(&v, &o).await }).expect("ends").expect("works");
    let took = m.rt.now().since(start).0;
    let calls = m.rt.probe().take();
    let names = calls.iter().filter_map(|r| match &r.event {
        Event::SyscallEnter { name, .. } => Some(*name),
        _ => None,
    });
    let names = names.collect();
    m.unmount(&vfs).expect("unmounts");
    (report, names, took)
}

fn count(calls: &[&str], name: &str) -> usize {
    calls.iter().filter(|c| **c == name).count()
}

fn jobs(report: &WorkloadReport) -> &Vec<Value> {
    report.documents[0].1["jobs"].as_array().expect("a list")
}

#[test]
fn an_fsync_after_each_of_1024_writes_makes_1023() {
    let (report, calls, _) = run("[j]\nrw=write\nbs=4k\nsize=4m\nfsync=1\n", "");
    assert_eq!((count(&calls, "pwrite64"), count(&calls, "fsync")), (1024, 1023));
    let job = &jobs(&report)[0];
    assert_eq!(job["sync"]["total_ios"], 1023);
    assert_eq!(job["write"]["total_ios"], 1024);
    assert!(job["sync"]["lat_ns"]["mean"].as_f64() > job["write"]["clat_ns"]["mean"].as_f64());
    let (_, calls, _) = run("[j]\nrw=write\nbs=4k\nsize=64k\nfdatasync=1\nend_fsync=1\n", "");
    assert_eq!((count(&calls, "fdatasync"), count(&calls, "fsync")), (15, 1));
}

#[test]
fn reads_find_the_file_laid_out_and_clones_have_files_of_their_own() {
    let text = "[j]\nrw=randread\nbs=4k\nsize=256k\nnumjobs=2\ngroup_reporting\n";
    let (report, calls, _) = run(text, "");
    assert_eq!(count(&calls, "pread64"), 128);
    assert_eq!(jobs(&report).len(), 1);
    assert_eq!(jobs(&report)[0]["read"]["io_bytes"], 512 << 10);
    assert_eq!(jobs(&report)[0]["read"]["short_ios"], 0);
}

#[test]
fn time_rate_and_think_time_pass_in_virtual_time() {
    let second = 1_000_000_000;
    let (report, _, took) = run("[j]\nrw=write\nbs=4k\nsize=64k\nruntime=3\ntime_based\n", "");
    assert!((3 * second..4 * second).contains(&took), "{took}");
    assert!(jobs(&report)[0]["write"]["total_ios"].as_u64() > Some(1000));
    let (_, _, took) = run("[j]\nrw=write\nbs=4k\nsize=400k\nrate_iops=50\n", "");
    assert!((1_900_000_000..2_200_000_000).contains(&took), "{took}");
    let (_, _, took) = run("[j]\nrw=write\nbs=4k\nsize=40k\nthinktime=100ms\n", "");
    assert!((second..2 * second).contains(&took), "{took}");
}

#[test]
fn fios_wrong_file_syncs_are_made_only_when_asked_for() {
    let text = "[j]\nrw=write\nbs=4k\nsize=64k\nnrfiles=2\nfsync=1\n";
    let (intended, calls, _) = run(text, "");
    assert_eq!(count(&calls, "fsync"), 15);
    assert!(intended.notes.iter().any(|n| n.contains("1904")), "{:?}", intended.notes);
    let (_, calls, _) = run(text, ",compat=bugs");
    // The first file takes every write until it is full, the second one every sync.
    assert!(calls.windows(4).any(|w| w == ["pwrite64", "fsync", "pwrite64", "fsync"]));
}

fn keys(v: &Value, at: &str, out: &mut BTreeSet<String>) {
    match v {
        Value::Object(m) => {
            for (k, v) in m {
                let path = format!("{at}/{k}");
                // Disks are the host's.
                if k != "disk_util" {
                    keys(v, &path, out);
                }
                out.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|v| keys(v, &format!("{at}[]"), out)),
        _ => {}
    }
}

fn fios_report(dir: &Path, text: &str) -> Value {
    std::fs::write(dir.join("job.fio"), text).expect("written");
    let out = Command::new("fio")
        .current_dir(dir)
        .args(["--output-format=json", "--output=out.json", "job.fio"])
        .output()
        .expect("fio runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let bytes = std::fs::read(dir.join("out.json")).expect("a report");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn a_report_has_the_keys_and_counts_of_fios() {
    let check = "fio report";
    let version = Command::new("fio").arg("--version").output();
    if !version.is_ok_and(|v| v.stdout.starts_with(b"fio-3.33")) {
        skipped(check, "fio 3.33 is not installed");
        return;
    }
    for text in [
        "[global]\nsize=64k\nbs=4k\nioengine=psync\n[a]\nrw=randwrite\nfsync=2\n[b]\nstonewall\nrw=read\n",
        "[a]\nsize=64k\nrw=randrw\ndescription=both\npercentile_list=50:99.9\nlat_percentiles=1\n",
        "[a]\nsize=64k\nrw=write\nnumjobs=2\ngroup_reporting\nend_fsync=1\n",
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let theirs = fios_report(dir.path(), text);
        let (report, _, _) = run(text, "");
        let ours = &report.documents[0].1;
        let (mut a, mut b) = (BTreeSet::new(), BTreeSet::new());
        keys(ours, "", &mut a);
        keys(&theirs, "", &mut b);
        let only = |x: &BTreeSet<String>, y: &BTreeSet<String>| {
            x.difference(y).cloned().collect::<Vec<_>>()
        };
        assert_eq!(only(&a, &b), Vec::<String>::new(), "ours only: {text}");
        assert_eq!(only(&b, &a), Vec::<String>::new(), "fio's only: {text}");
        for (o, t) in jobs(&report).iter().zip(theirs["jobs"].as_array().expect("a list")) {
            for path in
                ["/read/io_bytes", "/write/total_ios", "/sync/total_ios", "/iodepth_level/1"]
            {
                assert_eq!(
                    o.pointer(path).and_then(Value::as_f64),
                    t.pointer(path).and_then(Value::as_f64),
                    "{path}: {text}"
                );
            }
        }
    }
}

#[test]
fn direct_writes_wait_for_the_device_and_durable_ones_for_its_medium() {
    let write = |options: &str| {
        let job = format!("[j]\nrw=randwrite\nbs=4k\nsize=1m\nfallocate=posix\n{options}");
        let (report, calls, _) = run(&job, "");
        assert_eq!((count(&calls, "fallocate"), count(&calls, "pwrite64")), (1, 256), "{options}");
        jobs(&report)[0]["write"]["clat_ns"]["mean"].as_f64().expect("a number")
    };
    let (cached, direct, durable) = (write(""), write("direct=1\n"), write("direct=1\nsync=dsync"));
    assert!(cached < direct && direct < durable, "{cached} {direct} {durable}");
}
