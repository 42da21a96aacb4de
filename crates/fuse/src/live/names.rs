//! Names: what makes files, and gives, moves and takes their names.

use wp_base::{FsError, FsResult};
use wp_vfs::{Attr, DeviceNumber, FileType, RenameHow};
use wp_workload::program::{Call, Flags};

use super::{Caller, Change, Live};

impl Live {
    /// What was made belongs to who made it, with these permission bits if its call has none.
    async fn made(
        &self,
        (dir, name): (u64, &[u8]),
        caller: Caller,
        mode: Option<u32>,
    ) -> FsResult<(u64, Attr)> {
        let (node, attr) = self.lookup(dir, name).await?;
        let owner = (caller.uid != attr.uid).then_some(caller.uid);
        // The group of a set-group-ID directory stays.
        let parent = self.attr(dir).await?;
        let inherits = parent.mode & 0o2000 != 0;
        let group = (!inherits && caller.gid != attr.gid).then_some(caller.gid);
        let mode = mode.filter(|mode| *mode != attr.mode & 0o777);
        let attr = match (owner, group, mode, attr.kind) {
            (None, None, None, _) | (None, None, _, FileType::Symlink) => attr,
            (uid, gid, mode, _) => {
                let mode = mode.map(|mode| mode | (attr.mode & 0o2000));
                let change = Change { uid, gid, mode, ..Change::default() };
                self.set_attr(node, None, change).await?
            }
        };
        Ok((node, attr))
    }

    pub(crate) async fn create(
        &self,
        (dir, name): (u64, &[u8]),
        how: Flags,
        caller: Caller,
    ) -> FsResult<(u64, Attr, u32)> {
        let (fd, path) = (self.descriptor(), self.path_in(dir, name)?);
        let how = Flags { create: true, ..how };
        self.call(Call::Open(fd, path, how)).await?;
        let (node, attr) = match self.made((dir, name), caller, None).await {
            Ok(made) => made,
            Err(e) => {
                self.call(Call::Close(fd)).await?;
                return Err(e);
            }
        };
        self.opened(node, fd, how);
        Ok((node, attr, fd))
    }

    pub(crate) async fn mkdir(
        &self,
        (dir, name): (u64, &[u8]),
        mode: u32,
        caller: Caller,
    ) -> FsResult<(u64, Attr)> {
        self.call(Call::Mkdir(self.path_in(dir, name)?)).await?;
        self.made((dir, name), caller, Some(mode & 0o1777)).await
    }

    pub(crate) async fn mknod(
        &self,
        (dir, name): (u64, &[u8]),
        (kind, mode): (FileType, u32),
        device: DeviceNumber,
        caller: Caller,
    ) -> FsResult<(u64, Attr)> {
        let path = self.path_in(dir, name)?;
        let mode = mode & 0o7777;
        match kind {
            FileType::File => {
                let fd = self.descriptor();
                let how = Flags { excl: true, mode: Some(mode as u16), ..Flags::CREATE };
                self.call(Call::Open(fd, path, how)).await?;
                self.call(Call::Close(fd)).await?;
                return self.made((dir, name), caller, None).await;
            }
            FileType::Fifo => self.call(Call::Mkfifo(path)).await?,
            FileType::Char | FileType::Block => {
                self.call(Call::Mknod(path, kind, device)).await?;
            }
            FileType::Socket => {
                // Programs of ours have no sockets; a node is all that a file system has of one.
                self.vfs.mknod(&path, kind, mode, device).await?;
            }
            FileType::Dir | FileType::Symlink => return Err(FsError::NotPermitted),
        }
        self.made((dir, name), caller, Some(mode)).await
    }

    pub(crate) async fn symlink(
        &self,
        (dir, name): (u64, &[u8]),
        target: &[u8],
        caller: Caller,
    ) -> FsResult<(u64, Attr)> {
        let target = String::from_utf8(target.to_vec());
        let target = target.map_err(|_| FsError::Invalid("a target that is no UTF-8"))?;
        self.call(Call::Symlink(target, self.path_in(dir, name)?)).await?;
        self.made((dir, name), caller, None).await
    }

    pub(crate) async fn read_link(&self, node: u64) -> FsResult<Vec<u8>> {
        let ino = self.nodes.borrow().ino(node)?;
        self.vfs.fs().read_link(ino).await
    }

    /// What a file will be like when it has lost this name, if that is its last. Nobody knows of
    /// one that is not there.
    async fn last_of(&self, dir: u64, name: &[u8]) -> Option<Attr> {
        let node = self.nodes.borrow().named(dir, name)?;
        let attr = self.attr(node).await.ok()?;
        let is_last = attr.nlink <= 1 || attr.kind == FileType::Dir;
        is_last.then_some(Attr { nlink: 0, ..attr })
    }

    pub(crate) async fn unlink(&self, dir: u64, name: &[u8], is_dir: bool) -> FsResult<()> {
        let path = self.path_in(dir, name)?;
        let last = self.last_of(dir, name).await;
        self.call(if is_dir { Call::Rmdir(path) } else { Call::Unlink(path) }).await?;
        self.nodes.borrow_mut().unlinked(dir, name, last);
        Ok(())
    }

    pub(crate) async fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
    ) -> FsResult<()> {
        let (old, new) = (self.path_in(from.0, from.1)?, self.path_in(to.0, to.1)?);
        let replaced = self.last_of(to.0, to.1).await;
        let is_same = {
            let nodes = self.nodes.borrow();
            let both = (nodes.named(from.0, from.1), nodes.named(to.0, to.1));
            both.0.is_some() && both.0 == both.1
        };
        self.call(match how {
            RenameHow::Replace => Call::Rename(old, new),
            how => Call::Renameat2(old, new, how),
        })
        .await?;
        let mut nodes = self.nodes.borrow_mut();
        match how {
            RenameHow::Exchange => nodes.exchanged(from, to),
            // Two names of one file: nothing happens.
            _ if is_same => {}
            _ => {
                nodes.unlinked(to.0, to.1, replaced);
                nodes.renamed(from, to);
            }
        }
        Ok(())
    }

    pub(crate) async fn link(&self, node: u64, to: (u64, &[u8])) -> FsResult<(u64, Attr)> {
        self.call(Call::Link(self.path(node)?, self.path_in(to.0, to.1)?)).await?;
        self.lookup(to.0, to.1).await
    }
}
