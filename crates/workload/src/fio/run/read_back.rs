//! `verify`: reading back what a job wrote.

use wp_base::{FsError, FsResult};
use wp_vfs::IoCall;

use super::super::job::Verify;
use super::super::queue::Queue;
use super::super::verify::{Expected, Piece};
use super::Task;
use super::running::{Operation, Running};

impl Task {
    /// Reads back what the job wrote, and compares it: after a sync, so that it comes from the
    /// drive.
    pub(super) async fn verify_all(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
    ) -> FsResult<()> {
        if !run.history.is_on() {
            return Ok(());
        }
        for fd in run.fds.iter().flatten() {
            self.vfs.fsync(*fd).await?;
            self.vfs.fadvise_dontneed(*fd).await?;
        }
        let begun = self.now();
        let mut opened = Vec::new();
        while !self.is_over(run) && run.result.error == 0 {
            let Some(piece) = run.history.next() else { break };
            if run.fds[piece.file].is_none() {
                run.fds[piece.file] = Some(self.open(run, piece.file).await?);
                opened.push(piece.file);
            }
            self.read_back(run, queue, piece).await?;
        }
        if let Some(queue) = queue {
            queue.drain(run).await?;
        }
        for file in opened {
            if let Some(fd) = run.fds[file].take() {
                self.vfs.close(fd).await?;
            }
        }
        let span = self.now().since(begun).0;
        run.result.directions[0].runtime_ns += span;
        run.round = self.now();
        Ok(())
    }

    /// Reads one block back.
    pub(super) async fn read_back(
        &self,
        run: &mut Running,
        queue: &mut Option<Queue>,
        piece: Piece,
    ) -> FsResult<()> {
        let fd = run.fds[piece.file].ok_or(FsError::BadFile)?;
        let length = u64::from(piece.data.len());
        let expected = match self.job.verify {
            Some(Verify::Contents) => Expected::Bytes(vec![piece.data]),
            _ => Expected::Anything,
        };
        let (file, offset, start) = (piece.file, piece.offset, self.now());
        let op = Operation {
            file,
            direction: 0,
            offset,
            length,
            start,
            issued: None,
            held: None,
            expected,
        };
        let call = IoCall::Read(offset, length);
        match queue {
            Some(queue) => queue.io(run, fd, call, op).await,
            None => self.wait_for(run, fd, call, op).await,
        }
    }
}
