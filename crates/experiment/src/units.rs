//! Sizes and times, which are strings with a unit, and the options of the registry that are one.

use wp_vfs::OptionSpec;

/// What a number of the registry counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A number of bytes: written as a size.
    Bytes(u64),
    /// A number of nanoseconds: written as a time.
    Time(u64),
}

const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("sectors", 512),
];

const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Options whose keys do not end in their unit: owner, key, unit.
const OPTIONS: &[(&str, &str, Unit)] = &[
    ("fsync-last", "bytes", Unit::Bytes(1)),
    ("fsync-last", "first", Unit::Bytes(1)),
    ("fsync-last", "idle", Unit::Time(1_000_000_000)),
    ("fsync-last", "watch", Unit::Time(1_000_000_000)),
    ("fsync-last", "phase", Unit::Time(1_000)),
    ("fsync-create", "bytes", Unit::Bytes(1)),
    ("fsync-create", "watch", Unit::Time(1_000_000_000)),
    ("create-delete", "bytes", Unit::Bytes(1)),
    ("filebench", "seconds", Unit::Time(1_000_000_000)),
    ("varmail", "seconds", Unit::Time(1_000_000_000)),
    ("wl-varmail", "ms", Unit::Time(1_000_000)),
    ("wl-varmail", "bytes", Unit::Bytes(1)),
    ("ext4", "block_size", Unit::Bytes(1)),
    ("ext4", "inode_size", Unit::Bytes(1)),
    ("ext4", "commit", Unit::Time(1_000_000_000)),
    ("ext4", "journal_mb", Unit::Bytes(1 << 20)),
    ("ext4", "extent_max_zeroout_kb", Unit::Bytes(1 << 10)),
    ("nilfs2", "block_size", Unit::Bytes(1)),
    ("nilfs2", "interval", Unit::Time(1_000_000_000)),
    ("nilfs2", "protection_period", Unit::Time(1_000_000_000)),
    ("nilfs2", "clean_check_interval", Unit::Time(1_000_000_000)),
    ("nilfs2", "cleaning_interval", Unit::Time(1_000_000_000)),
    ("nilfs2", "mc_cleaning_interval", Unit::Time(1_000_000_000)),
    ("btrfs", "node_size", Unit::Bytes(1)),
    ("btrfs", "max_inline", Unit::Bytes(1)),
    ("btrfs", "commit", Unit::Time(1_000_000_000)),
];

/// Ends of keys that say a unit.
const ENDS: &[(&str, Unit)] = &[
    ("_bytes", Unit::Bytes(1)),
    ("_kib", Unit::Bytes(1 << 10)),
    ("_mib", Unit::Bytes(1 << 20)),
    ("_sectors", Unit::Bytes(512)),
    ("_ns", Unit::Time(1)),
    ("_us", Unit::Time(1_000)),
    ("_ms", Unit::Time(1_000_000)),
];

/// The unit of an option of a file system or workload, if it has one.
pub fn of_option(owner: &str, option: &OptionSpec) -> Option<Unit> {
    let named = OPTIONS.iter().find(|(o, key, _)| *o == owner && *key == option.key);
    named.map(|(_, _, unit)| *unit).or_else(|| by_end(option.key))
}

/// The unit of a device's parameter, by what its preset says.
pub fn of_parameter(unit: &str) -> Option<Unit> {
    match unit {
        "bytes" => Some(Unit::Bytes(1)),
        "sectors" => Some(Unit::Bytes(512)),
        "ns" => Some(Unit::Time(1)),
        _ => None,
    }
}

/// A setting's value, written as TOML, as a number: bytes, nanoseconds, 1 for what is true. `None`:
/// it is none.
pub fn plain(toml: &str) -> Option<f64> {
    match toml {
        "true" => return Some(1.0),
        "false" => return Some(0.0),
        _ => {}
    }
    let text = toml.trim_matches('"');
    let with_unit = || [Unit::Bytes(1), Unit::Time(1)].iter().find_map(|u| u.number(text).ok());
    let number = toml.parse::<f64>().ok().filter(|x| x.is_finite());
    number.or_else(|| with_unit().map(|n| n as f64))
}

