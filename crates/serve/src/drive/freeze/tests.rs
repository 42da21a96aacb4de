use super::super::tests::settle;
use super::super::{Request, What, slices_of};
use super::*;
use wp_base::event::ZoneOp;
use wp_block::Status;

fn drive_of(name: &str, params: &[(&str, u64)], loss: Loss) -> Drive {
    Drive::new(name, wp_device::find(name).unwrap().make(params).unwrap(), loss)
}

fn go(drive: &mut Drive, what: What, at: u64, bytes: &[u8]) -> Result<(), Status> {
    let sectors = bytes.len() as u64 / SECTOR_BYTES;
    let data = slices_of(Sector(at), bytes);
    let rq = Request { tag: 1, what, at: Sector(at), sectors, fua: false, data };
    drive.submit(drive.now(), rq);
    settle(drive).pop().unwrap().status
}

fn write(drive: &mut Drive, at: u64, with: u8) {
    assert_eq!(go(drive, What::Write, at, &[with; 4096]), Ok(()), "at {at}");
}

fn byte(drive: &Drive, at: u64) -> u8 {
    let mut out = [0];
    drive.medium().unwrap().read_bytes(at * SECTOR_BYTES, &mut out);
    out[0]
}

#[test]
fn what_was_flushed_stays_what_was_not_may_go_and_what_came_later_does() {
    for loss in [Loss::Model, Loss::Contract] {
        for name in ["fixed", "ssd-128", "emmc-16"] {
            let mut drive = drive_of(name, &[], loss);
            write(&mut drive, 0, 1);
            assert_eq!(go(&mut drive, What::Flush, 0, &[]), Ok(()));
            write(&mut drive, 8, 2);
            let cut = drive.freeze_now(drive.now()).unwrap();
            assert_eq!(cut.in_doubt, 1, "{name} {loss:?}");
            write(&mut drive, 16, 3);
            write(&mut drive, 0, 4);
            assert_eq!((byte(&drive, 16), byte(&drive, 0)), (3, 4), "it works on");
            let before = drive.now();
            let thawed = drive.thaw(before, 1, Keep::None).unwrap();
            assert_eq!((thawed.kept, thawed.changed_sectors), (0, 24), "{name}");
            let left = [0, 8, 16].map(|at| byte(&drive, at));
            assert_eq!(left, [1, 0, 0], "{name} {loss:?}");
            assert_eq!(drive.now(), before, "a thaw takes no time");
            write(&mut drive, 24, 5);
            assert_eq!(byte(&drive, 24), 5);
        }
    }
}

#[test]
fn a_seed_is_a_state_and_seeds_reach_all_states() {
    let mut drive = drive_of("fixed", &[], Loss::Model);
    for n in 0..3 {
        write(&mut drive, n * 8, 1);
    }
    drive.freeze_now(drive.now()).unwrap();
    let state = |seed| {
        let (medium, _) = drive.state(seed, Keep::Some).unwrap();
        [0, 1, 2].map(|n| {
            let mut out = [0];
            medium.read_bytes(n * 4096, &mut out);
            out[0]
        })
    };
    let all: std::collections::BTreeSet<_> = (0..200).map(state).collect();
    assert_eq!(all.len(), 8);
    assert_eq!(state(5), state(5));
}

#[test]
fn power_goes_at_a_count_an_event_and_a_time() {
    let trigger = |t: Trigger| {
        let mut drive = drive_of("fixed", &[("latency_ns", 50_000)], Loss::Model);
        drive.freeze_at(Some(t)).unwrap();
        for n in 0..6 {
            write(&mut drive, n * 8, 1);
        }
        drive.cut().unwrap()
    };
    // The third change is lost, and with it what came later.
    assert_eq!(trigger(Trigger::Changes(3)).in_doubt, 2);
    assert_eq!(trigger(Trigger::Events(4)).in_doubt, 2);
    let cut = trigger(Trigger::Time(Time(130_000)));
    assert_eq!(cut.at_ns, 130_000);
}

