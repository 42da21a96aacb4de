//! Files that are right, files that are not, and files that somebody broke.

use std::path::{Path, PathBuf};

use wp_base::rng::Rng;
use wp_machine::testing::{blessing, repository};
use wp_papers::{direct_io, ext4_fsync, f2fs_oprw, inode_trim};
use wp_workload::fio::Diagnostic;

use super::expected_metrics::ExpectedMetrics;
use super::source::Value;
use super::*;

/// A small experiment, with places for other lines.
fn text(head: &str, more: &str) -> String {
    format!(
        "schema = \"writepath/1\"\nname = \"t\"\n{head}[workload]\nname = \"fsync-last\"\n\
            n = 2\nwatch = \"0s\"\n{more}"
    )
}

fn read(text: &str) -> Checked {
    parse("t.toml", text.as_bytes(), Path::new(""), None)
}

/// What is wrong with a text, and where it stands: line, column.
#[track_caller]
fn wrong(text: &str) -> Vec<(u32, u32, String)> {
    let checked = read(text);
    assert!(checked.experiment.is_none(), "nothing is wrong with\n{text}");
    let one = |d: &Diagnostic| (d.at.line, d.at.column, format!("{}; {}", d.message, d.help));
    checked.diagnostics.iter().map(one).collect()
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_the_way_out() {
    let sweep = |s: &str| text("", &format!("[sweep]\n{s}\n"));
    let claim = |s: &str| text("", &format!("[sweep]\n\"workload.n\" = [1, 2]\n[[claim]]\n{s}\n"));
    let mut missed = Vec::new();
    for (file, line, column, what) in [
        // The file as such.
        (text("sed = 1\n", ""), 3, 1, "did you mean `seed`?"),
        (text("seed = \"one\"\n", ""), 3, 8, "takes a whole number"),
        (text("seed = -1\n", ""), 3, 8, "a whole number from 0"),
        (text("repeat = 0\n", ""), 3, 10, "from 1 to"),
        (text("", "").replace("writepath/1", "writepath/9"), 1, 10, "writepath/1"),
        (text("", "").replace("schema = \"writepath/1\"\n", ""), 1, 1, "schema"),
        (text("", "").replace("\"t\"", "\"../t\""), 2, 8, "cannot be the name of a results folder"),
        (text("", "").replace("name = \"t\"\n", ""), 1, 1, "no `name`"),
        ("schema = \"writepath/1\"\nname = \"t\"\n".to_owned(), 1, 1, "[workload] is missing"),
        (
            "schema = \"writepath/1\"\nname = \"t\"\nworkload = 3\n".to_owned(),
            3,
            12,
            "takes a table",
        ),
        // Names and values of the registry.
        (text("[fs]\nkind = \"ext5\"\n", ""), 4, 8, "did you mean `ext4`?"),
        (text("[fs]\nfsync_mode = \"posix\"\n", ""), 4, 1, "unknown key"),
        (text("[fs]\nera = \"new\"\n", ""), 4, 7, "not a kernel version"),
        (text("[fs]\nera = 3.10\n", ""), 4, 7, "two versions"),
        (text("[fs]\nera = \"2.6.32\"\n", ""), 4, 7, "runs as in Linux 3.3 to"),
        (text("[fs]\nmount = \"nobarier\"\n", ""), 4, 9, "did you mean `nobarrier`?"),
        (text("[fs]\nnobarrier = true\nmount = \"nobarrier\"\n", ""), 5, 9, "given twice"),
        (text("[fs]\nmkfs = { commit = \"5s\" }\n", ""), 4, 10, "is an option of mount"),
        (text("[fs]\ncommit = 5\n", ""), 4, 10, "\"5s\""),
        (text("[device]\npreset = \"ssd\"\n", ""), 4, 10, "no device called"),
        (text("[device]\nqueue_dept = 1\n", ""), 4, 1, "did you mean `queue_depth`?"),
        (text("[device]\nplp = 1\n", ""), 4, 7, "true or false"),
        (text("[device]\nqueue_depth = \"31\"\n", ""), 4, 15, "a whole number"),
        (text("[device]\ncapacity_bytes = \"64M\"\n", ""), 4, 18, "`64MiB`"),
        (text("[device]\ncapacity_bytes = 67108864\n", ""), 4, 18, "\"64MiB\""),
        (text("[device]\ncapacity_bytes = \"64\"\n", ""), 4, 18, "no unit"),
        (text("[device]\ncapacity_bytes = \"1000B\"\n", ""), 4, 18, "multiple of 4096"),
        (text("[device]\nmore = [{ preset = \"fixed\" }]\n", ""), 4, 9, "supports one device"),
        (text("[machine]\ncpu = \"i9\"\n", ""), 4, 7, "no CPU profile"),
        (text("[machine]\nelevator = \"bfq\"\n", ""), 4, 12, "elevator"),
        (text("[machine]\npartition_size = \"2TiB\"\n", ""), 4, 18, "does not fit"),
        (text("[machine]\npartition_start = \"1001B\"\n", ""), 4, 19, "whole number of 512B"),
        (text("[machine]\ndisk = \"a b\"\n", ""), 4, 8, "is not a disk name"),
        // The workload.
        (text("", "m = 3\n"), 7, 1, "unknown key `m`"),
        (text("", "fio = \"a.fio\"\n"), 7, 1, "both `name` and `fio`"),
        (text("", "").replace("fsync-last", "fsync"), 4, 8, "no workload called"),
        (text("", "").replace("fsync-last", "fio"), 4, 8, "fio needs its job file"),
        (text("", "").replace("n = 2", "n = 0"), 5, 5, "at least 1"),
        (text("", "case = \"allok\"\n"), 7, 8, "one of alloc"),
        (text("", "vars = { A = 1 }\n"), 7, 8, "has no variables"),
        (text("", "[measure]\nphase = true\n"), 8, 1, "did you mean `phases`?"),
        (text("", "[measure]\nphases = 1\n"), 8, 10, "takes true or false"),
        // Sweeps.
        (sweep("\"workload.n\" = []"), 8, 16, "no value"),
        (sweep("\"workload.n\" = 3"), 8, 16, "in an array"),
        (sweep("\"workload.n\" = [1, 1]"), 8, 1, "twice"),
        (sweep("\"workload.m\" = [1, 2]"), 8, 1, "unknown key `m`"),
        (sweep("\"workload.n\" = [1, \"two\"]"), 8, 20, "whole number"),
        (sweep("\"claim.id\" = [\"a\"]"), 8, 1, "cannot be swept"),
        (sweep("seed = [1, 2]"), 8, 1, "not a key that can be swept"),
        (sweep("own = [{ \"fs.era\" = \"3.4\" }]"), 8, 8, "has no name"),
        (sweep("own = [{ as = \"a\", era = \"3.4\" }]"), 8, 20, "cannot be swept"),
        (
            sweep(
                "\"workload.n\" = [1, 2]\n\"fs.era\" = [\"3.4\"]\n\
                    zip = [\"workload.n\", \"fs.era\"]",
            ),
            9,
            1,
            "2",
        ),
        (sweep("\"workload.n\" = [1, 2]\nzip = [\"fs.era\"]"), 9, 8, "is not swept"),
        (sweep("\"workload.n.x\" = [1, 2]"), 8, 1, "is not a table"),
        (text("repeat = 60000\n", "[sweep]\n\"workload.n\" = [1, 2]\n"), 8, 1, "at most 100000"),
        (text("", "[points]\na = { \"workload.n\" = 1 }\n"), 7, 1, "without a sweep"),
        (
            sweep("\"workload.n\" = [1, 2]\n[points]\na = { \"workload.n\" = 3 }"),
            10,
            22,
            "never `3`",
        ),
        // Claims.
        (claim("id = \"a\"\nequals = 1"), 9, 1, "without `expr`"),
        (claim("expr = \"1 < 2\""), 9, 1, "an `id` or a `claim`"),
        (claim("id = \"a\"\nexpr = \"fsync_ns[3] > 1\""), 11, 18, "called `3`"),
        (claim("id = \"a\"\nexpr = \"fsync_n[1] > 1\""), 11, 9, "did you mean `fsync_ns`?"),
        (claim("id = \"a\"\nexpr = \"fsync_ns > 1\""), 11, 8, "about 2 numbers"),
        (claim("id = \"a\"\nexpr = \"fsync_ns[1]\""), 9, 1, "without an accepted value"),
        (claim("id = \"a\"\nexpr = \"fsync_ns[1] +\"\nequals = 1"), 11, 22, "the expression ends"),
        (claim("id = \"a\"\nexpr = \"phase.fsync.journal[1] > 1\""), 11, 9, "in [measure]"),
        (claim("id = \"a\"\nexpr = \"device.flush[1] > 1\""), 11, 9, "`device.flushes`"),
        (
            claim("id = \"a\"\nexpr = \"fsync_ns[1]\"\nbetween = [2, 1]"),
            12,
            11,
            "above the highest",
        ),
        (claim("id = \"a\"\nexpr = \"fsync_ns[1]\"\nbetween = [1]"), 12, 11, "two numbers"),
        (claim("id = \"a\"\nexpr = \"fsync_ns[1]\"\nequals = 1\nat_least = 1"), 13, 12, "both"),
        (claim("claim = \"fig0\"\nexpr = \"fsync_ns[1]\""), 10, 9, "no paper has"),
        (
            claim("claim = \"ext4-fsync/fig11.3.4.alloc.n1\"\nexpr = \"fsync_ns[1]\"\nequals = 1"),
            12,
            10,
            "band is that of papers/claims.toml",
        ),
        (claim("id = \"{fs.era}\"\nexpr = \"1 < 2\""), 10, 6, "is not swept"),
        (
            claim("id = \"a\"\nexpr = \"1 < 2\"\n[[claim]]\nid = \"a\"\nexpr = \"1 < 2\""),
            13,
            6,
            "twice",
        ),
        // Power failures.
        (text("", "[crash]\n"), 7, 1, "call by call"),
    ] {
        let found = wrong(&file);
        let is_it = |f: &(u32, u32, String)| (f.0, f.1) == (line, column) && f.2.contains(what);
        if !found.iter().any(is_it) {
            missed.push(format!("{what} at {line}:{column}, not {found:?} in\n{file}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn errors_of_power_cuts_are_told_too() {
    let file = |more: &str| {
        format!(
            "schema = \"writepath/1\"\nname = \"t\"\n[device]\npreset = \"fixed\"\n\
                capacity_bytes = \"64MiB\"\n\
             [workload]\nscript = [\"open 0 f rw,creat\", \"fsync 0\"]\n[crash]\n{more}\n"
        )
    };
    assert!(read(&file("")).experiment.is_some());
    for (more, column, what) in [
        ("points = \"all\"", 10, "unknown crash points"),
        ("points = \"random\"", 10, "how many"),
        ("random = 10\nat = \"1s\"", 6, "both"),
        ("space = \"lying-flash\"", 9, "did you mean `lying-flush`?"),
        ("check = [\"O4-lost\"]", 10, "no rule called"),
        ("require = [\"name\"]", 12, "did you mean `names`?"),
        ("hold = [\"names\"]", 1, "write `require`"),
        ("require = [\"marks\"]", 12, "write `published`"),
        ("complete = 21", 12, "from 0 to 20"),
    ] {
        let found = wrong(&file(more));
        assert!(
            found.iter().any(|(_, c, t)| *c == column && t.contains(what)),
            "{more}: {found:?}"
        );
    }
    // An era that runs, and whose power failures are not known.
    let old = |more: &str| {
        file(more).replace("[device]", "[fs]\nkind = \"f2fs\"\nera = \"4.9\"\n[device]")
    };
    let found = wrong(&old(""));
    assert!(found.iter().any(|(.., t)| t.contains("has the rules of Linux 4.19 to")), "{found:?}");
    assert!(read(&old("").replace("[crash]\n", "")).experiment.is_some());
    let step = file("").replace("\"fsync 0\"", "\"fsync\"");
    assert!(wrong(&step).iter().any(|(l, c, t)| (*l, *c) == (7, 32) && t.contains("`fsync`")));
}

#[test]
fn a_value_of_two_keys_is_told_apart_by_its_key() {
    let two = "[sweep]\n\"workload.n\" = [1, 2]\n\"workload.phase\" = [\"1ms\", \"2ms\"]\n\
        \"device.queue_depth\" = [1, 2]\n[[claim]]\nid = \"a\"\n";
    let found = wrong(&text("", &format!("{two}expr = \"min(fsync_ns[1]) > 0\"\n")));
    assert!(found[0].2.contains("workload.n=1 or device.queue_depth=1"), "{found:?}");
    let fine = text("", &format!("{two}expr = \"min(fsync_ns[workload.n=1]) > 0\"\n"));
    assert!(read(&fine).experiment.is_some());
}

#[test]
fn points_are_the_product_and_zipped_keys_go_together() {
    let file = text(
        "repeat = 2\n",
        "[sweep]\n\"fs.era\" = [\"3.4\", \"4.6\"]\n\"workload.n\" = [1, 2, 3]\n\
            \"workload.first\" = [\"1KiB\", \"2KiB\", \"1KiB\"]\n\
            zip = [\"workload.n\", \"workload.first\"]\n",
    );
    let e = read(&file).experiment.expect("right");
    assert_eq!((e.points.len(), e.runs()), (6, 12));
    assert_eq!(e.sweep.columns(), ["fs.era", "workload.n", "workload.first"]);
    assert_eq!(e.sweep.labels(4), ["4.6", "2", "2KiB"]);
    assert_eq!(e.run_of(9), (4, 2));
    assert_eq!(e.setup(4).expect("a point").work.option("first"), Some("2048"));
    assert_eq!(e.setup(4).expect("a point").machine.kernel, (4, 6));
}

#[test]
fn a_sweep_that_is_too_long_is_refused_before_a_point_is_made() {
    let axis = |key: &str, n: u64| {
        let all: Vec<String> = (1..=n).map(|n| n.to_string()).collect();
        format!("\"{key}\" = [{}]\n", all.join(", "))
    };
    let keys = ["n", "first", "size", "phase", "files", "x", "y"];
    // One too many, and more than can be counted.
    for (axes, n, runs) in [(1, 100_001, "100001 runs"), (7, 1000, "more than 2^64 runs")] {
        let sweep: String =
            keys[..axes].iter().map(|k| axis(&format!("workload.{k}"), n)).collect();
        let found = wrong(&text("", &format!("[sweep]\n{sweep}")));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].2.contains(runs) && found[0].2.contains("at most 100000"), "{found:?}");
    }
    let found = wrong(&text("", "[sweep]\n"));
    assert!(found[0].2.starts_with("[sweep] sweeps nothing"), "{found:?}");
}

#[test]
fn a_point_is_the_same_each_time_it_is_asked_for() {
    let e = read(&text("", VARIED)).experiment.expect("right");
    for n in [0, 2, e.runs() - 1] {
        let text = |n| e.setup(n).expect("a point").text();
        assert_eq!(text(n), text(n));
    }
}

/// A claim with an interval, of which one number is assumed besides the drive's.
const VARIED: &str = "[device]\npreset = \"ssd-128\"\n[machine]\ncpu = \"free\"\n\
    [vary]\nby = \"two\"\nalso = [\"workload.phase\"]\n[sweep]\n\"workload.n\" = [1, 2, 3]\n\
    [[claim]]\nid = \"a\"\nexpr = \"fsync_ns[2] / 1e6\"\nat_most = 9\ninterval = true\n\
    null = \"set.workload.n[2] / set.workload.n[1]\"\n\
    [[claim]]\nid = \"b\"\nexpr = \"fsync_ns[3]\"\nat_least = 1\nnull = 3.5\n";

#[test]
fn what_is_assumed_is_varied_at_the_points_of_claims_with_an_interval() {
    let e = read(&text("", VARIED)).experiment.expect("right");
    let v = e.varied.as_ref().expect("a claim has an interval");
    assert!(v.names.iter().any(|n| n == "workload.phase x2"), "{:?}", v.names);
    assert!(v.names.iter().any(|n| n == "program_ns x1/2" || n == "command_ns x1/2"));
    assert!(!v.names.iter().any(|n| n.starts_with("cpu")), "a CPU that is free costs nothing");
    assert!(v.points.iter().all(|c| c.point == 1), "no claim with an interval is about others");
    assert_eq!(e.runs(), 3 + v.points.len());
    let texts: std::collections::BTreeSet<String> =
        (0..e.runs()).map(|n| e.setup(n).expect("a point").text()).collect();
    assert_eq!(texts.len(), e.runs(), "each is kept under its own name");
    let plan = |shard| Plan { shard, workers: 1, kept: None, again: false };
    let rows = |shard| match run_all(&e, &plan(shard), &|_, _, _| true).expect("no host's error") {
        Ended::Whole(rows) => rows,
        _ => panic!("all of it runs"),
    };
    let all = rows(Shard::WHOLE);
    let whole = ready(&e, &all, Shard::WHOLE);
    let [a, b] = &whole.claims[..] else { panic!("two claims") };
    let [low, high] = a.judged.interval.expect("asked for");
    let ours = a.judged.ours.expect("it runs");
    assert!(low <= ours && ours <= high && low < high, "{low} {ours} {high}");
    assert_eq!((a.judged.null, b.judged.null), (Some(2.0), Some(3.5)));
    assert_eq!(b.judged.interval, None);
    let lines = |name: &str| String::from_utf8_lossy(&whole.files[name]).lines().count();
    assert_eq!((lines("points.csv"), lines("varied.csv")), (4, 1 + v.points.len()));
    // Shards of it are put together to the same.
    let dir = tempfile::tempdir().expect("a directory");
    let parts = [1, 2].map(|index| {
        let shard = Shard { index, of: 2 };
        ready(&e, &rows(shard), shard).write(dir.path()).expect("written").dir
    });
    let (_, merged, again) = merge(&parts).expect("they fit");
    assert_eq!((merged, again.files), (all, whole.files));
}

#[test]
fn intervals_and_nulls_that_cannot_be_are_told() {
    let other = |from: &str, to: &str| text("", &VARIED.replacen(from, to, 1));
    for (file, what) in [
        (other("\"two\"", "\"ten\""), "`vary.by` cannot be `ten`; write \"half\" or \"two\""),
        (other("workload.phase", "workload.phas"), "did you mean `workload.phase`?"),
        (other("workload.phase", "fs.era"), "is not a number of the workload or the device"),
        (other("interval = true\n", ""), "[vary] without a claim with an interval"),
        (other("interval = true", "interval = 3"), "takes true or false"),
        (other("set.workload.n[2]", "set.workload.m[2]"), "no setting `workload.m`; did you mean"),
        (other("set.workload.n[2]", "set.fs.kind"), "the setting `fs.kind` is \"ext4\", no number"),
        (other("null = 3.5", "null = \"set.workload.n\""), "the claim is about 3 numbers"),
        (other("null = 3.5", "null = [1]"), "takes a number or a string"),
        (other("null = 3.5", "null = \"1 +\""), "the expression ends"),
    ] {
        let found = wrong(&file);
        assert!(found.iter().any(|(_, _, text)| text.contains(what)), "{what}: {found:?}");
    }
    let cuts = "schema = \"writepath/1\"\nname = \"t\"\n[workload]\n\
                script = [\"open 0 f rw,creat\"]\n[crash]\n[[claim]]\nid = \"a\"\n\
                expr = \"crash.broken\"\nequals = 0\ninterval = true\n";
    assert!(wrong(cuts)[0].2.contains("an interval of a claim about crash states"));
}

/// Every experiment file of the repository: examples, and papers.
fn files() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let papers = std::fs::read_dir(repository("papers")).expect("there");
    let mut folders: Vec<PathBuf> = papers.map(|e| e.expect("an entry").path()).collect();
    folders.push(repository("examples"));
    for folder in folders.iter().filter(|f| f.is_dir()) {
        for entry in std::fs::read_dir(folder).expect("there") {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).unwrap_or_default();
            if path.extension().is_some_and(|e| e == "toml") && is_experiment(&bytes) {
                all.push(path);
            }
        }
    }
    all.sort();
    assert!(all.len() >= 10, "{all:?}");
    all
}

#[test]
fn every_file_of_ours_is_right_and_resolves_to_itself() {
    for path in files() {
        let checked = load(&path, None).expect("it is there");
        let Some(e) = checked.experiment else {
            panic!("{}: {}", path.display(), checked.diagnostics[0]);
        };
        // What the results hold is enough to do it again.
        let dir = tempfile::tempdir().expect("a directory");
        for (name, bytes) in &*e.inputs {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, bytes).expect("written");
        }
        let again = parse("resolved.toml", e.resolved.as_bytes(), dir.path(), None);
        let Some(again) = again.experiment else {
            panic!("{}: {}\n{}", path.display(), again.diagnostics[0], e.resolved);
        };
        assert_eq!(again.resolved, e.resolved, "{}", path.display());
        assert_eq!(again.inputs, e.inputs);
        let texts = |e: &Experiment| {
            let text = |n| e.setup(n).expect("a point").text();
            (0..e.points.len()).map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(&again), texts(&e), "{}", path.display());
    }
}

