//! `verify`, engines without files, errors of single jobs, and `fio check` of many files.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code, and the document.
fn document(at: &Path, args: &[&str]) -> (i32, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    let out = command.args(args).current_dir(at).output().expect("started");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let start = said.find('{').unwrap_or_else(|| panic!("{said}"));
    let mut all = serde_json::Deserializer::from_str(&said[start..]).into_iter::<Value>();
    let doc = all.next().expect("a document").expect("JSON");
    (out.status.code().expect("no signal"), doc, said)
}

/// Name, error, reads and writes of each job.
fn counted(doc: &Value) -> Vec<(String, i64, u64, u64)> {
    let ios = |j: &Value, d: &str| j[d]["total_ios"].as_u64().expect("a number");
    let jobs = doc["jobs"].as_array().expect("jobs").iter();
    jobs.map(|j| {
        let name = j["jobname"].as_str().expect("a name").to_owned();
        (name, j["error"].as_i64().expect("a number"), ios(j, "read"), ios(j, "write"))
    })
    .collect()
}

/// As many operations and the same errors as the installed fio has.
#[test]
fn what_is_written_is_read_back_as_often_as_by_fio() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let head = "[global]\nbs=4k\nsize=64k\nfilename=f\nthread=1\n";
    for (jobs, code) in [
        ("[w]\nrw=write\nverify=md5\n[r]\nstonewall\nrw=read\nverify=md5\n", 0),
        ("[w]\nrw=randwrite\nverify=crc32c\nloops=2\n", 0),
        ("[w]\nrw=randwrite\nnorandommap\nverify=crc32c\n", 0),
        ("[w]\nrw=write\nverify=sha256\nverify_backlog=3\n", 0),
        ("[w]\nrw=write\nverify=crc64\nverify_backlog=8\nverify_backlog_batch=3\n", 0),
        ("[w]\nrw=write\nverify=md5\ndo_verify=0\n", 0),
        ("[w]\nrw=write\nverify=null\n", 0),
        ("[w]\nrw=randwrite\nioengine=libaio\niodepth=8\nverify=md5\n", 0),
        ("[r]\nrw=read\nverify=md5\n", 4),
        // In the order of a shift register, and in one that fio itself fails in.
        ("[w]\nrw=randwrite\nverify=md5\nrandom_generator=lfsr\nloops=2\n", 0),
        ("[w]\nrw=randrw\nverify=md5\nrandom_generator=lfsr\n", 4),
        ("[w]\nrw=randrw\nverify=md5\nnorandommap\n", 4),
        ("[w]\nrw=randrw\nverify=md5\nbsrange=4k-8k\n", 0),
        ("[w]\nrw=randwrite\nverify=md5\nbssplit=4k/50:8k/50\n", 0),
        // What is read back counts.
        ("[w]\nrw=randwrite\nverify=md5\nnumber_ios=10\n", 0),
        ("[w]\nrw=write\nverify=md5\nnumber_ios=10\nloops=3\n", 0),
        ("[w]\nrw=write\nverify=md5\nnumber_ios=10\nverify_backlog=4\n", 0),
        ("[w]\nrw=randwrite\nverify=md5\nio_size=128k\n", 0),
        ("[w]\nrw=write\nverify=md5\nio_size=160k\n", 0),
        ("[w]\nrw=write\nverify=md5\nioengine=libaio\niodepth=4\nverify_backlog=4\n", 0),
        // Headers of another interval or checksum, or none.
        ("[w]\nrw=write\nverify=md5\n[r]\nstonewall\nrw=read\nverify=crc32c\n", 4),
        ("[w]\nrw=write\nverify=md5\n[r]\nstonewall\nrw=read\nverify=meta\n", 0),
        ("[w]\nrw=write\nverify=md5\n[r]\nstonewall\nrw=read\nbs=8k\nverify=md5\n", 4),
        (
            "[w]\nrw=write\nverify=md5\n[r]\nstonewall\nrw=read\nbs=8k\nverify=md5\n\
             verify_interval=4k\n",
            0,
        ),
        ("[w]\nrw=write\nbs=8k\nverify=md5\n[r]\nstonewall\nrw=read\nverify=md5\n", 4),
        ("[w]\nrw=write\n[r]\nstonewall\nrw=read\nverify=md5\n", 4),
        ("[w]\nrw=write\n[r]\nstonewall\nrw=read\nverify=md5\ndo_verify=0\n", 4),
        ("[w]\nrw=write\nverify=null\n[r]\nstonewall\nrw=read\nverify=md5\n", 4),
        ("[w]\nrw=write\nverify=md5\ndo_verify=0\n[r]\nstonewall\nrw=read\nverify=md5\n", 0),
        // Engines that change the layout of a file: what they refuse.
        ("[e]\nioengine=falloc\nrw=rw\n", 0),
        ("[e]\nioengine=falloc\nrw=write\nfsync=4\n", 4),
        ("[e]\nioengine=falloc\nrw=write\nend_fsync=1\n", 0),
        ("[e]\nioengine=falloc\nrw=write\nverify=md5\n", 4),
        ("[e]\nioengine=falloc\nrw=read\nverify=md5\n", 4),
        ("[e]\nioengine=ftruncate\nrw=write\n", 0),
        ("[e]\nioengine=ftruncate\nrw=read\n", 4),
        ("[e]\nioengine=ftruncate\nrw=read\ncontinue_on_error=all\n", 4),
        ("[e]\nioengine=ftruncate\nrw=write\nfdatasync=4\n", 4),
        ("[e]\nioengine=ftruncate\nrw=write\nend_fsync=1\n", 4),
        ("[e]\nioengine=ftruncate\nrw=write\nverify=md5\n", 4),
        ("[n]\nioengine=null\nrw=write\nverify=md5\n", 0),
        ("[n]\nioengine=null\nrw=randread\n", 0),
        ("[m]\nioengine=mmap\nrw=randwrite\n", 0),
    ] {
        fs::remove_file(at.join("f")).ok();
        fs::write(at.join("job.fio"), format!("{head}{jobs}")).expect("written");
        let args = ["fio", "job.fio", "--output-format=json"];
        let (ended, ours, said) = document(at, &args);
        assert_eq!(ended, code, "{jobs}: {said}");
        let Ok(out) =
            Command::new("fio").args(["--output-format=json", "job.fio"]).current_dir(at).output()
        else {
            return wp_machine::testing::skipped("fio: verify", "fio is not installed");
        };
        let text = String::from_utf8_lossy(&out.stdout);
        let start = text.find('{').expect("fio's JSON");
        let theirs: Value = serde_json::from_str(&text[start..]).expect("fio's JSON");
        assert_eq!(counted(&ours), counted(&theirs), "{jobs}");
    }
}

