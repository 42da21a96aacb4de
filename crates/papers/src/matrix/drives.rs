//! The drives of the matrix.

use wp_block::Limits;
use wp_campaign::bugs::ZONES;
use wp_machine::MachineError;

use crate::techniques;

/// A piece of the 850 PRO's class, cut small so that garbage is collected in a short run, and old:
/// overwritten at random for long, every slot of it valid. Blocks of a sixteenth, each erased in a
/// sixteenth of the time, so that an erased byte costs what it costs there.
const OLD: [(&str, u64); 5] = [
    ("capacity_bytes", 4 << 30),
    ("pages_per_block", 16),
    ("blocks_per_plane", 1104),
    ("erase_ns", 218_750),
    ("aged_fill", 1000),
];
const CLASS: &str = "850pro-256";

/// A drive.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Preset.
    pub device: &'static str,
    /// Replaced parameters, beside those of where it is used.
    own: &'static [(&'static str, u64)],
    /// Zones of 2 GiB that the file system has; 0: it is no zoned drive.
    zones: u64,
}

/// All.
pub static DRIVES: &[Drive] = &[
    Drive {
        name: "volatile",
        about: "850 PRO class: a volatile write buffer, no FUA",
        device: CLASS,
        own: &[],
        zones: 0,
    },
    Drive {
        name: "plp",
        about: "850 PRO class with power-loss protection: completed writes are durable",
        device: CLASS,
        own: &[("plp", 1)],
        zones: 0,
    },
    Drive {
        name: "ordered",
        about: "850 PRO class, volatile, that keeps the order of barrier writes",
        device: CLASS,
        own: &[("barrier_writes", 1)],
        zones: 0,
    },
    Drive {
        name: "optr",
        about: "850 PRO class, volatile, that keeps all writes in order, each whole (OPTR)",
        device: CLASS,
        own: &[("optr", 1)],
        zones: 0,
    },
    Drive {
        name: "ranges",
        about: "850 PRO class, volatile, that flushes ranges of sectors (RFLUSH)",
        device: CLASS,
        own: &[("range_flush", 1)],
        zones: 0,
    },
    Drive {
        name: "whole-blocks",
        about: "850 PRO class, volatile, that keeps 4 KiB whole (untorn writes)",
        device: CLASS,
        own: &[("atomic_bytes", 4096)],
        zones: 0,
    },
    Drive {
        name: "zones",
        about: "ZN540 model without capacitors: a volatile write buffer",
        device: "zn540-4tb-noplp",
        own: &[],
        zones: 32,
    },
    Drive {
        name: "zones-plp",
        about: "ZN540 model with capacitors",
        device: "zn540-4tb",
        own: &[],
        zones: 32,
    },
];

fn params(all: &[&[(&str, u64)]]) -> Vec<(String, u64)> {
    all.iter().flat_map(|p| p.iter()).map(|(k, v)| ((*k).to_owned(), *v)).collect()
}

impl Drive {
    /// The drive of a name. Panics without.
    pub fn of(name: &str) -> &'static Drive {
        DRIVES.iter().find(|d| d.name == name).unwrap_or_else(|| panic!("no drive `{name}`"))
    }

    /// Is it zoned?
    pub const fn is_zoned(&self) -> bool {
        self.zones > 0
    }

    /// Replaced parameters where speed is measured.
    pub fn for_speed(&self) -> Vec<(String, u64)> {
        if self.is_zoned() { Vec::new() } else { params(&[&OLD, self.own]) }
    }

    /// Sectors of the partition there; `None`: all.
    pub fn sectors(&self) -> Option<u64> {
        self.is_zoned().then_some(self.zones * (2 << 30) / wp_base::SECTOR_BYTES)
    }

    /// The drive where the power fails, and its replaced parameters: one of the same contract, so
    /// that verdicts are no matter of one drive's timing. Of 64 MiB, it takes flushes beside other
    /// commands (those of SATA wait for all that is in flight); the zoned one has zones of 16 MiB.
    pub fn for_cuts(&self) -> (&'static str, Vec<(String, u64)>) {
        const SMALL: [(&str, u64); 2] = [("capacity_bytes", 64 << 20), ("fua", 0)];
        // Of the fixed device the protected one is that without a cache.
        let plain: &[(&str, u64)] = match self.own {
            [("plp", 1)] => &[("cache_bytes", 0)],
            own => own,
        };
        match self.is_zoned() {
            true => (self.device, params(&[ZONES.1])),
            false => ("fixed", params(&[&SMALL, plain])),
        }
    }

    /// Does it lose what it has not made durable?
    pub fn is_volatile(&self) -> bool {
        !self.name.ends_with("plp")
    }

    /// What it says of itself. Errors: none such.
    pub fn limits(&self) -> Result<Limits, MachineError> {
        techniques::limits(self.device, &self.for_speed())
    }

    /// One of its parameters where speed is measured. Panics without one.
    pub fn parameter(&self, key: &str) -> u64 {
        let preset = wp_device::find(self.device).expect("a preset of our own table");
        let replaced = self.for_speed().into_iter().find(|(k, _)| k == key).map(|(_, v)| v);
        replaced.unwrap_or_else(|| {
            preset.params.iter().find(|p| p.name == key).expect("a parameter of it").value
        })
    }
}
