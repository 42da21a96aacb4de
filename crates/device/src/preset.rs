//! The devices that can be had by name, with the source of every number.

use crate::config::{DeviceEntry, Param, Rated};
use crate::emmc::{Emmc, EmmcConfig};
use crate::fixed::{Fixed, FixedConfig};
use crate::nvme;
use crate::plain::{Plain, PlainConfig};
use crate::ssd::{FTL, SLC, SYNC, Ssd, SsdConfig};
use crate::untorn::UNTORN;
use crate::zn540::{ZN540, ZN540_4TB, ZN540_4TB_NO_PLP};
use crate::zns::{Zns, ZnsConfig};

pub(crate) const fn p(
    name: &'static str,
    value: u64,
    unit: &'static str,
    source: &'static str,
) -> Param {
    Param { name, value, unit, source, interval: None }
}

/// 250,069,680 sectors: what a drive sold as 128 GB has.
const BYTES_128_GB: u64 = 128_035_676_160;
const IDEMA: &str = "IDEMA LBA count for 128 GB (SFF-8447)";
const NULLB_RUN: &str = "set-up of the real-kernel runs in virtual time (null_blk, Linux 6.12)";
const FOR_COMPARISON: &str = "assumed: as large as ssd-128, so that layouts are the same on both";

const NO_BARRIERS: Param = p(
    "barrier_writes",
    0,
    "switch",
    "no standard interface has barrier writes: the BarrierFS paper requires them; its kernel uses \
     bit 2 of byte 1 of SCSI WRITE(10)",
);

/// Why no preset takes a FLUSH of ranges.
pub(crate) const NO_RANGES: &str =
    "no standard interface flushes ranges: the RFLUSH paper's drive does";

/// Why no preset keeps all writes in order.
pub(crate) const NO_OPTR: &str =
    "no drive on sale promises it: the OPTR paper's translation layer does";

const FLUSH_ALONE_SATA: Param = p(
    "flush_beside_others",
    0,
    "switch",
    "SATA FLUSH CACHE is not a queued command: libata drains the queue before it \
     (ata_std_qc_defer)",
);

const FIXED: [Param; 18] = [
    p("capacity_bytes", BYTES_128_GB, "bytes", FOR_COMPARISON),
    p("latency_ns", 15_000, "ns", NULLB_RUN),
    p("queue_depth", 64, "count", "null_blk hw_queue_depth, its default"),
    p("cache_bytes", 64 << 20, "bytes", NULLB_RUN),
    p("fua", 1, "switch", NULLB_RUN),
    p("discard", 1, "switch", "assumed: on, for tests of discards; null_blk's default is off"),
    p("max_request_sectors", 2560, "sectors", "Linux BLK_DEF_MAX_SECTORS (1280 KiB), since 4.3"),
    p("max_segments", 128, "count", "Linux BLK_MAX_SEGMENTS, the default limit"),
    p(
        "physical_block_bytes",
        4096,
        "bytes",
        "assumed: a page, as of most drives; null_blk blocksize",
    ),
    p("flush_beside_others", 1, "switch", "null_blk: a flush is a queued command"),
    p("range_flush", 0, "switch", NO_RANGES),
    p("optr", 0, "switch", NO_OPTR),
    p("zone_bytes", 0, "bytes", "null_blk zoned=0, its default: no zones"),
    p(
        "zone_capacity_bytes",
        0,
        "bytes",
        "null_blk zone_capacity: 0 is the whole zone, its default",
    ),
    p("conventional_zones", 0, "count", "null_blk zone_nr_conv, its default"),
    NO_BARRIERS,
    UNTORN[0],
    UNTORN[1],
];

