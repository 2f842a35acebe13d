//! The texts of the history (D3): the decision, its reason and its candidates.

use alloc::string::String;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::plan::explaining;
use crate::types::action::{Action, Record, RecordKind};
use crate::types::decision::{CANDIDATES_MAX, Plan, Verdict, blocked};
use crate::types::ids::{Bytes, DeviceId, ModelId, OrderId, Priority, ReplicaId, Span, Time};
use crate::types::reason::Refusal;
use crate::types::replica::Phase;
use crate::types::share::Share;

impl Pool {
    pub(crate) fn record(
        &self,
        kind: RecordKind,
        model: Option<ModelId>,
        reason: String,
    ) -> Record {
        let priority: Option<Priority> = model.map(|model| self.priority(model));
        Record {
            at: self.now,
            kind,
            model: model.map(|model| self.name(model)),
            replica: None,
            order: None,
            reason,
            priority,
            placement: Vec::new(),
            candidates: Vec::new(),
            memory: Vec::new(),
            took: None,
            cause: None,
            asked_by: None,
            explanation: None,
        }
    }

    pub(crate) fn record_refusal(
        &self,
        model: ModelId,
        order: Option<(OrderId, Option<&Plan>)>,
        refusal: &Refusal,
        actions: &mut Vec<Action>,
    ) {
        let mut record = self.record(RecordKind::Refuse, Some(model), refusal.to_string());
        record.cause = Some(refusal.name());
        let (name, priority) = (self.name(model), self.priority(model));
        let explanation = explaining::of_refusal(self, name, priority, refusal);
        record.explanation = explanation.map(Arc::new);
        record.order = order.map(|(id, _)| id);
        record.candidates = order
            .and_then(|(_, plan)| plan)
            .map(|plan| self.candidates(plan))
            .unwrap_or_default();
        actions.push(Action::Record(record));
    }

    /// The candidates of the plan as text, the chosen one first.
    pub fn candidates(&self, plan: &Plan) -> Vec<String> {
        let mut order: Vec<usize> = (0..plan.candidates.len()).collect();
        order.sort_by_key(|nth| Reverse(plan.refusal.is_none() && *nth == plan.chosen));
        let line = |nth: usize| {
            let candidate = &plan.candidates[nth];
            let mark = if plan.refusal.is_none() && nth == plan.chosen {
                "chosen: "
            } else {
                ""
            };
            let names: Vec<String> = candidate
                .devices
                .iter()
                .map(|device| self.device_name(*device))
                .collect();
            let device = match candidate.wakes {
                Some(sleeper) => format!("{} (wakes {sleeper})", names.join(" + ")),
                None => names.join(" + "),
            };
            match &candidate.verdict {
                Verdict::Free { left_over } => {
                    format!("{mark}{device}: free, {left_over} left over")
                }
                Verdict::Evicts { victims, cost } => {
                    let names: Vec<String> = victims
                        .iter()
                        .map(|id| match self.replicas.get(id) {
                            Some(replica) => format!("{} ({id})", self.name(replica.model)),
                            None => id.to_string(),
                        })
                        .collect();
                    format!(
                        "{mark}{device}: evicts {}, {} in all",
                        names.join(", "),
                        cost.bytes
                    )
                }
                Verdict::Blocked { obstacles } => {
                    format!("{device}: {}", blocked(obstacles, plan.devices))
                }
                Verdict::Unfit(unfit) => format!("{device}: {unfit}"),
            }
        };
        order.into_iter().take(CANDIDATES_MAX).map(line).collect()
    }
}

impl Pool {
    /// The bytes that a replica has reserved on a device.
    pub(crate) fn reserved_by(&self, id: ReplicaId, device: DeviceId) -> Bytes {
        let shares = self.replicas.get(&id).map(|replica| &replica.shares);
        let on = |share: &&Share| share.device == device;
        let bytes = shares.into_iter().flatten().filter(on);
        bytes.map(|share| share.bytes).sum()
    }

    /// The bytes that a replica and a promised load of the same id hold on a device. A sleeper that is to be woken is both.
    pub(crate) fn held(&self, id: ReplicaId, device: DeviceId) -> Bytes {
        self.reserved_or_promised(id, device) + self.excess(id, device)
    }

    fn reserved_or_promised(&self, id: ReplicaId, device: DeviceId) -> Bytes {
        let now = self.replicas.get(&id).map(|replica| &replica.shares);
        let promised = self.planned.get(&id).map(|load| &load.shares);
        now.into_iter()
            .chain(promised)
            .flatten()
            .filter(|share| share.device == device)
            .map(|share| share.bytes)
            .sum()
    }

    /// The time since the phase began.
    pub(crate) fn phase_age(&self, phase: &Phase) -> Span {
        let since: Time = match phase {
            Phase::Launching { since, .. }
            | Phase::Ready { since }
            | Phase::Draining { since, .. }
            | Phase::Parking { since, .. }
            | Phase::Asleep { since, .. }
            | Phase::Stopping { since, .. } => *since,
        };
        self.now.since(since)
    }
}
