//! The tree of a machine without a file system: the root, `/dev`, and a node for each device.

use std::cell::RefCell;
use std::rc::Rc;

use wp_base::event::ZoneOp;
use wp_base::{DeviceNumber, FsError, FsResult, Ino, SECTOR_BYTES, Sector, Zone};
use wp_block::{AtomicLimits, PlugGuard};
use wp_cache::{Fut, Readahead, WbControl};
use wp_medium::Slice;
use wp_vfs::{
    Attr, AttrChange, Call, DirEntry, Env, ErrSeqCursor, FileSystem, FileType, Kiocb, NodeSpec,
    RenameHow, Reserve, StatFs, SyncKind, TimeSpec,
};

use crate::node::Node;

const ROOT: Ino = Ino(1);
const DEV: Ino = Ino(2);
/// Number of the first device's inode.
const FIRST: u64 = 3;

/// A machine's devices. Their names are those under which they are looked up first: `/dev/nvme0n1`
/// and `/dev/sda` are both the first device, whichever a program asks for, and what a program asks
/// for next is the second.
pub struct Raw {
    nodes: Vec<Rc<Node>>,
    /// Names that were looked up, in the order of the devices.
    names: RefCell<Vec<Vec<u8>>>,
}

fn read_only<'a, T>() -> Fut<'a, T> {
    Box::pin(async { Err(FsError::NotPermitted) })
}

impl Raw {
    /// The devices of an environment.
    pub fn new(env: &Env) -> Raw {
        let parts = std::iter::once(&env.part).chain(&env.more);
        let nodes = parts.map(|part| Rc::new(Node::new(&env.rt, part.clone()))).collect();
        Raw { nodes, names: RefCell::default() }
    }

    fn node(&self, ino: Ino) -> FsResult<&Rc<Node>> {
        let place = ino.0.checked_sub(FIRST).and_then(|n| usize::try_from(n).ok());
        match place.and_then(|n| self.nodes.get(n)) {
            Some(node) => Ok(node),
            None if ino == ROOT || ino == DEV => Err(FsError::IsDir),
            None => Err(FsError::NotFound),
        }
    }

    fn find(&self, dir: Ino, name: &[u8]) -> FsResult<Ino> {
        if dir == ROOT {
            return if name == b"dev" { Ok(DEV) } else { Err(FsError::NotFound) };
        }
        if dir != DEV {
            return Err(FsError::NotDir);
        }
        let mut names = self.names.borrow_mut();
        let place = match names.iter().position(|known| known == name) {
            Some(place) => place,
            None if names.len() < self.nodes.len() => {
                names.push(name.to_owned());
                names.len() - 1
            }
            None => return Err(FsError::NotFound),
        };
        Ok(Ino(FIRST + place as u64))
    }

    fn stat(&self, ino: Ino) -> FsResult<Attr> {
        let (kind, mode, size) = match self.node(ino) {
            // What `ioctl(BLKGETSIZE64)` tells; `stat` of Linux tells 0.
            Ok(node) => (FileType::Block, 0o660, node.bytes()),
            Err(FsError::IsDir) => (FileType::Dir, 0o755, 0),
            Err(e) => return Err(e),
        };
        let zero = TimeSpec::default();
        Ok(Attr {
            ino,
            kind,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            blocks_512: 0,
            device: DeviceNumber::default(),
            atime: zero,
            mtime: zero,
            ctime: zero,
        })
    }

    fn entries(&self, dir: Ino) -> FsResult<Vec<DirEntry>> {
        match dir {
            ROOT => Ok(vec![DirEntry { name: b"dev".to_vec(), ino: DEV, kind: FileType::Dir }]),
            DEV => {
                let names = self.names.borrow();
                let entry = |(name, n): (&Vec<u8>, u64)| DirEntry {
                    name: name.clone(),
                    ino: Ino(FIRST + n),
                    kind: FileType::Block,
                };
                Ok(names.iter().zip(0..).map(entry).collect())
            }
            _ => Err(FsError::NotDir),
        }
    }
}

