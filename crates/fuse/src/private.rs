//! A mount that only one program sees: in namespaces of its own, which end with it.
//!
//! Picture:    writepath -> `enter` (new namespaces; mounts; hands the connection back; waits)
//!             -> `first` (process 1 there) -> the program.
//! Invariants: 1. each of them dies with the one before it, and all that the program has started
//!                dies with process 1: nothing stays behind, whoever is killed first;
//!             2. nobody outside sees the mount.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::getxattr;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    Signal, WaitOptions, getegid, geteuid, set_parent_process_death_signal, wait,
};
use wp_machine::host::program;

use crate::control::END;

/// First words of the command lines with which this program calls itself.
const ENTER: &str = "__enter";
const FIRST: &str = "__first";

/// What ends a call of this program by itself that could not do its work.
const FAILED: u8 = 126;

/// How long a process that was started may take to mount.
const PATIENCE: Duration = Duration::from_millis(20);

/// Does this process what [`spawn`] has started it for; `None`: it is an ordinary one. To be asked
/// before there are threads, because namespaces are a process'.
pub fn entered(args: &[OsString]) -> Option<u8> {
    let (verb, rest) = args.split_first()?;
    let done = match verb.to_str()? {
        ENTER => enter(rest),
        FIRST => first(rest),
        _ => return None,
    };
    Some(done.unwrap_or_else(|e| {
        // Whoever started it reads this.
        let _ = writeln!(io::stderr(), "error: {e}");
        FAILED
    }))
}

/// Directories to mount on, if they are empty: they are there, and a process that is killed leaves
/// none behind that was made for it. Source: FHS 3.0, sections 3.11, 3.12 and 3.17.
const EMPTY: [&str; 3] = ["/mnt", "/media", "/srv"];

/// An empty directory of this host to mount on; `None`: one has to be made.
pub(crate) fn empty_directory() -> Option<PathBuf> {
    let is_empty = |dir: &&&str| fs::read_dir(dir).is_ok_and(|mut all| all.next().is_none());
    EMPTY.iter().find(is_empty).map(PathBuf::from)
}

/// A name for a socket that is no file: it ends with the process.
fn socket_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("writepath-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Starts `command` (its name and arguments) with `dir` as its working directory, where a FUSE file
/// system is mounted for it and what it starts alone. `program`: starts this executable. The
/// process, the connection, and what must be written to for it to begin.
///
/// Errors: namespaces or mounts that this host does not allow.
pub fn spawn(
    mut program: Command,
    dir: &Path,
    command: &[OsString],
    environment: &[(&str, OsString)],
) -> io::Result<(Child, OwnedFd, UnixStream)> {
    let socket = socket_name();
    let door = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&socket)?)?;
    door.set_nonblocking(true)?;
    let process = &mut program;
    process.arg(ENTER).arg(&socket).arg(dir).args(command);
    process.envs(environment.iter().map(|(name, value)| (name, value)));
    // What the program prints is not what writepath answers.
    process.stdout(io::stderr().as_fd().try_clone_to_owned()?);
    let mut child = process.spawn()?;
    let connected = loop {
        match door.accept() {
            // Such a socket has no permissions: whoever knows its name may connect.
            Ok((stream, _)) if is_of(&stream, &child)? => break stream,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if let Some(status) = child.try_wait()? {
            let what = "no private mount (namespaces need root, or user namespaces)";
            return Err(io::Error::other(format!("{what}: {status}")));
        }
        std::thread::sleep(PATIENCE);
    };
    connected.set_nonblocking(false)?;
    match receive(&connected) {
        Ok(connection) => Ok((child, connection, connected)),
        Err(e) => {
            child.kill()?;
            child.wait()?;
            Err(e)
        }
    }
}

/// Has this process connected?
fn is_of(stream: &UnixStream, child: &Child) -> io::Result<bool> {
    let peer = socket_peercred(stream)?.pid.as_raw_nonzero().get();
    Ok(i64::from(peer) == i64::from(child.id()))
}

fn receive(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = message
            && let Some(connection) = rights.next()
        {
            return Ok(connection);
        }
    }
    Err(io::Error::other("the process in the private mount ended before it had mounted"))
}

fn send(stream: &UnixStream, connection: &File) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [connection.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(stream, &[IoSlice::new(b"c")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// What failed, in words.
fn at(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{what}: {e}"))
}

/// The process that mounts.
fn enter(args: &[OsString]) -> io::Result<u8> {
    let [socket, dir, command @ ..] = args else {
        return Err(io::Error::other("this word is writepath's own"));
    };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (user, group) = (geteuid(), getegid());
    let mut own = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if !user.is_root() {
        own |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(own).map_err(io::Error::from).map_err(at("unshare"))?;
    if !user.is_root() {
        // The program is who it was; without this a group map is not allowed.
        fs::write("/proc/self/setgroups", "deny")?;
        let (user, group) = (user.as_raw(), group.as_raw());
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    let flags = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", flags).map_err(io::Error::from).map_err(at("mount --make-rprivate /"))?;
    let connection = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let connection = connection.map_err(at("/dev/fuse"))?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        std::os::fd::AsRawFd::as_raw_fd(&connection),
        user.as_raw(),
        group.as_raw()
    );
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    mount("writepath", dir.as_os_str(), "fuse.writepath", flags, &*options)
        .map_err(io::Error::from)
        .map_err(at("mount -t fuse"))?;
    let name = SocketAddr::from_abstract_name(socket.as_bytes())?;
    let mut door = UnixStream::connect_addr(&name)?;
    send(&door, &connection)?;
    drop(connection);
    // Somebody answers the kernel from here on.
    let mut go = [0];
    door.read_exact(&mut go)?;
    drop(door);
    let mut init = program::command();
    let status = init.arg(FIRST).arg(dir).args(command).status()?;
    // Whoever serves the mount is told: all that was to come has come.
    let _ = getxattr(dir, END, &mut [0; 1][..]);
    Ok(code(status))
}

/// Process 1 of the namespace: the program's parent, and that of all that it leaves behind.
fn first(args: &[OsString]) -> io::Result<u8> {
    let [dir, name, rest @ ..] = args else {
        return Err(io::Error::other("this word is writepath's own"));
    };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Processes by their numbers here. A host that forbids it has those outside.
    let _ = mount("proc", "/proc", "proc", MountFlags::empty(), None::<&std::ffi::CStr>);
    let path = program_path(Path::new(name))?;
    std::env::set_current_dir(dir)?;
    let shown = OsStr::new(name).to_string_lossy().into_owned();
    let child = Command::new(path).arg0(name).args(rest).spawn();
    let child = child.map_err(|e| io::Error::new(e.kind(), format!("{shown}: {e}")))?;
    loop {
        // Orphans are its children too.
        let Some((pid, status)) = wait(WaitOptions::empty())? else { continue };
        if i64::from(pid.as_raw_nonzero().get()) == i64::from(child.id()) {
            return Ok(code(ExitStatus::from_raw(status.as_raw())));
        }
    }
}

/// Where a program is that the caller names from its own working directory: `./app` and `bin/app`
/// are files there, as for a shell, and a plain name is looked for in `PATH`. Errors: there is no
/// working directory.
fn program_path(name: &Path) -> io::Result<PathBuf> {
    match name.components().count() {
        1 if !name.as_os_str().as_encoded_bytes().contains(&b'/') => Ok(name.to_owned()),
        _ => std::path::absolute(name),
    }
}

/// As a shell has it.
fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128u8.wrapping_add(signal.unwrap_or(0) as u8),
    }
}
