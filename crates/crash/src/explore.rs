//! The explorer: every frame, every state, recovered once and judged.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::history::History;
use crate::known::Known;
use crate::ledger::Ledger;
use crate::oracle::{Profile, Rule, Violation, judge};
use crate::state::{Pages, Pool, State};
use crate::states::{self, Kept, Plan};
use crate::subject::{Outcome, Subject, Survivor};
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
    /// Cuts during recovery: for each new recovery that writes, so many choices of its writes are
    /// recovered in turn. 0: none.
    pub second_cuts: u32,
}

/// What was done, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Programs.
    pub programs: u64,
    /// Frames: instants between which nothing changes for a power cut.
    pub cuts: u64,
    /// Frames not all of whose states were visited.
    pub cuts_sampled: u64,
    /// Most units in doubt at once.
    pub most_in_doubt: u32,
    /// States visited.
    pub raw: u64,
    /// States that recovery could tell from all before: recoveries done.
    pub distinct: u64,
    /// States that were judged anew, with other operations called or returned, or recovered anew.
    pub judged: u64,
    /// States during recovery that were recovered in turn.
    pub second: u64,
    /// Broken rules, by [`Rule::ALL`].
    pub broken: [u64; Rule::ALL.len()],
}

impl Totals {
    /// Adds another's.
    pub fn add(&mut self, other: &Totals) {
        self.programs += other.programs;
        self.cuts += other.cuts;
        self.cuts_sampled += other.cuts_sampled;
        self.most_in_doubt = self.most_in_doubt.max(other.most_in_doubt);
        self.raw += other.raw;
        self.distinct += other.distinct;
        self.judged += other.judged;
        self.second += other.second;
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
    /// Which of its units in doubt were kept.
    pub kept: Kept,
    /// Positions on the tape between which a cut can leave it.
    pub cut: (usize, usize),
    /// Operations that had been called, and returned, by then.
    pub operations: (u32, u32),
    /// States that the explorer had visited before.
    pub after: u64,
}

/// A state that the explorer visits, with what it recovers to.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// Frame.
    pub frame: usize,
    /// Which of its units in doubt are kept.
    pub kept: &'a Kept,
    /// What it recovers to.
    pub outcome: &'a Rc<Outcome>,
    /// Was it recovered now? If not, recovery could not tell it from one before.
    pub is_new: bool,
}

/// What is shown every visit.
type Watcher<'a> = Box<dyn FnMut(&Visit<'_>) + 'a>;

/// Explores the histories of one subject. Recoveries are remembered from one to the next.
pub struct Explorer<'a> {
    subject: &'a dyn Subject,
    options: Options,
    watcher: Option<Watcher<'a>>,
    known: Known,
    outcomes: Vec<Rc<Outcome>>,
    /// Files that some recovery left: most leave the same.
    files: BTreeSet<Rc<Survivor>>,
    pool: Pool,
    /// What was done.
    pub totals: Totals,
    /// Kept failures.
    pub failures: Vec<Failure>,
}

/// Operations called and returned before each position of a tape.
struct Calls {
    begun: Vec<u32>,
    ended: Vec<u32>,
}

impl Calls {
    fn of(tape: &Tape) -> Calls {
        let (mut begun, mut ended) = (vec![0], vec![0]);
        for (_, entry) in &tape.entries {
            let (b, e) = (begun[begun.len() - 1], ended[ended.len() - 1]);
            begun.push(if let Entry::Begin(n) = entry { n + 1 } else { b });
            ended.push(if let Entry::End(n) = entry { n + 1 } else { e });
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
            known: Known::default(),
            outcomes: Vec::new(),
            files: BTreeSet::new(),
            pool: Pool::default(),
            totals: Totals::default(),
            failures: Vec::new(),
        }
    }

