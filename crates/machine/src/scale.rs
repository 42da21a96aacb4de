//! A perturbed device profile: the times and the buffers of every flash drive, changed by one
//! factor each for all that a process runs, or all times of the drive but some left out.
//!
//! Invariants: 1. it is set once, before anything runs, and by the command alone: no experiment has
//!                a knob of its own, and none can tell;
//!             2. it applies to what a drive is made with, preset or replaced.

use std::fmt;
use std::sync::OnceLock;

use wp_device::{DeviceEntry, Param};

/// A factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    /// Its numerator.
    pub num: u64,
    /// Its denominator.
    pub den: u64,
}

impl Factor {
    /// Nothing is changed.
    pub const ONE: Factor = Factor { num: 1, den: 1 };

    /// From `2` or `1/2`. Errors: another text, nought, or more than a thousand.
    fn parse(text: &str) -> Result<Factor, String> {
        let (num, den) = text.split_once('/').unwrap_or((text, "1"));
        let number = |t: &str| t.parse().ok().filter(|n| (1..=1000).contains(n));
        match (number(num), number(den)) {
            (Some(num), Some(den)) => Ok(Factor { num, den }),
            _ => Err(format!("`{text}`: write a factor as 2 or 1/2, of numbers up to 1000")),
        }
    }

    /// What it makes of a number, rounded down.
    const fn of(self, n: u64) -> u64 {
        n * self.num / self.den
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.den {
            1 => write!(f, "{}", self.num),
            den => write!(f, "{}/{den}", self.num),
        }
    }
}

/// Which times of a flash drive count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// All.
    All,
    /// Those of a FLUSH and of FUA alone; what a FLUSH programs takes no time.
    Flush,
    /// None: the drive answers at once.
    None,
}

impl Times {
    const NAMES: [(&str, Times); 3] =
        [("all", Times::All), ("flush", Times::Flush), ("none", Times::None)];

    /// What a parameter becomes. `None`: it stays.
    ///
    /// A time is a nanosecond and a rate a terabyte a second where they do not count, because a
    /// drive refuses a 0 of either.
    fn of(self, p: &Param) -> Option<u64> {
        let is_flush = p.name.contains("flush") || p.name.starts_with("fua_");
        match p.unit {
            _ if self == Times::All || (self == Times::Flush && is_flush) => None,
            "ns" => (p.value > 1).then_some(1),
            "MB/s" => Some(1_000_000),
            _ => None,
        }
    }
}

/// What is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Time to program a flash page.
    pub program: Factor,
    /// Bytes of the write buffer; of an eMMC, of its cache.
    pub buffer: Factor,
    /// Which times count.
    pub times: Times,
}

impl Scale {
    /// Nothing.
    pub const NONE: Scale = Scale { program: Factor::ONE, buffer: Factor::ONE, times: Times::All };

    /// From `program=2,buffer=1/2,times=flush`. Errors: another key, no factor, no such times.
    pub fn parse(text: &str) -> Result<Scale, String> {
        let mut scale = Scale::NONE;
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let place = match key {
                "program" => &mut scale.program,
                "buffer" => &mut scale.buffer,
                "times" => {
                    let known = Times::NAMES.iter().find(|(name, _)| *name == value);
                    let unknown = || format!("`{value}`: use times=all, flush or none");
                    scale.times = known.ok_or_else(unknown)?.1;
                    continue;
                }
                _ => return Err(format!("`{key}`: use program, buffer or times")),
            };
            *place = Factor::parse(value)?;
        }
        Ok(scale)
    }

    /// Parameters of a drive, changed: those that replace its own, with what is changed of its own
    /// added. Drives without flash stay as they are.
    fn apply(&self, entry: &DeviceEntry, mut params: Vec<(String, u64)>) -> Vec<(String, u64)> {
        let own = |key: &str| entry.params.iter().find(|p| p.name == key).map(|p| p.value);
        if own("program_ns").is_none() {
            return params;
        }
        let changes = [
            ("program_ns", self.program),
            ("slc_program_ns", self.program),
            ("buffer_bytes", self.buffer),
            ("cache_bytes", self.buffer),
        ];
        for (key, factor) in changes.into_iter().filter(|(_, f)| *f != Factor::ONE) {
            let Some(own) = own(key) else { continue };
            let value = params.iter().rfind(|(k, _)| k == key).map_or(own, |(_, v)| *v);
            let page = if key.ends_with("program_ns") { 1 } else { 4096 };
            params.push((key.to_owned(), factor.of(value) / page * page));
        }
        // Last, so that a parameter that an experiment replaces does not count either.
        let left_out = |p: &Param| self.times.of(p).map(|value| (p.name.to_owned(), value));
        params.extend(entry.params.iter().filter_map(left_out));
        params
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program={},buffer={}", self.program, self.buffer)?;
        match Times::NAMES.iter().find(|(_, times)| *times == self.times) {
            Some((name, times)) if *times != Times::All => write!(f, ",times={name}"),
            _ => Ok(()),
        }
    }
}

