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

/// What is measured, in the order of the section that the claims are to be of.
pub(super) fn observe(ask: Ask) -> Result<Vec<Observed>, MachineError> {
    const NO_BIGALLOC: &str = "not run: images with bigalloc are refused, and without it ext4 \
                               writes one block untorn";
    let rows = torn::ROWS.iter().map(|row| torn::count(row, ask).map(|found| (row, found)));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let plain = rows.iter().find(|(row, _)| row.is_claimed_plain());
    let (_, plain) = plain.expect("a row of the table");
    let (rows_of_table, wrong) = refused::differing()?;
    let write = doublewrite::ratio(ask)?;
    let mut all = vec![
        Observed::not_run("untorn.16k", NO_BIGALLOC),
        Observed {
            id: "untorn.16k.plain".to_owned(),
            value: Some(plain.torn as f64),
            unit: "torn pages".to_owned(),
            why: format!("in {} states, ext4 without bigalloc", plain.states),
        },
        Observed::not_run("untorn.mixed", NO_BIGALLOC),
        Observed {
            id: "untorn.refuse".to_owned(),
            value: Some(wrong.len() as f64),
            unit: "differ".to_owned(),
            why: match wrong.is_empty() {
                true => format!("of {rows_of_table} calls"),
                false => wrong.join("; "),
            },
        },
        Observed {
            id: "untorn.dblwr".to_owned(),
            value: Some(write.bytes),
            unit: "ratio".to_owned(),
            why: format!("pages of 4 KiB on ext4; pages per second {:.2} times", write.speed),
        },
        Observed::not_run("untorn.qps", "not run: MySQL, threads and drive are not known"),
    ];
    for (row, found) in rows {
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
