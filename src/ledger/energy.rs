//! The energy of a device, from its counter or its power. Unknown energy is never counted as zero.

use pool::Time;

/// More power than any device draws, in milliwatts. A larger figure is a fault of the reading.
const POWER_MAX_MW: u64 = 20_000_000;
/// Power is not integrated over a longer gap between two readings.
const GAP_MAX_MS: u64 = 60_000;

/// The figure of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyReading {
    /// The energy since the driver was loaded, in millijoules.
    Counter(u64),
    /// The current power, in milliwatts.
    Power(u64),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Energy {
    last: Option<(Time, EnergyReading)>,
    /// Since the last call of `take`.
    mj: u64,
    known_ms: u64,
}

impl Energy {
    /// Adds the energy since the last reading. `None` if this one has no figure.
    pub fn read(&mut self, at: Time, reading: Option<EnergyReading>) {
        let Some(reading) = reading else {
            self.last = None;
            return;
        };
        let before = self.last.replace((at, reading));
        let Some((since, before)) = before.filter(|(since, _)| *since < at) else {
            return;
        };
        let ms = at.since(since).0;
        let mj = match (before, reading) {
            (EnergyReading::Counter(before), EnergyReading::Counter(now)) => {
                now.checked_sub(before)
            }
            (EnergyReading::Power(before), EnergyReading::Power(now)) if ms <= GAP_MAX_MS => {
                let twice = before.saturating_add(now);
                Some(twice.saturating_mul(ms) / 2_000)
            }
            _ => None,
        };
        let most = POWER_MAX_MW.saturating_mul(ms) / 1_000;
        if let Some(mj) = mj.filter(|mj| *mj <= most) {
            self.mj += mj;
            self.known_ms += ms;
        }
    }

    /// The energy since the last call in millijoules, and the time for which it is known in milliseconds.
    pub fn take(&mut self) -> (u64, u64) {
        let taken = (self.mj, self.known_ms);
        (self.mj, self.known_ms) = (0, 0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_gives_differences_and_a_reset_is_unknown() {
        let mut energy = Energy::default();
        let mut read = |at, mj| energy.read(Time(at), Some(EnergyReading::Counter(mj)));
        read(0, 5_000_000);
        read(1_000, 5_300_000);
        // The driver was loaded again.
        read(2_000, 10_000);
        read(3_000, 210_000);
        assert_eq!(energy.take(), (500_000, 2_000));
        assert_eq!(energy.take(), (0, 0));
    }

    #[test]
    fn power_is_integrated_between_readings_and_unknown_over_a_gap() {
        let mut energy = Energy::default();
        let power = |mw| Some(EnergyReading::Power(mw));
        energy.read(Time(0), power(100_000));
        energy.read(Time(10_000), power(300_000));
        assert_eq!(energy.take(), (2_000_000, 10_000), "200 W for 10 s");
        energy.read(Time(20_000), None);
        energy.read(Time(30_000), power(300_000));
        energy.read(Time(300_000), power(300_000));
        assert_eq!(energy.take(), (0, 0));
    }

    #[test]
    fn an_absurd_figure_is_unknown() {
        let mut energy = Energy::default();
        energy.read(Time(0), Some(EnergyReading::Counter(0)));
        energy.read(Time(1_000), Some(EnergyReading::Counter(u64::MAX)));
        energy.read(Time(2_000), Some(EnergyReading::Power(u64::MAX)));
        energy.read(Time(3_000), Some(EnergyReading::Power(u64::MAX)));
        assert_eq!(energy.take(), (0, 0));
    }
}
