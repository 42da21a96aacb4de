//! Which numbers of a model some measurements tell, and what they are.
//!
//! Picture:    measured values -> how much each depends on each number ([`sensitivity`]) -> the
//!             numbers that can be told from each other ([`identified`]) -> damped least squares
//!             over logarithms of numbers and of values ([`fit`]).
//! Invariants: nothing is drawn: the same values give the same numbers.
//! Source:     Levenberg 1944, Marquardt 1963; Gram and Schmidt for what is told apart.

/// A number matters if doubling it changes the values by so much (root of the sum of squares, of
/// logarithms).
const MATTERS: f64 = 0.03;
/// A number is told from others if so much of what it does is not what they do, too.
const APART: f64 = 0.15;
/// Logarithm by which a number is changed to see what it does.
const STEP: f64 = 0.08;
/// Farthest that a number is moved at once.
const STRIDE: f64 = 0.9;
const ROUNDS_MAX: usize = 14;

/// Values of the model at logarithms of numbers; `None` to stop.
pub(super) type Model<'m> = dyn FnMut(&[f64]) -> Option<Vec<f64>> + 'm;

/// Why a number was not fitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unidentified {
    /// No measured value depends on it.
    Unfelt,
    /// What it does, others do as well.
    Hidden,
}

/// By number: how the values change with it. `None`: stopped.
pub(super) fn sensitivity(model: &mut Model<'_>, at: &[f64]) -> Option<Vec<Vec<f64>>> {
    let mut all = Vec::new();
    for i in 0..at.len() {
        let mut moved = at.to_vec();
        moved[i] = at[i] + STEP;
        let up = model(&moved)?;
        moved[i] = at[i] - STEP;
        let down = model(&moved)?;
        all.push(up.iter().zip(&down).map(|(u, d)| (u - d) / (2.0 * STEP)).collect());
    }
    Some(all)
}

/// Which numbers can be told, in their order; of two that do the same the first.
pub(super) fn identified(sensitivity: &[Vec<f64>]) -> Vec<Result<(), Unidentified>> {
    let mut base: Vec<Vec<f64>> = Vec::new();
    let told = |of: &Vec<f64>| {
        let own = norm(of);
        if own * std::f64::consts::LN_2 < MATTERS {
            return Err(Unidentified::Unfelt);
        }
        let mut rest = of.clone();
        for b in &base {
            let part = dot(&rest, b);
            rest.iter_mut().zip(b).for_each(|(r, b)| *r -= part * b);
        }
        let left = norm(&rest);
        if left < APART * own || left * std::f64::consts::LN_2 < MATTERS {
            return Err(Unidentified::Hidden);
        }
        base.push(rest.iter().map(|r| r / left).collect());
        Ok(())
    };
    sensitivity.iter().map(told).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Moves the numbers at `free` so that the model's values come nearest to zero, from `at` on, each
/// within its bounds. What was reached; `true` if it was stopped.
pub(super) fn fit(
    model: &mut Model<'_>,
    at: &[f64],
    free: &[usize],
    bounds: &[(f64, f64)],
) -> (Vec<f64>, bool) {
    let mut best = at.to_vec();
    let Some(mut values) = model(&best) else { return (best, true) };
    let mut damping = 0.01;
    for _ in 0..ROUNDS_MAX {
        let mut slopes = Vec::new();
        for i in free {
            let mut moved = best.clone();
            moved[*i] += STEP;
            let Some(up) = model(&moved) else { return (best, true) };
            slopes.push(up.iter().zip(&values).map(|(u, v)| (u - v) / STEP).collect::<Vec<f64>>());
        }
        let before = dot(&values, &values);
        let mut is_better = false;
        for _ in 0..6 {
            let step = damped(&slopes, &values, damping);
            let mut moved = best.clone();
            for (i, step) in free.iter().zip(&step) {
                let (low, high) = bounds[*i];
                moved[*i] = (best[*i] + step.clamp(-STRIDE, STRIDE)).clamp(low, high);
            }
            let Some(found) = model(&moved) else { return (best, true) };
            if dot(&found, &found) < before {
                (best, values, is_better) = (moved, found, true);
                damping = (damping / 4.0_f64).max(1e-6);
                break;
            }
            damping *= 5.0;
        }
        if !is_better || dot(&values, &values) > before * 0.999 {
            break;
        }
    }
    (best, false)
}

/// The step of damped least squares: (S S' + d diag(S S')) step = -S values.
fn damped(slopes: &[Vec<f64>], values: &[f64], damping: f64) -> Vec<f64> {
    let n = slopes.len();
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let mut row: Vec<f64> = (0..n).map(|j| dot(&slopes[i], &slopes[j])).collect();
            row[i] += damping * row[i] + 1e-9;
            row.push(-dot(&slopes[i], values));
            row
        })
        .collect();
    for i in 0..n {
        let pivot = (i..n).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs()));
        rows.swap(i, pivot.unwrap_or(i));
        let row = rows[i].clone();
        for other in rows.iter_mut().skip(i + 1) {
            let by = other[i] / row[i];
            other.iter_mut().zip(&row).for_each(|(o, r)| *o -= by * r);
        }
    }
    let mut step = vec![0.0; n];
    for i in (0..n).rev() {
        let rest: f64 = (i + 1..n).map(|j| rows[i][j] * step[j]).sum();
        step[i] = (rows[i][n] - rest) / rows[i][i];
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_where_values_depend_on_them_in_their_own_way() {
        let alone = vec![1.0, 0.0, 0.2];
        let same = vec![2.0, 0.0, 0.4];
        let other = vec![0.0, 0.5, 0.2];
        let none = vec![0.0, 0.01, 0.0];
        let told = identified(&[alone, same, other, none]);
        assert_eq!(told, [Ok(()), Err(Unidentified::Hidden), Ok(()), Err(Unidentified::Unfelt)]);
    }

    #[test]
    fn a_model_that_bends_is_fitted_from_far_away() {
        // Latency of a fixed part and one by size; three sizes.
        let truth = [3.0_f64, 0.5];
        let curve =
            |fixed: f64, slope: f64| [1.0, 4.0, 16.0].map(|size| (fixed + slope * size).ln());
        let want = curve(truth[0], truth[1]);
        let mut model = |at: &[f64]| {
            let got = curve(at[0].exp(), at[1].exp());
            Some(got.iter().zip(want).map(|(g, w)| g - w).collect())
        };
        let wide = [(-9.0, 9.0), (-9.0, 9.0)];
        let (found, stopped) = fit(&mut model, &[-1.0, 2.0], &[0, 1], &wide);
        assert!(!stopped);
        for (f, t) in found.iter().zip(truth) {
            assert!((f.exp() / t - 1.0).abs() < 0.02, "{found:?}");
        }
    }
}
