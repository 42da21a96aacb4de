//! Job files and workload models as people publish them: what is asked for, what is off, what does
//! not fit.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code, and what it said.
fn call(at: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    let out = command.args(args).current_dir(at).output().expect("started");
    let said = [out.stdout, out.stderr].concat();
    (out.status.code().expect("no signal"), String::from_utf8_lossy(&said).into_owned())
}

/// `fio check` and `run` of a job: both end with this code and say this.
fn both(job: &str, code: i32, says: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("job.fio"), job).expect("written");
    for args in [
        &["fio", "check", "job.fio"][..],
        &["run", "--no-events", "--device", "fixed", "--workload", "fio,job=job.fio"],
        &["crash", "job.fio"],
    ] {
        // Of what can run, `crash` takes only what is a list of calls.
        if code == 0 && args[0] == "crash" {
            continue;
        }
        let (ended, said) = call(dir.path(), args);
        assert_eq!(ended, code, "{args:?}: {job}\n{said}");
        assert!(code == 0 || said.contains(says), "{args:?}: {job}\n{said}");
    }
}

/// A number of a run.
fn number(at: &Path, workload: &str, key: &str) -> u64 {
    let args = ["run", "--no-events", "--json", "--workload", workload];
    let (code, said) = call(at, &args);
    assert_eq!(code, 0, "{said}");
    let start = said.find('{').expect("a document");
    let mut all = serde_json::Deserializer::from_str(&said[start..]).into_iter::<Value>();
    let doc = all.next().expect("a document").expect("JSON");
    doc["numbers"][key].as_u64().unwrap_or_else(|| panic!("{key}: {said}"))
}

#[test]
fn what_a_job_does_not_ask_for_is_no_reason_to_refuse_it() {
    let job = "[j]\nrw=write\nsize=64k\n";
    for off in [
        "verify=0",
        "verify=none",
        "ramp_time=0",
        "continue_on_error=none",
        "unlink_each_loop=0",
        "file_append=0",
        "exitall=0",
        "rate_min=0",
        "trim_percentage=0",
        "latency_target=0",
        "write_hint=short",
        "ioscheduler=none",
        "gtod_reduce=1",
        "disable_clat=1",
        "stats=0",
        "prio=3",
        "fixedbufs=1",
        "do_verify=1",
        "verify_fatal=1",
        "threads=1",
    ] {
        both(&format!("{job}{off}\n"), 0, "");
    }
    for done in ["ramp_time=2s", "unlink_each_loop=1", "continue_on_error=all", "exitall"] {
        both(&format!("{job}{done}\n"), 0, "");
    }
    for asked in ["verify_only", "trim_percentage=5", "lockfile=exclusive"] {
        both(&format!("{job}{asked}\n"), 3, "is not supported");
    }
}

#[test]
fn one_operation_in_flight_costs_an_asynchronous_engine_one_more_call() {
    let job = |engine: &str, depth: u32| {
        format!("[j]\nrw=randwrite\nbs=4k\nsize=1m\ndirect=1\nioengine={engine}\niodepth={depth}\n")
    };
    let dir = tempfile::tempdir().expect("a directory");
    let time = |engine: &str| {
        fs::write(dir.path().join("job.fio"), job(engine, 1)).expect("written");
        number(dir.path(), "fio,job=job.fio", "j.0.write_runtime_ns")
    };
    let psync = time("psync");
    // A thread of the C library makes the call.
    let threads = time("posixaio");
    assert!(threads >= psync && threads < psync * 2, "{threads} against {psync}");
    for engine in ["libaio", "io_uring"] {
        let more = (time(engine) - psync) as f64 / 256.0;
        assert!((more - 1500.0).abs() < 10.0, "{engine}: {more} ns a call");
    }
    both(&job("posixaio", 4), 0, "");
    both(&job("psync", 4), 0, "");
    both(&job("rdma", 1), 3, "engine `rdma` is not supported");
}

