//! `pwrite` in its two forms.

use super::call::{Call, LIMITS};
use super::data::Data;
use super::words::Words;

impl Call {
    /// A plain one.
    pub fn pwrite(fd: u32, len: u32, at: u64, data: impl Into<Data>) -> Call {
        Call::Pwrite { fd, len, at, data: data.into(), atomic: false }
    }

    /// The same with another length and place; of other calls itself.
    pub fn moved(&self, len: u32, at: u64) -> Call {
        match self {
            Call::Pwrite { fd, data, atomic, .. } => {
                Call::Pwrite { fd: *fd, len, at, data: data.clone(), atomic: *atomic }
            }
            other => other.clone(),
        }
    }

    /// What stands behind the contents of a write.
    pub(super) fn suffix(&self) -> &'static str {
        if matches!(self, Call::Pwrite { atomic: true, .. }) { " atomic" } else { "" }
    }
}

/// Reads one.
pub(super) fn parsed(w: &mut Words<'_>) -> Result<Call, String> {
    let (fd, len, at) = (w.fd()?, w.small(LIMITS.1 + 1)?, w.number()?);
    let data = Data::parse(w.text()?, len)?;
    Ok(Call::Pwrite { fd, len, at, data, atomic: w.has("atomic") })
}
