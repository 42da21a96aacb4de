//! Releases of the Linux kernel, and what ships them.
//!
//! A distribution's kernel is an upstream release with changes of its own. Some follow a stable
//! series; the others take over fixes by a list of their own, which is not known here: they stand
//! for the release that they are based on.

use std::fmt;

/// A release of the Linux kernel: 6.12.117 is that stable release, 6.12 the first of its series
/// (6.12.0).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u16, pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version(major, minor, patch) = self;
        match patch {
            0 => write!(f, "{major}.{minor}"),
            _ => write!(f, "{major}.{minor}.{patch}"),
        }
    }
}

impl From<(u16, u16)> for Version {
    /// The first release of a series.
    fn from((major, minor): (u16, u16)) -> Version {
        Version(major, minor, 0)
    }
}

impl Version {
    /// Name of what is behind the newest release: its rules, and patches that are in none.
    pub const NEXT: &str = "next";

    /// The release that [`Version::NEXT`] rests on.
    pub const BELOW_NEXT: Version = Version(6, 18, 0);

    /// Parses `3.4`, `3.4.2`, a distribution (`debian-12`: [`DISTRIBUTIONS`]), or
    /// [`Version::NEXT`]. No for anything else.
    pub fn parse(text: &str) -> Option<Version> {
        if text == Version::NEXT {
            return Some(Version::BELOW_NEXT);
        }
        if let Some(d) = DISTRIBUTIONS.iter().find(|d| d.name == text) {
            return Some(d.kernel);
        }
        let number = |p: &str| match p.bytes().all(|b| b.is_ascii_digit()) {
            true => p.parse::<u16>().ok(),
            false => None,
        };
        let mut parts = text.split('.').map(number);
        let all = Version(parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
        parts.next().is_none().then_some(all)
    }

    /// The first release of its series: the development of the kernel itself, without backports.
    pub fn series(self) -> Version {
        Version(self.0, self.1, 0)
    }
}

/// How a distribution's kernel relates to the upstream release that its entry names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// It follows the stable series.
    Follows,
    /// It is based on the release and has many later changes, which are not modelled.
    Own,
}

/// A distribution and its kernel.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    /// As in `era=NAME`.
    pub name: &'static str,
    /// The upstream release: of those that follow a series a late one.
    pub kernel: Version,
    /// How much of it is that release.
    pub base: Base,
}

const fn follows(name: &'static str, kernel: Version) -> Distribution {
    Distribution { name, kernel, base: Base::Follows }
}

const fn own(name: &'static str, kernel: Version) -> Distribution {
    Distribution { name, kernel, base: Base::Own }
}

/// Those that can be named. Series are of the distributions' own pages; patch levels are late ones
/// (of 2025 and 2026), those of Ubuntu, Android and Alpine from memory. An Android release runs on
/// several series; its entry is the one that most of its new devices had.
pub static DISTRIBUTIONS: &[Distribution] = &[
    follows("debian-8", Version(3, 16, 84)),
    follows("debian-9", Version(4, 9, 320)),
    follows("debian-10", Version(4, 19, 316)),
    follows("debian-11", Version(5, 10, 251)),
    follows("debian-12", Version(6, 1, 192)),
    follows("debian-13", Version(6, 12, 117)),
    own("ubuntu-14.04", Version(3, 13, 11)),
    follows("ubuntu-16.04", Version(4, 4, 262)),
    own("ubuntu-18.04", Version(4, 15, 18)),
    follows("ubuntu-20.04", Version(5, 4, 291)),
    follows("ubuntu-22.04", Version(5, 15, 224)),
    own("ubuntu-24.04", Version(6, 8, 12)),
    own("ubuntu-24.10", Version(6, 11, 11)),
    own("ubuntu-25.04", Version(6, 14, 11)),
    own("ubuntu-25.10", Version(6, 17, 13)),
    own("rhel-7", Version(3, 10, 0)),
    own("rhel-8", Version(4, 18, 0)),
    own("rhel-9", Version(5, 14, 0)),
    own("rhel-10", Version(6, 12, 0)),
    own("rocky-8", Version(4, 18, 0)),
    own("rocky-9", Version(5, 14, 0)),
    own("rocky-10", Version(6, 12, 0)),
    own("alma-8", Version(4, 18, 0)),
    own("alma-9", Version(5, 14, 0)),
    own("alma-10", Version(6, 12, 0)),
    own("centos-8", Version(4, 18, 0)),
    own("centos-9", Version(5, 14, 0)),
    own("sles-15-sp4", Version(5, 14, 21)),
    own("sles-15-sp5", Version(5, 14, 21)),
    own("sles-15-sp6", Version(6, 4, 0)),
    own("sles-15-sp7", Version(6, 4, 0)),
    own("sles-16.0", Version(6, 12, 0)),
    own("opensuse-leap-15.6", Version(6, 4, 0)),
    own("oracle-uek-6", Version(5, 4, 17)),
    follows("oracle-uek-7", Version(5, 15, 167)),
    follows("oracle-uek-8", Version(6, 12, 51)),
    follows("amazon-linux-2", Version(5, 10, 237)),
    follows("amazon-linux-2023", Version(6, 1, 158)),
    own("proxmox-8", Version(6, 8, 12)),
    own("proxmox-9", Version(6, 14, 11)),
    follows("alpine-3.20", Version(6, 6, 110)),
    follows("alpine-3.22", Version(6, 12, 50)),
    follows("android-10", Version(4, 14, 325)),
    follows("android-11", Version(4, 19, 306)),
    follows("android-12", Version(5, 10, 226)),
    follows("android-13", Version(5, 15, 180)),
    follows("android-14", Version(6, 1, 145)),
    follows("android-15", Version(6, 6, 98)),
    follows("android-16", Version(6, 12, 38)),
];

impl Distribution {
    /// The distribution of this name.
    pub fn find(name: &str) -> Option<&'static Distribution> {
        DISTRIBUTIONS.iter().find(|d| d.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_version_and_its_own() {
        assert_eq!(Version::parse("next"), Version::parse("6.18"));
        for d in DISTRIBUTIONS {
            assert_eq!(Version::parse(d.name), Some(d.kernel), "{}", d.name);
            assert_eq!(Distribution::find(d.name).map(|x| x.kernel), Some(d.kernel));
        }
        assert_eq!(Version::parse("debian-4"), None);
    }

    #[test]
    fn versions_have_two_or_three_numbers() {
        assert_eq!(Version::parse("6.1"), Some(Version(6, 1, 0)));
        assert_eq!(Version::parse("6.1.115"), Some(Version(6, 1, 115)));
        for wrong in
            ["", "6", "6.", "6.1.x", "6.1.2.3", "6.-1", "a.b", "6.70000", "3.4-rc1", "+6.1", "6.+1"]
        {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Version(6, 1, 0).to_string(), "6.1");
        assert_eq!(Version(6, 1, 7).to_string(), "6.1.7");
    }
}
