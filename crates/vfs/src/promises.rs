//! What a file system promises besides what POSIX asks, as it is mounted.

use crate::entry::{FsEntry, Options};

/// What a file system keeps over a power cut besides what POSIX asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// `fsync` of a file also makes its names durable.
    pub fsync_keeps_names: bool,
    /// Names change in the order of the calls: the tree is that of some moment (one journal).
    pub names_in_order: bool,
    /// `fallocate` through a descriptor opened with `O_SYNC` or `O_DSYNC` makes the length durable.
    pub fallocate_syncs: bool,
    /// The option, and its value, with which it has `fbarrier` and `fdatabarrier`.
    pub barriers: Option<(&'static str, &'static str)>,
    /// The option with which `fsync` and `fdatasync` are no more than those.
    pub order_only: Option<&'static str>,
    /// The option with which an `fsync` logs one file, so that names do not change in the order of
    /// the calls any more.
    pub alone: Option<&'static str>,
}

impl FsEntry {
    /// Has it `fbarrier` and `fdatabarrier` with these options?
    pub fn has_barriers(&self, options: &Options) -> bool {
        let wanted = self.promises.barriers;
        wanted.is_some_and(|(key, value)| options.get(key, self.options) == Some(value))
    }

    /// Do `fsync` and `fdatasync` put in order, and no more, with these options?
    pub fn syncs_only_order(&self, options: &Options) -> bool {
        self.is_on(self.promises.order_only, options)
    }

    /// Do names change in the order of the calls with these options?
    pub fn names_in_order(&self, options: &Options) -> bool {
        self.promises.names_in_order && !self.is_on(self.promises.alone, options)
    }

    fn is_on(&self, key: Option<&str>, options: &Options) -> bool {
        let value = key.and_then(|key| options.get(key, self.options));
        value.is_some_and(|v| v != "false" && v != "0")
    }
}
