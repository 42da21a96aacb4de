//! How a job's files are opened past the cache (`direct`, `buffered`), and its untorn writes
//! (`atomic`).

use wp_medium::Slice;
use wp_vfs::IoCall;

use super::job::{Engine, Job};

/// Past the cache?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// Through it.
    Off,
    /// Past it (`direct=1`).
    On,
    /// And with `RWF_ATOMIC` on each write, which is past the cache whatever `direct` says.
    Untorn,
}

impl Direct {
    /// Is it past the cache?
    pub const fn is_on(self) -> bool {
        !matches!(self, Direct::Off)
    }

    /// With this `direct`.
    pub(super) fn past(self, is_on: bool) -> Direct {
        match self {
            Direct::Untorn => Direct::Untorn,
            _ if is_on => Direct::On,
            _ => Direct::Off,
        }
    }

    /// With this `atomic`.
    pub(super) fn untorn(self, is_on: bool) -> Direct {
        match self {
            _ if is_on => Direct::Untorn,
            Direct::Untorn => Direct::Off,
            other => other,
        }
    }
}

impl Job {
    /// Settles `direct`: a mapping is of pages of the cache, however its file was opened. Errors:
    /// what is wrong, and a help.
    pub(super) fn settle_direct(&mut self) -> Result<(), (String, &'static str)> {
        let takes_flags = matches!(self.engine, Engine::Pvsync | Engine::Libaio | Engine::IoUring);
        if self.direct == Direct::Untorn && !takes_flags {
            let what = "atomic=1 needs ioengine pvsync2, libaio or io_uring".to_owned();
            return Err((what, "others pass no flags with a write; fio refuses them too"));
        }
        if matches!(self.engine, Engine::Mmap | Engine::Splice) {
            self.direct = Direct::Off;
        }
        Ok(())
    }

    /// Its call for a write.
    pub(super) fn write_of(&self, offset: u64, data: Slice) -> IoCall {
        match self.direct {
            Direct::Untorn => IoCall::WriteAtomic(offset, vec![data]),
            _ => IoCall::Write(offset, vec![data]),
        }
    }
}
