//! Requests per CPU-second through block layer and SSD model together, contents kept.
//!
//! `cargo bench -p wp-machine --bench stack [-- --json]`. 32 tasks keep one 4 KiB request each in
//! flight on preset `ssd-128`: random reads of what was written, and random writes of fresh
//! contents by reference.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{Rng, Sector};
use wp_block::{Bio, BlockQueue, ElevatorKind, QueueConfig};
use wp_medium::Slice;
use wp_rt::Rt;

#[global_allocator]
static ALLOCATOR: wp_machine::memory::Allocator = wp_machine::memory::Allocator;

const TASKS: u64 = 32;
const PER_TASK: u64 = 20_000;
/// Pages that the requests go to: 4 GiB.
const PAGES: u64 = 1 << 20;

/// Nanoseconds of CPU time of this thread, so that a busy machine matters little.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("this kernel has schedstat")
}

fn queue(rt: &Rt) -> Rc<BlockQueue> {
    let device = wp_device::find("ssd-128").expect("a preset").make(&[]).expect("a device");
    BlockQueue::new(rt, QueueConfig::linux(4, 6).with_elevator(ElevatorKind::Noop), device)
}

fn measure(write: bool) -> f64 {
    let rt = Rt::new(1);
    let q = queue(&rt);
    let fill = q.clone();
    rt.block_on("fill", async move {
        for i in 0..PAGES / 64 {
            let segs = (0..64).map(|p| Slice::pattern(1, (i * 64 + p) * 4096, 4096)).collect();
            fill.submit_wait(Bio::write(Sector(i * 512), segs, Flags::NONE))
                .await
                .expect("written");
        }
    })
    .expect("fills");
    let begin = cpu_ns();
    for t in 0..TASKS {
        let (q, mut rng) = (q.clone(), Rng::stream(t, "bench"));
        drop(rt.spawn("io", async move {
            for n in 0..PER_TASK {
                let page = rng.below(PAGES);
                let at = Sector(page * 8);
                if write {
                    let data = Slice::pattern(2 + t, n * 4096, 4096);
                    let bio = Bio::write(at, vec![data], Flags::NONE);
                    q.submit_wait(bio).await.expect("written");
                } else {
                    let got = q.submit_wait(Bio::read(at, 8, Flags::NONE)).await.expect("read");
                    assert_eq!(got[0].offset(), page * 4096, "contents are kept");
                }
            }
        }));
    }
    rt.run();
    let rate = (TASKS * PER_TASK) as f64 * 1e9 / (cpu_ns() - begin) as f64;
    drop(q);
    rt.cut();
    rate
}

fn main() {
    wp_machine::memory::keep_freed();
    let best = |write| (0..5).map(|_| measure(write)).fold(0.0, f64::max);
    let (read, write) = (best(false), best(true));
    if std::env::args().any(|a| a == "--json") {
        println!("{{\"read_per_s\": {read:.0}, \"write_per_s\": {write:.0}}}");
    } else {
        println!("block layer + SSD, 4 KiB random, QD 32, contents kept:");
        println!("  reads  {read:>10.0} per CPU-second");
        println!("  writes {write:>10.0} per CPU-second");
    }
}
