//! The programs that are cut.

use wp_base::rng::Rng;
use wp_campaign::programs::{atomic, direct, emptied, moved, ordered};
use wp_campaign::wild::Extras;
use wp_campaign::{Of, Source, sequences};
use wp_machine::MachineError;
use wp_workload::program::{Call, Program, Step};

use super::{Combination, Length};

/// A part of the campaign of a combination.
pub(super) struct Part {
    /// Its name in reports.
    pub name: &'static str,
    /// Programs.
    pub source: Source,
    /// How many.
    pub count: u64,
    /// Another process beside it, which syncs every N µs; 0: none.
    pub company_us: u64,
    /// Options of the file system besides.
    pub options: &'static str,
}

/// All parts of a combination. Errors: options that it cannot have.
pub(super) fn parts(c: &Combination, length: Length) -> Result<Vec<Part>, MachineError> {
    let (fs, barriers) = (c.fs, c.fs.has_barriers(&c.options(&[])?));
    // A drive that begins a write late, behind a barrier that came later, keeps no order; and a
    // zone is written in order.
    let in_time = c.has("dual-mode") || c.drive.is_zoned();
    let overtaken = if in_time { beside } else { overtaken };
    let made = |make| Source::Made { seed: 1, make };
    let part = |name, source, count| Part { name, source, count, company_us: 0, options: "" };
    let mut all = vec![
        part(
            "sequences",
            Source::Sequences(Of::Ace, 1),
            length.pick(24, sequences::count(Of::Ace, 1)),
        ),
        part("overtaken", made(overtaken), length.pick(2, 8)),
        part("order", made(if barriers { ordered::logs } else { synced_logs }), length.pick(1, 8)),
        Part { company_us: 150, ..part("direct", made(direct::database), length.pick(3, 24)) },
        part("direct, durable", made(direct::durable), length.pick(2, 24)),
        part("moved", made(moved::directories), length.pick(1, 8)),
    ];
    let wild = Source::Wild { seed: 1, calls: 40, extras: Extras::ALL.on(fs) };
    all.push(part("random", wild, length.pick(1, 8)));
    if fs.name == "ext4" {
        let tables = part("emptied tables", made(emptied::tables), length.pick(0, 2));
        all.push(Part { options: "inode_size=1024", ..tables });
    }
    if c.has("f2fs-atomic") {
        all.push(part("atomic writes", made(atomic::transactions), length.pick(8, 64)));
    }
    all.retain(|p| p.count > 0);
    Ok(all)
}

/// Programs that order, on a file system that has no barriers.
fn synced_logs(seed: u64) -> Program {
    let mut program = ordered::logs(seed);
    for step in &mut program.0 {
        if let Step::Call(_, call) = step {
            match *call {
                Call::Fbarrier(fd) => *call = Call::Fsync(fd),
                Call::Fdatabarrier(fd) => *call = Call::Fdatasync(fd),
                _ => {}
            }
        }
    }
    program
}

/// A new file's data is written back, the drive begins one of its writes late, and another file is
/// synced meanwhile: is what names the blocks durable before what is in them?
fn overtaken(seed: u64) -> Program {
    let mut rng = Rng::stream(seed, "overtaken");
    let blocks = 2 + rng.below(6);
    // So much that the flusher begins at once, or what it comes for when it is old.
    let text = match seed % 2 {
        1 => "slow write data 0 1 50000\npwrite 0 524288 0 2\nnap 5000".to_owned(),
        _ => {
            let bytes = blocks * 4096;
            format!("pwrite 0 {bytes} 0 2\nslow write data 0 1 3000000\nnap 35500000")
        }
    };
    let text = format!(
        "open 1 log rw,creat\npwrite 1 4096 0 1\nopen 0 new rw,creat\nfsync 1\n{text}\n\
         pwrite 1 4096 4096 4\nfsync 1\nnap 1000\npwrite 1 4096 8192 5\nfsync 1\n",
    );
    Program::parse(&text).expect("text of our own")
}

/// The same on a drive that begins in time.
fn beside(seed: u64) -> Program {
    let mut program = overtaken(seed);
    program.0.retain(|step| !matches!(step, Step::Slow(_)));
    program
}
