//! Random numbers of a case, and what is made of them.

/// SplitMix64. Not `wp_base::Rng`: xtask builds without the crates that it checks.
pub struct Rng(u64);

impl Rng {
    /// Of case `number` of a run.
    pub fn of(seed: u64, number: u64) -> Rng {
        let mut rng = Rng(seed ^ number.wrapping_mul(0xD134_2543_DE82_EF95));
        rng.next();
        rng
    }

    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Less than `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// One of a list, which is not empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Yes, once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Numbers at which programs go wrong, as text.
pub const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1e308",
    "nan",
    "0x7fffffff",
    "18446744073709551615G",
];

/// Words that are none: control characters, signs of other syntaxes, too long.
pub const WORDS: [&str; 12] = [
    "",
    " ",
    "\u{0}",
    "\u{1b}[2J",
    "=",
    ",,,",
    "../../../etc/passwd",
    "%n%s%x",
    "${x}",
    "\"\"\"",
    "\u{202e}\u{feff}",
    "\u{1f4be}",
];

/// Damages a text: bytes, lines, numbers, words.
pub fn damage_text(rng: &mut Rng, text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    for _ in 0..=rng.below(4) {
        out = damage_once(rng, out);
    }
    out.truncate(1 << 20);
    out
}

fn damage_once(rng: &mut Rng, mut text: Vec<u8>) -> Vec<u8> {
    if text.is_empty() {
        return rng.pick(&WORDS).as_bytes().to_vec();
    }
    let at = rng.below(text.len());
    match rng.below(9) {
        0 => text[at] = rng.next() as u8,
        1 => text.truncate(at),
        2 => drop(text.splice(at..at, rng.pick(&WORDS).bytes())),
        3 => drop(text.splice(at..at, vec![rng.next() as u8; 5000])),
        4 => {
            // A number, or the first behind.
            let digit = |b: &u8| b.is_ascii_digit();
            let start = at + text[at..].iter().position(digit).unwrap_or(0);
            let end = start + text[start..].iter().take_while(|b| digit(b)).count();
            text.splice(start..end, rng.pick(&NUMBERS).bytes());
        }
        n => {
            let mut lines: Vec<Vec<u8>> = text.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            let (a, b) = (rng.below(lines.len()), rng.below(lines.len()));
            match n {
                5 => drop(lines.remove(a)),
                6 => lines.swap(a, b),
                7 => lines.insert(a, lines[b].clone()),
                _ => {
                    let line = lines[b].clone();
                    lines[a].extend(line);
                }
            }
            text = lines.join(&b'\n');
        }
    }
    text
}
