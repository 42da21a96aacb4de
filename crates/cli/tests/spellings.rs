//! A path may be written in many ways: what is said of a program does not depend on it.

use wp_base::rng::Rng;
use wp_campaign::{Bench, Campaign, Findings, Source, play, run};
use wp_crash::Rule;
use wp_machine::spec::file_system;
use wp_workload::program::Program;

/// Every program begins with these directories and links: `l` leads to `d`, `d/m` to `e`.
const PRELUDE: &str = "mkdir d\nmkdir e\nsymlink d l\nsymlink ../e d/m\nopen 9 . r\nsyncfs 9\n";

fn bench(fs: &str) -> Bench {
    // F2FS as Linux has it loses what fsync promised, however paths are written.
    let fs = match fs {
        "f2fs" => "f2fs,fsync_mode=strict_fixed,wait_first_node,wait_last_node,wait_earlier_nodes",
        fs => fs,
    };
    let (entry, options) = file_system(fs).expect("a file system");
    let mut bench = Bench::of(entry, options).expect("a bench");
    bench.device_params = vec![("capacity_bytes".to_owned(), 256 << 20)];
    // Old data that shows through is another matter.
    bench.stale = false;
    bench
}

fn explored(fs: &str, text: &str) -> Findings {
    let program = Program::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut c = Campaign::new(bench(fs), Source::Text(program), (0, 1));
    c.plan.complete = 10;
    run(&c, 1, &|_| true)
}

/// `path` in one of many ways that all mean the same; of a directory also with a slash behind.
fn spelled(rng: &mut Rng, path: &str, is_dir: bool) -> String {
    let inside = path.strip_prefix("d/");
    let other = path.strip_prefix("e/");
    let mut t = match rng.below(6) {
        0 => format!("/{path}"),
        1 => format!("./{path}"),
        2 => path.replace('/', "//./"),
        3 => format!("../e/../{path}"),
        4 => format!("l/../{path}"),
        _ => match (inside, other) {
            (Some(name), _) => format!("l/{name}"),
            (_, Some(name)) => format!("l/m/{name}"),
            _ => format!("d/m/../{path}"),
        },
    };
    if is_dir && rng.below(2) == 0 {
        t.push('/');
    }
    t
}

/// A program as it is usually written, and in other words.
fn programs(seed: u64) -> (String, String) {
    let mut rng = Rng::stream(seed, "spellings");
    let (mut plain, mut other) = (PRELUDE.to_owned(), PRELUDE.to_owned());
    let names = ["a", "b", "d/a", "d/b", "e/a", "e/c"];
    for writes in 1..10 {
        let path = |rng: &mut Rng, is_dir: bool| {
            let of: &[&str] = if is_dir { &["x", "d/x", "e/x"] } else { &names };
            let path = of[rng.below(of.len() as u64) as usize];
            (path.to_owned(), spelled(rng, path, is_dir))
        };
        let kind = rng.below(7);
        let (p, s) = path(&mut rng, matches!(kind, 4 | 5));
        let (q, r) = path(&mut rng, kind == 5);
        let mut both = |with: &dyn Fn(&str, &str) -> String| {
            plain += &with(&p, &q);
            other += &with(&s, &r);
        };
        match kind {
            0..=2 => both(&|p, _| {
                format!("open 0 {p} rw,creat\npwrite 0 4096 0 {writes}\nfsync 0\nclose 0\n")
            }),
            3 => both(&|p, q| format!("rename {p} {q}\nfsync 9\n")),
            4 => both(&|p, _| format!("mkdir {p}\nopen 1 {p} r\nfsync 1\nclose 1\n")),
            5 => both(&|p, q| format!("rename {p} {q}\nsyncfs 9\n")),
            _ => both(&|p, q| format!("link {p} {q}\nmark {q}\nsyncfs 9\n")),
        }
    }
    (plain, other)
}

fn the_same_is_said(fs: &str) {
    for seed in 0..12 {
        let (plain, other) = programs(seed);
        let (a, b) = (explored(fs, &plain), explored(fs, &other));
        let told = |f: &Findings| {
            let found: Vec<_> = f.found.iter().map(|x| x.violation.clone()).collect();
            let answers: Vec<_> =
                f.calls.first.iter().map(|c| (c.step, c.answer.clone())).collect();
            (f.totals, found, answers, f.calls.failed, f.not_played.clone())
        };
        assert_eq!(told(&a), told(&b), "{fs}, seed {seed}:\n{plain}\n{other}");
        assert!(a.totals.raw > 0 && a.not_played.is_empty(), "{:?}", a.not_played);
        let lost = a.totals.broken[Rule::LostSync as usize];
        assert_eq!(lost, 0, "{fs}, seed {seed}:\n{plain}\n{:?}", a.found);
    }
}

