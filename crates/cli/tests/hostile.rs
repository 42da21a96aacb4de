//! Every verb with hostile arguments, from what the program itself says of its verbs and options:
//! a verb or option that is added is tested without a line here.
//!
//! Laws: the exit code is one that the verb documents, never a bug's or a signal; with `--json`
//!       stdout is one document (or one object a line) whose `ok` is "the exit code is 0"; a verb
//!       says 0 only with a count of work that is not 0; nothing printed moves a terminal's cursor.
//!
//! `WRITEPATH_HOSTILE=N` runs every N-th case only; 1 is all of them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Cases of which one is run, if nothing else is asked for.
const EVERY: usize = 7;
/// A path that is not there.
const MISSING: &str = "missing";
/// What has not ended by then works, which is no error of an argument.
const PATIENCE: Duration = Duration::from_secs(4);
/// The exit code of a run that its budget of time or a signal stopped.
const STOPPED: i32 = 130;
/// KiB of address space: a number that makes it take all memory of the host ends it.
const MEMORY_KIB: u64 = 6 << 20;

/// What a command left.
struct Answer {
    /// `None`: it was still at work.
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Where its output goes.
#[derive(Clone, Copy, PartialEq)]
enum Streams {
    Files,
    FullStdout,
    FullStderr,
    ClosedStderr,
}

/// So many good cases of a verb are enough.
const ACCEPTED_MAX: usize = 3;

fn program() -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\""));
    shell.arg(env!("CARGO_BIN_EXE_writepath"));
    shell
}

