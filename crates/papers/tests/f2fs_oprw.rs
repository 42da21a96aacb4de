//! Paper f2fs-oprw on the mounted F2FS: what must hold of its runs, whatever the numbers.

use wp_campaign::{Bench, play_on};
use wp_crash::{History, Kept};
use wp_papers::f2fs_oprw::{
    CutCounts, CutPlan, Drive, Ended, Mode, Plan, SLUG, Setup, cut, program, rate, reproduce, rows,
    stages,
};

fn counts(mode: Mode, drive: Drive, seeds: u64, workers: usize) -> CutCounts {
    let plan = CutPlan { mode, drive, seeds: (1, seeds), cuts: 25 };
    let found = cut(&plan, workers, &|_| true).expect("it runs");
    assert_eq!((found.runs, found.by_run.len() as u64), (seeds, seeds));
    found
}

#[test]
fn posix_loses_data_and_strict_oprw_plp_and_serial_programming_do_not() {
    let none = Drive::PRESET;
    let posix = counts(Mode::Posix, none, 40, 2);
    assert!(posix.failed > 0 && posix.failed < posix.cuts / 5, "{posix:?}");
    assert!(posix.example.is_some());
    for (mode, drive) in [
        (Mode::StrictFixed, none),
        (Mode::OprwPosix, none),
        (Mode::Posix, Drive { plp: true, ..none }),
        (Mode::Posix, Drive { serial: true, ..none }),
    ] {
        let c = counts(mode, drive, 40, 2);
        assert_eq!((c.cuts, c.failed, c.refused), (1000, 0, 0), "{mode:?} {drive:?}: {c:?}");
        assert!(c.recovered > 200, "{mode:?}: instants that differ");
    }
    // What posix takes for data, OPRW leaves out.
    assert!(counts(Mode::OprwPosix, none, 40, 2).left_out > 0);
}

#[test]
fn what_comes_out_does_not_depend_on_the_workers() {
    let (one, three) =
        (counts(Mode::Posix, Drive::PRESET, 24, 1), counts(Mode::Posix, Drive::PRESET, 24, 3));
    assert_eq!(format!("{one:?}"), format!("{three:?}"));
}

/// The campaigns look at what is certain only; what is unpersisted is another way to the same.
#[test]
fn what_is_certain_is_what_the_model_leaves_with_nothing_kept() {
    // Each of 32 fsyncs ends with a flush, which moves a write pointer; without barriers only a
    // full program unit does.
    for (options, flushes) in [("fsync_mode=posix", 32), ("fsync_mode=nobarrier", 1)] {
        let params = [("zone_bytes", 16 << 20), ("blocks_per_plane", 24), ("pages_per_block", 12)];
        let more = [("conventional_zones", 2), ("buffer_bytes", 5 << 20)];
        let bench = Bench {
            device: "zn540-4tb-noplp".to_owned(),
            device_params: params.into_iter().chain(more).map(|(k, v)| (k.into(), v)).collect(),
            elevator: "mq-deadline".to_owned(),
            settle_s: 0,
            model: true,
            ..Bench::new(&wp_f2fs::ENTRY, &format!("era=5.14.4,{options}")).expect("options")
        };
        let image = bench.image().expect("an image");
        let played = play_on(&bench, image, &program(1)).expect("it runs");
        let all = History::modelled(&played.tape, played.atomic);
        let certain = History::certain(&played.tape);
        assert_eq!(certain.frames.len(), all.frames.len());
        assert!(certain.units.is_empty() && all.units.len() > 1000);
        let mut moved = 0;
        for (number, (a, b)) in all.frames.iter().zip(&certain.frames).enumerate() {
            assert_eq!((a.pos, all.end_of(number)), (b.pos, certain.end_of(number)));
            a.base.diff(&b.base, &mut |at, _| panic!("frame {number}: another base at {at:?}"));
            let none = Kept::none(a.live.len());
            assert!(all.permits(number, &none), "frame {number}");
            assert_eq!(all.zones_of(number, &none), *b.zones.clone().expect("a zoned device"));
            moved += u32::from(number > 0 && certain.frames[number - 1].zones != b.zones);
        }
        assert!(moved >= flushes, "{options}: {moved} frames in which a write pointer moves");
    }
}

