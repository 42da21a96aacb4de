//! Rules that the replay of logs lacked in older kernels, each by itself, and one that Linux 6.12
//! lacks.
//!
//! Source: comments of fs/btrfs/tree-log.c in 6.12; CrashMonkey's `reproducedBugs.md` (1 to 3).

/// What is left out. The option `old_replay` names them with `+` in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OldReplay {
    /// A directory gets the size that the log says, though names that come add to it (generic/034).
    pub dir_size: bool,
    /// Names of an inode that its log has no more stay in their directories (until 1f250e929a9c).
    pub refs: bool,
    /// An item that cannot be inserted, as there is one that leaves no room in its leaf, is an
    /// error and not one to be replaced (`EOVERFLOW`; until 2c2c452b0cbc).
    pub overwrite: bool,
}

impl OldReplay {
    /// Reads names with `+` in between. `None`: one is not known.
    pub fn parse(text: &str) -> Option<OldReplay> {
        let mut old = OldReplay::default();
        for name in text.split('+').filter(|n| !n.is_empty()) {
            match name {
                "dir_size" => old.dir_size = true,
                "refs" => old.refs = true,
                "overwrite" => old.overwrite = true,
                _ => return None,
            }
        }
        Some(old)
    }
}

/// What happens where Linux 6.12 panics ([`super::Recovery::panics`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overgrown {
    /// The replay goes on as if the item had been replaced: the rule that is missing.
    #[default]
    Replace,
    /// There is no mount: Linux 6.12.
    Panic,
}
