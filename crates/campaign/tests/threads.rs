//! Programs with threads: what overlaps, what only an overlap shows, and that nothing else is
//! taken for a failure.

use std::sync::Arc;

use wp_base::event::Flags;
use wp_campaign::lives::Lives;
use wp_campaign::wild::Extras;
use wp_campaign::{
    Bench, Bounds, Campaign, Cut, Findings, Source, Space, minimise, play, run, verdicts,
};
use wp_crash::{Entry, Rule};
use wp_workload::program::{Interleavings, Program};

fn ext4(options: &str) -> Bench {
    Bench::new(&wp_ext4::ENTRY, options).expect("options of ext4")
}

/// Without what Linux loses, and as large as one has to be.
fn btrfs() -> Bench {
    let mut bench = Bench::new(&wp_btrfs::ENTRY, "fix=all").expect("options of btrfs");
    bench.device_params[0].1 = 128 << 20;
    bench
}

fn program(text: &str) -> Program {
    Program::parse(&text.replace(';', "\n")).expect("a program")
}

fn all(text: &str) -> Source {
    let made = Interleavings::of(&program(text), 1000, 1).expect("threads");
    assert!(made.is_complete());
    Source::Threads(Arc::new(made))
}

fn campaign(bench: Bench, source: Source) -> Campaign {
    let count = source.count().expect("some");
    Campaign { check: true, ..Campaign::new(bench, source, (0, count)) }
}

fn explored(bench: Bench, text: &str) -> Findings {
    let f = run(&campaign(bench, all(text)), 2, &|_| true);
    assert!(f.not_played.is_empty(), "{text}: {:?}", f.not_played);
    f
}

/// Begins and ends of calls on the tape, by their numbers.
fn calls(bench: &Bench, text: &str) -> Vec<u32> {
    let played = play(bench, &program(text)).expect("it plays");
    let of = |e: &Entry| match e {
        Entry::Begin(n) | Entry::End(n) => Some(*n),
        _ => None,
    };
    played.tape.entries.iter().filter_map(|(_, e)| of(e)).collect()
}

/// Commit records that a program has written.
fn commits(text: &str) -> usize {
    let played = play(&ext4("era=6.18"), &program(text)).expect("it plays");
    let entries = played.tape.entries.iter();
    let fua =
        entries.filter(|(_, e)| matches!(e, Entry::Submit { flags, .. } if flags.has(Flags::FUA)));
    fua.count()
}

