//! A plan in the words of people: devices by their names, victims with the rule that lets them be
//! taken, what it would wait for.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Needs, Share, shares};
use crate::controller::Snapshot;
use crate::pool::{
    Candidate, DeviceId, Plan, Priority, Prospect, ReplicaId, Span, StopReason, Verdict, Victim,
};

/// Places that an answer shows at most.
const CANDIDATES_MAX: usize = 64;

/// The decision for a load: what would be placed where, and what would have to leave.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlanView {
    pub model: String,
    /// The priority that the load would have.
    pub priority: u32,
    pub feasible: bool,
    /// There are enough replicas; the load would change nothing.
    pub already_loaded: bool,
    #[schema(example = "fits without evicting anything")]
    pub reason: String,
    pub needs: Needs,
    pub placement: Vec<Share>,
    pub victims: Vec<VictimView>,
    /// What has to happen before the load can start.
    pub waits_for: Vec<String>,
    pub cost: CostView,
    /// The places that were looked at, the chosen one first.
    pub candidates: Vec<CandidateView>,
    /// From the order to the first answer, if the engine starts as fast as last time.
    #[schema(example = 12.3)]
    pub expected_seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VictimView {
    #[schema(example = "r1")]
    pub replica: String,
    pub model: String,
    pub priority: u32,
    /// It has requests in flight.
    pub busy: bool,
    pub bytes: u64,
    /// What bringing it back would take.
    pub reload_ms: u64,
    #[schema(example = "preempted by tiny-chat: priority 1 over 0 (P2)")]
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CostView {
    pub highest_victim_priority: Option<u32>,
    pub busy_victims: u32,
    /// The time that bringing all victims back would take.
    pub expected_reload_ms: u64,
    pub evicted_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CandidateView {
    #[schema(example = "n0: gpu0")]
    pub place: String,
    #[schema(example = "chosen: free, 3.0 GiB left over")]
    pub verdict: String,
}

impl PlanView {
    pub fn of(plan: &Plan, force: bool, snapshot: &Snapshot) -> PlanView {
        // The pool looks at no place for a model that has its replicas already.
        let already_loaded = plan.refusal.is_none() && plan.candidates.is_empty();
        let waits_for = if already_loaded {
            Vec::new()
        } else {
            waits_for(plan, snapshot)
        };
        let reloads = plan.victims.iter().map(|victim| victim.reload.0);
        let facts = snapshot.models.get(&plan.model);
        let reload = snapshot
            .pool
            .models
            .iter()
            .find(|model| model.model == plan.model)
            .map(|model| model.reload);
        let expected = reload.filter(|_| plan.refusal.is_none());
        PlanView {
            model: plan.name.clone(),
            priority: plan.priority.0,
            feasible: plan.refusal.is_none(),
            already_loaded,
            reason: reason(plan, already_loaded, waits_for.is_empty(), snapshot),
            needs: Needs {
                devices: plan.devices,
                bytes_per_device: plan.bytes.0,
                source: facts.map_or("estimate", |facts| facts.need_source),
            },
            placement: shares(snapshot, &plan.placement),
            victims: plan
                .victims
                .iter()
                .map(|victim| VictimView::of(victim, plan, force))
                .collect(),
            waits_for,
            cost: CostView {
                highest_victim_priority: plan.victims.iter().map(|victim| victim.priority.0).max(),
                busy_victims: plan.cost.busy,
                expected_reload_ms: reloads.fold(0, u64::saturating_add),
                evicted_bytes: plan.cost.bytes.0,
            },
            candidates: candidates(plan, snapshot),
            expected_seconds: expected
                .map(|reload| if already_loaded { 0.0 } else { seconds(reload) }),
        }
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1000.0
}

fn reason(plan: &Plan, already_loaded: bool, starts_now: bool, snapshot: &Snapshot) -> String {
    if let Some(refusal) = &plan.refusal {
        let why = with_device_names(&refusal.to_string(), snapshot);
        return match plan.prospect {
            Prospect::Soon => format!("not now, but soon by itself: {why}"),
            Prospect::WhenOthersLeave => format!("only when something else leaves: {why}"),
            Prospect::Now | Prospect::Never => why,
        };
    }
    match (already_loaded, plan.victims.len(), starts_now) {
        (true, ..) => "the model has its replicas already".to_owned(),
        (_, 0, true) => "fits without evicting anything".to_owned(),
        (_, 0, false) => "fits when what leaves already is gone".to_owned(),
        (_, 1, _) => "fits when 1 replica is evicted".to_owned(),
        (_, count, _) => format!("fits when {count} replicas are evicted"),
    }
}

impl VictimView {
    fn of(victim: &Victim, plan: &Plan, force: bool) -> VictimView {
        let reason = if victim.planned {
            "a load that waits for its room, decided anew afterwards (P5)".to_owned()
        } else if victim.priority < plan.priority && victim.priority < Priority::ALWAYS_HOT {
            let (priority, own) = (plan.priority, victim.priority);
            StopReason::Preempted {
                by: plan.name.clone(),
                priority,
                own,
            }
            .to_string()
        } else if force {
            format!("forced out by {} (P4)", plan.name)
        } else if victim.priority < plan.priority {
            "its always-hot protection is off until the morning (E2)".to_owned()
        } else if victim.busy {
            format!("its turn is over, {} waits (P3)", plan.name)
        } else {
            "idle and of equal priority (P3)".to_owned()
        };
        VictimView {
            replica: victim.replica.to_string(),
            model: victim.name.clone(),
            priority: victim.priority.0,
            busy: victim.busy,
            bytes: victim.bytes.0,
            reload_ms: victim.reload.0,
            reason,
        }
    }
}

fn waits_for(plan: &Plan, snapshot: &Snapshot) -> Vec<String> {
    let here = |device: DeviceId| plan.placement.iter().any(|share| share.device == device);
    let mut texts = Vec::new();
    if plan.must_wait {
        for model in &snapshot.pool.models {
            for replica in &model.replicas {
                let leaving = ["draining", "stopping"].contains(&replica.state);
                if leaving && replica.shares.iter().any(|share| here(share.device)) {
                    texts.push(format!(
                        "{} ({}) is leaving: {}",
                        model.name, replica.replica, replica.reason
                    ));
                }
            }
        }
    }
    for victim in plan.victims.iter().filter(|victim| !victim.planned) {
        let what = if victim.busy {
            "the requests in flight on"
        } else {
            "the end of"
        };
        texts.push(format!("{what} {} ({})", victim.name, victim.replica));
    }
    texts
}

/// Where the plan puts the replica comes first.
fn candidates(plan: &Plan, snapshot: &Snapshot) -> Vec<CandidateView> {
    let is_chosen = |it: &Candidate| {
        let here = plan.placement.iter().map(|share| share.device).min() == Some(it.device);
        plan.refusal.is_none() && here && it.verdict != Verdict::Blocked
    };
    let chosen = plan.candidates.iter().position(is_chosen);
    let rest = (0..plan.candidates.len()).filter(|nth| Some(*nth) != chosen);
    let order = chosen.into_iter().chain(rest).take(CANDIDATES_MAX);
    order
        .map(|nth| candidate(&plan.candidates[nth], chosen == Some(nth), snapshot))
        .collect()
}

fn candidate(it: &Candidate, chosen: bool, snapshot: &Snapshot) -> CandidateView {
    let name = snapshot.device_name(it.device);
    let place = match snapshot.devices.get(&it.device) {
        Some(device) => format!("{}: {name}", device.info.node),
        None => name,
    };
    let mark = if chosen { "chosen: " } else { "" };
    let verdict = match &it.verdict {
        Verdict::Free { left_over } => format!("{mark}free, {left_over} left over"),
        Verdict::Evicts { victims, cost } => {
            let names: Vec<String> = victims
                .iter()
                .map(|it| replica_name(*it, snapshot))
                .collect();
            format!("{mark}evicts {}, {} in all", names.join(", "), cost.bytes)
        }
        Verdict::Blocked => "no room that may be made".to_owned(),
    };
    CandidateView { place, verdict }
}

fn replica_name(replica: ReplicaId, snapshot: &Snapshot) -> String {
    let has =
        |model: &&crate::pool::ModelView| model.replicas.iter().any(|it| it.replica == replica);
    match snapshot.pool.models.iter().find(has) {
        Some(model) => format!("{} ({replica})", model.name),
        None => replica.to_string(),
    }
}

/// The pool's own words begin each obstacle with a device's number; people know devices by name.
pub fn with_device_names(text: &str, snapshot: &Snapshot) -> String {
    let named = |part: &str| {
        let (number, rest) = part.split_once(": ")?;
        let device = DeviceId(number.strip_prefix('d')?.parse().ok()?);
        snapshot
            .devices
            .contains_key(&device)
            .then(|| format!("{}: {rest}", snapshot.device_name(device)))
    };
    let parts = text
        .split("; ")
        .map(|part| named(part).unwrap_or_else(|| part.to_owned()));
    parts.collect::<Vec<_>>().join("; ")
}
