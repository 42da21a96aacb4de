//! What is put on a command line in one word: a file system or device with its options, a size.

use wp_base::quantity;
use wp_vfs::{FsEntry, Options};

use crate::device_file::{self, Number};
use crate::registry;

/// Splits `ext4,era=3.4,nobarrier` into an entry's name and its options.
pub fn name_and_rest(text: &str) -> (&str, &str) {
    text.split_once(',').unwrap_or((text, ""))
}

/// A file system with options, from `ext4,era=3.4`. Errors: also an era that cannot be run.
pub fn file_system(text: &str) -> Result<(&'static FsEntry, Options), String> {
    parsed(text, on_disk, FsEntry::check_run)
}

/// The same to be crash-tested. Errors: also an era of which nobody knows what a power failure
/// left.
pub fn recoverable(text: &str) -> Result<(&'static FsEntry, Options), String> {
    parsed(text, on_disk, FsEntry::check_era)
}

/// A file system as for [`file_system`], or none: `none`.
pub fn machine_fs(text: &str) -> Result<(&'static FsEntry, Options), String> {
    parsed(text, registry::find_fs, FsEntry::check_run)
}

fn on_disk(name: &str) -> Result<&'static FsEntry, String> {
    registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, name)
}

fn parsed(
    text: &str,
    find: impl Fn(&str) -> Result<&'static FsEntry, String>,
    check_era: fn(&FsEntry, &str) -> Result<(), String>,
) -> Result<(&'static FsEntry, Options), String> {
    let (name, rest) = name_and_rest(text);
    let fs = find(name)?;
    let options = Options::parse(rest, fs.options).map_err(|e| e.to_string())?;
    options.get("era", fs.options).map_or(Ok(()), |era| check_era(fs, era))?;
    Ok((fs, options))
}

/// A device: a preset's name, and replaced parameters.
pub type Device = (String, Vec<(String, u64)>);

/// The devices of one file system, in order: `fixed,capacity_bytes=67108864+zn540-4tb`. Of one
/// device, just that. Errors: as [`device`].
pub fn devices(text: &str) -> Result<(Device, Vec<Device>), String> {
    let (first, rest) = text.split_once('+').map_or((text, None), |(a, b)| (a, Some(b)));
    let more = rest.into_iter().flat_map(|r| r.split('+')).map(device);
    Ok((device(first)?, more.collect::<Result<_, _>>()?))
}

/// A device preset's name and the parameters that replace its own, from `ssd-128,queue_depth=1`, or
/// from a file (`my.toml,queue_depth=1`, `file:my,queue_depth=1`; [`device_file`]), whose numbers
/// are replaced too.
///
/// Errors: a parameter that is no `key=number`; a file that cannot be read or describes no device.
pub fn device(text: &str) -> Result<Device, String> {
    let (name, numbers, replaced) = base(text)?;
    // What is written later holds: here over the file's.
    let numbers = numbers.into_iter().filter(|n| replaced.iter().all(|(k, _)| k != n.key));
    let params = numbers.map(|n| (n.key.to_owned(), n.value));
    Ok((name, params.chain(replaced.iter().cloned()).collect()))
}

/// A preset's name, numbers of a file, and parameters that are replaced behind them.
pub type Base = (String, Vec<Number>, Vec<(String, u64)>);

/// The parts of a device, apart: a preset's name, the numbers of a file, with their sources, and
/// what is replaced behind them. Errors: as [`device`].
pub fn base(text: &str) -> Result<Base, String> {
    let (name, rest) = name_and_rest(text);
    let (name, numbers) = match device_file::path_of(name) {
        None => (name.to_owned(), Vec::new()),
        Some(path) => {
            let file = device_file::read(path)?;
            (file.base.name.to_owned(), file.numbers)
        }
    };
    let mut replaced: Vec<(String, u64)> = Vec::new();
    for p in rest.split(',').filter(|p| !p.is_empty()) {
        let (key, value) =
            p.split_once('=').ok_or_else(|| format!("device parameter `{p}`: write key=number"))?;
        let value = value
            .parse()
            .map_err(|_| format!("device parameter {key}: `{value}` is not a whole number"))?;
        replaced.retain(|(k, _)| k != key);
        replaced.push((key.to_owned(), value));
    }
    Ok((name, numbers, replaced))
}

/// Bytes from `64M`, `29GiB`, `4096`. Errors: as [`quantity::bytes`].
pub fn size(text: &str) -> Result<u64, String> {
    quantity::bytes(text)
}
