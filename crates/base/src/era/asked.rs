//! Which rules a thread has asked for: what it did is the same under all versions in which these
//! agree, whatever else differs.

use std::cell::Cell;

use super::Policy;
use crate::kernel::Version;

/// Parts of Linux whose rules have versions. A machine has one of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Block layer.
    Block,
    /// Page cache.
    Cache,
    /// jbd2.
    Journal,
    /// The file system.
    FileSystem,
}

const PARTS: usize = Part::FileSystem as usize + 1;

thread_local! {
    static ASKED: [Cell<u128>; PARTS] = const { [const { Cell::new(0) }; PARTS] };
}

/// Which rules of a part hold, in the order of its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules(u128);

impl Rules {
    /// A part has no more.
    pub const MOST: u32 = u128::BITS;

    /// Those of a version.
    pub fn of(policies: &[Policy], version: Version) -> Rules {
        Rules::those(policies.iter().map(|p| p.holds(version)))
    }

    /// Those that hold, of all in the order of the list.
    pub fn those(holds: impl Iterator<Item = bool>) -> Rules {
        Rules(holds.zip(0..Rules::MOST).fold(0, |all, (holds, n)| all | u128::from(holds) << n))
    }

    /// Does rule `n` hold? Not noted as a question.
    pub const fn has(self, n: u32) -> bool {
        self.0 >> n & 1 == 1
    }

    /// Lets rule `n` hold or not.
    pub fn set(&mut self, n: u32, holds: bool) {
        self.0 = self.0 & !(1 << n) | u128::from(holds) << n;
    }

    /// Does rule `n` of `part` hold? Noted for [`asked`].
    pub fn ask(self, part: Part, n: u32) -> bool {
        ASKED.with(|asked| {
            let of = &asked[part as usize];
            of.set(of.get() | 1 << n);
        });
        self.has(n)
    }
}

/// Rules of all parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuleSet([u128; PARTS]);

impl RuleSet {
    /// Sets those of a part.
    #[must_use]
    pub const fn with(mut self, part: Part, rules: Rules) -> RuleSet {
        self.0[part as usize] = rules.0;
        self
    }

    /// Are all rules of `asked` the same in both?
    pub fn agrees(&self, other: &RuleSet, asked: &RuleSet) -> bool {
        let mut pairs = self.0.iter().zip(&other.0).zip(&asked.0);
        pairs.all(|((a, b), asked)| (a ^ b) & asked == 0)
    }
}

/// The rules that this thread asked for since [`forget_asked`].
pub fn asked() -> RuleSet {
    ASKED.with(|asked| RuleSet(std::array::from_fn(|n| asked[n].get())))
}

/// Begins anew.
pub fn forget_asked() {
    ASKED.with(|asked| asked.iter().for_each(|part| part.set(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_agree_if_they_do_in_what_was_asked() {
        let old = Rules::those([true, false, true].into_iter());
        let new = Rules::those([true, true, true].into_iter());
        let of = |rules| RuleSet::default().with(Part::Journal, rules);
        forget_asked();
        assert!(old.ask(Part::Journal, 0) && old.ask(Part::Journal, 2));
        assert!(of(old).agrees(&of(new), &asked()), "the second was not asked for");
        assert!(!of(old).agrees(&RuleSet::default(), &asked()));
        assert!(!old.ask(Part::Journal, 1));
        assert!(!of(old).agrees(&of(new), &asked()));
        forget_asked();
        assert_eq!(asked(), RuleSet::default());
    }
}
