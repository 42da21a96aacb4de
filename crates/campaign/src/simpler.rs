//! Simpler programs: what may be tried instead of a step, or of a program.

use std::collections::{BTreeMap, BTreeSet};

use wp_vfs::FileFlags;
use wp_workload::program::{Alloc, Call, Data, Flags, Step};

/// A step, with its place in the program that it comes from.
pub(super) type Line = (usize, Step);

/// The same without the names of tasks that do nothing: one follows at once, or the end.
pub(super) fn without_idle_tasks(mut lines: Vec<Line>) -> Vec<Line> {
    let is_task = |line: Option<&Line>| matches!(line, Some((_, Step::Task(_))));
    let is_idle: Vec<bool> = (0..lines.len())
        .map(|i| {
            let next = lines.get(i + 1);
            is_task(lines.get(i)) && (next.is_none() || is_task(next))
        })
        .collect();
    let mut is_idle = is_idle.into_iter();
    lines.retain(|_| !is_idle.next().unwrap_or(false));
    lines
}

/// From each `open` on all that is done with its descriptor, the last first: what goes together.
pub(super) fn sessions(lines: &[Line]) -> Vec<BTreeSet<usize>> {
    let mut out: Vec<BTreeSet<usize>> = Vec::new();
    let mut open: BTreeMap<u32, usize> = BTreeMap::new();
    for (i, step) in lines {
        let Step::Call(_, call) = step else { continue };
        let Some(fd) = call.descriptor() else { continue };
        if matches!(call, Call::Open(..)) {
            open.insert(fd, out.len());
            out.push(BTreeSet::new());
        }
        if let Some(session) = open.get(&fd) {
            out[*session].insert(*i);
        }
    }
    out.reverse();
    out
}

fn with(lines: &[Line], at: usize, step: Step) -> Vec<Line> {
    let mut new = lines.to_vec();
    new[at].1 = step;
    new
}

/// Is the file behind a descriptor opened with `O_DIRECT` anywhere?
fn is_direct(lines: &[Line], fd: u32) -> bool {
    lines
        .iter()
        .any(|(_, s)| matches!(s, Step::Call(_, Call::Open(f, _, how)) if *f == fd && how.direct))
}

