//! Limits of dirty data as options of a file system with the common flusher.

use wp_base::{FsError, FsResult};
use wp_cache::WbPolicy;

use crate::{OptionSpec, Options, When};

impl OptionSpec {
    /// Of a file system with the common flusher.
    pub const DIRTY_BACKGROUND_BYTES: OptionSpec = OptionSpec {
        key: "dirty_background_bytes",
        when: When::Mount,
        default: "",
        help: "vm.dirty_background_bytes: dirty data at which the flusher starts [default: 10 % of 6 GB]",
    };
    /// The same, for writers.
    pub const DIRTY_BYTES: OptionSpec = OptionSpec {
        key: "dirty_bytes",
        when: When::Mount,
        default: "",
        help: "vm.dirty_bytes: dirty data at which writers wait [default: 20 % of 6 GB]",
    };
}

/// The flusher's policy with the limits that [`OptionSpec::DIRTY_BACKGROUND_BYTES`] and
/// [`OptionSpec::DIRTY_BYTES`] give; `known`: all options of the file system.
///
/// Errors: `Invalid` for what is no number below 2^32.
pub fn dirty_limits(o: &Options, known: &[OptionSpec], policy: WbPolicy) -> FsResult<WbPolicy> {
    let limit = |key, what| match o.get(key, known) {
        Some(text) => {
            text.parse::<u32>().map(|n| Some(n.into())).map_err(|_| FsError::Invalid(what))
        }
        None => Ok(None),
    };
    let background = limit("dirty_background_bytes", "dirty_background_bytes: bytes")?;
    Ok(policy.limited(background, limit("dirty_bytes", "dirty_bytes: bytes")?))
}
