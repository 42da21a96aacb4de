//! Processes of the host that end with all that they started.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{
    Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::leftover::{Held, Leftover, hold};

/// A process group: a command, and what it started and did not move elsewhere (`setsid`). It is
/// killed as a whole when the command ends, with this, and with the program.
#[derive(Debug)]
pub struct Group {
    child: Child,
    held: Option<Held>,
}

impl Group {
    /// Starts a command in a group of its own: the interrupt of a terminal does not reach it.
    /// Errors: the host's.
    pub fn spawn(command: &mut Command) -> io::Result<Group> {
        let (child, held) = hold(|| {
            let child = command.process_group(0).spawn()?;
            let leader = i32::try_from(child.id()).map_err(io::Error::other)?;
            Ok((child, Leftover::Group(leader)))
        })?;
        Ok(Group { child, held: Some(held) })
    }

    /// How the command has ended, if it has; what it started is killed then. Errors: the host's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.held.is_some() && !self.has_ended()? {
            return Ok(None);
        }
        self.end().map(Some)
    }

    /// Waits for the command; what it started is killed then. Errors: the host's.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.look(WaitIdOptions::empty())?;
        self.end()
    }

    /// Where it reads and writes, if those are pipes.
    pub fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// What it says on stderr, if that is a pipe.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Interrupts the whole group (SIGINT), if it has not ended.
    pub fn interrupt(&self) {
        if let (Some(leader), true) = (self.pid(), self.held.is_some()) {
            let _ = kill_process_group(leader, Signal::INT);
        }
    }

    /// Kills the whole group. Errors: the host's.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        // Until the command is waited for, its number, and so the group's, is no other's.
        self.held = None;
        self.child.wait()
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn has_ended(&self) -> io::Result<bool> {
        self.look(WaitIdOptions::NOHANG)
    }

    /// Has the command ended? It stays there to be waited for.
    fn look(&self, how: WaitIdOptions) -> io::Result<bool> {
        let pid = self.pid().ok_or_else(|| io::Error::other("a process without a number"))?;
        if self.held.is_none() {
            return Ok(true);
        }
        let how = how | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(pid), how) {
                Err(rustix::io::Errno::INTR) => {}
                found => return Ok(found?.is_some()),
            }
        }
    }
}

/// Runs a command in a group of its own: how it has ended, and what it said. Errors: the host's.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::spawn(command)?;
    let (mut out, mut err) = (group.child.stdout.take(), group.child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    std::thread::scope(|s| {
        let reader = s.spawn(|| err.as_mut().map_or(Ok(0), |e| e.read_to_end(&mut stderr)));
        out.as_mut().map_or(Ok(0), |o| o.read_to_end(&mut stdout))?;
        reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader has failed")))
    })?;
    let status = group.wait()?;
    Ok(Output { status, stdout, stderr })
}

/// As [`output`], of a command that says nothing: how it has ended.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    Group::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))?.wait()
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;

    fn shell(dir: &Path, line: &str) -> Group {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(dir).stdin(Stdio::null());
        Group::spawn(&mut command).expect("started")
    }

    /// The process whose number a command has written into `pid`.
    fn is_there(dir: &Path) -> bool {
        let number = std::fs::read_to_string(dir.join("pid")).expect("its number");
        let place = Path::new("/proc").join(number.trim()).join("stat");
        // One that is killed and not waited for by init yet is gone as well.
        std::fs::read_to_string(place).is_ok_and(|s| !s.contains(") Z "))
    }

    fn eventually(mut holds: impl FnMut() -> bool) -> bool {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            holds()
        })
    }

    #[test]
    fn what_a_command_leaves_behind_ends_with_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut group = shell(dir.path(), "sleep 1000 & echo $! >pid; exit 3");
        assert_eq!(group.wait().expect("ended").code(), Some(3));
        assert!(eventually(|| !is_there(dir.path())));
        assert_eq!(group.try_wait().expect("ended").and_then(|s| s.code()), Some(3));
    }

    #[test]
    fn a_group_that_is_dropped_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut group = shell(dir.path(), "sleep 1000 & echo $! >pid.new; mv pid.new pid; wait");
        assert!(eventually(|| dir.path().join("pid").exists()));
        assert_eq!(group.try_wait().expect("asked"), None);
        assert!(is_there(dir.path()));
        drop(group);
        assert!(eventually(|| !is_there(dir.path())));
    }
}
