//! Lines to paste: how the usual clients find a drive that is served.

use std::path::Path;

use wp_base::plain::Shown as _;

/// A path as a word of a shell.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A part of a URI (RFC 3986, 2.1): everything but unreserved characters and slashes is encoded.
fn encoded(text: &str) -> String {
    let is_kept = |b: &u8| b.is_ascii_alphanumeric() || b"/._-~".contains(b);
    let one = |b: u8| if is_kept(&b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(one).collect()
}

/// The absolute path of a socket, as text.
fn absolute(socket: &Path) -> String {
    std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned()).shown()
}

/// Clients of an NBD export at a Unix socket.
pub fn nbd_socket(socket: &Path, name: &str) -> String {
    let path = absolute(socket);
    let uri = format!("nbd+unix:///{}?socket={}", encoded(name), encoded(&path));
    let kernel = format!("nbd-client -unix {} /dev/nbd0 -N {}", word(&path), word(name));
    nbd(&uri, &kernel)
}

/// Clients of an NBD export at a TCP port.
pub fn nbd_port(port: u16, name: &str) -> String {
    let kernel = format!("nbd-client localhost {port} /dev/nbd0 -N {}", word(name));
    nbd(&format!("nbd://localhost:{port}/{}", encoded(name)), &kernel)
}

fn nbd(uri: &str, kernel: &str) -> String {
    let uri = word(uri);
    format!(
        "  qemu-system-x86_64 … -drive file={uri},format=raw,if=virtio,cache=none\n  \
         qemu-io -f raw {uri}\n  \
         nbdcopy {uri} disk.img\n  \
         fio --ioengine=nbd --uri={uri} --rw=randwrite --bs=4k --size=64m --fsync=1 --name=t\n  \
         modprobe nbd && {kernel}"
    )
}

/// QEMU with a vhost-user-blk device: its memory has to be shared.
pub fn vhost_user_blk(socket: &Path) -> String {
    format!(
        "  qemu-system-x86_64 … -m 1G -object memory-backend-memfd,id=m,size=1G,share=on \\\n    \
         -numa node,memdev=m -chardev socket,id=c,path={} -device vhost-user-blk-pci,chardev=c",
        word(&absolute(socket))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_the_path() {
        let t = nbd_socket(Path::new("/run/a b/n'd"), "disk");
        assert!(t.contains("'nbd+unix:///disk?socket=/run/a%20b/n%27d'"), "{t}");
        assert!(t.contains("nbd-client -unix '/run/a b/n'\\''d' /dev/nbd0 -N disk"), "{t}");
        assert!(nbd_port(10809, "disk").contains("nbdcopy nbd://localhost:10809/disk disk.img"));
        assert!(vhost_user_blk(Path::new("/run/d0")).contains("path=/run/d0 "));
    }
}