fn paper(file: &str) -> Experiment {
    let path = repository("papers").join(file);
    load(&path, None).expect("it is there").experiment.expect("another test says that it is right")
}

/// The run of a point that has these values among its own, as the number of a metric.
#[track_caller]
fn metric_at(e: &Experiment, values: &[&str], names: &[&str]) -> Vec<f64> {
    let is_it = |n: &usize| values.iter().all(|v| e.sweep.labels(*n).contains(v));
    let found: Vec<usize> = (0..e.points.len()).filter(is_it).collect();
    assert_eq!(found.len(), 1, "{values:?}");
    let out = run(&e.setup(found[0]).expect("a point"), e.seed).expect("it runs");
    let of = |name: &&str| {
        metric::value(&out.metrics, name).unwrap_or_else(|| panic!("{name}: {:?}", out.metrics))
    };
    names.iter().map(of).collect()
}

#[test]
fn files_of_papers_give_the_numbers_that_reproduce_gives() {
    let e = paper("ext4-fsync/figures-10-11.toml");
    for (era, case) in [("3.4", "extend"), ("4.6", "alloc")] {
        let plan = ext4_fsync::RunPlan::figure_10(era, case, 10, 1);
        let theirs = ext4_fsync::run(&plan).expect("it runs");
        let ours = metric_at(&e, &[era, case, "10"], &["fsync_ns", "phase.metadata_logged"]);
        assert_eq!(
            ours,
            [theirs.fsync_ns as f64, f64::from(theirs.metadata_logged)],
            "{era} {case}"
        );
    }
    let e = paper("f2fs-oprw/figure-6-1.toml");
    for (mode, label, plp) in [
        (f2fs_oprw::Mode::Posix, "posix", false),
        (f2fs_oprw::Mode::OprwNoBarrier, "oprw_nobarrier", true),
    ] {
        let setup = f2fs_oprw::Setup::paper(mode, plp, 1);
        let theirs = f2fs_oprw::rate(&setup, 4, 200).expect("it runs");
        let ours = metric_at(&e, &[label, "4k"], &["write_runtime_ns", "write_ios"]);
        assert_eq!(ours[0] / ours[1], theirs.ns, "{label}");
    }
    let e = paper("direct-io/figures-1-2.toml");
    let figure = direct_io::Figure::Random;
    let program = figure.program(4 << 20, direct_io::FILE_BYTES);
    let plan = direct_io::Plan::paper(direct_io::System::Nilfs2, program, 1);
    let theirs = direct_io::run(&plan).expect("it runs");
    let ours = metric_at(&e, &["random", "nilfs2", "4MiB"], &["records_per_s", "mib_per_s"]);
    assert_eq!(ours, [theirs.iops, theirs.mib_per_s]);
    let e = paper("inode-trim/figures-2-3.toml");
    let plan = inode_trim::RunPlan::paper(inode_trim::Trim::Safe, inode_trim::Deleted::All, 1);
    let theirs = inode_trim::run(&plan).expect("it runs");
    let names = ["pages.valid", "pages.valid.journal", "device.flash_blocks_without_valid"];
    let ours = metric_at(&e, &["safe"], &names);
    let pages = &theirs.unmounted;
    let theirs = [pages.with_journal(), pages.of("journal"), theirs.blocks_without_valid];
    assert_eq!(ours, theirs.map(|n| n as f64));
}