    /// Shows every visit to `watcher`, before the state is judged.
    pub fn watch(&mut self, watcher: impl FnMut(&Visit<'_>) + 'a) {
        self.watcher = Some(Box::new(watcher));
    }

    /// Explores one history; `go_on` is asked before each frame. Returns whether it came to the
    /// end.
    pub fn explore(
        &mut self,
        tape: &Tape,
        history: &History,
        ledger: &Ledger,
        go_on: &mut dyn FnMut(&Totals) -> bool,
    ) -> bool {
        self.totals.programs += 1;
        let calls = Calls::of(tape);
        let mut judged: BTreeMap<(u32, u32, u32), Rc<Vec<Violation>>> = BTreeMap::new();
        for number in 0..history.frames.len() {
            if !go_on(&self.totals) {
                return false;
            }
            let frame = &history.frames[number];
            if number > 0 && frame.new == 0 {
                // Whatever it can leave, an earlier one could.
                continue;
            }
            self.pool.enter(history, frame);
            let (plan, seed) = (self.options.plan, self.options.seed);
            let begun = calls.begun[frame.pos];
            let mut after = self.totals.raw;
            let visited = states::of_frame(history, number, &plan, seed, &mut |kept| {
                after += 1;
                let known = self.totals.distinct;
                let result = self.outcome(history, number, kept);
                if let Some(watcher) = &mut self.watcher {
                    let outcome = &self.outcomes[result as usize];
                    let is_new = self.totals.distinct > known;
                    watcher(&Visit { frame: number, kept, outcome, is_new });
                }
                let until = history.until(number, |i| kept.has(i));
                let ended = calls.ended[until];
                let key = (result, begun, ended);
                let found = judged.get(&key).cloned().unwrap_or_else(|| {
                    self.totals.judged += 1;
                    let outcome = &self.outcomes[result as usize];
                    let profile = &self.options.profile;
                    let found = Rc::new(judge(ledger, outcome, (begun, ended), profile));
                    judged.insert(key, found.clone());
                    found
                });
                for violation in found.iter() {
                    let rule = violation.rule as usize;
                    self.totals.broken[rule] += 1;
                    if self.kept_of(violation.rule) < self.options.keep {
                        self.failures.push(Failure {
                            violation: violation.clone(),
                            frame: number,
                            kept: kept.clone(),
                            cut: (frame.pos, until),
                            operations: (begun, ended),
                            after,
                        });
                    }
                }
                true
            });
            self.totals.cuts += 1;
            self.totals.raw += visited.states;
            self.totals.cuts_sampled += u64::from(!visited.complete);
            self.totals.most_in_doubt = self.totals.most_in_doubt.max(visited.of_log2);
        }
        true
    }

    fn kept_of(&self, rule: Rule) -> usize {
        self.failures.iter().filter(|f| f.violation.rule == rule).count()
    }

    /// What a state of a frame recovers to, known or done now. The frame has been entered.
    fn outcome(&mut self, history: &History, number: usize, kept: &Kept) -> u32 {
        let frame = &history.frames[number];
        let (first, bytes) = self.options.partition;
        let place = (first / wp_medium::PAGE_BYTES as u64, bytes);
        let state = State::new((history, frame, kept), &self.pool, place);
        if self.options.prune
            && let Some(result) = self.known.find(|page| state.peek(page))
        {
            return result;
        }
        let mut outcome = self.subject.recover(&state);
        if self.options.second_cuts > 0 && outcome.refused.is_none() {
            self.totals.second += self.second_cuts(&state, &mut outcome);
        }
        for file in &mut outcome.files {
            match self.files.get(file) {
                Some(same) => *file = same.clone(),
                None => {
                    self.files.insert(file.clone());
                }
            }
        }
        let result = self.outcomes.len() as u32;
        self.known.note(&state.take_reads(), |page| state.peek(page), result);
        self.outcomes.push(Rc::new(outcome));
        self.totals.distinct += 1;
        result
    }

    /// Cuts the recovery itself: some of its writes are there, then it is recovered again, and must
    /// come to the same. Returns how many were tried.
    ///
    /// Writes of a recovery are not ordered among one another but for those that follow a flush:
    /// without them anything of the rest may be there, with one of them all of the rest is.
    fn second_cuts(&self, state: &State<'_>, outcome: &mut Outcome) -> u64 {
        let writes = std::mem::take(&mut outcome.written);
        let last = |page: u64| self.options.recovery_in_order && outcome.last.contains(&page);
        let (late, early): (Vec<usize>, Vec<usize>) =
            (0..writes.len()).partition(|i| last(writes[*i].0));
        let most = self.options.second_cuts as usize;
        let mut tried = BTreeSet::new();
        let first = cuts_of(early.len()).map(|c| pick(&early, &c));
        let then = cuts_of(late.len()).map(|c| {
            let mut kept = early.clone();
            kept.extend(pick(&late, &c));
            kept
        });
        for kept in first.chain(then) {
            if tried.len() >= most || !tried.insert(kept.clone()) {
                continue;
            }
            let over: BTreeMap<u64, &wp_medium::Slice> =
                kept.iter().map(|i| (writes[*i].0, &writes[*i].1)).collect();
            let again = self.subject.recover(&Over { below: state, over });
            if again.refused != outcome.refused || again.files != outcome.files {
                let lost: Vec<String> = (0..writes.len())
                    .filter(|i| !kept.contains(i))
                    .map(|i| writes[i].0.to_string())
                    .collect();
                outcome.not_idempotent = Some(match &again.refused {
                    Some(why) => format!("without pages {}: {why}", lost.join(", ")),
                    None => format!("other files without pages {}", lost.join(", ")),
                });
                break;
            }
        }
        tried.len() as u64
    }
}

fn pick(of: &[usize], choice: &[bool]) -> Vec<usize> {
    of.iter().zip(choice).filter(|(_, kept)| **kept).map(|(i, _)| *i).collect()
}

/// Choices of `n` writes: all up to 6 of them; beyond, none lost, each lost, each alone, prefixes.
fn cuts_of(n: usize) -> Box<dyn Iterator<Item = Vec<bool>>> {
    if n <= 6 {
        return Box::new(
            (0..1u32 << n).rev().map(move |m| (0..n).map(|i| m >> i & 1 == 1).collect()),
        );
    }
    let one = (0..n).flat_map(move |i| {
        [
            (0..n).map(|j| j != i).collect(),
            (0..n).map(|j| j == i).collect(),
            (0..n).map(|j| j < i).collect::<Vec<bool>>(),
        ]
    });
    Box::new(std::iter::once(vec![true; n]).chain(one))
}

/// A state with pages of a recovery laid over it.
struct Over<'a> {
    below: &'a dyn Pages,
    over: BTreeMap<u64, &'a wp_medium::Slice>,
}

impl wp_medium::View for Over<'_> {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> wp_base::FsResult<()> {
        let page_bytes = wp_medium::PAGE_BYTES as u64;
        let mut done = 0usize;
        while done < out.len() {
            let pos = at + done as u64;
            let off = pos % page_bytes;
            let n = ((page_bytes - off) as usize).min(out.len() - done);
            match self.over.get(&(pos / page_bytes)) {
                Some(s) => s.sub(off as u32, n as u32).copy_to(&mut out[done..done + n]),
                None => self.below.read_at(pos, &mut out[done..done + n])?,
            }
            done += n;
        }
        Ok(())
    }
}

impl Pages for Over<'_> {
    fn page_id(&self, page: u64) -> u128 {
        self.over.get(&page).map_or_else(|| self.below.page_id(page), |s| s.id())
    }
    fn page(&self, page: u64) -> wp_medium::Slice {
        self.over.get(&page).map_or_else(|| self.below.page(page), |s| (*s).clone())
    }
}
