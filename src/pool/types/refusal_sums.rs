//! Selects the refused requests that the history records (D3). A client can cause any number of refusals, so the first of a kind is
//! recorded immediately, and those within the following minute as one sum. Refusals of administrators' orders and stored wishes are
//! recorded individually.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::types::ids::{ModelId, Span, Time};
use crate::types::reason::Refusal;

/// Refusals within this time after the first are summed.
pub(crate) const SUMMED_FOR: Span = Span::from_secs(60);

/// A kind of refusal of a model. There are at most as many as models times kinds, and none is older than [`SUMMED_FOR`].
type Kind = (ModelId, &'static str);

#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    open: BTreeMap<Kind, Sum>,
    /// The end of each sum.
    ends: BTreeSet<(Time, Kind)>,
}

/// The refusals that followed the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub more: u64,
    /// The text of the newest one.
    pub reason: String,
    /// [`Refusal::name`].
    pub name: &'static str,
}

impl Refusals {
    /// Returns true if the refusal has to be recorded now; otherwise it is added to a sum.
    pub(crate) fn is_first(&mut self, now: Time, kind: Kind, refusal: &Refusal) -> bool {
        if let Some(sum) = self.open.get_mut(&kind) {
            sum.more = sum.more.saturating_add(1);
            sum.reason = refusal.to_string();
            return false;
        }
        let name = kind.1;
        self.open.insert(
            kind,
            Sum {
                name,
                ..Sum::default()
            },
        );
        self.ends.insert((now + SUMMED_FOR, kind));
        true
    }

    /// The non-empty sums that end by `end`.
    pub(crate) fn take_until(&mut self, end: Time) -> Vec<(ModelId, Sum)> {
        let mut taken = Vec::new();
        while let Some(&(at, kind)) = self.ends.first() {
            if at > end {
                break;
            }
            self.ends.pop_first();
            let sum = self.open.remove(&kind).filter(|sum| sum.more > 0);
            taken.extend(sum.map(|sum| (kind.0, sum)));
        }
        taken
    }

    pub(crate) fn wake(&self) -> Option<Time> {
        self.ends.first().map(|(at, _)| *at)
    }
}

impl Refusal {
    /// The name that defines a sum, since the numbers in the text differ between refusals. Records are filtered by it too.
    pub fn name(&self) -> &'static str {
        match self {
            Refusal::UnknownModel => "unknown_model",
            Refusal::QueueFull { .. } => "queue_full",
            Refusal::TimedOut { .. } => "timed_out",
            Refusal::NoNode { refusal, .. } => refusal.name(),
            Refusal::NeverFits { .. } => "never_fits",
            Refusal::NoRoom { .. } => "no_room",
            Refusal::LoadFailed { .. } => "load_failed",
            Refusal::Cooling { .. } => "cooling",
            Refusal::Quarantined { .. } => "quarantined",
            Refusal::ShuttingDown => "shutting_down",
            Refusal::NoSuchReplica { .. } => "no_such_replica",
            Refusal::NoSuchDevice { .. } => "no_such_device",
            Refusal::NotCordoned { .. } => "not_cordoned",
            Refusal::NoDevices { .. } => "no_devices",
            Refusal::NoSuchNode { .. } => "no_such_node",
            Refusal::NodeServes { .. } => "node_serves",
            Refusal::NotLoaded => "not_loaded",
            Refusal::FetchEnded { .. } => "fetch_ended",
            Refusal::TooManyDevices { .. } => "too_many_devices",
            Refusal::EngineTakesFewer { .. } => "engine_takes_fewer",
            Refusal::LoadedOnOthers { .. } => "loaded_on_others",
            Refusal::WeightsDamaged { .. } => "weights_damaged",
            Refusal::ProgramMissing { .. } => "program_missing",
            Refusal::AboveGroup { .. } => "above_group",
            Refusal::RequestAboveGroup { .. } => "request_above_group",
            Refusal::Superseded => "superseded",
            Refusal::PlanChanged => "plan_changed",
            Refusal::NotSaved { .. } => "not_saved",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(limit: u32) -> Refusal {
        let retry = Span::ZERO;
        Refusal::QueueFull { limit, retry }
    }

    #[test]
    fn the_first_refusal_is_reported_and_the_rest_are_summed_with_the_newest_reason() {
        let mut refusals = Refusals::default();
        let kind = (ModelId(1), full(1).name());
        assert!(refusals.is_first(Time(5), kind, &full(1)));
        for limit in 0..10_000 {
            assert!(!refusals.is_first(Time(6), kind, &full(limit)));
        }
        assert_eq!(refusals.wake(), Some(Time(60_005)));
        assert!(refusals.take_until(Time(60_004)).is_empty());
        let sums = refusals.take_until(Time(60_005));
        assert_eq!((sums.len(), sums[0].1.more), (1, 10_000));
        assert!(sums[0].1.reason.contains("9999 requests wait"));
        assert!(
            refusals.is_first(Time(60_005), kind, &full(1)),
            "a new minute"
        );
    }

    #[test]
    fn refusals_of_other_kinds_and_models_are_reported_separately_and_leave_no_state() {
        let mut refusals = Refusals::default();
        let other = Refusal::UnknownModel;
        for model in 0..100 {
            assert!(refusals.is_first(Time(0), (ModelId(model), full(1).name()), &full(1)));
            assert!(refusals.is_first(Time(0), (ModelId(model), other.name()), &other));
        }
        assert!(
            refusals.take_until(Time(60_000)).is_empty(),
            "nothing to sum up"
        );
        assert!(refusals.open.is_empty() && refusals.ends.is_empty());
    }
}
