//! The recorded files against their own summaries, and the comparison on small runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;
use wp_machine::testing::{blessing, reference, repository};

use super::*;

/// The kernels whose runs ours are compared with.
const FOLDERS: [&str; 4] = ["linux-3.4", "linux-3.8", "linux-4.6", "linux-5.10"];
const SECOND: i64 = 1_000_000_000;

fn line(ns: i64, rwbs: &str, sectors: u32, class: &str, comm: &str) -> TraceLine {
    TraceLine {
        ns_from_fsync_start: ns,
        action: 'D',
        rwbs: rwbs.into(),
        sector: (sectors > 0).then_some(8),
        sectors,
        class: class.into(),
        comm: comm.into(),
    }
}

/// Three files, fsync of the last ends at 1000 ns.
fn summary(lines: &[TraceLine]) -> RunSummary {
    summarise(lines, 1000, 3, 70 * SECOND, Filed::default()).unwrap()
}

fn small_run() -> Vec<TraceLine> {
    vec![
        line(10, "WS", 8, "data:f_2", "w2"),
        line(20, "WS", 24, "journal*3", "jbd2/sdb1-8"),
        line(30, "FWS", 0, "flush", "jbd2/sdb1-8"),
        line(1000, "WS", 8, "journal_commit", "<idle>"),
        line(30 * SECOND, "W", 16, "data:f_0+data:f_1", "flush-8:16"),
        line(65 * SECOND, "W", 24, "inode_table*2+gdt", "flush-8:16"),
    ]
}

#[test]
fn a_recorded_line_is_read_exactly() {
    let text = "#s\ta\n#fsync_end 0.007835\n#write_start -0.000681\n\
                -0.000679\tJ\tfile_inode\t-\t-\t-\tw2\n\
                30.906582\tD\tW\t187044104\t16\tinode_table*2\tflush-8:48\n";
    let trace = parse_tsv(text).unwrap();
    assert_eq!(trace.fsync_end_ns, 7_835_000);
    assert_eq!(trace.lines[0].ns_from_fsync_start, -679_000);
    assert_eq!((trace.lines[0].sector, trace.lines[0].sectors), (None, 0));
    assert_eq!(trace.lines[1].ns_from_fsync_start, 30_906_582_000);
    assert_eq!((trace.lines[1].sector, trace.lines[1].sectors), (Some(187_044_104), 16));
    assert_eq!(Filed::count(&trace.lines, trace.fsync_end_ns).write, 1);
}

#[test]
fn a_bad_line_is_refused_with_its_number() {
    let after = |line: &str| parse_tsv(&format!("#fsync_end 0.1\n{line}\n")).unwrap_err().0;
    assert!(after("0.1\tD\tW\t8\t8\tgdt").starts_with("line 2: not seven fields"));
    assert!(after("0,1\tD\tW\t8\t8\tgdt\tw2").starts_with("line 2: not a time"));
    assert!(after("-\tD\tW\t8\t8\tgdt\tw2").starts_with("line 2: not a time"));
    assert!(after("0.1\tDD\tW\t8\t8\tgdt\tw2").starts_with("line 2: not an action"));
    assert!(after("0.1\tD\tW\t8\t-8\tgdt\tw2").starts_with("line 2: not a number"));
    assert!(parse_tsv("0.1\tD\tW\t8\t8\tgdt\tw2\n").unwrap_err().0.contains("fsync_end"));
}

#[test]
fn every_task_of_the_recordings_is_an_issuer() {
    for (comm, issuer) in [
        ("w2", Issuer::Fsync),
        ("jbd2/sdb1-8", Issuer::Jbd2),
        ("flush-8:16", Issuer::Flusher),
        ("kworker/u4:12", Issuer::Flusher),
        ("<idle>", Issuer::Swapper),
        ("swapper", Issuer::Swapper),
        ("swapper/0", Issuer::Swapper),
        ("ksoftirqd/0", Issuer::Swapper),
        ("kworker/0:1H", Issuer::Swapper),
        ("kworker/0:1", Issuer::Other("kworker/0:1".into())),
    ] {
        assert_eq!(Issuer::of(comm), issuer);
        assert_eq!(Issuer::from(String::from(issuer.clone())), issuer);
    }
}