/// The shares of depths, and of how many calls are submitted and reaped at once, that fio itself
/// reports of the same job on the host.
#[test]
fn a_queue_is_filled_and_reaped_as_fio_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let head = "[global]\nrw=randwrite\nbs=4k\nsize=1m\nfilename=f\n";
    // Equal bounds of how many are reaped: more would depend on what has ended by then.
    let jobs = [
        "iodepth=1",
        "iodepth=7",
        "iodepth=32",
        "iodepth=64\niodepth_low=16",
        "iodepth=32\niodepth_batch=8\niodepth_batch_complete_min=8",
        "iodepth=16\niodepth_batch=0\niodepth_batch_complete_min=16",
        "iodepth=20\niodepth_batch=7\niodepth_batch_complete_min=3\niodepth_low=5",
        "iodepth=256\niodepth_batch=64\niodepth_batch_complete=64",
        "iodepth=8\nfsync=10",
        "iodepth=8\niodepth_batch=3\nfdatasync=5",
    ];
    for options in jobs {
        let job = format!("{head}[j]\ndirect=1\nioengine=libaio\n{options}\n");
        fs::write(at.join("job.fio"), job).expect("written");
        let args = ["fio", "job.fio", "--output-format=json"];
        let (code, said) = call(at, &args);
        assert_eq!(code, 0, "{options}: {said}");
        let start = said.find('{').expect("a document");
        let mut all = serde_json::Deserializer::from_str(&said[start..]).into_iter::<Value>();
        let ours = all.next().expect("a document").expect("JSON")["jobs"][0].clone();
        assert_eq!(ours["write"]["total_ios"], 256, "{options}");
        let host = format!("{head}thread=1\n[j]\nioengine=libaio\n{options}\n");
        fs::write(at.join("host.fio"), host).expect("written");
        let Ok(out) =
            Command::new("fio").args(["--output-format=json", "host.fio"]).current_dir(at).output()
        else {
            return wp_machine::testing::skipped("fio: queues", "fio is not installed");
        };
        let theirs: Value = serde_json::from_slice(&out.stdout).expect("fio's JSON");
        let theirs = &theirs["jobs"][0];
        assert_eq!(ours["sync"]["total_ios"], theirs["sync"]["total_ios"], "{options}");
        for key in ["iodepth_level", "iodepth_submit", "iodepth_complete"] {
            let shares = |doc: &Value| -> Vec<(String, i64)> {
                let map = doc[key].as_object().expect("shares");
                let share = |v: &Value| (v.as_f64().expect("a number") * 100.0).round() as i64;
                map.iter().map(|(k, v)| (k.clone(), share(v))).collect()
            };
            assert_eq!(shares(&ours), shares(theirs), "{options}: {key}");
        }
    }
}

#[test]
fn what_does_not_fit_is_said_before_anything_runs() {
    both(
        "[p]\nfilename=/dev/nvme0n1:f\nrw=write\nsize=1m\n",
        3,
        "`/dev/nvme0n1` is a block device",
    );
    both("[p]\nrw=write\nnumber_ios=10\n", 2, "job `p`: set `size`");
    both("[p]\nrw=write\nsize=64Ki\nbs=4Ki\nruntime=1:30\n", 0, "");
    let (dir, large) = (tempfile::tempdir().expect("a directory"), "[r]\nrw=read\nsize=400g\n");
    fs::write(dir.path().join("job.fio"), large).expect("written");
    let model = "set $dir=/t\ndefine fileset name=v,path=$dir,size=10g,entries=200,dirwidth=20,prealloc=50\n\
        define process name=p,instances=1\n{\nthread name=t,memsize=10m,instances=1\n{\n\
        flowop read name=r,filesetname=v,iosize=256k\n}\n}\nrun 1\n";
    fs::write(dir.path().join("t.f"), model).expect("written");
    for (workload, says) in [
        ("fio,job=job.fio", "(job `r`: 409600 MiB)"),
        ("filebench,file=t.f", "(fileset `v`: 1024000 MiB)"),
    ] {
        let (code, said) = call(dir.path(), &["run", "--workload", workload]);
        assert!(code == 2 && said.contains(says) && said.contains(" MiB free"), "{said}");
    }
}