fn by_end(key: &str) -> Option<Unit> {
    ENDS.iter().find(|(end, _)| key.ends_with(end)).map(|(_, unit)| *unit)
}

impl Unit {
    fn table(self) -> (&'static [(&'static str, u64)], u64) {
        match self {
            Unit::Bytes(each) => (SIZES, each),
            Unit::Time(each) => (TIMES, each),
        }
    }

    /// What it is, in words, with an example.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Unit::Bytes(_) => ("a size", "\"4KiB\""),
            Unit::Time(_) => ("a time", "\"5ms\""),
        }
    }

    /// A number of these as a string with the largest unit that is exact.
    pub fn text(self, n: u64) -> String {
        let (table, each) = self.table();
        let all = u128::from(n) * u128::from(each);
        // Binary sizes only; a sector is a unit that one may write, not one to read.
        let fits = table.iter().filter(|(name, unit)| {
            let is_shown = !matches!(*name, "kB" | "MB" | "GB" | "TB" | "sectors" | "min" | "h");
            is_shown && all.is_multiple_of(u128::from(*unit)) && (all > 0 || *unit == 1)
        });
        let (name, unit) = fits.max_by_key(|(_, unit)| *unit).expect("one is a divisor of all");
        format!("{}{name}", all / u128::from(*unit))
    }

    /// A string with a unit as a number of these. Errors: why not, and the hint.
    pub fn number(self, text: &str) -> Result<u64, (String, String)> {
        let (table, each) = self.table();
        let (what, example) = self.words();
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        let units = format!("units are {}", names.join(", "));
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (digits, name) = (&text[..split], text[split..].trim());
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = !whole.is_empty()
            && whole.bytes().chain(part.bytes()).all(|b| b.is_ascii_digit())
            && (digits.len() == whole.len() || !part.is_empty());
        if !is_number {
            return Err((format!("`{text}` is not {what}"), format!("write {example}; {units}")));
        }
        if name.is_empty() {
            let help = format!("say the unit: {example}; {units}");
            return Err((format!("`{text}` has no unit"), help));
        }
        let Some((_, unit)) = table.iter().find(|(n, _)| *n == name) else {
            let near = near(name, table).map(|n| format!("did you mean `{digits}{n}`? "));
            let help = format!("{}{units}", near.unwrap_or_default());
            return Err((format!("`{name}` is not a unit of {what}"), help));
        };
        let too_large = || (format!("`{text}` is too large"), String::new());
        let unit = u128::from(*unit);
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let tens = u32::try_from(part.len()).ok().and_then(|n| 10u128.checked_pow(n));
        let tens = tens.ok_or_else(too_large)?;
        let part: u128 = if part.is_empty() { 0 } else { part.parse().map_err(|_| too_large())? };
        let all = whole.checked_mul(unit).and_then(|n| n.checked_mul(tens));
        let all = all.and_then(|n| n.checked_add(part.checked_mul(unit)?)).ok_or_else(too_large)?;
        let step = u128::from(each).checked_mul(tens).ok_or_else(too_large)?;
        if !all.is_multiple_of(step) {
            let one = self.text(1);
            return Err((format!("`{text}` is not a whole number of {one}"), String::new()));
        }
        u64::try_from(all / step).map_err(|_| too_large())
    }
}

/// The unit that somebody meant: one of another case, or a letter of a shell's.
fn near(name: &str, table: &'static [(&'static str, u64)]) -> Option<&'static str> {
    let same = |n: &&(&str, u64)| n.0.eq_ignore_ascii_case(name);
    let binary =
        |n: &&(&str, u64)| name.len() == 1 && n.0.len() == 3 && n.0[..1].eq_ignore_ascii_case(name);
    let word = |n: &&(&str, u64)| match name.to_ascii_lowercase().as_str() {
        "bytes" | "byte" => n.0 == "B",
        "sec" | "second" | "seconds" => n.0 == "s",
        "msec" | "milliseconds" => n.0 == "ms",
        "usec" | "µs" | "microseconds" => n.0 == "us",
        "m" | "minutes" => n.0 == "min",
        _ => false,
    };
    let find = |f: &dyn Fn(&&(&str, u64)) -> bool| table.iter().find(|n| f(n)).map(|n| n.0);
    find(&same).or_else(|| find(&binary)).or_else(|| find(&word))
}

