//! Programs with threads: which thread makes a call, and in which orders their calls can begin.
//!
//! Picture:    lines -> phases (up to a `join`) -> for each phase the sequence of each thread ->
//!             orders in which calls begin -> each as a program of its own, with `in_order` first.
//! Invariants: 1. a thread's calls begin in the order of its lines, each when the one before has
//!                returned;
//!             2. an interleaving says of each call which calls have begun before it, and whether
//!                it waits until they have returned (a `join` before it) or begins while they are
//!                in progress. The second choice is left out where no call can be in progress;
//!             3. the first interleaving is the order of the lines, without further joins.
//! Left out:   calls that begin in the middle of another one, but after a `nap` of the main thread;
//!             joins behind calls that do not wait for the device ([`waits`]).

use std::collections::{BTreeMap, BTreeSet};

use wp_base::rng::Rng;
use wp_vfs::FileFlags;

use super::parse::call;
use super::words::Words;
use super::{By, Call, Program, Step};

/// Highest number of a thread besides the main one.
pub const THREADS_MAX: u32 = 8;

/// What refuses programs with threads says.
pub const NO_THREADS: &str =
    "threads in a program (`thread N:`, `join`, `in_order`) are for `writepath crash`";

/// Most positions of a phase's threads of which interleavings are counted exactly.
const POSITIONS_MAX: u128 = 10_000;

/// What `thread` is followed by: its number and a call.
pub(super) fn step(w: &mut Words<'_>) -> Result<Step, String> {
    const FORM: &str = "write `thread N: CALL`";
    let number = w.0.next().ok_or_else(|| format!("a number is missing; {FORM}"))?;
    let digits = number.strip_suffix(':').ok_or_else(|| format!("`{number}`: {FORM}"))?;
    let thread = digits.parse().ok().filter(|n| (1..=THREADS_MAX).contains(n));
    let thread = match thread {
        Some(thread) => thread,
        None if digits == "0" => {
            return Err("thread 0 is the main thread: write the call alone".to_owned());
        }
        None => return Err(format!("`{digits}`: threads are 1 to {THREADS_MAX}")),
    };
    let name = w.0.next().ok_or_else(|| format!("a call is missing after `thread {thread}:`"))?;
    if name == "thread" {
        return Err(format!("a call has one thread; {FORM}"));
    }
    let is_step = super::SYNTAX.iter().any(|s| s.form.split(' ').next() == Some(name));
    match call(name, w) {
        Ok(call) => Ok(Step::of_thread(thread, call)),
        Err(_) if name.starts_with('@') || STEPS.contains(&name) => {
            Err(format!("`{name}` is no call, and belongs to the main thread; {FORM}"))
        }
        Err(e) if is_step => Err(super::with_form(name, e)),
        Err(e) => Err(e),
    }
}

/// Steps that are no calls.
const STEPS: [&str; 14] = [
    "case",
    "align",
    "nap",
    "begin",
    "end",
    "exit",
    "fail",
    "slow",
    "tear",
    "heal",
    "expect",
    "power_failure",
    "join",
    "in_order",
];

/// What means nothing where it stands: the number of the step, and why.
pub(super) fn check(steps: &[Step]) -> Result<(), (usize, String)> {
    let has_threads = has_threads(steps);
    let mut expects = None;
    for (n, step) in steps.iter().enumerate() {
        let wrong = match step {
            Step::Join | Step::InOrder if !has_threads => {
                format!("`{step}`: the program has no threads; write `thread 1: CALL` for one")
            }
            Step::InOrder if n > 0 => "`in_order` must be the first line".to_owned(),
            Step::Fail(_) | Step::Tear(_) if has_threads => {
                "a device that fails, in a program with threads: which call is told depends on \
                 the interleaving; use `slow`, or no threads"
                    .to_owned()
            }
            Step::Expect(_) => {
                expects = Some(n);
                continue;
            }
            Step::Call(By { thread, .. }, _) => match expects.take() {
                Some(at) if *thread > 0 => {
                    let why = "`expect` is about the next call, which must be of the main thread: \
                               what another thread's call answers depends on the interleaving";
                    return Err((at, why.to_owned()));
                }
                _ => continue,
            },
            _ => continue,
        };
        return Err((n, wrong));
    }
    Ok(())
}

fn has_threads(steps: &[Step]) -> bool {
    steps.iter().any(|s| matches!(s, Step::Call(by, _) if by.thread > 0))
}

impl Program {
    /// Do threads make some of its calls?
    pub fn has_threads(&self) -> bool {
        has_threads(&self.0)
    }

