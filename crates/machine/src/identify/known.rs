//! Formats that this build does not read, by their magics, each with what to do about it.

use wp_base::SECTOR_BYTES;
use wp_medium::View;

use super::{Unknown, bytes_at};

/// A format that this build does not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its name, with an article: "a qcow2 image".
    pub name: &'static str,
    fix: Fix,
}

/// What to do about a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fix {
    /// A command that makes a raw image of a container. `{}`: the file.
    Unpack(&'static str),
    /// A command that gives a device with the image in it. `{}`: the file.
    Open(&'static str),
    /// A command of Writepath that reads it. `{}`: the file.
    Verb(&'static str),
    /// A file system of others.
    FileSystem,
    /// Something without files.
    NoFiles,
}

impl Known {
    /// What to do about it, as a command where there is one. `file`: what to call the image in it.
    pub fn help(&self, file: &str) -> String {
        match self.fix {
            Fix::Unpack(command) => format!("unpack it first: {}", command.replace("{}", file)),
            Fix::Open(command) => {
                format!("name the device that this makes: {}", command.replace("{}", file))
            }
            Fix::Verb(command) => command.replace("{}", file),
            Fix::FileSystem => {
                let all = crate::registry::FILE_SYSTEMS.iter().map(|fs| fs.name);
                format!("this build reads {}", all.collect::<Vec<_>>().join(", "))
            }
            Fix::NoFiles => "it holds no files; name another image".to_owned(),
        }
    }

    /// Is it a container: bytes that are not those of a device?
    pub fn is_container(&self) -> bool {
        matches!(self.fix, Fix::Unpack(_))
    }
}

/// Bytes at a place.
type Magic = (u64, &'static [u8], &'static str, Fix);

const QEMU: Fix = Fix::Unpack("qemu-img convert -O raw {} {}.raw");
const FS: Fix = Fix::FileSystem;
const LUKS: Fix = Fix::Open("cryptsetup open {} NAME, then /dev/mapper/NAME");
const LVM: Fix = Fix::Open("losetup -f --show {} && vgchange -ay, then /dev/VG/LV");
const MD: Fix = Fix::Open("losetup -f --show {} && mdadm --assemble --scan, then /dev/mdN");
const BCACHE: Fix = Fix::Open("losetup -f --show {}, then /dev/bcacheN");

/// Formats with a long magic.
const STRONG: &[Magic] = &[
    // Packed files.
    (0, b"\x1f\x8b\x08", "a gzip file", Fix::Unpack("gzip -dc {} > image.img")),
    (0, b"\xfd7zXZ\0", "an xz file", Fix::Unpack("xz -dc {} > image.img")),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file", Fix::Unpack("zstd -dc {} > image.img")),
    (0, b"BZh", "a bzip2 file", Fix::Unpack("bzip2 -dc {} > image.img")),
    (0, b"\x04\x22\x4d\x18", "an lz4 file", Fix::Unpack("lz4 -dc {} > image.img")),
    (0, b"\x02\x21\x4c\x18", "an lz4 file", Fix::Unpack("lz4 -dc {} > image.img")),
    (0, b"\x89LZO\0\r\n\x1a\n", "an lzop file", Fix::Unpack("lzop -dc {} > image.img")),
    (0, b"LZIP", "an lzip file", Fix::Unpack("lzip -dc {} > image.img")),
    (0, b"PK\x03\x04", "a zip archive", Fix::Unpack("unzip {}")),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", Fix::Unpack("7z x {}")),
    (0, b"Rar!\x1a\x07", "a RAR archive", Fix::Unpack("unrar x {}")),
    (257, b"ustar", "a tar archive", Fix::Unpack("tar -xf {}")),
    (0, b"070701", "a cpio archive", Fix::Unpack("cpio -id < {}")),
    // Images of virtual machines and of phones.
    (0, b"QFI\xfb", "a qcow2 image", QEMU),
    (0, b"QED\0", "a QED image", QEMU),
    (0, b"KDMV", "a VMDK image", QEMU),
    (0, b"COWD", "a VMDK image", QEMU),
    (0, b"# Disk DescriptorFile", "a VMDK descriptor", QEMU),
    (64, b"\x7f\x10\xda\xbe", "a VDI image", QEMU),
    (0, b"conectix", "a VHD image", QEMU),
    (0, b"vhdxfile", "a VHDX image", QEMU),
    (0, b"WithoutFreeSpace", "a Parallels image", QEMU),
    (0, b"WithouFreSpacExt", "a Parallels image", QEMU),
    (0, b"Bochs Virtual HD Image", "a Bochs image", QEMU),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image", Fix::Unpack("simg2img {} image.img")),
    (
        4096,
        b"gDla",
        "an Android super image (dynamic partitions)",
        Fix::Unpack("lpunpack {} DIRECTORY"),
    ),
    (0, b"ANDROID!", "an Android boot image", Fix::NoFiles),
    (
        0,
        b"partclone-image",
        "a partclone image",
        Fix::Unpack("partclone.restore -C -s {} -O image.img"),
    ),
    // `struct meta_cluster_header` begins with `HEADER_MAGIC`.
    (
        0,
        b"\x8b\x66\x95\x72\xe2\x25\x5c\xbd",
        "a btrfs-image dump",
        Fix::Unpack("btrfs-image -r {} image.img"),
    ),
    (0, b"btrfs-stream\0", "a btrfs send stream", Fix::Unpack("btrfs receive -f {} MOUNTPOINT")),
    (
        0,
        b"\x72\x68\x73\x77\x66\x73\x6a\0",
        "a dm-log-writes log",
        Fix::Verb("writepath replay {} --out image.img"),
    ),
    // Encryption and volumes.
    (0, b"LUKS\xba\xbe", "a LUKS volume", LUKS),
    (3, b"-FVE-FS-", "a BitLocker volume", Fix::Open("cryptsetup bitlkOpen {} NAME")),
    (0, b"LABELONE", "an LVM2 physical volume", LVM),
    (512, b"LABELONE", "an LVM2 physical volume", LVM),
    (1024, b"LABELONE", "an LVM2 physical volume", LVM),
    (1536, b"LABELONE", "an LVM2 physical volume", LVM),
    (0, b"\xfc\x4e\x2b\xa9", "a member of an MD array", MD),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of an MD array", MD),
    (0, b"dmvdo001", "a VDO volume", Fix::Open("vdo activate, or LVM")),
    (
        4120,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache device",
        BCACHE,
    ),
    (0, b"verity\0\0", "a dm-verity hash device", Fix::NoFiles),
    (4086, b"SWAPSPACE2", "swap space", Fix::NoFiles),
    (8182, b"SWAPSPACE2", "swap space", Fix::NoFiles),
    (16374, b"SWAPSPACE2", "swap space", Fix::NoFiles),
    (65526, b"SWAPSPACE2", "swap space", Fix::NoFiles),
    (4086, b"SWAP-SPACE", "swap space (version 0)", Fix::NoFiles),
    (4086, b"S1SUSPEND\0", "swap space with a hibernated system", Fix::NoFiles),
    // File systems of others.
    (0, b"XFSB", "an XFS file system", FS),
    (0, b"hsqs", "a SquashFS image", FS),
    (0, b"sqsh", "a SquashFS image", FS),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS image", FS),
    (0, b"\x45\x3d\xcd\x28", "a CramFS image", FS),
    (0, b"\x28\xcd\x3d\x45", "a CramFS image", FS),
    (0, b"-rom1fs-", "a romfs image", FS),
    (
        4120,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "a bcachefs file system",
        FS,
    ),
    (32768, b"JFS1", "a JFS file system", FS),
    (65588, b"ReIsErFs", "a ReiserFS file system", FS),
    (65588, b"ReIsEr2Fs", "a ReiserFS file system", FS),
    (65588, b"ReIsEr3Fs", "a ReiserFS file system", FS),
    (65536, b"ReIsEr4", "a Reiser4 file system", FS),
    (65536, b"\x01\x16\x19\x70", "a GFS2 file system", FS),
    (4096, b"OCFSV2", "an OCFS2 file system", FS),
    (8192, b"OCFSV2", "an OCFS2 file system", FS),
    (2048, b"OCFSV2", "an OCFS2 file system", FS),
    (1024, b"OCFSV2", "an OCFS2 file system", FS),
    (3, b"NTFS    ", "an NTFS file system", FS),
    (3, b"EXFAT   ", "an exFAT file system", FS),
    (32769, b"CD001", "an ISO 9660 image", FS),
    (32769, b"BEA01", "a UDF file system", FS),
    (32769, b"NSR02", "a UDF file system", FS),
    (32769, b"NSR03", "a UDF file system", FS),
    (32, b"NXSB", "an APFS container", FS),
    (1024, b"H+\0\x04", "an HFS+ file system", FS),
    (1024, b"HX\0\x05", "an HFS+ file system", FS),
    (0, b"\x31\x18\x10\x06", "a UBIFS image", FS),
    (0, b"UBI#\x01", "a UBI volume", FS),
    (8192 + 1372, b"\x54\x19\x01\x00", "a UFS file system", FS),
    (65536 + 1372, b"\x19\x01\x54\x19", "a UFS2 file system", FS),
];

/// Formats whose magic is short, or may be left over: those that are read here come first.
const WEAK: &[Magic] = &[
    (82, b"FAT32   ", "a FAT32 file system", FS),
    (54, b"FAT16   ", "a FAT16 file system", FS),
    (54, b"FAT12   ", "a FAT12 file system", FS),
    (54, b"FAT     ", "a FAT file system", FS),
    (1040, b"\x7f\x13", "a MINIX file system", FS),
    (1040, b"\x8f\x13", "a MINIX file system", FS),
    (1040, b"\x68\x24", "a MINIX 2 file system", FS),
    (1040, b"\x78\x24", "a MINIX 2 file system", FS),
    (1048, b"\x5a\x4d", "a MINIX 3 file system", FS),
    (0, b"\x85\x19\x03\x20", "a JFFS2 image", FS),
    (0, b"\x85\x19\x01\xe0", "a JFFS2 image", FS),
    (0, b"\x85\x19\x02\xe0", "a JFFS2 image", FS),
    (0, b"\x1f\x9d", "a compress (.Z) file", Fix::Unpack("uncompress -c {} > image.img")),
    (0, b"\x5d\0\0", "an lzma file", Fix::Unpack("xz --format=lzma -dc {} > image.img")),
];

/// File systems that are read here begin behind this byte, and what makes one of them clears what
/// is before it: a magic there decides.
const BOOT_BYTES: u64 = 1024;

/// What has a long magic before any file system that is read here.
pub(super) fn at_start(view: &dyn View) -> Option<Known> {
    first(view, STRONG, |at| at < BOOT_BYTES)
}

/// What has a magic behind it, where a file system may have left anything, or a short one.
pub(super) fn behind(view: &dyn View) -> Option<Known> {
    let strong = first(view, STRONG, |at| at >= BOOT_BYTES);
    strong.or_else(|| first(view, WEAK, |_| true)).or_else(|| zfs(view))
}

fn first(view: &dyn View, all: &'static [Magic], of: impl Fn(u64) -> bool) -> Option<Known> {
    let found = all.iter().find(|(at, magic, ..)| of(*at) && is_at(view, *at, magic));
    found.map(|(_, _, name, fix)| Known { name, fix: *fix })
}

fn is_at(view: &dyn View, at: u64, magic: &[u8]) -> bool {
    let mut found = [0; 32];
    let Some(found) = found.get_mut(..magic.len()) else { return false };
    let end = at.saturating_add(magic.len() as u64);
    end <= view.len_bytes() && view.read_at(at, found).is_ok() && *found == *magic
}

/// An uberblock in one of the first label's places.
fn zfs(view: &dyn View) -> Option<Known> {
    const MAGIC: u64 = 0x00ba_b10c;
    let is_one = |n: u64| {
        let found = bytes_at::<8>(view, (128 << 10) + (n << 10));
        found.is_some_and(|b| u64::from_le_bytes(b) == MAGIC || u64::from_be_bytes(b) == MAGIC)
    };
    (0..128).any(is_one).then_some(Known { name: "a member of a ZFS pool", fix: FS })
}

/// What has its magic at the end of the device.
pub(super) fn at_end(view: &dyn View) -> Option<Known> {
    let bytes = view.len_bytes();
    let last = bytes.checked_sub(SECTOR_BYTES)?;
    if is_at(view, last, b"conectix") {
        return Some(Known { name: "a VHD image", fix: QEMU });
    }
    if is_at(view, last, b"koly") {
        let fix = Fix::Unpack("dmg2img {} image.img");
        return Some(Known { name: "an Apple disk image", fix });
    }
    // Superblock versions 1.0 and 0.90 of md(4).
    let one = (bytes / SECTOR_BYTES).checked_sub(16).map(|s| s / 8 * 8 * SECTOR_BYTES);
    let nought = (bytes / (64 << 10)).checked_sub(1).map(|n| n * (64 << 10));
    let is_md = [one, nought].into_iter().flatten().any(|at| is_at(view, at, b"\xfc\x4e\x2b\xa9"));
    is_md.then_some(Known { name: "a member of an MD array", fix: MD })
}

/// A copy of a super block whose first one is gone. ext4: that of group 1, in blocks of 1 and 4 KiB
/// (`s_magic`, `s_block_group_nr`); btrfs: that at 64 MiB.
pub(super) fn copy(view: &dyn View) -> Option<Unknown> {
    let ext4 = [
        (8193 << 10, "e2fsck -b 8193 -B 1024 {} repairs a copy of the image"),
        (32768 << 12, "e2fsck -b 32768 -B 4096 {} repairs a copy of the image"),
    ];
    let is_ext4 =
        |at: u64| is_at(view, at + 0x38, b"\x53\xef") && is_at(view, at + 0x5a, b"\x01\0");
    if let Some((at, fix)) = ext4.into_iter().find(|(at, _)| is_ext4(*at)) {
        return Some(Unknown::Copy { fs: "ext4", at, fix });
    }
    let at = 64 << 20;
    let fix = "`btrfs rescue super-recover {}` repairs a copy of the image";
    is_at(view, at + 64, b"_BHRfS_M").then_some(Unknown::Copy { fs: "btrfs", at, fix })
}
