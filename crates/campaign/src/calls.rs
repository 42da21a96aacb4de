//! What the calls of programs answered: how many failed, and which ones first.
//!
//! A call that fails changes nothing, so a program with a wrong descriptor or path tests less than
//! its author thinks. A program that means it says so: `expect ENOENT` before the call.

use serde::{Deserialize, Serialize};
use wp_crash::Did;
use wp_workload::program::{Call, Program, Step};

/// Failed calls that are kept with their words; all are counted.
const KEEP: usize = 8;

/// A call that did not do what its program asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedCall {
    /// Number of the program.
    pub program: u64,
    /// Number of the step in it, from 0.
    pub step: usize,
    /// The call.
    pub call: String,
    /// The error's name, or what it did in place of all of it.
    pub answer: String,
}

/// The calls of some programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Calls {
    /// All.
    pub made: u64,
    /// Those that did not do what the program asks for.
    pub failed: u64,
    /// Those that failed as the program expects.
    pub expected: u64,
    /// Writes of `failed` that wrote a part.
    pub short: u64,
    /// Calls of `failed` of which the program expects something else.
    #[serde(default)]
    pub unmet: u64,
    /// The first that failed.
    pub first: Vec<FailedCall>,
}

impl Calls {
    /// Those of program `number`, with what each of its calls did.
    pub fn of(number: u64, program: &Program, dids: &[Did]) -> Calls {
        let mut out = Calls::default();
        let mut expected = None;
        let mut dids = dids.iter();
        for (step, s) in program.0.iter().enumerate() {
            match s {
                Step::Expect(errno) => expected = Some(*errno),
                Step::Call(by, call) => {
                    let Some(did) = dids.next() else { break };
                    // What the main thread expects is not about another thread's call.
                    let expected = if by.thread == 0 { expected.take() } else { None };
                    out.note((number, step), call, did, expected);
                }
                _ => {}
            }
        }
        out
    }

    fn note(&mut self, at: (u64, usize), call: &Call, did: &Did, expected: Option<&str>) {
        self.made += 1;
        let answer = match (&did.error, expected, did.short) {
            (Some(e), Some(errno), _) if e.errno() == errno => {
                self.expected += 1;
                return;
            }
            (Some(e), Some(errno), _) => format!("{}, but the program expects {errno}", e.errno()),
            (Some(e), None, _) => e.errno().to_owned(),
            (None, Some(errno), _) => format!("success, but the program expects {errno}"),
            (None, None, Some(wrote)) => {
                self.short += 1;
                match call {
                    Call::Pwrite { len, .. } => format!("{wrote} of {len} bytes written"),
                    _ => format!("{wrote} bytes"),
                }
            }
            (None, None, None) => return,
        };
        self.failed += 1;
        self.unmet += u64::from(expected.is_some());
        if self.first.len() < KEEP {
            let (program, step) = at;
            self.first.push(FailedCall { program, step, call: did.text(), answer });
        }
    }

    /// Adds those of later programs.
    pub fn add(&mut self, next: Calls) {
        self.made += next.made;
        self.failed += next.failed;
        self.expected += next.expected;
        self.short += next.short;
        self.unmet += next.unmet;
        let room = KEEP - self.first.len().min(KEEP);
        self.first.extend(next.first.into_iter().take(room));
    }

    /// That no call did anything, so that nothing was explored, in words; `None`: some did.
    pub fn in_vain(&self) -> Option<String> {
        let first = self.first.first().filter(|_| self.is_vain())?;
        let (made, call, answer) = (self.made, &first.call, &first.answer);
        Some(format!(
            "nothing was explored: all {made} calls failed; the first was `{call}`: {answer}"
        ))
    }

    /// Did no call do anything?
    fn is_vain(&self) -> bool {
        self.made == self.failed - self.short.min(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use wp_base::FsError;

    use super::*;

    fn calls(text: &str, answers: &[Option<FsError>]) -> Calls {
        let program = Program::parse(text).expect("a program");
        let did = |(call, error): (&Call, &Option<FsError>)| Did {
            error: error.clone(),
            ..Did::of(call.clone())
        };
        let dids: Vec<Did> = program.calls().zip(answers).map(did).collect();
        Calls::of(0, &program, &dids)
    }

    #[test]
    fn what_fails_is_counted_unless_the_program_expects_it() {
        let text = "open 0 a rw,creat\nexpect ENOENT\nunlink b\nexpect EEXIST\nmkdir d\n\
                    expect EEXIST\nmkdir d\nfsync 1\n";
        let not_found = || Some(FsError::NotFound);
        let answers = [None, not_found(), None, not_found(), Some(FsError::BadFile)];
        let c = calls(text, &answers);
        assert_eq!((c.made, c.failed, c.expected), (5, 3, 1));
        let words: Vec<(usize, &str)> =
            c.first.iter().map(|f| (f.step, f.answer.as_str())).collect();
        assert_eq!(
            words,
            [
                (4, "success, but the program expects EEXIST"),
                (6, "ENOENT, but the program expects EEXIST"),
                (7, "EBADF"),
            ]
        );
        assert!(!c.is_vain());
        assert!(calls("fsync 1\n", &[Some(FsError::BadFile)]).is_vain());
    }
}
