//! QASIO: an install (files written and synced) on a phone's drive, alone and beside a large write,
//! with boosting and without.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::{FsResult, Span};
use wp_block::{Quasi, QuasiWaits};
use wp_machine::MachineError;
use wp_machine::profile::Profile;
use wp_medium::Slice;
use wp_vfs::{OpenFlags, Vfs};

use super::Ask;
use super::beside::Setup;
use crate::claims::Measured;
use crate::vary::{BY_HALF, Range, Variation};

const MIB: u64 = 1 << 20;
/// Bytes of a file of the package.
const FILE_BYTES: u64 = 128 << 10;
/// Bytes that the large write writes over and over.
const LARGE_BYTES: u64 = 32 * MIB;

/// Writes the large file, until told to end.
async fn large(v: Vfs, end: Rc<Cell<bool>>, written: Rc<Cell<u64>>) -> FsResult<()> {
    let fd = v.open("large", OpenFlags::CREATE, 0o644).await?;
    let mut at = 0;
    while !end.get() {
        v.pwrite(fd, at % LARGE_BYTES, &[Slice::pattern(1, at, MIB as u32)]).await?;
        at += MIB;
        written.set(at);
    }
    Ok(())
}

/// Each file of the package: written, synced, renamed to its place; the list of packages appended
/// to and synced; the old file removed.
async fn install(v: &Vfs, files: u64) -> FsResult<()> {
    let list = v.open("packages", OpenFlags::CREATE, 0o644).await?;
    for n in 0..files {
        let (new, name) = (format!("tmp{n}"), format!("app{}", n % 16));
        let fd = v.open(&new, OpenFlags::CREATE, 0o644).await?;
        for at in (0..FILE_BYTES).step_by(32 << 10) {
            v.pwrite(fd, at, &[Slice::pattern(n, at, 32 << 10)]).await?;
        }
        v.fsync(fd).await?;
        v.close(fd).await?;
        v.rename(&new, &name).await?;
        v.pwrite(list, n * 512, &[Slice::pattern(n, n * 512, 512)]).await?;
        v.fsync(list).await?;
    }
    Ok(())
}

/// What came of an install.
struct Installed {
    took: Span,
    waits: QuasiWaits,
    /// Bytes that the large write wrote until the install was over.
    beside: u64,
}

fn run(
    ask: Ask,
    elevator: &str,
    beside: bool,
    varied: Option<&Variation>,
) -> Result<Installed, MachineError> {
    let memory = "dirty_bytes=8388608,dirty_background_bytes=4194304";
    let mut setup = Setup {
        fs: format!("ext4,era=3.4,noinit_itable,discard,{memory}"),
        device: "emmc-16",
        params: Vec::new(),
        elevator: format!("cfq,{elevator}"),
        kernel: (3, 4),
        cpu: Profile::known("snapdragon-800").model(),
        seed: ask.seed,
    };
    if let Some(varied) = varied {
        varied.apply(&mut setup.params, &mut setup.cpu);
    }
    let failed = |error| MachineError::Fs { during: "workload", error };
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let (v, files) = (vfs.clone(), ask.pick(160, 640));
    let played = async move {
        let end = Rc::new(Cell::new(false));
        let written = Rc::new(Cell::new(0));
        let other = large(v.clone(), end.clone(), written.clone());
        let writer = beside.then(|| v.rt().spawn("large", other));
        // The large write fills memory first.
        v.rt().sleep(Span::secs(2)).await;
        let (from, before) = (v.rt().now(), written.get());
        install(&v, files).await?;
        let took = v.rt().now().since(from);
        let bytes = written.get() - before;
        end.set(true);
        if let Some(writer) = writer {
            writer.await?;
        }
        FsResult::Ok((took, bytes))
    };
    let (took, beside) = machine.block_on("install", played)?.map_err(failed)?;
    let waits = machine.queue.quasi_waits();
    machine.unmount(&vfs)?;
    Ok(Installed { took, waits, beside })
}

pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    const STOCK: &str = "count_waits=1";
    const BOOST: &str = "boost=1";
    let slower = |elevator: &str, varied: Option<&Variation>| -> Result<f64, MachineError> {
        let beside = run(ask, elevator, true, varied)?.took;
        let alone = run(ask, elevator, false, varied)?.took;
        Ok(beside.0 as f64 / alone.0.max(1) as f64)
    };
    let stock = slower(STOCK, None)?;
    let mut range = Range::new(stock);
    for varied in Variation::of_all_cpu(BY_HALF) {
        range.widen(slower(STOCK, Some(&varied))?);
    }
    let boosted = slower(BOOST, None)?;
    let of_stock = run(ask, STOCK, true, None)?;
    let (waits, with) = (of_stock.waits, run(ask, BOOST, true, None)?.waits);
    let seen = waits.waits.iter().filter(|n| **n > 0).count();
    let list = |counts: &[u64; Quasi::COUNT]| {
        let each = Quasi::NAMES.iter().zip(counts).map(|(name, n)| format!("{name} {n}"));
        each.collect::<Vec<_>>().join(", ")
    };
    Ok(vec![
        (
            "qasio.install",
            range.measured().why(format!(
                "{} ms; the large write wrote {} MiB meanwhile",
                of_stock.took.0 / 1_000_000,
                of_stock.beside / MIB
            )),
        ),
        (
            "qasio.boost",
            Measured::answer(boosted < stock).why(format!(
                "{boosted:.3}, stock {stock:.3}; boosted requests: {}",
                list(&with.boosted)
            )),
        ),
        (
            "qasio.share",
            Measured::value(seen as f64).why(format!("waits of stock: {}", list(&waits.waits))),
        ),
    ])
}