/// What may stand in place of step `at`, the simplest first.
pub(super) fn of_step(lines: &[Line], at: usize) -> Vec<Vec<Line>> {
    const GRAIN: u32 = 4096;
    const NAPS: [u64; 6] = [500, 20_000, 150_000, 1_000_000, 6_000_000, 31_000_000];
    let mut steps: Vec<Step> = Vec::new();
    match &lines[at].1 {
        Step::Nap(us) => steps.extend(NAPS.iter().filter(|n| *n < us).map(|n| Step::Nap(*n))),
        Step::Call(label, call) => {
            let label = || label.clone();
            let mut calls = Vec::new();
            match call {
                Call::Pwrite { fd, len, at, data, .. } => {
                    let grain = if is_direct(lines, *fd) { GRAIN } else { 1 };
                    let half = (len / 2).next_multiple_of(GRAIN);
                    let sizes = [(GRAIN, 0), (GRAIN, *at), (half, *at), (*len, 0), (*len, at / 2)];
                    for (len, at) in sizes {
                        let at = at / u64::from(GRAIN) * u64::from(GRAIN);
                        if len % grain == 0 {
                            // What is given is as long as it is.
                            if !matches!(data, Data::Given(_)) {
                                calls.push(call.moved(len, at));
                            }
                        }
                    }
                    calls.retain(|c| match c {
                        Call::Pwrite { len: l, at: a, .. } => (*l, *a) < (*len, *at),
                        _ => false,
                    });
                }
                Call::Ftruncate(fd, len) => {
                    let sizes = [0, 4096, len / 2].into_iter().filter(|n| n < len);
                    calls.extend(sizes.map(|n| Call::Ftruncate(*fd, n)));
                }
                Call::Fallocate(fd, how, at, len) => {
                    for (at_new, len_new) in [(0, 4096), (*at, 4096), (0, *len)] {
                        if (len_new, at_new) < (*len, *at) {
                            calls.push(Call::Fallocate(*fd, *how, at_new, len_new));
                        }
                    }
                    if *how == Alloc::Zero {
                        calls.push(Call::Fallocate(*fd, Alloc::Extend, *at, *len));
                    }
                    if *how == Alloc::ZeroKeep {
                        calls.push(Call::Fallocate(*fd, Alloc::Keep, *at, *len));
                    }
                }
                Call::CopyFileRange { from_at, to_at, len, .. }
                | Call::Reflink { from_at, to_at, len, .. }
                | Call::Dedupe { from_at, to_at, len, .. } => {
                    let grain = u64::from(GRAIN);
                    for new in [(0, 0, grain), (*from_at, *to_at, grain), (0, 0, *len)] {
                        // 0 is all that there is.
                        let bytes = |len: u64| if len == 0 { u64::MAX } else { len };
                        if (bytes(new.2), new.0, new.1) < (bytes(*len), *from_at, *to_at) {
                            calls.push(with_ranges(call, new));
                        }
                    }
                }
                Call::Mkcp(true) => calls.push(Call::Mkcp(false)),
                Call::Chattr(path, flags) => {
                    let fewer = FileFlags::NAMES.iter().map(|(_, flag)| flags.without(*flag));
                    let fewer = fewer.filter(|f| f != flags && *f != FileFlags::NONE);
                    calls.extend(fewer.map(|f| Call::Chattr(path.clone(), f)));
                }
                Call::Open(fd, path, how) => {
                    let less = |f: fn(&mut Flags)| {
                        let mut how = *how;
                        f(&mut how);
                        Call::Open(*fd, path.clone(), how)
                    };
                    calls.push(less(|f| f.sync = false));
                    calls.push(less(|f| f.dsync = false));
                    calls.push(less(|f| f.append = false));
                    calls.push(less(|f| f.direct = false));
                    calls.push(less(|f| f.truncate = false));
                    calls.retain(|c| c != call);
                }
                _ => {}
            }
            steps.extend(calls.into_iter().map(|c| Step::Call(label(), c)));
        }
        _ => {}
    }
    steps.into_iter().map(|s| with(lines, at, s)).collect()
}

/// A call of two ranges with others: where they begin, and how long they are.
fn with_ranges(call: &Call, (new_from, new_to, new_len): (u64, u64, u64)) -> Call {
    let mut call = call.clone();
    if let Call::CopyFileRange { from_at, to_at, len, .. }
    | Call::Reflink { from_at, to_at, len, .. }
    | Call::Dedupe { from_at, to_at, len, .. } = &mut call
    {
        (*from_at, *to_at, *len) = (new_from, new_to, new_len);
    }
    call
}

/// Changes of a whole program: descriptors of one file that become one, names that become one,
/// files that move to the root.
pub(super) fn of_program(lines: &[Line]) -> Vec<Vec<Line>> {
    let mut out = Vec::new();
    let opens: Vec<(usize, u32, &String)> = lines
        .iter()
        .enumerate()
        .filter_map(|(i, (_, s))| match s {
            Step::Call(_, Call::Open(fd, path, _)) => Some((i, *fd, path)),
            _ => None,
        })
        .collect();
    for (n, (at, fd, path)) in opens.iter().enumerate() {
        let Some((_, before, _)) = opens[..n].iter().rev().find(|o| o.2 == *path) else { continue };
        let mut new = lines.to_vec();
        for (_, step) in &mut new[*at..] {
            if let Step::Call(_, call) = step {
                call.descriptors_mut()
                    .into_iter()
                    .filter(|d| **d == *fd)
                    .for_each(|d| *d = *before);
            }
        }
        new.remove(*at);
        out.push(new);
    }
    // A name that another gets, and whatever is done with that one, done with the first.
    for (at, (_, step)) in lines.iter().enumerate() {
        let Step::Call(
            _,
            Call::Link(old, new) | Call::Rename(old, new) | Call::Renameat2(old, new, _),
        ) = step
        else {
            continue;
        };
        let mut merged = lines.to_vec();
        for (_, step) in &mut merged[at..] {
            if let Step::Call(_, call) = step {
                call.paths_mut().into_iter().filter(|p| *p == new).for_each(|p| *p = old.clone());
            }
        }
        merged.remove(at);
        out.push(merged);
    }
    out.extend(fewer_threads(lines));
    let mut all: BTreeSet<String> = BTreeSet::new();
    for (_, step) in lines.iter().cloned() {
        if let Step::Call(_, mut call) = step {
            all.extend(call.paths_mut().into_iter().map(|p| p.clone()));
        }
    }
    for path in all.iter().filter(|p| p.contains('/')) {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let mut new = lines.to_vec();
        for (_, step) in &mut new {
            if let Step::Call(_, call) = step {
                call.paths_mut().into_iter().filter(|p| *p == path).for_each(|p| *p = name.clone());
            }
        }
        out.push(new);
    }
    out
}

