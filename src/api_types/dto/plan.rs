//! A plan for display: devices by name, victims with the rule that permits their eviction, and the conditions it waits for.

use serde::Serialize;
use utoipa::ToSchema;

use super::planned_node::PlannedNodeView;
use super::values::{Needs, Share, shares};
use super::virtual_models::VirtualChoice;
use controller::Snapshot;
use pool::{
    Candidate, DeviceId, Plan, Prospect, ReplicaId, ReplicaState, Span, StopReason, Time, Verdict,
    Victim,
};

/// Appended to the reason for models in Ray Serve.
const UNSEEN_MEMORY: &str = "; Ray places it, and the pool does not see its memory";
/// Maximum number of placements in a response.
const CANDIDATES_MAX: usize = 64;

/// The decision for a load: its placement and its victims.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlanView {
    pub model: String,
    /// Priority of the load.
    pub priority: u32,
    pub feasible: bool,
    /// True if enough replicas are ready and the load would change nothing.
    pub already_loaded: bool,
    /// The load in progress, if enough replicas are ready or loading. A new load would wait for it.
    pub loading: Option<LoadingView>,
    #[schema(example = "fits without evicting anything")]
    pub reason: String,
    pub needs: Needs,
    pub placement: Vec<Share>,
    /// Sleeping replica to wake instead of a load.
    #[schema(example = "r5")]
    pub wakes: Option<String>,
    pub victims: Vec<VictimView>,
    /// Node that the load requests, or waits for, before it evicts anything (S2).
    pub node: Option<PlannedNodeView>,
    /// Conditions to meet before the load can start.
    pub waits_for: Vec<String>,
    pub cost: CostView,
    /// Placements that were considered, starting with the chosen one.
    pub candidates: Vec<CandidateView>,
    /// Expected time from the order until the model is ready, if loads, stops and requests take as long as before. Null if the load is
    /// refused or waits for a node.
    #[schema(example = 12.3)]
    pub expected_seconds: Option<f64>,
    /// The choice of the model, if the request named a virtual model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_choice: Option<VirtualChoice>,
}