/// A job on a device needs no --fs; a drive has a file system, or programs use it themselves.
#[test]
fn a_job_on_a_block_device_runs_on_a_drive_without_a_file_system() {
    let dir = tempfile::tempdir().expect("a directory");
    let raw = "[p]\nfilename=/dev/nvme0n1\nrw=randtrimwrite\nbs=4k\nsize=1m\ndirect=1\n";
    fs::write(dir.path().join("raw.fio"), raw).expect("written");
    fs::write(dir.path().join("file.fio"), "[p]\nrw=write\nsize=1m\n").expect("written");
    let both = raw.to_owned() + "[q]\nrw=write\nsize=1m\n";
    fs::write(dir.path().join("both.fio"), both).expect("written");
    let job = |name: &str| format!("fio,job={name}.fio");
    let run = |args: &[&str]| call(dir.path(), args);
    let (code, said) = run(&["run", "--workload", &job("raw")]);
    assert!(code == 0 && said.contains("p.0.trim_ios 256"), "{said}");
    let (code, said) = run(&["explain", "results/latest"]);
    assert!(code == 0, "{said}");
    let (code, said) = run(&["fio", "raw.fio"]);
    assert!(code == 0 && said.contains("total=0,256,256,0"), "{said}");
    for (fs, name, says) in [
        ("ext4", "raw", "give --fs none"),
        ("none", "file", "give --fs ext4"),
        ("none", "both", "write two job files"),
        ("ext4", "both", "write two job files"),
    ] {
        let (code, said) = run(&["run", "--fs", fs, "--workload", &job(name)]);
        assert!(code == 2 && said.contains(says), "{fs} {name}: {code} {said}");
        let (code, said) = run(&["fio", "--set", &format!("fs={fs}"), &format!("{name}.fio")]);
        let says = if name == "both" { says } else { "--set fs=none" };
        assert!(code == 2 && said.contains(says), "{fs} {name}: {code} {said}");
    }
    let (code, said) = run(&["run", "--fs", "none", "--workload", "varmail"]);
    assert!(code == 2 && said.contains("block devices only"), "{said}");
    let (code, said) = run(&["crash", "raw.fio"]);
    assert!(code == 2 && said.contains("block device"), "{said}");
}

/// A file that an image holds needs no size, and space that nobody reserves need not be free.
#[test]
fn what_an_image_holds_and_what_a_file_system_lacks_are_taken_into_account() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::write(at.join("make.fio"), "[a]\nrw=write\nsize=1m\nfilename=f\n").expect("written");
    fs::write(at.join("read.fio"), "[a]\nrw=read\nfilename=f\nfallocate=none\n").expect("written");
    let run =
        |args: &[&str]| call(at, &[&["run", "--no-events", "--device", "fixed"], args].concat());
    let (code, said) = run(&["--workload", "fio,job=make.fio", "--save-image", "d.img"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&["--workload", "fio,job=read.fio", "--image", "d.img"]);
    assert!(code == 0 && said.contains("a.0.read_bytes 1048576"), "{code}: {said}");
    let (code, said) = run(&["--workload", "fio,job=read.fio"]);
    assert!(code == 2 && said.contains("job `a`: set `size`"), "{said}");
    let few = "[a]\nrw=write\nsize=400g\nnumber_ios=10\n";
    fs::write(at.join("few.fio"), few).expect("written");
    let nilfs2 = ["--fs", "nilfs2,era=6.12", "--workload", "fio,job=few.fio"];
    let (code, said) = run(&nilfs2);
    assert!(code == 0 && said.contains("a.0.write_ios 10"), "{code}: {said}");
    let (code, said) = run(&["--fs", "ext4", "--workload", "fio,job=few.fio"]);
    assert!(code == 2 && said.contains(" MiB free"), "{code}: {said}");
}

