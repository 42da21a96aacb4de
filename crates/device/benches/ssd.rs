//! Speed of the SSD and the zoned model: `cargo bench -p wp-device --bench ssd [-- --json]
//! [-- CASE]`.
//!
//! Drives the device alone, at queue depth 32, with contents kept, and counts requests per second
//! of CPU time. Latencies beside it are of virtual time, quantiles to 3 %.
//!
//! The rows `p16` are of the drive that other simulators were timed with, and have their rates
//! beside them: the best of MQSim, SimpleSSD and DiskSim with its SSD extension, on another machine
//! of the same kind, as requests per CPU second.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use wp_base::event::{Flags, Op};
use wp_base::{Rng, Sector, Time};
use wp_block::{Admit, DevRequest, DeviceModel, Effects};
use wp_device::ssd::{Ssd, SsdConfig};
use wp_device::{Settings, find};
use wp_medium::{Page, Slice};

// As in the command: what is measured is what runs there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DEPTH: u64 = 32;
/// Runs of a case; the best counts, the others met a busy machine.
const RUNS: u32 = 3;

/// How often each latency occurred, in 32 steps an octave.
struct Latencies {
    counts: Vec<u64>,
    max_ns: u64,
}

impl Latencies {
    fn new() -> Latencies {
        Latencies { counts: vec![0; 64 * 32], max_ns: 0 }
    }

    fn note(&mut self, ns: u64) {
        let octave = u64::from(63 - (ns | 32).leading_zeros()) - 5;
        self.counts[(octave * 32 + (ns >> octave)) as usize] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Lower end of the step in which the quantile of so many of 1000 lies.
    fn quantile(&self, permille: u64) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let mut below = 0;
        let step = self.counts.iter().position(|n| {
            below += n;
            below * 1000 >= all * permille
        });
        let step = step.unwrap_or(0) as u64;
        let octave = (step / 32).saturating_sub(1);
        (step - octave * 32) << octave
    }

    fn text(&self) -> String {
        let us = |ns: u64| format!("{}.{}", ns / 1000, ns / 100 % 10);
        let [p50, p99, p999] = [500, 990, 999].map(|q| us(self.quantile(q)));
        format!("p50 {p50}  p99 {p99}  p99.9 {p999}  max {} us", us(self.max_ns))
    }
}

/// The smallest event loop that a device can be driven with.
struct Loop<D: DeviceModel + ?Sized = dyn DeviceModel> {
    timers: BinaryHeap<Reverse<(Time, u64, u64)>>,
    fx: Effects,
    now: Time,
    set: u64,
    id: u64,
    depth: u64,
    flying: u64,
    /// When the request of each number, modulo how many these are, was submitted.
    since: Vec<Time>,
    latencies: Latencies,
    device: Box<D>,
}

impl<D: DeviceModel + ?Sized> Loop<D> {
    fn of(device: Box<D>) -> Loop<D> {
        Loop {
            timers: BinaryHeap::new(),
            fx: Effects::new(),
            now: Time::ZERO,
            set: 0,
            id: 0,
            depth: DEPTH,
            flying: 0,
            // Numbers may be far apart where one request waits for long.
            since: vec![Time::ZERO; 1 << 16],
            latencies: Latencies::new(),
            device,
        }
    }

    fn absorb(&mut self) {
        for (at, token) in self.fx.timers.drain(..) {
            self.set += 1;
            self.timers.push(Reverse((at, self.set, token)));
        }
        for done in self.fx.done.drain(..) {
            assert!(done.status.is_ok());
            self.flying -= 1;
            let since = self.since[done.id as usize % (1 << 16)];
            self.latencies.note(self.now.since(since).0);
        }
    }