    /// Does it make the device fail, slow, or tear?
    pub fn has_faults(&self) -> bool {
        let is_fault = |s: &Step| matches!(s, Step::Fail(_) | Step::Slow(_) | Step::Tear(_));
        self.0.iter().any(is_fault)
    }

    /// Do its calls begin in the order of the lines? So they do without threads.
    pub fn is_in_order(&self) -> bool {
        !self.has_threads() || self.0.first() == Some(&Step::InOrder)
    }
}

/// Steps of one thread that begin together: a call, or a pause of the main thread, with what is
/// said before it.
#[derive(Clone, Debug)]
struct Unit {
    /// Number of its first step in the program.
    first: usize,
    steps: Vec<Step>,
    waits: bool,
}

/// What lies between two joins.
#[derive(Clone, Debug, Default)]
struct Phase {
    threads: Vec<Vec<Unit>>,
    /// The step that ends it.
    end: Option<Step>,
}

/// Where a phase is: units of each thread that have begun, and threads whose last one may be in
/// progress, as bits.
type Position = (Vec<usize>, u32);

/// Interleavings of a program's threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interleavings {
    programs: Vec<Program>,
    of: u128,
    is_exact: bool,
}

impl Interleavings {
    /// All of them, if there are at most `most`; else this number of different ones: the first, and
    /// random ones of `seed`. `None`: the program has no threads, or says their order.
    pub fn of(program: &Program, most: usize, seed: u64) -> Option<Interleavings> {
        if program.is_in_order() {
            return None;
        }
        let phases = phases(program);
        let mut counts: Vec<Option<Counts>> = phases.iter().map(Counts::of).collect();
        let is_exact = counts.iter().all(Option::is_some);
        let sizes: Vec<u128> = phases
            .iter()
            .zip(&mut counts)
            .map(|(phase, counts)| match counts {
                Some(counts) => counts.from(phase, &phase.start()),
                None => phase.merges(),
            })
            .collect();
        let of = sizes.iter().fold(1u128, |n, size| n.saturating_mul(*size));
        let mut programs = Vec::new();
        if is_exact && of <= most as u128 {
            programs.extend((0..of).map(|index| {
                let mut rest = index;
                let mut orders: Vec<Vec<Step>> = Vec::new();
                for ((phase, counts), size) in phases.iter().zip(&mut counts).zip(&sizes).rev() {
                    let order = phase.order(|options| {
                        let Some(counts) = counts else { return 0 };
                        let mut at = 0;
                        for (option, (_, next)) in options.iter().enumerate() {
                            let here = counts.from(phase, next);
                            if rest % size < at + here {
                                rest = rest / size * size + (rest % size - at);
                                // What is left of the digit picks among the rest of the phase.
                                return option;
                            }
                            at += here;
                        }
                        0
                    });
                    rest /= size;
                    orders.push(order);
                }
                orders.reverse();
                in_order(orders)
            }));
        } else {
            let mut rng = Rng::stream(seed, "interleavings");
            let mut known = BTreeSet::new();
            // Some are drawn twice; of few that differ not all need be drawn.
            for n in 0..most.saturating_mul(16) {
                if programs.len() == most {
                    break;
                }
                let orders = phases.iter().zip(&mut counts).map(|(phase, counts)| {
                    phase.order(|options| match n {
                        0 => 0,
                        _ => drawn(&mut rng, phase, counts.as_mut(), options),
                    })
                });
                let program = in_order(orders.collect());
                if known.insert(program.to_string()) {
                    programs.push(program);
                }
            }
        }
        Some(Interleavings { programs, of, is_exact })
    }

    /// One of a seed. A program whose order is said is its own.
    pub fn random(program: &Program, seed: u64) -> Program {
        if program.is_in_order() {
            return program.clone();
        }
        let mut rng = Rng::stream(seed, "interleaving");
        let orders = phases(program)
            .into_iter()
            .map(|phase| phase.order(|options| rng.below(options.len() as u64) as usize));
        in_order(orders.collect())
    }

    /// Those that are explored, each as a program with [`Step::InOrder`].
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Are these all?
    pub fn is_complete(&self) -> bool {
        self.is_exact && self.of == self.programs.len() as u128
    }

    /// How many there are in all, in words; of very many a lower bound.
    pub fn total(&self) -> String {
        const SHOWN_MAX: u128 = 1_000_000_000_000_000_000;
        match (self.of > SHOWN_MAX, self.is_exact) {
            (true, _) => "more than 10^18".to_owned(),
            (false, true) => self.of.to_string(),
            (false, false) => format!("more than {}", self.of),
        }
    }
}