/// First sectors of the first two sequential zones.
fn sequential(drive: &Drive) -> (u64, u64) {
    let zones = drive.limits().zones.unwrap();
    let first = zones.start_of(zones.conventional).0;
    (first, first + zones.zone_sectors)
}

#[test]
fn zones_go_back_and_take_writes_where_they_then_end() {
    for loss in [Loss::Model, Loss::Contract] {
        let mut drive = drive_of("zn540-4tb-noplp", &[], loss);
        let (a, b) = sequential(&drive);
        write(&mut drive, a, 1);
        write(&mut drive, a + 8, 2);
        assert_eq!(go(&mut drive, What::Flush, 0, &[]), Ok(()));
        write(&mut drive, a + 16, 3);
        write(&mut drive, b, 4);
        drive.freeze_now(drive.now()).unwrap();
        write(&mut drive, a + 24, 5);
        let thawed = drive.thaw(drive.now(), 1, Keep::None).unwrap();
        assert_eq!(thawed.zones_back, 2, "{loss:?}");
        let ends: Vec<Sector> =
            drive.zones().iter().filter(|z| [a, b].contains(&z.start.0)).map(|z| z.wp).collect();
        assert_eq!(ends, [Sector(a + 16), Sector(b)]);
        assert_eq!([a, a + 8, a + 16, a + 24, b].map(|at| byte(&drive, at)), [1, 2, 0, 0, 0]);
        assert_eq!(go(&mut drive, What::Write, a + 24, &[9; 4096]), Err(Status::Io));
        write(&mut drive, a + 16, 6);
        assert_eq!(byte(&drive, a + 16), 6);
    }
}

#[test]
fn a_zone_that_was_reset_after_the_cut_is_full_of_what_it_held() {
    let mut drive = drive_of("zn540", &[], Loss::Model);
    let (a, _) = sequential(&drive);
    for n in 0..16 {
        write(&mut drive, a + n * 8, n as u8 + 1);
    }
    drive.freeze_now(drive.now()).unwrap();
    assert_eq!(go(&mut drive, What::Zone(ZoneOp::Reset), a, &[]), Ok(()));
    write(&mut drive, a, 99);
    drive.thaw(drive.now(), 1, Keep::Some).unwrap();
    let zone = drive.zones().into_iter().find(|z| z.start.0 == a).unwrap();
    assert_eq!(zone.wp, Sector(a + 128), "this drive loses nothing");
    assert_eq!((byte(&drive, a), byte(&drive, a + 120)), (1, 16));
}

/// A drive has a limit of active zones, which the way back must not pass either.
#[test]
fn zones_that_are_all_active_come_back_though_as_many_others_are_by_then() {
    let mut drive = drive_of("zn540", &[], Loss::Model);
    let zones = drive.limits().zones.unwrap();
    let start = |n: u32| zones.start_of(zones.conventional + n).0;
    let most = zones.max_active;
    for n in 0..most {
        write(&mut drive, start(n), n as u8 + 1);
    }
    drive.freeze_now(drive.now()).unwrap();
    for n in 0..most {
        assert_eq!(go(&mut drive, What::Zone(ZoneOp::Finish), start(n), &[]), Ok(()));
        write(&mut drive, start(most + n), 99);
    }
    drive.thaw(drive.now(), 1, Keep::Some).unwrap();
    for n in 0..most {
        assert_eq!((byte(&drive, start(n)), byte(&drive, start(most + n))), (n as u8 + 1, 0));
        write(&mut drive, start(n) + 8, 50);
    }
}

#[test]
fn an_image_with_more_begun_zones_than_the_drive_can_have_is_refused() {
    let mut drive = drive_of("zn540", &[], Loss::Model);
    let zones = drive.limits().zones.unwrap();
    let image = |n: u32| {
        let mut image = Medium::new();
        for zone in 0..n {
            let at = zones.start_of(zones.conventional + zone);
            image.write(at, &Slice::from_bytes(&[1; 4096]));
        }
        image
    };
    let (fits, too_many) = (image(zones.max_active), image(zones.max_active + 1));
    assert!(drive.load(&too_many).unwrap_err().contains("15 partially written zones"));
    assert_eq!(byte(&drive, zones.start_of(zones.conventional).0), 0);
    drive.load(&fits).unwrap();
    assert_eq!(byte(&drive, zones.start_of(zones.conventional).0), 1);
}

