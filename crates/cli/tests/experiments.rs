//! Experiment files: what a run leaves, that it leaves the same again, in shards, after an
//! interrupt; and exit codes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use wp_machine::results::sha256;

struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn writepath(args: &[&str]) -> Answer {
    let out =
        Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).output().expect("it was built");
    Answer {
        code: out.status.code(),
        stdout: String::from_utf8(out.stdout).expect("text"),
        stderr: String::from_utf8(out.stderr).expect("text"),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn example(name: &str) -> PathBuf {
    wp_machine::testing::repository("examples").join(name)
}

/// A small experiment: six points, two seeds, a claim that holds.
const SMALL: &str = "schema = \"writepath/1\"\nname = \"small\"\nrepeat = 2\n\
    [device]\npreset = \"fixed\"\ncapacity_bytes = \"64MiB\"\n\
    [workload]\nfio = \"jobs/a.fio\"\nvars = { N = 4 }\n\
    [sweep]\n\"fs.era\" = [\"3.4\", \"4.6\", \"6.18\"]\n\"workload.vars.BS\" = [\"4k\", \"8k\"]\n\
    [[claim]]\nid = \"syncs\"\nexpr = \"min(sync_ios)\"\nequals = 3\n";
const JOB: &str = "[global]\ninclude more.inc\n[j]\nfilename=data\n";
const MORE: &str =
    "rw=randwrite\nrandrepeat=0\nbs=${BS}\nsize=64k\nnumber_ios=${N}\nfsync=1\nthinktime=100\n";

/// Puts the small experiment, changed by `change`, into a folder.
fn small(dir: &Path, change: impl Fn(String) -> String) -> PathBuf {
    std::fs::create_dir_all(dir.join("jobs")).expect("made");
    std::fs::write(dir.join("jobs/a.fio"), JOB).expect("written");
    std::fs::write(dir.join("jobs/more.inc"), MORE).expect("written");
    let file = dir.join("small.toml");
    std::fs::write(&file, change(SMALL.to_owned())).expect("written");
    file
}

/// The result's folder, as the last line says.
fn result(a: &Answer) -> PathBuf {
    let line = a.stdout.lines().last().expect("some line");
    PathBuf::from(line.strip_prefix("result: ").unwrap_or_else(|| panic!("{}", a.stdout)))
}

/// All files of a folder, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(dir).expect("below").to_string_lossy().into_owned();
                all.insert(name, std::fs::read(path).expect("read"));
            }
        }
    }
    all
}

#[test]
fn a_result_has_all_that_it_takes_to_do_it_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, out) = (small(dir.path(), |s| s), dir.path().join("results"));
    let run = |file: &Path, out: &Path, more: &[&str]| {
        writepath(&[&["run", text(file), "--out", text(out)][..], more].concat())
    };
    let first = run(&file, &out, &[]);
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    let folder = result(&first);
    let there = files(&folder);
    let names: Vec<&str> = there.keys().map(String::as_str).collect();
    let wanted = [
        "MANIFEST.json",
        "claims.json",
        "inputs/jobs/a.fio",
        "inputs/jobs/more.inc",
        "points.csv",
        "resolved.toml",
        "summary.json",
    ];
    assert_eq!(names, wanted);
    let manifest: Value = serde_json::from_slice(&there["MANIFEST.json"]).expect("JSON");
    for (name, bytes) in there.iter().filter(|(name, _)| *name != "MANIFEST.json") {
        assert_eq!(manifest[name], sha256(bytes).as_str(), "{name}");
    }
    let csv = String::from_utf8(there["points.csv"].clone()).expect("text");
    assert_eq!(csv.lines().count(), 1 + 12);
    assert!(csv.starts_with("point,fs.era,workload.vars.BS,seed,"), "{csv}");
    assert!(csv.contains("\n5,6.18,8k,2,"), "{csv}");
    let latest = folder.parent().expect("a folder").join("latest");
    assert_eq!(files(&latest), there);
    // The same from what the result holds, on one thread, without anything kept.
    let other = dir.path().join("other");
    let again = run(&folder.join("resolved.toml"), &other, &["--jobs", "1"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(files(&result(&again)), there);
    assert_eq!(result(&again).file_name(), folder.file_name(), "the same hash");
    // With another seed it is another experiment.
    let seed = run(&file, &out, &["--seed", "5"]);
    assert_ne!(result(&seed).file_name(), folder.file_name());
    let csv = std::fs::read_to_string(result(&seed).join("points.csv")).expect("there");
    assert!(csv.contains("\n0,3.4,4k,5,") && csv.contains("\n0,3.4,4k,6,"), "{csv}");
}

#[test]
fn report_shows_an_experiment_with_its_figures_and_claims() {
    let dir = tempfile::tempdir().expect("a directory");
    let numbers = "\"workload.vars.BS\" = [\"4096\", \"8192\"]";
    let few = |s: String| s.replace("\"workload.vars.BS\" = [\"4k\", \"8k\"]", numbers);
    let (file, page) = (small(dir.path(), few), dir.path().join("page.html"));
    let out = dir.path().join("results");
    let folder = result(&writepath(&["run", text(&file), "--out", text(&out)]));
    let a = writepath(&["report", text(&folder), "--out", text(&page)]);
    assert_eq!((a.code, a.stderr.as_str()), (Some(0), ""), "{}", a.stdout);
    assert!(a.stdout.contains(": 0 papers, 1 runs, "), "{}", a.stdout);
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("write_iops over fs.era"), "a figure of what is swept");
    assert!(!html.contains(" over point"), "the number of a point is no axis");
    assert!(html.contains("min(sync_ios)") && html.contains("✓ "), "its claim");
}