/// `params` with each of `with` in place of the parameter of its name, which must be there.
pub(crate) const fn replaced<const N: usize, const M: usize>(
    mut params: [Param; N],
    with: [Param; M],
) -> [Param; N] {
    let mut n = 0;
    while n < M {
        let mut i = 0;
        while !is_same(params[i].name.as_bytes(), with[n].name.as_bytes()) {
            i += 1;
        }
        params[i] = with[n];
        n += 1;
    }
    params
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

const FIXED_NOFUA: [Param; 18] =
    replaced(FIXED, [p("fua", 0, "switch", "null_blk fua=0, a configuration of those runs")]);

const SATA_NOFUA: [Param; 13] = [
    p("capacity_bytes", BYTES_128_GB, "bytes", FOR_COMPARISON),
    p("command_ns", 60_000, "ns", "assumed: exit to the emulator and a system call on the host"),
    p("link_mb_s", 1_000, "MB/s", "assumed: copy into the host's page cache"),
    p("flush_ns", 1_000_000, "ns", "assumed: fdatasync of the image on a host SSD"),
    p("writeback_mb_s", 500, "MB/s", "assumed: sequential write of a host SATA SSD"),
    p("queue_depth", 31, "count", "SATA NCQ: 32 tags, one reserved by Linux (ATA_MAX_QUEUE - 1)"),
    p("cache_bytes", 256 << 20, "bytes", "assumed: limit of the host's dirty pages"),
    p("fua", 0, "switch", "libata.fua=0, the default of Linux: SATA disks report no FUA"),
    p("discard", 1, "switch", "QEMU ide-hd with discard=unmap; loop devices punch holes"),
    p("max_request_sectors", 2560, "sectors", "Linux BLK_DEF_MAX_SECTORS (1280 KiB), since 4.3"),
    p("max_segments", 168, "count", "AHCI_MAX_SG of Linux's ahci driver"),
    FLUSH_ALONE_SATA,
    NO_BARRIERS,
];

/// Numbers of an SSD without those of its FTL and of its syncs.
const DRIVE: usize = 30;
/// Numbers of an SSD: those of the drive, then [`FTL`]'s, [`SYNC`]'s, [`SLC`]'s and [`UNTORN`]'s.
pub(crate) const SSD: usize = DRIVE + FTL.len() + SYNC.len() + SLC.len() + UNTORN.len();

const fn with_ftl(drive: [Param; DRIVE]) -> [Param; SSD] {
    let mut all = [FTL[0]; SSD];
    let mut i = 0;
    while i < SSD {
        all[i] = match i.checked_sub(DRIVE) {
            None => drive[i],
            Some(i) if i < FTL.len() => FTL[i],
            Some(i) if i < FTL.len() + SYNC.len() => SYNC[i - FTL.len()],
            Some(i) if i < SSD - DRIVE - UNTORN.len() => SLC[i - FTL.len() - SYNC.len()],
            Some(i) => UNTORN[i - FTL.len() - SYNC.len() - SLC.len()],
        };
        i += 1;
    }
    all
}

const CLASS_840: &str =
    "Samsung 840 Pro class: 8 channels, 21 nm MLC, Toggle 2.0 400 Mb/s (review specifications)";

/// The unnamed 128 GB SATA SSD of the ext4 paper's PC (2013, i7-4770): a drive of that class,
/// fitted to no result.
const SSD_128: [Param; SSD] = with_ftl([
    p("capacity_bytes", BYTES_128_GB, "bytes", IDEMA),
    p("queue_depth", 31, "count", "SATA NCQ: 32 tags, one reserved by Linux (ATA_MAX_QUEUE - 1)"),
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
    p("link_full_duplex", 0, "switch", "SATA is half duplex"),
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
        "assumed: gives, with tR, the class's rated 10 k random reads per second at depth 1",
    ),
    p(
        "write_overhead_ns",
        8_000,
        "ns",
        "assumed: gives the class's rated 36 k random writes per second at depth 1",
    ),
    p("flush_overhead_ns", 330_000, "ns", CLASS_FLUSH).within(50_000, 1_800_000),
    p("discard_overhead_ns", 50_000, "ns", "assumed"),
    p(
        "buffer_bytes",
        4 << 20,
        "bytes",
        "assumed: 16 program units per die; no source gives the size of the write buffer",
    ),
    p("internal_flush_ns", 0, "ns", "assumed: no background flush"),
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
    FLUSH_ALONE_SATA,
    NO_BARRIERS,
]);

/// A named 840 PRO was measured by nobody: the class stands in for it.
const CLASS_FLUSH: &str = "fitted: gives 1.05 ms for a 4 KiB write with FLUSH, the median of ten public \
    values of consumer SATA drives of 2014 to 2021";

/// The paper's drive with power-loss protection: no volatile cache to flush.
const SSD_128_PLP: [Param; SSD] = {
    const FLUSH: &str = "where one is sent (`flush_with_plp`): PM883, 4 KiB writes with its cache on \
        against off (ceph-diskbench b7531a92)";
    replaced(
        SSD_128,
        [
            p("plp", 1, "switch", "hypothetical: the same drive with power-loss protection"),
            p("flush_overhead_ns", 115_000, "ns", FLUSH).within(50_000, 200_000),
        ],
    )
};

/// 500,118,192 sectors: what a drive sold as 256 GB has.
const BYTES_256_GB: u64 = 256_060_514_304;
const RATED_850: &str = "assumed: gives the 850 Pro's rated 520 MB/s sequential write; within MLC \
    V-NAND's 50 MB/s per die";

