//! How a story is told: one line for each action that a person would want to read.

use super::story::Teller;
use crate::pool::{Action, Outcome, Share};

impl Teller {
    /// One line per action that a person would want to read; bookkeeping is left out.
    pub(super) fn describe(&self, action: &Action) -> Option<String> {
        Some(match action {
            Action::Grant { ticket, replica } => format!("grant {ticket} {replica}"),
            Action::Refuse { ticket, refusal } => format!("refuse {ticket}: {refusal}"),
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => {
                format!(
                    "launch {replica} {} on {}",
                    self.name(*model),
                    shares(placement)
                )
            }
            Action::Fetch { model } => format!("fetch {}", self.name(*model)),
            Action::EndFetch { model } => format!("end the fetch of {}", self.name(*model)),
            Action::Park { replica } => format!("park {replica}"),
            Action::Wake { replica, deadline } => format!("wake {replica} within {deadline}"),
            Action::CloseGate {
                replica,
                if_idle_at: None,
            } => format!("close {replica}"),
            Action::CloseGate {
                replica,
                if_idle_at: Some(_),
            } => format!("close {replica} if idle"),
            Action::Stop {
                replica,
                grace,
                reason,
            } => format!("stop {replica} within {grace}: {reason}"),
            Action::Settle { order, outcome } => {
                format!("settle {order}: {}", outcome_line(outcome))
            }
            Action::Record(record) if record.replica.is_some() && record.candidates.is_empty() => {
                return None;
            }
            Action::Record(record) => {
                let model = record.model.as_deref().unwrap_or("pool");
                format!("record {} {model}: {}", record.kind.name(), record.reason)
            }
            Action::Finished => "finished".to_owned(),
            Action::SetGate { .. } | Action::Save { .. } | Action::Keep { .. } => return None,
        })
    }
}

fn outcome_line(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Loaded(result) => {
            let evicted: Vec<String> = result
                .evicted
                .iter()
                .map(|it| format!("{} ({})", it.model, it.replica))
                .collect();
            let short = result
                .shortfall
                .as_ref()
                .map_or(String::new(), |why| format!("; no more because: {why}"));
            format!(
                "{} of {} ready, evicted [{}]{short}",
                result.ready.len(),
                result.wanted,
                evicted.join(", ")
            )
        }
        Outcome::Unloaded { replicas } => format!("{} unloaded", replicas.len()),
        Outcome::Cleaned { replicas } => format!("{} cleaned up", replicas.len()),
        Outcome::Set => "set".to_owned(),
        Outcome::Reopened => "reopened".to_owned(),
        Outcome::Cordoned { replicas } => format!("cordoned, {} replicas left", replicas.len()),
        Outcome::Uncordoned => "uncordoned".to_owned(),
        Outcome::Refused { refusal, .. } => format!("refused, {refusal}"),
    }
}

pub(super) fn shares(shares: &[Share]) -> String {
    let parts: Vec<String> = shares
        .iter()
        .map(|share| format!("{}: {}", share.device, share.bytes))
        .collect();
    parts.join(", ")
}
