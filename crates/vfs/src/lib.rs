//! System calls: paths, descriptors, and the trait that a mounted file system offers.
//!
//! Picture:    program -> [`Vfs`] (path walk, descriptor table, syscall events) -> [`FileSystem`].
//! Invariants: 1. every call is one [`wp_base::event::Event::SyscallEnter`] and one exit, whatever
//!                happens.
//!             2. nothing here knows a format or a device.
//! Left out:   permission checks (one user, root); a name cache (lookups read cached directory
//!             blocks).

mod aio;
mod atomic;
mod attributes;
mod checkpoints;
mod contents;
mod copy;
mod dirty_limits;
mod entry;
mod entry_eras;
mod file_type;
pub mod finding;
mod flags;
mod fs;
mod ioctl;
mod kiocb;
mod listing;
mod mapped;
mod names;
mod opens;
mod promises;
mod seek;
mod subvolumes;
mod syscall;
mod untorn;
mod walk;

pub use aio::{IoCall, IoContext, IoEvent, Iocb};
pub use atomic::AtomicWrite;
pub use checkpoints::Checkpointing;
pub use contents::{Digest, Part, TakePart};
pub use dirty_limits::dirty_limits;
pub use entry::{
    BlockMap, Checked, Disk, Env, Fault, FsEntry, Inspection, ListedCheckpoint, ListedFile, Mount,
    Mountable, Offers, OptionError, OptionSpec, Options, RecoveryPlan, Run, Stat, Survey,
    SurveyedFile, When, renamed,
};
pub use file_type::FileType;
pub use flags::{FileFlags, may_create, may_delete, may_link};
pub use fs::{
    Attr, AttrChange, Call, DirEntry, ErrSeqCursor, FileSystem, JournalConflict, NodeSpec,
    RenameHow, Reserve, Share, StatFs, SyncKind, TimeSpec, XattrSet,
};
pub use kiocb::Kiocb;
pub use listing::{Entry, FileInfo, Listable, Misread, Xattr, list};
pub use mapped::{PageStore, page_stores};
pub use opens::{InUse, Opened, closed, is_open, opened};
pub use promises::Promises;
pub use seek::{Seek, SeekRun, seek_in_data, seek_in_runs};
pub use syscall::{Fd, OpenFlags, Vfs};
pub use untorn::{WriteAtomic, failed_write};
pub use wp_base::DeviceNumber;
pub use wp_base::era::{EraRule, rules as era_rules};
pub use wp_base::kernel::Version;
pub use wp_base::kernel::{Base, DISTRIBUTIONS, Distribution};
pub use wp_cache::{Advice, Readahead};