#[test]
fn what_is_said_does_not_depend_on_how_ext4_paths_are_written() {
    the_same_is_said("ext4");
}

#[test]
fn what_is_said_does_not_depend_on_how_f2fs_paths_are_written() {
    the_same_is_said("f2fs");
}

#[test]
fn what_is_said_does_not_depend_on_how_btrfs_paths_are_written() {
    the_same_is_said("btrfs");
}

#[test]
fn what_is_said_does_not_depend_on_how_nilfs2_paths_are_written() {
    the_same_is_said("nilfs2");
}

/// What each call answers, as errno(3) has it; `ok` for none.
fn answers(text: &str) -> Vec<&'static str> {
    let program = Program::parse(text).expect("a program");
    let played = play(&bench("ext4"), &program).expect("it is played");
    played.dids.iter().map(|d| d.error.as_ref().map_or("ok", |e| e.errno())).collect()
}

#[test]
fn calls_answer_to_slashes_and_dots_as_linux_does() {
    // Right: what Linux 6.x answers on ext4 (fs/namei.c).
    let cases = [
        ("open 0 f rw,creat", "ok"),
        ("mkdir d", "ok"),
        ("symlink d l", "ok"),
        ("symlink f/ s", "ok"),
        ("open 1 f/ r", "ENOTDIR"),
        ("open 1 f/. r", "ENOTDIR"),
        ("open 1 f/.. r", "ENOTDIR"),
        ("open 1 s r", "ENOTDIR"),
        ("open 1 f/ rw,creat", "EISDIR"),
        ("open 1 n/ rw,creat", "EISDIR"),
        ("open 1 n/. rw,creat", "ENOENT"),
        ("open 1 n/../f r", "ENOENT"),
        ("open 1 d/../f r", "ok"),
        ("open 1 l/../f r", "ok"),
        ("open 1 d/ r", "ok"),
        ("open 1 d r,creat", "EISDIR"),
        ("mkdir d/.", "EEXIST"),
        ("mkdir /", "EEXIST"),
        ("mkdir e/", "ok"),
        ("symlink f n/", "ENOENT"),
        ("symlink f d/", "EEXIST"),
        ("link f n/", "ENOENT"),
        ("link f/ g", "ENOTDIR"),
        ("link d/ g", "EPERM"),
        ("unlink f/", "ENOTDIR"),
        ("unlink d/", "EISDIR"),
        ("unlink l/", "ENOTDIR"),
        ("unlink d/.", "EISDIR"),
        ("rmdir l/", "ENOTDIR"),
        ("rmdir d/.", "EINVAL"),
        ("rmdir d/..", "ENOTEMPTY"),
        ("rmdir /", "EBUSY"),
        ("rename f/ g", "ENOTDIR"),
        ("rename f g/", "ENOTDIR"),
        ("rename d/. g", "EBUSY"),
        ("rename d/ g/", "ok"),
        ("setxattr f/ user.a 8 1", "ENOTDIR"),
        ("rmdir g/", "ok"),
    ];
    let text: Vec<&str> = cases.iter().map(|c| c.0).collect();
    let got = answers(&text.join("\n"));
    for ((call, right), got) in cases.iter().zip(got) {
        assert_eq!(got, *right, "{call}");
    }
}

#[test]
fn what_fsck_keeps_for_itself_is_refused() {
    let program = Program::parse("open 0 lost+found/f rw,creat\nfsync 0").expect("a program");
    let e = play(&bench("ext4"), &program).err().expect("refused").to_string();
    assert!(e.contains("lost+found") && e.contains("another directory"), "{e}");
}

#[test]
fn a_short_write_is_no_whole_one() {
    // Fills the device, so that a write finds room for a part; then all of it is made durable.
    const WRITES: u64 = 12;
    let mut text = "open 0 f rw,creat\n".to_owned();
    for n in 0..WRITES {
        text += &format!("pwrite 0 1048000 {} {}\n", n * 1_048_000, n + 1);
    }
    text += "fsync 0\n";
    let mut bench = bench("ext4");
    bench.device_params = vec![("capacity_bytes".to_owned(), 12 << 20)];
    let program = Program::parse(&text).expect("a program");
    let mut c = Campaign::new(bench, Source::Text(program), (0, 1));
    (c.plan.complete, c.plan.samples, c.plan.pairs) = (4, 1, 0);
    let f = run(&c, 1, &|_| true);
    assert!(f.unfinished.is_none(), "it is explored to its end");
    assert_eq!(f.calls.short, 1, "one write found room for a part: {:?}", f.calls);
    assert!(f.calls.failed > 0, "and those behind it for nothing: {:?}", f.calls);
    assert!(!f.is_broken(), "{:?}", f.found);
    assert!(f.totals.raw > 0, "{:?}", f.totals);
}