    /// Keeps as many requests in flight as the queue is deep until `n` have been submitted, then
    /// waits for all.
    fn run(&mut self, n: u64, mut request: impl FnMut(u64) -> (Op, Sector, u32, Vec<Slice>)) {
        let mut i = 0;
        loop {
            while i < n && self.flying < self.depth {
                let (op, at, sectors, data) = request(i);
                self.id += 1;
                self.since[self.id as usize % (1 << 16)] = self.now;
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
    Loop::of(find(name).expect("in the list").make(&all).expect("a possible device"))
}

/// An SSD of a preset, as one that tells of its memory.
fn ssd(name: &str, replaced: &[(&str, u64)]) -> Loop<Ssd> {
    let mut settings = Settings::of(find(name).expect("in the list").params);
    for (key, value) in replaced {
        settings.set(key, *value).expect("it has this");
    }
    let config = SsdConfig::from_settings(&settings).expect("a possible device");
    Loop::of(Box::new(Ssd::new(config)))
}

fn p16(replaced: &[(&str, u64)]) -> Loop {
    preset("ssd-p16", replaced)
}

/// CPU time of this thread in ns; where the system does not tell, time itself.
fn cpu_ns(start: Instant) -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = told.and_then(|t| t.split_whitespace().next()?.parse().ok());
    first.unwrap_or_else(|| start.elapsed().as_nanos() as u64)
}

/// What a row says.
struct Measured {
    per_cpu_s: u64,
    latencies: Option<Latencies>,
    /// Flash slots written for 1000 of the host, if the device counts them.
    amplification: Option<u64>,
}

/// Slots written by the host and on the flash.
fn slots_written(device: &dyn DeviceModel) -> Option<(u64, u64)> {
    let all = device.counters();
    let of = |name| all.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
    Some((of("host_slots_written")?, of("flash_slots_programmed")?))
}

/// Requests per CPU second of the best of `RUNS` runs of `n` requests on what `make` makes.
fn rate(
    n: u64,
    make: impl FnOnce() -> Loop,
    request: impl FnMut(u64) -> (Op, Sector, u32, Vec<Slice>),
) -> Measured {
    best_of(RUNS, n, make, request)
}

fn best_of(
    runs: u32,
    n: u64,
    make: impl FnOnce() -> Loop,
    mut request: impl FnMut(u64) -> (Op, Sector, u32, Vec<Slice>),
) -> Measured {
    let mut l = make();
    l.latencies = Latencies::new();
    let first = slots_written(&*l.device);
    let mut best = u64::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        let before = cpu_ns(start);
        l.run(n, &mut request);
        best = best.min(cpu_ns(start) - before);
    }
    let amplification = first
        .zip(slots_written(&*l.device))
        .and_then(|(first, last)| ((last.1 - first.1) * 1000).checked_div(last.0 - first.0));
    let per_cpu_s = n * 1_000_000_000 / best.max(1);
    Measured { per_cpu_s, latencies: Some(l.latencies), amplification }
}

fn fill<D: DeviceModel + ?Sized>(l: &mut Loop<D>, bytes: u64) {
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
    let mut rows: Vec<(&str, Measured)> = Vec::new();
    let mut case = |name: &'static str, f: &mut dyn FnMut() -> Measured| {
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
        let per_cpu_s = 20_000 * 1_000_000_000 / (with - plain).max(1);
        Measured { per_cpu_s, latencies: None, amplification: None }
    });
    assert!(forks < usize::MAX);
    compare_with_others(&mut case);

    if json {
        let rows: Vec<String> = rows.iter().map(|(name, m)| json_of(name, m)).collect();
        println!("[{}]", rows.join(","));
        return;
    }
    for (name, m) in rows {
        let latencies = m.latencies.map_or(String::new(), |l| l.text());
        let bar = BARS.iter().find(|b| b.0 == name).map_or(String::new(), |(_, bar, rival)| {
            let met = if m.per_cpu_s >= *bar { "met" } else { "MISSED" };
            format!("  (bar {bar} {met}; best rival {rival})")
        });
        let more = m
            .amplification
            .filter(|n| *n > 1001)
            .map_or(String::new(), |n| format!("  amplification {}.{:02}", n / 1000, n / 10 % 100));
        println!("{name:40} {:>12} per CPU second  {latencies}{more}{bar}", m.per_cpu_s);
    }
    if only.is_none_or(|o| "memory".contains(o.as_str()) || o.contains("p16")) {
        memory_and_start();
    }
}

fn json_of(name: &str, m: &Measured) -> String {
    let latencies = m.latencies.as_ref().map_or(String::new(), |l| {
        let [p50, p99, p999] = [500, 990, 999].map(|q| l.quantile(q));
        let max = l.max_ns;
        format!(",\"latency_ns\":{{\"p50\":{p50},\"p99\":{p99},\"p99.9\":{p999},\"max\":{max}}}")
    });
    let rate = m.per_cpu_s;
    format!("{{\"name\":\"{name}\",\"unit\":\"per_cpu_s\",\"value\":{rate}{latencies}}}")
}

/// (Row, requests per CPU second that it is to reach, those of the best other simulator.)
const BARS: [(&str, u64, u64); 6] = [
    ("p16_read_4k_random_written_so", 1_000_000, 333_000),
    ("p16_read_4k_random_written_in_order", 1_000_000, 333_000),
    ("p16_write_4k_random_fresh", 1_000_000, 182_000),
    ("p16_write_4k_random_gc_full", 300_000, 66_000),
    ("p16_write_4k_random_gc_75_percent", 300_000, 66_000),
    ("p16_write_128k_sequential", 100_000, 50_000),
];