impl FileSystem for Raw {
    fn name(&self) -> &'static str {
        crate::NAME
    }
    fn root(&self) -> Ino {
        ROOT
    }
    fn lookup<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Call<'a, Ino> {
        Call::now(self.find(dir, name))
    }
    fn create<'a>(&'a self, _: Ino, _: &'a [u8], _: &'a NodeSpec) -> Fut<'a, Ino> {
        read_only()
    }
    fn unlink<'a>(&'a self, _: Ino, _: &'a [u8]) -> Fut<'a, ()> {
        read_only()
    }
    fn rmdir<'a>(&'a self, _: Ino, _: &'a [u8]) -> Fut<'a, ()> {
        read_only()
    }
    fn rename<'a>(&'a self, _: (Ino, &'a [u8]), _: (Ino, &'a [u8]), _: RenameHow) -> Fut<'a, ()> {
        read_only()
    }
    fn link<'a>(&'a self, _: Ino, _: Ino, _: &'a [u8]) -> Fut<'a, ()> {
        read_only()
    }
    fn read_link<'a>(&'a self, _: Ino) -> Fut<'a, Vec<u8>> {
        Box::pin(async { Err(FsError::Invalid("no symbolic link")) })
    }
    fn attr<'a>(&'a self, ino: Ino) -> Call<'a, Attr> {
        Call::now(self.stat(ino))
    }
    fn kind_in_memory(&self, ino: Ino) -> Option<FileType> {
        self.stat(ino).ok().map(|a| a.kind)
    }
    fn set_attr<'a>(&'a self, ino: Ino, change: &'a AttrChange) -> Fut<'a, ()> {
        Box::pin(async move {
            match self.node(ino)? {
                // `ftruncate` of a device answers EINVAL, `O_TRUNC` does nothing.
                _ if change.size.is_some_and(|n| n > 0) => {
                    Err(FsError::Invalid("a device has the length that it has"))
                }
                _ => Ok(()),
            }
        })
    }
    fn read_dir<'a>(&'a self, dir: Ino) -> Fut<'a, Vec<DirEntry>> {
        Box::pin(async move { self.entries(dir) })
    }
    fn has_devices(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, ino: Ino, _write: bool) -> Call<'a, ()> {
        if let Ok(node) = self.node(ino) {
            node.opens.set(node.opens.get() + 1);
        }
        Call::now(self.stat(ino).map(|_| ()))
    }
    fn release<'a>(&'a self, ino: Ino, _write: bool) -> Call<'a, ()> {
        let Ok(node) = self.node(ino) else { return Call::now(Ok(())) };
        node.opens.set(node.opens.get().saturating_sub(1));
        if node.opens.get() > 0 || node.bdev.mapping().is_empty() {
            return Call::now(Ok(()));
        }
        Call::later(node.close())
    }
    fn read<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        len: u64,
        ahead: &'a Readahead,
    ) -> Fut<'a, Vec<Slice>> {
        Box::pin(async move { self.node(ino)?.read(offset, len, ahead).await })
    }
    fn write<'a>(&'a self, ino: Ino, offset: Option<u64>, data: &'a [Slice]) -> Call<'a, u64> {
        Call::later(async move {
            let node = self.node(ino)?;
            node.write(offset.unwrap_or(node.bytes()), data).await
        })
    }
    fn told(&self, ino: Ino) -> ErrSeqCursor {
        let told = ErrSeqCursor::default();
        if let Ok(node) = self.node(ino) {
            told.data.set(node.bdev.mapping().errors().sample(true));
        }
        told
    }
    fn sync_file<'a>(&'a self, ino: Ino, kind: SyncKind, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async move {
            match self.node(ino) {
                Ok(node) => node.sync(kind, told).await,
                // A directory of devtmpfs.
                Err(FsError::IsDir) => Ok(()),
                Err(e) => Err(e),
            }
        })
    }
    fn read_direct<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        len: u64,
        io: &'a Kiocb,
    ) -> Fut<'a, Vec<Slice>> {
        Box::pin(async move { self.node(ino)?.read_direct(offset, len, io).await })
    }
    fn atomic_limits(&self, ino: Ino) -> Option<AtomicLimits> {
        self.node(ino).ok()?.part.atomic_limits()
    }
    fn plug(&self) -> Option<PlugGuard> {
        self.nodes.first().map(|node| node.part.plug())
    }
    fn write_direct<'a>(
        &'a self,
        ino: Ino,
        offset: Option<u64>,
        data: &'a [Slice],
        sync: Option<SyncKind>,
        told: &'a ErrSeqCursor,
        io: &'a Kiocb,
    ) -> Fut<'a, u64> {
        Box::pin(async move {
            let node = self.node(ino)?;
            node.write_direct(offset.unwrap_or(node.bytes()), data, sync, told, io).await
        })
    }
    fn sync_reserve<'a>(&'a self, _: Ino, _: Reserve, _: u64, _: u64) -> Fut<'a, ()> {
        Box::pin(async { Err(FsError::Unsupported("fallocate of a device".into())) })
    }
    fn discard<'a>(&'a self, ino: Ino, offset: u64, len: u64) -> Fut<'a, ()> {
        Box::pin(async move { self.node(ino)?.discard(offset, len).await })
    }
    fn zones<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<Zone>> {
        Box::pin(async move {
            let node = self.node(ino)?;
            if node.part.limits().zones.is_none() {
                return Ok(Vec::new());
            }
            node.part.report_zones().await.map_err(|_| FsError::Io)
        })
    }
    fn max_open_zones(&self, ino: Ino) -> u32 {
        let zones = self.node(ino).ok().and_then(|node| node.part.limits().zones);
        zones.map_or(0, |z| z.max_open)
    }
    fn manage_zone<'a>(&'a self, ino: Ino, op: ZoneOp, at: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let node = self.node(ino)?;
            if node.part.limits().zones.is_none() {
                return Err(FsError::Unsupported("the device has no zones".into()));
            }
            let sector = Sector(at / SECTOR_BYTES);
            node.part.manage_zone(op, sector).await.map_err(|_| FsError::Io)
        })
    }
    /// `sync`: writes what is cached of each device, and flushes none (`sync_bdevs`).
    fn sync_all<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(async move {
            for node in &self.nodes {
                node.bdev.sync().await?;
            }
            Ok(())
        })
    }
    /// `syncfs` of a device is about the file system that its node is on (devtmpfs).
    fn sync_fs<'a>(&'a self, _: &'a ErrSeqCursor) -> Fut<'a, ()> {
        Box::pin(async { Ok(()) })
    }
    fn drop_caches(&self) {
        for node in &self.nodes {
            node.bdev.mapping().invalidate(0, u64::MAX);
        }
    }
    fn drop_file_cache<'a>(&'a self, ino: Ino) -> Call<'a, bool> {
        Call::later(async move {
            let map = self.node(ino)?.bdev.mapping();
            // Who writes is told of errors by his next sync.
            drop(map.writepages(&WbControl::before_sync()).await);
            map.invalidate(0, u64::MAX);
            Ok(true)
        })
    }
    fn stat_fs<'a>(&'a self) -> Fut<'a, StatFs> {
        Box::pin(async move {
            let bytes: u64 = self.nodes.iter().map(|n| n.bytes()).sum();
            let blocks = bytes / 4096;
            Ok(StatFs {
                block_bytes: 4096,
                blocks,
                blocks_free: blocks,
                blocks_available: blocks,
                inodes: 0,
                inodes_free: 0,
            })
        })
    }
    fn unmount<'a>(&'a self) -> Fut<'a, ()> {
        Box::pin(async move {
            for node in &self.nodes {
                node.close().await?;
                node.wb.stop();
            }
            Ok(())
        })
    }
}
