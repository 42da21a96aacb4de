//! The variables of a run that are drawn, with the state of their generators.

use super::chance::{Chance, Drawn};
use super::model::Num;

/// A run's variables.
pub(super) struct Numbers {
    drawn: Vec<(Drawn, u64)>,
}

impl Numbers {
    pub(super) fn new(drawn: &[Drawn]) -> Numbers {
        Numbers { drawn: drawn.iter().map(|d| (d.clone(), d.state())).collect() }
    }

    /// A whole number: what is drawn, without its fraction; 0 for what is negative.
    pub(super) fn whole(&mut self, n: Num, chance: &mut Chance) -> u64 {
        match n {
            Num::Fixed(n) => n,
            Num::Drawn(i) => self.real(i, chance) as u64,
        }
    }

    /// What variable `i` gives next; 0 if there is none.
    pub(super) fn real(&mut self, i: usize, chance: &mut Chance) -> f64 {
        self.drawn.get_mut(i).map_or(0.0, |(d, state)| d.draw(chance, state, None))
    }

    /// The same around another mean.
    pub(super) fn around(&mut self, i: usize, mean: f64, chance: &mut Chance) -> f64 {
        self.drawn.get_mut(i).map_or(0.0, |(d, state)| d.draw(chance, state, Some(mean)))
    }

    /// The mean of a `randvar`.
    pub(super) fn mean(&self, i: usize) -> Option<f64> {
        self.drawn.get(i).and_then(|(d, _)| d.mean())
    }
}
