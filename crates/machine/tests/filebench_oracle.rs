//! The calls that filebench 1.5 makes, and ours: one thread, the numbers that filebench draws, and
//! every call with its path or length, in order.
//!
//! `tests/filebench/NAME.calls` are recordings of ours of the program under strace. With
//! `WRITEPATH_FILEBENCH=path/of/filebench` it is run again and compared with them and against us;
//! with `WRITEPATH_BLESS=1` besides, they are written anew. Of the program itself nothing is here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use wp_base::Sector;
use wp_base::event::{Class, Event};
use wp_machine::testing::skipped;
use wp_machine::{Machine, MachineSpec};
use wp_vfs::Options;
use wp_workload::filebench::{self, BenchResult, PERSONALITIES, RunLength, wml};

/// Calls of the run that are kept.
const KEPT: usize = 400;

/// A text, what its variables are, and how far to go.
struct Case {
    name: &'static str,
    text: String,
    given: BTreeMap<String, String>,
    /// The layout's order is the host's, with threads side by side.
    layout: bool,
}

fn case(name: &'static str, given: &[(&str, &str)]) -> Case {
    let found = PERSONALITIES.iter().find(|p| p.name == name).expect("it comes with it");
    let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let layout = !found.text.contains("paralloc");
    Case { name, text: found.text.to_owned(), given, layout }
}

/// What no personality has: depths, directories, offsets, variables, a flowop of its own.
const EVERYTHING: &str = "
set $dir=/
set $size=randvar(type=gamma,mean=20000,gamma=2000,min=1000,round=100)
set $width=randvar(type=uniform,min=1,mean=3)
set mode quit firstdone
define fileset name=deep,path=$dir,entries=40,dirwidth=$width,dirgamma=1200,size=$size,prealloc=60
define fileset name=leaves,path=$dir,entries=0,leafdirs=12,dirwidth=4,prealloc=50
define file name=one,path=$dir,size=64k,prealloc
define flowop name=twice,$set=deep {
  flowop openfile name=o,filesetname=$set,fd=3
  flowop statfile name=st,fd=3
  flowop closefile name=c,fd=3
}
define process name=p {
  thread name=t,memsize=1m {
    flowop twice name=tw,iters=2
    flowop statfile name=look,filesetname=deep
    flowop listdir name=names,filesetname=deep
    flowop makedir name=make,filesetname=leaves
    flowop removedir name=gone,filesetname=leaves
    flowop write name=seq,filename=one,iosize=3k,iters=2
    flowop write name=rnd,filename=one,iosize=4k,random,workingset=32k,fd=5
    flowop read name=rrd,filename=one,iosize=2k,random,fd=5
    flowop read name=srd,filename=one,iosize=30k,fd=6
    flowop appendfile name=ap,filesetname=deep,iosize=3k,opennext
    flowop createfile name=cr,filesetname=deep,fd=7
    flowop writewholefile name=ww,fd=7,iosize=8k
    flowop fsyncset name=fs,filesetname=deep
    flowop closefile name=cl,fd=7
    flowop openfile name=op,filesetname=deep,fd=8,indexed=17
    flowop closefile name=cl2,fd=8
    flowop deletefile name=rm,filesetname=deep
    flowop finishoncount name=done,value=300
  }
}
run 5
";

fn cases() -> Vec<Case> {
    let small = [("nthreads", "1"), ("nfiles", "60"), ("runtime", "1")];
    let with = |more: &[(&'static str, &'static str)]| -> Vec<(&str, &str)> {
        small.iter().chain(more).copied().collect()
    };
    vec![
        case("varmail", &small),
        case("varmail-nodel", &small),
        case("fileserver", &with(&[("iosize", "64k"), ("meandirwidth", "5")])),
        case("webserver", &small),
        case("createfiles", &[("nthreads", "1"), ("nfiles", "40"), ("meandirwidth", "4")]),
        case("filemicro_createfiles", &[("nfiles", "200"), ("count", "200")]),
        case("filemicro_writefsync", &[("writeiters", "5"), ("fsynccount", "7")]),
        case("filemicro_delete", &[("nthreads", "1"), ("nfiles", "90"), ("count", "60")]),
        case("randomwrite", &[("filesize", "8m"), ("runtime", "1")]),
        Case {
            name: "everything",
            text: EVERYTHING.to_owned(),
            given: BTreeMap::new(),
            layout: true,
        },
    ]
}

/// Calls, one a line: of the layout, and of the thread.
#[derive(Default, PartialEq, Eq, Debug)]
struct Calls {
    layout: Vec<String>,
    thread: Vec<String>,
    /// `NAME N` for each flowop, where the run ends by itself.
    counts: Vec<String>,
}

