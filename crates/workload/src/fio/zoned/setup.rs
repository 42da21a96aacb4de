//! The zones of the devices of a job file, before its jobs begin.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_vfs::{OpenFlags, Vfs};

use super::{Place, Zones};
use crate::fio::job::Job;
use crate::fio::setup::{FileSetup, Layout};

/// Zones by the path of their device or file: all jobs there share them.
pub type Devices = BTreeMap<String, Rc<RefCell<Zones>>>;

/// The job's part of the zones of each of its files; its ranges are rounded to zones. Nothing of a
/// job without `zonemode=zbd`.
///
/// Errors: a job that does not fit the zones, with what fio says as well; the device's.
pub async fn places(
    vfs: &Vfs,
    job: &Job,
    layout: &mut Layout,
    (devices, lengths): (&mut Devices, &BTreeMap<String, u64>),
) -> Result<Vec<Place>, String> {
    let mut places = Vec::new();
    for file in layout.files.iter_mut().filter(|_| job.zbd) {
        let zones = match devices.get(&file.path) {
            Some(zones) => zones.clone(),
            None => {
                let length = lengths.get(&file.path).copied().unwrap_or(file.length);
                let zones = zones_of(vfs, job, file, length).await;
                let zones = zones.map_err(|e| format!("/{}: {e}", file.path))?;
                let zones = Rc::new(RefCell::new(zones));
                devices.insert(file.path.clone(), zones.clone());
                zones
            }
        };
        if job.max_open_zones > 0 && zones.borrow().most_open as u64 != job.max_open_zones {
            let what = "jobs on one device have different max_open_zones";
            return Err(format!("/{}: {what}", file.path));
        }
        let place = Place::new(job, &zones, (file.start, file.span))
            .map_err(|e| format!("/{}: {e}", file.path))?;
        (file.start, file.span) = place.range();
        places.push(place);
    }
    Ok(places)
}

/// `length`: of the file, once all jobs have laid out theirs.
async fn zones_of(vfs: &Vfs, job: &Job, file: &FileSetup, length: u64) -> Result<Zones, String> {
    let told = |e: wp_base::FsError| e.to_string();
    let (mut report, mut limit) = (Vec::new(), 0);
    if file.is_device {
        let fd = vfs.open(&file.path, OpenFlags::READ, 0).await.map_err(told)?;
        report = vfs.report_zones(fd).await.map_err(told)?;
        limit = vfs.max_open_zones(fd).map_err(told)?;
        vfs.close(fd).await.map_err(told)?;
    }
    let wanted = job.max_open_zones;
    if report.is_empty() {
        return Zones::emulated(length, job.zone_size, job.zone_capacity, wanted);
    }
    if job.writes && !job.direct.is_on() {
        return Err("writes to a zoned device need direct=1".to_owned());
    }
    let most = match (wanted, u64::from(limit)) {
        (wanted, 0) => wanted,
        (0, limit) if !job.ignore_zone_limits => limit,
        (wanted, limit) if wanted > limit && !job.ignore_zone_limits => {
            return Err(format!("max_open_zones is {wanted}; the device has at most {limit}"));
        }
        (wanted, _) => wanted,
    };
    Zones::of_report(&report, u32::try_from(most).unwrap_or(u32::MAX))
}