#[test]
fn a_workload_has_the_metrics_that_a_check_knows() {
    let small: [(&str, &str); 8] = [
        ("fsync-last", "n = 1\nwatch = \"0s\"\nidle = \"0s\"\n"),
        ("create-delete", "n = 3\n"),
        ("fsync-create", "n = 1\nwatch = \"0s\"\n"),
        ("mobibench", "file_kib = \"16KiB\"\n"),
        ("oltp-insert", "inserts = 3\nlog_mib = \"1MiB\"\n"),
        ("wl-varmail", "threads = 1\nms = \"5ms\"\n"),
        ("varmail", "threads = 1\nfiles = 10\nseconds = \"0s\"\nloops = 1\n"),
        ("filebench", "personality = \"createfiles\"\nloops = 1\nvars = { nfiles = 10 }\n"),
    ];
    let names: Vec<&str> = small.iter().map(|(name, _)| *name).collect();
    // These have a file each.
    let is_file = |name: &str| ["fio", "program"].contains(&name);
    for w in wp_machine::registry::WORKLOADS.iter().filter(|w| !is_file(w.name)) {
        assert!(names.contains(&w.name), "{} is not tried", w.name);
    }
    for (name, options) in small {
        let file = format!(
            "schema = \"writepath/1\"\nname = \"t\"\n[device]\npreset = \"fixed\"\n\
                capacity_bytes = \"256MiB\"\n[workload]\nname = \"{name}\"\n{options}"
        );
        let checked = read(&file);
        let e = checked.experiment.unwrap_or_else(|| panic!("{}", checked.diagnostics[0]));
        let found = run(&e.setup(0).expect("a point"), 1).expect("it runs").metrics;
        let known = ExpectedMetrics::of(&e.setup(0).expect("a point"));
        for metric in found.keys() {
            known.has(metric).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        let listed = expected_metrics::NUMBERS.iter().find(|(n, _)| *n == name).expect("listed").1;
        for metric in listed {
            assert!(found.contains_key(*metric), "{name} told nothing of {metric}: {found:?}");
        }
        assert!(known.has("nothing").is_err());
    }
}

#[test]
fn broken_files_are_told_and_never_panic() {
    let sources: Vec<(PathBuf, Vec<u8>)> = files()
        .into_iter()
        .map(|p| (p.parent().expect("a folder").to_owned(), std::fs::read(p).expect("read")))
        .filter(|(_, bytes)| bytes.len() < 4000)
        .collect();
    let mut rng = Rng::stream(1, "broken experiments");
    let words: [&[u8]; 12] = [
        b"[",
        b"]",
        b"=",
        b"\"",
        b"-1",
        b"99999999999999999999",
        b"\xff",
        b"\n",
        b"{",
        b"sweep",
        b"workload.n",
        b"1e999",
    ];
    for round in 0..1500u32 {
        let (dir, bytes) = &sources[rng.below(sources.len() as u64) as usize];
        let mut bytes = bytes.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            let end = (at + rng.below(12) as usize).min(bytes.len());
            match rng.below(4) {
                0 => drop(bytes.drain(at..end)),
                1 => bytes[at] ^= 1 << rng.below(8),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let word = words[rng.below(words.len() as u64) as usize];
                    drop(bytes.splice(at..end, word.iter().copied()));
                }
            }
            if bytes.is_empty() {
                bytes.push(b'a');
            }
        }
        let checked = parse("broken.toml", &bytes, dir, None);
        assert_eq!(checked.experiment.is_none(), !checked.diagnostics.is_empty(), "round {round}");
        for d in &checked.diagnostics {
            let text = d.to_string();
            assert!(d.at.line >= 1 && text.contains("broken.toml:"), "{text}");
        }
    }
}

