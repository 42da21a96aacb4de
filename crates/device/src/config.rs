//! Parameters with a value, a unit and a source; what is wrong with one; how a device is made from
//! them.

use wp_block::DeviceModel;

/// One number of a preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its key.
    pub name: &'static str,
    /// Its value; a switch is 0 or 1.
    pub value: u64,
    /// `bytes`, `ns`, `MB/s` (10^6 bytes), `sectors` (512 bytes), `count`, `permille`, `switch`, or
    /// `choice`, of which the source says what each number means.
    pub unit: &'static str,
    /// Where it is from, or `assumed`.
    pub source: &'static str,
    /// Least and largest value that the sources leave open, in `unit`. `None`: they give one value,
    /// or none.
    pub interval: Option<(u64, u64)>,
}

impl Param {
    /// The same, with what the sources leave open. It holds the value.
    pub(crate) const fn within(self, least: u64, most: u64) -> Param {
        assert!(least <= self.value && self.value <= most, "an interval holds its value");
        Param { interval: Some((least, most)), ..self }
    }
}

/// A parameter that no device can be made with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: u64,
    /// Why not.
    pub reason: String,
}

impl ConfigError {
    /// An error about `key`.
    pub fn new(key: &str, value: u64, reason: impl Into<String>) -> ConfigError {
        ConfigError { key: key.to_owned(), value, reason: reason.into() }
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {}: {}", self.key, self.value, self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// A preset's values, some of them replaced.
#[derive(Clone, Debug)]
pub struct Settings {
    params: &'static [Param],
    values: Vec<u64>,
}

impl Settings {
    /// The values of `params`.
    pub fn of(params: &'static [Param]) -> Settings {
        Settings { params, values: params.iter().map(|p| p.value).collect() }
    }

    /// Replaces one. Errors: the preset has no such key.
    pub fn set(&mut self, key: &str, value: u64) -> Result<(), ConfigError> {
        let Some(i) = self.params.iter().position(|p| p.name == key) else {
            let known: Vec<&str> = self.params.iter().map(|p| p.name).collect();
            let reason = format!("no such parameter (parameters: {})", known.join(", "));
            return Err(ConfigError::new(key, value, reason));
        };
        self.values[i] = value;
        Ok(())
    }

    /// Value of `key`. Panics if the preset lacks it: presets are tables of ours, and a test reads
    /// them all.
    pub fn get(&self, key: &str) -> u64 {
        let i = self.params.iter().position(|p| p.name == key);
        self.values[i.unwrap_or_else(|| panic!("the preset has no {key}"))]
    }

    /// Value of `key` as a count from 1 to `most`. Errors: it is not.
    pub fn count(&self, key: &str, most: u32) -> Result<u32, ConfigError> {
        let value = self.get(key);
        match u32::try_from(value) {
            Ok(v) if (1..=most).contains(&v) => Ok(v),
            _ => Err(ConfigError::new(key, value, format!("must be from 1 to {most}"))),
        }
    }

    /// Value of the switch `key`. Errors: neither 0 nor 1.
    pub fn switch(&self, key: &str) -> Result<bool, ConfigError> {
        match self.get(key) {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(ConfigError::new(key, value, "must be 0 or 1")),
        }
    }

    /// Value of the capacity `key` in sectors. Errors: none, or not a multiple of 4096 bytes.
    pub fn capacity_sectors(&self, key: &str) -> Result<u64, ConfigError> {
        match self.get(key) {
            value if value > 0 && value.is_multiple_of(4096) => Ok(value / wp_base::SECTOR_BYTES),
            value => {
                Err(ConfigError::new(key, value, "must be a multiple of 4096 bytes, and not 0"))
            }
        }
    }
}

/// A device that can be had by name.
pub struct DeviceEntry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// Its numbers.
    pub params: &'static [Param],
    /// Makes it.
    pub build: fn(&Settings) -> Result<Box<dyn DeviceModel>, ConfigError>,
    /// What the drive is rated at, as far as that is published.
    pub rated: &'static [Rated],
}

/// A rated value of a drive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rated {
    /// Job of `examples/drive-benchmark.fio` that measures it.
    pub test: &'static str,
    /// In `unit`.
    pub value: f64,
    /// `MB/s` (10^6 bytes) or `IOPS`.
    pub unit: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// Was a number of the preset chosen so that this value comes out, without CPU costs? Then it
    /// is no prediction.
    pub fitted: bool,
}

impl DeviceEntry {
    /// Makes it with some numbers replaced: (key, value). Errors: an unknown key, or values that
    /// fit no device.
    pub fn make(&self, replaced: &[(&str, u64)]) -> Result<Box<dyn DeviceModel>, ConfigError> {
        let mut settings = Settings::of(self.params);
        for (key, value) in replaced {
            settings.set(key, *value)?;
        }
        (self.build)(&settings)
    }
}

/// Nanoseconds that `bytes` take at `mb_s` megabytes (10^6 bytes) per second, rounded up.
pub(crate) fn transfer_ns(bytes: u64, mb_s: u64) -> u64 {
    (bytes * 1000).div_ceil(mb_s)
}
