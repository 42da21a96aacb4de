//! Crash states: what is remembered from one to the next.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Source, Space, play_on};
use wp_crash::{Explorer, FsSubject, Kept, Outcome, Pages, Profile, Subject, Totals};
use wp_medium::{Slice, Sound, View};
use wp_vfs::FsEntry;

/// States as a campaign has them, each recovered a second time with nothing remembered and
/// nothing known to be the same in all of them.
struct Twice {
    quick: FsSubject,
    states: std::cell::Cell<u64>,
    faulty: std::cell::Cell<u64>,
}

/// A state of which nobody says what it has in common with others.
struct Alone<'a>(&'a dyn Pages);

impl View for Alone<'_> {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> wp_base::FsResult<()> {
        self.0.read_at(at, out)
    }
    fn zones(&self) -> Vec<wp_base::Zone> {
        self.0.zones()
    }
}

impl Pages for Alone<'_> {
    fn page_id(&self, page: u64) -> u128 {
        self.0.page_id(page)
    }
    fn page(&self, page: u64) -> Slice {
        self.0.page(page)
    }
}

impl Subject for Twice {
    fn block_bytes(&self) -> u32 {
        self.quick.block_bytes()
    }
    fn recover(&self, pages: &dyn Pages) -> Outcome {
        let quick = self.quick.recover(pages);
        let full = FsSubject {
            entry: self.quick.entry,
            options: self.quick.options.clone(),
            block_bytes: self.quick.block_bytes,
            check: true,
            keep_writes: false,
            sound: Sound::default(),
        };
        let alone = full.recover(&Alone(pages));
        assert_eq!(quick, alone, "state {}", self.states.get());
        self.states.set(self.states.get() + 1);
        self.faulty.set(self.faulty.get() + u64::from(!alone.faults.is_empty()));
        quick
    }
}

/// What is remembered from one state to the next changes no answer, not on damaged ones either, of
/// which the number comes back.
fn judged_as_each_is_alone(fs: &'static FsEntry, options: &str, capacity: u64) -> u64 {
    let mut damaged = 0;
    // On a drive that neither flushes nor forces anything, so that there is damage.
    let lying =
        Space::Permitted { lying_flush: true, lost_fua: true, faulty_plp: false, atomic: None };
    let source = Source::Wild { seed: 3, calls: 40, extras: Extras::ALL };
    for space in [Space::HONEST, lying] {
        let bench = Bench {
            device_params: vec![("capacity_bytes".to_owned(), capacity)],
            stale: false,
            ..Bench::new(fs, options).expect("its options")
        };
        let image = bench.image().expect("an image");
        let played: Vec<_> = [0, 1, 2, 3, 4, 5]
            .iter()
            .map(|n| play_on(&bench, image.clone(), &source.program(*n)).expect("played"))
            .collect();
        let histories: Vec<_> = played.iter().map(|p| space.history(p)).collect();
        let quick = FsSubject {
            entry: bench.fs,
            options: bench.fs_options.clone(),
            block_bytes: 4096,
            check: true,
            keep_writes: false,
            sound: Sound::default(),
        };
        let twice = Twice { quick, states: Default::default(), faulty: Default::default() };
        let options = wp_crash::Options {
            plan: wp_crash::Plan { complete: 5, pairs: 4, samples: 4, ..Default::default() },
            seed: 1,
            profile: Profile::of(&fs.promises),
            partition: played[0].partition,
            keep: 1,
            prune: true,
            recovery_in_order: true,
            second_cuts: 0,
        };
        let mut explorer = Explorer::new(&twice, options);
        explorer.expect(histories.iter());
        for (played, history) in played.iter().zip(&histories) {
            explorer.explore(&played.tape, history, &played.ledger, &mut |t| t.distinct < 400);
        }
        let (states, faulty) = (twice.states.get(), twice.faulty.get());
        assert!(states > 100, "{space:?}: {states}");
        damaged += faulty;
        println!("{} {space:?}: {states} states, {faulty} of them damaged", fs.name);
    }
    damaged
}

