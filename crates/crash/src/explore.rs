//! The explorer: every frame, every state, recovered once and judged.

mod later;
mod verdicts;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub use self::later::Opinion;
use self::later::Waiting;
use self::verdicts::Verdicts;
use self::walk::Walk;
use crate::history::History;
use crate::ledger::Ledger;
use crate::oracle::{Profile, Rule, Violation, judge};
use crate::recovery_memo::RecoveryMemo;
use crate::second;
use crate::state::{Pool, State, Varying};
use crate::states::{self, Kept, Plan};
use crate::subject::{Outcome, Subject, Survivor};
use crate::sums::is_sum;
use crate::tape::{Entry, Tape};

/// How to explore.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which states of a frame.
    pub plan: Plan,
    /// Seed of samples.
    pub seed: u64,
    /// What the file system is held to.
    pub profile: Profile,
    /// First byte and length of the partition on the device.
    pub partition: (u64, u64),
    /// Failures kept of each rule; all are counted.
    pub keep: usize,
    /// Recover no state that reads the same as an earlier one? (Without it the answer is the same,
    /// later.)
    pub prune: bool,
    /// Does recovery write what is to be last only when the rest is durable? All of them do;
    /// without it one sees what would come of one that does not.
    pub recovery_in_order: bool,
    /// Crashes during recovery: for each new recovery that writes, this number of choices of its
    /// writes is recovered in turn. 0: none.
    pub second_cuts: u32,
}

/// What was done, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Programs.
    pub programs: u64,
    /// Frames: instants between which nothing changes for a power failure.
    pub cuts: u64,
    /// Frames not all of whose states were visited.
    pub cuts_sampled: u64,
    /// Those of them of which not even every prefix, single loss and single survival was, by
    /// [`Plan::pages`].
    pub cuts_thinned: u64,
    /// Largest number of unpersisted units at once.
    pub most_in_doubt: u32,
    /// States explored.
    pub raw: u64,
    /// States that recovery could tell from all before: recoveries done.
    pub distinct: u64,
    /// States that were judged anew, with other operations called or returned, or recovered anew.
    pub judged: u64,
    /// States during recovery that were recovered in turn.
    pub second: u64,
    /// Mounts that were cut, by whoever does that.
    pub mounts: u64,
    /// Broken rules, by [`Rule::ALL`].
    pub broken: [u64; Rule::ALL.len()],
}

impl Totals {
    /// Adds another's.
    pub fn add(&mut self, other: &Totals) {
        self.programs += other.programs;
        self.cuts += other.cuts;
        self.cuts_sampled += other.cuts_sampled;
        self.cuts_thinned += other.cuts_thinned;
        self.most_in_doubt = self.most_in_doubt.max(other.most_in_doubt);
        self.raw += other.raw;
        self.distinct += other.distinct;
        self.judged += other.judged;
        self.second += other.second;
        self.mounts += other.mounts;
        for (a, b) in self.broken.iter_mut().zip(other.broken) {
            *a += b;
        }
    }
}

/// A state that breaks a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong with it.
    pub violation: Violation,
    /// Frame.
    pub frame: usize,
    /// Which of its unpersisted units were kept.
    pub kept: Kept,
    /// Positions on the tape between which a cut can leave it.
    pub cut: (usize, usize),
    /// Numbers of operations that had been called, and returned, by then.
    pub operations: (u32, u32),
    /// States that the explorer had visited before.
    pub after: u64,
}

/// What is said of one state.
#[derive(Clone, Debug)]
pub struct Look {
    /// What is wrong with it, without what is listed as known.
    pub violations: Rc<Judged>,
    /// Positions on the tape between which a cut can leave it.
    pub cut: (usize, usize),
    /// Numbers of operations that had been called, and returned, by then.
    pub operations: (u32, u32),
    /// Number of what it recovers to.
    result: u32,
}

/// Broken rules of a state.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Those that are not listed as known.
    pub news: Vec<Violation>,
    /// Numbers of the entries of the list for the others.
    pub listed: Vec<usize>,
    /// Number of the checker's verdict, if that is not known yet.
    pub later: Option<u64>,
}

