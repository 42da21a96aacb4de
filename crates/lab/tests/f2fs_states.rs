//! Crash states of F2FS: what is remembered from one to the next.

use wp_crash::{Explorer, FsSubject, Outcome, Pages, Profile, Subject};
use wp_lab::crash::wild::Extras;
use wp_lab::crash::{Bench, Source, Space, play_on};
use wp_medium::{Slice, Sound, View};

/// F2FS's states as a campaign has them, each recovered a second time with nothing remembered and
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

/// What is remembered from one state of F2FS to the next changes no answer, not on damaged ones
/// either.
#[test]
fn states_of_f2fs_are_judged_as_each_is_alone() {
    // On a drive that neither flushes nor forces anything, so that there is damage.
    let lying =
        Space::Permitted { lying_flush: true, lost_fua: true, faulty_plp: false, atomic: None };
    let source = Source::Wild { seed: 3, calls: 40, extras: Extras::ALL };
    for (space, device) in [(Space::HONEST, "fixed"), (lying, "fixed")] {
        let bench = Bench {
            device: device.to_owned(),
            ..Bench::new(&wp_f2fs::ENTRY, "era=6.18").expect("its options")
        };
        let image = bench.image().expect("an image");
        let played: Vec<_> = [0, 5]
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
            plan: wp_crash::Plan { complete: 5, pairs: 4, samples: 4 },
            seed: 1,
            profile: Profile::of(&wp_f2fs::ENTRY.promises),
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
        assert!(twice.states.get() > 100, "{device}: {}", twice.states.get());
        assert!(space != lying || twice.faulty.get() > 0, "{device}: nothing was damaged");
    }
}
