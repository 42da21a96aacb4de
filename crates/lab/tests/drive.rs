//! The modelled ZN540 stays as near to the real one as was reported.

use std::collections::BTreeMap;

use wp_lab::drive::{Regime, compare, parse, suite};
use wp_lab::profile::Profile;
use wp_lab::testing::{reference, repository};

#[test]
fn every_regime_is_within_a_tenth_on_both_halves_and_nearer_than_interpolation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../devices/zn540/points.csv");
    let points = parse(&std::fs::read_to_string(path).expect("kept with the sources"));
    let found = compare(&points.expect("points"), "zn540", &[]).expect("it is in the list");
    for (regime, (fitted, held)) in &found.regimes {
        for (half, e) in [("fitted", fitted), ("held out", held)] {
            assert!(e.values > 5, "{} {half}: {} values", regime.name(), e.values);
            assert!(e.model <= 0.10, "{} {half}: {}", regime.name(), e.model);
            // A known wrong: beside load the fitted half is interpolated better than modelled.
            let is_better = *regime != Regime::Interference || half == "held out";
            let baseline = e.baseline.expect("it predicts something");
            assert_eq!(e.model < baseline, is_better, "{} {half}", regime.name());
        }
    }
}

/// Columns that name a point; the collection has a line for each metric, ours one for the point.
const KEY: [&str; 8] = [
    "device",
    "experiment",
    "op",
    "size_bytes",
    "queue_depth",
    "zones",
    "fraction_written",
    "source_file",
];

/// A point's key -> its values by the metrics' names.
type Table = BTreeMap<Vec<String>, BTreeMap<String, String>>;

/// Lines of a file without quotes, as cells by column.
fn cells(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    lines.map(|line| head.iter().copied().zip(line.split(',')).collect()).collect()
}

fn key(row: &BTreeMap<&str, &str>) -> Vec<String> {
    KEY.iter().map(|column| row[column].to_owned()).collect()
}

/// Every value that is kept here is the collection's, and every mean and rate of the drive that the
/// collection shows is kept here.
#[test]
fn the_points_are_those_of_the_collection() {
    let dir = reference("zn540");
    let mut theirs = Table::new();
    for file in std::fs::read_dir(&dir).expect("readable") {
        let path = file.expect("readable").path();
        // Ceilings are the largest of what the other files have.
        if path.extension().is_none_or(|e| e != "csv") || path.ends_with("ceilings.csv") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        for row in cells(&text) {
            let drive = ["zn540", "zn540-uring"].contains(&row["device"]);
            if drive && ["mean_us", "iops"].contains(&row["metric"]) {
                let values = theirs.entry(key(&row)).or_default();
                let twice = values.insert(row["metric"].to_owned(), row["value"].to_owned());
                assert!(twice.is_none_or(|v| v == row["value"]), "{}: {row:?}", path.display());
            }
        }
    }
    let text = std::fs::read_to_string(repository("devices/zn540/points.csv")).expect("text");
    let mut ours = Table::new();
    for row in cells(&text) {
        let values = ["mean_us", "iops"].into_iter().filter(|m| !row[m].is_empty());
        let values = values.map(|m| (m.to_owned(), row[m].to_owned())).collect();
        assert!(ours.insert(key(&row), values).is_none(), "twice: {row:?}");
    }
    let missing: Vec<_> = theirs.keys().filter(|k| !ours.contains_key(*k)).collect();
    let strange: Vec<_> = ours.keys().filter(|k| !theirs.contains_key(*k)).collect();
    assert!(missing.is_empty() && strange.is_empty(), "missing {missing:?}, ours {strange:?}");
    for (point, values) in &ours {
        assert_eq!(values, &theirs[point], "{point:?}");
    }
    assert!(ours.len() > 500, "{} points", ours.len());
}

/// The usual tests of a drive on its bare block device, without CPU costs: what drives are rated at
/// comes out, each value within 15 %.
#[test]
fn rated_values_of_a_drive_come_out_of_the_usual_tests() {
    let cpu = Profile::find("free").expect("a profile");
    let mut rated = 0;
    for name in ["840pro-128", "850pro-256"] {
        let tests = suite(name, &[], cpu, 1).expect("it runs");
        assert_eq!(tests.len(), 8, "each is one value");
        for test in &tests {
            let Some(value) = test.rated else { continue };
            let off = test.value() / value.value - 1.0;
            assert!(off.abs() < 0.15, "{name} {}: {off:+.3} of {value:?}", test.test);
            rated += 1;
        }
    }
    assert_eq!(rated, 10);
    let zoned = suite("zn540", &[], cpu, 1).expect_err("zones are written in order");
    assert!(zoned.to_string().contains("zonemode=zbd"), "{zoned}");
}
