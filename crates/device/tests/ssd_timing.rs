//! The SSD against its laws: alone, each request takes what the closed form says; together,
//! throughput is that of the narrowest part.

use crate::common;
use crate::common::{World, bytes, small};
use wp_base::Time;
use wp_base::event::{Flags, Op};
use wp_block::{DeviceModel, Status};
use wp_device::ssd::Ssd;
use wp_medium::Slice;

// Of `common::SMALL`, in ns.
const COMMAND: u64 = 1_000;
const LINK_4K: u64 = 8_000;
const BUS_4K: u64 = 10_240;
const BUS_UNIT: u64 = 4 * BUS_4K;
const READ: u64 = 50_000;
const PROGRAM: u64 = 600_000;
const WRITE: u64 = COMMAND + LINK_4K + 2_000;

fn page(tag: u64) -> Slice {
    Slice::pattern(tag, 0, 4096)
}

/// How long `id` takes from now.
fn takes(world: &mut World<Ssd>, id: u64) -> u64 {
    let start = world.now;
    let (end, done) = world.wait(id);
    assert_eq!(done.status, Ok(()));
    (end - start).0
}

#[test]
fn a_write_completes_when_its_data_are_in_the_buffer() {
    let mut w = small(&[]);
    let id = w.write(0, page(1));
    assert_eq!(takes(&mut w, id), WRITE);
    let id = w.write(800, Slice::pattern(1, 0, 128 * 1024));
    assert_eq!(takes(&mut w, id), COMMAND + 32 * LINK_4K + 2_000);
}

#[test]
fn a_flush_takes_one_program_and_a_clean_one_none() {
    let mut w = small(&[]);
    let id = w.flush();
    assert_eq!(takes(&mut w, id), COMMAND + 500);
    let id = w.write(0, page(1));
    takes(&mut w, id);
    let id = w.flush();
    assert_eq!(takes(&mut w, id), COMMAND + BUS_UNIT + PROGRAM + 500);
    assert_eq!((w.count("units_padded"), w.count("slots_padded")), (1, 3));
    let id = w.flush();
    assert_eq!(takes(&mut w, id), COMMAND + 500);
    assert_eq!(w.count("units_programmed"), 1);
}

#[test]
fn a_fua_write_completes_at_the_end_of_its_program() {
    let mut w = small(&[]);
    let id = w.write_fua(0, page(1));
    assert_eq!(takes(&mut w, id), WRITE + BUS_UNIT + PROGRAM);
    assert_eq!((w.count("units_padded"), w.count("slots_padded")), (1, 3));
    // Seven slots: a whole unit on one die and three of four on the next, on another channel.
    let id = w.write_fua(800, Slice::pattern(1, 0, 7 * 4096));
    assert_eq!(takes(&mut w, id), COMMAND + 7 * LINK_4K + 2_000 + BUS_UNIT + PROGRAM);
    assert_eq!((w.count("units_padded"), w.count("slots_padded")), (2, 4));
}

#[test]
fn a_flush_programs_two_units_of_one_channel_with_their_transfers_apart() {
    let mut w = small(&[]);
    // Three units: dies 0, 1, 2; dies 0 and 2 share channel 0.
    let id = w.write(0, Slice::pattern(1, 0, 9 * 4096));
    let (acked, _) = w.wait(id);
    let id = w.flush();
    let (end, _) = w.wait(id);
    // Die 2's unit is padded by the flush; the transfers of the full ones began at the
    // acknowledgement.
    let full = acked.0 + BUS_UNIT;
    let padded = full.max(acked.0 + COMMAND) + BUS_UNIT + PROGRAM;
    assert_eq!(end.0, padded + 500);
}