fn in_order(orders: Vec<Vec<Step>>) -> Program {
    Program(std::iter::once(Step::InOrder).chain(orders.into_iter().flatten()).collect())
}

/// One of the options, each as likely as interleavings begin with it, as far as they are counted.
fn drawn(
    rng: &mut Rng,
    phase: &Phase,
    counts: Option<&mut Counts>,
    options: &[(bool, Position)],
) -> usize {
    const WEIGHT_MAX: u128 = 1 << 48;
    let Some(counts) = counts else { return rng.below(options.len() as u64) as usize };
    let mut weights: Vec<u128> = options.iter().map(|(_, p)| counts.from(phase, p)).collect();
    while weights.iter().any(|w| *w > WEIGHT_MAX) {
        weights.iter_mut().for_each(|w| *w = (*w / 2).max(1));
    }
    let mut at = rng.below(weights.iter().sum::<u128>() as u64) as u128;
    for (n, weight) in weights.iter().enumerate() {
        if at < *weight {
            return n;
        }
        at -= weight;
    }
    0
}

/// The phases of a program.
fn phases(program: &Program) -> Vec<Phase> {
    let past_cache = past_cache(program);
    let mut out = Vec::new();
    let mut units: BTreeMap<u32, Vec<Unit>> = BTreeMap::new();
    // What is said before the main thread's next unit.
    let mut before: Option<Unit> = None;
    let mut close = |units: &mut BTreeMap<u32, Vec<Unit>>, before: &mut Option<Unit>, end| {
        if let Some(last) = before.take() {
            units.entry(0).or_default().push(last);
        }
        let threads = std::mem::take(units).into_values().collect();
        out.push(Phase { threads, end });
    };
    for (first, step) in program.0.iter().enumerate() {
        let unit = |step: &Step, waits| Unit { first, steps: vec![step.clone()], waits };
        match step {
            Step::Call(by, call) if by.thread > 0 => {
                let unit = unit(step, waits(call, &past_cache));
                units.entry(by.thread).or_default().push(unit);
            }
            Step::Call(..) | Step::Nap(_) | Step::Align => {
                let waits = match step {
                    Step::Call(_, call) => waits(call, &past_cache),
                    _ => true,
                };
                let mut own =
                    before.take().unwrap_or_else(|| Unit { first, steps: Vec::new(), waits });
                own.steps.push(step.clone());
                own.waits = waits;
                units.entry(0).or_default().push(own);
            }
            // These wait for all threads.
            Step::Join | Step::Exit | Step::PowerFailure => {
                close(&mut units, &mut before, Some(step.clone()));
            }
            Step::InOrder | Step::Think(_) => {}
            Step::Case(_)
            | Step::Task(_)
            | Step::Begin(_)
            | Step::End
            | Step::Expect(_)
            | Step::Fail(_)
            | Step::Slow(_)
            | Step::Tear(_)
            | Step::Heal => match &mut before {
                Some(own) => own.steps.push(step.clone()),
                None => before = Some(unit(step, false)),
            },
        }
    }
    close(&mut units, &mut before, None);
    out
}

/// Descriptors through which some file is read or written past the cache, or durably: all of them
/// if `chattr` makes some file synchronous.
fn past_cache(program: &Program) -> BTreeSet<u32> {
    let synced = |call: &Call| matches!(call, Call::Chattr(_, flags) if flags.has(FileFlags::SYNC));
    let all = program.calls().any(synced);
    let opened = program.calls().filter_map(|call| match call {
        Call::Open(fd, _, how) if all || how.direct || how.dsync || how.sync => Some(*fd),
        _ => None,
    });
    opened.collect()
}

/// Must the call wait for the device? Others can wait as well, for a block that is not cached or
/// for room in a journal; the calls that begin at once then overlap them.
fn waits(call: &Call, past_cache: &BTreeSet<u32>) -> bool {
    match call {
        Call::Fsync(_)
        | Call::Fdatasync(_)
        | Call::Fbarrier(_)
        | Call::Fdatabarrier(_)
        | Call::Syncfs(_)
        | Call::Sync
        | Call::Msync(..)
        | Call::SyncFileRange(..)
        | Call::AioWait(_)
        | Call::Mkcp(_)
        // A start writes what is dirty, an abort waits for what is on its way.
        | Call::Atomic(..)
        | Call::Pread { .. }
        // What shares extents writes what is dirty first; a copy tries that.
        | Call::CopyFileRange { .. }
        | Call::Reflink { .. }
        | Call::Dedupe { .. }
        | Call::Snapshot { .. } => true,
        Call::Pwrite { fd, .. } | Call::Fallocate(fd, ..) => past_cache.contains(fd),
        // Data go another way then, and none may be under way (`ext4_change_inode_journal_flag`).
        Call::Chattr(_, flags) => flags.has(FileFlags::JOURNAL_DATA),
        _ => false,
    }
}