/// A load of the model in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LoadingView {
    /// Number of loading replicas.
    pub replicas: u32,
    /// Time since the first of them started loading.
    pub for_ms: u64,
    /// Reason for the load.
    #[schema(example = "order o5")]
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VictimView {
    #[schema(example = "r1")]
    pub replica: String,
    pub model: String,
    pub priority: u32,
    /// True if it has requests in flight.
    pub busy: bool,
    pub bytes: u64,
    /// Expected time to load it again.
    pub reload_ms: u64,
    #[schema(example = "preempted by tiny-chat: priority 1 over 0 (P2)")]
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CostView {
    pub highest_victim_priority: Option<u32>,
    pub busy_victims: u32,
    /// Expected time to load all victims again.
    pub expected_reload_ms: u64,
    pub evicted_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CandidateView {
    #[schema(example = "gpu0")]
    pub place: String,
    #[schema(example = "chosen: free, 3.0 GiB left over")]
    pub verdict: String,
}

impl PlanView {
    /// `now` is later than the snapshot, which may be some seconds old while a load progresses.
    /// `expected` is the time until the load has ended, if it is known.
    pub fn from_plan(
        plan: &Plan,
        expected: Option<Span>,
        force: bool,
        now: Time,
        snapshot: &Snapshot,
    ) -> PlanView {
        // The pool considers no placements for a model that already has its replicas.
        let has_replicas =
            plan.refusal.is_none() && plan.node.is_none() && plan.candidates.is_empty();
        let begun = snapshot.model(&plan.name).filter(|_| has_replicas);
        let since = now.since(snapshot.pool.now);
        let loading = begun.and_then(|model| LoadingView::new(model, since));
        let already_loaded = has_replicas && loading.is_none();
        let waits_for = if has_replicas {
            Vec::new()
        } else {
            waits_for(plan, snapshot)
        };
        let reloads = plan.victims.iter().map(|victim| victim.reload.0);
        let facts = snapshot.models.get(&plan.model);
        PlanView {
            model: plan.name.clone(),
            priority: plan.priority.0,
            feasible: plan.refusal.is_none(),
            already_loaded,
            reason: match &loading {
                Some(_) => "the model is already being loaded".to_owned(),
                None => {
                    let reason = reason(plan, already_loaded, waits_for.is_empty());
                    if facts.is_some_and(|facts| facts.entry.recipe.ray_serve().is_some()) {
                        reason + UNSEEN_MEMORY
                    } else {
                        reason
                    }
                }
            },
            loading,
            needs: Needs::new(plan.devices, plan.bytes.0, facts),
            placement: shares(snapshot, &plan.placement),
            wakes: plan.wakes.map(|sleeper| sleeper.to_string()),
            victims: plan
                .victims
                .iter()
                .map(|victim| VictimView::new(victim, plan, force, snapshot))
                .collect(),
            node: plan.node.as_ref().map(PlannedNodeView::new),
            virtual_choice: None,
            waits_for,
            cost: CostView {
                highest_victim_priority: plan.victims.iter().map(|victim| victim.priority.0).max(),
                busy_victims: plan.cost.busy,
                expected_reload_ms: reloads.fold(0, u64::saturating_add),
                evicted_bytes: plan.cost.bytes.0,
            },
            candidates: candidates(plan, snapshot),
            expected_seconds: expected.map(seconds),
        }
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1000.0
}

fn reason(plan: &Plan, already_loaded: bool, starts_now: bool) -> String {
    if let Some(refusal) = &plan.refusal {
        let why = refusal.to_string();
        return match plan.prospect {
            Prospect::Soon => format!("not now, but soon and automatically: {why}"),
            Prospect::WhenOthersLeave => format!("only after other replicas leave: {why}"),
            Prospect::Now | Prospect::Never => why,
        };
    }
    if let Some(node) = &plan.node {
        return PlannedNodeView::new(node).describe();
    }
    match (already_loaded, plan.victims.len(), starts_now) {
        (true, ..) => "the model already has its replicas".to_owned(),
        (_, 0, true) if plan.wakes.is_some() => "asleep, with room to wake".to_owned(),
        (_, 0, true) => "fits without evicting anything".to_owned(),
        (_, 0, false) if plan.fetches_for.is_some() => {
            "fits without evicting anything, once its weights are fetched".to_owned()
        }
        (_, 0, false) => "fits once the replicas that are already leaving are gone".to_owned(),
        (_, 1, _) => "fits after evicting 1 replica".to_owned(),
        (_, count, _) => format!("fits after evicting {count} replicas"),
    }
}

impl LoadingView {
    /// Returns the load. `since` is the age of the snapshot.
    fn new(model: &pool::ModelView, since: Span) -> Option<LoadingView> {
        let is_coming = |state| matches!(state, ReplicaState::Launching | ReplicaState::Planned);
        let coming = model
            .replicas
            .iter()
            .filter(|replica| is_coming(replica.state));
        let ages = |replica: &&pool::ReplicaView| replica.for_;
        let oldest = coming.clone().max_by_key(ages)?;
        Some(LoadingView {
            replicas: u32::try_from(coming.count()).unwrap_or(u32::MAX),
            for_ms: oldest.for_.0 + since.0,
            why: oldest.reason.clone(),
        })
    }
}

impl VictimView {
    fn new(victim: &Victim, plan: &Plan, force: bool, snapshot: &Snapshot) -> VictimView {
        let by = plan.name.clone();
        let (priority, own) = (plan.priority, victim.priority);
        let reason = if victim.planned {
            "a load that waits for memory; it is planned again afterwards (P5)".to_owned()
        } else if victim.asleep {
            StopReason::SleeperDropped { by }.to_string()
        } else if force {
            match victim.lease {
                Some(left) => {
                    format!("forced out by {by} (P4), although its lease had {left} left (P7)")
                }
                None => format!("forced out by {by} (P4)"),
            }
        } else if own >= priority && !victim.busy {
            let idle = victim.idle;
            let reason = StopReason::Yielded {
                by,
                idle,
                own,
                priority,
            };
            reason.to_string()
        } else if own == priority {
            let ready_for = ready_for(victim.replica, snapshot);
            StopReason::TurnEnded { by, ready_for }.to_string()
        } else {
            let lease = victim.lease;
            let reason = StopReason::Preempted {
                by,
                priority,
                own,
                lease,
            };
            reason.to_string()
        };
        VictimView {
            replica: victim.replica.to_string(),
            model: victim.name.clone(),
            priority: own.0,
            busy: victim.busy,
            bytes: victim.bytes.0,
            reload_ms: victim.reload.0,
            reason,
        }
    }
}

fn ready_for(replica: ReplicaId, snapshot: &Snapshot) -> Span {
    let replicas = snapshot
        .pool
        .models
        .iter()
        .flat_map(|model| &model.replicas);
    let ready_at = replicas
        .filter(|view| view.replica == replica)
        .find_map(|view| view.ready_at);
    ready_at
        .map(|at| snapshot.pool.now.since(at))
        .unwrap_or_default()
}

fn waits_for(plan: &Plan, snapshot: &Snapshot) -> Vec<String> {
    let here = |device: DeviceId| plan.placement.iter().any(|share| share.device == device);
    let mut texts = Vec::new();
    if let Some(length) = plan.fetches_for {
        let facts = snapshot.models.get(&plan.model);
        let from = facts.and_then(|facts| Some(facts.entry.fetch.as_ref()?.describe()));
        let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
        texts.push(format!(
            "the download of its weights{from}, in about {length}; its size is an estimate until the download ends"
        ));
    }
    if plan.must_wait {
        for model in &snapshot.pool.models {
            for replica in &model.replicas {
                if replica.state.is_leaving()
                    && replica.shares.iter().any(|share| here(share.device))
                {
                    texts.push(format!(
                        "the end of {} ({}), which is leaving: {}",
                        model.name, replica.replica, replica.reason
                    ));
                }
            }
        }
    }
    let serves = |victim: &&Victim| !victim.planned && !victim.asleep;
    for victim in plan.victims.iter().filter(serves) {
        let what = if victim.busy {
            "the requests in flight on"
        } else {
            "the end of"
        };
        texts.push(format!("{what} {} ({})", victim.name, victim.replica));
    }
    texts
}

/// The considered placements, starting with the chosen one.
fn candidates(plan: &Plan, snapshot: &Snapshot) -> Vec<CandidateView> {
    let is_chosen = |candidate: &Candidate| {
        let here = plan.placement.iter().map(|share| share.device);
        plan.refusal.is_none()
            && candidate.wakes == plan.wakes
            && here.eq(candidate.devices.iter().copied())
    };
    let chosen = plan.candidates.iter().position(is_chosen);
    let rest = (0..plan.candidates.len()).filter(|nth| Some(*nth) != chosen);
    let order = chosen.into_iter().chain(rest).take(CANDIDATES_MAX);
    order
        .map(|nth| {
            let is_chosen = chosen == Some(nth);
            candidate(&plan.candidates[nth], is_chosen, plan, snapshot)
        })
        .collect()
}

fn candidate(
    candidate: &Candidate,
    chosen: bool,
    plan: &Plan,
    snapshot: &Snapshot,
) -> CandidateView {
    let names: Vec<String> = candidate
        .devices
        .iter()
        .map(|device| snapshot.device_name(*device))
        .collect();
    let wakes = candidate.wakes.map(|id| format!(" (wakes {id})"));
    let place = names.join(" + ") + &wakes.unwrap_or_default();
    let mark = if chosen { "chosen: " } else { "" };
    let verdict = match &candidate.verdict {
        Verdict::Free { left_over } => format!("{mark}free, {left_over} left over"),
        Verdict::Evicts { victims, cost } => {
            let names: Vec<String> = victims
                .iter()
                .map(|replica| replica_name(*replica, snapshot))
                .collect();
            format!("{mark}evicts {}, {} in all", names.join(", "), cost.bytes)
        }
        Verdict::Blocked { obstacles } => pool::blocked(obstacles, plan.devices, plan.nodes),
        Verdict::Unfit(unfit) => unfit.to_string(),
    };
    CandidateView { place, verdict }
}

fn replica_name(replica: ReplicaId, snapshot: &Snapshot) -> String {
    let has = |model: &&pool::ModelView| model.replicas.iter().any(|view| view.replica == replica);
    match snapshot.pool.models.iter().find(has) {
        Some(model) => format!("{} ({replica})", model.name),
        None => replica.to_string(),
    }
}

#[cfg(test)]
mod tests;
