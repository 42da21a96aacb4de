//! The modelled ZN540 stays as near to the real one as was reported.

use wp_lab::drive::{Regime, compare, parse};

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
