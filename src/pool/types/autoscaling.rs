//! Computes how many replicas the requests call for, and for how long they have done so (S1). Arithmetic only.

use alloc::collections::VecDeque;

use crate::types::ids::{Span, Time};

/// The interval at which requests are counted.
pub(crate) const TICK: Span = Span::from_secs(1);
/// The value 1 in the fractions below.
const MILLION: u64 = 1_000_000;

/// `deployment_config.autoscaling_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// At least 1.
    pub least: u32,
    /// The number of replicas when the model is loaded.
    pub initial: u32,
    pub most: u32,
    /// The target of ongoing requests per replica, in thousandths.
    pub target_milli: u64,
    /// The period over which requests are averaged.
    pub look_back: Span,
    /// The time for which more replicas must be needed before they are loaded.
    pub up_delay: Span,
    pub down_delay: Span,
    /// The part of the difference that is applied immediately, in thousandths.
    pub up_factor_milli: u64,
    pub down_factor_milli: u64,
}

impl Default for Scaling {
    /// Uses Ray Serve's defaults.
    fn default() -> Scaling {
        Scaling {
            least: 1,
            initial: 1,
            most: 1,
            target_milli: 2_000,
            look_back: Span::from_secs(30),
            up_delay: Span::from_secs(30),
            down_delay: Span::from_secs(600),
            up_factor_milli: 1_000,
            down_factor_milli: 1_000,
        }
    }
}

impl Scaling {
    /// The number of replicas that the requests call for, given `live` replicas. `average_milli` is in thousandths.
    pub fn desired(&self, live: u32, average_milli: u64) -> u32 {
        let (live, target) = (u64::from(live.max(1)), self.target_milli.max(1));
        let ratio = average_milli.saturating_mul(MILLION) / (target * live);
        let factor = if ratio >= MILLION {
            self.up_factor_milli
        } else {
            self.down_factor_milli
        };
        let smoothed = if ratio >= MILLION {
            MILLION + (ratio - MILLION).saturating_mul(factor) / 1000
        } else {
            MILLION.saturating_sub((MILLION - ratio).saturating_mul(factor) / 1000)
        };
        let mut desired = live.saturating_mul(smoothed).div_ceil(MILLION);
        // A small factor would otherwise never release the last surplus replica.
        let unsmoothed = live.saturating_mul(ratio).div_ceil(MILLION);
        if unsmoothed < live && desired == live {
            desired -= 1;
        }
        let desired = u32::try_from(desired).unwrap_or(u32::MAX);
        desired.clamp(self.least.max(1), self.most.max(1))
    }
}

/// The scaling state of a loaded model.
#[derive(Clone, Debug)]
pub(crate) struct Scaler {
    /// Counts of ongoing and waiting requests, with their times.
    pub counts: VecDeque<(Time, u64)>,
    /// The time since which more, or fewer, replicas have been called for.
    pub up_since: Option<Time>,
    pub down_since: Option<Time>,
    pub due: Time,
    pub wanted: u32,
}

impl Scaler {
    pub(crate) fn count(&mut self, now: Time, ongoing: u64, live: usize, scaling: &Scaling) {
        self.due = now + TICK;
        self.counts.push_back((now, ongoing));
        while self
            .counts
            .front()
            .is_some_and(|(at, _)| now.since(*at) > scaling.look_back)
        {
            self.counts.pop_front();
        }
        let sum: u64 = self.counts.iter().map(|(_, count)| count).sum();
        let average_milli = sum * 1000 / self.counts.len().max(1) as u64;
        let desired = scaling.desired(u32::try_from(live).unwrap_or(u32::MAX), average_milli);
        let held =
            |since: &mut Option<Time>, delay: Span| now.since(*since.get_or_insert(now)) >= delay;
        let acts = match desired.cmp(&self.wanted) {
            core::cmp::Ordering::Greater => {
                self.down_since = None;
                held(&mut self.up_since, scaling.up_delay)
            }
            core::cmp::Ordering::Less => {
                self.up_since = None;
                held(&mut self.down_since, scaling.down_delay)
            }
            core::cmp::Ordering::Equal => {
                (self.up_since, self.down_since) = (None, None);
                false
            }
        };
        if acts {
            self.wanted = desired;
            (self.up_since, self.down_since) = (None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(most: u32, target_milli: u64) -> Scaling {
        Scaling {
            most,
            target_milli,
            ..Scaling::default()
        }
    }

    #[test]
    fn enough_replicas_are_desired_to_bring_each_to_its_target() {
        let settings = scaling(8, 24_000);
        assert_eq!(settings.desired(1, 24_000), 1);
        assert_eq!(settings.desired(1, 25_000), 2);
        assert_eq!(settings.desired(2, 100_000), 5);
        assert_eq!(settings.desired(4, 1_000_000), 8, "at most this many");
        assert_eq!(settings.desired(8, 0), 1, "at least one");
    }

    #[test]
    fn a_small_factor_scales_partway_and_always_makes_progress() {
        let settings = Scaling {
            up_factor_milli: 500,
            down_factor_milli: 100,
            ..scaling(10, 1_000)
        };
        assert_eq!(settings.desired(2, 6_000), 4, "half of the way from 2 to 6");
        assert_eq!(settings.desired(4, 2_000), 3, "one at least");
        assert_eq!(settings.desired(4, 3_900), 4, "four are needed");
    }

    #[test]
    fn scaling_waits_until_it_was_requested_for_the_configured_delay() {
        let settings = Scaling {
            look_back: Span::from_secs(2),
            up_delay: Span::from_secs(10),
            down_delay: Span::from_secs(20),
            ..scaling(3, 1_000)
        };
        let mut scaler = Scaler {
            counts: VecDeque::new(),
            up_since: None,
            down_since: None,
            due: Time(0),
            wanted: 1,
        };
        let mut at = |seconds: u64, ongoing, live| {
            scaler.count(Time(seconds * 1000), ongoing, live, &settings);
            scaler.wanted
        };
        assert_eq!(at(0, 3, 1), 1);
        assert_eq!(at(9, 3, 1), 1);
        assert_eq!(at(10, 3, 1), 3);
        assert_eq!(at(13, 0, 3), 3);
        assert_eq!(at(20, 3, 3), 3, "a moment of use restarts the wait");
        assert_eq!(at(23, 0, 3), 3);
        assert_eq!(at(42, 0, 3), 3);
        assert_eq!(at(43, 0, 3), 1);
    }
}
