//! Four tables: what there is to run. A new file system, device, elevator or workload is one line
//!              here.

use wp_device::DeviceEntry;
use wp_vfs::FsEntry;

use crate::workload::WorkloadEntry;

/// File systems.
pub static FILE_SYSTEMS: &[&FsEntry] =
    &[&wp_ext4::ENTRY, &wp_f2fs::ENTRY, &wp_nilfs2::ENTRY, &wp_btrfs::ENTRY];
/// What a machine may be without: no file system, and programs that use its devices.
pub static NONE: &FsEntry = &wp_raw::ENTRY;
/// Devices.
pub static DEVICES: &[&DeviceEntry] = wp_device::DEVICES;
/// Workloads.
pub static WORKLOADS: &[&WorkloadEntry] = &[
    &crate::workload::fsync_last::ENTRY,
    &crate::workload::fsync_create::ENTRY,
    &crate::workload::create_delete::ENTRY,
    &crate::workload::fio::ENTRY,
    &crate::workload::filebench::ENTRY,
    &crate::workload::varmail::ENTRY,
    &crate::workload::oltp_insert::ENTRY,
    &crate::workload::mobibench::ENTRY,
    &crate::workload::wl_varmail::ENTRY,
    &crate::workload::program::ENTRY,
];

/// A file system by name, or [`NONE`]. Errors: as [`find`].
pub fn find_fs(name: &str) -> Result<&'static FsEntry, String> {
    let all: Vec<&FsEntry> = FILE_SYSTEMS.iter().copied().chain([NONE]).collect();
    find("file system", &all, |f| f.name, name)
}

/// A table's entry by name; `Err` lists the known names.
pub fn find<'a, T>(
    kind: &str,
    table: &[&'a T],
    name_of: fn(&T) -> &'static str,
    name: &str,
) -> Result<&'a T, String> {
    table.iter().find(|e| name_of(e) == name).copied().ok_or_else(|| {
        let known: Vec<&str> = table.iter().map(|e| name_of(e)).collect();
        format!("no {kind} called `{name}` (known: {})", known.join(", "))
    })
}
