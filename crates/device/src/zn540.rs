//! The WD Ultrastar DC ZN540 1 TB, and a drive that does not exist: its 4 TB twin without
//! capacitors.
//!
//! Sizes are the drive's own. Times are fitted as a whole to one half of the published measurements
//! of the real drive (`writepath device zn540` prints the errors on both halves); what each stands
//! for and what shows it is in its source.

use crate::config::Param;
use crate::preset::{p, replaced};

const PRINTED: &str =
    "printed by the measuring tool of stonet-research/NVMeBenchmarks (CLUSTER'23)";
const DIES: &str =
    "fitted: random reads by depth; 32 dies x 359 x 96 KiB is a zone's capacity exactly";
const UNIT: &str =
    "NVMeVirt's configuration of this drive: 32 KiB pages, 96 KiB programmed at once (TLC)";

pub(crate) const ZN540: [Param; 52] = [
    p("zone_bytes", 2 << 30, "bytes", PRINTED),
    p(
        "conventional_zones",
        2,
        "count",
        "the drive has a separate conventional namespace; here it is the first zones of the device",
    ),
    p("max_open_zones", 14, "count", "as the study's jobs set it"),
    p("max_active_zones", 14, "count", "as the study's jobs set it"),
    p("append_max_sectors", 256, "sectors", "largest measured append: 128 KiB"),
    p("queue_depth", 7168, "count", "assumed: 14 queues of 512, the largest measured depth"),
    p("max_request_sectors", 256, "sectors", "largest measured request: 128 KiB"),
    p("max_segments", 128, "count", "Linux nvme: NVME_MAX_SEGS"),
    p("fua", 1, "switch", "NVMe has FUA"),
    p("plp", 1, "switch", "data-center drive with power-loss protection (product brief)"),
    p("dies_out_of_order", 0, "switch", "no drive exposes holes below a write pointer"),
    p("link_mb_s", 2_050, "MB/s", "fitted: writes and appends by size at depth 1"),
    p("link_read_mb_s", 2_650, "MB/s", "fitted: 16 KiB random reads stop there"),
    p("command_ns", 2_000, "ns", "fitted: extra time of a second command in flight"),
    p("write_cpu_ns", 2_800, "ns", "fitted: 4 KiB writes to 8 zones"),
    p("read_cpu_ns", 200, "ns", "fitted: random reads at depth 256"),
    p("append_cpu_ns", 2_000, "ns", "fitted: 4 KiB appends at depth 4 and more"),
    p("partial_cpu_ns", 600, "ns", "fitted: 4 KiB appends are slower than those of 8 KiB"),
    p("map_bytes", 8192, "bytes", "fitted: 4 KiB appends are slower than those of 8 KiB"),
    p("write_overhead_ns", 1_400, "ns", "fitted: writes at depth 1"),
    p("append_overhead_ns", 1_450, "ns", "fitted: appends at depth 1, less the controller's time"),
    p("partial_overhead_ns", 2_230, "ns", "fitted: 4 KiB against 8 KiB at depth 1"),
    p("read_overhead_ns", 3_000, "ns", "fitted with read_ns: random reads at depth 1"),
    p("list_ns", 1_500, "ns", "fitted: appends of 16 KiB against 8 KiB (PRP list)"),
    p(
        "flush_overhead_ns",
        2_000,
        "ns",
        "paper f2fs-oprw, table 3.1: 2.12 us on this family, with PLP",
    ),
    p("open_ns", 6_800, "ns", "fitted: explicit open 9.4 us"),
    p("close_ns", 8_100, "ns", "fitted: close 10.9 us"),
    p("report_ns", 20_000, "ns", "assumed"),
    p("finish_ns", 10_800, "ns", "fitted: finish of an empty zone 13.6 us"),
    p(
        "implicit_open_ns",
        2_080,
        "ns",
        "fitted: first write to a zone, against one in an open zone",
    ),
    p("reopen_ns", 3_500, "ns", "fitted: first write to a closed zone"),
    p("reset_ns", 1_610_000, "ns", "fitted: reset of an empty zone"),
    p("reset_mib_ns", 13_700, "ns", "fitted: reset of a zone finished at 1/4, and of a full one"),
    p("reset_open_ns", 3_000_000, "ns", "fitted: reset of a zone at 1/4, not finished"),
    p("reset_slice_ns", 168_000, "ns", "fitted: writes during resets run at 3/8 of their rate"),
    p("reset_unit_ns", 60_000, "ns", "fitted: resets during writes take 1/5 longer"),
    p("buffer_bytes", 5 << 20, "bytes", "fitted: writes of one zone slow down during a reset"),
    p("internal_flush_ns", 0, "ns", "assumed: no background flush"),
    p("internal_flush_free", 0, "switch", "assumed"),
    p("serial_programming", 0, "switch", "dies program in parallel"),
    p("channels", 8, "count", "NVMeVirt's configuration of this drive: 8 x 4 dies"),
    p("dies_per_channel", 4, "count", DIES),
    p("planes", 2, "count", UNIT),
    p("page_bytes", 16_384, "bytes", UNIT),
    p("pages_per_program", 3, "count", UNIT),
    p("pages_per_block", 1077, "count", "zone capacity 1077 MiB over 32 dies of 2 planes"),
    p("blocks_per_plane", 904, "count", PRINTED),
    p("read_ns", 57_700, "ns", "fitted: 4 KiB random read at depth 1"),
    p(
        "program_ns",
        2_480_000,
        "ns",
        "fitted: large writes, 1147 MiB/s, and padding of a finish, 1190 MiB/s",
    ),
    p(
        "erase_ns",
        3_500_000,
        "ns",
        "ConfZNS++'s setting for this drive; no command here waits for an erase",
    ),
    p("bus_mb_s", 500, "MB/s", "fitted: random reads of 16 KiB against 4 KiB at depth 1"),
    p("suspend_ns", 300_000, "ns", "fitted: wait of the slowest 1 % of reads during a finish"),
];

/// Where a parameter stands in [`ZN540`]; checked below.
const PLP: usize = 9;
const ZONES: usize = 46;
const _: () = {
    assert!(matches!(ZN540[PLP].name.as_bytes(), b"plp"));
    assert!(matches!(ZN540[ZONES].name.as_bytes(), b"blocks_per_plane"));
};

const FOUR_TIMES: &str = "hypothetical: four times the zones of the drive of 1 TB";

/// The paper's drive: its number of dies and zones is not published for us, so it is the fitted
/// drive of 1 TB with four times the zones. What one writer of one zone sees is the same.
pub(crate) const ZN540_4TB: [Param; 52] =
    replaced(ZN540, [p("blocks_per_plane", 3616, "count", FOUR_TIMES)]);

/// Hypothetical. The paper's emulator and its drive of 4 TB are not described further; this is the
/// fitted drive of 1 TB with four times the zones and a volatile buffer.
pub(crate) const ZN540_4TB_NO_PLP: [Param; 52] = {
    const TWIN: &str = "hypothetical: the same drive without power-loss protection";
    replaced(ZN540_4TB, [p("plp", 0, "switch", TWIN)])
};
