//! Which crash states there are.

use wp_base::SECTOR_BYTES;
use wp_block::ZoneOrder;
use wp_crash::{Contract, History};

use super::play::Played;

/// Which states are explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// What the contract of the device permits, with its breaches.
    Permitted {
        /// FLUSH is not done.
        lying_flush: bool,
        /// FUA is not done.
        lost_fua: bool,
        /// The device says that it has no volatile cache, and has one.
        faulty_plp: bool,
        /// Bytes written whole; `None`: as the device says.
        atomic: Option<u32>,
    },
    /// What the modelled device could be left with at that nanosecond.
    Modelled,
    /// As an honest contract permits, but that a zone may have holes below its write pointer: dies
    /// finish out of order.
    ZoneHoles,
}

impl Space {
    /// An honest device's.
    pub const HONEST: Space =
        Space::Permitted { lying_flush: false, lost_fua: false, faulty_plp: false, atomic: None };

    /// Their names.
    pub const NAMES: [&str; 8] = [
        "permitted",
        "sectors",
        "modelled",
        "zone-holes",
        "lying-flush",
        "lost-fua",
        "faulty-plp",
        "faulty-drive",
    ];

    /// The one of a name; `atomic`: see [`Space::Permitted`].
    pub fn named(name: &str, atomic: Option<u32>) -> Option<Space> {
        let permitted = |lying_flush, lost_fua, faulty_plp| {
            Some(Space::Permitted { lying_flush, lost_fua, faulty_plp, atomic })
        };
        match name {
            "permitted" => permitted(false, false, false),
            // Nothing but what the drive promises is larger than a sector: blocks tear.
            "sectors" => Some(Space::Permitted {
                lying_flush: false,
                lost_fua: false,
                faulty_plp: false,
                atomic: Some(SECTOR_BYTES as u32),
            }),
            "lying-flush" => permitted(true, false, false),
            "lost-fua" => permitted(false, true, false),
            "faulty-plp" => permitted(false, false, true),
            "faulty-drive" => permitted(true, true, true),
            "modelled" => Some(Space::Modelled),
            "zone-holes" => Some(Space::ZoneHoles),
            _ => None,
        }
    }

    /// The history that a tape has in it.
    pub fn history(&self, played: &Played) -> History {
        match *self {
            Space::Modelled => History::modelled(&played.tape, played.atomic),
            Space::ZoneHoles => {
                let contract = Contract {
                    volatile: played.volatile,
                    atomic: played.atomic,
                    zone_order: ZoneOrder::Holes,
                    ..Contract::HONEST
                };
                History::permitted(&played.tape, &contract)
            }
            Space::Permitted { lying_flush, lost_fua, faulty_plp, atomic } => {
                let contract = Contract {
                    volatile: played.volatile || faulty_plp,
                    atomic: atomic.unwrap_or(played.atomic),
                    lying_flush,
                    lost_fua,
                    lost_barriers: false,
                    zone_order: ZoneOrder::Prefix,
                };
                let history = History::permitted(&played.tape, &contract);
                match played.tape.only_completions {
                    true => history.in_stretches(&played.tape),
                    false => history,
                }
            }
        }
    }
}