#[test]
fn a_summary_counts_blocks_by_phase_class_and_issuer() {
    let run = summary(&small_run());
    assert_eq!(run.blocks(Phase::Fsync, "data_last", &Issuer::Fsync), 1);
    assert_eq!(run.blocks(Phase::Fsync, "journal", &Issuer::Jbd2), 3);
    assert_eq!(run.blocks(Phase::Fsync, "flush", &Issuer::Jbd2), 1);
    assert_eq!(run.blocks(Phase::Fsync, "journal_commit", &Issuer::Swapper), 1);
    assert_eq!(run.blocks(Phase::After, "data_others", &Issuer::Flusher), 2);
    let tables = run.class(Phase::After, "inode_table").unwrap();
    assert_eq!((tables.blocks(), tables.by[&Issuer::Flusher].requests), (2, 1));
    assert_eq!(run.blocks(Phase::After, "gdt", &Issuer::Flusher), 1);
    assert!(run.class(Phase::Write, "data_last").is_none());
}

#[test]
fn dispatches_seconds_apart_are_two_moments() {
    let at = |ns| line(ns, "W", 8, "data:f_0", "flush-8:16");
    let run = summary(&[at(5 * SECOND), at(5 * SECOND + 9), at(30 * SECOND), at(80 * SECOND)]);
    let moments = &run.class(Phase::After, "data_others").unwrap().moments;
    let first = Moment { first_ns: 5 * SECOND, last_ns: 5 * SECOND + 9, blocks: 2 };
    let second = Moment { first_ns: 30 * SECOND, last_ns: 30 * SECOND, blocks: 1 };
    assert_eq!(moments, &[first, second], "what comes after the window is left out");
}

#[test]
fn a_request_that_contradicts_itself_is_refused() {
    let wrong = |line: TraceLine| summarise(&[line], 1000, 3, SECOND, Filed::default()).is_err();
    assert!(wrong(line(1, "W", 8, "journal*2", "w2")));
    assert!(wrong(line(1, "W", 8, "flush", "w2")));
    assert!(wrong(line(1, "W", 8, "", "w2")));
    assert!(wrong(line(1, "W", 0, "journal*0", "w2")));
    assert!(wrong(line(1, "W", 8, "journal*x", "w2")));
    let mut backwards = small_run();
    backwards.swap(0, 5);
    assert!(summarise(&backwards, 1000, 3, 70 * SECOND, Filed::default()).is_err());
}

/// What differs after one line of the small run was changed.
fn differences(change: impl FnOnce(&mut Vec<TraceLine>)) -> Vec<String> {
    let mut ours = small_run();
    change(&mut ours);
    let differences = compare("r", &summary(&ours), &summary(&small_run()));
    differences.iter().map(ToString::to_string).collect()
}

#[test]
fn equal_runs_have_no_difference_and_a_second_is_no_difference() {
    assert!(differences(|_| ()).is_empty());
    assert!(differences(|lines| lines[4].ns_from_fsync_start += SECOND).is_empty());
    let split = |lines: &mut Vec<TraceLine>| {
        lines[4] = line(30 * SECOND, "W", 8, "data:f_0", "flush-8:16");
        lines.insert(5, line(30 * SECOND + 9, "W", 8, "data:f_1", "kworker/u2:3"));
    };
    assert!(differences(split).is_empty(), "the split into requests is not compared");
}

#[test]
fn each_kind_of_difference_is_named() {
    assert_eq!(
        differences(|lines| lines[4].ns_from_fsync_start += SECOND + 1),
        ["r after data_others seconds: Writepath 31, Linux 30"]
    );
    assert_eq!(
        differences(|lines| lines[3].comm = "jbd2/sdb1-8".into()),
        ["r fsync journal_commit issuer: Writepath 1 jbd2, Linux 1 swapper"]
    );
    assert_eq!(
        differences(|lines| lines[4].rwbs = "WM".into()),
        ["r after data_others flags: Writepath WM, Linux W"]
    );
    assert_eq!(
        differences(|lines| lines[1] = line(20, "WS", 16, "journal*2", "jbd2/sdb1-8")),
        ["r fsync journal blocks: Writepath 2 jbd2, Linux 3 jbd2"]
    );
    let gone = differences(|lines| drop(lines.remove(2)));
    assert_eq!(gone, ["r fsync flush blocks: Writepath 0, Linux 1 jbd2"]);
    let more = differences(|lines| lines.insert(0, line(-9, "W", 8, "superblock", "w2")));
    assert_eq!(more, ["r write superblock blocks: Writepath 1 fsync, Linux 0"]);
}

