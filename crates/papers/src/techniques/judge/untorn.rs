//! Untorn writes: torn pages over all crash states by page, drive and flag; the errors of calls
//! that cannot be; and what a doublewrite buffer costs.
//!
//! Left out:   ext4 with `bigalloc`, so untorn writes of several blocks are those of the block
//!             device; MySQL.

mod doublewrite;
mod refused;
mod torn;

use wp_machine::MachineError;

use super::{Ask, Observed};
use crate::claims::Measured;

/// The claims. What needs bigalloc, or a set-up that nobody published, is not modelled.
pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    const NO_BIGALLOC: &str = "images with bigalloc are refused, and without it ext4 writes one \
                               block untorn";
    let row = torn::ROWS.iter().find(|row| row.is_claimed_plain()).expect("a row of the table");
    let plain = torn::count(row, ask)?;
    let (calls, wrong) = refused::differing()?;
    let why = match wrong.is_empty() {
        true => format!("of {calls} calls"),
        false => wrong.join("; "),
    };
    let write = doublewrite::ratio(ask)?;
    Ok(vec![
        ("untorn.16k", Measured::not_modelled(NO_BIGALLOC)),
        (
            "untorn.16k.plain",
            Measured::value(plain.torn as f64)
                .why(format!("in {} states, ext4 without bigalloc", plain.states)),
        ),
        ("untorn.mixed", Measured::not_modelled(NO_BIGALLOC)),
        ("untorn.refuse", Measured::value(wrong.len() as f64).why(why)),
        (
            "untorn.dblwr",
            Measured::value(write.bytes)
                .why(format!("pages of 4 KiB on ext4; pages per second {:.2} times", write.speed)),
        ),
        ("untorn.qps", Measured::not_modelled("MySQL, threads and drive are not known")),
    ])
}

/// Torn pages by page, drive and flag, beside the claims.
pub(super) fn observe(ask: Ask) -> Result<Vec<Observed>, MachineError> {
    let mut all = Vec::new();
    for row in torn::ROWS {
        let found = torn::count(&row, ask)?;
        let per_million = found.torn as f64 * 1e6 / found.states.max(1) as f64;
        all.push(Observed {
            id: row.to_string(),
            value: Some(per_million.round()),
            unit: "torn/million".to_owned(),
            why: format!("{} in {} states", found.torn, found.states),
        });
    }
    Ok(all)
}
