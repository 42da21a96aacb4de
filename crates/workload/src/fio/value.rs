//! Values: sizes, times, booleans, lists by direction.

/// A size or a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Percent.
    Percent(u64),
}

impl Amount {
    /// Bytes; 0 of a share.
    pub fn bytes(self) -> u64 {
        match self {
            Amount::Bytes(n) => n,
            Amount::Percent(_) => 0,
        }
    }

    /// Bytes, of `whole`.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Amount::Bytes(n) => n,
            Amount::Percent(p) => (u128::from(whole) * u128::from(p) / 100) as u64,
        }
    }

    /// Is it a share?
    pub fn is_share(self) -> bool {
        matches!(self, Amount::Percent(_))
    }
}

/// A signed number with a unit of bytes. `kb_base` is 1024 (where fio's `KiB` means 1000, a joke
/// of compatibility that its manual states) or 1000.
pub fn signed_bytes(text: &str, kb_base: u64) -> Result<(i64, bool), String> {
    let (negative, body) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let (number, unit) = number(body)?;
    let unit = unit.to_ascii_lowercase();
    if unit == "%" {
        let n = i64::try_from(number).map_err(|_| too_large(text))?;
        return Ok((if negative { -n } else { n }, true));
    }
    let other = if kb_base == 1000 { 1024 } else { 1000 };
    let (base, power) = match unit.as_str() {
        "" | "b" => (1, 0),
        // fio 3.33 takes `Ki` for `K`, whatever `kb_base` is.
        "k" | "kb" | "ki" => (kb_base, 1),
        "m" | "mb" | "mi" => (kb_base, 2),
        "g" | "gb" | "gi" => (kb_base, 3),
        "t" | "tb" | "ti" => (kb_base, 4),
        "p" | "pb" | "pi" => (kb_base, 5),
        "kib" => (other, 1),
        "mib" => (other, 2),
        "gib" => (other, 3),
        "tib" => (other, 4),
        "pib" => (other, 5),
        _ => return Err(format!("`{unit}` is not a unit of size (units: k, m, g, t, p)")),
    };
    let bytes = u64::pow(base, power)
        .checked_mul(number)
        .and_then(|n| i64::try_from(n).ok())
        .ok_or_else(|| too_large(text))?;
    Ok((if negative { -bytes } else { bytes }, false))
}

/// A size in bytes, or a share; none of it is no bytes.
pub fn amount(text: &str, kb_base: u64) -> Result<Amount, String> {
    let (n, percent) = signed_bytes(text, kb_base)?;
    let n = u64::try_from(n).map_err(|_| format!("`{text}` is negative"))?;
    match n {
        101.. if percent => Err(format!("`{text}`: at most 100%")),
        1.. if percent => Ok(Amount::Percent(n)),
        _ => Ok(Amount::Bytes(n)),
    }
}

/// A size in bytes.
pub fn bytes(text: &str, kb_base: u64) -> Result<u64, String> {
    match amount(text, kb_base)? {
        Amount::Bytes(n) => Ok(n),
        Amount::Percent(_) => Err(format!("`{text}`: a percentage is not allowed here")),
    }
}

/// A time in microseconds; a number alone is seconds or microseconds. `[h:]m:s` is taken, too.
pub fn micros(text: &str, alone_is_seconds: bool) -> Result<u64, String> {
    if text.contains(':') {
        let parts: Result<Vec<u64>, String> = text.split(':').map(whole).collect();
        let parts = parts?;
        if parts.len() > 3 {
            return Err(format!("`{text}`: write hours:minutes:seconds"));
        }
        let seconds = parts.into_iter().try_fold(0u64, |n, p| n.checked_mul(60)?.checked_add(p));
        let us = seconds.and_then(|s| s.checked_mul(1_000_000));
        return us.filter(|us| *us <= MICROS_MAX).ok_or_else(|| too_large(text));
    }
    let (number, unit) = number(text)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" if alone_is_seconds => 1_000_000,
        "" | "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "s" | "sec" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        other => {
            return Err(format!("`{other}` is not a unit of time (units: us, ms, s, m, h, d)"));
        }
    };
    let us = number.checked_mul(unit).ok_or_else(|| too_large(text))?;
    match us <= MICROS_MAX {
        true => Ok(us),
        false => Err(format!("`{text}` is too large: at most ten years")),
    }
}