#[test]
fn a_read_takes_sensing_and_two_transfers_and_from_the_buffer_only_one() {
    let mut w = small(&[]);
    let id = w.write(0, page(1));
    takes(&mut w, id);
    let id = w.read(0, 8);
    assert_eq!(takes(&mut w, id), COMMAND + LINK_4K + 300);
    assert_eq!(w.count("slots_read_from_buffer"), 1);
    let id = w.flush();
    takes(&mut w, id);
    let id = w.read(0, 8);
    let start = w.now;
    let (end, done) = w.wait(id);
    assert_eq!((end - start).0, COMMAND + READ + BUS_4K + LINK_4K + 300);
    assert_eq!(bytes(&done.data), page(1).to_vec());
    // Never written: nothing to sense.
    let id = w.read(800, 8);
    let start = w.now;
    let (end, done) = w.wait(id);
    assert_eq!((end - start).0, COMMAND + LINK_4K + 300);
    assert_eq!(bytes(&done.data), vec![0; 4096]);
}

#[test]
fn a_part_of_a_slot_is_read_alone_and_written_with_the_rest_of_it() {
    let mut w = small(&[]);
    let id = w.write_fua(0, page(1));
    takes(&mut w, id);
    let id = w.read(3, 1);
    let start = w.now;
    let (end, done) = w.wait(id);
    assert_eq!((end - start).0, COMMAND + READ + BUS_4K + LINK_4K / 8 + 300);
    assert_eq!(bytes(&done.data), page(1).sub(3 * 512, 512).to_vec());
    // The rest of the slot is read from the flash before the program may start.
    let id = w.write_fua(2, Slice::pattern(2, 0, 1024));
    assert_eq!(
        takes(&mut w, id),
        COMMAND + LINK_4K / 4 + 2_000 + READ + BUS_4K + BUS_UNIT + PROGRAM
    );
    assert_eq!(w.count("read_modify_writes"), 1);
    let id = w.read(0, 8);
    let (_, done) = w.wait(id);
    let mut want = page(1).to_vec();
    want[1024..2048].copy_from_slice(&Slice::pattern(2, 0, 1024).to_vec());
    assert_eq!(bytes(&done.data), want);
}

#[test]
fn reads_of_one_die_queue_and_of_two_channels_do_not() {
    // Units of four slots; slot n of a sequential fill is in unit n / 4, on die n / 4 % 4, on
    // channel n / 4 % 2.
    let filled = || {
        let mut w = small(&[("command_ns", 0), ("link_mb_s", 1_000_000)]);
        let id = w.write_fua(0, Slice::pattern(1, 0, 32 * 4096));
        w.wait(id);
        w
    };
    let pair = |a: u64, b: u64| {
        let mut w = filled();
        let start = w.now;
        let (a, b) = (w.read(a * 8, 8), w.read(b * 8, 8));
        let first = w.wait(a).0 - start;
        (first.0, (w.wait(b).0 - start).0)
    };
    let one = READ + BUS_4K + 300 + 5;
    // Other channel: side by side. (The link's 5 ns are in both.)
    assert_eq!(pair(0, 4), (one, one + 5));
    // Other die of the channel: sensing side by side, transfers one after the other.
    assert_eq!(pair(0, 8), (one, one + BUS_4K));
    // Same die: all of it again.
    assert_eq!(pair(0, 16), (one, 2 * (READ + BUS_4K) + 300 + 5));
}

#[test]
fn reads_go_before_programs_that_wait() {
    let mut w = small(&[("link_mb_s", 1_000_000), ("command_ns", 0)]);
    let id = w.write_fua(0, page(1));
    w.wait(id);
    // Unit 0 was on die 0. Units 1 to 9 are programmed now: dies 1, 2, 3, 0, 1, 2, 3, 0, 1.
    let id = w.write(80, Slice::pattern(1, 0, 32 * 4096));
    w.wait(id);
    let start = w.now;
    let id = w.read(0, 8);
    let took = (w.wait(id).0 - start).0;
    // It waits for the program in progress on die 0 (whose transfer waited for die 2's), not for
    // the second.
    assert!(took <= 2 * BUS_UNIT + PROGRAM + READ + BUS_UNIT + BUS_4K + 400, "{took}");
    assert!(took > PROGRAM);
}

