//! The matrix of techniques: what is refused, and a sample of what is run, against the pins.

use wp_campaign::bugs::ZONES;
use wp_campaign::{Bench, Campaign, Source, run as cut};
use wp_machine::parallel::each;
use wp_machine::testing::{blessing, repository};
use wp_papers::matrix::{self, Cell, Combination, Length, pins};
use wp_workload::program::Program;

fn run(all: &[&Combination]) -> Vec<Cell> {
    let cells = each(
        2,
        all.len(),
        || (),
        |(), n| {
            let cell = matrix::run(all[n], Length::Quick, 1, &|| true);
            Some(
                cell.unwrap_or_else(|e| panic!("{}: {e}", all[n].name())).expect("nobody stops it"),
            )
        },
    );
    cells.into_iter().flatten().collect()
}

/// All that is refused, and each thirteenth of the others; with `WRITEPATH_WHOLE=1`, and when the
/// pins are written anew, all.
#[test]
fn combinations_come_to_what_is_pinned() {
    let whole = blessing() || std::env::var_os("WRITEPATH_WHOLE").is_some_and(|v| v == "1");
    let all = matrix::combinations();
    let quick: Vec<&Combination> = all.iter().filter(|c| c.is_in(Length::Quick)).collect();
    let is_refused = |c: &Combination| c.refused().expect("a drive").is_some();
    let mut runs = 0;
    let sample: Vec<&Combination> = quick
        .iter()
        .copied()
        .filter(|c| {
            runs += usize::from(!is_refused(c));
            whole || is_refused(c) || runs % 13 == 0
        })
        .collect();
    let cells = run(&sample);
    let file = repository("papers/matrix.toml");
    if blessing() {
        std::fs::write(&file, pins::to_toml(&cells)).expect("written");
    }
    let pinned = pins::read(&file).expect("the pins");
    let changed = pins::compare(&pinned, &cells);
    assert!(changed.is_empty(), "combination, pinned, now: {changed:#?}");
    // Every one of them, and no other, is pinned.
    let names: Vec<String> = quick.iter().map(|c| c.name()).collect();
    assert_eq!(pinned.len(), names.len());
    assert!(names.iter().all(|n| pinned.contains_key(n)));
    assert!(
        !pinned.values().any(|v| v.contains("unknown")),
        "a rule that breaks and nobody knows why"
    );
}

/// What no known hole explains is no excuse: with one hole less in the table the same failures of a
/// version are unknown, and `matrix` fails.
#[test]
fn a_failure_that_no_known_hole_explains_is_unknown() {
    let all = matrix::combinations();
    let c = all.iter().find(|c| c.name() == "ext4/3.8/jbd2/none/plp").expect("a combination");
    let mut holes = matrix::holes::of(c);
    let cut = |holes: &[_]| {
        let cut = matrix::verdict::cut_knowing(c, holes, Length::Quick, &|| true);
        cut.expect("a machine").expect("nobody stops it")
    };
    assert!(!cut(&holes).is_unknown());
    holes.retain(|h| h.id != "A3");
    let verdict = cut(&holes);
    assert!(verdict.is_unknown(), "{verdict:?}");
    assert_eq!(verdict.outcome(), "O2-exposure: unknown");
}

/// What the techniques are for is seen in the numbers of one combination beside another.
#[test]
fn one_technique_changed_changes_what_it_is_about() {
    let all = matrix::combinations();
    let names = [
        "ext4/3.8/jbd2/none/ordered",
        "ext4/3.8/barrierfs/none/ordered",
        "ext4/6.18/jbd2/none/volatile",
        "ext4/6.18/jbd2/discard/volatile",
        "ext4/6.18/nobarrier/none/plp",
    ];
    let of = |name: &&str| all.iter().find(|c| c.name() == **name).expect("a combination");
    let cells = run(&names.iter().map(of).collect::<Vec<_>>());
    let speed =
        |n: usize, w| *cells[n].speeds.iter().find(|s| s.workload == w).expect("it was run");
    use wp_papers::matrix::speed::Workload::{Churn, Mail, Overwrite};
    let (jbd2, barrier) = (speed(0, Overwrite), speed(1, Overwrite));
    assert!(barrier.flushes_per_wait() < jbd2.flushes_per_wait(), "one flush less: {barrier:?}");
    assert!(barrier.p50_ns < jbd2.p50_ns, "{barrier:?} {jbd2:?}");
    let (kept, told) = (speed(2, Churn), speed(3, Churn));
    assert!(told.programmed() < kept.programmed(), "less is copied: {told:?} {kept:?}");
    let free = speed(4, Mail);
    assert_eq!(free.flushes, 0);
    assert!(free.p50_ns * 2 < speed(2, Mail).p50_ns, "no program is waited for: {free:?}");
}

/// OPRW sends the node while the data is on its way, so the flush before the node does not cover
/// it, and from 6.11 on the node is forced and nothing was flushed behind it: the fsync had
/// returned, and its data was gone. Found by the matrix, and reduced.
#[test]
fn with_oprw_a_strict_fsync_is_durable_though_it_did_not_wait_for_its_data() {
    let text = "open 0 a rw,creat\npwrite 0 8192 0 1\nfsync 0\npwrite 0 4096 0 2\nfsync 0\n\
                pwrite 0 4096 0 3\npwrite 0 4096 4096 4\nfdatasync 0\n";
    let program = Program::parse(text).expect("a program");
    for era in ["5.14", "6.18"] {
        let options = format!(
            "era={era},oprw,fsync_mode=strict_fixed,wait_first_node,wait_last_node,\
             wait_earlier_nodes,size_before_sync,fsync_alone"
        );
        let bench = Bench {
            device: ZONES.0.to_owned(),
            device_params: ZONES.1.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            ..Bench::new(&wp_f2fs::ENTRY, &options).expect("options of F2FS")
        };
        let campaign = Campaign::new(bench, Source::Text(program.clone()), (0, 1));
        let found = cut(&campaign, 1, &|_| true);
        assert!(found.totals.distinct > 10, "{era}: {:?}", found.totals);
        assert_eq!(found.totals.broken.iter().sum::<u64>(), 0, "{era}: {:#?}", found.found);
    }
}
