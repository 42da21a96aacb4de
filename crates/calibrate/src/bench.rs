//! Runs of fio on a machine.

use wp_machine::{Machine, MachineError};
use wp_workload::fio::{self, JobResult, RunOptions, Variables};

/// Mounts the machine, runs a job file, and unmounts. Errors: what fio or the machine answers.
pub(crate) fn fio(
    machine: &Machine,
    name: &str,
    jobs: &str,
) -> Result<Vec<JobResult>, MachineError> {
    let file = fio::parse(name, jobs.as_bytes(), &|_| None, &Variables::default());
    let vfs = machine.mount()?;
    let v = vfs.clone();
    let done = machine.block_on("fio", async move {
        fio::run(&v, &file, RunOptions::default()).await.map_err(|e| e.to_string())
    })?;
    let results = done.map_err(MachineError::Config)?;
    machine.unmount(&vfs)?;
    Ok(results)
}
