//! From a failure to understanding: failures are reduced, written down for others, listed as known,
//! found by a command, and campaigns stop and go on.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wp_base::Sector;
use wp_campaign::against::compare;
use wp_campaign::wild::Extras;
use wp_campaign::{
    Asking, Bench, Bounds, Campaign, Command, Cut, Findings, Found, KnownFailures, Of, Reproducer,
    Runs, Source, Space, Watch, line, load_campaign, minimise, play, resume, run, save_campaign,
    verdicts, write_reproducer,
};
use wp_crash::{Plan, Profile, Rule};
use wp_machine::files;
use wp_medium::write_log::{LogFlags, Until, WriteLog};
use wp_parity::host_kernel::{Found as Theirs1, HostKernel, Theirs, cannot};
use wp_workload::program::{Program, contents};

fn bench(options: &str) -> Bench {
    Bench::new(&wp_ext4::ENTRY, options).expect("options of ext4")
}

/// The paper's phone.
fn phone(options: &str) -> Bench {
    let (device, elevator) = ("emmc-16".to_owned(), "cfq".to_owned());
    Bench { device, elevator, ..bench(options) }
}

/// Ordered mode of 3.8, which shows what was in a block before.
fn hole(source: Source, programs: (u64, u64)) -> Campaign {
    let b = phone("era=3.8,dirty_background_bytes=262144");
    Campaign { plan: Plan { samples: 8, ..Plan::default() }, ..Campaign::new(b, source, programs) }
}

fn text(program: &str) -> Source {
    Source::Text(Program::parse(&program.replace("; ", "\n")).expect("a program"))
}

/// The hole in four calls.
const HOLE: &str = "open 0 . r; open 1 a rw,creat; pwrite 1 4096 0 1; syncfs 0";

/// A drive that says that it has flushed.
fn liar(programs: (u64, u64)) -> Campaign {
    let space =
        Space::Permitted { lying_flush: true, lost_fua: true, faulty_plp: false, atomic: None };
    let b = bench("era=6.18");
    let plan = Plan { complete: 6, pairs: 8, samples: 8, ..Plan::default() };
    Campaign { space, plan, ..Campaign::new(b, Source::Sequences(Of::Ace, 1), programs) }
}

fn first(f: &Findings, rule: Rule) -> Found {
    f.found.iter().find(|x| x.violation.rule == rule).expect("a failure").clone()
}

#[test]
fn a_failure_becomes_a_few_calls_that_break_the_same_rule_about_the_same_file() {
    let wild = Source::Wild { seed: 10, calls: 40, extras: Extras::ALL };
    let c = Campaign { stop_at: vec![Rule::Exposure], ..hole(wild, (0, 16)) };
    let found = first(&run(&c, 2, &|_| true), Rule::Exposure);
    let m = minimise(&c, &found, Bounds::default(), &|| true).expect("played").expect("shown");
    assert!(m.finished && m.calls <= 5 && m.lost() <= 3, "{m:?}");
    assert_eq!(m.found.violation.rule, Rule::Exposure);
    let again = minimise(&c, &found, Bounds::default(), &|| true).expect("played").expect("shown");
    assert_eq!(format!("{m:?}"), format!("{again:?}"));
    // What it says is what is there, and without any one of its steps it is not there.
    let fails = |p: &Program| {
        let one = Campaign { source: Source::Text(p.clone()), programs: (0, 1), ..c.clone() };
        let f = run(&one, 1, &|_| true);
        f.totals.broken[Rule::Exposure as usize] > 0
    };
    assert!(fails(&m.program));
    for at in 0..m.program.0.len() {
        let mut less = m.program.clone();
        less.0.remove(at);
        assert!(!fails(&less), "step {at} of\n{}", m.program);
    }
    let played = Rc::new(play(&c.bench, &m.program).expect("played"));
    let history = Rc::new(c.space.history(&played));
    let said = verdicts(&c, &played, &history, (m.found.frame, &m.found.lost));
    assert!(said.contains(&m.found.violation), "{said:?}");
    // Bounds hold, and what comes out is a failure all the same.
    let few = Bounds { plays: 5, ..Bounds::default() };
    let early = minimise(&c, &found, few, &|| true).expect("played").expect("shown");
    assert!(!early.finished && early.work.0 <= 8 && fails(&early.program), "{early:?}");
}

