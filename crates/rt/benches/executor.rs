//! Speed of the executor: sleep/wake events per CPU-second with 1, 32 and 256 tasks asleep at once.
//!
//! `cargo bench -p wp-rt [-- --json]`. CPU time, not wall time, so that a busy machine matters
//! little; the best of several runs, since noise only ever adds.

use std::time::Instant;

use wp_base::Span;
use wp_rt::{Outcome, Rt};

const EVENTS: u64 = 4_000_000;
const RUNS: usize = 5;

/// Nanoseconds of CPU time of this thread; of wall time where the system does not tell.
struct CpuClock(Instant);

impl CpuClock {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn new() -> CpuClock {
        CpuClock(Instant::now())
    }
    fn ns(&self) -> u64 {
        std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|s| s.split(' ').next().and_then(|ns| ns.parse().ok()))
            .unwrap_or_else(|| u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// One run: `tasks` tasks that sleep for spans drawn from a small set, so that the timers' order
/// keeps changing. Returns nanoseconds an event.
fn sleepers(clock: &CpuClock, tasks: u64) -> f64 {
    let rt = Rt::new(1);
    let rounds = EVENTS / tasks;
    for i in 0..tasks {
        let task = rt.clone();
        rt.spawn("sleeper", async move {
            let mut span = 1_000 + i * 37;
            for _ in 0..rounds {
                task.sleep(Span::nanos(span)).await;
                span = 1_000 + (span * 7 + 13) % 4_096;
            }
        });
    }
    let start = clock.ns();
    assert_eq!(rt.run(), Outcome::Idle);
    let spent = clock.ns() - start;
    let fired = rt.stats().timers_fired;
    rt.cut();
    spent as f64 / fired as f64
}

fn main() {
    // `cargo test --benches` runs this too, with `--test`: then only once and short of statistics.
    let json = std::env::args().any(|a| a == "--json");
    let runs = if std::env::args().any(|a| a == "--bench") { RUNS } else { 1 };
    let clock = CpuClock::new();
    let results: Vec<(u64, f64)> = [1, 32, 256]
        .into_iter()
        .map(|tasks| {
            let best = (0..runs).map(|_| sleepers(&clock, tasks)).fold(f64::INFINITY, f64::min);
            (tasks, best)
        })
        .collect();
    let per_second = |ns: f64| (1e9 / ns) as u64;
    if json {
        let rows: Vec<String> = results
            .iter()
            .map(|(tasks, ns)| {
                format!(
                    "{{\"tasks\":{tasks},\"ns_per_event\":{ns:.1},\"events_per_cpu_second\":{}}}",
                    per_second(*ns)
                )
            })
            .collect();
        println!("{{\"bench\":\"executor\",\"results\":[{}]}}", rows.join(","));
        return;
    }
    for (tasks, ns) in results {
        println!(
            "executor: {} events per CPU-second ({tasks} tasks, {ns:.1} ns an event)",
            per_second(ns)
        );
    }
}
