//! Numbers with a unit, as a command line has them: sizes and times. No number overflows.

/// Units of size: powers of 1024. `K`, `KB` and `KiB` are one, in any case.
const SIZES: [(&str, u64); 5] =
    [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];
/// Units of time, in nanoseconds.
const TIMES: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Bytes from `4096`, `64M`, `29GiB`. Errors: what is wrong, with the text.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let letter = match unit.strip_suffix("ib") {
        Some(letter) if !letter.is_empty() => letter,
        _ => unit.strip_suffix('b').unwrap_or(&unit),
    };
    if number.is_empty() {
        return Err(format!("`{text}` is not a size; write 4096, 64M or 29GiB"));
    }
    let Some((_, each)) = SIZES.iter().find(|(name, _)| *name == letter) else {
        return Err(format!("`{text}`: `{unit}` is not a unit; use K, M, G or T"));
    };
    scaled(text, number, *each)
}

/// Nanoseconds from `90s`, `5m`, `2h`, `100ms`; a number alone is seconds. Errors: what is wrong,
/// with the text.
pub fn nanoseconds(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let unit = if unit.is_empty() { "s" } else { unit };
    let each = TIMES.iter().find(|(name, _)| *name == unit);
    let Some((_, each)) = each.filter(|_| !number.is_empty()) else {
        return Err(format!("`{text}` is not a time; write 90s, 5m or 2h"));
    };
    scaled(text, number, *each)
}

/// Digits, and what stands behind them.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn scaled(text: &str, number: &str, each: u64) -> Result<u64, String> {
    let number = number.parse::<u64>().ok();
    number
        .and_then(|n| n.checked_mul(each))
        .ok_or_else(|| format!("`{text}` is too large: {} is the most", u64::MAX / each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        for (text, n) in [
            ("0", 0),
            ("4096", 4096),
            ("64M", 64 << 20),
            ("29GiB", 29 << 30),
            ("3kb", 3072),
            ("1t", 1 << 40),
            ("7b", 7),
        ] {
            assert_eq!(bytes(text), Ok(n), "{text}");
        }
        for bad in ["", "M", "-1", "1.5G", "12Q", "1ib", "1KK", "0x10", "1 M", "+1"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        for (text, n) in [("90s", 90_000_000_000), ("5", 5_000_000_000), ("2h", 7_200_000_000_000)]
        {
            assert_eq!(nanoseconds(text), Ok(n), "{text}");
        }
        assert_eq!(nanoseconds("3ms"), Ok(3_000_000));
        for bad in ["", "s", "-1s", "1d", "1.5s", "1 s"] {
            assert!(nanoseconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_number_overflows_whatever_the_unit() {
        let mut rng = crate::Rng::stream(1, "quantity");
        let all = SIZES.iter().map(|(n, e)| (*n, *e, true));
        for (unit, each, is_size) in all.chain(TIMES.iter().map(|(n, e)| (*n, *e, false))) {
            let read = |n: u128| {
                let text = format!("{n}{unit}");
                if is_size { bytes(&text) } else { nanoseconds(&text) }
            };
            let most = u128::from(u64::MAX / each);
            assert_eq!(read(most).map(u128::from), Ok(most * u128::from(each)));
            for _ in 0..200 {
                let n = u128::from(rng.next_u64()) << rng.below(64);
                let exact = n.checked_mul(u128::from(each)).and_then(|n| u64::try_from(n).ok());
                assert_eq!(read(n).ok(), exact, "{n}{unit}");
            }
            let error = read(most + 1).expect_err("it is too large");
            assert!(error.contains("too large"), "{error}");
        }
    }
}