/// The entry of a list of known failures that a violation is, by its number.
type KnownAs<'a> = dyn Fn(&Violation) -> Option<usize> + 'a;

impl Judged {
    fn file(&mut self, violation: Violation, listed: Option<&KnownAs<'_>>) {
        match listed.and_then(|listed| listed(&violation)) {
            Some(entry) => self.listed.push(entry),
            None => self.news.push(violation),
        }
    }

    fn take(&mut self, opinion: Opinion, listed: Option<&KnownAs<'_>>) {
        match opinion {
            Opinion::Fine => {}
            Opinion::Bad(violation) => self.file(violation, listed),
            Opinion::Later(number) => self.later = Some(number),
        }
    }
}

/// A run whose states are explored.
pub struct Case<'a> {
    history: &'a History,
    ledger: &'a Ledger,
    calls: Calls,
    judged: Verdicts,
}

impl<'a> Case<'a> {
    /// A run, by its tape, what the tape says of power failures, and what the program did.
    pub fn new(tape: &Tape, history: &'a History, ledger: &'a Ledger) -> Case<'a> {
        Case { history, ledger, calls: Calls::of(tape), judged: Verdicts::default() }
    }
}

/// A state that the explorer visits, with what it recovers to.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// Frame.
    pub frame: usize,
    /// Which of its unpersisted units are kept.
    pub kept: &'a Kept,
    /// What it recovers to.
    pub outcome: &'a Rc<Outcome>,
    /// Was it recovered now? If not, recovery could not tell it from one before.
    pub is_new: bool,
    /// Numbers of operations that had been called, and returned, by then.
    pub operations: (u32, u32),
}

/// Bytes of recoveries that an explorer remembers, about. A recovery of a few small files takes
/// some KiB; one of 100 MiB of data takes 1 MiB, and has thousands of others beside it.
const REMEMBERED: u64 = 1 << 29;

/// Rules and paths that are told apart; beyond, failures are counted by rule alone.
const PLACES: usize = 10_000;

/// What is shown every visit.
type Watcher<'a> = Box<dyn FnMut(&Visit<'_>) + 'a>;
/// What has its own opinion of a state.
type Checker<'a> = Box<dyn FnMut(&Visit<'_>) -> Opinion + 'a>;
/// Which entry of a list of known failures a failure is.
type Listed<'a> = Box<KnownAs<'a>>;
/// Is it what was looked for?
type Wanted<'a> = Box<dyn Fn(&Violation) -> bool + 'a>;

/// Explores the histories of one subject. Recoveries are remembered from one to the next.
pub struct Explorer<'a> {
    subject: &'a dyn Subject,
    options: Options,
    watcher: Option<Watcher<'a>>,
    checker: Option<Checker<'a>>,
    /// Is `checker` asked about every state?
    checks_each: bool,
    listed: Option<Listed<'a>>,
    wanted: Option<Wanted<'a>>,
    known: RecoveryMemo,
    /// The same for the states of one frame, which differ in its units alone: what is read is not
    /// the page but whether a unit is kept. A frame has few units, and a recovery reads thousands
    /// of pages that none of them touches.
    of_frame: RecoveryMemo,
    outcomes: Vec<Rc<Outcome>>,
    /// Bytes that they take, about.
    held: u64,
    varying: Varying,
    /// Files that some recovery left: most leave the same.
    files: BTreeSet<Rc<Survivor>>,
    pool: Pool,
    /// What was done.
    pub totals: Totals,
    /// Kept failures.
    pub failures: Vec<Failure>,
    /// All failures, by rule and path: in how many states.
    pub places: BTreeMap<(Rule, String), u64>,
    /// Failures that are entries of the list of known ones: number of the entry, states.
    pub known_failures: BTreeMap<usize, u64>,
    /// States whose verdict of the checker is not known yet, by its number.
    later: BTreeMap<u64, Waiting>,
    /// Frames of the last history that were explored in full.
    pub frames_done: usize,
    /// The first frame that [`Explorer::explore`] looks at.
    first: usize,
}

/// Numbers of operations called and returned before each position of a tape.
struct Calls {
    begun: Vec<u32>,
    ended: Vec<u32>,
}