const FLUSH_850: &str = "fitted: 442.6 direct 4 KiB writes with fsync a second on a 512 GB 850 PRO \
    (centminmod fsync.py b68f1bc4); most: 403 writes with fdatasync a \
    second, label of a figure (FAST'18)";

/// Samsung 850 PRO 256 GB, as a class: rated like the 840 Pro at depth 1 and 32, twice the flash,
/// V-NAND that programs faster (review specifications).
const SSD_850_256: [Param; SSD] = replaced(
    SSD_128,
    [
        p("capacity_bytes", BYTES_256_GB, "bytes", "IDEMA LBA count for 256 GB (SFF-8447)"),
        p("blocks_per_plane", 4096, "count", "256 GiB raw of 256 GB: 7 % spare"),
        p("program_ns", 472_000, "ns", RATED_850),
        p("flush_overhead_ns", 545_000, "ns", FLUSH_850).within(272_500, 1_920_000),
    ],
);

/// Samsung 860 PRO 512 GB, as a class.
const SSD_860_512: [Param; SSD] = replaced(
    SSD_850_256,
    [
        p("capacity_bytes", 512_110_190_592, "bytes", "IDEMA LBA count for 512 GB (SFF-8447)"),
        p("blocks_per_plane", 8192, "count", "512 GiB raw of 512 GB: 7 % spare"),
        p(
            "flush_overhead_ns",
            415_000,
            "ns",
            "fitted: 1033 writes with FLUSH a second (ceph-diskbench b7531a92)",
        )
        .within(400_000, 430_000),
    ],
);

/// Samsung 840 PRO 128 GB, as a class: what its reviews rate, where they tell.
const SSD_840_128: [Param; SSD] = {
    const QD1: &str = "assumed: gives the 840 PRO's rated 31 k random writes per second at depth \
        1 (reviews of the 256 GB drive)";
    const READ: &str = "assumed: gives, with tR, the 840 PRO's rated 9.9 k random reads per \
        second at depth 1 (reviews of the 256 GB drive)";
    replaced(
        SSD_128,
        [p("write_overhead_ns", 14_800, "ns", QD1), p("read_overhead_ns", 13_100, "ns", READ)],
    )
};

/// A rated value that a number of the preset was chosen by.
const fn fitted(test: &'static str, value: f64, unit: &'static str, source: &'static str) -> Rated {
    Rated { test, value, unit, source, fitted: true }
}

/// A rated value that no number of the preset was chosen by: the model predicts it.
const fn free(test: &'static str, value: f64, unit: &'static str, source: &'static str) -> Rated {
    Rated { test, value, unit, source, fitted: false }
}

const REVIEW: &str = "review specification of the drive";
const REVIEW_256: &str = "review specification of the 256 GB drive";

/// Of the 840 PRO; sequential reads and deep queues are its class's. `program_ns`,
/// `read_overhead_ns`, `write_overhead_ns` and `command_ns` were chosen by these four.
const RATED_840: &[Rated] = &[
    fitted("seq1m-q8-write", 390.0, "MB/s", REVIEW),
    fitted("rnd4k-q1-read", 9_900.0, "IOPS", REVIEW_256),
    fitted("rnd4k-q1-write", 31_000.0, "IOPS", REVIEW_256),
    fitted("rnd4k-q32-read", 100_000.0, "IOPS", REVIEW_256),
];

/// Of the 850 PRO 256 GB. `link_mb_s`, `program_ns`, `read_overhead_ns`, `write_overhead_ns` and
/// `command_ns` were chosen by all but the last.
const RATED_850_256: &[Rated] = &[
    fitted("seq1m-q8-read", 550.0, "MB/s", REVIEW),
    fitted("seq1m-q8-write", 520.0, "MB/s", REVIEW),
    fitted("rnd4k-q1-read", 10_000.0, "IOPS", REVIEW),
    fitted("rnd4k-q1-write", 36_000.0, "IOPS", REVIEW),
    fitted("rnd4k-q32-read", 100_000.0, "IOPS", REVIEW),
    free("rnd4k-q32-write", 90_000.0, "IOPS", REVIEW),
];

const P16: &str = "configuration used to time other simulators (MQSim, SimpleSSD)";
const P16_MAP: &str = "the same: 64 GiB raw in 8 channels of 4 dies of 2 planes";

