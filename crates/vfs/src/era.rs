//! Rules of a file system that changed between kernels: what they are, and what a version resolves
//! to.
//!
//! Each file system lists its own with [`policies!`](crate::policies); `list eras` prints them.

use std::fmt;

use crate::EraRule;

/// A rule that held for a range of versions.
#[derive(Clone, Copy, Debug)]
pub struct Policy<V> {
    /// Short name.
    pub name: &'static str,
    /// What the kernel does while it holds.
    pub what: &'static str,
    /// Title of the commit that introduced or ended it, or what is known.
    pub commit: &'static str,
    /// First version; `None`: as far back as our evidence goes.
    pub from: Option<V>,
    /// First version without it; `None`: still so.
    pub until: Option<V>,
}

impl<V: Copy + PartialOrd> Policy<V> {
    /// Does it hold in `v`?
    pub fn holds(&self, v: V) -> bool {
        self.from.is_none_or(|f| v >= f) && self.until.is_none_or(|u| v < u)
    }
}

/// What `policies` resolve to in `version`, for lists.
pub fn rules<V: Copy + PartialOrd + fmt::Display>(
    policies: &[Policy<V>],
    version: V,
) -> Vec<EraRule> {
    let text = |v: Option<V>| v.map(|v| v.to_string()).unwrap_or_default();
    let rule = |p: &Policy<V>| EraRule {
        name: p.name,
        what: p.what,
        commit: p.commit,
        from: text(p.from),
        until: text(p.until),
        holds: p.holds(version),
    };
    policies.iter().map(rule).collect()
}

/// The numbers of `3.4` or `3.4.2`; a third one that is left out is 0. No for text that is no
/// version.
pub fn numbers(text: &str) -> Option<(u16, u16, u16)> {
    let mut parts = text.split('.').map(|p| p.parse::<u16>().ok());
    let all = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    parts.next().is_none().then_some(all)
}

/// A file system's policies: `POLICIES`, and `Era` with a field for each, of a type `Version` that
/// is in scope.
///
/// A line is a field with its documentation, the commit's title, first version, first version
/// without it, and what the kernel does.
#[macro_export]
macro_rules! policies {
    ($(
        $(#[$doc:meta])*
        $field:ident = $commit:literal, $from:expr, $until:expr, $what:literal;
    )*) => {
        /// Every policy, in the order of the code that asks.
        pub static POLICIES: &[$crate::Policy<Version>] = &[$($crate::Policy {
            name: stringify!($field), what: $what, commit: $commit, from: $from, until: $until,
        }),*];

        /// What a kernel version resolves to.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Era {
            /// The version asked for.
            pub version: Version,
            $($(#[$doc])* pub $field: bool,)*
        }

        impl Era {
            /// The rules of `version`.
            pub fn of(version: Version) -> Era {
                let holds =
                    |name: &str| POLICIES.iter().any(|p| p.name == name && p.holds(version));
                Era { version, $($field: holds(stringify!($field)),)* }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_holds_from_its_first_version_to_before_its_last() {
        let p = Policy { name: "p", what: "", commit: "", from: Some(3), until: Some(5) };
        assert_eq!([2, 3, 4, 5].map(|v| p.holds(v)), [false, true, true, false]);
        let always = Policy { from: None, until: None, ..p };
        assert!(always.holds(0));
        let listed = rules(&[p, always], 4);
        let of = |r: &EraRule| (r.from.clone(), r.until.clone(), r.holds);
        assert_eq!(of(&listed[0]), ("3".to_owned(), "5".to_owned(), true));
        assert_eq!(of(&listed[1]), (String::new(), String::new(), true));
    }

    #[test]
    fn versions_have_two_or_three_numbers() {
        assert_eq!(numbers("6.1"), Some((6, 1, 0)));
        assert_eq!(numbers("6.1.115"), Some((6, 1, 115)));
        for wrong in ["", "6", "6.", "6.1.x", "6.1.2.3", "6.-1", "a.b", "6.70000"] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }
}