static SCALE: OnceLock<Scale> = OnceLock::new();

/// Changes every drive that this process makes from now on. Panics if that was done before.
pub fn set(scale: Scale) {
    assert!(SCALE.set(scale).is_ok(), "the profiles of a process are changed once");
}

/// Parameters of a drive as it is to be made.
pub fn scaled(entry: &DeviceEntry, params: &[(String, u64)]) -> Vec<(String, u64)> {
    let scale = SCALE.get().copied().unwrap_or(Scale::NONE);
    scale.apply(entry, params.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_is_changed_and_nothing_else_preset_or_replaced() {
        let scale = Scale::parse("program=2,buffer=1/2").expect("a scale");
        assert_eq!(scale.to_string(), "program=2,buffer=1/2");
        let of = |device: &str, params: &[(&str, u64)]| {
            let entry = wp_device::find(device).expect("a preset");
            let params = params.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
            let made = scale.apply(entry, params);
            let value = |key: &str| made.iter().rfind(|(k, _)| k == key).map(|(_, v)| *v);
            let all: Vec<(&str, u64)> = made.iter().map(|(k, v)| (k.as_str(), *v)).collect();
            assert!(entry.make(&all).is_ok(), "{device}");
            (value("program_ns"), value("buffer_bytes"), value("cache_bytes"))
        };
        assert_eq!(of("ssd-128", &[]), (Some(1_260_000), Some(2 << 20), None));
        let replaced = [("buffer_bytes", 8 << 20)];
        assert_eq!(of("ssd-128", &replaced), (Some(1_260_000), Some(4 << 20), None));
        assert_eq!(of("zn540", &[]), (Some(4_960_000), Some(5 << 19), None));
        assert_eq!(of("emmc-16", &[]), (Some(2_600_000), None, Some(256 << 10)));
        assert_eq!(of("fixed", &[]), (None, None, None));
    }

    #[test]
    fn of_each_flash_drive_the_flush_alone_takes_time_or_nothing_does() {
        let is_flush = |p: &&Param| ["flush_overhead_ns", "flush_ns"].contains(&p.name);
        let has_flash = |e: &&&DeviceEntry| e.params.iter().any(|p| p.name == "program_ns");
        let mut seen = 0;
        for entry in wp_device::DEVICES.iter().filter(has_flash) {
            let flush = entry.params.iter().find(is_flush).expect("each answers a FLUSH");
            seen += u32::from(flush.value > 1);
            let made = |times: &str| {
                let scale = Scale::parse(times).expect("a scale");
                assert!(scale.to_string().ends_with(times), "{scale}");
                let params = scale.apply(entry, Vec::new());
                let all: Vec<(&str, u64)> = params.iter().map(|(k, v)| (k.as_str(), *v)).collect();
                assert!(entry.make(&all).is_ok(), "{} {times}", entry.name);
                let of = |key: &str| params.iter().rfind(|(k, _)| k == key).map(|(_, v)| *v);
                [of("program_ns"), of("command_ns"), of(flush.name)]
            };
            assert_eq!(made("times=flush"), [Some(1), Some(1), None], "{}", entry.name);
            let none = (flush.value > 1).then_some(1);
            assert_eq!(made("times=none"), [Some(1), Some(1), none], "{}", entry.name);
        }
        assert!(seen > 5, "{seen} drives whose FLUSH takes time");
    }

    #[test]
    fn a_scale_that_is_none_is_told() {
        for (text, said) in [
            ("program=0", "write a factor"),
            ("buffer=1/0", "write a factor"),
            ("program", "write a factor"),
            ("erase=2", "use program, buffer or times"),
            ("times=read", "times=all, flush or none"),
            ("program=1000000", "up to 1000"),
        ] {
            let e = Scale::parse(text).expect_err(text);
            assert!(e.contains(said), "{text}: {e}");
        }
        assert_eq!(Scale::parse(""), Ok(Scale::NONE));
    }
}
