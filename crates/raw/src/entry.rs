//! The registry's line for a machine without a file system.

use std::rc::Rc;

use wp_base::stage::{Kind, Purpose, Stages};
use wp_base::{FsError, FsResult};
use wp_cache::Fut;
use wp_medium::{Medium, Overlay, Sound, View};
use wp_vfs::{
    BlockMap, Checked, Disk, Env, EraRule, FileSystem, FsEntry, Inspection, Offers, OptionSpec,
    Options, Promises, Survey, When,
};

use crate::ops::Raw;

/// What `--fs` calls it.
pub const NAME: &str = "none";

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    key: "era",
    when: When::Always,
    default: "6.12",
    help: "kernel version whose block layer applies",
}];

/// No file system.
pub static ENTRY: FsEntry = FsEntry {
    name: NAME,
    about: "no file system: programs use the block device, /dev/NAME",
    options: OPTIONS,
    kernels: ["3.3", "6.18"],
    runs_since: "3.3",
    next: None,
    held: &["6.12"],
    promises: Promises {
        fsync_keeps_names: false,
        names_in_order: false,
        fallocate_syncs: false,
        barriers: None,
        order_only: None,
        alone: None,
    },
    offers: Offers::NONE,
    modes: &[""],
    mkfs: |_, _| Ok(Medium::new()),
    mkfs_disks: Some(empty),
    mount: Some(mount),
    probe: |_| false,
    inspect,
    recover: |_, _| Err(no_image()),
    check,
    survey,
    blocks: |_| Ok(Box::new(Blocks)),
    eras: |era| wp_vfs::Version::parse(era).map(|_| Vec::<EraRule>::new()),
    stages: &STAGES,
};

static STAGES: Stages = Stages {
    kinds: &[Kind::all(&["data"], "data", Purpose::Data)],
    unclassified: ["data", "data", "data", "data"],
    others_data: None,
    servers: &[],
    shared: &[],
};

fn empty(_: &Options, _: &[Disk]) -> FsResult<Medium> {
    Ok(Medium::new())
}

fn no_image() -> FsError {
    FsError::Unsupported("a device without a file system".into())
}

fn inspect(_: &dyn View, _: &Options, _: bool) -> FsResult<Inspection> {
    Err(no_image())
}

fn check(_: &dyn View, _: &Options, _: bool, _: &Sound) -> FsResult<Checked> {
    Err(no_image())
}

fn survey(_: &Overlay<'_>, _: &Options) -> FsResult<Survey> {
    Err(no_image())
}

fn mount<'a>(env: &'a Env, _: &'a Options) -> Fut<'a, Rc<dyn FileSystem>> {
    Box::pin(async move {
        let fs: Rc<dyn FileSystem> = Rc::new(Raw::new(env));
        Ok(fs)
    })
}

/// Whatever is written is a program's data.
struct Blocks;

impl BlockMap for Blocks {
    fn block_bytes(&self) -> u32 {
        4096
    }
    fn class(&self, _: u64) -> &'static str {
        "data"
    }
    fn owner(&self, _: u64) -> Option<(u64, u64)> {
        None
    }
}