#[test]
fn blocks_that_move_to_another_phase_are_two_differences() {
    let moved = differences(|lines| {
        lines[4].ns_from_fsync_start = 1000;
        lines[4].comm = "jbd2/sdb1-8".into();
    });
    assert_eq!(
        moved,
        [
            "r fsync data_others blocks: Writepath 2 jbd2, Linux 0",
            "r after data_others blocks: Writepath 0, Linux 2 flusher",
        ]
    );
}

#[test]
fn swapped_flags_of_two_issuers_are_seen() {
    let part = |at: i64, rwbs: &str, comm: &str| line(at, rwbs, 8, "data:f_0", comm);
    let theirs = [part(2000, "W", "flush-8:0"), part(2001, "WS", "jbd2/sdb1-8")];
    let ours = [part(2000, "WS", "flush-8:0"), part(2001, "W", "jbd2/sdb1-8")];
    let found = compare("r", &summary(&ours), &summary(&theirs));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].what, found[0].ours.as_str()), (What::Flags, "jbd2 W, flusher WS"));
}

#[test]
fn a_filing_in_another_phase_is_a_difference() {
    let mut ours = summary(&small_run());
    let mut theirs = ours.clone();
    (ours.filed.fsync, theirs.filed.write) = (1, 10);
    let found: Vec<String> = compare("r", &ours, &theirs).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "r write file_inode filed: Writepath 0, Linux 10",
            "r fsync file_inode filed: Writepath 1, Linux 0",
        ]
    );
}

fn one_difference() -> Difference {
    let mut ours = small_run();
    ours[3].comm = "w2".into();
    compare("r", &summary(&ours), &summary(&small_run())).remove(0)
}

fn listed(difference: &Difference) -> String {
    difference.to_toml().replace("\"\"", "\"blk_flush_complete_seq\"")
}

#[test]
fn a_listed_difference_is_accepted_an_unlisted_and_a_stale_one_are_not() {
    let difference = one_difference();
    let list = parse_differences(&listed(&difference)).unwrap();
    assert!(check_differences(&list, std::slice::from_ref(&difference), &["r"]).is_empty());
    let unlisted = check_differences(&[], std::slice::from_ref(&difference), &["r"]);
    assert_eq!(unlisted, [Finding::Unlisted(difference.clone())]);
    let stale = check_differences(&list, &[], &["r"]);
    assert_eq!(stale, [Finding::Stale(difference.clone())]);
    assert!(check_differences(&list, &[], &["other"]).is_empty(), "its run was not run");
    let changed = Difference { ours: "2 fsync".into(), ..difference };
    assert_eq!(check_differences(&list, &[changed], &["r"]).len(), 2);
}

#[test]
fn an_entry_without_a_reason_or_twice_is_refused() {
    let entry = listed(&one_difference());
    assert!(parse_differences(&entry.repeat(2)).unwrap_err().0.contains("twice"));
    let silent = parse_differences(&one_difference().to_toml()).unwrap_err().0;
    assert!(silent.contains("no function or no reason"));
    assert!(parse_differences(&entry.replace("class", "klass")).is_err());
    assert!(parse_differences("").unwrap().is_empty());
}

#[test]
fn the_committed_list_is_read_and_names_recorded_runs() {
    let path = repository("papers/ext4-fsync/differences.toml");
    let list = parse_differences(&std::fs::read_to_string(path).unwrap()).unwrap();
    let runs: BTreeSet<String> = kernel_runs().into_iter().map(|run| run.spec.name).collect();
    for entry in &list {
        assert!(runs.contains(&entry.run), "{}: no such run", entry.run);
    }
}

