//! Speed of the SSD and the zoned model: `cargo bench -p wp-device --bench ssd [-- --json]
//! [-- CASE]`.
//!
//! Drives the device alone, at queue depth 32, with contents kept, and counts requests per second
//! of CPU time.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use wp_base::event::{Flags, Op};
use wp_base::{Rng, Sector, Time};
use wp_block::{Admit, DevRequest, DeviceModel, Effects};
use wp_device::find;
use wp_medium::{Page, Slice};

const DEPTH: u64 = 32;
/// Runs of a case; the best counts, the others met a busy machine.
const RUNS: u32 = 3;

/// The smallest event loop that a device can be driven with.
struct Loop {
    device: Box<dyn DeviceModel>,
    timers: BinaryHeap<Reverse<(Time, u64, u64)>>,
    fx: Effects,
    now: Time,
    set: u64,
    id: u64,
    flying: u64,
}

impl Loop {
    fn absorb(&mut self) {
        for (at, token) in self.fx.timers.drain(..) {
            self.set += 1;
            self.timers.push(Reverse((at, self.set, token)));
        }
        for done in self.fx.done.drain(..) {
            assert!(done.status.is_ok());
            self.flying -= 1;
        }
    }

    /// Keeps `DEPTH` requests in flight until `n` have been submitted, then waits for all.
    fn run(&mut self, n: u64, mut request: impl FnMut(u64) -> (Op, Sector, u32, Vec<Slice>)) {
        let mut i = 0;
        loop {
            while i < n && self.flying < DEPTH {
                let (op, at, sectors, data) = request(i);
                self.id += 1;
                let rq = DevRequest { id: self.id, op, flags: Flags::NONE, at, sectors, data };
                match self.device.submit(self.now, rq, &mut self.fx) {
                    Admit::Accepted => self.flying += 1,
                    Admit::Busy(_) => panic!("the queue is deeper than {DEPTH}"),
                }
                i += 1;
                self.absorb();
            }
            if i == n && self.flying == 0 {
                return;
            }
            let Reverse((at, _, token)) = self.timers.pop().expect("requests are in flight");
            self.now = at;
            self.device.timer(at, token, &mut self.fx);
            self.absorb();
        }
    }
}

fn device(replaced: &[(&str, u64)]) -> Loop {
    preset("ssd-128", replaced)
}

fn preset(name: &str, replaced: &[(&str, u64)]) -> Loop {
    let all = [&[("queue_depth", DEPTH)], replaced].concat();
    let device = find(name).expect("in the list").make(&all).expect("a possible device");
    Loop {
        device,
        timers: BinaryHeap::new(),
        fx: Effects::new(),
        now: Time::ZERO,
        set: 0,
        id: 0,
        flying: 0,
    }
}

/// CPU time of this thread in ns; where the system does not tell, time itself.
fn cpu_ns(start: Instant) -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = told.and_then(|t| t.split_whitespace().next()?.parse().ok());
    first.unwrap_or_else(|| start.elapsed().as_nanos() as u64)
}

/// Requests per CPU second of the best of `RUNS` runs of `n` requests on what `make` makes.
fn rate(
    n: u64,
    make: impl FnOnce() -> Loop,
    mut request: impl FnMut(u64) -> (Op, Sector, u32, Vec<Slice>),
) -> u64 {
    let mut l = make();
    let mut best = u64::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        let before = cpu_ns(start);
        l.run(n, &mut request);
        best = best.min(cpu_ns(start) - before);
    }
    n * 1_000_000_000 / best.max(1)
}

