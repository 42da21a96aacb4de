//! What a run did: by flowop, by type, by thread; filebench's summary of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use serde_json::{Value, json};

use super::model::Kind;
use crate::fio::Stat;

/// What one kind of flowop did.
#[derive(Clone, Debug, Default)]
pub struct OpCount {
    /// How many counted.
    pub count: u64,
    /// Latencies.
    pub latency: Stat,
}

/// What the flowops of one name did.
#[derive(Clone, Debug)]
pub struct FlowopResult {
    /// Their name.
    pub name: Rc<str>,
    /// Their type.
    pub kind: Kind,
    /// Bytes.
    pub bytes: u64,
    /// How many counted, and their latencies.
    pub latency: Stat,
}

/// What one thread did.
#[derive(Clone, Debug, Default)]
pub struct ThreadResult {
    /// Its process and kind: `PROCESS-INSTANCE/THREAD-INSTANCE`.
    pub name: String,
    /// By name of the flowop's type.
    pub ops: BTreeMap<&'static str, u64>,
    /// Whole lists gone through.
    pub loops: u64,
}

impl ThreadResult {
    /// Flowops that counted.
    pub fn operations(&self) -> u64 {
        let is_io = |name: &str| Kind::ALL.iter().any(|k| k.name() == name && k.is_io());
        self.ops.iter().filter(|(name, _)| is_io(name)).map(|(_, n)| n).sum()
    }
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum End {
    /// Its time was over, or its loops were done.
    #[default]
    Length,
    /// A thread (`firstdone`) or all of them (`alldone`) had no more work.
    Done,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct BenchResult {
    /// By name of the flowop's type, all threads.
    pub ops: BTreeMap<&'static str, OpCount>,
    /// By name of the flowop, in the order of the text.
    pub flowops: Vec<FlowopResult>,
    /// Whole lists gone through.
    pub loops: u64,
    /// From the start of the threads until the last has ended, nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
    /// Files that exist at the end.
    pub files: u64,
    /// By thread, the first first.
    pub threads: Vec<ThreadResult>,
    /// Why it ended.
    pub end: End,
    /// `enable lathist`.
    pub histograms: bool,
}

/// Buckets of filebench's histogram: powers of two of nanoseconds.
const BUCKETS: usize = 64;

const MIB: f64 = 1_048_576.0;
const MS: f64 = 1e6;

impl BenchResult {
    /// Flowops that counted: the unit of filebench's summary. Waits, limits and checks count in
    /// their own lines alone.
    pub fn operations(&self) -> u64 {
        self.io().map(|f| f.latency.count).sum()
    }

    fn io(&self) -> impl Iterator<Item = &FlowopResult> {
        self.flowops.iter().filter(|f| f.kind.is_io())
    }

    /// Operations a second. 0 for a run of no time.
    pub fn ops_per_second(&self) -> f64 {
        self.per_second(self.operations() as f64)
    }

    fn per_second(&self, n: f64) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { n * 1e9 / self.elapsed_ns as f64 }
    }

    /// The lines that filebench prints at the end, the last flowop first as there.
    pub fn summary(&self) -> String {
        let mut text = "Per-Operation Breakdown\n".to_owned();
        let mut line = |l: String| writeln!(text, "{l}").expect("a string takes it");
        for f in self.flowops.iter().rev() {
            let (s, n) = (&f.latency, f.latency.count as f64);
            let mut out = format!(
                "{:<20} {}ops {:8.0}ops/s {:5.1}mb/s {:8.3}ms/op [{:.3}ms - {:5.3}ms]",
                f.name,
                s.count,
                self.per_second(n),
                self.per_second(f.bytes as f64 / MIB),
                s.mean() / MS,
                s.min as f64 / MS,
                s.max as f64 / MS,
            );
            if self.histograms {
                let mut buckets = [0u64; BUCKETS];
                for (ns, count) in s.histogram.bins() {
                    let power = ns.checked_ilog2().map_or(0, |p| p as usize + 1);
                    buckets[power.min(BUCKETS - 1)] += count;
                }
                out += "\t[ ";
                buckets.iter().for_each(|n| out += &format!("{n} "));
                out += "]";
            }
            line(out);
        }
        let of = |pick: fn(Kind) -> bool| {
            self.io().filter(|f| pick(f.kind)).map(|f| f.latency.count).sum::<u64>() as f64
        };
        let ops = self.operations();
        let waited: f64 = self.io().map(|f| f.latency.mean() * f.latency.count as f64).sum();
        line(format!(
            "IO Summary: {ops:5} ops {:5.3} ops/s {:.0}/{:.0} rd/wr {:5.1}mb/s {:5.3}ms/op",
            self.ops_per_second(),
            self.per_second(of(Kind::reads)),
            self.per_second(of(Kind::writes)),
            self.per_second(self.io().map(|f| f.bytes).sum::<u64>() as f64 / MIB),
            if ops == 0 { 0.0 } else { waited / ops as f64 / MS },
        ));
        text
    }

    /// All of it, as JSON. Latencies are in nanoseconds.
    pub fn json(&self) -> Value {
        let percentile = |s: &Stat, share| s.histogram.percentile(share).unwrap_or(0);
        let flowops: Vec<Value> = self
            .flowops
            .iter()
            .map(|f| {
                let s = &f.latency;
                json!({
                    "name": &*f.name, "type": f.kind.name(), "ops": s.count, "bytes": f.bytes,
                    "latency_ns": {
                        "min": s.min, "max": s.max, "mean": s.mean(),
                        "p50": percentile(s, 50_000_000), "p99": percentile(s, 99_000_000),
                    },
                })
            })
            .collect();
        let threads: Vec<Value> = self
            .threads
            .iter()
            .map(|t| json!({ "name": t.name, "ops": t.operations(), "loops": t.loops }))
            .collect();
        json!({
            "schema": "writepath.filebench/1",
            "operations": self.operations(),
            "operations_per_s": self.ops_per_second(),
            "elapsed_ns": self.elapsed_ns,
            "loops": self.loops,
            "written_bytes": self.written,
            "read_bytes": self.read,
            "files": self.files,
            "end": if self.end == End::Done { "done" } else { "length" },
            "flowops": flowops,
            "threads": threads,
            "summary": self.summary(),
        })
    }
}