#[test]
fn shards_put_together_are_the_bytes_of_the_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, out) = (small(dir.path(), |s| s), dir.path().join("results"));
    let whole = writepath(&["run", text(&file), "--out", text(&dir.path().join("whole"))]);
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let shard = |n: &str| writepath(&["run", text(&file), "--out", text(&out), "--shard", n]);
    let shards: Vec<PathBuf> = ["1/3", "2/3", "3/3"].map(|n| result(&shard(n))).to_vec();
    assert!(!out.join("small/latest").exists(), "a shard is no result");
    let merge = |dirs: &[&Path]| {
        let mut args = vec!["merge", "--out", text(&out)];
        args.extend(dirs.iter().map(|d| text(d)));
        writepath(&args)
    };
    let merged = merge(&[&shards[2], &shards[0], &shards[1]]);
    assert_eq!((merged.code, merged.stderr.as_str()), (Some(0), ""), "{}", merged.stdout);
    assert_eq!(files(&result(&merged)), files(&result(&whole)));
    let table = |a: &Answer| a.stdout.lines().take(8).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(table(&merged), table(&whole));
    // What is no whole is refused, and says why.
    let few = merge(&[&shards[0], &shards[1]]);
    assert_eq!(few.code, Some(2));
    assert!(few.stderr.contains("4 of 12 runs are missing, as fs.era="), "{}", few.stderr);
    let twice = merge(&[&shards[0], &shards[1], &shards[2], &shards[0]]);
    assert!(twice.code == Some(2) && twice.stderr.contains("is given twice"), "{}", twice.stderr);
    // A shard of another job file is of another experiment, whatever its settings say.
    std::fs::write(dir.path().join("jobs/more.inc"), MORE.replace("64k", "128k")).expect("written");
    let other = result(&shard("3/3"));
    assert_ne!(other, shards[2]);
    let mixed = merge(&[&shards[0], &shards[1], &other]);
    assert_eq!(mixed.code, Some(2), "{}", mixed.stdout);
    assert!(mixed.stderr.contains("inputs/jobs/more.inc is not the same"), "{}", mixed.stderr);
    // Nor is one whose files were changed since.
    std::fs::write(other.join("inputs/jobs/more.inc"), MORE).expect("written");
    let changed = merge(&[&shards[0], &shards[1], &other]);
    assert_eq!(changed.code, Some(2), "{}", changed.stdout);
    let said = "inputs/jobs/more.inc was changed";
    assert!(changed.stderr.contains(said), "{}", changed.stderr);
    // A shard of another machine names no file outside its folder.
    let (strange, names) = (dir.path().join("strange"), "../../etc/passwd");
    std::fs::create_dir(&strange).expect("made");
    let manifest = std::fs::read_to_string(shards[0].join("MANIFEST.json")).expect("there");
    let manifest = manifest.replacen('{', &format!("{{ \"{names}\": \"0\","), 1);
    std::fs::write(strange.join("MANIFEST.json"), manifest).expect("written");
    let outside = merge(&[&strange]);
    assert!(outside.code == Some(2) && outside.stderr.contains(names), "{}", outside.stderr);
    assert!(outside.stderr.contains("names a file outside the folder"), "{}", outside.stderr);
    let none = merge(&[dir.path()]);
    assert!(none.code == Some(74) && none.stderr.contains("MANIFEST.json"), "{}", none.stderr);
    let grown = small(dir.path(), |s| s.replace("\"8k\"", "\"16k\""));
    let strange = writepath(&["run", text(&grown), "--out", text(&out), "--shard", "1/3"]);
    let mixed = merge(&[&shards[1], &result(&strange)]);
    assert!(mixed.stderr.contains("of different experiments"), "{}", mixed.stderr);
    let rows = shards[0].join("rows.json");
    let broken =
        std::fs::read_to_string(&rows).expect("there").replacen("\"seed\": 1", "\"seed\": 9", 1);
    std::fs::write(&rows, broken).expect("written");
    let damaged = merge(&[&shards[0], &shards[1], &shards[2]]);
    assert!(damaged.stderr.contains("rows.json was changed"), "{}", damaged.stderr);
}