fn fill(l: &mut Loop, bytes: u64) {
    let step = 512 * 1024;
    l.run(bytes / step, |i| {
        (
            Op::Write,
            Sector(i * step / 512),
            (step / 512) as u32,
            vec![Slice::pattern(1, i * step, step as u32)],
        )
    });
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let json = args.iter().any(|a| a == "--json");
    let only = args.iter().find(|a| !a.starts_with("--"));
    let pages: Vec<Page> = (0..64u8).map(|i| Page::from_bytes(&[i + 1; 4096])).collect();
    let page = |i: u64| vec![Slice::of_page(pages[(i % 64) as usize].clone(), 0, 4096)];
    const GIB: u64 = 1 << 30;
    let mut rows: Vec<(&str, u64)> = Vec::new();
    let mut case = |name: &'static str, f: &mut dyn FnMut() -> u64| {
        if only.is_none_or(|o| name.contains(o.as_str())) {
            rows.push((name, f()));
        }
    };
    for (read, write, span) in [
        ("read_4k_random_of_4_gib", "write_4k_random_to_4_gib", 4 * GIB),
        ("read_4k_random_of_100_gib", "write_4k_random_to_100_gib", 100 * GIB),
    ] {
        let mut rng = Rng::stream(1, "places");
        let mut place = move || Sector(rng.below(span / 4096) * 8);
        case(read, &mut || {
            let make = || {
                let mut l = device(&[]);
                fill(&mut l, span);
                l
            };
            rate(1_000_000, make, |_| (Op::Read, place(), 8, Vec::new()))
        });
        case(write, &mut || rate(1_000_000, || device(&[]), |i| (Op::Write, place(), 8, page(i))));
    }
    let mut rng = Rng::stream(4, "places");
    case("read_4k_random_of_4_gib_written_so", &mut || {
        let mut written = Rng::stream(5, "places");
        let make = || {
            let mut l = device(&[]);
            l.run(3_000_000, |i| (Op::Write, Sector(written.below(GIB / 1024) * 8), 8, page(i)));
            l
        };
        rate(1_000_000, make, |_| (Op::Read, Sector(rng.below(GIB / 1024) * 8), 8, Vec::new()))
    });
    case("write_4k_sequential", &mut || {
        rate(1_000_000, || device(&[]), |i| (Op::Write, Sector(i * 8), 8, page(i)))
    });
    let large = 128 * 1024u32;
    let mut pass = 1;
    case("write_128k_sequential", &mut || {
        rate(
            200_000,
            || device(&[]),
            |i| {
                // Every pass writes something else, so that nothing is spared.
                pass += u64::from(i == 0);
                (
                    Op::Write,
                    Sector(i * 256),
                    256,
                    vec![Slice::pattern(pass, i * u64::from(large), large)],
                )
            },
        )
    });
    case("read_128k_sequential", &mut || {
        let make = || {
            let mut l = device(&[]);
            fill(&mut l, 30 * GIB);
            l
        };
        rate(200_000, make, |i| (Op::Read, Sector(i * 256), 256, Vec::new()))
    });
    // 4 GiB of 4.3: old, and always short of free blocks.
    let mut rng = Rng::stream(2, "places");
    case("write_4k_random_with_gc", &mut || {
        let make = || {
            let mut l = device(&[("capacity_bytes", 4 * GIB), ("blocks_per_plane", 80)]);
            fill(&mut l, 4 * GIB);
            l.run(2_000_000, |i| {
                (Op::Write, Sector((i * 7_777_777) % (GIB / 1024) * 8), 8, page(i))
            });
            l
        };
        rate(1_000_000, make, |i| (Op::Write, Sector(rng.below(GIB / 1024) * 8), 8, page(i)))
    });
    // Zones of 1077 MiB every 2 GiB, behind the two conventional ones, filled one after the other.
    let in_zone = |n: u64| {
        const BLOCKS: u64 = 275_712;
        Sector((2 + n / BLOCKS) * (2 << 30) / 512 + n % BLOCKS * 8)
    };
    let mut next = 0;
    case("zoned_write_4k_in_order", &mut || {
        rate(
            1_000_000,
            || preset("zn540-4tb-noplp", &[]),
            |i| {
                next += 1;
                (Op::Write, in_zone(next - 1), 8, page(i))
            },
        )
    });
    let mut rng = Rng::stream(6, "places");
    case("zoned_read_4k_random_of_1_gib", &mut || {
        let make = || {
            let mut l = preset("zn540-4tb-noplp", &[]);
            l.run(GIB / 4096, |i| (Op::Write, in_zone(i), 8, page(i)));
            l
        };
        rate(1_000_000, make, |_| (Op::Read, in_zone(rng.below(GIB / 4096)), 8, Vec::new()))
    });
    let mut forks = 0;
    case("forks_with_crash_view_of_a_busy_device", &mut || {
        rate(
            100_000,
            || device(&[]),
            |i| (Op::Write, Sector(i * 77_777 % 200_000_000 / 8 * 8), 8, page(i)),
        );
        let mut l = device(&[]);
        fill(&mut l, GIB);
        let mut rng = Rng::stream(3, "places");
        let start = Instant::now();
        let before = cpu_ns(start);
        l.run(20_000, |i| (Op::Write, Sector(rng.below(30_000_000) * 8), 8, page(i)));
        let plain = cpu_ns(start) - before;
        let before = cpu_ns(start);
        for _ in 0..20_000 {
            l.run(1, |i| (Op::Write, Sector(rng.below(30_000_000) * 8), 8, page(i)));
            let fork = l.device.fork();
            forks += fork.crash_view(l.now).loss.len();
        }
        let with = cpu_ns(start) - before;
        20_000 * 1_000_000_000 / (with - plain).max(1)
    });
    assert!(forks < usize::MAX);

    if json {
        let unit = "per_cpu_s";
        let rows: Vec<String> = rows
            .iter()
            .map(|(name, v)| format!("{{\"name\":\"{name}\",\"unit\":\"{unit}\",\"value\":{v}}}"))
            .collect();
        println!("[{}]", rows.join(","));
    } else {
        for (name, v) in rows {
            println!("{name:40} {v:>12} per CPU second");
        }
    }
}
