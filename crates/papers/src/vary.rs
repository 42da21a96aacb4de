//! What the assumed parameters of a device and a CPU profile leave open: each is changed by some
//! factors, and a claim's interval is what comes of it.

use wp_device::Param;
use wp_machine::profile::Profile;
use wp_rt::{CpuModel, CpuOp};

use crate::claims::Measured;

/// A change of one assumed parameter.
#[derive(Clone, Debug)]
pub struct Variation {
    /// Parameter and factor.
    pub name: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Device(String, u64),
    Cpu(CpuOp, u64, u64),
    /// Every cost of the CPU, by this factor.
    AllCpu(u64, u64),
    /// One of the experiment's own: its key, and the factor.
    Own(&'static str, u64, u64),
}

/// Factors, as fractions.
pub type Factors = [(u64, u64); 2];
/// Half, and half as much again.
pub const BY_HALF: Factors = [(1, 2), (3, 2)];
/// Half, and twice.
pub const BY_TWO: Factors = [(1, 2), (2, 1)];

/// A factor in a name.
pub fn factor((num, den): (u64, u64)) -> String {
    if den == 1 { format!("x{num}") } else { format!("x{num}/{den}") }
}

impl Variation {
    /// Both of one number of a device, whatever its preset says of it.
    pub fn of_number(key: &str, value: u64, by: Factors) -> impl Iterator<Item = Variation> {
        by.into_iter().map(move |by| Variation {
            name: format!("{key} {}", factor(by)),
            what: What::Device(key.to_owned(), value * by.0 / by.1),
        })
    }

    /// The device's parameter that it changes, if it changes one.
    pub fn device_key(&self) -> Option<&str> {
        match &self.what {
            What::Device(key, _) => Some(key),
            _ => None,
        }
    }

    /// Both of one parameter of an experiment.
    pub fn of_own(key: &'static str, by: Factors) -> impl Iterator<Item = Variation> {
        by.into_iter().map(move |by| Variation {
            name: format!("{key} {}", factor(by)),
            what: What::Own(key, by.0, by.1),
        })
    }

    /// Both of all CPU costs together.
    pub fn of_all_cpu(by: Factors) -> impl Iterator<Item = Variation> {
        by.into_iter().map(|by| Variation {
            name: format!("cpu, all, {}", factor(by)),
            what: What::AllCpu(by.0, by.1),
        })
    }

    /// Changes a machine's parameters and costs.
    pub fn apply(&self, params: &mut Vec<(String, u64)>, cpu: &mut CpuModel) {
        match &self.what {
            What::Device(key, value) => params.push((key.clone(), *value)),
            What::Cpu(op, num, den) => {
                let ns = cpu.profile.get(*op);
                cpu.profile.set(*op, ns * num / den);
            }
            What::AllCpu(num, den) => CpuOp::ALL.iter().for_each(|op| {
                let ns = cpu.profile.get(*op);
                cpu.profile.set(*op, ns * num / den);
            }),
            What::Own(..) => {}
        }
    }

    /// A parameter of the experiment, changed if it is this one.
    pub fn own(&self, key: &str, value: f64) -> f64 {
        match self.what {
            What::Own(own, num, den) if own == key => value * num as f64 / den as f64,
            _ => value,
        }
    }
}

/// What a device preset leaves open: a number with an interval at both its ends, any other that is
/// assumed by the factors.
pub fn of_device(name: &str, by: Factors) -> Vec<Variation> {
    let params = wp_device::find(name).map_or(&[][..], |d| d.params);
    let change =
        |p: &Param, value, name| Variation { name, what: What::Device(p.name.to_owned(), value) };
    let of_number = |p: &Param| match p.interval {
        Some((least, most)) => [least, most]
            .map(|value| change(p, value, format!("{} {value} {}", p.name, p.unit)))
            .to_vec(),
        None if p.source.starts_with("assumed") && p.unit != "switch" && p.value > 0 => by
            .map(|by| change(p, p.value * by.0 / by.1, format!("{} {}", p.name, factor(by))))
            .to_vec(),
        None => Vec::new(),
    };
    params.iter().flat_map(of_number).collect()
}

/// Every assumed cost of a CPU profile.
pub fn of_cpu(profile: &Profile, by: Factors) -> Vec<Variation> {
    // What costs nothing is nothing when halved, too.
    let assumed = profile.costs.iter().filter(|c| c.source.starts_with("assumed") && c.ns > 0);
    let both = assumed.flat_map(|c| by.map(|by| (c.op, by)));
    both.map(|(op, by)| Variation {
        name: format!("cpu {} {}", op.name(), factor(by)),
        what: What::Cpu(op, by.0, by.1),
    })
    .collect()
}

/// A value with what the variations made of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The value.
    pub value: f64,
    /// Lowest of all.
    pub low: f64,
    /// Highest of all.
    pub high: f64,
}

impl Range {
    /// Nothing varied yet.
    pub fn new(value: f64) -> Range {
        Range { value, low: value, high: value }
    }

    /// Takes in what a variation gave.
    pub fn widen(&mut self, other: f64) {
        self.low = self.low.min(other);
        self.high = self.high.max(other);
    }

    /// For a claim.
    pub fn measured(&self) -> Measured {
        Measured::value(self.value).interval(self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumed_parameters_are_varied_and_no_others() {
        let device = of_device("zn540-4tb", BY_HALF);
        assert!(device.iter().any(|v| v.name == "report_ns x1/2"));
        assert!(!device.iter().any(|v| v.name.starts_with("program_ns")), "that is fitted");
        let profile = crate::f2fs_oprw::profile();
        let cpu = of_cpu(profile, BY_HALF);
        assert!(cpu.iter().any(|v| v.name == "cpu page_write x3/2"));
        assert!(!cpu.iter().any(|v| v.name.starts_with("cpu node_writeback")), "that is given");
        let ssd = of_device("850pro-256", BY_TWO);
        let flush: Vec<&str> = ssd
            .iter()
            .filter(|v| v.device_key() == Some("flush_overhead_ns"))
            .map(|v| v.name.as_str())
            .collect();
        let ends = ["flush_overhead_ns 272500 ns", "flush_overhead_ns 1920000 ns"];
        assert_eq!(flush, ends, "what the sources leave open, in place of factors");
        let (mut params, mut model) = (Vec::new(), profile.model());
        let before = model.profile.get(CpuOp::PageWrite);
        let one = cpu.iter().find(|v| v.name == "cpu page_write x3/2").expect("there");
        one.apply(&mut params, &mut model);
        assert_eq!(model.profile.get(CpuOp::PageWrite), before * 3 / 2);
        let own: Vec<Variation> = Variation::of_own("think_ns", BY_HALF).collect();
        assert_eq!(own[0].own("think_ns", 80.0), 40.0);
        assert_eq!(own[1].own("other", 80.0), 80.0);
        let all: Vec<Variation> = Variation::of_all_cpu(BY_TWO).collect();
        let mut model = profile.model();
        all[1].apply(&mut params, &mut model);
        assert_eq!(all[1].name, "cpu, all, x2");
        assert_eq!(model.profile.get(CpuOp::PageWrite), before * 2);
    }

    #[test]
    fn a_range_holds_its_value() {
        let mut range = Range::new(1.0);
        range.widen(1.5);
        range.widen(1.2);
        assert_eq!((range.low, range.value, range.high), (1.0, 1.0, 1.5));
    }
}
