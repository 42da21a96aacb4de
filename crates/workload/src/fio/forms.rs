//! What values an option of fio 3.33 takes: its kind, range, words and default, as fio itself lists
//! them (`fio --cmdhelp=OPTION`). `options-3.33.tsv` is that list; a test compares it with the
//! installed program.
//!
//! Observed with `fio --parse-only`: a number takes units (`nrfiles=1k`) and stands alone or once
//! for each direction (`1,2`); a word may have a postfix (`zipf:1.2`).

use super::value::{self, flag, micros};

/// The list.
pub const LIST: &str = include_str!("options-3.33.tsv");

/// What a value looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 0 or 1.
    Flag,
    /// 0 or 1, or the key alone.
    Switch,
    /// A whole number, with a unit.
    Int,
    /// A time.
    Time,
    /// Bytes, or a percentage.
    Size,
    /// A range of bytes.
    Range,
    /// Numbers with decimals, separated by `:`.
    Floats,
    /// One of some words.
    Word,
    /// Anything.
    Text,
}

/// One option's line of the list.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Its name.
    pub name: &'static str,
    /// Another name; empty: none.
    pub alias: &'static str,
    /// What its value looks like.
    pub kind: Kind,
    /// What it is if it is not given; `None`: nothing.
    pub default: Option<&'static str>,
    least: Option<&'static str>,
    most: Option<&'static str>,
    words: &'static str,
    /// The engine whose option it is; empty: every engine's.
    pub engine: &'static str,
}

/// All lines of the list.
pub fn forms() -> impl Iterator<Item = Form> {
    LIST.lines().filter(|l| !l.starts_with('#')).filter_map(line)
}

/// The form of an option; `None`: fio 3.33 does not list it.
pub fn form(name: &str) -> Option<Form> {
    forms().find(|f| f.name == name)
}

fn line(text: &'static str) -> Option<Form> {
    let mut fields = text.split('\t').map(|f| if f == "-" { "" } else { f });
    let mut next = || fields.next();
    let some = |t: &'static str| Some(t).filter(|t| !t.is_empty());
    let (name, alias, kind) = (next()?, next()?, next()?);
    let kind = match kind {
        "flag" => Kind::Flag,
        "switch" => Kind::Switch,
        "int" => Kind::Int,
        "time" => Kind::Time,
        "size" => Kind::Size,
        "range" => Kind::Range,
        "floats" => Kind::Floats,
        "word" => Kind::Word,
        _ => Kind::Text,
    };
    let (default, least, most) = (some(next()?), some(next()?), some(next()?));
    Some(Form { name, alias, kind, default, least, most, words: next()?, engine: next()? })
}