#[test]
fn states_of_f2fs_are_judged_as_each_is_alone() {
    let damaged = judged_as_each_is_alone(&wp_f2fs::ENTRY, "era=6.18", 64 << 20);
    assert!(damaged > 0, "nothing was damaged");
}

#[test]
fn states_of_ext4_are_judged_as_each_is_alone() {
    // Eight groups, whose checksums refuse what is damaged, and eighteen without any.
    judged_as_each_is_alone(&wp_ext4::ENTRY, "era=6.18", 1 << 30);
    let damaged = judged_as_each_is_alone(&wp_ext4::ENTRY, "era=3.4", (2 << 30) + (256 << 20));
    assert!(damaged > 0, "nothing was damaged");
}

#[test]
fn states_of_nilfs2_are_judged_as_each_is_alone() {
    // Nothing is damaged even so: a log that is not whole is no log.
    judged_as_each_is_alone(&wp_nilfs2::ENTRY, "era=6.12", 256 << 20);
}

/// What each state recovers to, by frame and units; and how many recoveries that took.
fn outcomes(
    prune: bool,
    bench: &Bench,
    played: &wp_campaign::Played,
) -> (BTreeMap<(usize, Kept), Rc<Outcome>>, Totals) {
    let history = Space::HONEST.history(played);
    let subject = FsSubject {
        entry: bench.fs,
        options: bench.fs_options.clone(),
        block_bytes: 4096,
        check: true,
        keep_writes: false,
        sound: Sound::default(),
    };
    let options = wp_crash::Options {
        plan: wp_crash::Plan { complete: 6, pairs: 8, samples: 8, ..Default::default() },
        seed: 1,
        profile: Profile::of(&bench.fs.promises),
        partition: played.partition,
        keep: 1,
        prune,
        recovery_in_order: true,
        second_cuts: 0,
    };
    let seen = Rc::new(RefCell::new(BTreeMap::new()));
    let mut explorer = Explorer::new(&subject, options);
    explorer.expect(std::iter::once(&history));
    let all = seen.clone();
    explorer.watch(move |visit| {
        all.borrow_mut().insert((visit.frame, visit.kept.clone()), visit.outcome.clone());
    });
    assert!(explorer.explore(&played.tape, &history, &played.ledger, &mut |_| true));
    let totals = explorer.totals;
    drop(explorer);
    (Rc::into_inner(seen).expect("nobody else has it").into_inner(), totals)
}

/// Logs of NILFS2 that lack a block are one state to recovery, whichever block it is: what comes
/// out is what each state by itself would have come to.
#[test]
fn a_log_that_is_not_whole_is_recovered_once() {
    let text = "open 0 a rw,creat\npwrite 0 40960 0 1\nfsync 0\npwrite 0 65536 8192 2\nfdatasync 0\n\
                mkdir d\nopen 1 d/b rw,creat\npwrite 1 20480 0 3\nfsync 1\n\
                pwrite 0 12288 0 4\nsync";
    let program = wp_workload::program::Program::parse(text).expect("a program");
    let bench = Bench {
        device_params: vec![("capacity_bytes".to_owned(), 256 << 20)],
        stale: false,
        ..Bench::new(&wp_nilfs2::ENTRY, "era=6.12").expect("its options")
    };
    let played = play_on(&bench, bench.image().expect("an image"), &program).expect("played");
    let (quick, of_quick) = outcomes(true, &bench, &played);
    let (full, of_full) = outcomes(false, &bench, &played);
    assert!(quick.len() > 200, "{} states", quick.len());
    assert_eq!(quick, full);
    assert_eq!(of_full.distinct, of_full.raw);
    assert_eq!(of_quick.broken, of_full.broken);
    // Each log lacks its head, or some other block, or nothing.
    assert!(of_quick.distinct < 40, "{} of {}", of_quick.distinct, of_quick.raw);
}
