//! The time and energy of each device by state, for `/metrics`.

use super::text::{Kind, Text};
use controller::Snapshot;

/// Writes the ledger's totals of the devices that exist.
pub(super) fn write(snapshot: &Snapshot, text: &mut Text) {
    let help = "Time of each device by state since the start: used by requests, used by requests of batches, held idle by models, loading, asleep, foreign, cordoned, free, or not known. The states sum to the wall time. Counted every minute.";
    text.family("device_seconds_total", Kind::Counter, help);
    for ((device, state), time) in snapshot.device_time.iter() {
        let labels = [("device", device.as_str()), ("state", *state)];
        text.sample(&labels, time.ms as f64 / 1_000.0);
    }
    let help =
        "Energy of each device by state since the start, for the time for which it is known.";
    text.family("device_energy_joules_total", Kind::Counter, help);
    for ((device, state), time) in snapshot.device_time.iter() {
        if time.energy_ms > 0 {
            let labels = [("device", device.as_str()), ("state", *state)];
            text.sample(&labels, time.energy_mj as f64 / 1_000.0);
        }
    }
}
