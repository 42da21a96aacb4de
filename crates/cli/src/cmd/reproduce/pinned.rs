//! Verdicts beside the pinned ones: does this run say what `papers/verdicts.toml` says?

use wp_papers::claims::Pins;
use wp_report::claim::{Judged, Verdict};

/// Words in the reason of a claim that a run left open because of an option of the command.
const LEFT_OUT: [&str; 2] = ["--quick", "--crash"];

/// What a run's verdicts come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// Claims with the pinned verdict.
    pub same: usize,
    /// Claims that this run left out.
    pub left_out: usize,
    /// A line for each claim whose verdict is another one, is new, or is gone.
    pub changed: Vec<String>,
    /// Claims that differ from their paper, as pinned or not.
    pub differ: usize,
}

impl Beside {
    /// Of the claims in a paper's document, of a quick run or a whole one.
    pub fn of(paper: &str, claims: &[Judged], quick: bool) -> Beside {
        let pins = Pins::committed();
        let mut beside = Beside::default();
        let mut seen = Vec::new();
        for Judged { id, verdict: now, why, .. } in claims {
            seen.push(id.as_str());
            beside.differ += usize::from(*now == Verdict::Differs);
            let is_open = *now == Verdict::NotModelled;
            match pins.of(paper, id, quick) {
                Some(pinned) if pinned == *now => beside.same += 1,
                Some(_) if is_open && LEFT_OUT.iter().any(|w| why.contains(w)) => {
                    beside.left_out += 1;
                }
                pinned => {
                    let (pinned, now) = (pinned.map_or("nothing", Verdict::name), now.name());
                    beside.changed.push(format!("{paper} {id}: pinned {pinned}, now {now}"));
                }
            }
        }
        for id in pins.ids(paper).filter(|id| !seen.contains(id)) {
            beside.changed.push(format!("{paper} {id}: pinned, but this run has no verdict"));
        }
        beside
    }

    /// Takes another paper's in.
    pub fn add(&mut self, other: Beside) {
        self.same += other.same;
        self.left_out += other.left_out;
        self.changed.extend(other.changed);
        self.differ += other.differ;
    }

    /// A line in words, and one for each change.
    pub fn text(&self) -> String {
        let mut text = format!(
            "verdicts: {} as pinned, {} changed, {} skipped by this run\n",
            self.same,
            self.changed.len(),
            self.left_out
        );
        for line in &self.changed {
            text += &format!("  changed: {line}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use wp_papers::claims::{Claims, Measured};

    use super::*;

    const PAPER: &str = "inode-trim";

    /// The pinned verdicts, those changed that `change` changes.
    fn claims(change: impl Fn(&mut Judged)) -> Vec<Judged> {
        let (pins, claims) = (Pins::committed(), Claims::fixed());
        let all = claims.of(PAPER).map(|claim| {
            let mut judged = Measured::value(claim.band[0]).judge(claim).expect("a number");
            judged.verdict = pins.of(PAPER, &claim.id, false).expect("every claim is pinned");
            change(&mut judged);
            judged
        });
        all.collect()
    }

    #[test]
    fn a_verdict_that_is_not_the_pinned_one_is_a_change_and_one_left_out_is_none() {
        let as_pinned = Beside::of(PAPER, &claims(|_| {}), false);
        assert!(as_pinned.changed.is_empty() && as_pinned.same > 3 && as_pinned.differ > 0);
        let first = Pins::committed().ids(PAPER).next().expect("claims").to_owned();
        let open = |why: &'static str| {
            let first = first.clone();
            claims(move |c| {
                if c.id == first {
                    c.verdict = Verdict::NotModelled;
                    why.clone_into(&mut c.why);
                }
            })
        };
        let quick = Beside::of(PAPER, &open("not run (--quick)"), false);
        assert_eq!((quick.left_out, quick.changed.len()), (1, 0));
        let lost = Beside::of(PAPER, &open("no idea"), false);
        assert_eq!(lost.changed.len(), 1);
        assert!(lost.text().contains(&format!("changed: inode-trim {first}: pinned")));
        let none = Beside::of(PAPER, &[], false);
        assert_eq!(none.changed.len(), as_pinned.same, "claims that are gone");
    }
}
