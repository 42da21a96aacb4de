//! Presets and what is refused.

use crate::common::{World, bytes, small_config};
use wp_base::event::{Flags, Op};
use wp_block::DeviceModel;
use wp_device::{DEVICES, find};
use wp_medium::Slice;

#[test]
fn every_preset_makes_a_device_that_reads_back_what_it_wrote() {
    for entry in DEVICES {
        let mut w = World::new(entry.make(&[]).unwrap_or_else(|e| panic!("{}: {e}", entry.name)));
        let id = w.submit(Op::Write, Flags::NONE, 80, 8, vec![Slice::pattern(1, 0, 4096)]);
        w.wait(id);
        let id = w.flush();
        w.wait(id);
        let id = w.read(80, 8);
        assert_eq!(
            bytes(&w.wait(id).1.data),
            Slice::pattern(1, 0, 4096).to_vec(),
            "{}",
            entry.name
        );
        let view = w.device.crash_view(w.now);
        assert_eq!(view.medium.runs().count(), 1, "{}", entry.name);
        assert!(view.loss.is_empty());
    }
}

#[test]
fn every_number_has_a_unit_and_a_source() {
    for entry in DEVICES {
        for p in entry.params {
            assert!(
                ["bytes", "ns", "MB/s", "sectors", "count", "permille", "switch", "choice"]
                    .contains(&p.unit),
                "{}",
                p.name
            );
            assert!(p.source.len() >= 7, "{} of {}", p.name, entry.name);
            assert_eq!(entry.params.iter().filter(|q| q.name == p.name).count(), 1, "{}", p.name);
        }
        assert!(std::ptr::eq(*entry, find(entry.name).expect("it is in the list")));
    }
}

#[test]
fn devices_without_fua_and_with_a_volatile_cache_are_what_linux_sees() {
    let of = |name: &str| *find(name).expect("in the list").make(&[]).expect("possible").limits();
    assert!(of("fixed").fua && of("fixed").volatile_cache);
    for name in ["sata-disk-nofua", "ssd-128", "ssd-128-plp", "840pro-128", "850pro-256"] {
        assert!(!of(name).flush_beside_others, "{name} is a SATA disk");
    }
    assert!(of("fixed").flush_beside_others && of("emmc-5.1").barrier);
    for name in ["fixed-nofua", "sata-disk-nofua", "ssd-128"] {
        assert!(!of(name).fua && of(name).volatile_cache, "{name}");
    }
    assert_eq!(of("sata-disk-nofua").queue_depth, 31);
    assert_eq!(of("ssd-128").sectors, 250_069_680);
    assert_eq!(of("850pro-256").sectors, 500_118_192);
    assert!(!of("ssd-128-plp").volatile_cache, "nothing that a flush would have to save");
}

#[test]
fn rated_drives_write_in_sequence_at_their_rated_speed() {
    for (name, rated_mb_s) in [("ssd-128", 390), ("840pro-128", 390), ("850pro-256", 520)] {
        let mut w = World::new(find(name).expect("in the list").make(&[]).expect("possible"));
        let (each, all) = (1024u64, 1000u64);
        let submit = |w: &mut World<dyn DeviceModel>, i: u64| {
            let data: Vec<Slice> =
                (0..each / 8).map(|p| Slice::pattern(1, (i * each / 8 + p) * 4096, 4096)).collect();
            w.submit(Op::Write, Flags::NONE, i * each, each as u32, data)
        };
        let mut flying: Vec<u64> = (0..16).map(|i| submit(&mut w, i)).collect();
        for i in 16..all {
            w.wait(flying.remove(0));
            flying.push(submit(&mut w, i));
        }
        flying.into_iter().for_each(|id| drop(w.wait(id)));
        let mb_s = all * each * 512 * 1000 / w.now.0;
        let band = rated_mb_s * 97 / 100..=rated_mb_s * 103 / 100;
        assert!(band.contains(&mb_s), "{name}: {mb_s} MB/s, rated {rated_mb_s}");
    }
}

#[test]
fn impossible_devices_are_refused_by_name_value_and_reason() {
    let cases: [(&str, u64, &str); 14] = [
        ("channels", 0, "from 1 to"),
        ("page_bytes", 6000, "multiple of 4096"),
        ("pages_per_program", 3, ""),
        ("pages_per_block", 0, "from 1 to"),
        ("blocks_per_plane", 4, "gc_low_superblocks + 3"),
        ("blocks_per_plane", 1 << 20, ""),
        ("capacity_bytes", 4096 * 2560, "garbage collection"),
        ("capacity_bytes", 1000, "multiple of 4096"),
        ("buffer_bytes", 4096 * 20, "largest request"),
        ("buffer_bytes", 1_000_000, "multiple of 4096"),
        ("gc_low_superblocks", 1, "at least 2"),
        ("bus_mb_s", 0, "from 1 to"),
        ("plp", 2, "0 or 1"),
        ("chanels", 2, ""),
    ];
    for (key, value, reason) in cases {
        let replaced = [(key, value)];
        if key == "chanels" {
            let error =
                find("ssd-128").expect("in the list").make(&replaced).err().expect("no such key");
            assert!(error.to_string().contains("channels"), "{error}");
            continue;
        }
        match small_config(&replaced) {
            Ok(_) => {
                assert_eq!(
                    (key, value),
                    ("blocks_per_plane", 1 << 20),
                    "{key} = {value} is accepted"
                )
            }
            Err(e) => {
                let named = [key, "pages_per_block"].contains(&e.key.as_str());
                assert!(named && e.reason.contains(reason), "{key} = {value}: {e}");
            }
        }
    }
    // More slots than addresses.
    let error = small_config(&[("blocks_per_plane", 1 << 20), ("pages_per_block", 4096)])
        .expect_err("too large");
    assert_eq!(error.key, "blocks_per_plane");
}

#[test]
fn the_840_pro_does_its_rated_random_commands_at_depth_1() {
    let mut w = World::new(find("840pro-128").expect("in the list").make(&[]).expect("possible"));
    let at = |i: u64| (i * 7919 % 1000) * 1024;
    let mut per_second = |op: Op| {
        let start = w.now;
        for i in 0..1000 {
            let data = if op == Op::Write { vec![Slice::pattern(i, 0, 4096)] } else { Vec::new() };
            let id = w.submit(op, Flags::NONE, at(i), 8, data);
            w.wait(id);
        }
        1000 * 1_000_000_000 / w.now.since(start).0
    };
    let (writes, reads) = (per_second(Op::Write), per_second(Op::Read));
    assert!((30_000..=32_000).contains(&writes), "{writes} writes/s");
    assert!((9_700..=10_100).contains(&reads), "{reads} reads/s");
}
