//! The devices that can be had by name, with the source of every number.

use crate::config::{DeviceEntry, Param};
use crate::fixed::{Fixed, FixedConfig};
use crate::plain::{Plain, PlainConfig};
use crate::ssd::{Ssd, SsdConfig};

const fn p(name: &'static str, value: u64, unit: &'static str, source: &'static str) -> Param {
    Param { name, value, unit, source }
}

/// 250,069,680 sectors: what a drive sold as 128 GB has.
const BYTES_128_GB: u64 = 128_035_676_160;
const IDEMA: &str = "IDEMA LBA count for 128 GB (SFF-8447)";
const NULLB_RUN: &str = "set-up of the real-kernel runs in virtual time (null_blk, Linux 6.12)";
const FOR_COMPARISON: &str = "assumed: as large as ssd-128, so that layouts are the same on both";

const FIXED: [Param; 8] = [
    p("capacity_bytes", BYTES_128_GB, "bytes", FOR_COMPARISON),
    p("latency_ns", 15_000, "ns", NULLB_RUN),
    p("queue_depth", 64, "count", "null_blk hw_queue_depth, its default"),
    p("cache_bytes", 64 << 20, "bytes", NULLB_RUN),
    p("fua", 1, "switch", NULLB_RUN),
    p("discard", 1, "switch", "assumed: null_blk has it off by default; tests of discards want it"),
    p("max_request_sectors", 2560, "sectors", "Linux BLK_DEF_MAX_SECTORS (1280 KiB), since 4.3"),
    p("max_segments", 128, "count", "Linux BLK_MAX_SEGMENTS, the default limit"),
];

const fn replaced<const N: usize>(mut params: [Param; N], index: usize, with: Param) -> [Param; N] {
    params[index] = with;
    params
}

const FIXED_NOFUA: [Param; 8] =
    replaced(FIXED, 4, p("fua", 0, "switch", "null_blk fua=0, a configuration of those runs"));

const SATA_NOFUA: [Param; 11] = [
    p("capacity_bytes", BYTES_128_GB, "bytes", FOR_COMPARISON),
    p("command_ns", 60_000, "ns", "assumed: exit to the emulator and a system call on the host"),
    p("link_mb_s", 1_000, "MB/s", "assumed: copy into the host's page cache"),
    p("flush_ns", 1_000_000, "ns", "assumed: fdatasync of the image on a host SSD"),
    p("writeback_mb_s", 500, "MB/s", "assumed: sequential write of a host SATA SSD"),
    p(
        "queue_depth",
        31,
        "count",
        "SATA NCQ: 32 tags, of which Linux keeps one (ATA_MAX_QUEUE - 1)",
    ),
    p("cache_bytes", 256 << 20, "bytes", "assumed: dirty pages that the host allows"),
    p("fua", 0, "switch", "libata.fua=0, the default of Linux: SATA disks report no FUA"),
    p("discard", 1, "switch", "QEMU ide-hd with discard=unmap; loop devices punch holes"),
    p("max_request_sectors", 2560, "sectors", "Linux BLK_DEF_MAX_SECTORS (1280 KiB), since 4.3"),
    p("max_segments", 168, "count", "AHCI_MAX_SG of Linux's ahci driver"),
];

const CLASS_840: &str =
    "Samsung 840 Pro class: 8 channels, 21 nm MLC, Toggle 2.0 400 Mb/s (review specifications)";

/// The unnamed 128 GB SATA SSD of the ext4 paper's PC (2013, i7-4770): a drive of that class,
/// fitted to no result.
const SSD_128: [Param; 28] = [
    p("capacity_bytes", BYTES_128_GB, "bytes", IDEMA),
    p(
        "queue_depth",
        31,
        "count",
        "SATA NCQ: 32 tags, of which Linux keeps one (ATA_MAX_QUEUE - 1)",
    ),
    p("max_request_sectors", 1024, "sectors", "Linux 3.x BLK_DEF_MAX_SECTORS (512 KiB)"),
    p("max_segments", 168, "count", "AHCI_MAX_SG of Linux's ahci driver"),
    p("fua", 0, "switch", "libata.fua=0, the default of Linux: SATA disks report no FUA"),
    p("discard", 1, "switch", "SATA SSDs of 2013 have TRIM"),
    p("plp", 0, "switch", "consumer drive"),
    p(
        "link_mb_s",
        550,
        "MB/s",
        "850 Pro 550 MB/s sequential read: SATA 6 Gb/s less its overheads (review specification)",
    ),
    p("link_full_duplex", 0, "switch", "SATA moves one way at a time"),
    p(
        "command_ns",
        10_000,
        "ns",
        "840/850 Pro: 100 k random reads per second at queue depth 32 (review specifications)",
    ),
    p(
        "read_overhead_ns",
        12_000,
        "ns",
        "assumed: makes the class's rated 10 k random reads per second at depth 1 with tR",
    ),
    p(
        "write_overhead_ns",
        8_000,
        "ns",
        "assumed: makes the class's rated 36 k random writes per second at depth 1",
    ),
    p("flush_overhead_ns", 50_000, "ns", "assumed: saving the map's changes"),
    p("discard_overhead_ns", 50_000, "ns", "assumed"),
    p(
        "buffer_bytes",
        4 << 20,
        "bytes",
        "assumed: 32 program units a die would be 8 MiB; no source tells a write buffer's size",
    ),
    p("internal_flush_ns", 0, "ns", "assumed: never on its own account"),
    p("channels", 8, "count", CLASS_840),
    p("dies_per_channel", 2, "count", "assumed: 16 dies of 64 Gbit make 128 GiB"),
    p("planes", 2, "count", "assumed: usual for 64 Gbit MLC"),
    p("page_bytes", 8192, "bytes", "assumed: usual for 64 Gbit MLC"),
    p("pages_per_program", 1, "count", "assumed: planar MLC programs page by page"),
    p("pages_per_block", 256, "count", "assumed: usual for 64 Gbit MLC"),
    p("blocks_per_plane", 2048, "count", "128 GiB raw of 128 GB: 7 % spare, the usual difference"),
    p("read_ns", 60_000, "ns", "assumed: MLC 40 to 75 us (NVMeVirt, MQSim, SimpleSSD, FEMU)"),
    p("program_ns", 630_000, "ns", RATED_WRITE),
    p("erase_ns", 3_500_000, "ns", "MLC 3 to 3.8 ms (SimpleSSD 3.5)"),
    p("bus_mb_s", 400, "MB/s", CLASS_840),
    p("gc_low_superblocks", 8, "count", "assumed"),
];

