//! Advice on how a file is read.

/// What `fadvise` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advise {
    /// Nothing of its reads (`POSIX_FADV_NORMAL`).
    Normal,
    /// They are in order (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
    /// They are not (`POSIX_FADV_RANDOM`).
    Random,
    /// What is cached is not needed any more (`POSIX_FADV_DONTNEED`).
    DontNeed,
}

impl Advise {
    /// Their names.
    pub const NAMES: [(&'static str, Advise); 4] = [
        ("normal", Advise::Normal),
        ("sequential", Advise::Sequential),
        ("random", Advise::Random),
        ("dontneed", Advise::DontNeed),
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        Advise::NAMES.iter().find(|(_, a)| *a == self).map_or("", |(n, _)| n)
    }
}