/// The calls of a thread made by the main thread, or by one with a lower number.
fn fewer_threads(lines: &[Line]) -> Vec<Vec<Line>> {
    let of = |(_, step): &Line| match step {
        Step::Call(by, _) => by.thread,
        _ => 0,
    };
    let threads: BTreeSet<u32> = lines.iter().map(of).filter(|t| *t > 0).collect();
    let pairs = threads.iter().flat_map(|from| {
        std::iter::once((*from, 0)).chain(threads.range(..from).map(|to| (*from, *to)))
    });
    // Where all numbers are used, nothing is gained but a smaller one.
    let lower = (1..).zip(&threads).filter(|(n, t)| n < *t).map(|(n, t)| (*t, n));
    let moved = |(from, to): (u32, u32)| {
        let mut new = lines.to_vec();
        for (_, step) in &mut new {
            if let Step::Call(by, _) = step
                && by.thread == from
            {
                by.thread = to;
            }
        }
        new
    };
    pairs.chain(lower).map(moved).collect()
}

/// The same with small numbers and short names, in order of appearance: all of it, the numbers
/// alone, the names alone.
pub(super) fn tidied(lines: &[Line]) -> Vec<Vec<Line>> {
    let numbers = |lines: &[Line]| {
        // Two writes of one seed stay so: a dedupe needs equal bytes.
        let (mut fds, mut seeds): (BTreeMap<u32, u32>, BTreeMap<u32, u32>) = Default::default();
        let mut new = lines.to_vec();
        for (_, step) in &mut new {
            let Step::Call(_, call) = step else { continue };
            for fd in call.descriptors_mut() {
                let next = fds.len() as u32;
                *fd = *fds.entry(*fd).or_insert(next);
            }
            if let Call::Pwrite { data: Data::Seed(seed), .. }
            | Call::MmapWrite { data: Data::Seed(seed), .. }
            | Call::AioWrite { seed, .. } = call
            {
                let next = seeds.len() as u32 + 1;
                *seed = *seeds.entry(*seed).or_insert(next);
            }
        }
        new
    };
    let names = |lines: &[Line]| {
        let mut words: BTreeMap<String, String> = BTreeMap::new();
        let mut new = lines.to_vec();
        for (_, step) in &mut new {
            let Step::Call(_, call) = step else { continue };
            for path in call.paths_mut() {
                if path == "." {
                    continue;
                }
                let parts = path.split('/').map(|word| {
                    let next = letter(words.len());
                    words.entry(word.to_owned()).or_insert(next).clone()
                });
                *path = parts.collect::<Vec<_>>().join("/");
            }
        }
        new
    };
    vec![names(&numbers(lines)), numbers(lines), names(lines)]
}

/// a, b, …, z, f26, f27, …
fn letter(n: usize) -> String {
    match u8::try_from(n) {
        Ok(n) if n < 26 => char::from(b'a' + n).to_string(),
        _ => format!("f{n}"),
    }
}

