//! What a full device costs: 512 GB written in order with one pattern, contents kept.
//!
//! `cargo bench -p wp-machine --bench fill [-- --json]`.

use wp_base::event::Flags;
use wp_base::{SECTOR_BYTES, Sector, Span};
use wp_block::{Bio, BlockQueue, ElevatorKind, QueueConfig};
use wp_medium::Slice;
use wp_rt::Rt;

const BYTES: u64 = 512_110_190_592;
/// The largest request of the preset.
const REQUEST: u64 = 512 * 1024;

/// Memory of this process, in MiB.
fn resident_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("Linux tells");
    (pages * 4096) >> 20
}

fn main() {
    let before = resident_mib();
    let rt = Rt::new(1);
    // Four times the flash of the 128 GB drive.
    let params = [("capacity_bytes", BYTES), ("blocks_per_plane", 8192)];
    let device = wp_device::find("ssd-128").expect("a preset").make(&params).expect("a device");
    let config = QueueConfig::linux(4, 6).with_elevator(ElevatorKind::Noop);
    let queue = BlockQueue::new(&rt, config, device);
    let (q, rt2) = (queue.clone(), rt.clone());
    rt.block_on("fill", async move {
        let mut at = 0;
        while at < BYTES {
            let n = REQUEST.min(BYTES - at);
            let segs = (0..n / 4096).map(|p| Slice::pattern(1, at + p * 4096, 4096)).collect();
            q.submit_throttled(Bio::write(Sector(at / SECTOR_BYTES), segs, Flags::NONE)).await;
            at += n;
        }
        while q.pending() > 0 {
            rt2.sleep(Span::millis(1)).await;
        }
        q.flush().await.expect("flushed");
        let last = q.submit_wait(Bio::read(Sector((BYTES - 4096) / SECTOR_BYTES), 8, Flags::NONE));
        assert_eq!(last.await.expect("read")[0], Slice::pattern(1, BYTES - 4096, 4096));
    })
    .expect("fills");
    let (full, simulated) = (resident_mib(), rt.now().secs());
    if std::env::args().any(|a| a == "--json") {
        println!("{{\"resident_mib_before\": {before}, \"resident_mib_full\": {full}}}");
    } else {
        println!(
            "512 GB written in order: {full} MiB resident ({before} before), {simulated} s of virtual time"
        );
    }
    drop(queue);
    rt.cut();
}
