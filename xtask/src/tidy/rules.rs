//! The words that tidy refuses, each with what to write instead.
//!
//! A word that this file would trip over itself is put together from two halves.

/// Where a determinism rule holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// In all code, tests too; `#[expect(clippy::disallowed_…, reason)]` just above lifts it.
    Everywhere,
    /// In crates below this layer, tests apart.
    BelowLayer(i64),
}

/// A word that may not stand in the text.
pub struct Ban {
    /// The word; matched as a whole word.
    pub word: &'static str,
    /// What to do instead.
    pub instead: &'static str,
    /// Where it is refused (determinism rules only).
    pub reach: Reach,
}

const fn ban(word: &'static str, instead: &'static str) -> Ban {
    Ban { word, instead, reach: Reach::Everywhere }
}

const fn below(limit: i64, word: &'static str, instead: &'static str) -> Ban {
    Ban { word, instead, reach: Reach::BelowLayer(limit) }
}

/// In Rust files, comments included.
pub const BANNED_WORDS: &[Ban] = &[
    ban(concat!("todo", "!"), "write it, or return an error that says it is unsupported"),
    ban(concat!("unimplemented", "!"), "write it, or return an error that says it is unsupported"),
    ban(concat!("dbg", "!"), "emit an event, or remove it"),
    ban(concat!("#[", "ignore"), "run it, or skip by name (docs/testing.md)"),
    ban(concat!("FIX", "ME"), "mend it, or open an issue and assert what is wrong as it is"),
    ban(concat!("#[", "allow("), "#[expect(lint, reason = \"…\")]"),
    ban(concat!("#![", "allow("), "#![expect(lint, reason = \"…\")]"),
];

/// In any text file but `Cargo.lock`.
pub const BANNED_PLACES: &[Ban] = &[
    ban(concat!("/wo", "rk/"), "a path of one machine: use one relative to the repository"),
    ban(concat!("/t", "mp/"), "a path of one machine: std::env::temp_dir(), mktemp -d"),
    ban(concat!("/ro", "ot"), "a path of one machine: use one relative to the repository"),
    ban(concat!("crates", ".io"), "name the crate, not where it is kept"),
    ban(concat!("static.", "rust-lang.org"), "name the tool, not where it is kept"),
    ban(concat!("pypi", ".org"), "name the package, not where it is kept"),
    ban(concat!("npmjs", ".org"), "name the package, not where it is kept"),
    ban(concat!("deb.debian", ".org"), "name the package, not where it is kept"),
];

/// First layer that may touch the operating system: what loads experiments and image files.
const OUTSIDE: i64 = 8;
/// First layer that may write to the terminal.
const COMMAND: i64 = 10;

/// In Rust code, comments and literals apart.
pub const DETERMINISM: &[Ban] = &[
    ban("HashMap", "iteration order is random: BTreeMap, or a slab"),
    ban("HashSet", "iteration order is random: BTreeSet"),
    ban("RandomState", "seeded by the system: BTreeMap, or a hash with a fixed seed"),
    ban("DefaultHasher", "not the same in every release: sha2 or crc32c"),
    ban("SystemTime", "time comes from Rt::now"),
    ban("Instant::now", "time comes from Rt::now"),
    ban("thread_rng", "chance comes from Rt::rng(\"stream\")"),
    ban("getrandom", "chance comes from Rt::rng(\"stream\")"),
    ban("thread::spawn", "one simulation, one thread: Rt::spawn"),
    ban("to_ne_bytes", "depends on the host: to_le_bytes or to_be_bytes"),
    ban("from_ne_bytes", "depends on the host: from_le_bytes or from_be_bytes"),
    below(OUTSIDE, "std::fs", "only lab and above read and write host files"),
    below(OUTSIDE, "std::env", "options come in by value from lab"),
    below(OUTSIDE, "std::net", "only lab and above touch the host"),
    below(OUTSIDE, "std::process", "only lab and above touch the host"),
    below(COMMAND, "println!", "emit an event, or return text to the command line"),
    below(COMMAND, "print!", "emit an event, or return text to the command line"),
    below(COMMAND, "eprintln!", "emit an event, or return an error"),
    below(COMMAND, "eprint!", "emit an event, or return an error"),
];