#[test]
fn a_campaign_that_is_stopped_leaves_the_seeds_that_are_done() {
    let plan = CutPlan { mode: Mode::Posix, drive: Drive::PRESET, seeds: (1, 24), cuts: 5 };
    let part = cut(&plan, 1, &|done| done < 3).expect("it runs");
    assert!((part.runs, part.cuts, part.by_run.len()) == (3, 15, 3), "{part:?}");
    let whole = cut(&plan, 2, &|_| true).expect("it runs");
    assert!(whole.runs == 24 && whole.cuts == 120, "{whole:?}");
    assert!(whole.recovered <= whole.states && whole.states <= whole.cuts, "{whole:?}");
    assert_eq!(part.by_run, whole.by_run[..3]);
}

#[test]
fn a_reproduction_that_is_stopped_leaves_the_rows_that_are_done() {
    let plan = Plan { seed: 1, quick: true, cuts: None, workers: 1 };
    let stop_at = |n: &str| n == "power failures: strict_fixed, 3 of 100 seeds";
    let Ended::Stopped(part) = reproduce(&plan, &|_, _, name| !stop_at(name)).expect("it runs")
    else {
        panic!("it was stopped");
    };
    let rows: Vec<(&str, u64)> =
        part.cuts.iter().map(|r| (r.name.as_str(), r.counts.runs)).collect();
    assert_eq!(rows, [("posix", 100), ("strict_fixed", 3)]);
    assert!(part.surface.is_empty());
}

#[test]
fn oprw_hides_the_wait_for_data() {
    let us = |mode, plp| rate(&Setup::paper(mode, plp, 1), 4, 60).expect("it runs").ns / 1e3;
    let (plain, ordered) = (us(Mode::NoBarrier, true), us(Mode::OprwNoBarrier, true));
    let found = stages(&Setup::paper(Mode::Posix, true, 1)).expect("it runs");
    let saved = plain - ordered;
    assert!(saved > 0.5 * found.wait_data && saved < 1.5 * found.wait_data, "{saved} {found:?}");
    let (posix, strict) = (us(Mode::Posix, false), us(Mode::StrictFixed, false));
    assert!(strict > 1.5 * posix, "a second flush: {posix} {strict}");
}

#[test]
fn the_check_reads_nothing_more_and_changes_nothing_after_a_cut_that_lost_nothing() {
    let found = rows(1, &[500, 1000]).expect("it runs");
    for (row, nodes) in found.iter().zip([500, 1000]) {
        assert!(row.plain.nodes.abs_diff(nodes) <= 2, "{row:?}");
        assert_eq!((row.extra_blocks, row.same, row.oprw.left_out), (0, true, 0), "{row:?}");
        // Files of one block are inline and have no addresses; all others have 923 places.
        assert!(row.oprw.slots >= row.oprw.nodes * 700, "{row:?}");
    }
    // Twice the nodes: more than twice the entries passed.
    assert!(found[1].plain.entries > 3 * found[0].plain.entries, "{found:?}");
}

/// Table 3.1 is an input: the profile and the drive must go on giving it.
#[test]
fn the_stages_of_an_fsync_are_those_that_were_put_in() {
    let found = stages(&Setup::paper(Mode::Posix, true, 1)).expect("it runs");
    let claims = wp_papers::claims::Claims::fixed();
    for (id, ours) in [
        ("prepare_data", found.prepare_data),
        ("wait_dma_data", found.wait_data),
        ("prepare_node", found.prepare_node),
        ("wait_dma_node", found.wait_node),
        ("flush", found.flush),
        ("other", found.other),
    ] {
        let id = format!("table3.1.{id}");
        let claim = claims.of(SLUG).find(|c| c.id == id).expect("a claim");
        assert!((claim.band[0]..=claim.band[1]).contains(&ours), "{id}: {ours} {:?}", claim.band);
    }
}
