//! The referee's record of failed loads (L3) and of figures that proved too small (M1).

use alloc::collections::BTreeMap;

use super::OpenRequest;
use super::Referee;
use pool::{
    Bytes, Exit, KindId, ModelId, Refusal, ReplicaId, Share, Span, StopReason, Ticket, Time,
};

/// The failures of a model's loads.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    in_a_row: u32,
    cooling_until: Time,
    /// The last load ran out of memory, and none has become ready since.
    ran_out_of_memory: bool,
    /// Figures that proved too small, by number and kind of devices.
    pub too_small: BTreeMap<(u32, KindId), Bytes>,
    /// The time of the last counted failure.
    counted: Option<Time>,
    /// The time at which a load last became ready.
    ready: Option<Time>,
}

impl Failures {
    pub fn succeeded(&mut self, now: Time) {
        self.ready = Some(now);
        self.ran_out_of_memory = false;
        self.cooling_until = Time(0);
    }
}

impl Referee {
    pub(super) fn forget_failures(&mut self, model: ModelId) {
        let failures = self.failures.get_mut(&model).expect("a model of ours");
        failures.in_a_row = 0;
        failures.cooling_until = Time(0);
    }

    /// The pool is informed that a process has ended. The phase of the replica decides what that means.
    pub(super) fn exited(&mut self, now: Time, replica: ReplicaId, exit: &Exit) {
        let Some(seen) = self.ended.remove(&replica) else {
            return;
        };
        if seen.sleeper.is_some() {
            // A sleeping or waking replica was loaded before; the next one is a new load.
            return;
        }
        let spec = &self.specs[&seen.model];
        let failures = self.failures.get_mut(&seen.model).expect("known");
        let timed_out = matches!(seen.stopping, Some(StopReason::LoadTimedOut { .. }));
        let runs_out_of_memory = matches!(exit, Exit::OutOfMemory { .. });
        let failed = match (&seen.stopping, seen.ready) {
            (Some(_), _) => timed_out,
            (None, None) => true,
            (None, Some(ready)) => {
                let healthy = now.since(ready) >= self.limits.healthy_after;
                if healthy {
                    failures.in_a_row = 0;
                    failures.cooling_until = Time(0);
                }
                !healthy && seen.closed.is_none()
            }
        };
        if runs_out_of_memory
            && !spec.need_is_fixed
            && seen.ready.is_none()
            && seen.stopping.is_none()
        {
            let count = seen.shares.len() as u32;
            for share in &seen.shares {
                let kind = self.devices[&share.device].kind;
                failures.too_small.insert((count, kind), share.bytes);
            }
            // Corrected and planned again once; the second time is a failure.
            if !core::mem::replace(&mut failures.ran_out_of_memory, true) {
                return;
            }
        }
        if failed {
            self.failed(now, seen.model);
        }
    }

    pub(super) fn failed(&mut self, now: Time, model: ModelId) {
        let healthy_after = self.limits.healthy_after;
        let failures = self.failures.get_mut(&model).expect("known");
        let healthy = failures.ready.filter(|at| *at + healthy_after <= now);
        // A load that has served for long ends the row, even if its replica is still there.
        if healthy > failures.counted {
            failures.in_a_row = 0;
        }
        failures.in_a_row += 1;
        failures.ran_out_of_memory = false;
        failures.counted = Some(now);
        let (first, most) = (self.limits.cooldown_first, self.limits.cooldown_max);
        let doubled = first.0 << (failures.in_a_row - 1).min(20);
        failures.cooling_until = now + Span(doubled.min(most.0));
    }

    /// During a cool-down or quarantine only an order may load.
    pub(super) fn loads_too_soon(&mut self, now: Time, load: ReplicaId, model: ModelId, why: &str) {
        self.too_soon(now, &format!("{load} of {model}"), model, why);
    }

    pub(super) fn too_soon(&mut self, now: Time, what: &str, model: ModelId, why: &str) {
        let failures = &self.failures[&model];
        let text = if failures.cooling_until > now {
            format!("until {}", failures.cooling_until)
        } else if failures.in_a_row >= self.limits.failures_max {
            format!("and has failed {} times", failures.in_a_row)
        } else {
            return;
        };
        self.broken.push(format!(
            "L3: {what} is planned ({why}), which cools down {text}"
        ));
    }

    /// M1: a figure that proved too small is not used again.
    pub(super) fn figure_is_corrected(
        &mut self,
        load: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) {
        let count = placement.len() as u32;
        for share in placement {
            let kind = self.devices[&share.device].kind;
            let known = self.failures[&model].too_small.get(&(count, kind));
            if known.is_some_and(|known| share.bytes <= *known) {
                self.broken.push(format!(
                    "M1: {load} of {model} gets {} on {}, which proved too little before",
                    share.bytes, share.device
                ));
            }
        }
    }

    /// Waiting requests are refused only for a failure that counts.
    pub(super) fn refused(&mut self, ticket: Ticket, refusal: &Refusal) {
        let Some(OpenRequest { model, .. }) = self.open_tickets.get(&ticket) else {
            return;
        };
        let failures = &self.failures[model];
        if matches!(refusal, Refusal::LoadFailed { .. }) && failures.counted.is_none() {
            self.broken.push(format!(
                "L3: {ticket} is refused for a failed load of {model}, and none has failed"
            ));
        }
    }
}