impl Calls {
    /// Files that are open at the end are closed by us, and in filebench by the process's end.
    fn cut(&mut self) {
        while self.thread.last().is_some_and(|l| l == "close") {
            self.thread.pop();
        }
        self.thread.truncate(KEPT);
    }

    fn text(&self) -> String {
        let part = |name: &str, lines: &[String]| {
            lines.iter().map(|l| format!("{name} {l}\n")).collect::<String>()
        };
        part("layout", &self.layout) + &part("thread", &self.thread) + &part("count", &self.counts)
    }
}

/// Does a text end by itself, and not after some time?
fn ends(text: &str) -> bool {
    text.contains("set mode quit firstdone")
}

fn counts(lines: impl Iterator<Item = (String, u64)>) -> Vec<String> {
    let mut all: Vec<String> = lines.map(|(name, n)| format!("{name} {n}")).collect();
    all.sort();
    all
}

fn ours(case: &Case) -> Calls {
    let file = wml::parse(case.name, case.text.as_bytes(), &case.given);
    assert!(file.diagnostics.is_empty(), "{}", file.rendered());
    let mut personality = file.personality;
    personality.own_numbers = true;
    let machine = machine();
    let vfs = machine.mount().expect("a mount");
    machine.record(Class::SYSCALL);
    let v = vfs.clone();
    let length = if ends(&case.text) { RunLength::AsWritten } else { RunLength::Loops(500) };
    let found: BenchResult = machine
        .block_on("main", async move { filebench::run(&v, &personality, length, 1).await })
        .expect("it ends")
        .expect("it succeeds");
    let mut calls = Calls::default();
    let mut paths: BTreeMap<u64, String> = BTreeMap::new();
    for r in machine.rt.probe().take() {
        let (name, id, value) = match &r.event {
            Event::SyscallEnter { id, target, .. } => {
                paths.insert(*id, target.to_string());
                continue;
            }
            Event::SyscallExit { name, id, value, .. } => (*name, id, *value),
            _ => continue,
        };
        let target = paths.remove(id).unwrap_or_default();
        let is_thread = r.task.starts_with("filebench/");
        let line = match name {
            "pwrite64" => format!("write {value}"),
            "pread64" => format!("read {value}"),
            "open" => format!("open {target}"),
            "mkdir" | "rmdir" | "unlink" => format!("{name} {target}"),
            "stat" if is_thread => format!("stat {target}"),
            "fsync" | "close" => name.to_owned(),
            _ => continue,
        };
        let list = if is_thread { &mut calls.thread } else { &mut calls.layout };
        list.push(line);
    }
    machine.unmount(&vfs).expect("an unmount");
    calls.cut();
    if ends(&case.text) {
        let all = found.flowops.iter().map(|f| (f.name.to_string(), f.latency.count));
        calls.counts = counts(all.filter(|(_, n)| *n > 0));
    }
    if !case.layout {
        calls.layout.clear();
    }
    calls
}

fn machine() -> Machine {
    let fs = &wp_ext4::ENTRY;
    let spec = MachineSpec {
        seed: 1,
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
    Machine::new(spec, None).expect("a machine")
}

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/filebench/{name}.calls"))
}

/// Panics at the first line that differs, with those before it.
fn assert_same(name: &str, ours: &str, theirs: &str) {
    let (a, b): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let at = (0..a.len().max(b.len())).find(|i| a.get(*i) != b.get(*i));
    if let Some(at) = at {
        let before = b[at.saturating_sub(8).min(b.len())..at.min(b.len())].join("\n");
        panic!(
            "{name}, line {}:\n{before}\nours:      {:?}\nfilebench: {:?}",
            at + 1,
            a.get(at),
            b.get(at)
        );
    }
}

#[test]
fn one_thread_makes_the_calls_that_filebench_was_seen_to_make() {
    for case in cases() {
        let recorded = std::fs::read_to_string(recording(case.name)).expect("a recording");
        assert!(recorded.lines().count() > 20, "{}", case.name);
        assert_same(case.name, &ours(&case).text(), &recorded);
    }
}

/// The text with its variables set to what is given, in a directory of the host.
fn host_text(case: &Case, dir: &Path) -> String {
    let line = |l: &str| {
        let name = l.strip_prefix("set $").and_then(|l| l.split_once('=')).map(|(name, _)| name);
        match name {
            Some("dir") => format!("set $dir={}\n", dir.display()),
            Some(n) if case.given.contains_key(n) => format!("set ${n}={}\n", case.given[n]),
            _ => format!("{l}\n"),
        }
    };
    case.text.lines().map(line).collect()
}