/// Longest time, of jobs and programs: virtual time is counted in nanoseconds of 64 bits.
pub const MICROS_MAX: u64 = 10 * 365 * 86_400 * 1_000_000;

/// A whole number.
pub fn whole(text: &str) -> Result<u64, String> {
    match number(text)? {
        (n, "") => Ok(n),
        _ => Err(format!("`{text}` is not a whole number")),
    }
}

/// A switch: a key alone is yes.
pub fn flag(text: Option<&str>) -> Result<bool, String> {
    match text {
        None | Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(other) => Err(format!("`{other}`: 0 or 1 is needed")),
    }
}

fn number(text: &str) -> Result<(u64, &str), String> {
    let text = text.trim();
    if text.starts_with('(') {
        return Err(format!("`{text}`: arithmetic is not supported; write the number"));
    }
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16)
            .map(|n| (n, ""))
            .map_err(|_| format!("`{text}` is not a hexadecimal number"));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Err(format!("`{text}` is not a number"));
    }
    let n = text[..end].parse().map_err(|_| too_large(text))?;
    Ok((n, text[end..].trim()))
}

fn too_large(text: &str) -> String {
    format!("`{text}` is too large")
}

/// Values by direction (read, write, trim), as fio hands them out: an empty place leaves what is
/// there, and the last one given stands for those that follow.
pub fn by_direction<T: Clone>(
    text: &str,
    current: &mut [T; 3],
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    spread(text.split(',').collect(), text, current, parse)
}

/// The same for numbers, which fio takes apart at `:` if there is no comma, and at `-` if there is
/// neither: `bs=4k-512k` reads 4 KiB and writes 512 KiB. A number ends with any of them.
pub fn numbers_by_direction<T: Clone>(
    text: &str,
    current: &mut [T; 3],
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    let separator = [',', ':', '-'].into_iter().find(|c| text.contains(*c)).unwrap_or(',');
    let number = |part: &str| parse(part.split([':', '-']).next().unwrap_or(part).trim());
    spread(text.split(separator).collect(), text, current, number)
}

fn spread<T: Clone>(
    mut parts: Vec<&str>,
    text: &str,
    current: &mut [T; 3],
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    if parts.len() > 1 && parts.last() == Some(&"") {
        parts.pop();
    }
    if parts.len() > 3 {
        return Err(format!("`{text}`: at most three values (read, write, trim)"));
    }
    for (i, part) in parts.iter().enumerate() {
        if part.trim().is_empty() {
            continue;
        }
        let value = parse(part.trim())?;
        let last = if i + 1 == parts.len() { 3 } else { i + 1 };
        current[i..last].fill(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_the_units_of_fio() {
        assert_eq!(bytes("4k", 1024), Ok(4096));
        assert_eq!(bytes("4KiB", 1024), Ok(4000));
        assert_eq!(bytes("4kb", 1000), Ok(4000));
        assert_eq!((bytes("64Ki", 1024), bytes("64Ki", 1000)), (Ok(65536), Ok(64000)));
        assert_eq!(bytes("0x10", 1024), Ok(16));
        assert_eq!(amount("50%", 1024), Ok(Amount::Percent(50)));
        for bad in ["", "k", "4x", "99999999999999999999", "9999999t", "-4k", "(1+1)"] {
            assert!(bytes(bad, 1024).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_alone_are_seconds_or_microseconds() {
        assert_eq!(micros("10", true), Ok(10_000_000));
        assert_eq!(micros("10", false), Ok(10));
        assert_eq!(micros("3m", true), Ok(180_000_000));
        assert_eq!(micros("1:30", true), Ok(90_000_000));
        assert_eq!(micros("1:00:01", true), Ok(3_601_000_000));
        assert!(micros("1:2:3:4", true).is_err() && micros("1:", true).is_err());
        assert!(micros("3 weeks", true).is_err());
    }

    #[test]
    fn the_last_direction_given_stands_for_the_rest() {
        let mut bs = [1, 1, 1];
        by_direction("2,3", &mut bs, whole).expect("fine");
        assert_eq!(bs, [2, 3, 3]);
        by_direction(",7", &mut bs, whole).expect("fine");
        assert_eq!(bs, [2, 7, 7]);
        assert!(by_direction("1,2,3,4", &mut bs, whole).is_err());
    }
}
