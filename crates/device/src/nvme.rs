//! NVMe drives of 2018 to 2024, as classes: what public measurements of their syncs tell.
//!
//! Flash, buffer and collection are those of one imagined drive (`NV`), for nobody publishes them.
//! The rate of the link, the overhead of a write, the time of a program and what a FLUSH takes are
//! each drive's. `devices/sync/points.csv` has the measurements, those that a number was chosen by
//! and those that none was; `writepath device NAME` compares.

use crate::config::{DeviceEntry, Param};
use crate::preset::{SSD, SSD_P16, p, replaced};
use crate::ssd::{Ssd, SsdConfig};

const NV_MAP: &str = "assumed: 32 dies of 4 planes, units of 128 KiB, as TLC drives of 2 TB have";
const SMALLDATUM: &str = "fitted: smalldatum 2025-12, ext4, O_DIRECT 16 KiB, one thread";
const LINK: &str = "rated sequential write of the drive (review specification)";
const PER_CPU: &str = "NVMe: a queue for each CPU (128 on the machine that was measured)";

/// What all have in common.
const NV: [Param; SSD] = replaced(
    SSD_P16,
    [
        p("planes", 4, "count", NV_MAP),
        p("pages_per_program", 2, "count", NV_MAP),
        p("pages_per_block", 256, "count", NV_MAP),
        p("blocks_per_plane", 128, "count", NV_MAP),
        p("bus_mb_s", 2000, "MB/s", "assumed: ONFI 5 or Toggle 5"),
        p("buffer_bytes", 64 << 20, "bytes", "assumed"),
        p("hardware_queues", 128, "count", PER_CPU),
    ],
);

/// 3,907,029,168 sectors.
const BYTES_2_TB: u64 = 2_000_398_934_016;
const IDEMA_2_TB: &str = "IDEMA LBA count for 2 TB (SFF-8447)";
/// Of 256 pages of 16 KiB, in 32 dies of 4 planes: 2 TiB.
const BLOCKS_2_TB: u64 = 4096;
const RAW_2_TB: &str = "assumed: 2 TiB raw of 2 TB, the usual difference";

const N990: [Param; SSD] = replaced(
    NV,
    [
        p("link_mb_s", 4_400, "MB/s", "fitted: smalldatum 2025-12, a write of 2 MiB at depth 1"),
        p("write_overhead_ns", 2_800, "ns", SMALLDATUM),
        p("slc_bytes", 226_000_000_000, "bytes", "assumed: no source was read, no point tells"),
        p("slc_program_ns", 690_000, "ns", SMALLDATUM),
        p(
            "program_ns",
            1_850_000,
            "ns",
            "fitted: smalldatum 2025-12, minutes of writing: median of fdatasync 1.99 ms",
        ),
        p("flush_overhead_ns", 30_000, "ns", SMALLDATUM),
        p("slow_flush_permille", 75, "permille", "fitted: the same, 99th percentile 12.1 ms"),
        p("slow_flush_ns", 10_300_000, "ns", "fitted: the same, mean 2.78 ms"),
        p(
            "slow_flush_slc_full",
            1,
            "switch",
            "smalldatum 2025-12: the fresh drive has no such tail",
        ),
        p("capacity_bytes", BYTES_2_TB, "bytes", IDEMA_2_TB),
        p("blocks_per_plane", BLOCKS_2_TB, "count", RAW_2_TB),
    ],
);

const N990_FULL: [Param; SSD] =
    replaced(N990, [p("slc_used_permille", 1000, "permille", "1000: after minutes of writing")]);

const T500: [Param; SSD] = replaced(
    NV,
    [
        p("link_mb_s", 5_400, "MB/s", "fitted: smalldatum 2025-12, a write of 2 MiB at depth 1"),
        p("write_overhead_ns", 10_200, "ns", SMALLDATUM),
        p("slc_bytes", 700_000_000_000, "bytes", "techpowerup: 4.0 GB/s up to some 700 GB"),
        p("slc_program_ns", 340_000, "ns", SMALLDATUM),
        p("program_ns", 8_300_000, "ns", "fitted: techpowerup, 0.5 GB/s behind the SLC cache"),
        p("capacity_bytes", BYTES_2_TB, "bytes", IDEMA_2_TB),
        p("blocks_per_plane", BLOCKS_2_TB, "count", RAW_2_TB),
        p("flush_overhead_ns", 30_000, "ns", SMALLDATUM),
        p("flush_serial_ns", 325_000, "ns", "fitted: smalldatum 2025-12, fdatasync of 8 jobs"),
        p("flush_holds_writes", 1, "switch", "smalldatum: a write beside FLUSHes takes 1.35 ms"),
    ],
);

