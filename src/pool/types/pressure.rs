//! Computes when it pays to close the gate of a busy model for others that wait for its place (P3). Arithmetic only.
//!
//! Let `s` be the mean duration of a request and `H(k) = 1 + 1/2 + … + 1/k`. Of `k` requests in flight the last one ends, on
//! average, after `s · H(k)`. Another request lengthens that by `s / (k + 1)`. Each request that the model still accepts therefore
//! costs the waiting requests in total
//!
//! ```text
//! requests that wait · s / (k + 1)
//! ```
//!
//! while a request that finds the gate closed waits itself: on average half of the drain, then the turns of the others, and a swap
//! back.
//!
//! ```text
//! s · H(k) / 2 + Σ over the models that wait (swap + time to serve those that wait) + swap back
//! ```
//!
//! The gate closes when the first is more than twice the second: the mean is an estimate, and closing cannot be undone, while an
//! open gate can still be closed a little later. With several devices the waiting requests take the first place that becomes free,
//! so a single model's part in their wait is smaller by the number of devices.

use crate::types::ids::Span;

/// Longer queues of seats hardly change the sum.
const HARMONIC_MAX: u64 = 64;

/// The requests that wait for the places of busy models of a priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    requests: u64,
    /// The time until all waiting models have been loaded and served, one after the other.
    turns: Span,
    longest: Span,
}

/// A busy model whose place others wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    pub in_flight: u64,
    /// The mean duration of its requests.
    pub request: Span,
    /// The time until it is loaded again once there is room.
    pub swap: Span,
}

impl Pressure {
    /// Adds a model with this many waiting requests.
    pub fn add(&mut self, requests: u64, swap: Span, serving: Span) {
        let turn = swap + serving;
        self.requests = self.requests.saturating_add(requests);
        self.turns = self.turns + turn;
        self.longest = self.longest.max(turn);
    }

    /// Returns true if another request in flight costs the waiting requests more than it would cost itself to wait.
    pub fn closes(&self, busy: Busy, devices: u64) -> bool {
        let request = u128::from(busy.request.0);
        let delays = u128::from(self.requests) * request / u128::from(busy.in_flight + 1);
        let waits = u128::from(self.wait(busy, devices).0) * u128::from(devices.max(1));
        delays > 2 * waits
    }

    /// Returns true if it may close the gate of any model on this many devices. An upper bound that saves comparing busy replicas
    /// when none can be affected.
    ///
    /// With `r` waiting requests, `d` devices, and at least one request in flight, `closes` compares `r · s / 2` at most with `d ·
    /// s + 2 · d · longest` at least, for any `s`; rounding subtracts `d` at most.
    pub fn may_close(&self, devices: u64) -> bool {
        self.longest == Span::ZERO || self.requests > devices.max(1).saturating_mul(2)
    }

    /// The wait of a request of the busy model that finds the gate closed.
    pub fn wait(&self, busy: Busy, devices: u64) -> Span {
        let turns = Span(self.turns.0 / devices.max(1)).max(self.longest);
        Span(busy.drain().0 / 2) + turns + busy.swap
    }

    /// The waiting requests per device.
    pub fn on_each(&self, devices: u64) -> u64 {
        self.requests.div_ceil(devices.max(1))
    }
}

impl Busy {
    /// The time until the last of its requests has ended.
    pub fn drain(&self) -> Span {
        serving(self.in_flight, self.in_flight, self.request)
    }
}

/// The duration of this many requests that begin together, as far as there are seats; the others follow as seats become free.
pub(crate) fn serving(requests: u64, seats: u64, mean: Span) -> Span {
    let seats = seats.max(1);
    let first = u128::from(mean.0) * u128::from(harmonic_milli(requests.min(seats))) / 1_000;
    let others =
        u128::from(mean.0) * u128::from(requests.saturating_sub(seats)) / u128::from(seats);
    Span(u64::try_from(first + others).unwrap_or(u64::MAX))
}

/// 1 + 1/2 + … + 1/n, in thousandths.
fn harmonic_milli(count: u64) -> u64 {
    (1..=count.min(HARMONIC_MAX)).map(|nth| 1_000 / nth).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Span = Span(1_000);

    fn pressure(requests: u64, swap: Span) -> Pressure {
        let mut pressure = Pressure::default();
        pressure.add(requests, swap, serving(requests, 8, Span(4_000)));
        pressure
    }

    fn busy(in_flight: u64, swap: Span) -> Busy {
        Busy {
            in_flight,
            request: Span(4_000),
            swap,
        }
    }

    #[test]
    fn simultaneous_requests_take_as_long_as_the_longest() {
        assert_eq!(serving(1, 8, SECOND), SECOND);
        assert_eq!(serving(2, 8, SECOND), Span(1_500));
        assert_eq!(serving(12, 4, SECOND), Span(2_083 + 2_000));
        assert_eq!(serving(0, 8, SECOND), Span::ZERO);
    }

    #[test]
    fn a_turn_ends_early_for_many_waiting_requests_but_not_for_a_few() {
        let swap = Span(50);
        let closes = |waiting| pressure(waiting, swap).closes(busy(1, swap), 1);
        let first = (1..100).find(|waiting| closes(*waiting));
        // 18 · 4/2 s > 2 · (4/2 s + 4 · H(8) s + 10/8 · 4 s + swaps), that is 36 s > 2 · 17.96 s.
        assert_eq!(first, Some(18));
        assert!((18..100).all(closes));
    }

    #[test]
    fn a_gate_stays_open_longer_with_a_longer_swap_and_more_running_requests() {
        let closes =
            |waiting, in_flight, swap| pressure(waiting, swap).closes(busy(in_flight, swap), 1);
        assert!(closes(20, 1, Span(50)));
        assert!(!closes(20, 1, Span(3_000)) && closes(30, 1, Span(3_000)));
        assert!(!closes(20, 4, Span(50)));
    }

    #[test]
    fn a_gate_on_several_devices_needs_more_waiting_requests_to_close() {
        let swap = Span(50);
        assert!(pressure(20, swap).closes(busy(1, swap), 1));
        assert!(!pressure(20, swap).closes(busy(1, swap), 4));
    }

    #[test]
    fn a_gate_closes_only_if_the_bound_allows_it() {
        let mut closed = 0;
        for waiting in 0..80 {
            for swap in [0, 1, 50, 3_000].map(Span) {
                let pressure = pressure(waiting, swap);
                for devices in [0, 1, 2, 5, 20] {
                    for (in_flight, request) in [(1, 1), (1, 4_000), (3, 7), (8, 60_000)] {
                        let request = Span(request);
                        let busy = Busy {
                            in_flight,
                            request,
                            swap,
                        };
                        let closes = pressure.closes(busy, devices);
                        assert!(!closes || pressure.may_close(devices));
                        closed += u32::from(closes);
                    }
                }
            }
        }
        assert!(closed > 0, "the bound was never needed");
        assert!(!pressure(8, Span(50)).may_close(4) && pressure(9, Span(50)).may_close(4));
    }

    #[test]
    fn without_waiting_requests_nothing_closes() {
        assert!(!Pressure::default().closes(busy(1, Span(50)), 1));
        let huge = Span(u64::MAX);
        assert!(!pressure(8, huge).closes(busy(1, huge), 1));
    }
}