#[test]
fn broken_expressions_are_told_and_never_panic() {
    let pieces = [
        "iops",
        "[",
        "]",
        "(",
        ")",
        "+",
        "-",
        "*",
        "/",
        "<",
        ">=",
        "==",
        ",",
        "1.5",
        "1e9",
        "mean",
        "grows",
        "\"",
        "=",
        "ä",
        "−",
        "÷",
        "x.y",
        "0",
        "workload.n=1",
        " ",
    ];
    let sweep = read(&text("", "[sweep]\n\"workload.n\" = [1, 2]\n")).experiment.expect("right");
    let mut rng = Rng::stream(1, "broken expressions");
    let mut right = 0;
    for _ in 0..20_000 {
        let n = 1 + rng.below(9);
        let text: String =
            (0..n).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
        match expr::parse(&text) {
            Ok(expr) => {
                right += 1;
                let value =
                    expr::eval(&expr, &sweep.sweep, &Vec::new(), &|p, _| Ok(p as f64 + 1.0));
                if let Err(e) = value {
                    assert!(e.at.end <= text.len() && !e.message.is_empty(), "{text}: {e:?}");
                }
            }
            Err(e) => assert!(e.at.start <= text.len() && !e.message.is_empty(), "{text}: {e:?}"),
        }
    }
    assert!(right > 500, "{right} were right");
}

