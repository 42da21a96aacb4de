//! Images made byte by byte, and what is said of them.

use wp_base::FsResult;
use wp_base::crc::crc32_le;

use super::*;

/// An image of bytes.
struct Bytes(Vec<u8>);

impl View for Bytes {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        let at = usize::try_from(at).map_err(|_| wp_base::FsError::Io)?;
        let end = at.checked_add(out.len()).ok_or(wp_base::FsError::Io)?;
        out.copy_from_slice(self.0.get(at..end).ok_or(wp_base::FsError::Io)?);
        Ok(())
    }
}

impl Bytes {
    fn with(len: usize, pieces: &[(usize, &[u8])]) -> Bytes {
        let mut all = vec![0; len];
        for (at, bytes) in pieces {
            all.get_mut(*at..at + bytes.len()).expect("room").copy_from_slice(bytes);
        }
        Bytes(all)
    }
}

fn said(view: &Bytes) -> String {
    match identify(view) {
        Identity::FileSystem(fs) => fs.name.to_owned(),
        Identity::Known(k) => format!("{}: {}", k.name, k.help("F")),
        Identity::Table(t) => {
            let each = t.partitions.iter().map(|p| format!(" {}@{}+{}", p.number, p.at, p.bytes));
            format!("{}{}{}", t.scheme, each.collect::<String>(), t.fault.map_or("", |_| " fault"))
        }
        Identity::Unknown(why) => format!("{why:?}"),
    }
}

#[test]
fn containers_and_others_are_named_with_a_command() {
    let all: &[(usize, &[u8], &str)] = &[
        (0, b"\x1f\x8b\x08", "a gzip file: unpack it first: gzip -dc F > image.img"),
        (0, b"QFI\xfb", "a qcow2 image: unpack it first: qemu-img convert -O raw F F.raw"),
        (0, b"\x3a\xff\x26\xed", "an Android sparse image: unpack it first: simg2img F image.img"),
        (0, b"XFSB", "an XFS file system: this build reads ext4, f2fs, nilfs2, btrfs"),
        (4086, b"SWAPSPACE2", "swap space: it holds no files; name another image"),
        (
            0,
            b"LUKS\xba\xbe",
            "a LUKS volume: name the device that this makes: cryptsetup open F NAME, then \
             /dev/mapper/NAME",
        ),
    ];
    for (at, magic, right) in all {
        assert_eq!(said(&Bytes::with(1 << 18, &[(*at, magic)])), *right);
    }
}

#[test]
fn a_file_system_comes_before_what_may_be_left_behind_it() {
    let ext4: &[u8] = b"\x53\xef";
    let stale: &[u8] = b"CD001";
    assert_eq!(said(&Bytes::with(1 << 18, &[(1080, ext4), (32769, stale)])), "ext4");
    assert_eq!(
        said(&Bytes::with(1 << 18, &[(32769, stale)])).split(':').next(),
        Some("an ISO 9660 image")
    );
    let magic: &[u8] = b"_BHRfS_M";
    assert_eq!(said(&Bytes::with(1 << 18, &[(65536 + 64, magic)])), "btrfs", "whatever its sum is");
}

#[test]
fn what_nothing_is_known_of_is_said_why() {
    assert_eq!(said(&Bytes(Vec::new())), "Empty");
    assert_eq!(said(&Bytes(vec![0; 1 << 18])), "Zeroes");
    assert_eq!(said(&Bytes(vec![7; 1000])), "Short");
    assert_eq!(said(&Bytes(vec![7; 1 << 18])), "Other");
    let copy = Bytes::with(
        9 << 20,
        &[((8193 << 10) + 0x38, b"\x53\xef"), ((8193 << 10) + 0x5a, b"\x01\0")],
    );
    assert!(said(&copy).starts_with("Copy { fs: \"ext4\", at: 8389632"), "{}", said(&copy));
}

/// An entry of a boot record.
fn entry(kind: u8, start: u32, sectors: u32) -> Vec<u8> {
    let mut e = vec![0, 0, 0, 0, kind, 0, 0, 0];
    e.extend(start.to_le_bytes());
    e.extend(sectors.to_le_bytes());
    e
}

#[test]
fn an_mbr_has_primary_and_logical_partitions() {
    let (a, ext) = (entry(0x83, 8, 8), entry(0x05, 16, 100));
    let (b, next, c) = (entry(0x83, 2, 4), entry(0x05, 20, 8), entry(0x83, 2, 6));
    let end: &[u8] = b"\x55\xaa";
    let pieces: &[(usize, &[u8])] = &[
        (446, &a),
        (462, &ext),
        (510, end),
        (16 * 512 + 446, &b),
        (16 * 512 + 462, &next),
        (16 * 512 + 510, end),
        (36 * 512 + 446, &c),
        (36 * 512 + 510, end),
    ];
    let image = Bytes::with(1 << 18, pieces);
    assert_eq!(said(&image), "MBR 1@4096+4096 5@9216+2048 6@19456+3072");
    // A chain that leads to itself ends.
    let again = entry(0x05, 0, 8);
    let mut round = pieces.to_vec();
    round.push((36 * 512 + 462, &again));
    assert!(said(&Bytes::with(1 << 18, &round)).ends_with(" fault"));
}

/// A GPT of sectors of `sector` bytes with one partition; its header at `at`.
fn gpt(sector: usize, at: usize, entries: usize) -> Vec<(usize, Vec<u8>)> {
    let mut one = vec![0xaf; 32];
    one.extend(40u64.to_le_bytes());
    one.extend(47u64.to_le_bytes());
    one.resize(128 * 128, 0);
    let mut head = b"EFI PART\0\0\x01\0\x5c\0\0\0".to_vec();
    head.resize(92, 0);
    let mut put = |at: usize, bytes: &[u8]| {
        head.get_mut(at..at + bytes.len()).expect("room").copy_from_slice(bytes);
    };
    put(72, &((entries / sector) as u64).to_le_bytes());
    put(80, &128u32.to_le_bytes());
    put(84, &128u32.to_le_bytes());
    put(88, &(!crc32_le(!0, &one)).to_le_bytes());
    let sum = !crc32_le(!0, &head);
    head.get_mut(16..20).expect("room").copy_from_slice(&sum.to_le_bytes());
    let mut boot = entry(0xee, 1, u32::MAX);
    boot.resize(64, 0);
    boot.extend(b"\x55\xaa");
    vec![(446, boot), (at, head), (entries, one)]
}

#[test]
fn a_gpt_is_read_in_sectors_of_512_and_4096_bytes_and_from_its_copy() {
    let make = |all: &[(usize, Vec<u8>)]| {
        let pieces: Vec<(usize, &[u8])> = all.iter().map(|(at, b)| (*at, b.as_slice())).collect();
        Bytes::with(1 << 18, &pieces)
    };
    assert_eq!(said(&make(&gpt(512, 512, 1024))), "GPT 1@20480+4096");
    assert_eq!(said(&make(&gpt(4096, 4096, 8192))), "GPT 1@163840+32768");
    let mut damaged = make(&gpt(512, 512, 1024));
    *damaged.0.get_mut(600).expect("room") ^= 1;
    assert_eq!(said(&damaged), "GPT fault");
    let copy = gpt(512, (1 << 18) - 512, (1 << 18) - 512 - 128 * 128);
    assert_eq!(said(&make(&copy)), "GPT 1@20480+4096 fault");
}
