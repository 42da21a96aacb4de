//! The answer in a few plain sentences.

use super::Explanation;
use super::names::{Namer, PREPARE, WAIT};
use super::text::{micros, percent};
use crate::necessity::Need;
use crate::requests::Request;
use crate::waits::{self, Group};

/// What the call waited for most, which task had sent it and on whose behalf, and which part of it
/// was unnecessary.
pub(super) fn why(named: &Namer<'_>, e: &Explanation) -> String {
    let whole = if e.target.is_empty() { String::new() } else { format!(" of {}", e.target) };
    let mut out = format!("{}{whole} by {} took {} us.", e.call, e.task, micros(e.total_ns));
    let Some(most) = e.stages.iter().max_by_key(|s| s.ns).filter(|s| s.ns > 0) else {
        return format!("{out} It waited for nothing.");
    };
    let (share, us) = (percent(most.share), micros(most.ns));
    let longest = e.links.iter().filter(|l| l.stage == most.name).max_by_key(|l| l.ns);
    let what = if let Some(kind) = most.name.strip_prefix(WAIT) {
        format!(" It waited most for: {kind}, {us} us or {share} %")
    } else if let Some(kind) = most.name.strip_prefix(PREPARE) {
        format!(" Most of it was CPU time before dispatch: {kind}, {us} us or {share} %")
    } else {
        format!(" Most of it was: {}, {us} us or {share} %", most.name)
    };
    out.push_str(&what);
    let request = longest.and_then(|l| l.request).map(|i| &named.seen.walk.requests[i]);
    if let Some(behalf) = request.and_then(|r| behalf(named, r)) {
        out.push_str(&behalf);
    } else if let Some(l) = longest.filter(|l| l.who != e.task) {
        out.push_str(&format!("; it waited for {}", l.who));
    }
    out.push('.');
    out.push_str(&shared(e));
    out.push_str(&not_needed(e));
    out
}

/// Who sent a request, and on whose behalf.
fn behalf(named: &Namer<'_>, r: &Request) -> Option<String> {
    let seen = named.seen;
    let first = r.bios.first().map(|b| b.queued).or(r.issued)?;
    let by = named.by(r);
    if by == named.task {
        return Some("; the call itself sent it".to_owned());
    }
    let sent = match seen.run.stages.server(by) {
        Some(server) => format!("; {by} ({}) sent it", server.what),
        None => format!("; {by} sent it"),
    };
    // Interrupt context sends the flushes that stand before or behind somebody's record.
    let by_piece = seen.pieces.iter().find(|p| p.covers(first.index) && p.tasks.contains(&by));
    let around = seen.pieces.iter().rfind(|p| r.is_flush() && p.covers(first.index));
    let Some(piece) = by_piece.or(around) else { return Some(sent) };
    let name = waits::name(seen, piece);
    Some(match piece.asked.first() {
        Some(asked) if asked.task == named.task => {
            format!("{sent} for {name}, requested by {}", named.task)
        }
        Some(asked) => {
            format!("{sent} for {name}, requested by another task, {}", asked.task)
        }
        None if piece.why.is_empty() => format!("{sent} for {name}, which no task requested"),
        None => format!("{sent} for {name} ({})", piece.why),
    })
}

/// Work that the call did not start alone.
fn shared(e: &Explanation) -> String {
    let told = |g: &Group| match g.asked.first() {
        Some(asked) if asked.who != e.task => format!("{} (requested by {})", g.name, asked.who),
        _ => format!("{} (begun before the call)", g.name),
    };
    let list: Vec<String> = e.groups.iter().filter(|g| !g.is_own(&e.task)).map(told).collect();
    if list.is_empty() {
        return String::new();
    }
    format!(" It waited for shared work: {}.", list.join(", "))
}

fn not_needed(e: &Explanation) -> String {
    let not = || e.requests.iter().filter(|r| r.need == Need::NotNeeded);
    let n = not().count();
    if n == 0 {
        return String::new();
    }
    let sectors: u64 = not().map(|r| u64::from(r.sectors)).sum();
    let on_path: u64 = not().map(|r| r.path_ns).sum();
    let requests = if n == 1 { "request was" } else { "requests were" };
    let size = if sectors > 0 { format!(" ({sectors} sectors)") } else { String::new() };
    let time = match on_path {
        0 => "; none of them is on the critical path".to_owned(),
        ns => format!("; {} us of the critical path are theirs", micros(ns)),
    };
    format!(" {n} {requests} not needed for what it promises{size}{time}.")
}