/// A job for a time with a synchronous engine never verifies; one whose engine queues does after
/// each of its rounds, as in fio.
#[test]
fn a_job_for_a_time_verifies_where_fio_does() {
    let dir = tempfile::tempdir().expect("a directory");
    for (engine, verifies) in [("psync", false), ("libaio\niodepth=4", true)] {
        let job = format!(
            "[w]\nrw=write\nbs=4k\nsize=64k\nfilename=f\nverify=md5\ntime_based\nruntime=1\n\
             rate_iops=50\nioengine={engine}\n"
        );
        fs::write(dir.path().join("job.fio"), job).expect("written");
        let (code, doc, said) = document(dir.path(), &["fio", "job.fio", "--output-format=json"]);
        assert_eq!(code, 0, "{said}");
        let (_, error, reads, writes) = counted(&doc).remove(0);
        // fio 3.33 itself: 50 writes, and 48 reads or none.
        assert_eq!((error, reads), (0, if verifies { 48 } else { 0 }), "{engine}");
        assert!((49..=51).contains(&writes), "{writes}");
    }
}

/// On a raw device that nobody wrote fio finds no header.
#[test]
fn what_nobody_wrote_has_no_header() {
    let dir = tempfile::tempdir().expect("a directory");
    let device = "filename=/dev/nvme0n1\nbs=4k\nsize=64k\n";
    let write = "[w]\nrw=write\nverify=md5\n";
    let read = "[r]\nstonewall\nrw=read\nverify=md5\n";
    for (jobs, expected) in [
        (read.to_owned(), vec![(84, 1, 0)]),
        (format!("{write}{read}"), vec![(0, 16, 16), (0, 16, 0)]),
        (
            format!("{write}[t]\nstonewall\nrw=trim\n{read}"),
            vec![(0, 16, 16), (0, 0, 0), (84, 1, 0)],
        ),
        (
            format!("{write}[p]\nstonewall\nrw=write\nsize=8k\noffset=8k\n{read}"),
            vec![(0, 16, 16), (0, 0, 2), (84, 3, 0)],
        ),
    ] {
        fs::write(dir.path().join("job.fio"), format!("[global]\n{device}{jobs}"))
            .expect("written");
        let (code, doc, said) = document(dir.path(), &["fio", "job.fio", "--output-format=json"]);
        let found: Vec<(i64, u64, u64)> =
            counted(&doc).into_iter().map(|(_, error, r, w)| (error, r, w)).collect();
        assert_eq!(found, expected, "{jobs}: {said}");
        assert_eq!(code, if expected.iter().any(|e| e.0 != 0) { 4 } else { 0 }, "{jobs}");
    }
}

/// As in fio, other jobs go on.
#[test]
fn an_error_ends_its_own_job_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let job = "[big]\nrw=write\nsize=200m\nfallocate=none\nbs=1m\n\
        [small]\nrw=read\nsize=1m\nbs=4k\n";
    fs::write(dir.path().join("job.fio"), job).expect("written");
    let set = ["--set", "partition-size=128m", "--set", "device=fixed"];
    let args = [&["fio", "job.fio", "--output-format=json"][..], &set].concat();
    let (code, doc, said) = document(dir.path(), &args);
    assert_eq!(code, 4, "{said}");
    let jobs = counted(&doc);
    assert_eq!((jobs[0].1, jobs[1].clone()), (28, ("small".to_owned(), 0, 256, 0)), "{said}");
    let more = format!("{job}[behind]\nstonewall\nrw=write\nsize=64k\nfilename=small.1.0\n");
    fs::write(dir.path().join("job.fio"), more).expect("written");
    assert_eq!(document(dir.path(), &args).1["jobs"].as_array().map(Vec::len), Some(3));
}

