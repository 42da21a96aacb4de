//! From runs to claims.

use wp_machine::MachineError;
use wp_report::claim::Judged;

use super::{Load, Outcome, Rates, Results, SLUG, System, TYPES};
use crate::claims::{Book, Claims, Measured};

fn config(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// Types and how many of each.
fn counts(o: &Outcome) -> String {
    let parts: Vec<String> =
        TYPES.iter().map(|t| format!("{t} {}", o.conflicts.of_type(t))).collect();
    format!("{}; {} operations", parts.join(", "), o.operations)
}

pub(super) fn judge(found: &Results) -> Result<Vec<Judged>, MachineError> {
    let claims = Claims::fixed();
    let mut book = Book::open(&claims, SLUG).map_err(config)?;
    let mut emit = |id: &str, m: Measured| book.emit(id, m).map(|_| ()).map_err(config);
    let [two, three] = &found.tables;
    for (table, o) in [("table2", two), ("table3", three)] {
        for t in TYPES {
            let mut m = Measured::value(o.conflicts.share(t));
            if t == "S" {
                m = m.why(counts(o));
            }
            emit(&format!("{table}.{t}"), m)?;
        }
    }
    let printed = "the paper's 228,516 / (60 s x 8,260/s) is 46.1 %, not the 44.5 % that it prints";
    emit("table2.per_op", Measured::value(two.per_op()).why(printed.to_owned()))?;
    emit("table3.per_op", Measured::value(three.per_op()))?;
    emit("per_op_ratio", Measured::value(two.per_op() / three.per_op()))?;
    emit("ops_ratio", Measured::value(three.ops_per_second / two.ops_per_second))?;
    for t in ["G", "DB", "IT"] {
        let (a, b) = (two.conflicts.of_type(t) as f64, three.conflicts.of_type(t) as f64);
        emit(&format!("{t}_ratio"), Measured::value(b / a))?;
    }
    emit("table2.spread", Measured::value(two.spread()))?;
    emit("table3.spread", Measured::value(three.spread()))?;
    let rates = rates(found)?;
    let mut scaling = |id: &str, of: &dyn Fn(&Rates) -> f64| {
        let ours = of(&rates);
        let all = found.varied.iter().map(|(_, r)| of(r)).chain([ours]);
        let [low, high] =
            all.fold([f64::INFINITY, f64::NEG_INFINITY], |[a, b], v| [a.min(v), b.max(v)]);
        let m = Measured::value(ours);
        emit(id, if found.varied.is_empty() { m } else { m.interval(low, high) })
    };
    let yes = |b: bool| f64::from(u8::from(b));
    scaling("graph1.bfs_flat", &|r| r.bfs[1] / r.bfs[0])?;
    scaling("graph2.bfs_scales", &|r| {
        (r.bfs_modified[1] / r.bfs_modified[0]) / (r.bfs[1] / r.bfs[0])
    })?;
    scaling("graph1.f2fs_above", &|r| yes(r.f2fs[0] > r.ext4[0].max(r.bfs[1])))?;
    scaling("graph2.f2fs_above", &|r| yes(r.f2fs[1] > r.ext4[1].max(r.bfs_modified[1])))?;
    scaling("graph2.ext4_rises", &|r| r.ext4[1] / r.ext4[0])?;
    scaling("graph2.bfs_rises", &|r| r.bfs_modified[1] / r.bfs[1])?;
    book.close().map_err(config)
}

/// The claims' rates, from the graphs.
fn rates(found: &Results) -> Result<Rates, MachineError> {
    let of = |load: Load, system, threads| {
        let graph = found.graphs.iter().find(|g| g.load == load);
        let point = graph.and_then(|g| g.of(system, threads));
        point.map(|o| o.ops_per_second).ok_or_else(|| config("a point of a graph is missing"))
    };
    let (v, m) = (Load::Varmail, Load::NoCreateDelete);
    Ok(Rates {
        bfs: [of(v, System::BfsDr, 2)?, of(v, System::BfsDr, 8)?],
        bfs_modified: [of(m, System::BfsDr, 2)?, of(m, System::BfsDr, 8)?],
        ext4: [of(v, System::Ext4Dr, 8)?, of(m, System::Ext4Dr, 8)?],
        f2fs: [of(v, System::F2fs, 8)?, of(m, System::F2fs, 8)?],
    })
}
