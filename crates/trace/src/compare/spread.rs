//! A distribution, with all of its samples.

/// Samples, sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Spread(Vec<u64>);

impl Spread {
    /// Of samples in any order.
    pub fn new(mut samples: Vec<u64>) -> Spread {
        samples.sort_unstable();
        Spread(samples)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> f64 {
        let sum: u128 = self.0.iter().map(|v| u128::from(*v)).sum();
        if self.0.is_empty() { 0.0 } else { sum as f64 / self.0.len() as f64 }
    }

    /// The least sample that at least `permille` of a thousand samples do not exceed; 0 without
    /// samples.
    pub fn quantile(&self, permille: u64) -> u64 {
        let n = self.0.len() as u128;
        let rank = (n * u128::from(permille)).div_ceil(1000).max(1) as usize;
        self.0.get(rank - 1).or(self.0.last()).copied().unwrap_or(0)
    }

    /// The greatest difference of the shares of both that are not above a value; none if one of
    /// them has no sample.
    pub fn distance(&self, other: &Spread) -> Option<f64> {
        let (a, b) = (&self.0, &other.0);
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let (mut i, mut j, mut most) = (0, 0, 0.0_f64);
        while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
            let at = *x.min(y);
            i += a[i..].iter().take_while(|v| **v == at).count();
            j += b[j..].iter().take_while(|v| **v == at).count();
            most = most.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
        }
        Some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_definition() {
        let of = |v: &[u64]| Spread::new(v.to_vec());
        let d = |a: &[u64], b: &[u64]| of(a).distance(&of(b));
        assert_eq!(d(&[3, 1, 2], &[1, 2, 3]), Some(0.0));
        assert_eq!(d(&[1, 2], &[3, 4, 5]), Some(1.0));
        assert_eq!(d(&[1, 1, 2, 2], &[1, 2, 2, 2]), Some(0.25));
        assert_eq!(d(&[5], &[5, 6]), Some(0.5));
        assert_eq!(d(&[], &[1]), None);
    }

    #[test]
    fn quantiles_are_samples() {
        let s = Spread::new((1..=1000).rev().collect());
        assert_eq!([500, 990, 999, 1000, 0].map(|p| s.quantile(p)), [500, 990, 999, 1000, 1]);
        assert_eq!((Spread::default().quantile(500), Spread::default().mean()), (0, 0.0));
        assert_eq!(s.mean(), 500.5);
    }
}