/// Megabytes per second of a stream of writes at queue depth `depth`, measured between a tenth and
/// the end.
fn throughput(w: &mut World<Ssd>, depth: usize, sectors: u32, requests: u64) -> u64 {
    let room = w.device.config().limits.sectors / u64::from(sectors);
    let (mut flying, mut next) = (Vec::new(), 0);
    let mut mark = (Time::ZERO, 0);
    let mut completed = 0;
    while completed < requests {
        while flying.len() < depth && next < requests {
            let at = next % room * u64::from(sectors);
            flying.push(w.write(at, Slice::pattern(7, next * 4096, sectors * 512)));
            next += 1;
        }
        let id = flying.remove(0);
        w.wait(id);
        completed += 1;
        if completed == requests / 10 {
            mark = (w.now, completed);
        }
    }
    (completed - mark.1) * u64::from(sectors) * 512 * 1000 / (w.now - mark.0).0
}

fn near(got: u64, want: u64) {
    assert!(got.abs_diff(want) * 100 <= want, "{got} MB/s instead of {want}");
}

#[test]
fn throughput_is_that_of_the_narrowest_part() {
    // Large enough that nothing is overwritten: no garbage collection.
    let large = [
        ("capacity_bytes", 4096 * 200_000),
        ("blocks_per_plane", 2_000),
        ("buffer_bytes", 4096 * 256),
    ];
    let with = |more: &[(&str, u64)]| small(&[&large, more].concat());
    // Dies: 4 units of 16 KiB in channel + program time.
    let dies = 4 * 16384 * 1000 / (BUS_UNIT + PROGRAM);
    near(throughput(&mut with(&[]), 16, 64, 6_000), dies);
    near(throughput(&mut with(&[]), 32, 8, 48_000), dies);
    // Link.
    near(throughput(&mut with(&[("link_mb_s", 50)]), 16, 64, 6_000), 50);
    // Channels: programs so short that two dies could use three times the bus.
    let quick = [("program_ns", 20_480), ("link_mb_s", 10_000), ("command_ns", 0)];
    near(throughput(&mut with(&quick), 16, 256, 3_000), 2 * 400);
    // Controller: one command at a time.
    let busy = [("command_ns", 100_000), ("program_ns", 20_480)];
    near(throughput(&mut with(&busy), 16, 8, 20_000), 4096 * 1000 / 100_000);
}

#[test]
fn writes_wait_for_tokens_and_get_them_from_programs() {
    // Tokens for 64 slots; every die programs one unit of 4.
    let mut w = small(&[("link_mb_s", 1_000_000), ("command_ns", 0), ("write_overhead_ns", 0)]);
    let ids: Vec<u64> =
        (0..5).map(|i| w.write(i * 128, Slice::pattern(1, i * 65536, 65536))).collect();
    let ends: Vec<Time> = ids.into_iter().map(|id| w.wait(id).0).collect();
    assert_eq!(w.count("token_waits"), 1);
    assert!(ends[3] < Time(1_000), "four fit: {:?}", ends);
    // 16 tokens come back when each of the four dies has programmed its first unit.
    assert_eq!(ends[4].0, 66 + 2 * BUS_UNIT + PROGRAM + 66, "{:?}", ends);
}

#[test]
fn a_write_that_waited_for_tokens_is_not_on_the_link_before_it_is_decoded() {
    let mut w = small(&[("command_ns", 1_000_000), ("program_ns", 20_480)]);
    let ids: Vec<u64> =
        (0..6).map(|i| w.write(i * 128, Slice::pattern(1, i * 65536, 65536))).collect();
    for (i, id) in ids.into_iter().enumerate() {
        assert_eq!(w.wait(id).0.0, (i as u64 + 1) * 1_000_000 + 16 * LINK_4K + 2_000);
    }
    assert!(w.count("token_waits") > 0);
}

#[test]
fn order_of_waiting_writes_is_kept_and_reads_pass_them() {
    let mut w = small(&[]);
    let writes: Vec<u64> =
        (0..20).map(|i| w.write(i * 128, Slice::pattern(1, i * 65536, 65536))).collect();
    let read = w.read(7000, 8);
    w.wait(read);
    w.drain();
    let order: Vec<u64> =
        w.log.iter().map(|(_, id)| *id).filter(|id| writes.contains(id)).collect();
    assert_eq!(order, writes);
    assert!(
        w.log.iter().position(|(_, id)| *id == read)
            < w.log.iter().position(|(_, id)| *id == writes[10])
    );
}

