//! `verify`: reading back what a job wrote.
//!
//! Source: fio's manual; logs of the installed fio. A round's files are closed before they are read
//! back. Each is opened again for its first block, which drops its clean pages, and nothing is
//! synced: what is dirty comes from the cache, as in fio.

use wp_base::{FsError, FsResult};
use wp_vfs::IoCall;

use super::super::job::Engine;
use super::super::queue::Queue;
use super::super::sequence::{Direction, Sequence};
use super::super::verify::{Expected, Piece};
use super::Task;
use super::running::{Operation, Running};

impl Task {
    /// Reads back what the job wrote in a round.
    pub(super) async fn verify_all(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        sequence: &mut Sequence,
    ) -> FsResult<()> {
        if !run.history.is_on() {
            return Ok(());
        }
        let begun = self.now();
        let mut opened = Vec::new();
        while !self.is_over(run) && !run.has_failed() {
            let Some(piece) = run.history.next() else { break };
            if !opened.contains(&piece.file) {
                self.open(run, piece.file).await?;
                opened.push(piece.file);
            }
            sequence.read_back(piece.length, None);
            self.read_back(run, queue, piece).await?;
        }
        if let Some(queue) = queue {
            queue.drain(run).await?;
        }
        // fio closes its files in their order.
        opened.sort_unstable();
        for file in opened {
            self.close(run, file).await?;
        }
        run.history.begin_round();
        run.after_write = true;
        let span = self.now().since(begun).0;
        run.result.directions[0].runtime_ns += span;
        run.round = self.now();
        Ok(())
    }

    /// Reads back one block that `verify_backlog` wants before the next operation. False: none is
    /// due.
    pub(super) async fn verify_due(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        sequence: &mut Sequence,
    ) -> FsResult<bool> {
        let Some(piece) = run.history.next_due(run.after_write) else { return Ok(false) };
        // The block may be in flight, and fio reads none that is.
        if let Some(queue) = queue {
            queue.drain(run).await?;
        }
        let file = piece.file;
        // A file that was done is open again until the round ends.
        if !run.is_open[file] {
            self.open(run, file).await?;
        }
        sequence.read_back(piece.length, Some(file));
        self.read_back(run, queue, piece).await?;
        run.after_write = false;
        Ok(true)
    }

    /// Reads one block back.
    async fn read_back(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        piece: Piece,
    ) -> FsResult<()> {
        let Piece { file, offset, length, expected } = piece;
        run.log_operation(self.now(), file, Direction::Read, (offset, length));
        if self.job.engine == Engine::Null {
            return self.nothing(run, (file, 0), (offset, length)).await;
        }
        let fd = run.fds[file].ok_or(FsError::BadFile)?;
        let (start, issued, held) = (self.now(), None, None);
        let mut op =
            Operation { file, direction: 0, offset, length, start, issued, held, expected };
        if self.job.engine.lays_out() {
            // The buffer still has what the last operation was to write.
            if run.last_written != Some((file, offset)) {
                op.expected = Expected::NoHeader;
            } else {
                op.expected = Expected::Anything;
            }
            return self.change_layout(run, fd, &op).await;
        }
        let call = IoCall::Read(offset, length);
        match queue {
            Some(queue) => queue.io(run, fd, call, op).await,
            None => self.wait_for(run, fd, call, op).await,
        }
    }
}
