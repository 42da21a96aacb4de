//! Broken rules that a replay of the log would show as well.

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_crash::{Case, Explorer, History, Kept, Rule};
use wp_machine::MachineError;

use super::campaign::Campaign;

/// The rules that are broken in a state which is a prefix of a log, in the order in which its
/// requests completed. dm-log-writes' replay reaches these states and no others. `go_on` is asked
/// at each of them; `None`: it said no.
///
/// Errors: as of [`Campaign::play`].
pub fn broken_at_prefixes(
    c: &Campaign,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<BTreeSet<Rule>>, MachineError> {
    let played = Rc::new(c.play(c.image()?, c.programs.0)?);
    let history = Rc::new(History::completed_prefixes(&played.tape));
    let subject = c.subject(&played, c.check);
    let mut explorer = Explorer::new(&subject, c.options(c.plan, played.partition));
    explorer.expect(std::iter::once(&*history));
    c.equip(&mut explorer, &played, &history);
    let mut case = Case::new(&played.tape, &history, &played.ledger);
    let mut broken = BTreeSet::new();
    for frame in c.first_frame(&played, &history)..history.frames.len() {
        if !go_on() {
            return Ok(None);
        }
        explorer.visit(&mut case, frame, &mut std::iter::once(Kept::none(0)), &mut |_, look| {
            broken.extend(look.violations.news.iter().map(|v| v.rule));
            true
        });
    }
    Ok(Some(broken))
}
