//! How full the superblocks of a drive are that has been overwritten at random for long, and what
//! that costs, in closed form.
//!
//! Laws:       A drive of `S` closed superblocks of `N` slots holds `V` valid slots, each as likely
//!             to be overwritten next as any other. A superblock with `i` valid ones loses one at a
//!             rate proportional to `i`; superblocks enter at `N` and leave where they are
//!             collected.
//!             - Greedy takes what is emptiest, at level `j`. In the steady state as many
//!               superblocks pass every level above, so that those at level `i` are proportional
//!               to 1/i for j < i <= N, and `(H(N) - H(j)) / (N - j) = S / V` with harmonic
//!               numbers H. (For large N: `(1 - u) / -ln u = V / (S N)` with `u = j / N`.)
//!             - d-choices takes the emptiest of `d` drawn at random. With `Q(i)` the part of the
//!               superblocks that has at least `i` valid slots, and `W` host writes between two
//!               collections, `Q(i)^d + W S i / V (Q(i) - Q(i+1)) = 1`: as many leave the levels
//!               from `i` on, collected or overwritten, as enter, one a collection.
//!             - Between two collections the host writes `W = N - E[valid slots of the victim]`
//!               slots, and write amplification is `N / W`.
//! Source:     Desnoyers, "Analytic modeling of SSD write performance" (SYSTOR 2012), for greedy;
//!             Van Houdt, "A mean field model for a class of garbage collection algorithms in
//!             flash-based solid state drives" (SIGMETRICS 2013), for d-choices. Derived here anew.
//! Left out:   what fluctuates in a drive of few superblocks; padding; cost-benefit, which for data
//!             that are all alike takes the oldest superblock, in the mean the emptiest.
//!
//! These are the only floats of the crate, and of their operations only those that IEEE 754 fixes
//! to the last bit: the same everywhere.

use crate::ssd::policy::GcPolicy;

/// Levels that are told apart; with more slots a superblock, some share one.
const LEVELS: u32 = 4096;

/// See the module.
pub(crate) struct Steady {
    /// Valid slots of each closed superblock, fullest first.
    pub(crate) valid: Vec<u32>,
    /// Host slots written between two collections.
    pub(crate) writes_per_victim: u32,
}

/// The steady state of `superblocks` closed superblocks of `slots` slots that hold `valid` valid
/// ones.
pub(crate) fn steady(gc: GcPolicy, superblocks: u32, slots: u32, valid: u32) -> Steady {
    let group = slots.div_ceil(LEVELS);
    let levels = slots / group;
    let (s, v) = (f64::from(superblocks), f64::from(valid) / f64::from(group));
    let (at, writes) = match gc {
        _ if valid == 0 => {
            let mut at = vec![0.0; levels as usize + 1];
            at[0] = s;
            (at, f64::from(levels))
        }
        GcPolicy::Greedy | GcPolicy::CostBenefit => greedy(levels, s, v),
        GcPolicy::Choices(d) => choices(d, levels, s, v),
    };
    Steady {
        valid: spread(&at, group, superblocks, slots, valid),
        // From 0 to the number of slots.
        writes_per_victim: ((writes * f64::from(group)) as u32).clamp(1, slots),
    }
}

/// Superblocks at each level, and host writes between two collections.
fn greedy(levels: u32, s: f64, v: f64) -> (Vec<f64>, f64) {
    let mut at = vec![0.0; levels as usize + 1];
    // From the top down until their mean of 1/i is that of the superblocks.
    let (mut harmonic, mut passed, mut part, mut level) = (0.0, 0.0, 0.0, levels);
    while level > 0 {
        let inverse = 1.0 / f64::from(level);
        if (harmonic + inverse) * v >= s * (passed + 1.0) {
            // Only a part of this level, so that it fits.
            part = (s * passed - harmonic * v) / (inverse * v - s);
            break;
        }
        harmonic += inverse;
        passed += 1.0;
        level -= 1;
    }
    // Part of a level is between nothing and all of it but for rounding.
    let part = part.clamp(0.0, 1.0);
    let scale = v / (passed + part);
    for i in level + 1..=levels {
        at[i as usize] = scale / f64::from(i);
    }
    let above = harmonic * scale;
    // At the lowest level what is left: the part, or all that is empty.
    at[level as usize] += (s - above).max(0.0);
    (at, passed + part)
}

fn choices(d: u32, levels: u32, s: f64, v: f64) -> (Vec<f64>, f64) {
    let mean = v / s;
    let (mut low, mut high) = (0.0, f64::from(levels));
    let mut at_least = vec![0.0; levels as usize + 2];
    // More writes between two collections leave less in each superblock.
    for _ in 0..50 {
        let writes = (low + high) / 2.0;
        tail(d, writes / mean, &mut at_least);
        let sum: f64 = at_least[1..].iter().sum();
        if sum > mean {
            low = writes;
        } else {
            high = writes;
        }
    }
    let at = at_least.windows(2).map(|w| s * (w[0] - w[1])).collect();
    (at, (low + high) / 2.0)
}

