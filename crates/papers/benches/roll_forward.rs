//! F2FS's roll-forward of what varmail leaves on a zoned drive, without and with the check of
//! order-preserving recovery (paper f2fs-oprw): nodes of the chain per CPU-second.
//!
//! `cargo bench -p wp-papers --bench roll_forward [-- --json]`.

/// Nodes of the chain.
const NODES: u64 = 10_000;
/// Runs, of which the best counts.
const RUNS: usize = 3;

#[global_allocator]
static ALLOCATOR: wp_machine::memory::Allocator = wp_machine::memory::Allocator;

/// Nanoseconds of CPU time of this thread, so that a busy machine matters little.
fn cpu_ns() -> u64 {
    // The kernel counts at its ticks, every 4 ms, and where a thread gives way.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("this kernel has schedstat")
}

fn main() {
    wp_machine::memory::keep_freed();
    let chain = wp_papers::f2fs_oprw::chain(1, NODES).expect("varmail runs");
    let nodes = |oprw: bool| {
        let once = |_| {
            let begin = cpu_ns();
            let nodes = chain.recover(oprw).expect("it recovers");
            assert!(u64::from(nodes).abs_diff(NODES) <= 2, "{nodes} nodes");
            f64::from(nodes) * 1e9 / (cpu_ns() - begin) as f64
        };
        (0..RUNS).map(once).fold(0.0, f64::max)
    };
    let (plain, checked) = (nodes(false), nodes(true));
    if std::env::args().any(|a| a == "--json") {
        let (key, rate) = ("f2fs_roll_forward", "per_s");
        println!("{{\"{key}_{rate}\": {plain:.0}, \"{key}_oprw_{rate}\": {checked:.0}}}");
    } else {
        println!("roll-forward after varmail (a node of 10,000) {plain:>10.0}");
        println!("the same with the check of write pointers     {checked:>10.0}");
    }
}
