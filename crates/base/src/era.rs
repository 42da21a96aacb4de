//! Rules of Linux that changed between its versions: what they are, and what a version resolves to.
//!
//! The block layer, the journal and each file system list their own with
//! [`policies!`](crate::policies); `list eras` prints them.

mod asked;

pub use self::asked::{Part, RuleSet, Rules, asked, forget_asked};
use crate::kernel::Version;

/// A rule that held for a range of versions.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Short name.
    pub name: &'static str,
    /// What the kernel does while it holds.
    pub what: &'static str,
    /// Title of the commit that introduced or ended it, or what is known.
    pub commit: &'static str,
    /// First version; `None`: as far back as our evidence goes.
    pub from: Option<Version>,
    /// First version without it; `None`: still so.
    pub until: Option<Version>,
    /// Stable releases, one per series, that took the commit over: it ends the rule where there is
    /// an end, else it begins it.
    pub backports: &'static [Version],
}

impl Policy {
    /// Does it hold in `v`?
    pub fn holds(&self, v: Version) -> bool {
        let has = |bound: Version, backports: &[Version]| {
            v >= bound || backports.iter().any(|b| b.series() == v.series() && v >= *b)
        };
        let (begins, ends) = match self.until {
            Some(_) => (&[][..], self.backports),
            None => (self.backports, &[][..]),
        };
        self.from.is_none_or(|from| has(from, begins))
            && self.until.is_none_or(|until| !has(until, ends))
    }
}

/// A rule as `list eras` shows it: whether it holds, and where it comes from.
#[derive(Clone, Debug)]
pub struct EraRule {
    /// Short name.
    pub name: &'static str,
    /// What the kernel does while it holds.
    pub what: &'static str,
    /// Commit that introduced it.
    pub commit: &'static str,
    /// First version; empty: as far back as there is evidence.
    pub from: String,
    /// First version without it; empty: still so.
    pub until: String,
    /// Stable releases that took the commit over, each for its series.
    pub backports: Vec<String>,
    /// Does it hold in the version asked for?
    pub holds: bool,
}

/// What `policies` resolve to in `version`, for lists.
pub fn rules(policies: &[Policy], version: Version) -> Vec<EraRule> {
    let text = |v: Option<Version>| v.map(|v| v.to_string()).unwrap_or_default();
    let rule = |p: &Policy| EraRule {
        name: p.name,
        what: p.what,
        commit: p.commit,
        from: text(p.from),
        until: text(p.until),
        backports: p.backports.iter().map(Version::to_string).collect(),
        holds: p.holds(version),
    };
    policies.iter().map(rule).collect()
}

/// The policies of a part of Linux: `POLICIES`, and `Era` with a question for each.
///
/// First the [`Part`]. Then a line is a question with its documentation, the commit's title, first
/// version, first version without it, `backported` and a list of stable releases if there are any,
/// and what the kernel does. Whoever asks is noted: see [`asked`].
#[macro_export]
macro_rules! policies {
    ($part:ident: $(
        $(#[$doc:meta])*
        $rule:ident = $commit:literal, $from:expr, $until:expr,
            $(backported $backports:expr,)? $what:literal;
    )*) => {
        /// Every policy, in the order of the code that asks.
        pub static POLICIES: &[$crate::era::Policy] = &[
            $($crate::policies!(@one $rule, $commit, $from, $until, $what $(, $backports)?),)*
        ];

        /// What a kernel version resolves to.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Era {
            version: $crate::kernel::Version,
            rules: $crate::era::Rules,
        }

        #[expect(non_camel_case_types, reason = "numbers of the rules, by their names")]
        enum Place {
            $($rule,)*
            /// Their number.
            End,
        }

        const _: () = assert!((Place::End as u32) <= $crate::era::Rules::MOST);

        impl Era {
            /// The rules of `version`.
            pub fn of(version: $crate::kernel::Version) -> Era {
                Era { version, rules: $crate::era::Rules::of(POLICIES, version) }
            }

            /// The version asked for: for messages, and for rules of other parts. What depends on
            /// it is a rule.
            pub const fn version(&self) -> $crate::kernel::Version {
                self.version
            }

            /// Takes one rule, by its name, from another version. No: there is no such rule.
            pub fn take(&mut self, name: &str, from: &Era) -> bool {
                let place = POLICIES.iter().position(|p| p.name == name);
                let place = place.map(|n| self.rules.set(n as u32, from.rules.has(n as u32)));
                place.is_some()
            }

            /// The same but for one rule, by its name, which holds or does not.
            ///
            /// Panics: there is no such rule.
            #[must_use]
            pub fn with(mut self, name: &str, holds: bool) -> Era {
                let place = POLICIES.iter().position(|p| p.name == name);
                self.rules.set(place.expect("a rule of this part") as u32, holds);
                self
            }

            $(
                $(#[$doc])*
                pub fn $rule(&self) -> bool {
                    self.rules.ask($crate::era::Part::$part, Place::$rule as u32)
                }
            )*
        }
    };
    (@one $rule:ident, $commit:literal, $from:expr, $until:expr, $what:literal) => {
        $crate::policies!(@one $rule, $commit, $from, $until, $what, &[])
    };
    (
        @one $rule:ident, $commit:literal, $from:expr, $until:expr, $what:literal, $backports:expr
    ) => {
        $crate::era::Policy {
            name: stringify!($rule),
            what: $what,
            commit: $commit,
            from: $from,
            until: $until,
            backports: $backports,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Policy = Policy {
        name: "p",
        what: "",
        commit: "",
        from: Some(Version(3, 0, 0)),
        until: Some(Version(5, 0, 0)),
        backports: &[],
    };

    fn holds<const N: usize>(p: &Policy, versions: [&str; N]) -> [bool; N] {
        versions.map(|v| p.holds(Version::parse(v).expect("a version")))
    }

    #[test]
    fn a_policy_holds_from_its_first_version_to_before_its_last() {
        assert_eq!(holds(&RULE, ["2.9", "3.0", "4.9", "5.0"]), [false, true, true, false]);
        let always = Policy { from: None, until: None, ..RULE };
        assert_eq!(holds(&always, ["0.1", "9.0"]), [true, true]);
        let listed = rules(&[RULE, always], Version(4, 0, 0));
        let of = |r: &EraRule| (r.from.clone(), r.until.clone(), r.holds);
        assert_eq!(of(&listed[0]), ("3.0".to_owned(), "5.0".to_owned(), true));
        assert_eq!(of(&listed[1]), (String::new(), String::new(), true));
    }

    #[test]
    fn a_backport_is_for_its_series_only() {
        let backports = &[Version(4, 4, 7), Version(4, 9, 2)];
        let fault = Policy { backports, ..RULE };
        let versions = ["4.4", "4.4.6", "4.4.7", "4.5", "4.9.1", "4.9.30", "4.10", "5.1"];
        assert_eq!(
            holds(&fault, versions),
            [true, true, false, true, true, false, true, false],
            "backports end a rule that has an end"
        );
        let repair = Policy { from: Some(Version(5, 0, 0)), until: None, ..fault };
        assert_eq!(
            holds(&repair, versions),
            [false, false, true, false, false, true, false, true],
            "and begin one that has none"
        );
    }
}