#[test]
fn what_is_lost_becomes_least_too() {
    // Without barriers a transaction is replayed of which one block never came.
    let b = bench("era=3.4,nobarrier");
    let c = Campaign {
        check: true,
        stop_at: vec![Rule::Metadata],
        ..Campaign::new(b, Source::Sequences(Of::Ace, 1), (0, 16))
    };
    let mut found = first(&run(&c, 2, &|_| true), Rule::Metadata);
    let m = minimise(&c, &found, Bounds::default(), &|| true).expect("played").expect("shown");
    assert!(m.calls <= 5 && (1..=3).contains(&m.lost()), "{m:?}");
    // A rule that it does not break is not found.
    found.violation.rule = Rule::Replaced;
    assert!(minimise(&c, &found, Bounds::default(), &|| true).expect("played").is_none());
}

fn cut_of<'a>(
    c: &'a Campaign,
    played: &'a wp_campaign::Played,
    history: &'a wp_crash::History,
    (frame, lost): (usize, &'a [usize]),
) -> Cut<'a> {
    Cut { fs: (c.bench.fs, &c.bench.fs_options), played, history, frame, lost }
}

/// The log over the base is the image, byte for byte.
fn assert_replays(dir: &Path) -> Vec<String> {
    let log = files::FileView::open(&dir.join("writes.log")).expect("a log");
    let log = WriteLog::open(&log).expect("a log");
    let (base, bytes) = files::load(&dir.join("base.raw")).expect("an image");
    let (medium, _) = log.replay_over(base, Until::Mark("cut")).expect("the mark is there");
    let again = dir.join("again.raw");
    files::save(&medium, Sector(0), bytes, &again).expect("saved");
    let (a, b) = (std::fs::read(&again), std::fs::read(dir.join("crashed.raw")));
    assert!(a.expect("read") == b.expect("read"), "the log gives another image");
    let entries = log.entries().map(|e| e.expect("whole"));
    entries.filter(|e| e.flags.has(LogFlags::MARK)).map(|e| e.mark).collect()
}

#[test]
fn a_reproducer_replays_to_the_image_for_every_kind_of_state() {
    let c = hole(text(HOLE), (0, 1));
    let program = c.source.program(0);
    let played = play(&c.bench, &program).expect("played");
    let history = c.space.history(&played);
    let dir = tempfile::tempdir().expect("a directory");
    let last = history.frames.len() - 1;
    let mut prefixes = 0;
    for frame in [0, last / 3, last / 2, last] {
        let live = history.frames[frame].live.len();
        for lost in [vec![], (0..live).rev().take(1).collect(), (0..live).take(1).collect()] {
            let cut = cut_of(&c, &played, &history, (frame, &lost));
            let r = Reproducer {
                cut: &cut,
                space: c.space,
                program: &program,
                violation: None,
                replay: "writepath crash …",
                fs: "ext4,era=3.8",
            };
            let told = write_reproducer(dir.path(), &r).expect("written");
            prefixes += u32::from(format!("{told:?}") == "Prefix");
            let marks = assert_replays(dir.path());
            assert_eq!(marks.last().map(String::as_str), Some("cut"));
            assert_eq!(marks.iter().any(|m| m.starts_with("lost ")), !lost.is_empty());
        }
    }
    assert!(prefixes >= 4, "{prefixes}");
    for name in ["README.md", "program.txt", "timeline.txt", "state.json", "base.raw"] {
        assert!(dir.path().join(name).exists(), "{name}");
    }
    // As the drive's own account has it.
    let b = Bench { model: true, ..c.bench.clone() };
    let m = Campaign { bench: b, space: Space::Modelled, ..c };
    let played = play(&m.bench, &program).expect("played");
    let history = m.space.history(&played);
    let frame = history.frames.len() / 2;
    let cut = cut_of(&m, &played, &history, (frame, &[]));
    let (entries, _) = cut.log(m.space);
    let mut medium = history.frames[0].base.clone();
    entries.iter().for_each(|e| e.apply(&mut medium));
    medium.diff(&cut.medium(), &mut |at, _| panic!("sector {} differs", at.0));
}

#[test]
fn the_kernel_of_this_host_sees_the_failure_in_the_image() {
    let dir = tempfile::tempdir().expect("a directory");
    if let Some(why) = cannot(&dir.path().join("probe")) {
        wp_machine::testing::skipped("a reproducer on the host's kernel", &why);
        return;
    }
    let c = hole(text(HOLE), (0, 1));
    let found = first(&run(&c, 1, &|_| true), Rule::Exposure);
    let program = c.source.program(0);
    let played = play(&c.bench, &program).expect("played");
    let history = c.space.history(&played);
    let cut = cut_of(&c, &played, &history, (found.frame, &found.lost));
    let mut host = HostKernel::new(&dir.path().join("host"), 64 << 20).expect("a loop device");
    let Theirs::Files(files) = host.recover(&cut.medium(), "", 4096).expect("mounted") else {
        panic!("refused")
    };
    let Some(Theirs1::File(a)) = files.get("a") else { panic!("{files:?}") };
    assert_eq!(a.size, 4096);
    let (_, id) = a.blocks.first().expect("a block that is not zero");
    assert_ne!(*id, contents(1, 0, 4096).id(), "what was written is there");
}