#[cfg(test)]
mod tests {
    use wp_workload::program::Program;

    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        Program::parse(text).expect("a program").0.into_iter().enumerate().collect()
    }

    fn text(lines: &[Line]) -> String {
        Program(lines.iter().map(|(_, s)| s.clone()).collect()).to_string()
    }

    #[test]
    fn what_is_done_with_a_descriptor_goes_together() {
        let l = lines("open 0 a rw\nopen 1 b rw\nfsync 0\nclose 1\nopen 1 c r\nfsync 1\n");
        let sets = sessions(&l);
        assert_eq!(sets, [[4, 5].into(), [1, 3].into(), [0, 2].into()]);
    }

    #[test]
    fn two_descriptors_of_a_file_become_one_and_names_become_short() {
        let l =
            lines("open 5 d/foo rw,creat\npwrite 5 4096 0 9\nopen 3 d/foo r\nfsync 3\nclose 5\n");
        let merged = of_program(&l);
        let one = "open 5 d/foo rw,creat\npwrite 5 4096 0 9\nfsync 5\nclose 5\n";
        assert_eq!(text(&merged[0]), one);
        let flat = text(&merged[1]);
        assert!(flat.starts_with("open 5 foo rw") && flat.contains("open 3 foo r"), "{flat}");
        let tidy = text(&tidied(&l)[0]);
        let want = "open 0 a/b rw,creat\npwrite 0 4096 0 1\nopen 1 a/b r\nfsync 1\nclose 0\n";
        assert_eq!(tidy, want);
    }

    #[test]
    fn a_second_name_is_left_out_and_the_first_does_its_work() {
        let l = lines("open 0 b rw,creat\nlink b c\nrename c a\n");
        let all: Vec<String> = of_program(&l).iter().map(|c| text(c)).collect();
        assert_eq!(all[0], "open 0 b rw,creat\nrename b a\n");
    }

    #[test]
    fn threads_become_fewer() {
        let l = lines("in_order\nthread 2: sync\nthread 4: fsync 0\nunlink a\n");
        let all: Vec<String> = of_program(&l).iter().map(|c| text(c)).collect();
        let with = |a: &str, b: &str| format!("in_order\n{a}sync\n{b}fsync 0\nunlink a\n");
        let (two, four) = ("thread 2: ", "thread 4: ");
        let want = [("", four), (two, ""), (two, two), ("thread 1: ", four), (two, two)];
        assert_eq!(all, want.map(|(a, b)| with(a, b)));
    }

    #[test]
    fn every_simpler_step_is_smaller_and_another() {
        let l = lines("open 0 a rw,creat,direct\npwrite 0 65536 8192 1\nnap 6000000\n");
        for at in 0..l.len() {
            let all = of_step(&l, at);
            assert!(!all.is_empty() && all.iter().all(|c| *c != l && c.len() == l.len()));
        }
        // What is smallest has nothing simpler: no candidate leads in a circle.
        let least = lines("pwrite 0 4096 0 1\nnap 500\nftruncate 0 0\n");
        assert!((0..3).all(|at| of_step(&least, at).is_empty()));
    }

    #[test]
    fn ranges_of_two_files_become_smaller_and_begin_earlier() {
        let from = lines("reflink 0 8192 1 4096 0\n");
        let tried: Vec<String> = of_step(&from, 0).iter().map(|l| text(l)).collect();
        let expected =
            ["reflink 0 0 1 0 4096\n", "reflink 0 8192 1 4096 4096\n", "reflink 0 0 1 0 0\n"];
        assert_eq!(tried, expected);
        for call in ["copy_file_range", "dedupe", "reflink"] {
            assert_eq!(of_step(&lines(&format!("{call} 0 0 1 0 4096\n")), 0).len(), 0, "{call}");
        }
    }

    #[test]
    fn writes_of_one_seed_stay_equal_where_seeds_become_small() {
        let all = "pwrite 5 4096 0 77\npwrite 6 4096 0 77\npwrite 5 4096 0 12\n\
                   dedupe 5 0 6 0 4096\n";
        let first = tidied(&lines(all)).first().map(|l| text(l));
        let expected = "pwrite 0 4096 0 1\npwrite 1 4096 0 1\npwrite 0 4096 0 2\n\
                        dedupe 0 0 1 0 4096\n";
        assert_eq!(first.as_deref(), Some(expected));
    }
}