/// What filebench does, under strace.
fn theirs(case: &Case, program: &Path) -> Calls {
    let dir = tempfile::tempdir().expect("a directory");
    let (text, root) = (dir.path().join("x.f"), dir.path().join("root"));
    std::fs::create_dir(&root).expect("a directory");
    std::fs::write(&text, host_text(case, &root)).expect("written");
    let out = Command::new("timeout")
        .args(["60", "strace"])
        .args(["-ff", "-s", "16", "-o"])
        .arg(dir.path().join("trace"))
        .args(["-e", "trace=execve,openat,mkdir,rmdir,unlink,read,write,pread64,pwrite64,fsync,close,newfstatat"])
        .args(["setarch", "-R"])
        .arg(program)
        .arg("-f")
        .arg(&text)
        .output()
        .expect("strace runs");
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut traces: Vec<(u32, String)> = std::fs::read_dir(dir.path())
        .expect("listed")
        .filter_map(|e| {
            let path = e.expect("an entry").path();
            let pid = path.extension()?.to_str()?.parse().ok()?;
            Some((pid, std::fs::read_to_string(&path).expect("read")))
        })
        .filter(|(_, t)| !t.contains("\"rm\"") && !t.contains("\"sync\""))
        .collect();
    traces.sort();
    let prefix = format!("{}/", root.display());
    let mut calls = Calls::default();
    for (i, (_, trace)) in traces.iter().enumerate() {
        let (lines, is_layout) = (calls_of(trace, &prefix), i == 0);
        if is_layout {
            calls.layout = lines.into_iter().filter(|l| !l.starts_with("stat ")).collect();
        } else if !trace.contains("O_CREAT, 0644") {
            // Not a thread of the layout.
            calls.thread.extend(lines);
        }
    }
    assert!(!calls.thread.is_empty(), "{}: no calls\n{printed}", case.name);
    calls.cut();
    if ends(&case.text) {
        let lines = printed.lines().filter_map(|l| {
            let mut words = l.split_whitespace();
            let (name, n) = (words.next()?, words.next()?.strip_suffix("ops")?.parse().ok()?);
            (n > 0).then(|| (name.to_owned(), n))
        });
        calls.counts = counts(lines);
    }
    if !case.layout {
        calls.layout.clear();
    }
    calls
}

/// The calls of one task on files below `prefix`.
fn calls_of(trace: &str, prefix: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for line in trace.lines() {
        let Some((call, result)) = line.rsplit_once(" = ") else { continue };
        let Some((name, rest)) = call.split_once('(') else { continue };
        let result = result.split(' ').next().unwrap_or_default();
        let path = rest.split('"').nth(1).and_then(|p| p.strip_prefix(prefix));
        let fd = rest.split([',', ')']).next().unwrap_or_default().to_owned();
        let is_open = open.contains(&fd);
        match (name, path) {
            ("openat", Some(path)) if !rest.contains("O_DIRECTORY") => {
                open.push(result.to_owned());
                lines.push(format!("open {path}"));
            }
            ("mkdir" | "rmdir" | "unlink", Some(path)) => lines.push(format!("{name} {path}")),
            ("newfstatat", Some(path)) => lines.push(format!("stat {path}")),
            ("read" | "pread64", _) if is_open => lines.push(format!("read {result}")),
            ("write" | "pwrite64", _) if is_open => lines.push(format!("write {result}")),
            ("fsync", _) if is_open => lines.push("fsync".to_owned()),
            ("close", _) if is_open => {
                open.retain(|o| *o != fd);
                lines.push("close".to_owned());
            }
            _ => {}
        }
    }
    lines
}

#[test]
fn the_recordings_are_what_filebench_does() {
    let Some(program) = std::env::var_os("WRITEPATH_FILEBENCH").map(PathBuf::from) else {
        return skipped("calls of filebench", "WRITEPATH_FILEBENCH names no program");
    };
    if !Command::new("strace").arg("-V").output().is_ok_and(|o| o.status.success()) {
        return skipped("calls of filebench", "strace is not installed");
    }
    for case in cases() {
        let calls = theirs(&case, &program).text();
        if std::env::var_os("WRITEPATH_BLESS").is_some() {
            std::fs::write(recording(case.name), &calls).expect("written");
        }
        let recorded = std::fs::read_to_string(recording(case.name)).expect("a recording");
        assert_same(case.name, &recorded, &calls);
        assert_same(case.name, &ours(&case).text(), &calls);
    }
}
