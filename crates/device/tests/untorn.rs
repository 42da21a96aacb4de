//! Writes that a drive keeps whole: requests that it refuses, and what a power cut leaves.

use crate::common::{World, small_config};
use wp_base::event::{Flags, Op};
use wp_base::{Rng, Sector};
use wp_block::{DeviceModel, Status};
use wp_device::find;
use wp_device::ssd::Ssd;
use wp_medium::Slice;

const PAGE: u32 = 16 << 10;
const PAGE_SECTORS: u64 = 32;
const PAGES: u64 = 6;
/// Behind the pages: single blocks, so that units fill oddly.
const NOISE: u64 = PAGES * PAGE_SECTORS;

fn fixed(more: &[(&str, u64)]) -> Result<Box<dyn DeviceModel>, wp_device::ConfigError> {
    find("fixed").expect("in the list").make(more)
}

#[test]
fn an_untorn_write_that_is_too_long_or_crosses_the_boundary_is_refused() {
    let drive = fixed(&[("atomic_bytes", 16 << 10), ("atomic_boundary_bytes", 16 << 10)]);
    let mut w = World::new(drive.expect("a possible device"));
    let mut answer = |flags, at, bytes: u32| {
        let data = vec![Slice::pattern(1, 0, bytes)];
        let id = w.submit(Op::Write, flags, at, bytes / 512, data);
        w.wait(id).1.status
    };
    assert_eq!(answer(Flags::ATOMIC, 32, PAGE), Ok(()));
    assert_eq!(answer(Flags::ATOMIC, 40, PAGE), Err(Status::Invalid), "it crosses");
    assert_eq!(answer(Flags::ATOMIC, 32, 2 * PAGE), Err(Status::Invalid), "it is too long");
    assert_eq!(answer(Flags::NONE, 40, 2 * PAGE), Ok(()), "nothing is promised of it");
}

#[test]
fn promises_that_no_drive_can_keep_are_refused_by_name() {
    let why = |more: &[(&str, u64)]| fixed(more).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(why(&[("atomic_bytes", 1000)]).starts_with("atomic_bytes = 1000: must be whole"));
    assert!(why(&[("atomic_bytes", 2 << 20)]).contains("up to 1 MiB"));
    let short = [("atomic_bytes", 8192), ("max_request_sectors", 8)];
    assert!(why(&short).contains("must not be more than max_request_sectors, 4096 bytes"));
    assert!(why(&[("atomic_boundary_bytes", 8192)]).contains("means nothing without"));
    let odd = [("atomic_bytes", 8192), ("atomic_boundary_bytes", 12 << 10)];
    assert!(why(&odd).starts_with("atomic_boundary_bytes = 12288: must be 0 or a power of two"));
    let unit = small_config(&[("atomic_bytes", 16 << 10)]).err().map(|e| e.to_string());
    assert!(unit.unwrap_or_default().contains("a program unit less 4 KiB"));
}

/// The largest unit that cannot tear is not larger than what is promised.
#[test]
fn a_drive_that_promises_a_sector_has_physical_blocks_of_one() {
    let drive = fixed(&[("atomic_bytes", 512)]).expect("a possible device");
    assert_eq!(drive.limits().physical_bytes, 512);
    assert_eq!(fixed(&[]).expect("a possible device").limits().physical_bytes, 4096);
}

/// States of pages that are neither old nor new, of all states seen, after seeded writes.
fn torn(seed: u64, more: &[(&str, u64)]) -> (u64, u64) {
    let config = small_config(more).expect("a possible device");
    let mut w: World<Ssd> = World::new(Box::new(Ssd::new(config)));
    let mut rng = Rng::stream(seed, "untorn");
    let mut versions = [0u64; PAGES as usize];
    let (mut states, mut torn) = (0, 0);
    let page = |version: u64| match version {
        0 => vec![0; PAGE as usize],
        v => Slice::pattern(v, 0, PAGE).to_vec(),
    };
    for _ in 0..60 {
        let n = rng.below(PAGES);
        versions[n as usize] += 1;
        w.write(n * PAGE_SECTORS, Slice::pattern(versions[n as usize], 0, PAGE));
        for _ in 0..rng.below(3) {
            w.write(NOISE + 8 * rng.below(20), Slice::pattern(99, 0, 4096));
        }
        if rng.below(6) == 0 {
            w.flush();
        }
        for _ in 0..rng.below(12) {
            w.step();
            let view = w.device.crash_view(w.now);
            for _ in 0..8 {
                let mut medium = view.medium.clone();
                view.loss.iter().filter(|_| rng.below(2) == 0).for_each(|u| u.apply(&mut medium));
                states += 1;
                for (n, newest) in (0u64..).zip(versions) {
                    let mut seen = vec![0; PAGE as usize];
                    medium.read_bytes(Sector(n * PAGE_SECTORS).bytes(), &mut seen);
                    torn += u64::from(!(0..=newest).any(|v| page(v) == seen));
                }
            }
        }
        w.drain();
    }
    (states, torn)
}

#[test]
fn an_ssd_tears_no_page_that_it_promises_and_others_at_times() {
    let promise = [("atomic_bytes", 16 << 10), ("atomic_boundary_bytes", 16 << 10)];
    let (mut plain_torn, mut all) = (0, 0);
    for seed in 0..4 {
        let (states, with) = torn(seed, &promise);
        assert!(states > 500, "{states} states");
        assert_eq!(with, 0, "seed {seed}");
        plain_torn += torn(seed, &[]).1;
        all += states;
    }
    assert!(plain_torn > 0, "no torn page in {all} states without the promise");
}
