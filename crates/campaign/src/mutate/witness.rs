//! The list of what kills mutants, as text.
//!
//! ```text
//! [[setting]]                      # a machine for programs that are written here
//! name = "6.18 slow"
//! like = "6.18 wild"               # what is not said is as there
//! fs = "era=6.18"
//!
//! [[witness]]
//! site = "ext4/sync/flush"
//! setting = "6.18 slow"
//! program = 3                      # a number of the setting's generator, or
//! steps = """                      # the program itself, see `wp_workload::program`
//! open 0 a rw,creat
//! sync
//! """
//! ```

use std::sync::OnceLock;

use serde::Deserialize;
use wp_base::site::Site;
use wp_crash::Plan;
use wp_workload::program::Program;

use super::Which;
use super::settings::{Hold, Recovery, Setting};

/// A setting of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    name: String,
    like: String,
    fs: Option<String>,
    device: Option<String>,
    elevator: Option<String>,
    /// Mebibytes of the device.
    capacity_mb: Option<u64>,
    /// Bytes that the device writes whole; 0: as it says.
    atomic: Option<u32>,
    complete: Option<u32>,
    hold: Option<Hold>,
    neighbour_us: Option<u64>,
    whole_life: Option<bool>,
    recovery: Option<Recovery>,
    stale_tables: Option<bool>,
}

/// Setting and program that kill a mutant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Witness {
    pub site: String,
    pub setting: String,
    program: Option<u64>,
    steps: Option<String>,
    #[serde(skip)]
    parsed: OnceLock<Program>,
}

impl Witness {
    pub fn which(&self) -> Which {
        self.program.map_or(Which::Directed, Which::Number)
    }

    /// The program, if it is written here.
    pub fn steps(&self) -> Option<&Program> {
        self.parsed.get()
    }
}

/// A list that was read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Witnesses {
    #[serde(default, rename = "setting")]
    own: Vec<Own>,
    #[serde(default)]
    witness: Vec<Witness>,
}

impl Witnesses {
    /// Errors: text that cannot be read, a site that is none, an entry with both or neither of
    /// number and steps, steps that are no program.
    pub fn parse(text: &str) -> Result<Witnesses, String> {
        let list: Witnesses = toml::from_str(text).map_err(|e| e.to_string())?;
        let known = super::sites();
        for w in &list.witness {
            if !known.iter().any(|s| s.name == w.site) {
                return Err(format!("no crash-safety point called `{}`", w.site));
            }
            match (w.program, &w.steps) {
                (Some(_), None) => {}
                (None, Some(steps)) => {
                    let program = Program::parse(steps);
                    let program = program.map_err(|e| format!("{}, steps: {e}", w.site))?;
                    w.parsed.get_or_init(|| program);
                }
                _ => return Err(format!("`{}`: give `program` or `steps`", w.site)),
            }
        }
        Ok(list)
    }

    /// The settings that are described here. Errors: one that is like none of `all`.
    pub fn settings<'a>(&'a self, all: &[Setting<'a>]) -> Result<Vec<Setting<'a>>, String> {
        let mut out: Vec<Setting<'a>> = Vec::new();
        for own in &self.own {
            let named = |name: &str| all.iter().chain(&out).find(|s| s.name == name).copied();
            if named(&own.name).is_some() {
                return Err(format!("two settings are called `{}`", own.name));
            }
            let like = named(&own.like);
            let like = like.ok_or(format!("`{}`: unknown setting `{}`", own.name, own.like))?;
            let complete = own.complete.unwrap_or(like.plan.complete);
            out.push(Setting {
                name: &own.name,
                fs: own.fs.as_deref().unwrap_or(like.fs),
                device: own.device.as_deref().unwrap_or(like.device),
                elevator: own.elevator.as_deref().unwrap_or(like.elevator),
                capacity: own.capacity_mb.map_or(like.capacity, |mb| mb << 20),
                atomic: own.atomic.map_or(like.atomic, |a| Some(a).filter(|a| *a > 0)),
                plan: Plan { complete, ..like.plan },
                hold: own.hold.unwrap_or(like.hold),
                neighbour_us: own.neighbour_us.unwrap_or(like.neighbour_us),
                whole_life: own.whole_life.unwrap_or(like.whole_life),
                recovery: own.recovery.or(like.recovery),
                stale_tables: own.stale_tables.unwrap_or(like.stale_tables),
                count: 0,
                ..like
            });
        }
        Ok(out)
    }

    /// Those of a site, in order.
    pub fn of(&self, site: &Site) -> Vec<&Witness> {
        self.witness.iter().filter(|w| w.site == site.name).collect()
    }

    /// Is the setting `name` made from `like`?
    #[cfg(test)]
    pub fn is_like(&self, name: &str, like: &str) -> bool {
        self.own.iter().any(|o| o.name == name && o.like == like)
    }

    /// All.
    #[cfg(test)]
    pub fn all(&self) -> &[Witness] {
        &self.witness
    }
}
