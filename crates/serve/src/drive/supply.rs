//! A drive that is made to hold one state after the other, for a guest that recovers each of them.

use wp_base::{Time, Zone};
use wp_medium::Medium;

use super::Drive;
use super::freeze::PowerError;

/// Contents and zones, with a number; `None`: there is no more.
pub type Supply = Box<dyn FnMut() -> Option<(u64, Medium, Vec<Zone>)>>;

impl Drive {
    /// Where states come from.
    pub fn supply(&mut self, states: Supply) {
        self.supply = Some(states);
    }

    /// Makes the drive hold the next state, which takes no time of the client's. Its number;
    /// `None`: there is none. Errors: requests are not answered yet; no model that could hold it.
    pub fn next_state(&mut self, now: Time) -> Result<Option<u64>, PowerError> {
        self.run_until(now);
        if !self.is_modelled() {
            return Err(PowerError::NoModel);
        }
        if self.unanswered() > 0 {
            return Err(PowerError::Busy(self.unanswered()));
        }
        let Some((number, medium, zones)) = self.supply.as_mut().and_then(|next| next()) else {
            return Ok(None);
        };
        self.restore(&medium, &zones);
        self.arm();
        Ok(Some(number))
    }
}

#[cfg(test)]
mod tests {
    use wp_base::Sector;
    use wp_medium::Slice;

    use super::*;

    #[test]
    fn a_drive_holds_each_state_in_turn_and_then_there_is_none() {
        let model =
            wp_device::find("ssd-128").and_then(|d| d.make(&[("capacity_bytes", 1 << 24)]).ok());
        let mut drive = Drive::new("ssd-128", model.expect("a device"), Default::default());
        assert_eq!(drive.next_state(Time(0)), Ok(None), "nobody supplies any");
        let mut states = (1..3u8).map(|n| {
            let mut medium = Medium::new();
            medium.write(Sector(8 * u64::from(n)), &Slice::from_bytes(&[n; 4096]));
            (u64::from(n), medium, Vec::new())
        });
        drive.supply(Box::new(move || states.next()));
        for n in 1..3u8 {
            assert_eq!(drive.next_state(Time(9)), Ok(Some(n.into())));
            let held = drive.medium().expect("a model");
            let bytes = |at| held.read(Sector(at), 8).iter().flat_map(|s| s.to_vec()).collect();
            let all: [Vec<u8>; 2] = [bytes(8), bytes(16)];
            let wanted = |k: u8| if k == n { vec![n; 4096] } else { vec![0; 4096] };
            assert_eq!(all, [wanted(1), wanted(2)]);
        }
        assert_eq!(drive.next_state(Time(9)), Ok(None));
    }
}