#[test]
fn runs_that_are_kept_are_not_made_again_and_verify_makes_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, out) = (small(dir.path(), |s| s), dir.path().join("results"));
    let run =
        |more: &[&str]| writepath(&[&["run", text(&file), "--out", text(&out)][..], more].concat());
    let first = run(&["--verify"]);
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    assert!(first.stdout.starts_with("identical: 7 files"), "{}", first.stdout);
    let kept = || files(&out.join("kept/runs"));
    let before = kept();
    assert_eq!(before.len(), 12);
    // A kept run is believed: one that was changed, with its hash, is seen in the result.
    let (name, bytes) = before.iter().next().expect("some");
    let doc: Value = serde_json::from_slice(bytes).expect("JSON");
    let mut other = doc.clone();
    other["outcome"]["metrics"]["sync_ios"] = "4".into();
    other["sha256"] = sha256(other["outcome"].to_string().as_bytes()).into();
    std::fs::write(out.join("kept/runs").join(name), other.to_string()).expect("written");
    let shown = run(&[]);
    assert_eq!(shown.code, Some(0), "the least is 3 still: {}", shown.stdout);
    assert_eq!(run(&["--verify"]).code, Some(6), "the result holds what is not so");
    // One that was damaged is not there.
    std::fs::write(out.join("kept/runs").join(name), &bytes[..bytes.len() / 2]).expect("written");
    assert_eq!(run(&[]).code, Some(0));
    assert_eq!(kept(), before);
    let verified = run(&["--verify"]);
    assert_eq!(verified.code, Some(0), "{}", verified.stdout);
    // A value more is six runs more at most: the others are kept.
    small(dir.path(), |s| s.replace("\"8k\"", "\"8k\", \"16k\""));
    assert_eq!(run(&[]).code, Some(0));
    assert_eq!(kept().len(), 18);
    std::fs::write(result(&run(&[])).join("points.csv"), "broken").expect("written");
    let differs = run(&["--verify"]);
    assert_eq!(differs.code, Some(6));
    assert!(differs.stdout.contains("points.csv: differs at byte 0"), "{}", differs.stdout);
}

#[test]
fn an_interrupt_keeps_what_is_done() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("results");
    let file = dir.path().join("long.toml");
    let phases: Vec<String> = (1..60).map(|n| format!("\"{n}us\"")).collect();
    let text_of_file = format!(
        "schema = \"writepath/1\"\nname = \"long\"\n[workload]\nname = \"fsync-last\"\n\
            n = 100\nwatch = \"0s\"\n[sweep]\n\"workload.phase\" = [{}]\n",
        phases.join(", ")
    );
    std::fs::write(&file, text_of_file).expect("written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .args(["run", text(&file), "--out", text(&out), "--jobs", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let kept = || if out.join("kept").exists() { files(&out.join("kept")).len() } else { 0 };
    while kept() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill is there");
    assert!(sent.success());
    let code = child.wait().expect("it ends").code();
    assert_eq!(code, Some(130), "interrupted, with {} of 59 runs", kept());
    assert!(kept() >= 1 && kept() < 59 && !out.join("long").exists());
    let rest = writepath(&["run", text(&file), "--out", text(&out)]);
    assert_eq!(rest.code, Some(0), "{}", rest.stderr);
    assert_eq!(kept(), 59);
}