/// The drive that other simulators were timed with, for comparison with them: no product.
pub(crate) const SSD_P16: [Param; SSD] = with_ftl([
    p("capacity_bytes", 57 << 30, "bytes", "64 GiB raw less 10 % spare, in whole GiB"),
    p("queue_depth", 64, "count", "assumed: above the depth of 32 in those runs"),
    p("max_request_sectors", 1024, "sectors", "assumed: 512 KiB"),
    p("max_segments", 128, "count", "Linux NVME_MAX_SEGS is 127 or more; assumed"),
    p("fua", 1, "switch", "NVMe has FUA"),
    p("discard", 1, "switch", "NVMe has DSM deallocate"),
    p("plp", 0, "switch", "assumed: volatile cache"),
    p("link_mb_s", 4_000, "MB/s", "assumed: 4 lanes of 1 GB/s"),
    p("link_full_duplex", 1, "switch", "PCIe is full duplex"),
    p("command_ns", 1_000, "ns", "assumed"),
    p("read_overhead_ns", 1_000, "ns", "assumed"),
    p("write_overhead_ns", 1_000, "ns", "assumed"),
    p("flush_overhead_ns", 10_000, "ns", "assumed"),
    p("discard_overhead_ns", 10_000, "ns", "assumed"),
    p("buffer_bytes", 32 << 20, "bytes", P16),
    p("internal_flush_ns", 0, "ns", "assumed: no background flush"),
    p("channels", 8, "count", P16),
    p("dies_per_channel", 4, "count", P16),
    p("planes", 2, "count", P16),
    p("page_bytes", 16384, "bytes", P16),
    p("pages_per_program", 1, "count", P16),
    p("pages_per_block", 256, "count", "the same: blocks of 4 MiB"),
    p("blocks_per_plane", 256, "count", P16_MAP),
    p("read_ns", 50_000, "ns", P16),
    p("program_ns", 600_000, "ns", P16),
    p("erase_ns", 3_500_000, "ns", P16),
    p("bus_mb_s", 800, "MB/s", "the same: 800 MT/s, 8 bits wide"),
    p("gc_low_superblocks", 4, "count", "assumed"),
    p("flush_beside_others", 1, "switch", "NVMe: a flush is a queued command"),
    NO_BARRIERS,
]);

const RATED_WRITE: &str = "assumed: gives the 128 GB 840 Pro's rated 390 MB/s sequential write; \
    within MLC's 500 to 1300 us";

const MMC_DRIVER: &str =
    "Linux mmc block driver: FUA is a reliable write (MMC_BLK_REL_WR, since 2.6.39)";
const NO_PART: &str = "assumed: no source names the part or gives its figures";

/// The 16 GB eMMC of a Nexus 5 (2013). Its part is not known to us, so but for what the standard
/// and the driver say every number is assumed; none is fitted to a result.
const EMMC_16: [Param; 19] = [
    p(
        "capacity_bytes",
        15_758_000_128,
        "bytes",
        "assumed: as reported by 16 GB parts of that time",
    ),
    p("queue_depth", 1, "count", "eMMC before 5.1 takes one command at a time"),
    p("max_request_sectors", 1024, "sectors", "SDHCI: 512 KiB a request (SDMA boundary)"),
    p("max_segments", 128, "count", "SDHCI_MAX_SEGS of Linux's sdhci driver"),
    p("fua", 1, "switch", MMC_DRIVER),
    p("discard", 1, "switch", "eMMC 4.5 has DISCARD (MMC_CAP_ERASE)"),
    p("barrier", 0, "switch", "cache barriers came with eMMC 5.1"),
    p("bus_mb_s", 200, "MB/s", "HS200 of eMMC 4.5: 8 bits at 200 MHz"),
    p(
        "command_ns",
        80_000,
        "ns",
        "assumed: gives, with tR, about 4 k random reads per second, as phones of 2013 had",
    ),
    p("cache_bytes", 512 << 10, "bytes", NO_PART),
    p("read_ns", 100_000, "ns", "assumed: MLC 40 to 75 us and the controller's map look-up"),
    p("program_ns", 1_300_000, "ns", "assumed: MLC 850 to 2300 us (FEMU), 500 to 1300 (SimpleSSD)"),
    p(
        "program_bytes",
        65_536,
        "bytes",
        "assumed: 2 dies of 2 planes with pages of 16 KiB give about 50 MB/s",
    ),
    p("flush_ns", 300_000, "ns", NO_PART),
    p("barrier_ns", 20_000, "ns", NO_PART),
    p("barriers_max", 8, "count", NO_PART),
    p("discard_ns", 100_000, "ns", NO_PART),
    p(
        "flush_beside_others",
        0,
        "switch",
        "CACHE_FLUSH is a switch command: no other command runs during it",
    ),
    NO_BARRIERS,
];