/// `q[i]` is the part with at least `i` valid: solves the balance of every level, from the top.
fn tail(d: u32, rate: f64, q: &mut [f64]) {
    q[0] = 1.0;
    for i in (1..q.len() - 1).rev() {
        let (above, a) = (q[i + 1], rate * i as f64);
        // Newton's method on a convex function, from the right.
        let mut x = (above + (1.0 - power(above, d)) / a).min(1.0);
        for _ in 0..60 {
            let below = power(x, d - 1);
            let next = x - (a * (x - above) + below * x - 1.0) / (a + f64::from(d) * below);
            let done = x - next < 1e-13;
            x = next;
            if done {
                break;
            }
        }
        q[i] = x;
    }
}

fn power(x: f64, n: u32) -> f64 {
    let (mut result, mut square, mut n) = (1.0, x, n);
    while n > 0 {
        if n & 1 == 1 {
            result *= square;
        }
        square *= square;
        n >>= 1;
    }
    result
}

/// As many whole superblocks as there are, fullest first, at levels of `group` slots each of which
/// there are `at[level]`; together they hold `valid` slots.
fn spread(at: &[f64], group: u32, superblocks: u32, slots: u32, valid: u32) -> Vec<u32> {
    let mut all = Vec::with_capacity(superblocks as usize);
    let (mut level, mut below) = (at.len() - 1, 0.0);
    for n in 0..superblocks {
        // The superblock in the middle of the n-th part.
        let middle = f64::from(n) + 0.5;
        while level > 0 && below + at[level] < middle {
            below += at[level];
            level -= 1;
        }
        // Within a level of several slots in order too.
        let within = if at[level] > 0.0 { (middle - below) / at[level] } else { 0.0 };
        let down = (within * f64::from(group)) as u32;
        all.push(((level as u32 * group).saturating_sub(down.min(group - 1))).min(slots));
    }
    // What rounding has made too much or too little, evenly.
    let mut sum: u64 = all.iter().map(|n| u64::from(*n)).sum();
    let want = u64::from(valid);
    while sum != want {
        let (left, before) = (sum.abs_diff(want), sum);
        let each = (left.div_ceil(u64::from(superblocks)) as u32).max(1);
        for n in all.iter_mut() {
            if sum < want {
                let more = each.min(slots - *n).min((want - sum).min(u64::from(u32::MAX)) as u32);
                *n += more;
                sum += u64::from(more);
            } else {
                let less = each.min(*n).min((sum - want).min(u64::from(u32::MAX)) as u32);
                *n -= less;
                sum -= u64::from(less);
            }
        }
        assert_ne!(sum, before, "{valid} slots fit into {superblocks} superblocks of {slots}");
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amplification(gc: GcPolicy, superblocks: u32, slots: u32, fill: f64) -> f64 {
        let valid = (f64::from(superblocks) * f64::from(slots) * fill) as u32;
        let steady = steady(gc, superblocks, slots, valid);
        assert_eq!(steady.valid.iter().sum::<u32>(), valid);
        assert!(steady.valid.is_sorted_by(|a, b| a >= b));
        f64::from(slots) / f64::from(steady.writes_per_victim)
    }

    #[test]
    fn greedy_of_large_superblocks_is_the_known_formula() {
        // (1 - u) / -ln u is the fill; amplification is 1 / (1 - u).
        for u in [0.2f64, 0.5, 0.7, 0.8, 0.9] {
            let fill = (1.0 - u) / -u.ln();
            let found = amplification(GcPolicy::Greedy, 1000, 65_536, fill);
            assert!((found * (1.0 - u) - 1.0).abs() < 0.01, "{u}: {found}");
        }
    }

    #[test]
    fn one_choice_is_random_and_many_are_greedy() {
        // Random takes what is as full as the drive: 1 / (1 - fill).
        for fill in [0.5, 0.8, 0.9] {
            let random = amplification(GcPolicy::Choices(1), 500, 256, fill);
            assert!((random * (1.0 - fill) - 1.0).abs() < 0.03, "{fill}: {random}");
            let greedy = amplification(GcPolicy::Greedy, 500, 256, fill);
            let many = amplification(GcPolicy::Choices(1000), 500, 256, fill);
            assert!((many / greedy - 1.0).abs() < 0.02, "{fill}: {many} and {greedy}");
            let few = amplification(GcPolicy::Choices(10), 500, 256, fill);
            assert!(greedy < few && few < random, "{greedy} {few} {random}");
        }
    }

    #[test]
    fn an_emptier_drive_has_superblocks_with_nothing() {
        let found = steady(GcPolicy::Greedy, 1000, 128, 1000);
        assert_eq!((found.valid.iter().sum::<u32>(), found.writes_per_victim), (1000, 128));
        assert!(found.valid.iter().filter(|n| **n == 0).count() > 900);
        assert_eq!(steady(GcPolicy::Choices(3), 10, 128, 0).valid, [0; 10]);
        assert_eq!(steady(GcPolicy::Greedy, 3, 5, 14).valid, [5, 5, 4]);
    }
}
