//! `varmail` and `oltp-insert` on a mounted file system: what they do, how often, and that a seed
//! says all of it.

use wp_base::Sector;
use wp_base::event::{Class, Event};
use wp_machine::registry::{WORKLOADS, find};
use wp_machine::workload::WorkloadReport;
use wp_machine::{Machine, MachineSpec};
use wp_vfs::Options;
use wp_workload::filebench::PERSONALITIES;

/// Runs a workload on a new ext4 of 256 MiB; its report and the calls that it made.
fn run(name: &str, options: &str, seed: u64) -> (WorkloadReport, Vec<(&'static str, u64)>) {
    let fs = &wp_ext4::ENTRY;
    let spec = MachineSpec {
        seed,
        cpu: wp_machine::profile::PROFILES[0].model(),
        device: "fixed".to_owned(),
        device_params: vec![("capacity_bytes".to_owned(), 256 << 20)],
        more: Vec::new(),
        elevator: String::new(),
        start: Sector(0),
        sectors: None,
        fs,
        fs_options: Options::parse("era=6.18", fs.options).expect("options"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (6, 18),
    };
    let machine = Machine::new(spec, None).expect("a machine");
    let vfs = machine.mount().expect("a mount");
    machine.record(Class::SYSCALL);
    let entry = find("workload", WORKLOADS, |w| w.name, name).expect("in the registry");
    let options = Options::parse(options, entry.options).expect("options");
    let v = vfs.clone();
    let report = machine
        .block_on("workload", async move { (entry.run)(&v, &options).await })
        .expect("it ends")
        .expect("it succeeds");
    let records = machine.rt.probe().take();
    machine.unmount(&vfs).expect("an unmount");
    let calls = records.iter().filter_map(|r| match r.event {
        Event::SyscallExit { name, value, ok, .. } => {
            // What is to be made is looked for first.
            assert!(ok || name == "stat", "{name}");
            Some((name, value))
        }
        _ => None,
    });
    (report, calls.collect())
}

fn number(report: &WorkloadReport, key: &str) -> u64 {
    report.numbers.iter().find(|(k, _)| k == key).unwrap_or_else(|| panic!("no {key}")).1
}

#[test]
fn a_loop_of_varmail_is_thirteen_flowops_two_of_them_fsync() {
    let (report, calls) = run("varmail", "threads=1,seconds=0,loops=300,files=200", 1);
    let of = |key: &str| number(&report, key);
    assert_eq!((of("loops"), of("operations")), (300, 300 * 13));
    assert_eq!((of("fsync.count"), of("appendfilerand.count")), (600, 600));
    assert_eq!((of("deletefile.count"), of("createfile.count")), (300, 300));
    assert_eq!((of("openfile.count"), of("readwholefile.count")), (600, 600));
    assert_eq!(of("closefile.count"), 900);
    assert!((140..=180).contains(&of("files")), "as many are made as are deleted");
    let count = |name: &str| calls.iter().filter(|(n, _)| *n == name).count();
    assert_eq!((count("fsync"), count("unlink")), (600, 300));
    // Appends are uniform below 16 KiB: the mean is 8 KiB, and all of the range is there.
    let start = calls.iter().position(|(n, _)| *n == "unlink").expect("deletions");
    let appends: Vec<u64> =
        calls[start..].iter().filter(|(n, _)| *n == "pwrite64").map(|(_, bytes)| *bytes).collect();
    assert!(appends.len() <= 600 && appends.len() > 590, "an append of 0 bytes writes nothing");
    let mean = appends.iter().sum::<u64>() / 600;
    assert!((7_600..8_800).contains(&mean), "mean append {mean}");
    assert!(appends.iter().all(|n| *n < 16_384) && appends.iter().any(|n| *n > 15_500));
    assert_eq!(appends.iter().sum::<u64>(), of("written_bytes"));
    // A whole file ends with a read of nothing.
    let reads: Vec<u64> =
        calls.iter().filter(|(n, _)| *n == "pread64").map(|(_, bytes)| *bytes).collect();
    assert_eq!(reads.iter().filter(|n| **n == 0).count(), 600);
    assert_eq!(reads.iter().sum::<u64>(), of("read_bytes"));
}

#[test]
fn a_personality_and_a_file_with_its_text_do_the_same() {
    let set = "set=nthreads:3;nfiles:60,loops=20,summary=1";
    let (a, _) = run("filebench", &format!("personality=varmail-nodel,{set}"), 3);
    let of = |key: &str| number(&a, key);
    assert_eq!((of("loops"), of("operations")), (60, 60 * 12));
    assert_eq!((of("openfile.count"), of("fsync.count")), (180, 120));
    let text = PERSONALITIES.iter().find(|p| p.name == "varmail-nodel").expect("there").text;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mail.f");
    std::fs::write(&path, text).expect("written");
    let (b, _) = run("filebench", &format!("file={},{set}", path.display()), 3);
    assert_eq!(a.numbers, b.numbers);
    assert_eq!(a.notes, b.notes);
    let summary = a.notes.last().expect("a summary");
    assert!(summary.contains("IO Summary:   720 ops"), "{summary}");
    assert!(summary.contains("receive-fsync        60ops"), "{summary}");
    let doc = &a.documents[0].1;
    assert_eq!(
        (doc["threads"].as_array().map(Vec::len), &doc["operations"]),
        (Some(3), &720.into())
    );
}

#[test]
fn threads_of_a_database_drive_each_other_and_events_limit_them() {
    let small = "nshadows:6;ndbwriters:2;filesize:256k;nfiles:2;logfilesize:512k";
    let (r, _) = run("filebench", &format!("personality=oltp,set={small},seconds=2"), 1);
    let of = |key: &str| number(&r, key);
    // The writers go on for every 1000 or 3200 posts; those to the log and to two db-writers are
    // one flowop each.
    let posts = of("sempost.count") / 2;
    assert!(posts > 3200, "{posts}");
    let blocks = of("semblock.count");
    assert!(
        blocks >= posts / 1000 && blocks <= 2 * (posts / 1000 + 1) + posts / 3200 + 1,
        "{blocks}"
    );
    assert!(of("aiowrite.count") >= 100 * (blocks - posts / 3200 - 1));
    // 500 events a second.
    let (r, _) =
        run("filebench", &format!("personality=oltp,set={small};eventrate:500,seconds=2"), 1);
    let events = number(&r, "eventlimit.count");
    assert!((900..=1010).contains(&events), "{events}");
}

#[test]
fn runs_end_as_their_mode_says() {
    let (r, _) = run("filebench", "personality=createfiles,set=nthreads:4;nfiles:200", 1);
    assert_eq!((number(&r, "files"), number(&r, "createfile.count")), (200, 200));
    assert_eq!(r.documents[0].1["end"], "done");
    let options = "personality=filemicro_delete,set=nthreads:4;nfiles:300;count:200";
    let (r, _) = run("filebench", options, 1);
    let done = number(&r, "deletefile.count") + number(&r, "finishoncount.count");
    assert!((200..=208).contains(&done), "{done}");
}

#[test]
fn a_seed_says_all_of_varmail() {
    let options = "threads=4,seconds=0,loops=40,files=100";
    let (a, b, c) =
        (run("varmail", options, 7), run("varmail", options, 7), run("varmail", options, 8));
    assert_eq!((&a.0.numbers, &a.1), (&b.0.numbers, &b.1));
    assert_ne!(number(&a.0, "written_bytes"), number(&c.0, "written_bytes"));
    // Every thread goes through its list; a deletion of an open file counts nothing.
    assert_eq!(number(&a.0, "loops"), 160);
    assert!(number(&a.0, "operations") <= 160 * 13);
}

#[test]
fn inserts_write_the_redo_log_as_was_seen() {
    let (report, calls) = run("oltp-insert", "inserts=2000,log_mib=1", 1);
    let of = |key: &str| number(&report, key);
    assert_eq!(of("log_writes_512") + of("log_writes_1024"), 2000);
    let share = of("log_writes_1024") as f64 / 2000.0;
    assert!((0.66..0.74).contains(&share), "{share} of the writes are of 1024 bytes");
    assert_eq!((of("fdatasyncs"), of("table_growths")), (2000, 0));
    assert_eq!(calls.iter().filter(|(n, _)| *n == "fdatasync").count(), 2000);
    let (with, calls) = run("oltp-insert", "inserts=5000,log_mib=1,binlog=1", 1);
    // One growth of the table's file: three syncs more.
    assert_eq!((number(&with, "fdatasyncs"), number(&with, "table_growths")), (10_003, 1));
    assert_eq!(calls.iter().filter(|(n, bytes)| *n == "pwrite64" && *bytes == 412).count(), 5000);
    let again = run("oltp-insert", "inserts=5000,log_mib=1,binlog=1", 1);
    assert_eq!((&again.0.numbers, &again.1), (&with.numbers, &calls));
}

#[test]
fn options_that_cannot_be_are_refused() {
    for (name, options) in [
        ("varmail", "threads=0"),
        ("varmail", "files=many"),
        ("filebench", ""),
        ("filebench", "personality=nothing"),
        ("filebench", "personality=varmail,file=x.f"),
        ("filebench", "personality=varmail,set=nthread:4"),
        ("filebench", "personality=varmail,seconds=1,loops=1"),
        ("oltp-insert", "log_mib=0"),
        ("oltp-insert", "binlog=2"),
    ] {
        let entry = find("workload", WORKLOADS, |w| w.name, name).expect("in the registry");
        let options = Options::parse(options, entry.options).expect("known keys");
        assert!((entry.check)(&options).is_err(), "{name}");
    }
}
