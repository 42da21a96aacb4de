//! The shortest edit script between two sequences (Myers, "An O(ND) difference algorithm").

/// Most edits that are looked for; beyond that the sequences have little in common, and the search
/// would take memory with the square of it.
const EDITS_MAX: usize = 3000;

/// A piece of an alignment: indexes into either side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Edit {
    /// Equal.
    Both(usize, usize),
    /// Only in the first.
    Left(usize),
    /// Only in the second.
    Right(usize),
}

/// Aligns `a` with `b`.
pub(crate) fn align<T: PartialEq>(a: &[T], b: &[T]) -> Vec<Edit> {
    let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a_rest, b_rest) = (&a[head..], &b[head..]);
    let tail = a_rest.iter().rev().zip(b_rest.iter().rev()).take_while(|(x, y)| x == y).count();
    let (a_mid, b_mid) = (&a_rest[..a_rest.len() - tail], &b_rest[..b_rest.len() - tail]);
    let mut out: Vec<Edit> = (0..head).map(|i| Edit::Both(i, i)).collect();
    out.extend(middle(a_mid, b_mid).into_iter().map(|e| match e {
        Edit::Both(x, y) => Edit::Both(x + head, y + head),
        Edit::Left(x) => Edit::Left(x + head),
        Edit::Right(y) => Edit::Right(y + head),
    }));
    let tails = (0..tail).map(|i| Edit::Both(a.len() - tail + i, b.len() - tail + i));
    out.extend(tails);
    out
}

fn middle<T: PartialEq>(a: &[T], b: &[T]) -> Vec<Edit> {
    let (n, m) = (a.len() as isize, b.len() as isize);
    let max = (a.len() + b.len()).min(EDITS_MAX) as isize;
    // How far each diagonal reaches with d edits, for each d.
    let mut reach = vec![0isize; 2 * max as usize + 3];
    let mut history: Vec<Vec<isize>> = Vec::new();
    let middle = max + 1;
    for d in 0..=max {
        history.push(reach[(middle - d - 1) as usize..=(middle + d + 1) as usize].to_vec());
        for k in (-d..=d).step_by(2) {
            let at = (middle + k) as usize;
            let down = k == -d || (k != d && reach[at - 1] < reach[at + 1]);
            let mut x = if down { reach[at + 1] } else { reach[at - 1] + 1 };
            let mut y = x - k;
            while x < n && y < m && a[x as usize] == b[y as usize] {
                (x, y) = (x + 1, y + 1);
            }
            reach[at] = x;
            if x >= n && y >= m {
                return trace_back(&history, n, m);
            }
        }
    }
    (0..a.len()).map(Edit::Left).chain((0..b.len()).map(Edit::Right)).collect()
}

fn trace_back(history: &[Vec<isize>], n: isize, m: isize) -> Vec<Edit> {
    let (mut x, mut y) = (n, m);
    let mut out = Vec::new();
    for (d, reach) in history.iter().enumerate().rev() {
        let d = d as isize;
        let k = x - y;
        // The slice of step d begins at diagonal -d - 1.
        let at = |k: isize| reach[(k + d + 1) as usize];
        let down = k == -d || (k != d && at(k - 1) < at(k + 1));
        let from_k = if down { k + 1 } else { k - 1 };
        let from_x = if d == 0 { 0 } else { at(from_k) };
        let from_y = if d == 0 { 0 } else { from_x - from_k };
        while x > from_x && y > from_y {
            (x, y) = (x - 1, y - 1);
            out.push(Edit::Both(x as usize, y as usize));
        }
        if d > 0 {
            out.push(if down { Edit::Right(from_y as usize) } else { Edit::Left(from_x as usize) });
        }
        (x, y) = (from_x, from_y);
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of short words over two letters: the script leads from one to the other, and is
    /// as short as the longest common subsequence allows.
    #[test]
    fn scripts_of_all_short_words_are_right_and_shortest() {
        let words: Vec<Vec<u8>> = (0..6)
            .flat_map(|n| (0..1u32 << n).map(move |w| (0..n).map(|i| (w >> i & 1) as u8).collect()))
            .collect();
        for a in &words {
            for b in &words {
                let script = align(a, b);
                let (mut x, mut y, mut common) = (0, 0, 0);
                for e in script {
                    match e {
                        Edit::Both(i, j) => {
                            assert!(i == x && j == y && a[i] == b[j], "{a:?} {b:?}");
                            (x, y, common) = (x + 1, y + 1, common + 1);
                        }
                        Edit::Left(i) => {
                            assert_eq!(i, x, "{a:?} {b:?}");
                            x += 1;
                        }
                        Edit::Right(j) => {
                            assert_eq!(j, y, "{a:?} {b:?}");
                            y += 1;
                        }
                    }
                }
                assert_eq!((x, y), (a.len(), b.len()));
                assert_eq!(common, longest(a, b), "{a:?} {b:?}");
            }
        }
    }

    fn longest(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([x, xs @ ..], [y, ys @ ..]) if x == y => 1 + longest(xs, ys),
            ([_, xs @ ..], [_, ys @ ..]) => longest(xs, b).max(longest(a, ys)),
            _ => 0,
        }
    }
}