#[test]
fn the_story_says_where_the_bytes_were() {
    let c = hole(text(HOLE), (0, 1));
    let found = first(&run(&c, 1, &|_| true), Rule::Exposure);
    let played = play(&c.bench, &c.source.program(0)).expect("played");
    let history = c.space.history(&played);
    let cut = cut_of(&c, &played, &history, (found.frame, &found.lost));
    let why = cut.why(&found.violation);
    for words in [
        "Power fails during `syncfs 0`.",
        "commit record of transaction",
        "at sector 16488, which holds old data from before the program",
        "Nothing was sent to that sector before the power failure",
        "in host memory",
        "1 transactions",
    ] {
        assert!(why.contains(words), "{words} in\n{why}");
    }
    let told = cut.tell(9);
    assert!(told.contains("data of a (inode 12)") && told.contains("-> #1 "), "{told}");
}

#[test]
fn a_campaign_that_is_stopped_ends_as_one_that_is_not() {
    let c = liar((0, 34));
    let whole = run(&c, 2, &|_| true);
    assert!(whole.totals.broken[Rule::LostSync as usize] > 0 && !whole.places.is_empty());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("campaign");
    assert!(load_campaign(&path, "a", "b").expect("no file").is_none());
    let mut f = Findings::before(&c);
    let mut rounds = 0;
    while f.done < c.programs.1 {
        let watch = Watch { step: &|_, _| false, abandon: &|| false, at: &|_| {} };
        f = resume(&c, 2, f, &watch);
        // How far a stopped program came is of this run alone, and no part of the file.
        f.unfinished = None;
        save_campaign(&path, "what was asked for", "build 1", &f).expect("saved");
        let (loaded, is_other) =
            load_campaign(&path, "what was asked for", "build 2").expect("loads").expect("there");
        assert_eq!((&loaded, is_other), (&f, true));
        f = loaded;
        rounds += 1;
    }
    assert_eq!(rounds, 3);
    assert_eq!(f, whole);
    // Given up in the middle of a chunk, nothing of it counts.
    let none = resume(
        &c,
        2,
        Findings::before(&c),
        &Watch { step: &|_, _| true, abandon: &|| true, at: &|_| {} },
    );
    assert_eq!(none, Findings::before(&c));
    // Damage anywhere, and other campaigns.
    let bytes = std::fs::read(&path).expect("read");
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        std::fs::write(&path, &bytes[..at]).expect("cut");
        assert!(load_campaign(&path, "what was asked for", "").is_err(), "cut at {at}");
        let mut other = bytes.clone();
        other[at] = if other[at] == b'7' { b'3' } else { b'7' };
        std::fs::write(&path, &other).expect("changed");
        // Space between words may change as it likes.
        if !bytes[at].is_ascii_whitespace() {
            assert!(load_campaign(&path, "what was asked for", "").is_err(), "changed at {at}");
        }
    }
    std::fs::write(&path, &bytes).expect("whole");
    let e = load_campaign(&path, "something else", "").expect_err("another's");
    assert!(e.contains("another campaign") && e.contains("something else"), "{e}");
}

#[test]
fn what_is_known_is_counted_and_is_no_failure() {
    let list = "[[known]]\nrule = \"O4-lost-sync\"\nwhy = \"the drive lies\"\n\
                [[known]]\nrule = \"O1-metadata\"\npath = \"nothing\"\nwhy = \"never\"\n";
    let plain = run(&liar((0, 4)), 1, &|_| true);
    let known = Arc::new(KnownFailures::parse(list, "any").expect("a list"));
    let f = run(&Campaign { known, ..liar((0, 4)) }, 1, &|_| true);
    let lost = Rule::LostSync as usize;
    assert!(plain.totals.broken[lost] > 0);
    assert_eq!(f.totals.broken[lost], 0);
    assert_eq!(f.known.get(&0), Some(&plain.totals.broken[lost]));
    assert_eq!(f.known.get(&1), None);
    assert!(f.found.iter().all(|x| x.violation.rule != Rule::LostSync));
    let mut others = plain.totals.broken;
    others[lost] = 0;
    assert_eq!(f.totals.broken, others);
}

