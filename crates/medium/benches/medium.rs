//! Speed of the medium: `cargo bench -p wp-medium --bench medium [-- --json]`.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::time::Instant;

use wp_base::{Rng, Sector};
use wp_medium::{Medium, Page, Slice};

/// Pages of the device under test: 128 GB.
const PAGES: u64 = 128_000_000_000 / 4096;
/// How often each case is repeated; the best run counts, the others met a busy machine.
const RUNS: u32 = 5;

/// Nanoseconds per call of `f`, which is given the call's index; best of [`RUNS`].
fn measure(calls: u64, mut f: impl FnMut(u64)) -> u64 {
    (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(&mut f);
            start.elapsed().as_nanos() as u64 / calls
        })
        .min()
        .unwrap_or(0)
}

fn main() {
    let json = std::env::args().any(|a| a == "--json");
    let mut rng = Rng::stream(1, "bench");
    let places: Vec<Sector> = (0..100_000).map(|_| Sector(rng.below(PAGES) * 8)).collect();
    let place = |i: u64| places[i as usize % places.len()];
    let page = Page::from_bytes(b"x");
    let bytes = |i: u64| {
        // Two pages by turns, so that no node ever collapses.
        if i.is_multiple_of(2) {
            Slice::of_page(page.clone(), 0, 4096)
        } else {
            Slice::pattern(i, 0, 4096)
        }
    };
    let mut m = Medium::new();
    (0..100_000).for_each(|i| m.write(place(i), &bytes(i)));
    let mut rows: Vec<(&str, &str, u64)> = Vec::new();

    rows.push(("clone", "ns", measure(1_000_000, |_| drop(black_box(m.clone())))));
    let ns = measure(100_000, |i| m.write(place(i), &bytes(i + 1)));
    rows.push(("write_4k_random", "ns", ns));
    rows.push(("write_4k_random", "per_s", 1_000_000_000 / ns.max(1)));
    let mut fork = m.clone();
    rows.push((
        "write_4k_random_after_a_clone_each",
        "ns",
        measure(100_000, |i| {
            fork = m.clone();
            m.write(place(i), &bytes(i));
        }),
    ));
    rows.push(("read_4k_random", "ns", measure(100_000, |i| drop(black_box(m.read(place(i), 8))))));
    // Dense: a region of 1 GiB, every page held, so that leaves' nodes are full.
    let mut d = Medium::new();
    (0..1u64 << 18).for_each(|i| d.write(Sector(i * 8), &bytes(i)));
    let near = |i: u64| Sector(place(i).0 % (1 << 21) / 8 * 8);
    rows.push((
        "write_4k_random_dense",
        "ns",
        measure(100_000, |i| d.write(near(i), &bytes(i + 1))),
    ));
    rows.push((
        "read_4k_random_dense",
        "ns",
        measure(100_000, |i| drop(black_box(d.read(near(i), 8)))),
    ));
    let mut fork = d.clone();
    rows.push((
        "write_4k_random_dense_after_a_clone_each",
        "ns",
        measure(100_000, |i| {
            fork = d.clone();
            d.write(near(i), &bytes(i));
        }),
    ));
    let mut s = Medium::new();
    rows.push((
        "write_128k_sequential_pattern",
        "ns",
        measure(1_000_000, |i| s.write(Sector(i * 256), &Slice::pattern(1, i << 17, 1 << 17))),
    ));
    rows.push(("nodes_after_sequential_fill", "nodes", s.memory_nodes() as u64));

    if json {
        let rows: Vec<String> = rows
            .iter()
            .map(|(name, unit, v)| {
                format!("{{\"name\":\"{name}\",\"unit\":\"{unit}\",\"value\":{v}}}")
            })
            .collect();
        println!("[{}]", rows.join(","));
    } else {
        for (name, unit, v) in rows {
            println!("{name:40} {v:>12} {unit}");
        }
    }
}