#[cfg(test)]
mod tests {
    use wp_machine::registry;

    use super::*;

    #[test]
    fn sizes_and_times_are_read_and_written_exactly() {
        let (bytes, kib, ns) = (Unit::Bytes(1), Unit::Bytes(1024), Unit::Time(1));
        for (unit, text, n, again) in [
            (bytes, "4KiB", 4096, "4KiB"),
            (bytes, "1.5MiB", 3 << 19, "1536KiB"),
            (bytes, "2 sectors", 1024, "1KiB"),
            (bytes, "128MB", 128_000_000, "125000KiB"),
            (bytes, "0B", 0, "0B"),
            (kib, "32MiB", 32 << 10, "32MiB"),
            (ns, "1.5us", 1500, "1500ns"),
            (ns, "2min", 120_000_000_000, "120s"),
            (Unit::Time(1_000_000_000), "34s", 34, "34s"),
        ] {
            assert_eq!(unit.number(text), Ok(n), "{text}");
            assert_eq!(unit.text(n), again, "{text}");
            assert_eq!(unit.number(again), Ok(n), "{again}");
        }
    }

    #[test]
    fn what_has_no_unit_is_told_the_way_out() {
        for (unit, text, what, help) in [
            (Unit::Bytes(1), "4096", "has no unit", "4KiB"),
            (Unit::Bytes(1), "64M", "is not a unit", "`64MiB`"),
            (Unit::Bytes(1), "64mib", "is not a unit", "`64MiB`"),
            (Unit::Bytes(1), "64 bytes", "is not a unit", "`64B`"),
            (Unit::Time(1), "5sec", "is not a unit", "`5s`"),
            (Unit::Time(1), "much", "is not a time", "5ms"),
            (Unit::Time(1), "-5s", "is not a time", ""),
            (Unit::Time(1), "5.s", "is not a time", ""),
            (Unit::Time(1_000_000_000), "100ms", "whole number of 1s", ""),
            (Unit::Bytes(1), "99999999999999999999TiB", "too large", ""),
            (Unit::Bytes(1), "1.00000000000000000000000000000000000000001B", "too large", ""),
        ] {
            let (why, way) = unit.number(text).expect_err(text);
            assert!(why.contains(what) && way.contains(help), "{text}: {why}; {way}");
        }
    }

    #[test]
    fn settings_are_numbers_in_bytes_and_nanoseconds() {
        for (toml, x) in [
            ("25", Some(25.0)),
            ("0.5", Some(0.5)),
            ("true", Some(1.0)),
            ("\"4KiB\"", Some(4096.0)),
            ("\"1.5us\"", Some(1500.0)),
            ("\"3.4\"", None),
            ("\"ext4\"", None),
            ("[1]", None),
        ] {
            assert_eq!(plain(toml), x, "{toml}");
        }
    }

    #[test]
    fn an_option_that_speaks_of_a_unit_has_one() {
        let words =
            ["seconds", "microseconds", "milliseconds", "nanoseconds", "KiB", "MiB", "bytes"];
        let fs = registry::FILE_SYSTEMS.iter().map(|f| (f.name, f.options));
        let all = fs.chain(registry::WORKLOADS.iter().map(|w| (w.name, w.options)));
        for (owner, options) in all {
            for o in options {
                let first = o.help.split([' ', ',', ':', '(']);
                let speaks = first.take(4).any(|w| words.contains(&w));
                let has_one = of_option(owner, o).is_some();
                assert!(!speaks || has_one, "{owner} {}: {}", o.key, o.help);
            }
        }
        for (owner, key, _) in OPTIONS {
            let fs = registry::FILE_SYSTEMS
                .iter()
                .any(|f| f.name == *owner && f.options.iter().any(|o| o.key == *key));
            let work = registry::WORKLOADS
                .iter()
                .any(|w| w.name == *owner && w.options.iter().any(|o| o.key == *key));
            assert!(fs || work, "{owner} has no option {key}");
        }
    }
}