#[test]
fn exit_codes_say_what_came_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("results");
    let run = |change: &dyn Fn(String) -> String, more: &[&str]| {
        let file = small(dir.path(), change);
        writepath(&[&["run", text(&file), "--out", text(&out)][..], more].concat())
    };
    let differs = run(&|s| s.replace("equals = 3", "equals = 4"), &["--json"]);
    let doc: Value = serde_json::from_str(&differs.stdout).expect("one document");
    assert_eq!((differs.code, &doc["ok"]), (Some(1), &Value::Bool(false)));
    assert_eq!(doc["claims"][0]["verdict"], "differs");
    let missing = run(&|s| s.replace("min(sync_ios)", "min(fs.nothing)"), &[]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stdout.contains("not-modelled  (fs.era=3.4, workload.vars.BS=4k has no metric"),
        "{}",
        missing.stdout
    );
    let wrong = run(&|s| s.replace("repeat = 2", "repeat = 2\nrepeats = 3"), &["--json"]);
    let doc: Value = serde_json::from_str(&wrong.stdout).expect("one document");
    assert_eq!(wrong.code, Some(2));
    let first = &doc["diagnostics"][0];
    assert_eq!((&first["line"], &first["column"]), (&4.into(), &1.into()), "{doc}");
    let mode = run(&|s| s.replace("[workload]", "[fs]\ndata = \"none\"\n[workload]"), &[]);
    assert_eq!(mode.code, Some(2), "{}", mode.stderr);
    assert!(
        mode.stderr.contains("run 0: fs.era=3.4") && mode.stderr.contains("data"),
        "{}",
        mode.stderr
    );
    assert_eq!(writepath(&["run", "there-is-none.toml"]).code, Some(74));
    assert_eq!(run(&|s| s, &["--shard", "3/2"]).code, Some(2));
    assert_eq!(writepath(&["run", "--verify"]).code, Some(2));
    let both = run(&|s| s, &["--fs", "ext4"]);
    assert!(both.code == Some(2) && both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

#[test]
fn a_simulated_error_ends_the_experiment() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("full.toml");
    let text_of_file = "schema = \"writepath/1\"\nname = \"full\"\n[device]\n\
        preset = \"fixed\"\ncapacity_bytes = \"16MiB\"\n[workload]\nname = \"mobibench\"\n\
        file_kib = \"64MiB\"\n";
    std::fs::write(&file, text_of_file).expect("written");
    let a = writepath(&["run", text(&file), "--out", text(&dir.path().join("results"))]);
    assert_eq!(a.code, Some(4), "{}", a.stderr);
    assert!(
        a.stderr.contains("run 0: full, seed 1") && a.stderr.contains("ENOSPC"),
        "{}",
        a.stderr
    );
}

#[test]
fn check_tells_what_a_file_is_and_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(dir.path(), |s| s);
    let right = writepath(&["check", text(&file)]);
    assert_eq!(right.code, Some(0), "{}", right.stderr);
    assert!(right.stdout.contains("\njournaling = \"flush\"\n"), "{}", right.stdout);
    let counts = "# 6 points, 12 runs, 1 claims; 3 machines mounted\n";
    assert!(right.stdout.ends_with(counts), "{}", right.stdout);
    let many: Vec<String> = (1..=80).map(|n| format!("\"{n}MiB\"")).collect();
    let sweep = format!("[sweep]\n\"fs.dirty_bytes\" = [{}]\n", many.join(", "));
    let some = dir.path().join("many.toml");
    let text_of = "schema = \"writepath/1\"\nname = \"many\"\n[workload]\nname = \"fsync-last\"\n";
    std::fs::write(&some, format!("{text_of}{sweep}")).expect("written");
    let some = writepath(&["check", text(&some)]);
    assert_eq!(some.code, Some(0), "{}", some.stderr);
    let counts = "64 machines mounted, of points 1 to 64; the machines of the others were not\n";
    assert!(some.stdout.ends_with(counts), "{}", some.stdout);
    let doc = writepath(&["check", "--json", text(&file)]);
    let doc: Value = serde_json::from_str(&doc.stdout).expect("one document");
    assert_eq!((&doc["points"], &doc["runs"]), (&6.into(), &12.into()));
    // What only a mount can tell.
    small(dir.path(), |s| s.replace("[workload]", "[fs]\ndata = \"none\"\n[workload]"));
    let mount = writepath(&["check", text(&file)]);
    assert!(mount.code == Some(2) && mount.stderr.contains("data"), "{}", mount.stderr);
    let job = dir.path().join("jobs/a.fio");
    let fio = writepath(&["check", text(&job), "--vars", "BS:4k;N:3"]);
    assert!(fio.code == Some(0) && fio.stdout.contains("fsync=1"), "{}{}", fio.stdout, fio.stderr);
    let unset = writepath(&["check", text(&job)]);
    assert!(unset.code == Some(2) && unset.stdout.contains("no variable `BS`"), "{}", unset.stdout);
    let mail = dir.path().join("mail.f");
    std::fs::write(&mail, "define fileset name=a,path=/tmp,entries=3\nrun 1\n").expect("written");
    let wml = writepath(&["check", text(&mail)]);
    assert!(wml.stdout.contains("fileset"), "{}{}", wml.stdout, wml.stderr);
    std::fs::write(dir.path().join("noname"), SMALL).expect("written");
    let found_out = writepath(&["check", text(&dir.path().join("noname"))]);
    assert!(found_out.stdout.contains("# 6 points"), "{}", found_out.stderr);
    assert_eq!(writepath(&["check", text(&mail), "--kind", "c"]).code, Some(2));
    assert_eq!(writepath(&["check", "there-is-none"]).code, Some(74));
}

#[test]
fn claims_of_the_examples_hold() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["fsync-eras.toml", "f2fs-modes.toml", "power-cut.toml"] {
        let a = writepath(&["run", text(&example(name)), "--out", text(dir.path())]);
        assert_eq!(a.code, Some(0), "{name}: {}{}", a.stdout, a.stderr);
        assert!(a.stdout.contains("2 claims: 2 match"), "{name}: {}", a.stdout);
    }
}
