//! What a drive was asked and answered, as text in blkparse's default format: `Q` when it got the
//! request, `C` when it answered, in nanoseconds of its own time.

use std::io::{self, BufWriter, Write};

use wp_base::Time;
use wp_block::Status;

use super::parts::{Parent, rwbs};
use super::{Request, What};

/// The record.
pub struct Log {
    out: BufWriter<Box<dyn Write>>,
    sequence: u64,
    /// The first error, told at the end: a drive goes on without its record.
    failed: Option<io::Error>,
}

impl Log {
    /// Writes it to `out`.
    pub fn new(out: Box<dyn Write>) -> Log {
        Log { out: BufWriter::new(out), sequence: 0, failed: None }
    }

    /// A request has come.
    pub(super) fn submitted(&mut self, now: Time, rq: &Request) {
        let fua = rq.fua && rq.what.changes();
        self.line(now, 'Q', (rq.what, fua), (rq.at.0, rq.sectors), "[client]");
    }

    /// It is answered; a failure stands where blkparse has the error's number.
    pub(super) fn answered(&mut self, now: Time, rq: &Parent, status: Result<(), Status>) {
        let at = rq.appended.unwrap_or(rq.at).0;
        let error = if status.is_ok() { "[0]" } else { "[-5]" };
        self.line(now, 'C', (rq.what, rq.fua), (at, rq.sectors), error);
    }

    fn line(
        &mut self,
        now: Time,
        action: char,
        (what, fua): (What, bool),
        (at, sectors): (u64, u64),
        end: &str,
    ) {
        self.sequence += 1;
        let written = writeln!(
            self.out,
            "259,0    0 {:8} {:5}.{:09}     1  {action} {:>3} {at} + {sectors} {end}",
            self.sequence,
            now.secs(),
            now.subsec_nanos(),
            rwbs(what, fua),
        );
        if let Err(e) = written {
            self.failed.get_or_insert(e);
        }
    }

    /// Ends it. Errors: of any line.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.failed.map_or(flushed, Err)
    }
}