#[test]
fn one_mistake_is_one_error_that_leads_on() {
    let dir = tempfile::tempdir().expect("a directory");
    for (line, says) in [
        ("size=${SIZE}", "`--vars SIZE:VALUE`"),
        ("size=$mb_memory*1024", "`$mb_memory` is a number of the host"),
        ("fdp=1", "option `fdp` is not one of fio 3.33's"),
    ] {
        fs::write(dir.path().join("job.fio"), format!("[j]\nrw=write\n{line}\n")).expect("written");
        let (code, said) = call(dir.path(), &["fio", "check", "job.fio"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(says) && said.matches("error:").count() == 1, "{said}");
    }
}

/// `invalidate=1` is fio's default, and so is `drop_caches` in published models.
#[test]
fn a_cold_read_is_read_from_the_drive() {
    let dir = tempfile::tempdir().expect("a directory");
    let time = |more: &str| {
        let job = format!("[r]\nrw=randread\nbs=4k\nsize=4m\n{more}");
        fs::write(dir.path().join("job.fio"), job).expect("written");
        number(dir.path(), "fio,job=job.fio", "r.0.read_p50_ns")
    };
    let (cold, warm) = (time(""), time("invalidate=0\n"));
    assert!(warm < 2_000 && cold > 20 * warm, "{cold} and {warm}");
    let model = |cached: &str, drop: &str| {
        let text = format!(
            "set $dir=/t\nset mode quit alldone\nusage \"reads of one file\"\n\
             define file name=big,path=$dir,size=4m,prealloc{cached}\n\
             define process name=p,instances=1\n{{\nthread name=t,memsize=1m,instances=1\n{{\n\
             flowop read name=r,filesetname=big,random,iosize=128k,iters=20\n\
             flowop finishoncount name=f,value=1\n}}\n}}\ncreate files\nsystem \"sync\"\n\
             {drop}psrun -10\n"
        );
        fs::write(dir.path().join("t.f"), text).expect("written");
        number(dir.path(), "filebench,file=t.f", "read.p50_ns")
    };
    let drop = "system \"echo 3 > /proc/sys/vm/drop_caches\"\n";
    let (cold, warm) = (model("", drop), model("", ""));
    assert!(cold > 5 * warm, "{cold} and {warm}");
    // Models for filebench 1.4 say it of a file.
    assert_eq!(model(",cached=true", ""), warm);
    assert!(model(",cached=false", "") > 5 * warm);
}

/// Every key of `theirs` is in `ours`, with a value of the same type.
fn assert_has_keys(ours: &Value, theirs: &Value, at: &str) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in b {
                // A bin is a latency that occurred.
                if at.ends_with("/bins") {
                    continue;
                }
                let own = a.get(key).unwrap_or_else(|| panic!("no {at}/{key}"));
                assert_has_keys(own, value, &format!("{at}/{key}"));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            // The simulated machine has no disks of a host.
            if at.ends_with("/disk_util") {
                return;
            }
            assert_eq!(a.len(), b.len(), "{at}");
            a.iter().zip(b).for_each(|(a, b)| assert_has_keys(a, b, &format!("{at}[]")));
        }
        (Value::Number(a), Value::Number(b)) => {
            assert_eq!(a.is_f64(), b.is_f64(), "{at}: {a} and {b}");
        }
        (a, b) => {
            assert_eq!(std::mem::discriminant(a), std::mem::discriminant(b), "{at}: {a} and {b}");
        }
    }
}

