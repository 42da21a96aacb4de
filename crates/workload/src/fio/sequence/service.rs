//! Which file comes next.
//!
//! - manual, `file_service_type` and `openfiles`;
//! - observed: a file is opened when its turn comes, and closed when its turn comes and nothing is
//!   left of it. A drawn file that is done, or may not be opened yet, is drawn again; the postfix
//!   counts operations, syncs too, and a file that is done gives the rest of its turns away.

use super::target::Target;
use crate::fio::job::{FileService, Job};
use crate::fio::random::Taus;

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    current: Option<usize>,
    left: u64,
    after: usize,
}

impl Service {
    /// Before the first turn.
    pub fn new() -> Service {
        Service { current: None, left: 0, after: 0 }
    }

    /// A new round: nobody's turn goes on, but files are not served from the first one again.
    pub fn restart(&mut self) {
        self.current = None;
    }

    /// The next file; `None` if all are done.
    pub fn next(&mut self, job: &Job, files: &[Target], stream: &mut Taus) -> Option<usize> {
        if files.iter().all(|f| f.done) {
            return None;
        }
        if let Some(i) = self.current
            && !files[i].done
            && (job.service == FileService::Sequential || self.left > 0)
        {
            self.left = self.left.saturating_sub(1);
            return Some(i);
        }
        let open = files.iter().filter(|f| f.open).count() as u64;
        let may = |i: usize| !files[i].done && (files[i].open || open < job.openfiles);
        let i = match job.service {
            FileService::Random => loop {
                let i = stream.scaled(files.len() as u64) as usize;
                if may(i) {
                    break i;
                }
            },
            FileService::RoundRobin | FileService::Sequential => {
                let all = (0..files.len()).map(|n| (self.after + n) % files.len());
                all.into_iter().find(|i| may(*i))?
            }
        };
        self.after = (i + 1) % files.len();
        self.current = Some(i);
        self.left = job.service_count.saturating_sub(1);
        Some(i)
    }
}
