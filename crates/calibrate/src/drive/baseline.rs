//! What a reader of the published points would say of one that is missing: the logarithm of the
//! value, interpolated along each axis on which neighbours are known, and averaged over these axes;
//! beyond the last point, and where no axis helps, the nearest point's value.

use super::{Judged, Regime};

/// Axes: bytes, depth, zones, part written.
fn axes(j: &Judged) -> [f64; 4] {
    let log = |n: u32| f64::from(n.max(1)).log2();
    let p = &j.point;
    // Parts written matter in themselves, not by their ratio; a whole zone is as far as a doubling.
    [log(p.size), log(p.depth), log(p.zones), p.fraction.unwrap_or(0.0)]
}

/// The mean error of the baseline at a point; none where nothing like it was measured.
pub(super) fn error(target: &Judged, all: &[Judged]) -> Option<f64> {
    let here = axes(target);
    let others: Vec<(&Judged, [f64; 4])> = all
        .iter()
        .filter(|j| {
            let p = &j.point;
            p.is_fitted()
                && j.regime_class() == target.regime_class()
                && p.device == target.point.device
                && p.experiment == target.point.experiment
                && p.op == target.point.op
        })
        .map(|j| (j, axes(j)))
        // Other runs of the point itself do not count.
        .filter(|(_, at)| *at != here)
        .collect();
    let values: [fn(&Judged) -> Option<f64>; 2] = [|j| j.measured.0, |j| j.measured.1];
    let errors: Vec<f64> = values
        .iter()
        .filter_map(|of| {
            let want = of(target)?;
            let known: Vec<([f64; 4], f64)> =
                others.iter().filter_map(|(j, at)| Some((*at, of(j)?.max(1e-9).ln()))).collect();
            Some((predict(&here, &known)?.exp() / want - 1.0).abs())
        })
        .collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

impl Judged {
    /// Data commands are one field of points, whatever limits them.
    fn regime_class(&self) -> u8 {
        match self.regime {
            Regime::Alone | Regime::Knee | Regime::Plateau => 0,
            Regime::Management => 1,
            Regime::Interference => 2,
        }
    }
}

fn predict(here: &[f64; 4], known: &[([f64; 4], f64)]) -> Option<f64> {
    let mut along = Vec::new();
    for axis in 0..4 {
        let on_axis = known.iter().filter(|(at, _)| (0..4).all(|i| i == axis || at[i] == here[i]));
        let line: Vec<(f64, f64)> = on_axis.map(|(at, v)| (at[axis], *v)).collect();
        let nearest = |below: bool| {
            let side = line.iter().filter(|(x, _)| (*x < here[axis]) == below);
            side.min_by(|a, b| (a.0 - here[axis]).abs().total_cmp(&(b.0 - here[axis]).abs()))
        };
        if let (Some((x0, v0)), Some((x1, v1))) = (nearest(true), nearest(false)) {
            along.push(v0 + (v1 - v0) * (here[axis] - x0) / (x1 - x0));
        }
    }
    if !along.is_empty() {
        return Some(along.iter().sum::<f64>() / along.len() as f64);
    }
    let distance = |at: &[f64; 4]| -> f64 { (0..4).map(|i| (at[i] - here[i]).powi(2)).sum() };
    known.iter().min_by(|a, b| distance(&a.0).total_cmp(&distance(&b.0))).map(|(_, v)| *v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_exact_between_points_of_a_power_law_and_takes_the_nearest_beyond() {
        let known: Vec<([f64; 4], f64)> =
            [0.0, 2.0, 4.0].iter().map(|x| ([12.0, *x, 0.0, 0.0], 3.0 - 0.5 * x)).collect();
        assert_eq!(predict(&[12.0, 1.0, 0.0, 0.0], &known), Some(2.5));
        assert_eq!(predict(&[12.0, 9.0, 0.0, 0.0], &known), Some(1.0));
        assert_eq!(predict(&[12.0, 9.0, 0.0, 0.0], &[]), None);
    }
}