fn run(dir: &Path, args: &[OsString], streams: Streams, number: usize) -> Answer {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::SeqCst);
    let (out, err) = (dir.join(format!("{n}.out")), dir.join(format!("{n}.err")));
    // A folder of its own: what one case writes is no other's input.
    let own = dir.join(format!("case-{number}-{n}"));
    std::fs::create_dir_all(&own).expect("made");
    let file = |p: &Path| Stdio::from(File::create(p).expect("made"));
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("there"));
    let mut command = program();
    if streams == Streams::ClosedStderr {
        command = Command::new("sh");
        command.arg("-c").arg("exec \"$0\" \"$@\" 2>&-").arg(env!("CARGO_BIN_EXE_writepath"));
    }
    // What is missing may be made: each run has a name of its own for it.
    let missing = dir.join(MISSING).into_os_string().into_encoded_bytes();
    let own_missing = own.join(MISSING).into_os_string().into_encoded_bytes();
    for arg in args {
        let arg = arg.as_bytes();
        let at = arg.windows(missing.len()).position(|w| w == missing);
        let arg = at.map_or(arg.to_vec(), |at| {
            [&arg[..at], &own_missing, &arg[at + missing.len()..]].concat()
        });
        command.arg(OsString::from_vec(arg));
    }
    command.current_dir(&own).env("HOME", &own).env("TMPDIR", &own);
    command.env_remove("RUST_BACKTRACE").env_remove("GUEST").stdin(Stdio::null());
    command.stdout(if streams == Streams::FullStdout { full() } else { file(&out) });
    command.stderr(if streams == Streams::FullStderr { full() } else { file(&err) });
    let mut child = command.spawn().expect("sh is there");
    #[expect(clippy::disallowed_methods, reason = "a command that works on is let go")]
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("it is a child") {
            Some(status) => break Some(status),
            None if began.elapsed() > PATIENCE => {
                end(&mut child);
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let code = status.map(|s| s.code().unwrap_or_else(|| 1000 + s.signal().unwrap_or(0)));
    let read = |p: &Path| std::fs::read(p).unwrap_or_default();
    let answer = Answer { code, stdout: read(&out), stderr: read(&err) };
    drop((std::fs::remove_file(out), std::fs::remove_file(err), std::fs::remove_dir_all(own)));
    answer
}

/// Ends a command that works on. A killed one would leave its loop devices and mounts behind: it is
/// told to stop, then to stop at once.
fn end(child: &mut Child) {
    for _ in 0..2 {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        for _ in 0..600 {
            if child.try_wait().expect("it is a child").is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    drop(child.kill());
    drop(child.wait());
}

/// A verb, as `list verbs` has it.
struct Verb {
    name: String,
    codes: Vec<i32>,
    is_counted: bool,
    arguments: Vec<Value>,
}

fn verbs() -> Vec<Verb> {
    let done = Command::new(env!("CARGO_BIN_EXE_writepath"))
        .args(["list", "verbs", "--json"])
        .output()
        .expect("it was built");
    let doc: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let verb = |v: &Value| Verb {
        name: v["verb"].as_str().expect("a name").to_owned(),
        codes: v["exit_codes"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| c["code"].as_i64().expect("a number") as i32)
            .collect(),
        is_counted: v["counted"].as_str().is_some_and(|c| c.contains("(`/")),
        arguments: v["arguments"].as_array().expect("a list").clone(),
    };
    doc["verbs"].as_array().expect("a list").iter().map(verb).collect()
}

/// Files for every verb: good ones, and what no verb can use.
fn files(dir: &Path) -> Vec<PathBuf> {
    let path = |name: &[u8]| dir.join(OsStr::from_bytes(name));
    let writepath = |args: &[&OsStr]| {
        let done = Command::new(env!("CARGO_BIN_EXE_writepath"))
            .args(args)
            .current_dir(dir)
            .output()
            .expect("it was built");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let s = OsStr::new;
    let image = path(b"image-\xff.img");
    writepath(&[s("mkfs"), s("ext4"), image.as_os_str(), s("--size"), s("32M")]);
    let (kept, silent) = (path(b"kept-\xfe"), path(b"silent"));
    writepath(&[s("run"), s("--out"), kept.as_os_str()]);
    writepath(&[s("run"), s("--no-events"), s("--out"), silent.as_os_str()]);
    let result = |root: &Path| {
        let find = |p: &Path| std::fs::read_dir(p).expect("a folder").next();
        let name = find(root).expect("one").expect("an entry").path();
        find(&name).expect("one").expect("an entry").path()
    };
    let (kept, silent) = (result(&kept), result(&silent));
    let write = |name: &[u8], bytes: &[u8]| {
        std::fs::write(path(name), bytes).expect("written");
        path(name)
    };
    std::fs::create_dir(path(b"folder")).expect("made");
    let noise: Vec<u8> =
        (0..9000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let job = b"[a\x1b[31mb]\nrw=write\nbs=4k\nsize=16k\nfilename=f\n";
    let experiment = "schema = \"writepath/1\"\nname = \"t\"\n[device]\npreset = \"fixed\"\n\
                      capacity_bytes = \"64MiB\"\n[workload]\nname = \"fsync-last\"\n";
    vec![
        path(MISSING.as_bytes()),
        path(b"folder"),
        write(b"empty", b""),
        write(b"noise-\xff\xfe", &noise),
        write(b"esc\x1b]0;x\x07\nerror: forged", &noise[..100]),
        image,
        kept,
        silent,
        write(b"job-\xff.fio", job),
        write(b"exp-\xff.toml", experiment.as_bytes()),
        PathBuf::from("/dev/full"),
        PathBuf::new(),
    ]
}

/// Texts that are no value of most options.
fn texts() -> Vec<OsString> {
    let long = "a".repeat(5000);
    let all: [&str; 17] = [
        "",
        "nonsense",
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "18446744073709551615h",
        "99999999999T",
        "0s",
        "x=1,y",
        "ext4,era=99",
        "fixed,capacity_bytes=18446744073709551615",
        "f2fs",
        "\u{1b}[31mred\nerror: forged",
        "=1+1",
        "1/0",
        &long,
    ];
    let mut all: Vec<OsString> = all.iter().map(OsString::from).collect();
    all.push(OsStr::from_bytes(b"\xff\xfe").to_owned());
    all
}

/// Values for an argument.
fn values(argument: &Value, files: &[PathBuf]) -> Vec<OsString> {
    let kind = argument["type"].as_str().unwrap_or_default();
    if kind.to_lowercase().contains("path") {
        return files.iter().map(|p| p.clone().into_os_string()).collect();
    }
    let listed = argument["values"].as_array().into_iter().flatten();
    let listed = listed.filter_map(Value::as_str).map(OsString::from);
    texts().into_iter().chain(listed).collect()
}

/// An argument as it is written.
fn given(a: &Value, value: &OsString) -> OsString {
    match a["long"].as_str() {
        Some(long) if a["takes_value"] == true => {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            word
        }
        Some(long) => OsString::from(format!("--{long}")),
        None => value.clone(),
    }
}

/// Is it a place in the command line, or an option that must be there?
fn is_place(a: &Value) -> bool {
    a["long"].is_null() || a["required"] == true
}

/// A verb alone, and its required arguments with each value.
fn starts(verb: &Verb, files: &[PathBuf]) -> Vec<Vec<OsString>> {
    let words = || verb.name.split(' ').map(OsString::from).collect::<Vec<_>>();
    let places: Vec<&Value> = verb.arguments.iter().filter(|a| is_place(a)).collect();
    let mut all = vec![words()];
    let most = places.iter().map(|a| values(a, files).len()).max().unwrap_or(0);
    // Every value at every place; those of several places go round against each other.
    for n in 0..most * places.len().min(2) {
        let mut case = words();
        for (at, a) in places.iter().enumerate() {
            let values = values(a, files);
            case.push(given(a, &values[(n + at * (1 + n / most)) % values.len()]));
        }
        all.push(case);
    }
    all
}

/// Cases that the verb says yes to: what its options are tried behind. A verb that works on and on
/// has none.
fn accepted(dir: &Path, starts: &[Vec<OsString>]) -> Vec<Vec<OsString>> {
    let mut good = Vec::new();
    for (n, case) in starts.iter().enumerate() {
        match run(dir, case, Streams::Files, n).code {
            Some(0) => good.push(case.clone()),
            Some(_) => {}
            None => break,
        }
        if good.len() == ACCEPTED_MAX {
            break;
        }
    }
    good
}

/// More cases: each option with each value, behind required arguments that are right, where some
/// are known, else behind any.
fn with_options(verb: &Verb, files: &[PathBuf], starts: &[Vec<OsString>]) -> Vec<Vec<OsString>> {
    let mut all = Vec::new();
    let options = verb.arguments.iter().filter(|a| !is_place(a));
    for (n, a) in options.enumerate() {
        let values =
            if a["takes_value"] == true { values(a, files) } else { vec![OsString::new()] };
        for (m, value) in values.iter().enumerate() {
            let mut case = starts[(n + m * 5) % starts.len()].clone();
            case.push(given(a, value));
            all.push(case);
        }
    }
    all
}

fn shown(args: &[OsString]) -> String {
    let words = args.iter().map(|a| format!("{:.80?}", a.to_string_lossy()));
    format!("writepath {}", words.collect::<Vec<_>>().join(" "))
}

/// What is wrong with an answer, in words.
fn wrong(verb: &Verb, a: &Answer, is_json: bool) -> Option<String> {
    let code = a.code?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    if code >= 1000 {
        return Some(format!("signal {}: {}", code - 1000, text(&a.stderr)));
    }
    if code == 5 || !verb.codes.contains(&code) {
        return Some(format!("exit code {code}: {} {}", text(&a.stderr), text(&a.stdout)));
    }
    let is_plain = |b: &[u8]| {
        std::str::from_utf8(b)
            .is_ok_and(|t| !t.contains(|c: char| c.is_control() && !"\n\t".contains(c)))
    };
    if !is_plain(&a.stderr) || (!is_json && !is_plain(&a.stdout)) {
        return Some(format!("control characters: {:?} {:?}", text(&a.stdout), text(&a.stderr)));
    }
    let no_answer = [2, 3, 74].contains(&code);
    if !is_json {
        let tells = a.stderr.starts_with(b"error: ") || text(&a.stderr).contains("\nerror: ");
        // A check of a file says in its table what is wrong with it.
        let is_silent = no_answer && !tells && a.stdout.is_empty();
        return is_silent.then(|| "it failed without a word".to_owned());
    }
    let documents: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_slice(&a.stdout).into_iter::<Value>().collect();
    let Ok(documents) = documents else {
        return Some(format!("stdout is not JSON: {}", text(&a.stdout)));
    };
    let Some(last) = documents.last() else { return Some("no document".to_owned()) };
    if documents.len() > 1 && text(&a.stdout).lines().count() != documents.len() {
        return Some("a stream that is not one object a line".to_owned());
    }
    if documents.len() > 1 && !["crash run", "crash log"].contains(&&*verb.name) {
        return Some(format!("{} documents", documents.len()));
    }
    if last["ok"] != (code == 0) {
        return Some(format!("exit code {code} and `ok` {}", last["ok"]));
    }
    if code == 0 && verb.is_counted && last["work"]["count"].as_u64().unwrap_or(0) == 0 {
        return Some(format!("0 without a count of work: {:.300}", last.to_string()));
    }
    (no_answer && last["error"].is_object() && last["error"]["message"] == "")
        .then(|| "an error without a message".to_owned())
}

#[test]
fn every_verb_answers_hostile_arguments_as_documented() {
    let dir = tempfile::tempdir().expect("a folder");
    let files = files(dir.path());
    let verbs = verbs();
    assert!(verbs.len() > 25, "only {} verbs", verbs.len());
    let every = std::env::var("WRITEPATH_HOSTILE").ok().and_then(|v| v.parse().ok());
    let every: usize = every.unwrap_or(EVERY);
    let bases: Vec<Mutex<Vec<Vec<OsString>>>> = verbs.iter().map(|_| Mutex::default()).collect();
    in_threads(verbs.len(), |n| {
        *bases[n].lock().expect("no panic") = accepted(dir.path(), &starts(&verbs[n], &files));
    });
    let mut all: Vec<(&Verb, Vec<OsString>)> = Vec::new();
    for (verb, good) in verbs.iter().zip(bases) {
        let (starts, good) = (starts(verb, &files), good.into_inner().expect("no panic"));
        let options = with_options(verb, &files, if good.is_empty() { &starts } else { &good });
        // The bare verb always; of the others a part that no two verbs cut alike.
        let cases = starts.into_iter().chain(options).enumerate();
        let is_in = |n: usize| n == 0 || (n * 31 + verb.name.len()).is_multiple_of(every);
        all.extend(cases.filter(|(n, _)| is_in(*n)).map(|(_, case)| (verb, case)));
        all.extend(good.into_iter().map(|case| (verb, case)));
    }
    let found: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let ended: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());
    in_threads(all.len(), |n| one(dir.path(), all[n].0, &all[n].1, n, &found, &ended));
    let ended = ended.into_inner().expect("no thread panicked");
    let found = found.into_inner().expect("no thread panicked");
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), all.len(), found.join("\n\n"));
    // A generator that only makes usage errors tests little.
    let of = |code: i32| ended.get(&code).copied().unwrap_or(0);
    assert!(of(0) > 10 && of(2) > 50 && of(74) > 10, "{ended:?}");
}

/// Does so many pieces of work, four at a time.
fn in_threads(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= count {
                        break;
                    }
                    work(n);
                }
            });
        }
    });
}