#[test]
fn with_plp_a_flush_and_fua_cost_nothing() {
    let mut w = small(&[("plp", 1)]);
    assert!(!w.device.config().limits.volatile_cache);
    let id = w.write_fua(0, page(1));
    assert_eq!(takes(&mut w, id), WRITE);
    let id = w.flush();
    assert_eq!(takes(&mut w, id), COMMAND + 500);
    assert_eq!(w.count("units_programmed"), 0);
}

#[test]
fn a_device_without_fua_says_so_and_refuses_it() {
    let mut w = small(&[("fua", 0)]);
    assert!(!w.device.config().limits.fua);
    let id = w.write_fua(0, page(1));
    assert_eq!(w.wait(id).1.status, Err(Status::NotSupported));
    let id = w.read(8000, 8);
    assert_eq!(w.wait(id).1.status, Err(Status::Io));
    let id = w.read(0, 257);
    assert_eq!(w.wait(id).1.status, Err(Status::Io));
}

#[test]
fn a_full_queue_hands_the_request_back() {
    let mut w = small(&[("queue_depth", 2)]);
    w.read(0, 8);
    w.read(8, 8);
    assert_eq!(w.try_submit(Op::Read, Flags::NONE, 0, 8, Vec::new()), None);
    w.step();
    assert!(w.try_submit(Op::Read, Flags::NONE, 0, 8, Vec::new()).is_some());
}

#[test]
fn a_unit_that_fills_for_too_long_is_programmed_by_the_device_itself() {
    let mut w = small(&[("internal_flush_ns", 5_000_000)]);
    let id = w.write(0, page(1));
    w.wait(id);
    w.run_to(Time(5_000_000));
    assert_eq!((w.count("internal_flushes"), w.device.crash_view(w.now).loss.len()), (0, 1));
    w.run_to(Time(7_000_000));
    assert_eq!((w.count("internal_flushes"), w.device.crash_view(w.now).loss.len()), (1, 0));
    assert_eq!(w.count("slots_padded"), 3);
}

#[test]
fn the_same_calls_have_the_same_effects_in_a_fork() {
    let mut w: World<dyn DeviceModel> = {
        let config = common::small_config(&[]).expect("a possible device");
        World::new(Box::new(Ssd::new(config)))
    };
    let mut rng = wp_base::Rng::stream(1, "fork");
    let act = |w: &mut World<dyn DeviceModel>, r: u64| {
        let at = r % 900 * 8;
        match r >> 32 & 7 {
            0 => w.try_submit(Op::Flush, Flags::NONE, 0, 0, Vec::new()),
            1 => w.try_submit(Op::Read, Flags::NONE, at, 16, Vec::new()),
            2 => w.try_submit(Op::Write, Flags::FUA, at, 8, vec![Slice::pattern(r, 0, 4096)]),
            _ => w.try_submit(Op::Write, Flags::NONE, at, 16, vec![Slice::pattern(r, 0, 8192)]),
        };
        w.run_to(w.now + wp_base::Span(r >> 40 & 0xffff));
    };
    for _ in 0..500 {
        act(&mut w, rng.next_u64());
    }
    let mut f = common::forked(&w);
    // The two go apart and are each what they would have been alone.
    let before = f.device.medium();
    for _ in 0..300 {
        act(&mut w, rng.next_u64());
    }
    f.device.medium().diff(&before, &mut |at, _| panic!("the fork changed at {at:?}"));
    let mut rng = wp_base::Rng::stream(1, "fork");
    for _ in 0..500 {
        let _ = rng.next_u64();
    }
    for _ in 0..300 {
        act(&mut f, rng.next_u64());
    }
    assert_eq!(w.log, f.log);
    assert_eq!(w.device.counters(), f.device.counters());
    w.device.medium().diff(&f.device.medium(), &mut |at, _| panic!("they differ at {at:?}"));
}
