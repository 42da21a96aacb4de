//! The control socket: lines of text from a few clients.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use wp_base::plain::Shown as _;
use wp_machine::host::leftover::{Held, Leftover, hold};
use wp_machine::host::output::rename_new;

use crate::control::MAX_LINE;

/// Clients at once; more are turned away.
const MOST: usize = 8;
/// Bytes that are read of a client before others have their turn, each of which may be a line.
const CHUNK: usize = 1024;

/// A socket of the file system that only this user can connect to. It is removed with its owner,
/// and with the program. An old one that nobody listens at is replaced.
///
/// Errors: the host's; another server is there.
pub(crate) fn listen(path: &Path) -> io::Result<Listener> {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket {
        if UnixStream::connect(path).is_ok() {
            let why = format!("{}: another server listens there", path.shown());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        std::fs::remove_file(path)?;
    }
    let (listener, held) = hold(|| {
        let listener = bind_private(path)?;
        Ok((listener, Leftover::File(std::path::absolute(path)?)))
    })?;
    listener.set_nonblocking(true)?;
    Ok(Listener { listener, _held: held })
}

/// Binds a socket of mode 0600. It gets its name when it has its mode: the umask is of the whole
/// process, and between bind(2) and chmod(2) anybody could connect.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = tempfile::Builder::new()
        .prefix(".")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
        .map_err(|e| io::Error::new(e.kind(), e.kind().to_string()))?;
    // The name that clients use has to fit as well.
    SocketAddr::from_pathname(path)?;
    let inner = folder.path().join("s");
    let directory = File::open(folder.path())?;
    let bound = match SocketAddr::from_pathname(&inner) {
        Ok(_) => inner.clone(),
        Err(_) => PathBuf::from(format!("/proc/self/fd/{}/s", directory.as_raw_fd())),
    };
    let listener = UnixListener::bind(bound)?;
    std::fs::set_permissions(&inner, Permissions::from_mode(0o600))?;
    rename_new(&inner, path)?;
    Ok(listener)
}

/// See [`listen`].
pub(crate) struct Listener {
    /// The socket, which never blocks.
    pub listener: UnixListener,
    _held: Held,
}

struct Client {
    stream: UnixStream,
    line: Vec<u8>,
}

/// The control socket.
pub(crate) struct ControlSocket {
    listener: Listener,
    clients: Vec<Client>,
}

impl ControlSocket {
    /// Opens it. Errors: as [`listen`].
    pub fn open(path: &Path) -> io::Result<ControlSocket> {
        Ok(ControlSocket { listener: listen(path)?, clients: Vec::new() })
    }

    /// What to poll for reading.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|c| c.stream.as_fd());
        std::iter::once(self.listener.listener.as_fd()).chain(clients)
    }

    /// Takes clients in and answers their lines with `answer`, which says whether to end. Never
    /// waits. Returns whether one said so.
    pub fn serve(&mut self, answer: &mut dyn FnMut(&str) -> (String, bool)) -> bool {
        // Who connects faster than it is turned away keeps nobody else waiting.
        for _ in 0..MOST {
            let Ok((stream, _)) = self.listener.listener.accept() else { break };
            if self.clients.len() < MOST && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client { stream, line: Vec::new() });
            }
        }
        let mut ends = false;
        self.clients.retain_mut(|client| {
            let (stays, asks_to_end) = client.serve(answer);
            ends |= asks_to_end;
            stays
        });
        ends
    }
}

impl Client {
    /// Reads a [`CHUNK`] and answers whole lines. What there is beyond it is read in the next turn,
    /// of which the poll tells. (Does it stay? Is the server to end?)
    fn serve(&mut self, answer: &mut dyn FnMut(&str) -> (String, bool)) -> (bool, bool) {
        let mut bytes = [0; CHUNK];
        let mut ends = false;
        match self.stream.read(&mut bytes) {
            Ok(0) => return (false, ends),
            Ok(n) => self.line.extend_from_slice(&bytes[..n]),
            Err(e) => {
                let is_later =
                    matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock);
                return (is_later, ends);
            }
        }
        while let Some(end) = self.line.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            let (text, quits) = answer(&String::from_utf8_lossy(&line));
            ends |= quits;
            // Who does not read its answers loses its connection.
            if self.stream.write_all(format!("{text}\n").as_bytes()).is_err() {
                return (false, ends);
            }
        }
        (self.line.len() <= MAX_LINE, ends)
    }
}
