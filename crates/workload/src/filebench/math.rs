//! Elementary functions with the same bits on every machine: additions, multiplications, divisions
//! and square roots alone, so that no machine's library has a say.

use std::f64::consts::{FRAC_PI_2, LN_2, PI};

/// What `f64` cannot hold of pi and of half of it.
const PI_REST: f64 = 1.224_646_799_147_353_2e-16;
const FRAC_PI_2_REST: f64 = PI_REST / 2.0;
/// ln 2 in two parts, the first with so few bits that a thousandfold of it is exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Natural logarithm of a positive number. Within 1e-14 of it, relatively or absolutely.
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

/// e to the `x`; 0 and infinity where an `f64` holds no more. Within 1e-14 of it, relatively.
pub(super) fn exp(x: f64) -> f64 {
    if x.is_nan() || x < -700.0 {
        return 0.0;
    }
    if x > 700.0 {
        return f64::INFINITY;
    }
    let halves = (x / LN_2).round();
    let rest = x - halves * LN_2_HIGH - halves * LN_2_LOW;
    let (mut term, mut sum, mut n) = (1.0, 1.0, 1.0);
    while n < 25.0 {
        term *= rest / n;
        sum += term;
        n += 1.0;
    }
    let (mut scale, mut left) = (1.0, halves.abs());
    let step = if halves < 0.0 { 0.5 } else { 2.0 };
    while left > 0.0 {
        scale *= step;
        left -= 1.0;
    }
    sum * scale
}

/// `x` to the `y`, of a positive `x`.
pub fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

/// Sine and cosine of an angle of at most a quarter of pi.
fn sin_cos(x: f64) -> (f64, f64) {
    let square = x * x;
    let (mut sin, mut cos) = (0.0, 0.0);
    let (mut term, mut n) = (1.0, 0.0);
    while n < 26.0 {
        cos += term;
        sin += term * x / (n + 1.0);
        term *= -square / ((n + 1.0) * (n + 2.0));
        n += 2.0;
    }
    (sin, cos)
}

/// Tangent of an angle from 0 to pi.
pub(super) fn tan(x: f64) -> f64 {
    if x <= PI / 4.0 {
        let (sin, cos) = sin_cos(x);
        return sin / cos;
    }
    if x < 3.0 * PI / 4.0 {
        let (sin, cos) = sin_cos((FRAC_PI_2 - x) + FRAC_PI_2_REST);
        return cos / sin;
    }
    let (sin, cos) = sin_cos((PI - x) + PI_REST);
    -(sin / cos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(ours: f64, theirs: f64) -> bool {
        (ours - theirs).abs() <= 2e-14 * theirs.abs().max(1e-300)
    }

    #[test]
    fn the_logarithm_is_right() {
        for x in [1e-300, 0.001, 0.1, 0.7, 1.0, 1.3, 1.4, 2.0, 10.0, 12345.678, 1e200] {
            let (ours, theirs) = (ln(x), f64::ln(x));
            assert!((ours - theirs).abs() <= 1e-14 * theirs.abs().max(1.0), "{x}: {ours} {theirs}");
        }
    }

    #[test]
    fn exponential_power_and_tangent_are_right() {
        for x in [-699.0, -50.5, -1.0, -1e-9, 0.0, 0.3, 1.0, 20.25, 600.0] {
            assert!(near(exp(x), f64::exp(x)), "exp {x}: {} {}", exp(x), f64::exp(x));
        }
        assert_eq!((exp(-1e4), exp(1e4)), (0.0, f64::INFINITY));
        assert!(near(pow(3.5, -0.25), 3.5f64.powf(-0.25)));
        for x in [0.0, 1e-9, 0.3, 0.785, 0.79, 1.5, 1.57, 1.571, 2.3, 2.4, 3.1] {
            assert!(near(tan(x), f64::tan(x)), "tan {x}: {} {}", tan(x), f64::tan(x));
        }
    }
}