#[test]
fn calls_begin_in_the_order_of_their_lines_while_others_are_in_progress() {
    let bench = ext4("era=6.18");
    let text = "in_order;open 0 a rw,creat;pwrite 0 4096 0 1;thread 1: fsync 0;\
                thread 2: rename a b;pwrite 0 4096 0 2";
    assert_eq!(calls(&bench, text), [0, 0, 1, 1, 2, 3, 3, 4, 4, 2]);
    let joined = text.replace("thread 2", "join;thread 2");
    assert_eq!(calls(&bench, &joined), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    // A thread's next call waits for its own last one, and so do the lines behind it.
    let own = text.replace("thread 2", "thread 1");
    assert_eq!(calls(&bench, &own), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    let nap = text.replace("thread 2", "nap 10;thread 2").replace("pwrite 0 4096 0 2", "unlink b");
    assert_eq!(calls(&bench, &nap), [0, 0, 1, 1, 2, 3, 3, 4, 4, 2]);
    // The interleaving must be said.
    let free = play(&bench, &program(&text.replace("in_order;", "")));
    assert!(free.is_err_and(|e| e.to_string().contains("in_order")));
}

#[test]
fn two_fsyncs_at_once_share_a_commit() {
    let text = "in_order;open 0 a rw,creat;open 1 b rw,creat;pwrite 0 4096 0 1;pwrite 1 4096 0 2;\
                thread 1: fsync 0;thread 2: fsync 1";
    assert_eq!(commits(text), 1);
    assert_eq!(commits(&text.replace("thread 2", "join;thread 2")), 2);
}

#[test]
fn a_file_that_a_thread_closes_stays_open_for_the_others() {
    let text = "in_order;open 0 a rw,creat,direct;unlink a;thread 1: pwrite 0 4096 0 1;close 0;\
                open 0 b rw,creat";
    for (fs, options) in [
        (&wp_ext4::ENTRY, "era=6.18"),
        (&wp_f2fs::ENTRY, ""),
        (&wp_nilfs2::ENTRY, "blocks_per_segment=64"),
    ] {
        let bench = Bench::new(fs, options).expect("options");
        let played = play(&bench, &program(text)).expect("it plays");
        assert!(
            played.dids.iter().all(|did| did.error.is_none()),
            "{}: {:?}",
            fs.name,
            played.dids
        );
    }
}

#[test]
fn nothing_is_promised_wrongly_of_calls_at_once() {
    let shared = "open 0 a rw,creat;pwrite 0 8192 0 1;fsync 0;join;\
                  thread 1: pwrite 0 8192 0 2;thread 1: fsync 0;thread 2: pwrite 0 4096 4096 3;\
                  thread 2: ftruncate 0 4096";
    let renamed = "open 0 a rw,creat;open 1 a.new rw,creat;pwrite 1 4096 0 1;open 2 . r;join;\
                   thread 1: fsync 1;thread 2: rename a.new a;thread 2: fsync 2";
    let synced = "open 0 a rw,creat,dsync;open 1 b rw,creat,direct;join;\
                  thread 1: pwrite 0 4096 0 1;thread 1: pwrite 0 4096 0 2;\
                  thread 2: pwrite 1 8192 0 3;thread 2: pwrite 0 8192 0 4;link a c";
    for text in [shared, renamed, synced] {
        for options in ["era=6.18", "era=6.18,data=journal", "era=5.4,nodelalloc"] {
            let f = explored(ext4(options), text);
            assert!(f.found.is_empty(), "{options}: {text}: {:#?}", f.found);
            assert!(f.totals.programs > 5 && f.totals.raw > 200, "{:?}", f.totals);
        }
        // What is lost without flushes is seen.
        let f = explored(ext4("era=6.18,nobarrier"), text);
        assert!(f.totals.broken[Rule::LostSync as usize] > 0, "{text}: {:?}", f.totals);
    }
}

/// A clone holds the locks of both files; a store through a mapping goes past them.
#[test]
fn nothing_is_promised_wrongly_of_clones_and_flags_at_once() {
    let clones = "open 0 a rw,creat;open 1 b rw,creat;pwrite 0 8192 0 1;pwrite 1 8192 0 2;sync;join;\
                  thread 1: reflink 0 0 1 0 0;thread 1: fsync 1;\
                  thread 2: mmap_write 1 4096 0 3;pwrite 0 4096 0 4";
    let f = explored(btrfs(), clones);
    assert!(f.found.is_empty(), "{:#?}", f.found);
    assert!(f.totals.programs > 5 && f.totals.raw > 200, "{:?}", f.totals);

    let flags = "open 0 a rw,creat;sync;join;thread 1: chattr a sync;thread 1: pwrite 0 4096 0 1;\
                 thread 2: pwrite 0 4096 4096 2;rename a b";
    let f = explored(ext4("era=6.18"), flags);
    assert!(f.found.is_empty(), "{:#?}", f.found);
    assert!(f.totals.programs > 5 && f.totals.raw > 200, "{:?}", f.totals);
}

/// Found by random threads: a handle that waits for the group descriptor has to sum up the bitmap
/// when it has it, not before.
#[test]
fn a_bitmap_has_its_checksum_when_two_handles_wait_for_the_descriptor() {
    let text = "in_order;open 0 a rw,creat;pwrite 0 4096 4096 1;fdatasync 0;open 1 b rw,creat;\
                nap 6000000;pwrite 0 4096 0 2;thread 1: symlink LONG c;fsync 0";
    let text = text.replace("LONG", &"long".repeat(20));
    let f = run(&campaign(ext4("era=6.18"), Source::Text(program(&text))), 1, &|_| true);
    assert!(f.found.is_empty() && f.totals.raw > 50, "{f:#?}");
}

/// F2FS gives a direct write its block before it writes it (`f2fs_map_blocks` with
/// `F2FS_GET_BLOCK_DIO`), and an fsync of another thread does not wait for direct writes.
#[test]
fn only_an_overlap_shows_what_an_fsync_beside_a_direct_write_exposes_on_f2fs() {
    let fixed =
        "fsync_mode=strict_fixed,wait_first_node,wait_last_node,wait_earlier_nodes,mode=lfs";
    let of = |options: &str| Bench::new(&wp_f2fs::ENTRY, options).expect("options of f2fs");
    let text = "open 0 a rw,creat,direct;join;pwrite 0 4096 0 1;thread 1: fsync 0";
    let f = explored(of(fixed), text);
    assert!(f.totals.broken[Rule::Exposure as usize] > 0, "{:?}", f.totals);
    let source = all(text);
    let overlaps = |n: u64| !source.program(n).to_string().contains("1\njoin\nthread");
    assert!(f.found.iter().all(|x| overlaps(x.program)), "{:#?}", f.found);
    assert!(!(0..source.count().expect("few")).all(overlaps), "some wait for the write");
    let f = explored(of(&format!("{fixed},direct=log")), text);
    assert!(f.found.is_empty(), "{:#?}", f.found);
}

#[test]
fn a_failure_is_that_of_its_interleaving_and_is_minimised_in_it() {
    let fixed =
        "fsync_mode=strict_fixed,wait_first_node,wait_last_node,wait_earlier_nodes,mode=lfs";
    let bench = Bench::new(&wp_f2fs::ENTRY, fixed).expect("options of f2fs");
    let text = "open 0 f rw,creat,direct;open 1 g rw,creat;join;\
                thread 2: pwrite 0 8192 0 1;thread 3: fsync 0;thread 3: pwrite 1 4096 0 2;unlink g";
    let c = campaign(bench.clone(), all(text));
    let f = run(&c, 2, &|_| true);
    let found = f.found.iter().find(|x| x.violation.rule == Rule::Exposure).expect("exposed");
    let minimal = minimise(&c, found, Bounds::default(), &|| true).expect("plays").expect("again");
    let text = minimal.program.to_string();
    assert!(minimal.calls == 3 && text.starts_with("in_order\n"), "{text}");
    // What is printed, read again, is the same state that breaks the same rule.
    let again = Campaign { source: Source::Text(program(&text)), programs: (0, 1), ..c };
    let played = std::rc::Rc::new(play(&bench, &program(&text)).expect("it plays"));
    let history = std::rc::Rc::new(Space::HONEST.history(&played));
    let state = (minimal.found.frame, &minimal.found.lost[..]);
    let seen = verdicts(&again, &played, &history, state);
    assert!(seen.contains(&minimal.found.violation), "{text}: {seen:#?}");
    let fs = (bench.fs, &bench.fs_options);
    let (frame, lost) = state;
    let cut = Cut { fs, played: &played, history: &history, frame, lost };
    let (told, why) = (cut.tell(12), cut.why(&minimal.found.violation));
    assert!(told.contains("us  thread 1: ") && why.contains("`thread 1: "), "{told}{why}");
}

#[test]
fn what_is_found_does_not_depend_on_workers_and_random_programs_break_nothing() {
    let extras = Extras { threads: true, ..Extras::ALL };
    let wild = |bench: &Bench, count| Campaign {
        programs: (0, count),
        ..campaign_of(bench, Source::Wild { seed: 1, calls: 30, extras: extras.on(bench.fs) })
    };
    let lies = Space::named("lying-flush", None).expect("a space");
    let c = Campaign { space: lies, ..wild(&ext4("era=6.18"), 18) };
    let (one, three) = (run(&c, 1, &|_| true), run(&c, 3, &|_| true));
    assert_eq!(one, three);
    assert!(!one.found.is_empty());
    for (fs, options, count) in [
        (&wp_ext4::ENTRY, "era=6.18", 24),
        (&wp_ext4::ENTRY, "era=6.18,data=journal", 8),
        (&wp_btrfs::ENTRY, "era=6.18,fix=all", 3),
    ] {
        let mut bench = Bench::new(fs, options).expect("options");
        if fs.name == "btrfs" {
            bench.device_params[0].1 = 128 << 20;
        }
        let f = run(&wild(&bench, count), 2, &|_| true);
        assert!(f.found.is_empty() && f.not_played.is_empty(), "{options}: {f:#?}");
        assert!(f.totals.programs == count, "{:?}", f.totals);
    }
}

fn campaign_of(bench: &Bench, source: Source) -> Campaign {
    Campaign { check: true, ..Campaign::new(bench.clone(), source, (0, 1)) }
}

#[test]
fn a_life_with_threads_follows_each_interleaving_of_the_one_before() {
    let bench = ext4("era=6.18");
    let text = "open 0 a rw,creat;join;pwrite 0 4096 0 1;thread 1: fsync 0;thread 2: rename a b;\
                power_failure;open 0 c rw,creat;join;thread 1: fsync 0;thread 1: unlink c;sync";
    let whole = program(text);
    let lives = Lives::of(&bench, Space::HONEST, &whole, (6, 1)).expect("plays").expect("lives");
    let threads = lives.threads().expect("threads");
    assert_eq!(threads.programs().len(), 6);
    let last = lives.count() - 1;
    assert!(lives.describe(last).starts_with("interleaving 6, life 2, after state "));
    let (one, number) = lives.whole(last);
    assert!(one.is_in_order() && threads.programs().contains(&one), "{one}");
    // One interleaving, said by its text, is the same program.
    let alone = Lives::of(&bench, Space::HONEST, &one, (6, 1)).expect("plays").expect("lives");
    assert_eq!(alone.program(number), lives.program(last));
    assert_eq!(alone.threads(), None);
    let c = campaign(bench, Source::Lives(Arc::new(lives)));
    let f = run(&c, 2, &|_| true);
    assert!(f.found.is_empty() && f.not_played.is_empty(), "{f:#?}");
    let lies = Space::named("lying-flush", None).expect("a space");
    let f = run(&Campaign { space: lies, ..c }, 2, &|_| true);
    assert!(!f.found.is_empty());
}
