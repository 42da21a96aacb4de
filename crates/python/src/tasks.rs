//! The runs of an experiment as tasks for other processes.
//!
//! Picture:    [`Sweep`] (where results are): which runs are not kept -> [`Maker`] (anywhere):
//!             makes them -> [`Sweep`] keeps what comes back; then the command writes the result.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wp_experiment::{Experiment, Kept, Points, Source, Task, load, make, missing};

/// Hash of this program: runs of another one are not the same.
#[pyfunction]
pub fn program() -> PyResult<&'static str> {
    wp_machine::host::program::hash().map_err(|e| PyOSError::new_err(e.to_string()))
}

/// Reads an experiment. Errors: what is wrong with the file, in words.
fn read(file: &Path, seed: Option<u64>) -> Result<Experiment, String> {
    let checked = load(file, seed).map_err(|e| format!("{}: {e}", file.display()))?;
    let said: Vec<String> = checked.diagnostics.iter().map(ToString::to_string).collect();
    checked.experiment.ok_or_else(|| said.join("\n\n"))
}

/// An experiment and the folder that keeps its runs.
#[pyclass(frozen)]
pub struct Sweep {
    kept: Kept,
    resolved: String,
    inputs: BTreeMap<String, Vec<u8>>,
    runs: usize,
    missing: Vec<Task>,
}

#[pymethods]
impl Sweep {
    /// Reads an experiment file, and looks which of its runs are kept below `out`.
    #[new]
    #[pyo3(signature = (file, out, seed=None))]
    fn new(py: Python<'_>, file: PathBuf, out: PathBuf, seed: Option<u64>) -> PyResult<Sweep> {
        let program = program()?;
        py.detach(|| {
            let e = read(&file, seed)?;
            let kept = Kept::new(out.join("kept").join("runs"), program);
            let missing = missing(&e, &kept).map_err(|(n, why)| format!("run {n}: {why}"))?;
            let inputs = e.inputs.iter().map(|(n, b)| (n.clone(), b.clone())).collect();
            Ok(Sweep { kept, runs: e.runs(), missing, inputs, resolved: e.resolved })
        })
        .map_err(PyValueError::new_err::<String>)
    }

    /// How many runs the experiment has.
    #[getter]
    fn runs(&self) -> usize {
        self.runs
    }

    /// The experiment with every default filled in; it runs by itself beside its inputs.
    #[getter]
    fn resolved(&self) -> &str {
        &self.resolved
    }

    /// The files that it reads, by their names beside `resolved`.
    fn inputs<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        self.inputs.iter().map(|(name, b)| (name.clone(), PyBytes::new(py, b))).collect()
    }

    /// The runs that are not kept: point, seed, and the name that the run is kept under.
    fn missing(&self) -> Vec<(usize, u64, String)> {
        self.missing.iter().map(|t| (t.point, t.seed, t.name.clone())).collect()
    }

    /// Keeps what a [`Maker`] has made.
    fn keep(&self, name: &str, outcome: &[u8]) -> PyResult<()> {
        self.kept.put(name, outcome).map_err(|e| PyOSError::new_err(e.to_string()))
    }
}

/// Makes runs of an experiment, in any process.
#[pyclass(frozen)]
pub struct Maker {
    source: Mutex<Source>,
    /// Its number among those of this process.
    number: u64,
}

thread_local! {
    /// The points of the maker that this thread used last: reading them again for each run would
    /// take longer than a short run.
    static OPEN: RefCell<Option<(u64, Points)>> = const { RefCell::new(None) };
}

/// Keeps a run below `out`, as [`Sweep::keep`] does.
#[pyfunction]
pub fn keep(out: PathBuf, name: &str, outcome: &[u8]) -> PyResult<()> {
    let kept = Kept::new(out.join("kept").join("runs"), program()?);
    kept.put(name, outcome).map_err(|e| PyOSError::new_err(e.to_string()))
}

/// The papers of `reproduce` with these words that no earlier run has kept.
#[pyfunction]
pub fn missing_papers(words: Vec<OsString>) -> PyResult<Vec<&'static str>> {
    writepath::missing_papers(words).map_err(told)
}

#[pymethods]
impl Maker {
    /// Of a resolved experiment that lies beside its inputs; `program`: the hash of the program
    /// that asks.
    #[new]
    fn new(py: Python<'_>, file: PathBuf, program: &str) -> PyResult<Maker> {
        let own = self::program()?;
        if own != program {
            return Err(PyRuntimeError::new_err(format!(
                "another build of writepath is installed here ({} instead of {}): install the \
                 same wheel on the client and on every worker",
                &own[..12],
                program.get(..12).unwrap_or(program),
            )));
        }
        let source = py.detach(|| Ok(read(&file, None)?.points.source.clone()));
        let source = Mutex::new(source.map_err(PyValueError::new_err::<String>)?);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Maker { source, number: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    /// Makes a run: what [`Sweep::keep`] takes. Raises ValueError if it cannot be made.
    fn make<'py>(&self, py: Python<'py>, point: usize, seed: u64) -> PyResult<Bound<'py, PyBytes>> {
        let made = py.detach(|| {
            OPEN.with_borrow_mut(|open| {
                if open.as_ref().is_none_or(|(number, _)| *number != self.number) {
                    let source = self.source.lock().unwrap_or_else(|e| e.into_inner()).clone();
                    *open = Some((self.number, source.open()));
                }
                let (_, points) = open.as_ref().ok_or("the experiment is closed")?;
                let outcome = make(points, point, seed).map_err(|e| e.to_string())?;
                Ok(Kept::bytes(&outcome))
            })
        });
        Ok(PyBytes::new(py, &made.map_err(PyValueError::new_err::<String>)?))
    }
}

/// A campaign of `crash run` in parts.
#[pyclass(frozen)]
pub struct CrashParts {
    parts: Mutex<writepath::CrashParts>,
}

fn told(e: writepath::Failure) -> PyErr {
    PyValueError::new_err((e.code, e.message, e.help))
}

impl CrashParts {
    fn parts_of(&self) -> std::sync::MutexGuard<'_, writepath::CrashParts> {
        self.parts.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[pymethods]
impl CrashParts {
    /// Of the words of `crash run`; a part has about `step` programs. Raises ValueError (code,
    /// message, hint).
    #[new]
    fn new(words: Vec<OsString>, step: u64) -> PyResult<CrashParts> {
        let parts = writepath::crash_parts(words, step).map_err(told)?;
        Ok(CrashParts { parts: Mutex::new(parts) })
    }

    /// The first program of the campaign, and the one after the last.
    #[getter]
    fn programs(&self) -> (u64, u64) {
        self.parts_of().programs()
    }

    /// The first program of each part, and the one after its last.
    fn parts(&self) -> Vec<(u64, u64)> {
        self.parts_of().parts()
    }

    /// Joins the state files of all parts, in order, into that of the whole campaign.
    fn join(&self, py: Python<'_>, parts: Vec<Vec<u8>>, state_file: PathBuf) -> PyResult<()> {
        py.detach(|| self.parts_of().join(&parts, &state_file)).map_err(told)
    }
}
