//! Speed of the block layer: 4 KiB requests per CPU-second through a queue with a trivial device,
//! 32 tasks, queue depth 32, executor included.
//!
//! `cargo bench -p wp-block [-- --json]`. CPU time, not wall time, so that a busy machine matters
//! little; the best of several runs, since noise only ever adds.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use wp_base::event::{Flags, Op};
use wp_base::rng::mix64;
use wp_base::{Sector, Span, Time};
use wp_block::{
    Admit, Bio, BlockQueue, CrashView, DevRequest, DeviceModel, Done, Effects, ElevatorKind,
    Limits, QueueConfig,
};
use wp_medium::{Medium, Slice};
use wp_rt::{Outcome, Rt};

const REQUESTS: u64 = 1_000_000;
const TASKS: u64 = 32;
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

/// Completes everything after a while, and keeps nothing.
struct Trivial {
    limits: Limits,
    slots: Vec<(u64, Op)>,
    free: Vec<u64>,
}

impl Trivial {
    fn new() -> Trivial {
        let limits = Limits {
            max_sectors: 1024,
            max_segments: 128,
            volatile_cache: true,
            fua: true,
            ..Limits::plain(1 << 30)
        };
        Trivial { limits, slots: vec![(0, Op::Read); 32], free: (0..32).collect() }
    }
}

impl DeviceModel for Trivial {
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn submit(&mut self, now: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        let Some(slot) = self.free.pop() else { return Admit::Busy(rq) };
        self.slots[slot as usize] = (rq.id, rq.op);
        // Out of order, as from a real device.
        fx.timers.push((now + Span(10_000 + rq.at.0 % 4096), slot));
        Admit::Accepted
    }
    fn timer(&mut self, _now: Time, token: u64, fx: &mut Effects) {
        let (id, op) = self.slots[token as usize];
        self.free.push(token);
        let data = if op == Op::Read { vec![Slice::zero(4096)] } else { Vec::new() };
        fx.done.push(Done { id, status: Ok(()), data, appended: None });
    }
    fn crash_view(&self, _now: Time) -> CrashView {
        CrashView { medium: Medium::new(), loss: Vec::new(), zones: None }
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(Trivial::new())
    }
    fn medium(&self) -> Medium {
        Medium::new()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Sector of a task's `i`-th request: anywhere.
fn place(task: u64, i: u64) -> Sector {
    Sector((mix64(task << 40 | i) & ((1 << 26) - 1)) * 8)
}

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    elevator: ElevatorKind,
    op: Op,
}

const CASES: [Case; 4] = [
    Case { name: "noop write", elevator: ElevatorKind::Noop, op: Op::Write },
    Case { name: "noop read", elevator: ElevatorKind::Noop, op: Op::Read },
    Case { name: "cfq write", elevator: ElevatorKind::Cfq, op: Op::Write },
    Case { name: "cfq read", elevator: ElevatorKind::Cfq, op: Op::Read },
];

/// Nanoseconds a request.
fn run(clock: &CpuClock, case: Case) -> f64 {
    let rt = Rt::new(1);
    let config = QueueConfig::linux(4, 6).with_elevator(case.elevator);
    let queue = BlockQueue::new(&rt, config, Box::new(Trivial::new()));
    let done = Rc::new(Cell::new(0u64));
    for task in 0..TASKS {
        let (q, done) = (queue.clone(), done.clone());
        rt.spawn("writer", async move {
            for i in 0..REQUESTS / TASKS {
                let at = place(task, i);
                let bio = match case.op {
                    Op::Read => Bio::read(at, 8, Flags::NONE),
                    _ => Bio::write(at, vec![Slice::pattern(task, i * 4096, 4096)], Flags::SYNC),
                };
                q.submit_wait(bio).await.expect("the device knows no error");
                done.set(done.get() + 1);
            }
        });
    }
    let start = clock.ns();
    assert_eq!(rt.run(), Outcome::Idle);
    let spent = clock.ns() - start;
    assert_eq!(done.get(), REQUESTS);
    rt.cut();
    spent as f64 / REQUESTS as f64
}

fn main() {
    // `cargo test --benches` runs this too, without `--bench`: then only once and short of
    // statistics.
    let json = std::env::args().any(|a| a == "--json");
    let runs = if std::env::args().any(|a| a == "--bench") { RUNS } else { 1 };
    let clock = CpuClock::new();
    let mut rows = Vec::new();
    for case in CASES {
        let ns = (0..runs).map(|_| run(&clock, case)).fold(f64::INFINITY, f64::min);
        let per_second = (1e9 / ns) as u64;
        if !json {
            println!(
                "block: {}: {per_second} requests per CPU-second ({ns:.1} ns each)",
                case.name
            );
        }
        rows.push(format!(
            "{{\"case\":\"{}\",\"ns_per_request\":{ns:.1},\
             \"requests_per_cpu_second\":{per_second}}}",
            case.name
        ));
    }
    if json {
        println!("{{\"bench\":\"block\",\"results\":[{}]}}", rows.join(","));
    }
}