const N970: [Param; SSD] = replaced(
    NV,
    [
        p("link_mb_s", 3_400, "MB/s", LINK),
        p(
            "program_ns",
            1_100_000,
            "ns",
            "assumed: half of the 2.19 ms; nothing tells the halves apart",
        ),
        p("flush_overhead_ns", 1_050_000, "ns", "fitted: 456 writes with FLUSH a second"),
        p(
            "flush_serial_ns",
            1_250_000,
            "ns",
            "fitted: 800 writes with FLUSH a second, 2 to 8 jobs",
        ),
        p("slow_flush_permille", 15, "permille", "CJFS: 1 to 2 % of fsyncs take twice as long"),
        p("slow_flush_ns", 2_000_000, "ns", "CJFS: 99th percentile twice the median"),
        p(
            "fua",
            0,
            "switch",
            "FUA of Samsung drives takes a FLUSH or longer (CJFS's data miss with FUA by 1.5)",
        ),
    ],
);

const PM9A3: [Param; SSD] = replaced(
    NV,
    [
        p("plp", 1, "switch", "power-loss protection: write cache off or not volatile"),
        p("link_mb_s", 6_500, "MB/s", LINK),
        p("write_overhead_ns", 8_000, "ns", SMALLDATUM),
        p("program_ns", 2_960_000, "ns", "fitted: saturates at 1.42 GB/s of 16 KiB writes"),
        p("flush_overhead_ns", 5_000, "ns", "assumed"),
    ],
);

const P5520: [Param; SSD] = replaced(
    NV,
    [
        p("plp", 1, "switch", "power-loss protection: write cache not volatile"),
        p("link_mb_s", 4_300, "MB/s", LINK),
        p("write_overhead_ns", 13_200, "ns", "fitted: smalldatum 2025-12, two drives in md RAID 1"),
        p("program_ns", 950_000, "ns", "assumed: rated sequential write of 4.2 GB/s"),
        p("flush_overhead_ns", 5_000, "ns", "assumed"),
    ],
);

const OPTANE: [Param; SSD] = replaced(
    NV,
    [
        p("plp", 1, "switch", "3D XPoint is written in place: no volatile cache is reported"),
        p("link_mb_s", 2_000, "MB/s", LINK),
        p("write_overhead_ns", 13_600, "ns", "fitted: 29 us an open_datasync of 8 KiB"),
        p("program_ns", 20_000, "ns", "assumed: 3D XPoint has no page program"),
        p("read_ns", 8_000, "ns", "assumed: 10 us a read at depth 1 (rated)"),
        p("flush_overhead_ns", 1_000, "ns", "assumed"),
    ],
);

const fn entry(name: &'static str, about: &'static str, params: &'static [Param]) -> DeviceEntry {
    DeviceEntry {
        name,
        about,
        params,
        build: |s| Ok(Box::new(Ssd::new(SsdConfig::from_settings(s)?))),
        rated: &[],
    }
}

/// The drives.
pub(crate) static DRIVES: [DeviceEntry; 7] = [
    entry("990pro-2tb", "class of the Samsung 990 PRO 2 TB, fresh: NVMe, volatile cache", &N990),
    entry(
        "990pro-2tb-full",
        "990pro-2tb after minutes of writing: its SLC cache is full",
        &N990_FULL,
    ),
    entry(
        "t500-2tb",
        "class of the Crucial T500 2 TB: NVMe, volatile cache, one FLUSH at a time",
        &T500,
    ),
    entry(
        "970pro-512",
        "class of the Samsung 970 PRO 512 GB: NVMe, volatile cache, FLUSH for FUA",
        &N970,
    ),
    entry("pm9a3-960", "class of the Samsung PM9A3 960 GB: NVMe, power-loss protection", &PM9A3),
    entry(
        "p5520-3840",
        "class of the Solidigm D7-P5520 3.84 TB: NVMe, power-loss protection",
        &P5520,
    ),
    entry(
        "optane-900p",
        "class of the Intel Optane 900P: NVMe, 3D XPoint, nothing volatile",
        &OPTANE,
    ),
];
