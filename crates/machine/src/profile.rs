//! What the modelled CPUs are charged: one profile a machine, used by every experiment on it.

use wp_rt::{CostProfile, CpuModel, CpuOp};

/// A cost with where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Operation.
    pub op: CpuOp,
    /// Nanoseconds each.
    pub ns: u64,
    /// Source, or `assumed`.
    pub source: &'static str,
}

/// A machine: cores and costs.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// Cores.
    pub cores: u32,
    /// Costs; what is not named is free.
    pub costs: &'static [Cost],
}

const fn assumed(op: CpuOp, ns: u64) -> Cost {
    Cost { op, ns, source: "assumed: order of magnitude of a desktop CPU of 2013" }
}

/// Rounded from what `cargo bench -p wp-machine --bench host_costs` prints: creation 12 us, removal
/// 18, an append of two pages 8, a read of two 4, an open 3, an fsync 36 of the caller's time.
const fn host(op: CpuOp, ns: u64) -> Cost {
    Cost {
        op,
        ns,
        source: "assumed: sums as measured on a server of 2020 under Linux 6.18 (bench host_costs)",
    }
}

const fn phone(op: CpuOp, ns: u64) -> Cost {
    Cost {
        op,
        ns,
        source: "assumed: three times the desktop's; no measurement of this phone is available",
    }
}

/// Costs of a PC of 2012, as far as a later host tells.
const HOST_COSTS: &[Cost] = &[
    host(CpuOp::Syscall, 300),
    host(CpuOp::PathComponent, 600),
    host(CpuOp::NameChange, 5000),
    host(CpuOp::InodeChange, 6000),
    host(CpuOp::PageWrite, 3000),
    host(CpuOp::PageRead, 1500),
    host(CpuOp::SyncStart, 5000),
    host(CpuOp::BlockAlloc, 6000),
    host(CpuOp::PageWriteback, 2000),
    host(CpuOp::NodeWriteback, 5000),
    host(CpuOp::BioSubmit, 3000),
    host(CpuOp::SyncEnd, 5000),
    assumed(CpuOp::HandleStart, 300),
    assumed(CpuOp::JournalBlock, 1500),
    assumed(CpuOp::RequestDispatch, 2000),
    assumed(CpuOp::Completion, 3000),
    assumed(CpuOp::ContextSwitch, 2000),
];

/// Machines.
pub static PROFILES: &[Profile] = &[
    Profile {
        name: "free",
        about: "no CPU cost: durations are device waits only, as in the virtual-time references",
        cores: 1,
        costs: &[],
    },
    Profile {
        name: "i7-4770",
        about: "the PC of paper ext4-fsync (4 cores); every cost is assumed, none is fitted",
        cores: 4,
        costs: &[
            assumed(CpuOp::Syscall, 250),
            assumed(CpuOp::PathComponent, 150),
            assumed(CpuOp::NameChange, 1250),
            assumed(CpuOp::InodeChange, 1500),
            assumed(CpuOp::PageWrite, 600),
            assumed(CpuOp::PageRead, 400),
            assumed(CpuOp::BlockAlloc, 1500),
            assumed(CpuOp::HandleStart, 300),
            assumed(CpuOp::JournalBlock, 700),
            assumed(CpuOp::BioSubmit, 800),
            assumed(CpuOp::RequestDispatch, 1000),
            assumed(CpuOp::Completion, 2000),
            assumed(CpuOp::ContextSwitch, 1500),
            assumed(CpuOp::PageWriteback, 500),
        ],
    },
    Profile {
        name: "i7-3770",
        about: "the PC of paper journal-conflict (4 cores, 8 threads, taken for 8 cores); costs \
            assumed, of the order measured on a host",
        cores: 8,
        costs: HOST_COSTS,
    },
    Profile {
        name: "i7-3820",
        about: "the PC of paper direct-io (4 cores, 8 threads, taken for 8 cores): the i7-3770's \
            costs, of the same generation",
        cores: 8,
        costs: HOST_COSTS,
    },
    Profile {
        name: "snapdragon-800",
        about: "the phone of paper ext4-fsync (Nexus 5, 4 cores): every cost three times the \
            PC's, all assumed",
        cores: 4,
        costs: &[
            phone(CpuOp::Syscall, 750),
            phone(CpuOp::PathComponent, 450),
            phone(CpuOp::NameChange, 3750),
            phone(CpuOp::InodeChange, 4500),
            phone(CpuOp::PageWrite, 1800),
            phone(CpuOp::PageRead, 1200),
            phone(CpuOp::BlockAlloc, 4500),
            phone(CpuOp::HandleStart, 900),
            phone(CpuOp::JournalBlock, 2100),
            phone(CpuOp::BioSubmit, 2400),
            phone(CpuOp::RequestDispatch, 3000),
            phone(CpuOp::Completion, 6000),
            phone(CpuOp::ContextSwitch, 4500),
            phone(CpuOp::PageWriteback, 1500),
        ],
    },
    Profile {
        name: "xeon-4116",
        about: "the server of paper f2fs-oprw (Xeon Silver 4116, 12 cores): fsync by its table \
            3.1, the rest assumed",
        cores: 12,
        costs: &[
            server(CpuOp::Syscall, 300),
            server(CpuOp::PathComponent, 600),
            server(CpuOp::NameChange, 1700),
            server(CpuOp::InodeChange, 2000),
            server(CpuOp::PageWrite, 1000),
            server(CpuOp::PageRead, 700),
            server(CpuOp::PageWriteback, 800),
            server(CpuOp::BlockAlloc, 700),
            stage(CpuOp::SyncStart, 8600),
            stage(CpuOp::NodeWriteback, 12_200),
            stage(CpuOp::BioSubmit, 500),
            stage(CpuOp::RequestDispatch, 500),
            stage(CpuOp::Completion, 2300),
            stage(CpuOp::ContextSwitch, 2600),
            stage(CpuOp::FlushIssue, 2120),
            stage(CpuOp::SyncEnd, 5650),
        ],
    },
];

/// Paper f2fs-oprw, table 3.1: what is known is the sum of a stage; how it is shared among the
/// operations in it is not, and makes no difference to a stage.
const STAGES: &str = "paper f2fs-oprw, table 3.1: an input; the paper gives the sum of the stage";

const fn stage(op: CpuOp, ns: u64) -> Cost {
    Cost { op, ns, source: STAGES }
}

const fn server(op: CpuOp, ns: u64) -> Cost {
    Cost { op, ns, source: "assumed: order of magnitude of a server CPU of 2.1 GHz" }
}

impl Profile {
    /// The profile of that name. Errors: there is none, with those that there are.
    pub fn find(name: &str) -> Result<&'static Profile, String> {
        PROFILES.iter().find(|p| p.name == name).ok_or_else(|| {
            let known: Vec<&str> = PROFILES.iter().map(|p| p.name).collect();
            format!("no CPU profile called `{name}` (profiles: {})", known.join(", "))
        })
    }

    /// The profile of a name that our own sources have. Panics if there is none.
    pub fn known(name: &str) -> &'static Profile {
        Profile::find(name).expect("a profile of our own table")
    }

    /// The model for a runtime.
    pub fn model(&self) -> CpuModel {
        let mut profile = CostProfile::zero();
        for c in self.costs {
            profile.set(c.op, c.ns);
        }
        CpuModel { cores: self.cores, profile }
    }
}