/// The same arguments for fio and for `writepath fio`: every key of fio's JSON is there, with a
/// value of its type, so that what reads the one reads the other.
#[test]
fn the_command_line_is_fios_and_so_are_the_keys_of_its_report() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("f");
    let path = format!("--filename={}", file.display());
    let arguments = [
        "--bs=4k",
        "--size",
        "1m",
        path.as_str(),
        "--name=w",
        "--rw=write",
        "--fsync=8",
        "--description=some writes",
        "--name=m",
        "--stonewall",
        "--rw=randrw",
        "--time_based",
        "--runtime=1",
        "--rate_iops=100",
        "--lat_percentiles=1",
        "--output-format=json+",
        "--name=g",
        "--stonewall",
        "--numjobs=2",
        "--group_reporting",
        "--rw=read",
    ];
    let writepath = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .arg("fio")
        .args(arguments)
        .current_dir(dir.path())
        .output()
        .expect("started");
    assert!(writepath.status.success(), "{}", String::from_utf8_lossy(&writepath.stderr));
    let ours: Value = serde_json::from_slice(&writepath.stdout).expect("JSON alone");
    assert_eq!(ours["jobs"][0]["write"]["total_ios"], 256);
    assert_eq!(ours["jobs"][0]["sync"]["total_ios"], 31);
    assert!(ours["jobs"][1]["read"]["bw_samples"].as_u64() > Some(0), "{}", ours["jobs"][1]);
    assert_eq!(ours["jobs"][2]["read"]["total_ios"], 512, "both clones");
    assert_eq!(ours["global options"]["bs"], "4k");
    let there = Command::new("fio").arg("--version").output();
    if !there.is_ok_and(|v| v.stdout.starts_with(b"fio-3.33")) {
        return wp_machine::testing::skipped("keys of fio's JSON", "fio 3.33 is not installed");
    }
    let fio = Command::new("fio").args(arguments).current_dir(dir.path()).output().expect("runs");
    assert!(fio.status.success(), "{}", String::from_utf8_lossy(&fio.stderr));
    // fio's notes stand before its report.
    let begins = fio.stdout.iter().position(|b| *b == b'{').expect("a document");
    let theirs: Value = serde_json::from_slice(&fio.stdout[begins..]).expect("JSON");
    assert_has_keys(&ours, &theirs, "");
    for n in 0..3 {
        for (side, count) in [("read", "total_ios"), ("write", "total_ios"), ("sync", "total_ios")]
        {
            // A job of a time does what there is time for.
            let same = n == 1 || ours["jobs"][n][side][count] == theirs["jobs"][n][side][count];
            assert!(same, "{n} {side}: {} {}", ours["jobs"][n], theirs["jobs"][n]);
        }
    }
}

#[test]
fn the_command_line_takes_job_files_sections_and_a_machine() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::write(at.join("a.fio"), "[w]\nrw=write\nsize=64k\n[r]\nrw=read\nsize=64k\n")
        .expect("written");
    let fio = |args: &[&str]| call(at, &[&["fio"], args].concat());
    let (code, said) = fio(&["--bs=8k", "a.fio", "--section=w", "--showcmd"]);
    assert_eq!((code, said.as_str()), (0, "fio --bs=8k --name=w --rw=write --size=64k\n"));
    let (code, said) = fio(&["a.fio", "--section=w", "--output-format=terse"]);
    assert!(code == 0 && said.starts_with("3;fio-3.33;w;0;0;0;"), "{said}");
    let (code, said) = fio(&["a.fio", "--section=w", "--output=o.txt", "--set", "device=fixed"]);
    assert!(code == 0 && said == "written to o.txt\n", "{said}");
    let text = fs::read_to_string(at.join("o.txt")).expect("a report");
    assert!(text.contains("\nw: (groupid=0, jobs=1): err= 0: pid=1:"), "{text}");
    let rate = |set: &str| {
        let args = ["--name=a", "--rw=write", "--size=4m", "--fsync=1", "--output-format=json"];
        let (code, said) = fio(&[&args[..], &["--set", set]].concat());
        assert_eq!(code, 0, "{said}");
        let doc: Value = serde_json::from_str(&said).expect("JSON");
        doc["jobs"][0]["write"]["iops"].as_f64().expect("a rate")
    };
    assert!(rate("device=emmc-16") < rate("device=fixed"), "the machine is the one asked for");
    for (args, code, says) in [
        (&["--name=a", "--sise=1m"][..], 2, "did you mean `--size`?"),
        (&["--name=a", "--size"], 2, "`--size` needs a value"),
        (&["--name=a", "--size=1m", "--verify=md6"], 2, "none of fio's values"),
        (&["--name=a", "--size=1m", "--client=h"], 3, "--client is not supported"),
        (&["--name=a", "--size=1m", "--set", "nothing=1"], 2, "--set nothing: unknown"),
        (&["--name=a", "--size=1m", "--output-format=xml"], 2, "normal, json, json+, terse"),
        (&["--bs=4k"], 2, "begin one with `--name=NAME`"),
        (&["a.fio", "--section=none"], 2, "no job of `--section`"),
        (&["missing.fio"], 74, "missing.fio"),
        (&["--name=a", "--size=1m", "--rw=write", "--readonly"], 2, "job `a` writes"),
    ] {
        let (ended, said) = fio(args);
        assert!(ended == code && said.contains(says), "{args:?}: {ended}\n{said}");
    }
}

