//! The extension module of the Python package `writepath`: verbs of the command in the process of
//! an interpreter, and the runs of an experiment as tasks.
//!
//! Picture:    `python/writepath/*.py` (names, types, results as objects) -> this module -> the
//!             command's own verbs ([`writepath::begin`]) and `wp_experiment`.
//! Laws:       words, defaults, results and errors are the command's: nothing is decided here.
//!             Python's lock is free while a verb runs.

mod call;
mod tasks;

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Says which file this module was loaded from, and which words start the command by itself.
#[pyfunction]
fn is_library(library: PathBuf, words: Vec<OsString>) {
    wp_machine::host::program::is_library(&library, words);
}

/// Runs the command; `words` begin with the program's name. Its exit code.
#[pyfunction]
fn main(words: Vec<OsString>) -> u8 {
    writepath::exit_code_of(words)
}

/// The exit codes of every verb, and what each means.
#[pyfunction]
fn exit_codes() -> Vec<(u8, &'static str)> {
    writepath::exit_codes()
}

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(is_library, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(exit_codes, module)?)?;
    module.add_function(wrap_pyfunction!(call::call, module)?)?;
    module.add_function(wrap_pyfunction!(call::events_table, module)?)?;
    module.add_function(wrap_pyfunction!(tasks::program, module)?)?;
    module.add_function(wrap_pyfunction!(tasks::keep, module)?)?;
    module.add_function(wrap_pyfunction!(tasks::missing_papers, module)?)?;
    module.add_class::<tasks::Sweep>()?;
    module.add_class::<tasks::Maker>()?;
    module.add_class::<tasks::CrashParts>()?;
    Ok(())
}
