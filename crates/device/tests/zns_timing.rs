//! The zoned device's laws, command by command, and that the same calls give the same effects.

use crate::common::World;
use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{Rng, Time, ZoneState};
use wp_block::DeviceModel;
use wp_device::zns::{Zns, ZnsConfig};
use wp_device::{Settings, find};
use wp_medium::Slice;

fn device(name: &str, more: &[(&str, u64)]) -> Box<Zns> {
    let mut settings = Settings::of(find(name).expect("in the list").params);
    for (key, value) in more {
        settings.set(key, *value).expect("a key");
    }
    Box::new(Zns::new(ZnsConfig::from_settings(&settings).expect("a possible device")))
}

/// First sector of a zone of the ZN540.
fn zone(n: u64) -> u64 {
    n * (2 << 30) / 512
}

fn took(w: &mut World<Zns>, op: Op, flags: Flags, at: u64, slots: u32) -> u64 {
    let data = if op.writes() { vec![Slice::zero(slots * 4096)] } else { Vec::new() };
    let from = w.now;
    let id = w.submit(op, flags, at, slots * 8, data);
    let (to, done) = w.wait(id);
    assert_eq!(done.status, Ok(()), "{op:?} at {at}");
    to.since(from).0
}

#[test]
fn a_command_alone_takes_the_sum_of_its_parts() {
    let mut w = World::new(device("zn540-4tb-noplp", &[]));
    let c = *w.device.config();
    let link = |slots: u64| (slots * 4096 * 1000).div_ceil(u64::from(c.link_mb_s));
    let write = |slots: u64| c.command.0 + link(slots) + c.write_cpu.0 + c.write_overhead.0;
    let partial = c.partial_cpu.0 + c.partial_overhead.0;
    let at = zone(10);
    let first = took(&mut w, Op::Write, Flags::NONE, at, 1);
    assert_eq!(first, write(1) + partial + c.implicit_open.0);
    assert_eq!(took(&mut w, Op::Write, Flags::NONE, at + 8, 2), write(2));
    assert_eq!(took(&mut w, Op::Write, Flags::NONE, at + 24, 4), write(4) + c.list.0);
    let append = took(&mut w, Op::Zone(ZoneOp::Append), Flags::NONE, at, 2);
    assert_eq!(append, write(2) + c.append_cpu.0 + c.append_overhead.0);
    // Nine slots lie in a unit of 24: a flush pads and programs it, a second one finds nothing.
    let flush = took(&mut w, Op::Flush, Flags::NONE, 0, 0);
    let program = c.timing.unit.0 + c.timing.program.0;
    assert_eq!(flush, c.command.0 + program + c.flush_overhead.0);
    assert_eq!((w.count("units_padded"), w.count("slots_padded")), (1, 15));
    let nothing = c.command.0 + c.flush_overhead.0;
    assert_eq!(took(&mut w, Op::Flush, Flags::NONE, 0, 0), nothing);
    let fua = took(&mut w, Op::Write, Flags::FUA, at + 72, 2);
    assert_eq!(fua, write(2) + program);
    // Beyond the pointer there is nothing to read, and nothing is read.
    let reads = w.count("flash_page_rows_read");
    took(&mut w, Op::Read, Flags::NONE, zone(20), 4);
    assert_eq!(w.count("flash_page_rows_read"), reads);
    took(&mut w, Op::Read, Flags::NONE, at, 1);
    assert_eq!(w.count("flash_page_rows_read"), reads + 1);
    let close = took(&mut w, Op::Zone(ZoneOp::Close), Flags::NONE, at, 0);
    assert_eq!(close, c.command.0 + c.close.0);
    let reopened = took(&mut w, Op::Write, Flags::NONE, at + 88, 2);
    assert_eq!(reopened, write(2) + c.reopen.0);
}

#[test]
fn with_capacitors_a_flush_waits_for_nothing_and_a_cut_takes_nothing() {
    let mut w = World::new(device("zn540", &[]));
    let c = *w.device.config();
    assert!(!c.limits.volatile_cache);
    took(&mut w, Op::Write, Flags::FUA, zone(10), 3);
    let flush = took(&mut w, Op::Flush, Flags::NONE, 0, 0);
    assert_eq!((flush, w.count("units_programmed")), (c.command.0 + c.flush_overhead.0, 0));
    let view = w.device.crash_view(w.now);
    assert!(view.loss.is_empty());
    let z = view.zones_of(|_| true)[10];
    assert_eq!((z.wp.0, z.state), (zone(10) + 24, ZoneState::Closed));
}

#[test]
fn a_reset_costs_what_the_host_has_written_and_a_finish_what_it_has_not() {
    let reset = |slots: u32| {
        let mut d = device("zn540", &[]);
        if slots > 0 {
            d.prefill(10, slots);
        }
        let mut w = World::new(d);
        let ns = took(&mut w, Op::Zone(ZoneOp::Reset), Flags::NONE, zone(10), 0);
        assert_eq!(w.device.zones()[10].state, ZoneState::Empty);
        ns
    };
    let full = 275_712;
    let (empty, half, whole) = (reset(0), reset(full / 2), reset(full));
    let c = *device("zn540", &[]).config();
    assert_eq!(empty, c.command.0 + c.reset.0);
    assert_eq!(whole - empty, 1077 * c.reset_mib.0);
    assert_eq!(half - empty, 1077 * c.reset_mib.0 / 2 + c.reset_open.0);
    let finish = |slots: u32| {
        let mut d = device("zn540", &[]);
        d.prefill(10, slots);
        let mut w = World::new(d);
        took(&mut w, Op::Zone(ZoneOp::Finish), Flags::NONE, zone(10), 0)
    };
    // So many units of padding for each of 32 dies.
    for rows in [1u64, 7] {
        let slots = full - rows as u32 * 24 * 32;
        assert_eq!(finish(slots), c.command.0 + rows * c.timing.program.0, "{rows}");
    }
}

#[test]
fn the_same_calls_have_the_same_effects() {
    let run = || {
        let mut w = World::new(device("zn540-4tb-noplp", &[]));
        let mut rng = Rng::stream(5, "zns");
        let mut wps = [0u64; 8];
        for _ in 0..3000 {
            let z = rng.below(8) as usize;
            let slots = 1 + rng.below(8) as u32;
            let at = zone(4 + z as u64) + wps[z];
            wps[z] += u64::from(slots) * 8;
            w.submit(Op::Write, Flags::NONE, at, slots * 8, vec![Slice::zero(slots * 4096)]);
            if rng.below(50) == 0 {
                w.flush();
            }
            let to = w.now + wp_base::Span(rng.below(40_000));
            w.run_to(to);
        }
        w.drain();
        (w.log.clone(), w.device.counters(), w.now)
    };
    let (first, again) = (run(), run());
    assert!(first.2 > Time(1_000_000) && first.0.len() > 3000);
    assert_eq!(first, again);
}

#[test]
fn impossible_numbers_are_refused_by_name() {
    let refused = |key: &str, value: u64| {
        let error = find("zn540").expect("in the list").make(&[(key, value)]).err();
        let text = error.expect("refused").to_string();
        assert!(text.starts_with(&format!("{key} = {value}: ")), "{text}");
    };
    for (key, value) in [
        ("zone_bytes", 1 << 30),
        ("conventional_zones", 904),
        ("max_open_zones", 15),
        ("max_active_zones", 0),
        ("append_max_sectors", 257),
        ("buffer_bytes", 1 << 20),
        ("reset_slice_ns", 0),
        ("plp", 2),
    ] {
        refused(key, value);
    }
}