#[test]
fn check_lists_defaults_that_differ_and_values_that_ask_for_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let job = "[j]\nrw=randread\nsize=1m\nlockfile=none\nprio=3\nfadvise_hint=0\n";
    fs::write(dir.path().join("job.fio"), job).expect("written");
    let (code, said) = call(dir.path(), &["fio", "check", "job.fio"]);
    assert_eq!(code, 0, "{said}");
    for says in [
        "[j] lockfile=none            off",
        "[j] prio=3                   no effect",
        "differ here:\n[j] disk_util=1",
    ] {
        assert!(said.contains(says), "{says}: {said}");
    }
    assert!(!said.contains("scramble_buffers") && !said.contains("fadvise_hint=1"), "{said}");
    both("[j]\nrw=write\nsize=1m\nnice=99\n", 2, "fio takes -20 to 19");
    both("[j]\nrw=write\nsize=1m\nnumjobs=1k\nnumjobs=2\nnice=-5\n", 0, "");
}

/// What jobs do to each other, and when their counting begins.
#[test]
fn jobs_wait_for_each_other_end_each_other_and_keep_their_shares() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let run = |job: &str, more: &[&str]| -> Value {
        fs::write(at.join("job.fio"), job).expect("written");
        let args = [&["fio", "job.fio", "--output-format=json"], more].concat();
        let out = Command::new(env!("CARGO_BIN_EXE_writepath"))
            .args(args)
            .current_dir(at)
            .output()
            .expect("started");
        let said = String::from_utf8_lossy(&out.stderr);
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {job}\n{said}"))
    };
    let ios = |doc: &Value, n: usize, side: &str| {
        doc["jobs"][n][side]["total_ios"].as_u64().expect("a number")
    };
    let endless = "[global]\nbs=4k\nsize=1m\nrw=write\nrate_iops=100\n";
    // One ends after its 10 operations; the other would go on for ten seconds.
    let pair = "time_based\nruntime=10\n[b]\nnumber_ios=10\n";
    let doc = run(&format!("{endless}[a]\n{pair}exitall\n"), &[]);
    assert_eq!((ios(&doc, 1, "write"), ios(&doc, 0, "write") < 20), (10, true), "{doc}");
    let doc = run(&format!("{endless}[a]\n{pair}"), &[]);
    assert!((1000..=1001).contains(&ios(&doc, 0, "write")), "{doc}");
    // b begins when a is over.
    let doc = run(&format!("{endless}[a]\n[b]\nwait_for=a\nrate_iops=0\nwrite_lat_log=l\n"), &[]);
    assert_eq!((ios(&doc, 0, "write"), ios(&doc, 1, "write")), (256, 256));
    let doc =
        run(&format!("{endless}[a]\n[b]\nwait_for=a\nexitall\nnumber_ios=1\n[c]\n{pair}"), &[]);
    let counted = ios(&doc, 2, "write");
    assert!((250..300).contains(&counted), "c runs beside a, and ends with b: {counted}");
    let (code, said) = call(at, &["fio", "--name=x", "--size=1m", "--wait_for=y"]);
    assert!(code == 2 && said.contains("no job of that name"), "{said}");
    // Weights of 8 and 2.
    let flow = "[global]\nbs=4k\nsize=4m\nrw=write\ntime_based\nruntime=1\nfsync=1\nflow_id=1\n\
                [a]\nflow=8\n[b]\nflow=2\n";
    let doc = run(flow, &[]);
    let (a, b) = (ios(&doc, 0, "write"), ios(&doc, 1, "write"));
    assert!(a > 40 && (a as f64 / b as f64 - 4.0).abs() < 0.5, "{a} and {b}");
    // What happens within the ramp does not count, and the time begins behind it.
    let ramp = "time_based\nruntime=2\nramp_time=1\n";
    let doc = run(&format!("{endless}[a]\n{ramp}write_iops_log=i\n"), &[]);
    let counted = ios(&doc, 0, "write");
    assert!((195..=205).contains(&counted), "{counted}");
    assert_eq!(doc["jobs"][0]["write"]["runtime"].as_u64().map(|ms| ms / 10), Some(200));
    let log = fs::read_to_string(at.join("i_iops.1.log")).expect("a log");
    assert_eq!(log.lines().count() as u64, counted);
    assert!(log.starts_with("0, 1, 1, 4096, 0\n"), "{log}");
}

