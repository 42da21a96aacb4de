use super::*;
use crate::techniques::find;

#[test]
fn each_judge_is_of_a_technique_and_has_claims() {
    let all = claims();
    for judge in JUDGES {
        assert!(find(judge.technique).fs.is_some(), "{} is not built", judge.technique);
        assert!(all.of(judge.technique).next().is_some(), "{}: no claim", judge.technique);
    }
}

#[test]
fn pages_are_torn_where_no_drive_promises_and_nowhere_else() {
    let untorn = BESIDE_CLAIMS.iter().find(|b| b.technique == "untorn").expect("it has a table");
    let found = (untorn.observe)(Ask { seed: 1, quick: true }).expect("it runs");
    // `ext4: 16k, drive 4k, plain`: torn exactly where the page is larger than what the drive
    // keeps.
    let mut torn = 0;
    for row in &found {
        let (_, sizes) = row.id.split_once(':').expect("a place, then sizes");
        let words: Vec<&str> = sizes.split([' ', ',']).filter(|w| !w.is_empty()).collect();
        let is_larger = words[0] != words[2];
        assert_eq!(row.value.is_some_and(|v| v > 0.0), is_larger, "{row:?}");
        torn += usize::from(is_larger);
    }
    assert!(torn >= 4 && torn < found.len(), "{found:?}");
}

/// States and broken rules of the first programs of sequences of one operation.
fn explored(fs: &str, device: (&str, &[(&str, u64)]), count: u64) -> (u64, Vec<&'static str>) {
    use wp_campaign::{Bench, Campaign, Of, Source};
    let (entry, options) = wp_machine::spec::file_system(fs).expect("text of our own");
    let mut bench = Bench::of(entry, options).expect("a bench");
    device.0.clone_into(&mut bench.device);
    bench.device_params.retain(|(key, _)| device.1.iter().all(|(other, _)| other != key));
    bench.device_params.extend(device.1.iter().map(|(k, v)| ((*k).to_owned(), *v)));
    let campaign = Campaign::new(bench, Source::Sequences(Of::Ace, 1), (0, count));
    let found = wp_campaign::run(&campaign, 2, &|_| true);
    assert_eq!(found.unplayed(), None, "{fs}");
    let broken = |r: &wp_crash::Rule| found.totals.broken[*r as usize] > 0;
    let broken = wp_crash::Rule::ALL.into_iter().filter(broken).map(wp_crash::Rule::name);
    (found.totals.distinct, broken.collect())
}

#[test]
fn force_copy_loses_no_more_than_jbd2() {
    let (distinct, broken) = explored("ext4,era=6.18,force_copy", ("fixed", &[]), 24);
    assert!(distinct > 80, "{distinct}");
    assert!(broken.is_empty(), "{broken:?}");
}

/// Quick runs judge each claim as it is pinned.
#[test]
fn verdicts_are_the_pinned_ones() {
    let pins = crate::claims::Pins::parse(VERDICTS_TOML).expect("the committed file");
    for judge in JUDGES {
        for j in judge.run(Ask { seed: 1, quick: true }).expect("it runs") {
            let pinned = pins.of(&j.paper, &j.id, true);
            assert_eq!(pinned, Some(j.verdict), "{} {}: {:?}, {}", j.paper, j.id, j.ours, j.why);
        }
    }
}
