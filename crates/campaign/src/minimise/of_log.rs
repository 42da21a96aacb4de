//! A failing state of a log, which has no calls: fewest lost units, earliest crash point.

use std::rc::Rc;

use wp_crash::{Case, Explorer, Kept, Rule, Violation};
use wp_machine::MachineError;
use wp_medium::Medium;
use wp_workload::program::Program;

use super::{Bounds, Hit, Minimal, Search};
use crate::campaign::Campaign;
use crate::findings::Found;

/// Reduces a failing state of a log: [`super::minimise`], but for calls.
///
/// Errors: the log cannot be read.
pub(super) fn minimise(
    campaign: &Campaign,
    found: &Found,
    bounds: Bounds,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<Minimal>, MachineError> {
    let played = Rc::new(campaign.play(campaign.image()?, found.program)?);
    let history = Rc::new(campaign.space.history(&played));
    let (rule, path) = (found.violation.rule, &found.violation.path);
    let subject = campaign.subject(&played, campaign.check && rule == Rule::Metadata);
    let explorer = Explorer::new(&subject, campaign.options(campaign.plan, played.partition));
    let mut search = Search {
        campaign,
        image: Medium::new(),
        explorer,
        rule,
        makers: None,
        bounds,
        plays: 0,
        states: 0,
        stopped: false,
        go_on,
        care: None,
    };
    search.explorer.expect(std::iter::once(&*history));
    campaign.equip(&mut search.explorer, &played, &history);
    let Some(live) = history.frames.get(found.frame).map(|frame| frame.live.len()) else {
        return Ok(None);
    };
    let mut kept = Kept::all(live);
    found.lost.iter().filter(|i| **i < live).for_each(|i| kept.set(*i, false));
    let is_it = |v: &Violation| v.rule == rule && (path.is_empty() || v.path == *path);
    let mut case = Case::new(&played.tape, &history, &played.ledger);
    let mut hit = None;
    let mut state = std::iter::once(kept);
    search.explorer.visit(&mut case, found.frame, &mut state, &mut |kept, look| {
        hit = Hit::of(look, found.frame, kept, &is_it);
        false
    });
    let Some(hit) = hit else { return Ok(None) };
    let first = campaign.first_frame(&played, &history);
    let hit = search.fewest(&mut case, (&history, first), hit, &is_it);
    search.stopped |= !go_on();
    let live = history.frames[hit.frame].live.len();
    Ok(Some(search.minimal(Program::default(), (hit, live), found)))
}