impl Calls {
    fn of(tape: &Tape) -> Calls {
        let (mut begun, mut ended) = (vec![0], vec![0]);
        for (_, entry) in &tape.entries {
            let (b, e) = (begun[begun.len() - 1], ended[ended.len() - 1]);
            begun.push(b + u32::from(matches!(entry, Entry::Begin(_))));
            ended.push(e + u32::from(matches!(entry, Entry::End(_))));
        }
        Calls { begun, ended }
    }
}

impl<'a> Explorer<'a> {
    /// Nothing is known yet.
    pub fn new(subject: &'a dyn Subject, options: Options) -> Explorer<'a> {
        Explorer {
            subject,
            options,
            watcher: None,
            checker: None,
            checks_each: false,
            listed: None,
            wanted: None,
            known: RecoveryMemo::default(),
            of_frame: RecoveryMemo::default(),
            outcomes: Vec::new(),
            held: 0,
            varying: Varying::default(),
            files: BTreeSet::new(),
            pool: Pool::default(),
            totals: Totals::default(),
            failures: Vec::new(),
            places: BTreeMap::new(),
            known_failures: BTreeMap::new(),
            later: BTreeMap::new(),
            frames_done: 0,
            first: 0,
        }
    }

    /// [`Explorer::explore`] leaves out the frames before this one of the next histories.
    pub fn begin_at(&mut self, frame: usize) {
        self.first = frame;
    }

    /// Says which histories will be explored, all of them: what is the same in all of their states
    /// need not be checked twice. Without this call the answers are the same, later.
    pub fn expect<'h>(&mut self, histories: impl Iterator<Item = &'h History> + Clone) {
        self.varying = Varying::of(histories);
    }