/// The paper's drive with power-loss protection: no volatile cache to flush.
const SSD_128_PLP: [Param; 28] =
    replaced(SSD_128, 6, p("plp", 1, "switch", "hypothetical: the same drive with capacitors"));

/// 500,118,192 sectors: what a drive sold as 256 GB has.
const BYTES_256_GB: u64 = 256_060_514_304;
const RATED_850: &str = "assumed: makes the 850 Pro's rated 520 MB/s sequential write; within MLC V-NAND's 50 MB/s a die";

/// Samsung 850 PRO 256 GB, as a class: rated like the 840 Pro at depth 1 and 32, twice the flash,
/// V-NAND that programs faster (review specifications).
const SSD_850_256: [Param; 28] = {
    let params = replaced(
        SSD_128,
        0,
        p("capacity_bytes", BYTES_256_GB, "bytes", "IDEMA LBA count for 256 GB (SFF-8447)"),
    );
    let params = replaced(
        params,
        BLOCKS_PER_PLANE,
        p("blocks_per_plane", 4096, "count", "256 GiB raw of 256 GB: 7 % spare"),
    );
    replaced(params, PROGRAM_NS, p("program_ns", 472_000, "ns", RATED_850))
};

/// Where a parameter stands in [`SSD_128`]; checked below.
const BLOCKS_PER_PLANE: usize = 22;
const PROGRAM_NS: usize = 24;
const _: () = {
    assert!(matches!(SSD_128[6].name.as_bytes(), b"plp"));
    assert!(matches!(SSD_128[BLOCKS_PER_PLANE].name.as_bytes(), b"blocks_per_plane"));
    assert!(matches!(SSD_128[PROGRAM_NS].name.as_bytes(), b"program_ns"));
};

const RATED_WRITE: &str = "assumed: makes the 128 GB 840 Pro's rated 390 MB/s sequential write; within MLC's 500 to 1300 us";

/// All devices, in the order in which they are listed.
pub static DEVICES: &[&DeviceEntry] = &[
    &DeviceEntry {
        name: "fixed",
        about: "every command takes the same time, many at once; volatile cache and FUA (Linux null_blk)",
        params: &FIXED,
        build: |s| Ok(Box::new(Fixed::new(FixedConfig::from_settings(s)?))),
    },
    &DeviceEntry {
        name: "fixed-nofua",
        about: "as fixed, without FUA",
        params: &FIXED_NOFUA,
        build: |s| Ok(Box::new(Fixed::new(FixedConfig::from_settings(s)?))),
    },
    &DeviceEntry {
        name: "sata-disk-nofua",
        about: "one command after the other, volatile cache, no FUA (QEMU's SATA disk, a loop device)",
        params: &SATA_NOFUA,
        build: |s| Ok(Box::new(Plain::new(PlainConfig::from_settings(s)?))),
    },
    &DeviceEntry {
        name: "ssd-128",
        about: "SATA SSD of 128 GB and 2013: volatile write buffer, no FUA, MLC on 8 channels (the ext4 paper's PC)",
        params: &SSD_128,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
    },
    &DeviceEntry {
        name: "ssd-128-plp",
        about: "as ssd-128, with power-loss protection: what it has completed is durable",
        params: &SSD_128_PLP,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
    },
    &DeviceEntry {
        name: "850pro-256",
        about: "class of the Samsung 850 PRO 256 GB (paper journal-conflict), not that drive",
        params: &SSD_850_256,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
    },
];

/// The device of this name.
pub fn find(name: &str) -> Option<&'static DeviceEntry> {
    DEVICES.iter().copied().find(|d| d.name == name)
}
