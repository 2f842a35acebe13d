//! Chooses the memory measurement of a model that is kept and used for planning (M1). Pure functions, shared by the controller,
//! which measures, and the simulator, which invents measurements.
//!
//! The kept figure is a decayed maximum. A higher peak counts immediately. A replica that served for a while and stayed below the
//! kept peak reduces it by an eighth of the difference when it ends. Five such lives forget half of a freak peak and twenty forget
//! nearly all of it, while a recurring peak is kept.

use crate::types::ids::{Bytes, Span};

/// A shorter life does not show how much memory the engine takes.
const LIFE_LEAST: Span = Span::from_secs(60);
/// A life below the kept peak reduces it by the difference divided by this.
const DECAY: u64 = 8;

/// The kept peak after a replica was seen to hold `seen`.
pub fn peak_after_reading(kept: Option<Bytes>, seen: Bytes) -> Bytes {
    seen.max(kept.unwrap_or(Bytes::ZERO))
}

/// The kept peak after a replica with this peak has ended. `None` if its life was too short to count. `ready_for` is `None` for a
/// replica that never became ready.
pub fn peak_after_exit(kept: Bytes, peak: Bytes, ready_for: Option<Span>) -> Option<Bytes> {
    let is_long = ready_for.is_some_and(|span| span >= LIFE_LEAST);
    let fades = Bytes(kept.saturating_sub(peak).0 / DECAY);
    is_long.then(|| kept.saturating_sub(fades))
}

/// A kept peak and the circumstances of its measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredPeak {
    pub bytes_per_device: Bytes,
    /// The engine's cache grows with use, so the replica may later hold more than was measured.
    pub may_grow: bool,
    /// Measured with the number of devices that the model's file gives a replica, to which `estimate` applies.
    pub as_configured: bool,
    /// The catalogue's estimate per device.
    pub estimate: Bytes,
}

impl MeasuredPeak {
    /// The figure used for planning; `None` if the measurement says too little.
    pub fn planned_with(self) -> Option<Bytes> {
        match (self.may_grow, self.as_configured) {
            (false, _) => Some(self.bytes_per_device),
            (true, true) => Some(self.bytes_per_device.max(self.estimate)),
            (true, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = Bytes::GIB;
    const LONG: Option<Span> = Some(LIFE_LEAST);

    #[test]
    fn an_unusual_peak_decays_over_replicas_that_stay_below_it() {
        let (freak, usual) = (Bytes(80 * GIB), Bytes(40 * GIB));
        let life = |kept, _| peak_after_exit(kept, usual, LONG).expect("long enough");
        let after = |lives: usize| (0..lives).fold(freak, life);
        assert!(after(1) < freak && after(1) > Bytes(74 * GIB));
        assert!(after(6) < Bytes(60 * GIB));
        assert!(after(20) < Bytes(43 * GIB) && after(20) >= usual);
        assert_eq!(
            peak_after_exit(usual, freak, LONG),
            Some(usual),
            "only a reading raises the figure"
        );
    }

    #[test]
    fn a_higher_reading_counts_immediately_and_a_short_life_does_not_count() {
        let (low, high) = (Bytes(GIB), Bytes(2 * GIB));
        assert_eq!(peak_after_reading(None, low), low);
        assert_eq!(peak_after_reading(Some(low), high), high);
        assert_eq!(peak_after_reading(Some(high), low), high);
        assert_eq!(peak_after_exit(high, low, Some(Span(59_999))), None);
        assert_eq!(peak_after_exit(high, low, None), None);
    }

    #[test]
    fn a_growing_model_is_planned_with_at_least_its_estimate_and_only_as_configured() {
        let measured = |may_grow, as_configured| MeasuredPeak {
            bytes_per_device: Bytes(GIB),
            may_grow,
            as_configured,
            estimate: Bytes(3 * GIB),
        };
        assert_eq!(measured(false, false).planned_with(), Some(Bytes(GIB)));
        assert_eq!(measured(false, true).planned_with(), Some(Bytes(GIB)));
        assert_eq!(measured(true, true).planned_with(), Some(Bytes(3 * GIB)));
        assert_eq!(measured(true, false).planned_with(), None);
    }
}