#[test]
fn files_are_appended_to_removed_and_read_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let run = |args: &[&str]| {
        let (code, said) = call(at, &[&["fio", "--output-format=json"], args].concat());
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<Value>(&said[said.find('{').expect("JSON")..]).expect("JSON")
    };
    let (set, image) = ("device=fixed,capacity_bytes=268435456", at.join("d.img"));
    let image = image.to_str().expect("text");
    let job = "[a]\nrw=write\nsize=1m\nfilename=f\n[b]\nstonewall\nrw=write\nsize=1m\n\
               filename=f\nfile_append=1\n";
    fs::write(at.join("job.fio"), job).expect("written");
    let args = ["run", "--no-events", "--device", "fixed,capacity_bytes=268435456"];
    let (code, said) =
        call(at, &[&args[..], &["--workload", "fio,job=job.fio", "--save-image", image]].concat());
    assert_eq!(code, 0, "{said}");
    let (code, said) = call(at, &["inspect", image]);
    assert!(code == 0 && said.contains("2097152"), "{said}");
    // The files are removed between two rounds: the second one's writes allocate again.
    let doc = run(&["--name=u", "--rw=write", "--size=256k", "--loops=3", "--unlink_each_loop=1"]);
    assert_eq!(doc["jobs"][0]["write"]["total_ios"], 192);
    let mean = |args: &[&str]| {
        let all = [&["--name=r", "--rw=randread", "--size=4m", "--set", set], args].concat();
        run(&all)["jobs"][0]["read"]["lat_ns"]["mean"].as_f64().expect("a mean")
    };
    assert!(mean(&[]) > 20.0 * mean(&["--pre_read=1"]), "what was read before is in the cache");
    let (code, said) =
        call(at, &["fio", "--name=a", "--rw=write", "--size=64k", "--sync=1", "--max_latency=1"]);
    assert!(code == 4 && said.contains("err=110"), "{said}");
}