#[test]
fn several_files_make_a_table_by_option_and_engine() {
    let dir = tempfile::tempdir().expect("a directory");
    let jobs = dir.path().join("jobs");
    fs::create_dir(&jobs).expect("made");
    for (name, text) in [
        ("a.fio", "[a]\nrw=write\nsize=1m\nverify=md5\n"),
        ("b.fio", "[b]\nioengine=rbd\npool=p\nrw=write\nsize=1m\n"),
        ("c.fio", "[c]\nrw=wirte\nsize=1m\n"),
    ] {
        fs::write(jobs.join(name), text).expect("written");
    }
    // A folder of job files has other files, too.
    fs::write(jobs.join("picture"), b"\x89PNG\r\n\x1a\n\0\0[x]\n").expect("written");
    fs::write(jobs.join("README"), "How to run these.\n").expect("written");
    let (code, doc, said) = document(dir.path(), &["--json", "fio", "check", "jobs"]);
    assert_eq!(doc["other_files"], serde_json::json!(["jobs/README", "jobs/picture"]));
    assert_eq!(code, 3, "{said}");
    assert_eq!(doc["run"], 1, "{said}");
    let files = doc["files"].as_array().expect("files");
    let codes: Vec<Option<u64>> = files.iter().map(|f| f["exit_code"].as_u64()).collect();
    assert_eq!(codes, [None, Some(3), Some(2)], "{said}");
    assert!(files[1]["message"].as_str().is_some_and(|m| m.contains("`rbd`")), "{said}");
    let row = |name: &str| {
        let rows = doc["features"].as_array().expect("rows").iter();
        let row = rows.clone().find(|r| r["feature"] == name).expect("a row");
        (row["files"].as_u64(), row["run"].as_u64())
    };
    assert_eq!(row("rw"), (Some(3), Some(1)));
    assert_eq!(row("ioengine=rbd"), (Some(1), Some(0)));
    let all_run = ["--json", "fio", "check", "jobs/a.fio", "jobs/a.fio"];
    let (code, doc, said) = document(dir.path(), &all_run);
    assert_eq!((code, &doc["run"], &doc["ok"]), (0, &2.into(), &true.into()), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
    let out = command.args(["fio", "check", "jobs/a.fio", "jobs/b.fio"]);
    let out = out.current_dir(dir.path()).output().expect("started");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.starts_with("jobs/a.fio: runs\njobs/b.fio: refused: line 2: "), "{text}");
    assert!(text.contains("1 of 2 files run"), "{text}");
}

/// As many operations, bytes and latencies as the installed fio has, and the same error where a
/// name is missing.
#[test]
fn engines_of_names_make_look_at_and_remove_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    let head = "[global]\nnrfiles=20\nfilesize=8k\nthread=1\nopenfiles=3\n";
    let engine = |e: &str| format!("[{e}]\nstonewall\nioengine={e}\nfilename_format=f.$filenum\n");
    let all = ["filecreate", "filestat", "filedelete"];
    let jobs: String = all.iter().map(|e| engine(e)).collect();
    // All are laid out before any job begins: the files are there when the first makes them, and
    // gone when the last looks at them.
    let gone = format!(
        "{}[late]\nstonewall\nioengine=filestat\nfilename_format=f.$filenum\n",
        engine("filedelete")
    );
    let one = |doc: &Value| {
        let jobs = doc["jobs"].as_array().expect("jobs").iter();
        let number = |v: &Value| v.as_u64().expect("a number");
        jobs.map(|j| {
            let r = &j["read"];
            let counts = [&r["io_bytes"], &r["total_ios"], &r["clat_ns"]["N"], &r["lat_ns"]["N"]];
            (j["error"].as_i64(), counts.map(number))
        })
        .collect::<Vec<_>>()
    };
    for (jobs, code) in [(jobs, 0), (gone, 4)] {
        fs::write(at.join("job.fio"), format!("{head}{jobs}")).expect("written");
        let (ended, ours, said) = document(at, &["fio", "job.fio", "--output-format=json"]);
        assert_eq!(ended, code, "{said}");
        let ours_counted = one(&ours);
        assert_eq!(ours_counted[0], (Some(0), [163_840, 40, 20, 0]), "{said}");
        let Ok(out) =
            Command::new("fio").args(["--output-format=json", "job.fio"]).current_dir(at).output()
        else {
            return wp_machine::testing::skipped("fio: engines of names", "fio is not installed");
        };
        let text = String::from_utf8_lossy(&out.stdout);
        let start = text.find('{').unwrap_or_else(|| panic!("{text}"));
        let theirs: Value = serde_json::from_str(&text[start..]).expect("JSON");
        assert_eq!(ours_counted, one(&theirs), "{jobs}");
    }
}
