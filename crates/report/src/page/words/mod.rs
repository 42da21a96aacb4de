//! Every text of the page, in English and in Korean.
//!
//! Invariants: a text has both languages, or it does not compile; both take the same parts (`{0}`,
//!             `{1}`, …), which a test sees to. Names of systems, options and files are the same in
//!             both.
//! Left out:   examples of runs, which documents hold in English only. Reasons are translated by
//!             the phrases of [`super::Input`]; one that is in none stays English, and is marked.

use wp_base::phrase;

mod claims;
mod common;
mod direct;
mod ext4;
mod f2fs;
mod journal;
mod names;
mod trim;

pub(super) use claims::claim;
pub use common::*;
pub use direct::*;
pub use ext4::*;
pub use f2fs::*;
pub use journal::*;
pub(super) use names::name;
pub use trim::*;

/// Language of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lang {
    /// English.
    En,
    /// Korean.
    Ko,
}

impl Lang {
    /// Both.
    pub const ALL: [Lang; 2] = [Lang::En, Lang::Ko];

    /// As HTML and the command line name it.
    pub fn code(self) -> &'static str {
        match self {
            Lang::En => "en",
            Lang::Ko => "ko",
        }
    }

    /// The language of a code; nothing if it is not one of ours.
    pub fn of(code: &str) -> Option<Lang> {
        Lang::ALL.into_iter().find(|l| l.code() == code)
    }
}

/// A text in each language.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    en: &'static str,
    ko: &'static str,
}

impl Text {
    /// The text in a language.
    pub fn of(self, lang: Lang) -> &'static str {
        match lang {
            Lang::En => self.en,
            Lang::Ko => self.ko,
        }
    }

    /// The same with `{0}`, `{1}`, … replaced.
    pub fn with(self, lang: Lang, parts: &[&str]) -> String {
        phrase::fill(self.of(lang), parts)
    }
}

/// Texts by name, and `TEXTS` with all of them for the test.
macro_rules! texts {
    ($($name:ident: $en:literal, $ko:literal;)*) => {
        $(#[doc = concat!("`", $en, "`")]
        pub const $name: $crate::page::words::Text =
            $crate::page::words::Text { en: $en, ko: $ko };)*
        #[cfg(test)]
        pub(super) const TEXTS: &[(&str, $crate::page::words::Text)] =
            &[$((stringify!($name), $name)),*];
    };
}
use texts;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        let mut all: Vec<&str> =
            text.split('{').skip(1).filter_map(|t| t.split('}').next()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn every_text_is_there_in_both_languages_and_takes_the_same_parts() {
        let tables = [
            common::TEXTS,
            direct::TEXTS,
            ext4::TEXTS,
            f2fs::TEXTS,
            journal::TEXTS,
            trim::TEXTS,
            claims::TEXTS,
            names::TEXTS,
        ];
        let mut names: Vec<&str> = Vec::new();
        for (name, text) in tables.into_iter().flatten() {
            // A link to the other language speaks that.
            let is_english = *name == "TO_OTHER" || text.en.is_without_hangul();
            assert!(!text.en.is_empty() && is_english, "{name}: {}", text.en);
            let has_hangul = text.ko.chars().any(|c| ('가'..='힣').contains(&c));
            assert!(has_hangul, "{name}: {}", text.ko);
            assert_eq!(parts(text.en), parts(text.ko), "{name}");
            names.push(name);
        }
        assert!(names.len() > 200, "{}", names.len());
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "a name is there twice");
    }

    trait English {
        fn is_without_hangul(&self) -> bool;
    }

    impl English for str {
        /// No Hangul, which would be the other language in the wrong place.
        fn is_without_hangul(&self) -> bool {
            !self.chars().any(|c| ('가'..='힣').contains(&c))
        }
    }

    #[test]
    fn parts_are_put_in_by_their_numbers() {
        let text = Text { en: "{1} of {0}", ko: "{0} 중 {1}" };
        assert_eq!(text.with(Lang::En, &["ten", "two"]), "two of ten");
        assert_eq!(text.with(Lang::Ko, &["10", "2"]), "10 중 2");
    }
}
