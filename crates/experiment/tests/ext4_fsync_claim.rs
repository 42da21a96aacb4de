//! A claim in an experiment file is judged as `reproduce` judges it.

use wp_experiment::{Ended, Experiment, Plan, Shard, parse, ready, run_all};
use wp_machine::MachineError;
use wp_machine::testing::repository;
use wp_papers::ext4_fsync::{Costs, DEVICE, RunPlan, short, variations};
use wp_papers::vary::Range;

/// The paper's file with two of its points and one of its claims.
fn small() -> Experiment {
    let path = repository("papers/ext4-fsync/figures-10-11.toml");
    let text = std::fs::read_to_string(path).expect("there");
    let (head, claims) = text.split_once("[[claim]]").expect("it has claims");
    let is_it = |c: &&str| c.contains("extend.min_growth");
    let claim = claims.split("[[claim]]").find(is_it).expect("it has this one");
    let head = head
        .replace("[\"3.4\", \"3.8\", \"4.6\"]", "[\"3.4\"]")
        .replace("[1, 10, 100, 1000]", "[1, 10]");
    let text = format!("{head}[[claim]]{claim}");
    let checked = parse("small.toml", text.as_bytes(), &repository("papers"), None);
    checked.experiment.unwrap_or_else(|| panic!("{}", checked.diagnostics[0]))
}

#[test]
fn a_claim_in_a_file_has_the_interval_and_the_null_that_reproduce_gives_it() {
    let e = small();
    let plan = Plan { shard: Shard::WHOLE, workers: 2, kept: None, again: false };
    let Ok(Ended::Whole(rows)) = run_all(&e, &plan, &|_, _, _| true) else {
        panic!("all of it runs");
    };
    let found = ready(&e, &rows, Shard::WHOLE).claims.remove(0).judged;
    let growth = |change: &dyn Fn(RunPlan) -> RunPlan| {
        let ns = |n| {
            short(&change(RunPlan::figure_10("3.4", "extend", n, 1))).map(|s| s.fsync_ns as f64)
        };
        Ok::<f64, MachineError>(ns(10)? / ns(1)? - 1.0)
    };
    let mut range = Range::new(growth(&|p| p).expect("it runs"));
    let (mut names, mut impossible) = (Vec::new(), Vec::new());
    for v in variations() {
        let changed = |mut plan: RunPlan| {
            v.apply(&mut plan.device_params, &mut plan.cpu);
            plan
        };
        match growth(&changed) {
            Ok(x) => {
                range.widen(x);
                names.push(v.name.clone());
            }
            Err(_) => impossible.push(v.name.clone()),
        }
    }
    let varied = e.varied.expect("its claim has an interval");
    impossible.sort();
    assert_eq!((&varied.names, &varied.impossible), (&names, &impossible));
    assert!(range.low < range.value && range.value < range.high, "{range:?}");
    assert_eq!(found.ours, Some(range.value));
    assert_eq!(found.interval, Some([range.low, range.high]));
    let costs = Costs::of(wp_device::find(DEVICE).expect("in the list"));
    let closed = costs.growth(10) - 1.0;
    assert!((found.null.expect("it has one") - closed).abs() < 1e-12, "{found:?}");
}