#[test]
fn the_table_shows_both_sides_and_marks_what_differs() {
    let mut ours = small_run();
    ours[3].comm = "jbd2/sdb1-8".into();
    drop(ours.pop());
    let table = side_by_side("r", &summary(&ours), &summary(&small_run()));
    assert!(!table.is_same());
    let text = table.to_text();
    let find = |class: &str| text.lines().find(|line| line.contains(class)).unwrap();
    assert!(find("data_last").ends_with("same"), "{text}");
    assert!(find("journal_commit").ends_with("DIFFERS: issuer"), "{text}");
    assert!(find("gdt").contains("1 flusher; W; 1 request; 65 s  -"), "{text}");
    assert!(find("filed").contains("0 / 0 / 0"), "{text}");
    let json = serde_json::to_value(&table).unwrap();
    let gdt = json["rows"].as_array().unwrap().iter().find(|row| row["class"] == "gdt").unwrap();
    assert_eq!((&gdt["ours"], &gdt["phase"]), (&Value::Null, &Value::from("after")));
    assert_eq!(gdt["kernel"]["by"]["flusher"]["blocks"], 1);
    assert!(side_by_side("r", &summary(&ours), &summary(&ours)).is_same());
}

#[test]
fn a_run_is_known_by_its_name() {
    let spec = RunSpec::parse("linux-3.4/nodelalloc-cfq_extend_N10").unwrap();
    assert_eq!((spec.kernel.as_str(), spec.elevator.as_str()), ("3.4", "cfq"));
    assert_eq!((spec.case, spec.files), (WriteCase::Extend, 10));
    assert!(spec.nodelalloc && !spec.single && spec.window_ns() == 6 * SECOND);
    let spec = RunSpec::parse("linux-5.10/mq-deadline_over_N1").unwrap();
    assert_eq!((spec.elevator.as_str(), spec.case), ("mq-deadline", WriteCase::Over));
    assert!(RunSpec::parse("linux-3.4/single-cfq_alloc_N10").unwrap().single);
    for bad in ["3.4/cfq_alloc_N1", "linux-3.4/cfq_none_N1", "linux-3.4/cfq_alloc_N0", "x"] {
        assert!(RunSpec::parse(bad).is_err(), "{bad}");
    }
}

/// Folders of recorded runs.
fn folders() -> [PathBuf; 4] {
    FOLDERS.map(reference)
}

#[test]
fn the_kept_summaries_are_those_of_the_recorded_runs() {
    let mut runs = Vec::new();
    for folder in folders() {
        for (name, trace) in read_folder(&folder).unwrap() {
            runs.push(KernelRun::new(&name, &trace).unwrap());
        }
    }
    let json = kernel_runs_to_json(&runs);
    if blessing() {
        std::fs::write(repository("papers/ext4-fsync/kernel-runs.json"), json).unwrap();
        return;
    }
    assert!(parse_kernel_runs(&json).unwrap() == runs, "the file holds all of a summary");
    assert!(json == KERNEL_RUNS_JSON, "papers/ext4-fsync/kernel-runs.json: WRITEPATH_BLESS=1");
}

#[test]
fn the_kept_summaries_say_what_the_readme_of_each_kernel_says() {
    let runs = kernel_runs();
    let find = |name: &str| &runs.iter().find(|run| run.spec.name == name).unwrap().summary;
    let others = |name: &str, issuer| find(name).blocks(Phase::Fsync, "data_others", &issuer);
    assert_eq!(runs.len(), 54);
    assert_eq!(others("linux-3.4/cfq_extend_N100", Issuer::Jbd2), 99);
    assert_eq!(others("linux-3.8/cfq_extend_N100", Issuer::Jbd2), 0);
    assert_eq!(others("linux-4.6/nodelalloc-cfq_alloc_N10", Issuer::Jbd2), 9);
    let after = find("linux-3.8/cfq_extend_N100").class(Phase::After, "data_others").unwrap();
    assert_eq!(after.by[&Issuer::Swapper].blocks, 66);
    let checkpoint = find("linux-4.6/cfq_alloc_N10").class(Phase::After, "gdt").unwrap();
    assert!(checkpoint.by[&Issuer::Flusher].flags.contains("WM"));
    assert_eq!(find("linux-3.4/cfq_extend_N10").filed, Filed { write: 10, fsync: 0, after: 0 });
    assert_eq!(find("linux-4.6/cfq_alloc_N10").filed, Filed { write: 0, fsync: 1, after: 9 });
    let lock = find("linux-5.10/dioread_lock-mq-deadline_alloc_N10").filed;
    assert_eq!(lock, Filed { write: 0, fsync: 1, after: 9 });
    assert_eq!(find("linux-5.10/mq-deadline_alloc_N100").filed, Filed::default());
}