impl Phase {
    fn start(&self) -> Position {
        (vec![0; self.threads.len()], 0)
    }

    /// What can come next, in the order of the program's lines, and without a join first: is a join
    /// before it, and the position then.
    fn options(&self, (begun, busy): &Position) -> Vec<(bool, Position)> {
        let next = |t: usize| self.threads[t].get(begun[t]);
        let mut threads: Vec<usize> =
            (0..self.threads.len()).filter(|t| next(*t).is_some()).collect();
        threads.sort_by_key(|t| next(*t).map(|unit| unit.first));
        let mut out = Vec::new();
        for join in [false, true] {
            for t in &threads {
                let own = 1 << t;
                // A thread's own last call has returned when the next one begins.
                let others = busy & !own;
                if join && others == 0 {
                    continue;
                }
                let mut after = begun.clone();
                after[*t] += 1;
                let here = if next(*t).is_some_and(|unit| unit.waits) { own } else { 0 };
                out.push((join, (after, here | if join { 0 } else { others })));
            }
        }
        out
    }

    /// The steps in an order that `choose` makes up from the options at each position.
    fn order(&self, mut choose: impl FnMut(&[(bool, Position)]) -> usize) -> Vec<Step> {
        let mut out = Vec::new();
        let mut here = self.start();
        loop {
            let options = self.options(&here);
            if options.is_empty() {
                break;
            }
            let (join, next) = &options[choose(&options).min(options.len() - 1)];
            if *join {
                out.push(Step::Join);
            }
            let begins = next.0.iter().zip(&here.0).position(|(a, b)| a > b).unwrap_or(0);
            if let Some(unit) = self.threads[begins].get(here.0[begins]) {
                out.extend(unit.steps.iter().cloned());
            }
            here = next.clone();
        }
        out.extend(self.end.clone());
        out
    }

    /// How many ways there are to merge the sequences of its threads.
    fn merges(&self) -> u128 {
        let (mut all, mut done) = (1u128, 0u128);
        for thread in &self.threads {
            for n in 1..=thread.len() as u128 {
                done += 1;
                // Exact: a product of binomial coefficients, as long as it is not cut off.
                all = match all.checked_mul(done) {
                    Some(product) => product / n,
                    None => return u128::MAX,
                };
            }
        }
        all
    }
}

/// How many orders go on from a position of a phase.
struct Counts(BTreeMap<Position, u128>);

impl Counts {
    /// `None`: the phase has too many positions to count.
    fn of(phase: &Phase) -> Option<Counts> {
        if phase.threads.len() <= 1 {
            return Some(Counts(BTreeMap::new()));
        }
        let lengths = phase.threads.iter().map(|t| t.len() as u128 + 1);
        let positions = lengths.fold(1 << phase.threads.len(), u128::saturating_mul);
        (positions <= POSITIONS_MAX).then(|| Counts(BTreeMap::new()))
    }

