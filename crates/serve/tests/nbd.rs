//! The NBD server over real sockets: libnbd's and QEMU's tools, and clients that mean it no good.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use wp_machine::testing::skipped;
use wp_serve::drive::freeze::Loss;
use wp_serve::nbd::server::{MAX_CONNECTIONS, Server};
use wp_serve::{Clock, ClockKind, Drive};

/// Serves a new drive of `preset` at a socket while `client` runs. Returns the drive's counts:
/// (reads, writes, connections).
fn serving(preset: &str, params: &[(&str, u64)], client: impl FnOnce(&Path)) -> (u64, u64, u64) {
    serving_by(ClockKind::Free, preset, params, client)
}

/// As [`serving`], with this clock.
fn serving_by(
    clock: ClockKind,
    preset: &str,
    params: &[(&str, u64)],
    client: impl FnOnce(&Path),
) -> (u64, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nbd");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (socket, stop) = (&socket, &stop);
        let server = scope.spawn(move || {
            let device = wp_device::find(preset).unwrap().make(params).unwrap();
            let drive = Drive::new(preset, device, Loss::Model);
            let mut server = Server::new(drive, "disk", false, Clock::start(clock)).unwrap();
            server.listen_unix(socket).unwrap();
            let (drive, connections, ended) = server.serve(stop, false);
            ended.unwrap();
            let counts = drive.counts();
            (counts.reads, counts.writes, connections)
        });
        while UnixStream::connect(socket).is_err() {
            std::thread::yield_now();
        }
        // Whatever the client does, the server ends.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(socket)));
        stop.store(true, Ordering::Relaxed);
        let counts = server.join().expect("the server does not panic");
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
        counts
    })
}

/// Runs a tool; what it printed. `None`, after saying so, if it is not here.
fn tool(check: &str, program: &str, args: &[&str]) -> Option<String> {
    let run = Command::new(program).args(args).stdin(Stdio::null()).output();
    let Ok(out) = run else {
        skipped(check, &format!("{program} is missing"));
        return None;
    };
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {said}");
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn libnbds_tools_find_the_export_and_copy_it_both_ways() {
    const CHECK: &str = "NBD: libnbd's tools";
    const BYTES: u64 = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let mut image = vec![0u8; BYTES as usize];
    wp_base::rng::Rng::stream(1, "image").fill(&mut image[1 << 20..3 << 20]);
    std::fs::write(&from, &image).unwrap();
    serving("ssd-128", &[("capacity_bytes", BYTES)], |socket| {
        let uri = format!("nbd+unix:///disk?socket={}", socket.display());
        let Some(info) = tool(CHECK, "nbdinfo", &["--json", &uri]) else { return };
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let export = &info["exports"][0];
        assert_eq!(export["export-size"], BYTES);
        for flag in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_df"] {
            assert_eq!(export[flag], true, "{flag}");
        }
        assert_eq!(export["contexts"][0], "base:allocation");
        let list = tool(CHECK, "nbdinfo", &["--list", &uri]).unwrap();
        assert!(list.contains("export=\"disk\""), "{list}");
        let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
        if tool(CHECK, "nbdcopy", &["--flush", from, &uri]).is_none() {
            return;
        }
        let map = tool(CHECK, "nbdinfo", &["--map", &uri]).unwrap();
        let kinds: Vec<&str> = map.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
        assert_eq!(kinds, ["3", "0", "3"], "{map}");
        tool(CHECK, "nbdcopy", &[&uri, to]).unwrap();
        assert!(std::fs::read(to).unwrap() == image, "the copy differs");
    });
}

#[test]
fn qemus_tools_write_read_zero_discard_and_flush() {
    const CHECK: &str = "NBD: QEMU's tools";
    serving("ssd-p16", &[], |socket| {
        let uri = format!("nbd+unix:///disk?socket={}", socket.display());
        let mut args = vec!["-f", "raw"];
        for command in [
            "write -P 0x5a 64k 1m",
            "write -f -P 0x5b 512k 4k",
            "flush",
            "read -P 0x5a 64k 448k",
            "read -P 0x5b 512k 4k",
            "write -z -u 128k 64k",
            "read -P 0 128k 64k",
            "write -z 192k 64k",
            "read -P 0 192k 64k",
            "discard 256k 64k",
            "read -P 0x5a 320k 64k",
        ] {
            args.extend(["-c", command]);
        }
        args.push(&uri);
        let Some(said) = tool(CHECK, "qemu-io", &args) else { return };
        assert!(!said.contains("failed"), "{said}");
        let info = tool(CHECK, "qemu-img", &["info", "--output=json", &uri]).unwrap();
        assert!(info.contains("\"virtual-size\": 61203283968"), "{info}");
    });
}