#[test]
fn our_summaries_of_the_recorded_runs_are_the_recorded_summaries() {
    let mut compared = 0;
    for folder in folders() {
        let mut recorded: BTreeMap<String, Value> = BTreeMap::new();
        let prefixes =
            ["cfq", "single-cfq", "nodelalloc-cfq", "mq-deadline", "dioread_lock-mq-deadline"];
        for prefix in prefixes {
            // No kernel has all of them.
            let Ok(text) = std::fs::read_to_string(folder.join(format!("{prefix}_summary.json")))
            else {
                continue;
            };
            let summaries: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
            let runs = summaries.into_iter().filter(|(key, _)| !key.starts_with('_'));
            recorded.extend(runs.map(|(key, value)| (format!("{prefix}_{key}"), value)));
        }
        for (name, trace) in read_folder(&folder).unwrap() {
            let (_, stem) = name.split_once('/').unwrap();
            let theirs = recorded.remove(stem).unwrap();
            compare_with_recorded(&name, &trace, &theirs);
            compared += 1;
        }
        assert!(recorded.is_empty(), "summaries without a trace: {:?}", recorded.keys());
    }
    assert_eq!(compared, 54);
}

fn compare_with_recorded(name: &str, trace: &Trace, recorded: &Value) {
    let ours = KernelRun::new(name, trace).unwrap().summary;
    for (phase, key) in [(Phase::Fsync, "fsync"), (Phase::After, "after"), (Phase::Write, "")] {
        let blocks = &recorded["dispatched_blocks"][key];
        let empty = serde_json::Map::new();
        let mut expected: BTreeMap<(String, Issuer), u64> = BTreeMap::new();
        for (class, issuers) in blocks.as_object().unwrap_or(&empty) {
            for (issuer, count) in issuers.as_object().unwrap() {
                let key = (class.clone(), Issuer::from(issuer.clone()));
                *expected.entry(key).or_insert(0) += count.as_u64().unwrap();
            }
        }
        let mut found = BTreeMap::new();
        for (class, summary) in ours.phases.get(&phase).into_iter().flatten() {
            for (issuer, share) in &summary.by {
                found.insert((class.clone(), issuer.clone()), u64::from(share.blocks));
            }
        }
        assert_eq!(found, expected, "{name} {phase:?}");
    }
    let filed = &recorded["file_inode_calls"];
    let expected = [&filed["write()"], &filed["fsync"], &filed["flusher"]].map(Value::as_u64);
    // In 5.10 a filing by writeback hits two probes (its README).
    let hits = if name.contains("dioread_lock") { 2 } else { 1 };
    let found = [ours.filed.write, ours.filed.fsync, ours.filed.after];
    assert_eq!(found.map(|n| Some(hits * u64::from(n))), expected, "{name}");
    compare_times(name, trace, recorded["after_dispatches_s"].as_array().unwrap());
}

/// `after_dispatches_s`: seconds since fsync returned, flags, sectors, class, task; at most sixty.
fn compare_times(name: &str, trace: &Trace, recorded: &[Value]) {
    let after =
        |line: &&TraceLine| line.action == 'D' && line.ns_from_fsync_start > trace.fsync_end_ns;
    let ours: Vec<&TraceLine> = trace.lines.iter().filter(after).collect();
    let cut = recorded.last().is_some_and(|last| last == "...");
    let listed = if cut { &recorded[..recorded.len() - 1] } else { recorded };
    assert!(if cut { listed.len() == 60 } else { listed.len() == ours.len() }, "{name}");
    for (line, entry) in ours.iter().zip(listed) {
        let seconds = (line.ns_from_fsync_start - trace.fsync_end_ns) as f64 / 1e9;
        let recorded = entry[0].as_f64().unwrap();
        assert!((seconds - recorded).abs() <= 0.011, "{name}: {seconds} s, recorded {recorded} s");
        assert_eq!(entry[1], line.rwbs, "{name}");
        assert_eq!(entry[2], line.sectors, "{name}");
        // The recorded summary keeps sixty characters of a class.
        let class = line.class.get(..60).unwrap_or(&line.class);
        assert_eq!(entry[3].as_str(), Some(class), "{name}");
        assert_eq!(entry[4], line.comm, "{name}");
    }
}
