//! How many replicas a loaded model should have, by the requests that its replicas have to do with (S1), as Ray
//! Serve reckons: ongoing requests per replica against a target, averaged over a while, and acted on when the
//! answer has been the same direction for long enough
//! (<https://github.com/ray-project/ray>, `python/ray/serve/autoscaling_policy.py`). Whole numbers only.
//!
//! The first replica is none of its business: demand loads it and keep-hot unloads it. A further one takes room
//! from nobody of equal priority.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::ids::{ModelId, ReplicaId, Span, Time};
use super::orders::Order;
use super::replica::Phase;
use super::state::Pool;

/// How often requests are counted.
const TICK: Span = Span::from_secs(1);
/// One in the fractions below.
const MILLION: u64 = 1_000_000;

/// `deployment_config.autoscaling_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// At least 1.
    pub least: u32,
    /// When it is loaded.
    pub initial: u32,
    pub most: u32,
    /// Requests that one replica should have to do with, in thousandths.
    pub target_milli: u64,
    /// Over what time requests are averaged.
    pub look_back: Span,
    /// For how long more must be wanted before more are loaded.
    pub up_delay: Span,
    pub down_delay: Span,
    /// How much of the way is gone at once, in thousandths.
    pub up_factor_milli: u64,
    pub down_factor_milli: u64,
}

impl Default for Scaling {
    /// Ray Serve's own.
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
    /// How many replicas so many requests call for, where there are `live` of them. `average_milli` is in
    /// thousandths.
    pub fn desired(&self, live: u32, average_milli: u64) -> u32 {
        let (live, target) = (u64::from(live.max(1)), self.target_milli.max(1));
        let ratio = average_milli.saturating_mul(MILLION) / (target * live);
        let factor = match ratio >= MILLION {
            true => self.up_factor_milli,
            false => self.down_factor_milli,
        };
        let smoothed = match ratio >= MILLION {
            true => MILLION + (ratio - MILLION).saturating_mul(factor) / 1000,
            false => MILLION.saturating_sub((MILLION - ratio).saturating_mul(factor) / 1000),
        };
        let mut desired = live.saturating_mul(smoothed).div_ceil(MILLION);
        // A small factor would never let go of the last one that is too many.
        let unsmoothed = live.saturating_mul(ratio).div_ceil(MILLION);
        if unsmoothed < live && desired == live {
            desired -= 1;
        }
        let desired = u32::try_from(desired).unwrap_or(u32::MAX);
        desired.clamp(self.least.max(1), self.most.max(1))
    }
}

/// What is known of one loaded model.
#[derive(Clone, Debug)]
pub(super) struct Scaler {
    /// Requests that were being answered or waited, when they were counted.
    counts: VecDeque<(Time, u64)>,
    /// Since when more, or fewer, have been called for.
    up_since: Option<Time>,
    down_since: Option<Time>,
    pub due: Time,
    pub wanted: u32,
}

impl Pool {
    /// A model has become ready: from now on its requests are counted, if it may have several replicas.
    pub(super) fn begin_scaling(&mut self, id: ModelId) {
        let Some(scaling) = self.scaling_of(id) else {
            return;
        };
        let wanted = scaling.initial.clamp(scaling.least.max(1), scaling.most);
        let fresh = Scaler {
            counts: VecDeque::new(),
            up_since: None,
            down_since: None,
            due: self.now + TICK,
            wanted,
        };
        self.scalers.entry(id).or_insert(fresh);
    }

    fn scaling_of(&self, id: ModelId) -> Option<&Scaling> {
        let model = self.models.get(&id).filter(|it| !it.removed)?;
        model.spec.scaling.as_deref().filter(|it| it.most > 1)
    }