    fn from(&mut self, phase: &Phase, at: &Position) -> u128 {
        if phase.threads.len() <= 1 {
            return 1;
        }
        if let Some(known) = self.0.get(at) {
            return *known;
        }
        let options = phase.options(at);
        let count = match options.is_empty() {
            true => 1,
            false => {
                options.iter().fold(0, |n: u128, (_, p)| n.saturating_add(self.from(phase, p)))
            }
        };
        self.0.insert(at.clone(), count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        Program::parse(&text.replace(';', "\n")).expect("a program")
    }

    fn all(text: &str) -> Vec<String> {
        let made = Interleavings::of(&program(text), 1000, 1).expect("threads");
        assert!(made.is_complete(), "{made:?}");
        let text = |p: &Program| p.to_string().trim_end().replace('\n', ";");
        made.programs().iter().map(text).collect()
    }

    #[test]
    fn the_interleavings_of_calls_that_do_not_wait_are_the_merges_of_their_threads() {
        let two = "unlink a;unlink b;thread 1: unlink c;thread 1: unlink d";
        let all = all(two);
        assert_eq!(all.len(), 6);
        assert_eq!(all[0], format!("in_order;{two}"), "the first is the order of the lines");
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), 6);
        let calls = |thread: &str| "unlink x;".replace('x', thread).repeat(3);
        let text = format!("{}{}", calls("a"), calls("a").replace("unlink", "thread 2: unlink"));
        let many = Interleavings::of(&program(&text), 1000, 1).expect("threads");
        assert_eq!((many.programs().len(), many.total()), (20, "20".to_owned()));
    }

    #[test]
    fn a_call_begins_beside_one_that_waits_or_when_it_has_returned() {
        assert_eq!(
            all("fsync 0;thread 1: unlink a"),
            [
                "in_order;fsync 0;thread 1: unlink a",
                "in_order;fsync 0;join;thread 1: unlink a",
                "in_order;thread 1: unlink a;fsync 0",
            ]
        );
        for waits in ["reflink 0 0 1 0 0", "copy_file_range 0 0 1 0 4096", "dedupe 0 0 1 0 4096"] {
            assert_eq!(all(&format!("{waits};thread 1: unlink a")).len(), 3, "{waits}");
        }
        let made_sync = "open 0 a rw;chattr a sync;join;pwrite 0 1 0 1;thread 1: unlink b";
        assert_eq!(all(made_sync).len(), 3);
        assert_eq!(all(&made_sync.replace("sync", "nodump")).len(), 2);
        // A thread's own call has returned when its next one begins.
        assert_eq!(all("fsync 0;fsync 0;join;thread 1: unlink a").len(), 1);
        // Phases have their orders each.
        let twice = "fsync 0;thread 1: unlink a;join;";
        let both = all(&twice.repeat(2));
        assert_eq!(both.iter().collect::<BTreeSet<_>>().len(), 9, "{both:#?}");
    }

    #[test]
    fn joins_part_phases_and_what_is_said_before_a_call_stays_there() {
        let text = "mkdir d;join;expect EEXIST;mkdir d;thread 1: unlink a;exit;unlink b";
        assert_eq!(
            all(text),
            [
                format!("in_order;{text}"),
                "in_order;mkdir d;join;thread 1: unlink a;expect EEXIST;mkdir d;exit;unlink b"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn of_too_many_a_sample_of_its_seed_is_taken() {
        let text = "fsync 0;".repeat(4) + &"thread 1: fsync 1;".repeat(4);
        let of = |most, seed| Interleavings::of(&program(&text), most, seed).expect("threads");
        let some = of(20, 1);
        let distinct: BTreeSet<String> = some.programs().iter().map(Program::to_string).collect();
        assert_eq!((some.programs().len(), distinct.len()), (20, 20));
        assert!(!some.is_complete());
        assert_eq!(some, of(20, 1));
        assert_ne!(some, of(20, 2));
        let total: usize = some.total().parse().expect("a number");
        assert_eq!(of(total, 1).programs().len(), total);
        assert!(of(total, 1).is_complete() && !of(total - 1, 1).is_complete());
        // Very many are not counted, and a sample comes at once.
        let huge = (0..160).map(|n| format!("thread {}: unlink a;", n % 8 + 1));
        let huge = Interleavings::of(&program(&huge.collect::<String>()), 5, 1).expect("threads");
        assert_eq!((huge.programs().len(), huge.total()), (5, "more than 10^18".to_owned()));
    }

    #[test]
    fn what_means_nothing_is_refused_with_its_line() {
        for (text, line, words) in [
            ("sync\nthread 0: sync", 2, "main thread"),
            ("thread 9: sync", 1, "threads are 1 to 8"),
            ("thread x: sync", 1, "threads are 1 to 8"),
            ("thread 1 sync", 1, "write `thread N: CALL`"),
            ("thread", 1, "a number is missing"),
            ("thread 1:", 1, "a call is missing"),
            ("thread 1: thread 2: sync", 1, "one thread"),
            ("thread 1: nap 5", 1, "main thread"),
            ("thread 1: @a:0 sync", 1, "main thread"),
            ("thread 1: expect EIO", 1, "main thread"),
            ("thread 1: fsync", 1, "write `fsync FD`"),
            ("thread 1: sync 1", 1, "one word too many"),
            ("sync\njoin", 2, "no threads"),
            ("in_order\nsync", 1, "no threads"),
            ("sync\nin_order\nthread 1: sync", 2, "first line"),
            ("# a\n\nexpect EIO\nthread 1: sync", 3, "must be of the main thread"),
            ("fail write data 0 1\nthread 1: sync", 1, "fails"),
        ] {
            let e = Program::parse(text).expect_err(text);
            assert!(e.starts_with(&format!("line {line}: ")) && e.contains(words), "{text}: {e}");
        }
        let text = "in_order\nthread 8: fsync 0\njoin\nunlink a\n";
        assert_eq!(Program::parse(text).expect("a program").to_string(), text);
    }
}
