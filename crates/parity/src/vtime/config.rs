//! The configurations in which programs run on both sides.

/// Options of mkfs.ext4 and of mount, and the device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its name, as in the recorded runs.
    pub name: &'static str,
    /// File system.
    pub fs: &'static str,
    /// Options of our file system (`writepath list fs`), mkfs and mount, on top of the era's.
    pub ours: &'static str,
    /// Arguments of mkfs in the guest.
    pub mkfs: &'static str,
    /// Mount options in the guest.
    pub mount: &'static str,
    /// The device has FUA.
    pub fua: bool,
    /// The device has a volatile cache.
    pub cache: bool,
    /// The device has zones: 64 of 16 MiB, the first 16 conventional.
    pub zoned: bool,
    /// Recorded runs of it are in `kernels/linux-6.12`.
    pub recorded: bool,
    /// Why it cannot run here; empty if it can.
    pub not_modelled: &'static str,
    /// No kernel has it: only what it leaves is compared, that kernels read and recover.
    pub images_only: bool,
}

impl Config {
    /// Bytes of a block of the device, which may not be larger than the file system's.
    pub fn device_block(&self) -> u64 {
        if self.mkfs.contains("-b") { 512 } else { 4096 }
    }
}

const PLAIN: Config = Config {
    name: "ext4-default",
    fs: "ext4",
    ours: "",
    mkfs: "",
    mount: "",
    fua: true,
    cache: true,
    zoned: false,
    recorded: true,
    not_modelled: "",
    images_only: false,
};

const F2FS: Config = Config { name: "f2fs-posix", fs: "f2fs", ..PLAIN };

const ZONED: Config = Config { mkfs: "-m", zoned: true, ..F2FS };

const BTRFS: Config = Config { name: "btrfs", fs: "btrfs", ..PLAIN };

/// All of them.
pub static CONFIGS: &[Config] = &[
    PLAIN,
    Config { name: "ext4-default-nofua", fua: false, ..PLAIN },
    Config { name: "ext4-default-nocache", fua: false, cache: false, ..PLAIN },
    Config { name: "ext4-nobarrier", ours: "nobarrier", mount: "nobarrier", ..PLAIN },
    Config { name: "ext4-nodelalloc", ours: "nodelalloc", mount: "nodelalloc", ..PLAIN },
    Config { name: "ext4-writeback", ours: "data=writeback", mount: "data=writeback", ..PLAIN },
    Config { name: "ext4-journal", ours: "data=journal", mount: "data=journal", ..PLAIN },
    Config { name: "ext4-fastcommit", ours: "fast_commit", mkfs: "-O fast_commit", ..PLAIN },
    Config {
        name: "ext4-iomap",
        ours: "era=next,buffered_iomap",
        recorded: false,
        not_modelled: "no release has buffered_iomap: only `kernels crash` takes it",
        images_only: true,
        ..PLAIN
    },
    Config {
        name: "ext4-async",
        mount: "data=writeback,journal_checksum,journal_async_commit",
        not_modelled: "journal_async_commit is not a mount option here",
        ..PLAIN
    },
    Config { name: "ext4-1k", ours: "block_size=1024", mkfs: "-b 1024", recorded: false, ..PLAIN },
    Config { name: "ext4-2k", ours: "block_size=2048", mkfs: "-b 2048", recorded: false, ..PLAIN },
    Config {
        name: "ext4-bigalloc",
        ours: "cluster=16k",
        mkfs: "-O bigalloc -C 16384",
        recorded: false,
        ..PLAIN
    },
    Config {
        name: "ext4-nodelalloc-nofua",
        ours: "nodelalloc",
        mount: "nodelalloc",
        fua: false,
        recorded: false,
        ..PLAIN
    },
    F2FS,
    Config { name: "f2fs-strict", ours: "fsync_mode=strict", mount: "fsync_mode=strict", ..F2FS },
    Config { name: "f2fs-nobarrier", ours: "nobarrier", mount: "nobarrier", ..F2FS },
    Config { name: "f2fs-posix-nofua", fua: false, ..F2FS },
    Config { name: "f2fs-posix-zoned", ..ZONED },
    Config {
        name: "f2fs-strict-zoned",
        ours: "fsync_mode=strict",
        mount: "fsync_mode=strict",
        ..ZONED
    },
    Config {
        name: "f2fs-nobarrier-zoned",
        ours: "nobarrier",
        mount: "nobarrier",
        recorded: false,
        ..ZONED
    },
    Config { name: "nilfs2", fs: "nilfs2", ..PLAIN },
    BTRFS,
    Config { name: "btrfs-notreelog", ours: "notreelog", mount: "notreelog", ..BTRFS },
    Config { name: "btrfs-nofua", fua: false, ..BTRFS },
    Config {
        name: "btrfs-nodatacow",
        ours: "nodatacow",
        mount: "nodatacow",
        recorded: false,
        ..BTRFS
    },
    Config {
        name: "btrfs-4k",
        ours: "node_size=4096,metadata=single",
        mkfs: "-n 4096 -m single",
        recorded: false,
        ..BTRFS
    },
];

/// A configuration by name. Errors: lists the known names.
pub fn find(name: &str) -> Result<&'static Config, String> {
    CONFIGS.iter().find(|c| c.name == name).ok_or_else(|| {
        let known: Vec<&str> = CONFIGS.iter().map(|c| c.name).collect();
        format!("no configuration called `{name}` (configurations: {})", known.join(", "))
    })
}