#[test]
fn expressions_go_point_by_point() {
    let e = read(&text(
        "",
        "[sweep]\n\"workload.n\" = [1, 2, 3]\n\"fs.era\" = [\"3.4\", \"4.6\"]\n[points]\n\
            few = { \"workload.n\" = [1, 2] }\n",
    ));
    let e = e.experiment.expect("right");
    // Point n has the value n + 1: eras go fastest.
    let eval = |text: &str| {
        let expr = expr::parse(text).unwrap_or_else(|w| panic!("{text}: {w:?}"));
        expr::eval(&expr, &e.sweep, &Vec::new(), &|p, _| Ok(p as f64 + 1.0))
            .map_err(|w| w.message)
            .and_then(|f| f.number().ok_or_else(|| format!("{} numbers", f.0.len())))
    };
    for (text, value) in [
        ("1 + 2 * 3 - 4 / 2", 5.0),
        ("-(2 − 5) × 2 ÷ 3", 2.0),
        ("x[2, 4.6]", 4.0),
        ("x[workload.n=2, fs.era=4.6] - x[2, 3.4]", 1.0),
        ("sum(x)", 21.0),
        ("mean(x[3.4])", 3.0),
        ("max(x[4.6] - x[3.4])", 1.0),
        ("sum(x[4.6] * x[3.4])", 44.0),
        ("sum(x - x[1, 3.4])", 15.0),
        ("sum(x[few])", 10.0),
        ("count(x[few] > 2)", 2.0),
        ("count(max(x[4.6], 4) == x[4.6])", 2.0),
        ("geomean(x[few, 3.4])", 3f64.sqrt()),
        ("geomean(x / x * 1e200) / 1e200", 1.0),
        ("geomean(x / x / 1e200) * 1e200", 1.0),
        ("spread(x[1])", 1.0 / 1.5),
        ("grows(x[4.6])", 1.0),
        ("grows(0 - x[4.6])", 0.0),
        ("(1 < 2) * (2 < 1)", 0.0),
    ] {
        let got = eval(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!((got - value).abs() < 1e-12, "{text} is {got}, not {value}");
    }
    for (text, what) in [
        ("x", "6 numbers"),
        ("sum(x[few] + x[3])", "numbers"),
        ("sum(x[few, 3.4] / x[3.4])", "the right side has points"),
        ("x[1, 2]", "no point matches all terms"),
        ("1 / (2 - 2)", "divided by 0"),
        ("grows(x)", "2 swept keys are left"),
        ("grows(x[1, 3.4])", "does not grow"),
        ("geomean(x - 1)", "geometric mean of 0"),
    ] {
        let got = eval(text);
        let is_told =
            matches!(&got, Err(e) if e.contains(what)) || (what == "numbers" && got.is_ok());
        assert!(is_told, "{text}: {got:?}");
    }
    for (text, what) in [
        ("1 <", "the expression ends"),
        ("1 < 2 < 3", "second comparison"),
        ("mean(1, 2)", "takes one"),
        ("men(x)", "no function"),
        ("x[", "do not close"),
        ("x[]", "no point"),
        ("1x", "is not a number"),
        ("x $ y", "means nothing"),
        (&"(".repeat(100), "too deep"),
        (&"-".repeat(100), "too deep"),
    ] {
        let e = expr::parse(text).expect_err(text);
        assert!(e.message.contains(what), "{text}: {e:?}");
    }
}

/// The tables of keys in docs/experiments.md, as they ought to be.
fn reference() -> String {
    let mut out = String::new();
    let mut sections: Vec<&str> = Vec::new();
    for key in keys::KEYS {
        if !sections.contains(&key.section) {
            sections.push(key.section);
        }
    }
    for section in sections {
        let title = match section {
            "" => "The beginning of the file".to_owned(),
            "claim" => "`[[claim]]`".to_owned(),
            name => format!("`[{name}]`"),
        };
        out.push_str(&format!(
            "\n#### {title}\n\n| key | takes | default | example | |\n|---|---|---|---|---|\n"
        ));
        for key in keys::of(section) {
            let code =
                |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
            let (default, example) = (code(key.default), code(key.example));
            out.push_str(&format!(
                "| `{}` | {} | {default} | {example} | {} |\n",
                key.name,
                key.takes.words(),
                key.help
            ));
        }
    }
    out
}

#[test]
fn the_document_has_every_key() {
    const BEGIN: &str = "<!-- keys: begin -->\n";
    const END: &str = "\n<!-- keys: end -->";
    let path = repository("docs/experiments.md");
    let text = std::fs::read_to_string(&path).expect("there");
    let (before, rest) = text.split_once(BEGIN).expect("a mark");
    let (now, after) = rest.split_once(END).expect("a mark");
    if blessing() {
        let text = format!("{before}{BEGIN}{}{END}{after}", reference());
        std::fs::write(&path, text).expect("written");
    } else {
        assert_eq!(now, reference(), "WRITEPATH_BLESS=1 writes it");
    }
}

#[test]
fn examples_of_keys_are_read_as_such() {
    for key in keys::KEYS.iter().filter(|k| !k.example.is_empty() && k.section != "claim") {
        let line = format!("{} = {}\n", key.name, key.example);
        let mut found = Vec::new();
        let table = source::parse("x", line.as_bytes(), &mut found);
        assert!(found.is_empty(), "{line}");
        let value = &table.item(key.name).expect("there").value;
        let is_kind = match key.takes {
            keys::Takes::Number => matches!(value, Value::Int(_)),
            keys::Takes::Truth => matches!(value, Value::Bool(_)),
            keys::Takes::List => matches!(value, Value::List(_)),
            keys::Takes::Table => matches!(value, Value::Table(_)),
            keys::Takes::Size => {
                matches!(value, Value::Text(t) if units::Unit::Bytes(1).number(t).is_ok())
            }
            keys::Takes::Time => {
                matches!(value, Value::Text(t) if units::Unit::Time(1).number(t).is_ok())
            }
            keys::Takes::Text | keys::Takes::Path => matches!(value, Value::Text(_)),
            keys::Takes::Real | keys::Takes::Any => true,
        };
        assert!(is_kind, "{line}");
    }
}

#[test]
fn the_blocks_of_the_document_are_experiments() {
    let text = std::fs::read_to_string(repository("docs/experiments.md")).expect("there");
    let blocks: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    let whole: Vec<&&str> = blocks.iter().filter(|b| b.contains("schema = ")).collect();
    assert!(!whole.is_empty());
    for block in whole {
        let checked = parse("block.toml", block.as_bytes(), &repository("examples"), None);
        assert!(checked.experiment.is_some(), "{}\n{block}", checked.diagnostics[0]);
    }
}