/// The same with what eMMC 5.1 added: command queue and cache barrier.
const EMMC_51: [Param; 19] = replaced(
    EMMC_16,
    [
        p(
            "queue_depth",
            32,
            "count",
            "eMMC 5.1 CMDQ: up to 32 tasks; Linux supports it since 4.16",
        ),
        p("barrier", 1, "switch", "eMMC 5.1 BARRIER_EN (JESD84-B51 6.6.37)"),
        p("bus_mb_s", 400, "MB/s", "HS400 of eMMC 5.0: both edges of 200 MHz"),
        p(
            "program_ns",
            400_000,
            "ns",
            "fitted: 1351 writes with FLUSH a second (FAST'18 figure 1)",
        ),
        p("flush_ns", 150_000, "ns", "fitted: the same, which does not tell the two apart"),
    ],
);

/// All devices, in the order in which they are listed.
pub static DEVICES: &[&DeviceEntry] = &[
    &DeviceEntry {
        name: "fixed",
        about: "every command takes the same time, commands run in parallel; volatile cache and \
            FUA (Linux null_blk)",
        params: &FIXED,
        build: |s| Ok(Box::new(Fixed::new(FixedConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "fixed-nofua",
        about: "fixed without FUA",
        params: &FIXED_NOFUA,
        build: |s| Ok(Box::new(Fixed::new(FixedConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "sata-disk-nofua",
        about: "one command at a time, volatile cache, no FUA (QEMU's SATA disk, a loop device)",
        params: &SATA_NOFUA,
        build: |s| Ok(Box::new(Plain::new(PlainConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "ssd-128",
        about: "128 GB SATA SSD of 2013: volatile write buffer, no FUA, MLC on 8 channels (the \
            ext4 paper's PC)",
        params: &SSD_128,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "ssd-128-plp",
        about: "ssd-128 with power-loss protection: completed writes are durable",
        params: &SSD_128_PLP,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "840pro-128",
        about: "class of the Samsung 840 PRO 128 GB, not that drive: ssd-128 with its rated \
            speeds at depth 1",
        params: &SSD_840_128,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
        rated: RATED_840,
    },
    &DeviceEntry {
        name: "emmc-16",
        about: "16 GB eMMC 4.5 of 2013: one command at a time, cache, reliable write as FUA (the \
            ext4 paper's Nexus 5)",
        params: &EMMC_16,
        build: |s| Ok(Box::new(Emmc::new(EmmcConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "emmc-5.1",
        about: "emmc-16 with command queue, HS400 and cache barriers",
        params: &EMMC_51,
        build: |s| Ok(Box::new(Emmc::new(EmmcConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "850pro-256",
        about: "class of the Samsung 850 PRO 256 GB (paper journal-conflict), not that drive",
        params: &SSD_850_256,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
        rated: RATED_850_256,
    },
    &DeviceEntry {
        name: "860pro-512",
        about: "class of the Samsung 860 PRO 512 GB, not that drive: 850pro-256 with its time of a \
            FLUSH",
        params: &SSD_860_512,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "ssd-p16",
        about: "57 GiB NVMe SSD, the configuration used to time other simulators; not a product",
        params: &SSD_P16,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
        rated: &[],
    },
    &nvme::DRIVES[0],
    &nvme::DRIVES[1],
    &nvme::DRIVES[2],
    &nvme::DRIVES[3],
    &nvme::DRIVES[4],
    &nvme::DRIVES[5],
    &nvme::DRIVES[6],
    &DeviceEntry {
        name: "zn540",
        about: "zoned SSD WD Ultrastar DC ZN540 1 TB, fitted to measurements of the drive; \
            power-loss protection",
        params: &ZN540,
        build: |s| Ok(Box::new(Zns::new(ZnsConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "zn540-4tb",
        about: "zn540 with four times the zones (paper f2fs-oprw); power-loss protection",
        params: &ZN540_4TB,
        build: |s| Ok(Box::new(Zns::new(ZnsConfig::from_settings(s)?))),
        rated: &[],
    },
    &DeviceEntry {
        name: "zn540-4tb-noplp",
        about: "hypothetical: zn540 with four times the zones and a volatile buffer (paper \
            f2fs-oprw)",
        params: &ZN540_4TB_NO_PLP,
        build: |s| Ok(Box::new(Zns::new(ZnsConfig::from_settings(s)?))),
        rated: &[],
    },
];

/// The device of this name.
pub fn find(name: &str) -> Option<&'static DeviceEntry> {
    DEVICES.iter().copied().find(|d| d.name == name)
}