impl Form {
    /// Its words.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.words.split(',').filter(|w| !w.is_empty())
    }

    /// Its least and its greatest value, as written; empty: none.
    pub fn range(&self) -> (&'static str, &'static str) {
        (self.least.unwrap_or_default(), self.most.unwrap_or_default())
    }

    /// Is this a value that fio takes? Errors: why not, and what it takes.
    pub fn verify(&self, given: Option<&str>, kb_base: u64) -> Result<(), String> {
        let Some(text) = given.filter(|t| !t.is_empty()) else {
            return match self.kind {
                Kind::Flag | Kind::Switch if given.is_none() => Ok(()),
                Kind::Text => Ok(()),
                _ => Err("a value is needed".to_owned()),
            };
        };
        match self.kind {
            Kind::Flag | Kind::Switch => flag(Some(text)).map(drop),
            // Some are times, which only their names tell: `thinktime=10ms`.
            Kind::Int => each(text, |t| self.int(t, kb_base)),
            // What a range of times is, its option tells.
            Kind::Time if self.name == "startdelay" => Ok(()),
            Kind::Time => micros(text, true).map(drop),
            Kind::Floats => text.split(':').try_for_each(|t| self.float(t)),
            Kind::Word => self.word(text),
            Kind::Size | Kind::Range | Kind::Text => Ok(()),
        }
    }

    fn int(&self, text: &str, kb_base: u64) -> Result<(), String> {
        let n = match value::signed_bytes(text, kb_base) {
            Ok((n, _)) => n,
            Err(_) if micros(text, true).is_ok() => return Ok(()),
            Err(e) => return Err(e),
        };
        let bound = |t: Option<&str>| t.and_then(|t| t.parse::<i64>().ok());
        match (bound(self.least), bound(self.most)) {
            (Some(least), Some(most)) if !(least..=most).contains(&n) => {
                Err(format!("`{text}`: fio takes {least} to {most}"))
            }
            (Some(least), None) if n < least => Err(format!("`{text}`: at least {least}")),
            _ => Ok(()),
        }
    }

    fn float(&self, text: &str) -> Result<(), String> {
        let n: f64 = text.trim().parse().map_err(|_| format!("`{text}` is not a number"))?;
        let bound = |t: Option<&str>| t.and_then(|t| t.parse::<f64>().ok());
        let (least, most) =
            (bound(self.least).unwrap_or(f64::MIN), bound(self.most).unwrap_or(f64::MAX));
        match (least..=most).contains(&n) {
            true => Ok(()),
            false => Err(format!("`{text}`: fio takes {least} to {most}")),
        }
    }

    fn word(&self, text: &str) -> Result<(), String> {
        let word = text.split(':').next().unwrap_or(text).trim();
        // An engine that `fio --cmdhelp=ioengine` leaves out.
        let is_unlisted = self.name == "ioengine" && word == "ftruncate";
        match is_unlisted || self.words().any(|w| w == word) {
            true => Ok(()),
            false => {
                let all: Vec<&str> = self.words().collect();
                Err(format!("`{word}` is none of fio's values: {}", all.join(", ")))
            }
        }
    }

    /// Does this value ask for nothing: is it the default, or, of an option that has none, off?
    pub fn is_off(&self, given: Option<&str>, kb_base: u64) -> bool {
        let text = given.unwrap_or("1").trim();
        let default = self.default.unwrap_or("0");
        match self.kind {
            Kind::Flag | Kind::Switch => {
                flag(Some(text)).is_ok_and(|on| flag(Some(default)) == Ok(on))
            }
            Kind::Int | Kind::Size => {
                let number = |t: &str| value::signed_bytes(t, kb_base).map(|n| n.0);
                let same = |t: &str| number(t).is_ok_and(|n| n == 0 || Ok(n) == number(default));
                text.split(',').all(|t| same(t.trim()))
            }
            Kind::Time => micros(text, true) == Ok(0),
            Kind::Word => {
                // `0` stands for the word that is off: `continue_on_error=0` is `none`.
                let zero = |w: &str| w == "0" || w == "none";
                text == default || (zero(text) && zero(default))
            }
            Kind::Floats | Kind::Range | Kind::Text => Some(text) == self.default,
        }
    }
}

/// Every value of a list by direction.
fn each(text: &str, check: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    let is_negative = text.starts_with('-');
    let parts = text.split([',', ':', '-']).map(str::trim).filter(|t| !t.is_empty());
    match is_negative {
        true => check(text),
        false => parts.into_iter().try_for_each(check),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Form {
        form(name).unwrap_or_else(|| panic!("{name} is not listed"))
    }

    #[test]
    fn values_are_taken_or_refused_as_fio_does() {
        for (name, good, bad) in [
            ("nice", &["-20", "19", "0x10"][..], &["20", "-21", "a", ""][..]),
            ("nrfiles", &["1k", "4Ki"], &["-1", "none"]),
            ("percentage_random", &["10,20", "100"], &["101", "10,200"]),
            ("thinktime", &["10ms", "5"], &["weeks"]),
            ("ramp_time", &["10s", "1h", "500ms"], &["3weeks", ""]),
            ("verify", &["md5", "crc32c", "0"], &["md6", "md5x"]),
            ("random_distribution", &["zipf:1.2", "zoned:50/10:50/90"], &["zip"]),
            ("latency_percentile", &["99.9"], &["101", "x"]),
            ("lockmem", &["1g"], &[]),
            ("invalidate", &["0", "1"], &["2", "yes"]),
        ] {
            for text in good {
                assert_eq!(of(name).verify(Some(text), 1024), Ok(()), "{name}={text}");
            }
            for text in bad {
                assert!(of(name).verify(Some(text), 1024).is_err(), "{name}={text}");
            }
        }
    }

    #[test]
    fn a_value_that_asks_for_nothing_is_told_from_one_that_does() {
        for (name, off, on) in [
            ("ramp_time", &["0", "0s", "0ms"][..], &["1", "2s"][..]),
            ("verify", &["0", "none"], &["md5"]),
            ("continue_on_error", &["none", "0"], &["all", "1", "io"]),
            ("rate_min", &["0", "0,0"], &["1m", "0,5"]),
            ("lockfile", &["none"], &["exclusive"]),
            ("unified_rw_reporting", &["none", "0"], &["mixed"]),
            ("exitall", &["0"], &["1"]),
            ("unlink_each_loop", &["0"], &["1"]),
            ("thinktime_iotime", &["0"], &["1s"]),
        ] {
            for text in off {
                assert!(of(name).is_off(Some(text), 1024), "{name}={text}");
            }
            for text in on {
                assert!(!of(name).is_off(Some(text), 1024), "{name}={text}");
            }
            assert!(!of("exitall").is_off(None, 1024), "a key alone is on");
        }
    }
}
