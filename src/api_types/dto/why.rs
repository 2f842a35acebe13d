//! The decision behind an event, in words and figures.

use serde::Serialize;
use utoipa::ToSchema;

use super::values::at;
use super::virtual_models::VirtualChoice;
use store::{StoredDecision, StoredMemory, StoredRecord};

/// Explanation of an event.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WhyView {
    /// Id of the event.
    #[schema(example = 118)]
    pub event: i64,
    #[schema(example = "2026-01-31T20:15:00.123Z")]
    pub at: String,
    pub model: Option<String>,
    /// Kind of the event, such as `evict`, `load` or `refuse`.
    #[schema(example = "evict")]
    pub what: String,
    /// Reason in words, with the rule.
    #[schema(example = "preempted by tiny-chat: priority 1 over 0 (P2); 0 in flight")]
    pub reason: String,
    /// Name of the key or person that caused the event; null if the pool caused it or it is unknown.
    pub asked_by: Option<String>,
    /// Path of its present group; null without a group.
    #[schema(example = "physics/lab")]
    pub group: Option<String>,
    /// Id of the event with the actual decision, if that is another event: a replica's end refers to its eviction.
    pub decided_by: Option<i64>,
    /// Compared replicas: first the evicted replicas, then other candidates for eviction, then replicas protected by a rule.
    pub candidates: Vec<WhyCandidate>,
    /// Reserved memory of each device of the placement.
    pub memory: Vec<WhyMemory>,
    /// The decision in sentences.
    pub words: Vec<String>,
    /// The member that a virtual model would take now, if the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_choice: Option<VirtualChoice>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WhyCandidate {
    #[schema(example = "r1")]
    pub replica: String,
    pub model: String,
    #[schema(example = "gpu0")]
    pub device: String,
    pub priority: u32,
    /// Idle time of the ready replica in seconds; 0 if it was busy.
    pub idle_seconds: f64,
    /// Expected time to load it again, in seconds.
    pub reload_seconds: f64,
    pub memory_bytes: u64,
    /// True if it was evicted.
    pub chosen: bool,
    #[schema(
        example = "leaves: priority 0, idle for 2.0 min, about 20.0 s to load again, 16.0 GiB held"
    )]
    pub words: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhyMemory {
    #[schema(example = "gpu0")]
    pub device: String,
    pub before_bytes: u64,
    pub after_bytes: u64,
}

impl WhyView {
    /// `decider` is the event with the actual decision, if that is another event than `event`.
    pub fn new(
        event: &StoredRecord,
        decider: Option<&StoredRecord>,
        decision: Option<&StoredDecision>,
        asked_by: Option<String>,
    ) -> WhyView {
        let decided = decider.unwrap_or(event);
        let memory = match decision {
            Some(decision) if !decision.memory.is_empty() => &decision.memory,
            _ => &decided.memory,
        };
        WhyView {
            event: event.id,
            at: at(event.at),
            model: event.model.clone(),
            what: event.kind.clone(),
            reason: event.reason.clone(),
            asked_by,
            group: decided.group.clone().or_else(|| event.group.clone()),
            decided_by: decider.map(|event| event.id),
            candidates: decision.map_or_else(Vec::new, candidates),
            memory: memory.iter().map(memory_of).collect(),
            words: describe(event, decider, decision),
            virtual_choice: None,
        }
    }
}

fn candidates(decision: &StoredDecision) -> Vec<WhyCandidate> {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let candidates = decision.considered.iter();
    candidates
        .map(|candidate| WhyCandidate {
            replica: candidate.replica.clone(),
            model: candidate.model.clone(),
            device: candidate.device.clone(),
            priority: candidate.priority,
            idle_seconds: seconds(candidate.idle_ms),
            reload_seconds: seconds(candidate.reload_ms),
            memory_bytes: candidate.bytes,
            chosen: candidate.chosen,
            words: candidate.words.clone(),
        })
        .collect()
}