/// A client that has agreed on the export.
fn client(socket: &Path) -> UnixStream {
    let mut s = UnixStream::connect(socket).unwrap();
    agree(&mut s).unwrap();
    s
}

/// Agrees on the export.
fn agree(s: &mut UnixStream) -> std::io::Result<()> {
    let mut hello = [0; 18];
    s.read_exact(&mut hello)?;
    s.write_all(&[0, 0, 0, 3])?;
    s.write_all(b"IHAVEOPT")?;
    s.write_all(&[0, 0, 0, 1, 0, 0, 0, 0])?;
    s.read_exact(&mut [0; 10])
}

fn request(kind: u16, offset: u64, length: u32) -> Vec<u8> {
    let head = [0x2560_9513u32.to_be_bytes().to_vec(), vec![0, 0], kind.to_be_bytes().to_vec()];
    [head.concat(), vec![7; 8], offset.to_be_bytes().to_vec(), length.to_be_bytes().to_vec()]
        .concat()
}

/// Does the server still serve? Reads a sector.
fn reads_well(socket: &Path) {
    let mut s = client(socket);
    s.write_all(&request(0, 0, 512)).unwrap();
    let mut reply = [1; 16 + 512];
    s.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4]);
}

#[test]
fn hostile_clients_harm_nobody() {
    let (_, writes, connections) = serving("fixed", &[], |socket| {
        // Garbage, at every stage.
        for bytes in [&[0xff; 4096][..], &[0, 0, 0, 3, 0xff, 0xff], b"GET / HTTP/1.1\r\n\r\n"] {
            drop(UnixStream::connect(socket).unwrap().write_all(bytes));
        }
        client(socket).write_all(&[0xee; 64]).unwrap();
        // Half a write, then nothing; a write whose length is a lie; one too large to be taken.
        client(socket).write_all(&request(1, 0, 1 << 20)).unwrap();
        client(socket).write_all(&request(1, 0, u32::MAX)).unwrap();
        client(socket).write_all(&request(1, u64::MAX, 512)).unwrap();
        // Asks and does not wait for the answer.
        for _ in 0..50 {
            client(socket).write_all(&request(0, 0, 1 << 20)).unwrap();
        }
        // Asks and does not read: the server stops reading it, and goes on with others.
        let mut deaf = client(socket);
        deaf.set_nonblocking(true).unwrap();
        for _ in 0..2000 {
            if deaf.write_all(&request(0, 0, 1 << 20)).is_err() {
                break;
            }
        }
        reads_well(socket);
        // More than it takes: the rest is closed at once.
        let crowd: Vec<UnixStream> =
            (0..MAX_CONNECTIONS + 50).filter_map(|_| UnixStream::connect(socket).ok()).collect();
        assert!(crowd.len() > MAX_CONNECTIONS);
        drop((crowd, deaf));
        std::thread::sleep(std::time::Duration::from_millis(50));
        reads_well(socket);
    });
    assert_eq!(writes, 0, "no write was whole");
    assert!(connections >= 60);
}

#[test]
fn clients_that_write_and_leave_do_not_fill_the_memory() {
    const BYTES: u32 = 16 << 20;
    const CLIENTS: u64 = 40;
    let payload = vec![1; BYTES as usize];
    // Each write takes the drive a minute: none is done while this runs.
    let slow = [("latency_ns", 60_000_000_000), ("capacity_bytes", 64 << 20)];
    let mut taken = 0;
    serving_by(ClockKind::Paced, "fixed", &slow, |socket| {
        let whole = |_: &u64| {
            let mut s = UnixStream::connect(socket).unwrap();
            let limit = Some(std::time::Duration::from_millis(500));
            s.set_read_timeout(limit).unwrap();
            s.set_write_timeout(limit).unwrap();
            agree(&mut s).and_then(|()| s.write_all(&request(1, 0, BYTES))).is_ok()
                && s.write_all(&payload).is_ok()
        };
        taken = (0..CLIENTS).take_while(whole).count() as u64;
    });
    let bytes = taken * u64::from(BYTES);
    assert!((128 << 20..=320 << 20).contains(&bytes), "{taken} writes of {BYTES} bytes were taken");
}
