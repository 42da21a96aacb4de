//! Untorn writes: torn pages over all crash states by page, drive and flag; the errors of calls
//! that cannot be; and what a doublewrite buffer costs.
//!
//! Left out:   MySQL.

mod doublewrite;
mod refused;
mod torn;

use wp_machine::MachineError;

use super::{Ask, Observed};
use crate::claims::Measured;

/// The claims. What needs a set-up that nobody published is not modelled.
pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    let row = |is: fn(&torn::Row) -> bool| {
        torn::ROWS.iter().find(|row| is(row)).expect("a row of the table")
    };
    let untorn = torn::count(row(torn::Row::is_claimed_untorn), ask)?;
    let plain = torn::count(row(torn::Row::is_claimed_plain), ask)?;
    let mixed = torn::count_mixed(ask, false)?;
    let committed = torn::count_mixed(ask, true)?;
    let (calls, wrong) = refused::differing()?;
    let why = match wrong.is_empty() {
        true => format!("of {calls} calls"),
        false => wrong.join("; "),
    };
    let write = doublewrite::ratio(ask)?;
    Ok(vec![
        (
            "untorn.16k",
            Measured::value(untorn.torn as f64).why(format!("in {} states", untorn.states)),
        ),
        (
            "untorn.16k.plain",
            Measured::value(plain.torn as f64)
                .why(format!("in {} states, ext4 with bigalloc", plain.states)),
        ),
        (
            "untorn.mixed",
            Measured::value(mixed.torn as f64).why(format!(
                "in {} states; with the commit {} in {}",
                mixed.states, committed.torn, committed.states
            )),
        ),
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
