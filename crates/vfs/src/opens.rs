//! Descriptors of inodes in memory, and calls in the middle of which an inode may lose its last
//! name.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::{FsError, FsResult};

/// An inode in memory that counts who has it open.
pub trait Opened {
    /// Descriptors, and calls under way.
    fn opens(&self) -> &Cell<u32>;
    /// Descriptors that may write.
    fn writers(&self) -> &Cell<u32>;
    /// Has it been freed?
    fn is_gone(&self) -> bool;
    /// May nobody write it?
    fn is_immutable(&self) -> bool;
}

/// An inode in the middle of a call, as good as open: it is not freed under the call.
pub struct InUse<I: Opened>(pub Rc<I>);

impl<I: Opened> InUse<I> {
    /// Begins a use.
    pub fn new(inode: &Rc<I>) -> InUse<I> {
        inode.opens().set(inode.opens().get() + 1);
        InUse(inode.clone())
    }
}

impl<I: Opened> Drop for InUse<I> {
    fn drop(&mut self) {
        self.0.opens().set(self.0.opens().get().saturating_sub(1));
    }
}

/// Counts a descriptor. Errors: `NotFound`, `NotPermitted`.
pub fn opened(inode: &impl Opened, write: bool) -> FsResult<()> {
    if inode.is_gone() {
        return Err(FsError::NotFound);
    }
    if write && inode.is_immutable() {
        return Err(FsError::NotPermitted);
    }
    inode.opens().set(inode.opens().get() + 1);
    if write {
        inode.writers().set(inode.writers().get() + 1);
    }
    Ok(())
}

/// Has it such a descriptor?
pub fn is_open(inode: &impl Opened, write: bool) -> bool {
    inode.opens().get() > 0 && (!write || inode.writers().get() > 0)
}

/// Counts a descriptor no longer. Errors: `BadFile`.
pub fn closed(inode: &impl Opened, write: bool) -> FsResult<()> {
    if !is_open(inode, write) {
        return Err(FsError::BadFile);
    }
    inode.opens().set(inode.opens().get() - 1);
    if write {
        inode.writers().set(inode.writers().get() - 1);
    }
    Ok(())
}

