//! The smallest program that still differs.

use wp_workload::program::{Program, Step};

use super::config::Config;
use super::guest::Guest;
use super::random::{SETTLE_US, Verdict, both};

/// Takes steps away, in halves and then one by one, as long as both sides still differ. Candidates
/// of a round share a boot; `requests` as in [`super::random::judge`]. Errors: a guest that does
/// not start or end.
pub fn shrink(
    guest: &Guest,
    config: &Config,
    program: &Program,
    requests: bool,
) -> Result<Program, String> {
    let mut best = program.clone();
    let mut chunk = best.0.len().div_ceil(2);
    loop {
        let candidates: Vec<Program> = (0..best.0.len())
            .step_by(chunk.max(1))
            .rev()
            .map(|from| without(&best, from, chunk))
            .filter(|c| c.0.len() < best.0.len())
            .collect();
        let batch: Vec<(&Config, &Program)> = candidates.iter().map(|c| (config, c)).collect();
        let verdicts = both(guest, &batch, requests)?;
        let found = candidates
            .iter()
            .zip(&verdicts)
            .filter(|(_, v)| matches!(v, Verdict::Different(_)))
            .min_by_key(|(c, _)| c.0.len());
        match found {
            Some((smaller, _)) => {
                best = smaller.clone();
                chunk = chunk.min(best.0.len().div_ceil(2));
            }
            None if chunk <= 1 => return Ok(best),
            None => chunk = chunk.div_ceil(2),
        }
    }
}

/// The program without `n` steps from `from`; what sets the stage stays.
fn without(p: &Program, from: usize, n: usize) -> Program {
    let stays = |i: usize, s: &Step| {
        i < from
            || i >= from + n
            || *s == Step::Nap(SETTLE_US)
            || matches!(s, Step::Case(_) | Step::Align)
    };
    let steps = p.0.iter().enumerate().filter(|(i, s)| stays(*i, s)).map(|(_, s)| s.clone());
    Program(steps.collect())
}
