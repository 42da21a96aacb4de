//! Parameters of `--elevator`, behind the name: `deadline,fsync_depth=4,boost=1`.

use std::fmt;

use wp_base::Span;

use crate::sync_depth::SyncDepth;

/// What techniques of the literature change of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tuning {
    /// Queue-depth adaptation.
    pub sync_depth: Option<SyncDepth>,
    /// QASIO.
    pub boost: bool,
    /// Waits for asynchronous writes are counted.
    pub counts_quasi: bool,
}

impl Tuning {
    /// Reads parameters.
    ///
    /// Errors: another key, a value out of range, a window without a depth.
    pub fn parse<'a>(params: impl Iterator<Item = &'a str>) -> Result<Tuning, String> {
        let (mut tuning, mut depth, mut window) = (Tuning::default(), None, None);
        for param in params {
            let (key, value) = param.split_once('=').unwrap_or((param, "1"));
            let number = value.parse::<u32>().ok();
            match (key, number) {
                ("fsync_depth", Some(n @ 1..=65536)) => depth = Some(n),
                ("fsync_depth", _) => {
                    return Err(format!("fsync_depth: `{value}`: a number of requests from 1 on"));
                }
                ("fsync_window_ms", Some(n)) => window = Some(u64::from(n)),
                ("fsync_window_ms", _) => {
                    return Err(format!("fsync_window_ms: `{value}`: milliseconds; 0: always"));
                }
                ("boost", Some(n @ 0..=1)) => tuning.boost = n == 1,
                ("count_waits", Some(n @ 0..=1)) => tuning.counts_quasi = n == 1,
                ("boost" | "count_waits", _) => return Err(format!("{key}: `{value}`: 0 or 1")),
                _ => {
                    return Err(format!(
                        "an elevator has no parameter `{key}` (parameters: fsync_depth, \
                         fsync_window_ms, boost, count_waits)"
                    ));
                }
            }
        }
        tuning.sync_depth = match (depth, window) {
            (None, Some(_)) => return Err("fsync_window_ms needs fsync_depth".to_owned()),
            (None, None) => None,
            (Some(depth), window) => {
                let ms = window.unwrap_or(SyncDepth::WINDOW_MS);
                Some(SyncDepth { depth, window: (ms > 0).then(|| Span::millis(ms)) })
            }
        };
        Ok(tuning)
    }
}

impl fmt::Display for Tuning {
    /// With a comma before each parameter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(depth) = self.sync_depth {
            write!(f, ",{depth}")?;
        }
        if self.boost {
            f.write_str(",boost=1")?;
        }
        if self.counts_quasi { f.write_str(",count_waits=1") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        let parse = |text: &str| Tuning::parse(text.split(',').filter(|p| !p.is_empty()));
        assert_eq!(parse(""), Ok(Tuning::default()));
        let window = Some(Span::millis(100));
        let depth = parse("fsync_depth=4").expect("right").sync_depth;
        assert_eq!(depth, Some(SyncDepth { depth: 4, window }));
        for text in [
            ",fsync_depth=4,fsync_window_ms=7",
            ",fsync_depth=1,fsync_window_ms=0,boost=1",
            ",boost=1,count_waits=1",
            "",
        ] {
            assert_eq!(parse(text).expect("right").to_string(), text);
        }
        for wrong in ["fsync_depth=0", "fsync_depth=x", "fsync_window_ms=5", "depth=3", "boost=2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