/// The calls of a [`crate::FileSystem`] that are the same wherever files are inodes in memory with
/// a lock each: find the inode, keep it for the time of the call, lock it, call, free it if its
/// last name went meanwhile.
///
/// For an `impl` of a type with `get(Ino)`, `dir(Ino)` and `done(InUse, result)`, and the mounted
/// file system in field 0, whose methods do the work. Names in it are the caller's.
#[macro_export]
macro_rules! inode_calls {
    () => {
        fn create<'a>(&'a self, dir: Ino, name: &'a [u8], spec: &'a NodeSpec) -> Fut<'a, Ino> {
            Box::pin(async move {
                let d = self.dir(dir).await?;
                let _lock = d.lock.lock().await;
                let inode = self.0.create_node(&d, name, spec).await?;
                Ok(Ino(u64::from(inode.ino)))
            })
        }

        fn unlink<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
            Box::pin(async move {
                let d = self.dir(dir).await?;
                let _lock = d.lock.lock().await;
                self.0.unlink_name(&d, name, false).await
            })
        }

        fn rmdir<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
            Box::pin(async move {
                let d = self.dir(dir).await?;
                let _lock = d.lock.lock().await;
                self.0.unlink_name(&d, name, true).await
            })
        }

        fn rename<'a>(
            &'a self,
            from: (Ino, &'a [u8]),
            to: (Ino, &'a [u8]),
            how: $crate::RenameHow,
        ) -> Fut<'a, ()> {
            Box::pin(async move {
                let (a, b) = (self.dir(from.0).await?, self.dir(to.0).await?);
                let _one = self.0.rename_lock.lock().await;
                // Two directories are locked in one order, so that two renames cannot wait for each
                // other; one above the other first, as a removal locks them.
                let b_first = a.ino != b.ino
                    && (self.0.is_above(b.ino, &a).await?
                        || (b.ino < a.ino && !self.0.is_above(a.ino, &b).await?));
                let (first, second) = if b_first { (&b, &a) } else { (&a, &b) };
                let _first = first.lock.lock().await;
                let _second = if a.ino == b.ino { None } else { Some(second.lock.lock().await) };
                self.0.rename_name((&a, from.1), (&b, to.1), how).await
            })
        }

        fn open_unnamed<'a>(
            &'a self,
            dir: Ino,
            spec: &'a NodeSpec,
            linkable: bool,
            write: bool,
        ) -> Fut<'a, Ino> {
            Box::pin(async move {
                let d = self.dir(dir).await?;
                let inode = self.0.make_unnamed(&d, spec, linkable).await?;
                $crate::opened(&*inode, write)?;
                Ok(Ino(u64::from(inode.ino)))
            })
        }

        fn write_mapped<'a>(
            &'a self,
            ino: Ino,
            offset: u64,
            data: &'a [Slice],
            ahead: &'a $crate::Readahead,
        ) -> Fut<'a, ()> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                if inode.is_dir() {
                    return Err(FsError::IsDir);
                }
                let user = InUse::new(&inode);
                // No lock: the kernel does not take `i_rwsem` for a fault.
                let out = self.0.write_mapped(&inode, offset, data, ahead).await;
                self.done(user, out).await
            })
        }

        fn write_range<'a>(
            &'a self,
            ino: Ino,
            range: (u64, u64),
            told: &'a ErrSeqCursor,
        ) -> Fut<'a, ()> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                let user = InUse::new(&inode);
                let out = self.0.write_and_wait(&inode, range, told).await;
                self.done(user, out).await
            })
        }

        fn link<'a>(&'a self, ino: Ino, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                let user = InUse::new(&inode);
                let d = self.dir(dir).await?;
                let lock = d.lock.lock().await;
                let out = self.0.link_name(&inode, &d, name).await;
                drop(lock);
                self.done(user, out).await
            })
        }

        fn set_attr<'a>(&'a self, ino: Ino, change: &'a AttrChange) -> Fut<'a, ()> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                let user = InUse::new(&inode);
                let lock = self.0.lock_alone(&inode).await;
                let out = self.change(&inode, change).await;
                drop(lock);
                self.done(user, out).await
            })
        }

        fn read<'a>(
            &'a self,
            ino: Ino,
            offset: u64,
            len: u64,
            ahead: &'a $crate::Readahead,
        ) -> Fut<'a, Vec<Slice>> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                if inode.is_dir() {
                    return Err(FsError::IsDir);
                }
                let user = InUse::new(&inode);
                let out = self.0.read_data(&inode, offset, len, ahead).await;
                self.done(user, out).await
            })
        }

        fn read_direct<'a>(
            &'a self,
            ino: Ino,
            offset: u64,
            len: u64,
            io: &'a $crate::Kiocb,
        ) -> Fut<'a, Vec<Slice>> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                if inode.is_dir() {
                    return Err(FsError::IsDir);
                }
                let user = InUse::new(&inode);
                let out = self.0.read_direct(&inode, offset, len, io).await;
                self.done(user, out).await
            })
        }

        fn sync_all<'a>(&'a self) -> Fut<'a, ()> {
            Box::pin(async move { self.0.sync_everything().await })
        }

        fn sync_fs<'a>(&'a self, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
            Box::pin(async move { self.0.sync_file_system(told).await })
        }

        fn get_xattr<'a>(&'a self, ino: Ino, name: &'a [u8]) -> Fut<'a, Vec<u8>> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                let user = InUse::new(&inode);
                let out = self.0.get_xattr(&inode, name).await;
                self.done(user, out).await
            })
        }

        fn list_xattrs<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<Vec<u8>>> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                let user = InUse::new(&inode);
                let out = self.0.list_xattrs(&inode).await;
                self.done(user, out).await
            })
        }

        fn set_xattr<'a>(
            &'a self,
            ino: Ino,
            name: &'a [u8],
            value: Option<&'a [u8]>,
            how: XattrSet,
        ) -> Fut<'a, ()> {
            Box::pin(async move {
                let inode = self.get(ino).await?;
                let user = InUse::new(&inode);
                let lock = inode.lock.lock().await;
                let out = if inode.gone.get() {
                    Err(FsError::NotFound)
                } else {
                    self.0.set_xattr(&inode, name, value, how).await
                };
                drop(lock);
                self.done(user, out).await
            })
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct File {
        opens: Cell<u32>,
        writers: Cell<u32>,
        gone: Cell<bool>,
        immutable: bool,
    }

    impl Opened for File {
        fn opens(&self) -> &Cell<u32> {
            &self.opens
        }
        fn writers(&self) -> &Cell<u32> {
            &self.writers
        }
        fn is_gone(&self) -> bool {
            self.gone.get()
        }
        fn is_immutable(&self) -> bool {
            self.immutable
        }
    }

    #[test]
    fn what_is_not_open_for_writing_is_not_closed_as_such() {
        let f = Rc::new(File::default());
        assert_eq!(closed(&*f, false), Err(FsError::BadFile));
        opened(&*f, false).expect("there");
        assert_eq!(closed(&*f, true), Err(FsError::BadFile));
        let user = InUse::new(&f);
        assert_eq!(f.opens.get(), 2);
        drop(user);
        closed(&*f, false).expect("open");
        assert!(!is_open(&*f, false));
        f.gone.set(true);
        assert_eq!(opened(&*f, false), Err(FsError::NotFound));
        let fixed = File { immutable: true, ..File::default() };
        assert_eq!(opened(&fixed, true), Err(FsError::NotPermitted));
        opened(&fixed, false).expect("it can be read");
    }
}