fn compare_with_others(case: &mut dyn FnMut(&'static str, &mut dyn FnMut() -> Measured)) {
    const GIB: u64 = 1 << 30;
    const SLOTS: u64 = 57 * GIB / 4096;
    let pages: Vec<Page> = (0..64u8).map(|i| Page::from_bytes(&[i + 1; 4096])).collect();
    let page = |i: u64| vec![Slice::of_page(pages[(i % 64) as usize].clone(), 0, 4096)];
    let mut rng = Rng::stream(7, "places");
    case("p16_read_4k_random_written_so", &mut || {
        // 8 GiB, nearly all of it written, in no order.
        let span = 8 * GIB / 4096;
        let mut written = Rng::stream(8, "places");
        let make = || {
            let mut l = p16(&[]);
            l.run(3 * span, |i| (Op::Write, Sector(written.below(span) * 8), 8, page(i)));
            l
        };
        rate(1_000_000, make, |_| (Op::Read, Sector(rng.below(span) * 8), 8, Vec::new()))
    });
    case("p16_read_4k_random_written_in_order", &mut || {
        let make = || {
            let mut l = p16(&[]);
            fill(&mut l, 57 * GIB);
            l
        };
        rate(1_000_000, make, |_| (Op::Read, Sector(rng.below(SLOTS) * 8), 8, Vec::new()))
    });
    let mut rng = Rng::stream(9, "places");
    let mut write = move |i| (Op::Write, Sector(rng.below(SLOTS) * 8), 8, page(i));
    case("p16_write_4k_random_fresh", &mut || rate(1_000_000, || p16(&[]), &mut write));
    // The first of an old drive, which write its map down, and when they have.
    let full = || p16(&[("aged_fill", 1000)]);
    case("p16_write_4k_random_old_from_the_start", &mut || best_of(1, 1_000_000, full, &mut write));
    case("p16_write_4k_random_gc_full", &mut || {
        let make = || {
            let mut l = full();
            l.run(2_000_000, &mut write);
            l
        };
        let mut rng = Rng::stream(10, "places");
        rate(1_000_000, make, |i| (Op::Write, Sector(rng.below(SLOTS) * 8), 8, page(i)))
    });
    case("p16_write_4k_random_gc_75_percent", &mut || {
        let mut rng = Rng::stream(11, "places");
        let mut write = move |i| (Op::Write, Sector(rng.below(SLOTS / 4 * 3) * 8), 8, page(i));
        let mut l = p16(&[("aged_fill", 750)]);
        l.run(2_000_000, &mut write);
        rate(1_000_000, || l, write)
    });
    let mut pass = 1;
    case("p16_write_128k_sequential", &mut || {
        let make = || {
            let mut l = p16(&[]);
            l.depth = 8;
            l
        };
        rate(200_000, make, |i| {
            pass += u64::from(i == 0);
            let data = Slice::pattern(pass, i * (128 << 10), 128 << 10);
            (Op::Write, Sector(i * 256), 256, vec![data])
        })
    });
}

/// Resident memory of the process in KiB, if the system tells.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Memory after so many requests and after four times as many, of a drive whose flash has been
/// written through before the first look; what an old drive costs to begin.
fn memory_and_start() {
    const EIGHTH: [(&str, u64); 2] = [("blocks_per_plane", 32), ("capacity_bytes", 6 << 30)];
    for (name, replaced) in [
        ("ssd-p16 with an eighth of its flash", &EIGHTH[..]),
        ("ssd-p16, old at the start", &[("aged_fill", 1000)][..]),
    ] {
        let mut l = ssd("ssd-p16", replaced);
        let mut rng = Rng::stream(12, "places");
        let mut write = |i: u64| {
            (Op::Write, Sector(rng.below(1 << 20) * 8), 8, vec![Slice::pattern(i, 0, 4096)])
        };
        for n in [5_000_000, 15_000_000] {
            l.run(n, &mut write);
            let (map, all) = (l.device.map_bytes() >> 10, resident_kib());
            println!("{name}, {:>8} requests: map and tree {map} KiB, process {all} KiB", l.id);
        }
    }
    for name in ["ssd-128", "850pro-256", "ssd-p16"] {
        for policy in [0, 2] {
            const TIMES: u64 = 50;
            let start = Instant::now();
            let before = cpu_ns(start);
            for _ in 0..TIMES {
                drop(ssd(name, &[("aged_fill", 1000), ("gc_policy", policy)]));
            }
            let us = (cpu_ns(start) - before) / 1000 / TIMES;
            println!("{name}, gc_policy {policy}: old at the start in {us} us");
        }
    }
}