fn memory_of(memory: &StoredMemory) -> WhyMemory {
    WhyMemory {
        device: memory.device.clone(),
        before_bytes: memory.before_bytes,
        after_bytes: memory.after_bytes,
    }
}

/// Returns true for events that result from a comparison.
fn compares(event: &StoredRecord) -> bool {
    match event.kind.as_str() {
        "evict" => true,
        "refuse" => matches!(
            event.cause.as_deref(),
            Some("no_room" | "never_fits") | None
        ),
        _ => false,
    }
}

fn describe(
    event: &StoredRecord,
    decider: Option<&StoredRecord>,
    decision: Option<&StoredDecision>,
) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(decider) = decider {
        words.push(format!(
            "decided with event {} ({}): {}",
            decider.id, decider.kind, decider.reason
        ));
    }
    let decided = decider.unwrap_or(event);
    words.extend(decided.candidates.iter().cloned());
    match decision {
        Some(decision) => {
            words.push(decision.words.clone());
            words.extend(decision.others.iter().cloned());
            if decision.more > 0 {
                words.push(format!(
                    "{} more replicas were compared and are not listed",
                    decision.more
                ));
            }
        }
        None if compares(decided) => words.push(
            "the comparison was not kept with this event, which an older version recorded; only the reason is known"
                .to_owned(),
        ),
        None if decided.candidates.is_empty() => {
            words.push("nothing was compared: the reason alone was decisive".to_owned());
        }
        None => {}
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::Time;
    use store::StoredCandidate;

    fn record(id: i64, kind: &str, cause: Option<&str>) -> StoredRecord {
        StoredRecord {
            id,
            at: Time(0),
            kind: kind.to_owned(),
            model: Some("a".to_owned()),
            replica: Some("r1".to_owned()),
            order: None,
            reason: "because".to_owned(),
            cause: cause.map(str::to_owned),
            asked_by: None,
            group: None,
            priority: Some(0),
            placement: Vec::new(),
            candidates: Vec::new(),
            memory: Vec::new(),
            took_ms: None,
            decision: None,
        }
    }

    #[test]
    fn an_older_eviction_reports_that_its_comparison_was_not_stored() {
        let why = WhyView::new(&record(1, "evict", None), None, None, None);
        assert!(
            why.words[0].contains("was not kept with this event"),
            "{why:?}"
        );
        let keep_hot = WhyView::new(&record(1, "drain", Some("keep_hot")), None, None, None);
        assert!(
            keep_hot.words[0].contains("nothing was compared"),
            "{keep_hot:?}"
        );
    }

    #[test]
    fn the_end_of_a_replica_is_explained_by_its_eviction() {
        let decision = StoredDecision {
            load: "b".to_owned(),
            priority: 1,
            words: "b, priority 1, needs 4.0 GiB on 1 device".to_owned(),
            considered: vec![StoredCandidate {
                replica: "r1".to_owned(),
                model: "a".to_owned(),
                device: "gpu0".to_owned(),
                priority: 0,
                idle_ms: 1500,
                reload_ms: 20_000,
                bytes: 7,
                chosen: true,
                words: "leaves".to_owned(),
            }],
            more: 2,
            others: Vec::new(),
            memory: vec![StoredMemory {
                device: "gpu0".to_owned(),
                before_bytes: 7,
                after_bytes: 9,
            }],
        };
        let (gone, evict) = (
            record(9, "gone", Some("preempted")),
            record(5, "evict", None),
        );
        let why = WhyView::new(&gone, Some(&evict), Some(&decision), None);
        assert_eq!((why.event, why.decided_by), (9, Some(5)));
        assert_eq!(why.candidates[0].idle_seconds, 1.5);
        assert_eq!(why.memory[0].after_bytes, 9);
        let words = why.words.join("\n");
        assert!(
            words.contains("event 5 (evict)") && words.contains("2 more replicas"),
            "{words}"
        );
    }
}
