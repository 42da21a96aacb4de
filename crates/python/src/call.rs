//! A verb, called.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use writepath::{Answer, Far};

/// How often signals are looked for and progress is told.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a verb of the command: `words` are those behind the program's name.
///
/// `tick(what, done, all, text)` is called when the work has come further. Returns a dict: `exit`,
/// `document` (JSON), `text`, `notes`, `lines` (JSON), `error` (code, message, hint; or None),
/// `interrupted`. KeyboardInterrupt has the verb stop, and what came of it is returned; a second
/// one is raised at once, and the verb ends by itself.
#[pyfunction]
#[pyo3(signature = (words, tick=None))]
pub fn call<'py>(
    py: Python<'py>,
    words: Vec<OsString>,
    tick: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let running = writepath::begin(words).map_err(|e| PyOSError::new_err(e.to_string()))?;
    let mut told = Far::default();
    let mut raised: Option<PyErr> = None;
    loop {
        let ended = py.detach(|| running.wait(LOOK));
        let far = running.far();
        if let Some(tick) = tick.as_ref().filter(|_| far != told && raised.is_none())
            && let Err(e) = tick.call1(py, (&far.what, far.done, far.all, &far.text))
        {
            running.interrupt();
            raised = Some(e);
        }
        told = far;
        if ended {
            break;
        }
        if let Err(e) = py.check_signals() {
            if raised.is_some() {
                return Err(e);
            }
            running.interrupt();
            raised = Some(e);
        }
    }
    let answer = running.answer();
    match raised {
        // What a callback raises is the caller's own.
        Some(e) if !e.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) => Err(e),
        _ => dict(py, answer),
    }
}

fn dict(py: Python<'_>, a: Answer) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("exit", a.exit)?;
    dict.set_item("document", a.document.to_string())?;
    dict.set_item("text", a.text)?;
    dict.set_item("notes", a.notes)?;
    let lines: Vec<String> = a.lines.iter().map(ToString::to_string).collect();
    dict.set_item("lines", lines)?;
    dict.set_item("error", a.error.map(|e| (e.code, e.message, e.help)))?;
    dict.set_item("interrupted", a.is_interrupted)?;
    Ok(dict)
}

/// Writes the events of a result, of any version, as a Parquet file.
#[pyfunction]
pub fn events_table(py: Python<'_>, events: PathBuf, to: PathBuf) -> PyResult<()> {
    py.detach(|| {
        let records = wp_machine::results::read_events(&events)
            .map_err(|e| PyValueError::new_err(e.to_string()))?;
        let table = wp_machine::results::events_to_table(&records, &mut |_| None)
            .map_err(|e| PyOSError::new_err(e.to_string()))?;
        std::fs::write(&to, table).map_err(|e| PyOSError::new_err(format!("{}: {e}", to.display())))
    })
}