    /// Counts requests where that is due, and draws the conclusions.
    pub(super) fn scale(&mut self) {
        let now = self.now;
        let due: Vec<ModelId> = self
            .scalers
            .iter()
            .filter(|(_, scaler)| scaler.due <= now)
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            let live = self.models.get(&id).map_or(0, |it| self.live(it));
            let Some(scaling) = self.scaling_of(id).filter(|_| live > 0).cloned() else {
                self.scalers.remove(&id);
                self.promises_changed = true;
                continue;
            };
            let model = &self.models[&id];
            let in_flight = |it: &ReplicaId| u64::from(self.replicas[it].in_flight);
            let ongoing =
                model.replicas.iter().map(in_flight).sum::<u64>() + model.queue.len() as u64;
            let scaler = self.scalers.get_mut(&id).expect("just seen");
            let before = scaler.wanted;
            scaler.count(now, ongoing, live, &scaling);
            if scaler.wanted != before {
                // Loads that were called for may not be any more.
                self.promises_changed = true;
                self.touch_model(id);
            }
        }
    }

    pub(super) fn next_scaling(&self) -> Option<Time> {
        self.scalers.values().map(|scaler| scaler.due).min()
    }

    /// How many replicas a loaded model should have; 0: nothing says, or an administrator says it just now.
    pub(super) fn scaled_to(&self, id: ModelId) -> usize {
        let Some(scaler) = self.scalers.get(&id).filter(|_| self.closing.is_none()) else {
            return 0;
        };
        let loads = |order: &Order| order.load().is_some_and(|load| load.model == id);
        match self.orders.values().any(loads) {
            true => 0,
            false => scaler.wanted as usize,
        }
    }

    /// The replica that is one too many, if one is: the least used, the youngest of those.
    pub(super) fn surplus_of(&self, id: ModelId) -> Option<ReplicaId> {
        let wanted = self.scaled_to(id);
        let model = &self.models[&id];
        let wished = model.wish.as_ref().map_or(0, |it| it.replicas as usize);
        if wanted == 0 || self.live(model) <= wanted.max(wished) {
            return None;
        }
        let ready = |it: &&ReplicaId| matches!(self.replicas[*it].phase, Phase::Ready { .. });
        let least = |it: &&ReplicaId| (self.replicas[*it].in_flight, core::cmp::Reverse(**it));
        model
            .replicas
            .iter()
            .filter(ready)
            .min_by_key(least)
            .copied()
    }

    /// Since when none of the model's ready replicas has anything to do.
    pub(super) fn all_idle_since(&self, id: ModelId) -> Option<Time> {
        let replicas = self.models[&id]
            .replicas
            .iter()
            .map(|it| &self.replicas[it]);
        let ready = replicas.filter(|it| matches!(it.phase, Phase::Ready { .. }));
        let idle: Option<Vec<Time>> = ready.map(|it| it.idle_since()).collect();
        idle?.into_iter().max()
    }

    /// One left for a reason that is not to be made good: nobody used it, or somebody wanted it gone.
    pub(super) fn scaled_down(&mut self, id: ModelId) {
        let live = self.models.get(&id).map_or(0, |it| self.live(it));
        if let Some(scaler) = self.scalers.get_mut(&id) {
            scaler.wanted = scaler
                .wanted
                .min(u32::try_from(live).unwrap_or(u32::MAX))
                .max(1);
            (scaler.up_since, scaler.down_since) = (None, None);
            self.promises_changed = true;
        }
    }
}

impl Scaler {
    fn count(&mut self, now: Time, ongoing: u64, live: usize, scaling: &Scaling) {
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
    fn as_many_are_desired_as_bring_each_to_its_target() {
        let it = scaling(8, 24_000);
        assert_eq!(it.desired(1, 24_000), 1);
        assert_eq!(it.desired(1, 25_000), 2);
        assert_eq!(it.desired(2, 100_000), 5);
        assert_eq!(it.desired(4, 1_000_000), 8, "at most so many");
        assert_eq!(it.desired(8, 0), 1, "at least one");
    }

    #[test]
    fn a_small_factor_goes_part_of_the_way_and_never_sticks() {
        let it = Scaling {
            up_factor_milli: 500,
            down_factor_milli: 100,
            ..scaling(10, 1_000)
        };
        assert_eq!(it.desired(2, 6_000), 4, "half of the way from 2 to 6");
        assert_eq!(it.desired(4, 2_000), 3, "one at least");
        assert_eq!(it.desired(4, 3_900), 4, "four are needed");
    }

    #[test]
    fn nothing_is_done_before_it_was_called_for_long_enough() {
        let it = Scaling {
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
            scaler.count(Time(seconds * 1000), ongoing, live, &it);
            scaler.wanted
        };
        assert_eq!(at(0, 3, 1), 1);
        assert_eq!(at(9, 3, 1), 1);
        assert_eq!(at(10, 3, 1), 3);
        assert_eq!(at(13, 0, 3), 3);
        assert_eq!(at(20, 3, 3), 3, "a moment of use begins the wait anew");
        assert_eq!(at(23, 0, 3), 3);
        assert_eq!(at(42, 0, 3), 3);
        assert_eq!(at(43, 0, 3), 1);
    }
}
