//! What a flowop does.

use wp_base::{FsError, Span};

use super::super::model::Kind;
use super::thread::{Stop, Thread};

/// Picoseconds of a turn of `hog`'s loop: 46.5 ms for 10^8 turns of the program as it is built,
/// measured on a machine of 2026. Assumed of others.
const HOG_PS: u64 = 465;

impl Thread {
    /// Does flowop `i` once.
    pub(super) async fn act(&mut self, i: usize) -> Result<(), Stop> {
        let list = self.list.clone();
        let f = &list.flowops[i];
        match f.kind {
            Kind::Write => self.write(i, f).await,
            Kind::Read => self.read(i, f).await,
            Kind::ReadWholeFile => self.read_whole(i, f).await,
            Kind::WriteWholeFile => self.write_whole(i, f).await,
            Kind::AppendFile => {
                let iosize = self.draw(f.iosize);
                self.append(i, f, iosize).await
            }
            Kind::AppendFileRand => {
                let most = self.draw(f.iosize);
                if most == 0 {
                    return Err(FsError::Invalid("filebench: appendfilerand of iosize 0").into());
                }
                let bytes = self.chance.borrow_mut().below(most, 1);
                if bytes == 0 {
                    // Nothing is opened or written, and it counts.
                    self.count(i, self.now(), 0);
                    return Ok(());
                }
                self.append(i, f, bytes).await
            }
            Kind::AioWrite => self.aio_write(i, f).await,
            Kind::AioWait => self.aio_wait(i).await,
            Kind::OpenFile => {
                let fd = self.descriptor(f)?;
                self.open_existing(i, f, fd).await
            }
            Kind::CreateFile => self.create(i, f).await,
            Kind::CloseFile => self.close(i, f).await,
            Kind::DeleteFile => self.delete(i, f).await,
            Kind::StatFile => self.stat(i, f).await,
            Kind::Fsync => {
                let fd = self.descriptor(f)?;
                let Some(open) = self.fds[fd].open else {
                    return Err(FsError::Invalid("filebench: fsync without an open file").into());
                };
                let from = self.now();
                self.vfs.fsync(open.fd).await?;
                self.count(i, from, 0);
                self.synced();
                Ok(())
            }
            Kind::FsyncSet => {
                // The last descriptor is left out.
                for fd in 0..self.fds.len() - 1 {
                    let slot = self.fds[fd];
                    if slot.file.is_none_or(|(set, _)| Some(set) != f.fileset) {
                        continue;
                    }
                    // Of a file that is closed again filebench syncs its own standard input: a call
                    // that fails, and counts.
                    let from = self.now();
                    if let Some(open) = slot.open {
                        self.vfs.fsync(open.fd).await?;
                        self.synced();
                    }
                    self.count(i, from, 0);
                }
                Ok(())
            }
            Kind::MakeDir => self.make_dir(i, f).await,
            Kind::RemoveDir => self.remove_dir(i, f).await,
            Kind::ListDir => self.list_dir(i, f).await,
            Kind::Hog => {
                let (from, turns) = (self.now(), self.draw(f.value));
                self.pass(Span(turns.saturating_mul(HOG_PS) / 1000)).await?;
                self.count(i, from, 0);
                Ok(())
            }
            Kind::Delay => {
                let (from, secs) = (self.now(), self.draw(f.value));
                self.pass(Span(secs.saturating_mul(1_000_000_000))).await?;
                self.count(i, from, 0);
                Ok(())
            }
            Kind::Eventlimit => self.eventlimit(i).await,
            Kind::Bwlimit | Kind::Iopslimit | Kind::Opslimit => self.limit(i, f).await,
            Kind::FinishOnCount | Kind::FinishOnBytes => self.finish(i, f),
            Kind::Block => self.block(i).await,
            Kind::Wakeup => self.wakeup(i, f),
            Kind::Semblock => self.semblock(i, f).await,
            Kind::Sempost => self.sempost(i, f).await,
            Kind::Print => Ok(()),
            Kind::TestRandVar => {
                self.draw(f.value);
                Ok(())
            }
        }
    }

    fn synced(&self) {
        let n = self.shared.syncs.get() + 1;
        self.shared.syncs.set(n);
        (self.shared.watch.at_fsync)(n);
    }

    /// Lets time pass, until the run is over at most.
    async fn pass(&self, span: Span) -> Result<(), Stop> {
        let now = self.now();
        let left = self.shared.deadline.get().map(|at| at.max(now).since(now));
        let (span, is_cut) = match left {
            Some(left) if left < span => (left, true),
            _ => (span, false),
        };
        self.vfs.rt().sleep(span).await;
        if is_cut { Err(Stop::Over) } else { Ok(()) }
    }
}
