//! Verdicts beside the pinned ones: does this run say what `papers/verdicts.toml` says?

use serde_json::Value;
use wp_papers::claims::Pins;
use wp_report::claim::Verdict;

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
    pub fn of(paper: &str, document: &Value, quick: bool) -> Beside {
        let pins = Pins::committed();
        let claims = document["claims"].as_array().map_or(&[][..], Vec::as_slice);
        let mut beside = Beside::default();
        let mut seen = Vec::new();
        for claim in claims {
            let id = claim["id"].as_str().unwrap_or_default();
            let now = claim["verdict"].as_str().unwrap_or_default();
            let why = claim["why"].as_str().unwrap_or_default();
            seen.push(id);
            beside.differ += usize::from(now == Verdict::Differs.name());
            let is_open = now == Verdict::NotModelled.name();
            match pins.of(paper, id, quick).map(Verdict::name) {
                Some(pinned) if pinned == now => beside.same += 1,
                Some(_) if is_open && LEFT_OUT.iter().any(|w| why.contains(w)) => {
                    beside.left_out += 1;
                }
                pinned => {
                    let pinned = pinned.unwrap_or("nothing");
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
    use serde_json::json;

    use super::*;

    fn claims(change: impl Fn(&str, &mut Value)) -> Value {
        let pins = Pins::committed();
        let all = pins.ids("inode-trim").map(|id| {
            let verdict = pins.of("inode-trim", id, false).expect("it is one of them").name();
            let mut claim = json!({ "id": id, "verdict": verdict, "why": "" });
            change(id, &mut claim);
            claim
        });
        json!({ "claims": all.collect::<Vec<_>>() })
    }

    #[test]
    fn a_verdict_that_is_not_the_pinned_one_is_a_change_and_one_left_out_is_none() {
        let as_pinned = Beside::of("inode-trim", &claims(|_, _| {}), false);
        assert!(as_pinned.changed.is_empty() && as_pinned.same > 3 && as_pinned.differ > 0);
        let first = Pins::committed().ids("inode-trim").next().expect("claims").to_owned();
        let open = |why: &'static str| {
            let first = first.clone();
            claims(move |id, c| {
                if id == first {
                    c["verdict"] = json!("not-modelled");
                    c["why"] = json!(why);
                }
            })
        };
        let quick = Beside::of("inode-trim", &open("not run (--quick)"), false);
        assert_eq!((quick.left_out, quick.changed.len()), (1, 0));
        let lost = Beside::of("inode-trim", &open("no idea"), false);
        assert_eq!(lost.changed.len(), 1);
        assert!(lost.text().contains(&format!("changed: inode-trim {first}: pinned")));
        let none = Beside::of("inode-trim", &json!({ "claims": [] }), false);
        assert_eq!(none.changed.len(), as_pinned.same, "claims that are gone");
    }
}