#[test]
fn a_command_judges_each_tree_once() {
    // A program that takes an empty file for damage, and one that reads what had returned.
    let whole =
        "open 0 a rw,creat; fsync 0; pwrite 0 4096 0 1; fsync 0; link a b; open 1 . r; syncfs 1";
    let dir = tempfile::tempdir().expect("a directory");
    let go = |n: u32, line: &str, workers: usize| {
        let command =
            Command::new((line, Asking::Run, false), dir.path(), Duration::from_secs(20), n == 2);
        let command = command.expect("a directory");
        let b = bench("era=6.18");
        let c =
            Campaign { command: Some(command.clone()), ..Campaign::new(b, text(whole), (0, 1)) };
        let f = run(&c, workers, &|_| true);
        assert_eq!(command.error(), None);
        (f, command.runs())
    };
    let (f, runs) = go(1, "[ ! -e a ] || [ -s a ] || { echo a is empty; exit 3; }", 1);
    let application = Rule::Application as usize;
    assert!(f.totals.broken[application] > 0, "{:?}", f.totals);
    let said = &first(&f, Rule::Application).violation.seen;
    assert!(said.contains("3") && said.contains("a is empty"), "{said}");
    assert!(runs.runs > 2 && runs.refused > 0 && runs.refused < runs.runs, "{runs:?}");
    assert!(runs.runs + runs.cached >= f.totals.judged, "{runs:?} {:?}", f.totals);
    // Threads that check side by side come to the same, with what they see as images too.
    for workers in [2, 5] {
        let (other, ran) = go(1, "[ ! -e a ] || [ -s a ] || { echo a is empty; exit 3; }", workers);
        assert_eq!(other, f, "{workers} workers");
        assert_eq!(Runs { spent: runs.spent, ..ran }, runs, "{workers} workers");
    }
    let idle = "[ -s \"$WRITEPATH_IMAGE\" ] && [ ! -s \"$WRITEPATH_CALLED\" ]";
    let (one, two) = (go(2, idle, 1), go(2, idle, 2));
    assert!(one.0.totals.broken[application] > 3, "{:?}", one.0.totals);
    assert_eq!((&one.0, one.1.runs, one.1.cached), (&two.0, two.1.runs, two.1.cached));
    // After the second fsync the file is there with its bytes: that is so in every state.
    let check = "[ $(grep -c '^fsync 0' \"$WRITEPATH_RETURNED\") -lt 2 ] || \
                 [ $(stat -c %s a) = 4096 ] && \
                 [ -s \"$WRITEPATH_IMAGE\" ] && [ -d \"$WRITEPATH_TREE\" ]";
    let (f, _) = go(2, check, 2);
    assert_eq!(f.totals.broken[application], 0, "{:?}", f.found);
    // Links are links.
    let (f, _) = go(3, "[ ! -e b ] || [ a -ef b ]", 1);
    assert_eq!(f.totals.broken[application], 0, "{:?}", f.found);
    // Nothing is left behind.
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
}

#[test]
fn two_settings_differ_where_they_do() {
    let old = hole(text(HOLE), (0, 1));
    let new = Campaign { bench: phone("era=4.6,dirty_background_bytes=262144"), ..old.clone() };
    let same = compare(&old, &old, 0, &|| true).expect("played").expect("whole");
    assert!(!same.differs() && same.boundaries.len() == 5, "{same:?}");
    let c = compare(&old, &new, 0, &|| true).expect("played").expect("whole");
    assert!(c.differs(), "{c:?}");
    // After syncfs 3.8 may leave what it never wrote, 4.6 may not.
    let last = c.boundaries.last().expect("after the last call");
    assert_eq!((last.calls, last.broken[1]), (4, 0), "{last:?}");
    assert!(
        last.only[0]
            .iter()
            .any(|(tree, rule)| { tree.0.contains("never wrote") && *rule == Some("O2-exposure") })
    );
    let all: BTreeSet<&str> = last.only[1].iter().map(|(t, _)| &*t.0).collect();
    assert!(all.iter().all(|t| t.contains("block 0: `pwrite 1 4096 0 1`")), "{all:?}");
}

#[test]
fn a_campaign_is_told_as_a_command_line() {
    let c = Campaign {
        profile: Profile { direct_is_durable: true, ..Profile::EXT4 },
        ..hole(text(HOLE), (0, 1))
    };
    let quoted = line::quoted(&c.source.program(0));
    assert_eq!(quoted, format!("'{HOLE}'"));
    assert_eq!(
        line::state(&c, &quoted, (3, &[1, 2])),
        format!(
            "writepath crash show '{HOLE}' 3:1,2 --fs ext4,dirty_background_bytes=262144,era=3.8 \
             --device emmc-16 --elevator cfq --require names+order+direct+reserve"
        )
    );
}
