//! Gamma-distributed numbers with the same bits on every machine.

use wp_base::rng::Rng;

/// ln 2.
const LN_2: f64 = std::f64::consts::LN_2;

/// Natural logarithm of a positive number: additions, multiplications and divisions alone, so that
/// no machine's library has a say. Within 1e-14 of it, relatively or absolutely.
pub fn ln(x: f64) -> f64 {
    assert!(x > 0.0 && x.is_finite(), "the logarithm of {x}");
    let (mut m, mut exponent) = (x, 0.0);
    while m >= 4.0 / 3.0 {
        m *= 0.5;
        exponent += 1.0;
    }
    while m < 2.0 / 3.0 {
        m *= 2.0;
        exponent -= 1.0;
    }
    // 2 artanh((m - 1) / (m + 1)), of an argument of at most 1/5.
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let (mut term, mut sum, mut n) = (t, 0.0, 1.0);
    while n < 30.0 {
        sum += term / n;
        term *= square;
        n += 2.0;
    }
    2.0 * sum + exponent * LN_2
}

/// Uniform in the open interval from 0 to 1.
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// A normal variate (Marsaglia's polar method).
fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (u, v) = (2.0 * uniform(rng) - 1.0, 2.0 * uniform(rng) - 1.0);
        let s = u * u + v * v;
        if s > 0.0 && s < 1.0 {
            return u * (-2.0 * ln(s) / s).sqrt();
        }
    }
}

/// A gamma variate of this mean and shape, at least 1 (Marsaglia and Tsang's method).
///
/// Panics for a shape below 1: nothing here needs one.
pub fn gamma(rng: &mut Rng, mean: f64, shape: f64) -> f64 {
    assert!(shape >= 1.0, "shape {shape}");
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        if ln(uniform(rng)) < 0.5 * x * x + d - d * v + d * ln(v) {
            return d * v * mean / shape;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right() {
        for x in [1e-300, 0.001, 0.1, 0.7, 1.0, 1.3, 1.4, 2.0, 10.0, 12345.678, 1e200] {
            let (ours, theirs) = (ln(x), f64::ln(x));
            assert!((ours - theirs).abs() <= 1e-14 * theirs.abs().max(1.0), "{x}: {ours} {theirs}");
        }
    }

    #[test]
    fn gamma_has_its_mean_variance_and_median() {
        let (mean, shape, n) = (16_384.0, 1.5, 40_000);
        let mut rng = Rng::stream(1, "gamma");
        let mut all: Vec<f64> = (0..n).map(|_| gamma(&mut rng, mean, shape)).collect();
        let sum: f64 = all.iter().sum();
        let found = sum / f64::from(n);
        assert!((found / mean - 1.0).abs() < 0.02, "mean {found}");
        let squares: f64 = all.iter().map(|x| (x - found) * (x - found)).sum();
        let variance = squares / f64::from(n) / (mean * mean / shape);
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
        all.sort_by(f64::total_cmp);
        // Median of shape 1.5: 1.18299 / 1.5 of the mean.
        let median = all[n as usize / 2] / mean;
        assert!((median - 0.7887).abs() < 0.02, "median {median}");
    }
}