/// Exit code and what is said of jobs and devices that cannot be: one line each, with the option.
#[test]
fn what_cannot_be_is_said_with_its_option() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("empty")).expect("made");
    let zoned = ["fio", "--name=j", "--filename=f", "--zonemode=zbd", "--rw=write", "--bs=4k"];
    for (args, code, what) in [
        (&["fio", "check", "empty"][..], 2, "empty: no job file in this folder"),
        (&["fio", "check", "empty", "empty"], 2, "empty, empty: no job file in this folder"),
        (&[&zoned[..], &["--zonesize=64k", "--size=32k"]].concat(), 2, "/f: its 32768 bytes are"),
        (&[&zoned[..], &["--zonesize=64k", "--size=4m", "--bs=128k"]].concat(), 4, "(errno 22)"),
        (
            &[&zoned[..], &["--zonesize=512", "--size=1p", "--ioengine=null"]].concat(),
            2,
            "/f: zonesize=512 makes 2199023255552 zones",
        ),
        (&["device", "ssd-128+emmc-16"], 2, "several devices"),
        (&["device", "zn540,read_ns=1"], 0, "regime"),
        (&["device", "zn540,read_nss=1"], 2, "read_nss"),
        (&["fio", "--name=j", "--size=1m", "--ignore_error=EILSEQ"], 2, "`EILSEQ` is no error"),
        (
            &["fio", "--name=j", "--size=1m", "--rw=randtrimwrite", "--ioengine=null"],
            0,
            "trim: IOPS",
        ),
    ] {
        let (ended, said) = call(dir.path(), args);
        assert!(ended == code && said.contains(what), "{args:?}: {ended}: {said}");
    }
    // The second job has the zones of the longer file.
    let both = "[global]\nrw=write\nbs=4k\nzonemode=zbd\nzonesize=64k\nfilename=f\n[a]\nsize=64k\n\
                [b]\nstonewall\nsize=1m\n";
    fs::write(dir.path().join("job.fio"), both).expect("written");
    let (code, said) = call(dir.path(), &["fio", "job.fio", "--output-format=json"]);
    let doc: Value = serde_json::from_str(&said[said.find('{').expect("JSON")..]).expect("JSON");
    let ios = |job: usize| doc["jobs"][job]["write"]["total_ios"].as_u64();
    assert_eq!((code, ios(0), ios(1)), (0, Some(16), Some(256)), "{said}");
    // An offset or blockalign that is the default is none that fio differs by.
    let (_, said) = call(
        dir.path(),
        &["fio", "--name=j", "--size=64k", "--rw=trimwrite", "--filename=/dev/nvme0n1"],
    );
    assert!(!said.contains("writes elsewhere"), "{said}");
    let (_, said) =
        call(dir.path(), &["fio", "--name=j", "--size=64k", "--ioengine=null", "--iodepth=4"]);
    assert!(said.contains("iodepth=4 with engine null is a depth of 1 here"), "{said}");
}

/// fio counts all of a job that is over before its ramp is.
#[test]
fn a_ramp_longer_than_its_job_hides_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["fio", "--name=j", "--rw=write", "--bs=4k", "--size=16k", "--ramp_time=5"];
    let (code, said) = call(dir.path(), &[&args[..], &["--output-format=json"]].concat());
    let doc: Value = serde_json::from_str(&said[said.find('{').expect("JSON")..]).expect("JSON");
    assert_eq!((code, doc["jobs"][0]["write"]["total_ios"].as_u64()), (0, Some(4)), "{said}");
}

/// A write ends in the middle of a page, whose first blocks have their place: sizes and places stay
/// in step.
#[test]
fn a_full_file_system_of_small_blocks_is_clean() {
    let dir = tempfile::tempdir().expect("a directory");
    let jobs = "[x]\nrw=write\nbs=4k\nsize=12m\nfilename=a\nfallocate=none\n\
                ignore_error=,ENOSPC\nend_fsync=1\n";
    fs::write(dir.path().join("job.fio"), jobs).expect("written");
    for more in ["", ",nodelalloc", ",data=journal"] {
        let file_system = format!("ext4,block_size=1024,era=6.12{more}");
        let image = dir.path().join("image");
        fs::remove_file(&image).ok();
        let run = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
            let out = command.args(args).current_dir(dir.path()).output().expect("started");
            let said = [out.stdout, out.stderr].concat();
            (out.status.code(), String::from_utf8_lossy(&said).into_owned())
        };
        let run_args = ["run", "--fs", &file_system, "--partition-size", "8388608"];
        let job = ["--workload", "fio,job=job.fio", "--save-image", "image"];
        let (_, said) = run(&[&run_args[..], &job].concat());
        assert!(image.exists(), "{more}: {said}");
        let (code, said) = run(&["fsck", "image"]);
        assert_eq!(code, Some(0), "{more}: {said}");
        match Command::new("e2fsck").args(["-fn"]).arg(&image).output() {
            Ok(out) => {
                let said = String::from_utf8_lossy(&out.stdout);
                assert_eq!(out.status.code(), Some(0), "{more}: {said}");
            }
            Err(_) => {
                return wp_machine::testing::skipped("a full ext4", "e2fsck is not installed");
            }
        }
    }
}