#[test]
fn a_cut_after_more_changes_than_there_can_be_never_comes() {
    let mut drive = drive_of("fixed", &[], Loss::Model);
    let (answer, _) = crate::control::run(
        &mut [&mut drive],
        Time(0),
        &format!("freeze after={}", u64::MAX),
        crate::control::Speaker::Guest,
    );
    assert_eq!(answer["ok"], true, "{answer}");
    write(&mut drive, 0, 1);
    assert_eq!(drive.cut(), None);
}

#[test]
fn a_hundred_cycles_leave_what_was_flushed_in_each() {
    let mut drive = drive_of("ssd-p16", &[], Loss::Contract);
    for n in 1..=100u8 {
        write(&mut drive, 0, n);
        assert_eq!(go(&mut drive, What::Flush, 0, &[]), Ok(()));
        write(&mut drive, 8 * u64::from(n), n);
        drive.freeze_now(drive.now()).unwrap();
        write(&mut drive, 0, 0xee);
        drive.thaw(drive.now(), n.into(), Keep::Some).unwrap();
        assert_eq!(byte(&drive, 0), n);
    }
}

#[test]
fn a_drive_is_not_thawed_twice_nor_while_somebody_waits() {
    let mut drive = drive_of("fixed", &[], Loss::Model);
    assert_eq!(drive.thaw(Time(0), 1, Keep::Some), Err(PowerError::NotFrozen));
    drive.freeze_now(Time(0)).unwrap();
    assert_eq!(drive.freeze_now(Time(0)), Err(PowerError::Frozen));
    let rq = Request {
        tag: 1,
        what: What::Read,
        at: Sector(0),
        sectors: 8,
        fua: false,
        data: Vec::new(),
    };
    drive.submit(Time(0), rq);
    assert_eq!(drive.thaw(Time(0), 1, Keep::Some), Err(PowerError::Busy(1)));
    settle(&mut drive);
    assert!(drive.thaw(drive.now(), 1, Keep::Some).is_ok());
}

#[test]
fn a_cut_that_keeps_everything_changes_nothing_however_many_came_before() {
    for loss in [Loss::Model, Loss::Contract] {
        let small = [("zone_bytes", 16 << 20), ("blocks_per_plane", 24), ("pages_per_block", 12)];
        let mut drive = drive_of("zn540-4tb-noplp", &small, loss);
        let mut rng = Rng::stream(3, "cycles");
        for cycle in 0..40 {
            for _ in 0..20 {
                let zones = drive.zones();
                let zone = zones[rng.below(6) as usize];
                let room = zone.writable_end().0 > zone.wp.0;
                match (zone.kind, rng.below(12)) {
                    (_, 0) => assert_eq!(go(&mut drive, What::Flush, 0, &[]), Ok(())),
                    (wp_base::ZoneKind::Conventional, _) => {
                        write(&mut drive, zone.start.0 + 8 * rng.below(32), rng.below(255) as u8);
                    }
                    (_, 1) => {
                        let reset = What::Zone(ZoneOp::Reset);
                        assert_eq!(go(&mut drive, reset, zone.start.0, &[]), Ok(()));
                    }
                    _ if room => write(&mut drive, zone.wp.0, rng.below(255) as u8),
                    _ => {}
                }
            }
            drive.freeze_now(drive.now()).unwrap();
            let keep = if cycle % 2 == 0 { Keep::All } else { Keep::Some };
            let thawed = drive.thaw(drive.now(), cycle, keep).unwrap();
            if keep == Keep::All {
                assert_eq!((thawed.changed_sectors, thawed.zones_back), (0, 0), "{loss:?} {cycle}");
            }
        }
    }
}
