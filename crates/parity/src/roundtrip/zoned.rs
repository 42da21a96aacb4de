//! A zoned device for images that go there and back.

use std::fmt::Write;

use wp_base::{Zone, ZoneKind};

/// The program that fills, empties and reports zoned devices in the guest.
pub(super) const ZONES_C: &str = include_str!("zones.c");

/// Bytes of the device, bytes of a zone, conventional zones.
const LAYOUT: (u64, u64, u64) = (256 << 20, 4 << 20, 16);

/// Our device's parameters.
pub(super) fn params() -> Vec<(String, u64)> {
    let (capacity, zone, conventional) = LAYOUT;
    [("capacity_bytes", capacity), ("zone_bytes", zone), ("conventional_zones", conventional)]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec()
}

/// The same device in the guest, in `$L`, with the image and its write pointers; afterwards the
/// image is what the device holds, and its report of zones is beside it.
pub(super) const DEVICE: &str = r#"
cp /share/zones /run/zones; chmod +x /run/zones
D=/sys/kernel/config/nullb/z0
attach() {
 mkdir $D
 for kv in size=256 zoned=1 zone_size=4 zone_nr_conv=16 memory_backed=1 blocksize=4096; do
  echo ${kv#*=} > $D/${kv%%=*} || exit 3
 done
 echo 1 > $D/power || exit 3
 L=/dev/z0
 /run/zones load /share/$1.img /share/$1.zones $L || exit 3
}
detach() {
 rm /share/$1.img
 /run/zones save $L /share/$1.img && /run/zones report $L > /share/$1.report || exit 3
 echo 0 > $D/power; rmdir $D
}
"#;

/// A line a zone for [`ZONES_C`]: first sector, sectors written, or -1 for a conventional one.
pub(super) fn pointers(zones: &[Zone]) -> String {
    let mut out = String::new();
    for z in zones {
        let written = match z.kind {
            ZoneKind::Conventional => -1,
            ZoneKind::Sequential => i64::try_from(z.wp.0 - z.start.0).unwrap_or(i64::MAX),
        };
        writeln!(out, "{} {written}", z.start.0).expect("a string takes it");
    }
    out
}

#[cfg(test)]
mod tests {
    use wp_base::{Sector, ZoneState};

    use super::*;

    #[test]
    fn pointers_are_counted_from_the_zones_start() {
        let zone = |start, kind, wp| Zone {
            start: Sector(start),
            sectors: 0x8000,
            capacity: 0x8000,
            wp: Sector(wp),
            kind,
            state: ZoneState::Closed,
        };
        let all = [zone(0, ZoneKind::Conventional, 0), zone(0x8000, ZoneKind::Sequential, 0x8040)];
        assert_eq!(pointers(&all), "0 -1\n32768 64\n");
    }
}