    /// Asks `checker` about every state that is judged: O8. With `each` also about the states that
    /// recover to the same as one before, for a checker that sees more of them than recovery does.
    pub fn check_with<O: Into<Opinion>>(
        &mut self,
        each: bool,
        mut checker: impl FnMut(&Visit<'_>) -> O + 'a,
    ) {
        self.checker = Some(Box::new(move |visit| checker(visit).into()));
        self.checks_each = each;
    }

    /// What `listed` has a number for is counted by it, and is no failure.
    pub fn forgive(&mut self, listed: impl Fn(&Violation) -> Option<usize> + 'a) {
        self.listed = Some(Box::new(listed));
    }

    /// Ends [`Explorer::explore`] at the first failure that is `wanted`, and keeps only such.
    pub fn stop_at(&mut self, wanted: impl Fn(&Violation) -> bool + 'a) {
        self.wanted = Some(Box::new(wanted));
    }

    /// Recoveries that are remembered.
    pub fn remembered(&self) -> usize {
        self.outcomes.len()
    }

    /// Forgets all recoveries: the same comes out, later.
    pub fn forget(&mut self) {
        self.known = RecoveryMemo::default();
        self.of_frame = RecoveryMemo::default();
        self.outcomes.clear();
        self.held = 0;
        self.files.clear();
        self.pool = Pool::default();
    }

    /// Shows every visit to `watcher`, before the state is judged.
    pub fn watch(&mut self, watcher: impl FnMut(&Visit<'_>) + 'a) {
        self.watcher = Some(Box::new(watcher));
    }

    /// Explores one history; `go_on` is asked before each frame and after each state, with what had
    /// been done before the frame. Returns whether it came to the end; if not,
    /// [`Explorer::frames_done`] says how far it came.
    pub fn explore(
        &mut self,
        tape: &Tape,
        history: &History,
        ledger: &Ledger,
        go_on: &mut dyn FnMut(&Totals) -> bool,
    ) -> bool {
        self.totals.programs += 1;
        let mut case = Case::new(tape, history, ledger);
        let first = self.first;
        for number in first..history.frames.len() {
            self.frames_done = number;
            if !go_on(&self.totals) {
                return false;
            }
            let frame = &history.frames[number];
            if number > first && frame.new == 0 {
                // Whatever it can leave, an earlier one could.
                continue;
            }
            if self.held > REMEMBERED {
                self.forget();
                // Its verdicts are of results by number.
                case.judged.clear();
            }
            self.enter(history, number);
            let (plan, seed) = (self.options.plan, self.options.seed);
            let mut walk = Walk::new(self, &mut case, number, go_on);
            let visited = match number == first {
                true => states::of_instant(history, number, &plan, seed, &mut walk),
                false => states::of_frame(history, number, &plan, seed, &mut walk),
            };
            let (goes, thinned) = (walk.goes, walk.thinned);
            self.totals.cuts += 1;
            self.totals.raw += visited.states;
            self.totals.cuts_sampled += u64::from(!visited.complete);
            self.totals.cuts_thinned += u64::from(thinned);
            self.totals.most_in_doubt = self.totals.most_in_doubt.max(visited.of_log2);
            if !goes {
                return false;
            }
        }
        self.frames_done = history.frames.len();
        true
    }

    /// Looks at states of one frame until `each` answers false; returns whether it never did. They
    /// are judged for cuts within this frame, though some of them may be possible longer. Nothing
    /// is counted but recoveries.
    pub fn visit(
        &mut self,
        case: &mut Case<'_>,
        frame: usize,
        states: &mut dyn Iterator<Item = Kept>,
        each: &mut dyn FnMut(&Kept, &Look) -> bool,
    ) -> bool {
        self.enter(case.history, frame);
        for kept in states {
            let until = case.history.end_of(frame);
            let look = self.look(case, frame, &kept, until);
            if !each(&kept, &look) {
                return false;
            }
        }
        true
    }

    /// What is wrong with a state of a frame that has been entered, for cuts before `until`.
    fn look(&mut self, case: &mut Case<'_>, number: usize, kept: &Kept, until: usize) -> Look {
        let history = case.history;
        let frame = &history.frames[number];
        let known = self.totals.distinct;
        let result = self.outcome(history, number, kept);
        let operations = (case.calls.begun[frame.pos], case.calls.ended[until]);
        let outcome = &self.outcomes[result as usize];
        let is_new = self.totals.distinct > known;
        let visit = Visit { frame: number, kept, outcome, is_new, operations };
        if let Some(watcher) = &mut self.watcher {
            watcher(&visit);
        }
        let (cut, key) = ((frame.pos, until), (result, operations.0, operations.1));
        let known = case.judged.get(key);
        let mut check = |asked: bool| match &mut self.checker {
            Some(check) if asked => check(&visit),
            _ => Opinion::Fine,
        };
        let listed = self.listed.as_deref();
        let violations = match known {
            Some(judged) => judged,
            None => {
                self.totals.judged += 1;
                let mut judged = Judged::default();
                let found = judge(case.ledger, outcome, operations, &self.options.profile);
                found.into_iter().for_each(|v| judged.file(v, listed));
                judged.take(check(!self.checks_each), listed);
                let judged = Rc::new(judged);
                case.judged.insert(key, judged.clone());
                judged
            }
        };
        let violations = match check(self.checks_each) {
            Opinion::Fine => violations,
            own => {
                let mut judged = Judged::clone(&violations);
                judged.take(own, listed);
                Rc::new(judged)
            }
        };
        Look { violations, cut, operations, result }
    }

    /// Counts what is wrong, and keeps some of it. Was it what was looked for?
    fn keep(
        &mut self,
        case: &Case<'_>,
        frame: usize,
        kept: &Kept,
        look: &Look,
        after: u64,
    ) -> bool {
        for entry in &look.violations.listed {
            *self.known_failures.entry(*entry).or_default() += 1;
        }
        if let Some(number) = look.violations.later {
            let keep = self.options.keep;
            self.later.entry(number).or_default().add(keep, (frame, kept), look, after);
        }
        let mut found = false;
        for violation in &look.violations.news {
            let rule = violation.rule;
            self.totals.broken[rule as usize] += 1;
            let keep = match &self.wanted {
                Some(wanted) => !found && wanted(violation),
                None => {
                    self.count(violation, 1);
                    self.kept_of(rule) < self.options.keep
                }
            };
            if keep {
                found = self.wanted.is_some();
                self.failures.push(self.pin(case, frame, kept, look, violation, after));
            }
        }
        found
    }

    /// A failure with the first frame in which a cut leaves it: what was promised only when
    /// more had been sent was lost with what had been sent by then.
    fn pin(
        &self,
        case: &Case<'_>,
        first: usize,
        kept: &Kept,
        look: &Look,
        violation: &Violation,
        after: u64,
    ) -> Failure {
        let (history, outcome) = (case.history, &self.outcomes[look.result as usize]);
        for frame in first..history.frames.len() {
            let (pos, until) = (history.frames[frame].pos, history.end_of(frame));
            if pos >= look.cut.1 || violation.rule != Rule::LostSync {
                break;
            }
            let operations = (case.calls.begun[pos], case.calls.ended[until]);
            let found = judge(case.ledger, outcome, operations, &self.options.profile);
            if found.contains(violation) {
                let kept = history.later(first, kept, frame);
                let violation = violation.clone();
                return Failure { violation, frame, kept, cut: (pos, until), operations, after };
            }
        }
        Failure {
            violation: violation.clone(),
            frame: first,
            kept: kept.clone(),
            cut: look.cut,
            operations: look.operations,
            after,
        }
    }

    /// Counts states with a failure by its rule and path.
    fn count(&mut self, violation: &Violation, states: u64) {
        let place = (violation.rule, violation.path.clone());
        if self.places.len() < PLACES || self.places.contains_key(&place) {
            *self.places.entry(place).or_default() += states;
        }
    }

    fn kept_of(&self, rule: Rule) -> usize {
        self.failures.iter().filter(|f| f.violation.rule == rule).count()
    }

    /// Goes to another frame.
    fn enter(&mut self, history: &History, number: usize) {
        self.pool.enter(history, &history.frames[number]);
        self.of_frame = RecoveryMemo::default();
    }

    /// What a state of a frame recovers to, known or done now. The frame has been entered.
    fn outcome(&mut self, history: &History, number: usize, kept: &Kept) -> u32 {
        let state = state(history, number, kept, (&self.pool, &self.varying), &self.options);
        let is_kept = |unit: u64| decision(&state, kept, unit);
        if self.options.prune
            && let Some(result) = self.of_frame.result(is_kept)
        {
            return result;
        }
        let mut pages = Vec::new();
        let known = self.known.find(|page| state.peek(page), &mut pages);
        if let Some(result) = known.filter(|_| self.options.prune) {
            if let Some(units) = state.units(&pages) {
                self.of_frame.note(&units, is_kept, result);
            }
            return result;
        }
        let mut outcome = self.subject.recover(&state);
        if self.options.second_cuts > 0 && outcome.refused.is_none() {
            let how = (self.options.recovery_in_order, self.options.second_cuts as usize);
            self.totals.second += second::cuts(self.subject, &state, &mut outcome, how);
        }
        let snapshots = outcome.snapshots.iter_mut().flat_map(|(_, files)| files);
        for file in outcome.files.iter_mut().chain(snapshots) {
            match self.files.get(file) {
                Some(same) => *file = same.clone(),
                None => {
                    self.held += (file.blocks.len() * size_of::<(u64, u128)>()) as u64;
                    self.files.insert(file.clone());
                }
            }
        }
        let result = self.outcomes.len() as u32;
        let pages = state.take_reads();
        self.held += (pages.len() * size_of::<(u64, u128)>()) as u64;
        if let Some(units) = state.units(&pages) {
            self.of_frame.note(&units, is_kept, result);
        }
        self.known.note(&pages, |page| state.peek(page), result);
        self.outcomes.push(Rc::new(outcome));
        self.totals.distinct += 1;
        result
    }
}

/// What a state holds at a unit of its frame, or at a question about a checksum.
#[inline]
fn decision(state: &State<'_>, kept: &Kept, unit: u64) -> u128 {
    match is_sum(unit) {
        true => state.sum_id(unit),
        false => u128::from(kept.has(unit as usize)),
    }
}

/// A state of the frame that `pool` has entered.
fn state<'s>(
    history: &'s History,
    number: usize,
    kept: &'s Kept,
    (pool, varying): (&'s Pool, &'s Varying),
    options: &Options,
) -> State<'s> {
    let (first, bytes) = options.partition;
    let place = (first / wp_medium::PAGE_BYTES as u64, bytes);
    State::new((history, &history.frames[number], kept), (pool, varying), place)
}
