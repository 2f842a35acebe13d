//! Writes the transcript of a story: one line for each action that a reader needs to see.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::story::StoryRunner;
use pool::{Action, LoadWish, ModelId, Outcome, Override, Share, Wish};

impl StoryRunner {
    /// One line per action that a reader needs to see; bookkeeping is left out.
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
            Action::Park { replica, reason } => format!("park {replica}: {reason}"),
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
            // Ids of node requests are times.
            Action::RequestNodes { demands, shape } => match &demands[..] {
                [demand] => format!("request a node of {shape}, {demand}"),
                _ => {
                    let all: Vec<String> = demands.iter().map(ToString::to_string).collect();
                    let count = all.len();
                    format!("request {count} nodes of {shape}, {}", all.join(", "))
                }
            },
            Action::CancelNode { demand } => format!("cancel {demand}"),
            Action::ReleaseNode { node } => format!("release {node}"),
            Action::Disown { node, replica } => format!("disown {replica} on {node}"),
            Action::Finished => "finished".to_owned(),
            Action::Save { order, wish } if self.tells_store => {
                format!("save {order}: {}", self.wish_line(wish))
            }
            Action::Keep { wish } if self.tells_store => format!("keep: {}", self.wish_line(wish)),
            Action::SetGate { .. } | Action::Save { .. } | Action::Keep { .. } => return None,
        })
    }
}

impl StoryRunner {
    /// The alternatives of the last decision about a model.
    pub(super) fn why(&self, rest: &[&str], transcript: &mut String) -> Result<(), String> {
        let name = *rest.first().ok_or("why of which model?")?;
        let known = self.explained.get(name);
        let explanation = known.ok_or_else(|| format!("nothing was compared for {name}"))?;
        let _ = writeln!(transcript, "> why: {explanation}");
        for holder in &explanation.considered {
            let (model, replica) = (&holder.model, holder.replica);
            let _ = writeln!(
                transcript,
                ">   {model} ({replica}, {}): {holder}",
                holder.device
            );
        }
        for (device, bytes, what) in &explanation.others {
            let _ = writeln!(transcript, ">   {device}: {bytes} {what}");
        }
        for change in &explanation.memory {
            let (device, before, after) = (change.device, change.before, change.after);
            let _ = writeln!(
                transcript,
                ">   {device}: {before} spoken for, then {after}"
            );
        }
        Ok(())
    }
}

impl StoryRunner {
    fn wish_line(&self, wish: &Wish) -> String {
        let load = |model: &ModelId, wish: Option<&LoadWish>| match wish {
            None => format!("{} is not wished to be loaded", self.name(*model)),
            Some(wish) => format!("{} loaded x{}", self.name(*model), wish.replicas),
        };
        let over = |model: &ModelId, over: &Override| {
            let parts = [
                over.priority.map(|priority| format!("priority {priority}")),
                over.keep_hot.map(|span| format!("keep-hot {span}")),
                over.expires.map(|time| format!("until {time}")),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            if parts.is_empty() {
                format!("{} as in the catalogue", self.name(*model))
            } else {
                format!("{} with {}", self.name(*model), parts.join(", "))
            }
        };
        match wish {
            Wish::Override {
                model,
                over: setting,
            } => over(model, setting),
            Wish::Load { model, wish } => load(model, wish.as_ref()),
            Wish::LoadAndOverride {
                model,
                wish,
                over: setting,
            } => format!("{}; {}", load(model, Some(wish)), over(model, setting)),
            Wish::ForgetLoads { .. } => "no model is wished to be loaded".to_owned(),
            Wish::Cordon { device, cordon } => match cordon {
                None => format!("{device} serves"),
                Some(cordon) => format!("{device} is cordoned: {}", cordon.reason),
            },
            Wish::DrainNode { name, drain } => match drain {
                None => format!("node {name} serves"),
                Some(drain) => format!("node {name} drains: {}", drain.reason),
            },
        }
    }
}

fn outcome_line(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Loaded(result) => {
            let evicted: Vec<String> = result
                .evicted
                .iter()
                .map(|victim| format!("{} ({})", victim.model, victim.replica))
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
        Outcome::Cordoned { replicas } => match replicas.len() {
            1 => "cordoned, 1 replica left".to_owned(),
            count => format!("cordoned, {count} replicas left"),
        },
        Outcome::Uncordoned => "uncordoned".to_owned(),
        Outcome::NodeDrained { replicas } => match replicas.len() {
            1 => "drained, 1 replica left".to_owned(),
            count => format!("drained, {count} replicas left"),
        },
        Outcome::NodeUndrained => "undrained".to_owned(),
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