/// One case as text and as JSON, and in turn with streams that nobody reads.
fn one(
    dir: &Path,
    verb: &Verb,
    args: &[OsString],
    n: usize,
    found: &Mutex<Vec<String>>,
    ended: &Mutex<BTreeMap<i32, usize>>,
) {
    let tell = |what: String| {
        found.lock().expect("no panic").push(format!("{}\n  {what:.600}", shown(args)));
    };
    let json: Vec<OsString> = args.iter().cloned().chain([OsString::from("--json")]).collect();
    let answer = run(dir, &json, Streams::Files, n);
    let Some(code) = answer.code else { return };
    *ended.lock().expect("no panic").entry(code).or_default() += 1;
    if let Some(what) = wrong(verb, &answer, true) {
        tell(format!("--json: {what}"));
    }
    let (streams, wanted) = match n % 4 {
        0 => (Streams::Files, code),
        1 => (Streams::FullStderr, code),
        2 => (Streams::ClosedStderr, code),
        // The answer cannot be written.
        _ => (Streams::FullStdout, 74),
    };
    let args: &[OsString] = if streams == Streams::FullStdout { &json } else { args };
    let other = run(dir, args, streams, n);
    match other.code {
        // A `--budget` of wall time ends a run or not, as the machine's load has it.
        Some(other) if other != wanted && ![code, other].contains(&STOPPED) => {
            tell(format!("with {}: exit code {other}, not {wanted}", n % 4));
        }
        Some(_) if streams == Streams::Files => {
            if let Some(what) = wrong(verb, &other, false) {
                tell(what);
            }
        }
        _ => {}
    }
}
