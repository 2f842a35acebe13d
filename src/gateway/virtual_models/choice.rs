//! The choice of a member for a request: a pure function of the virtual model, its usable members and the request.

use std::fmt;

use super::outlook::Outlook;
use super::request_facts::RequestFacts;
use crate::virtual_table::table::{Rule, VirtualModel};
use pool::Span;

/// A member that the caller may use and that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place among the members.
    pub member: usize,
    /// `None` without a ready replica.
    pub ready: Option<Readiness>,
}

/// The use of a model with a ready replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// A replica has a free seat.
    pub has_room: bool,
    /// Requests in flight at its least loaded replica.
    pub in_flight: u64,
}

/// The chosen member with the reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The place among the candidates.
    pub candidate: usize,
    pub reason: Reason,
}

/// The reason for a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    Ready,
    /// All ready members are full.
    FewestInFlight(u64),
    ShortestWait(Span),
    /// Each member is expected to refuse the request.
    Blocked,
    Weight {
        weight: f64,
        sum: f64,
    },
    Order,
    /// The number of the rule, from 1.
    Rule(usize),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Ready => f.write_str("it is the first ready member with a free seat"),
            Reason::FewestInFlight(count) => write!(
                f,
                "all ready members are full, and it has the fewest requests in flight: {count}"
            ),
            Reason::ShortestWait(wait) => write!(
                f,
                "no member is ready, and it has the shortest expected wait: about {wait}"
            ),
            Reason::Blocked => f.write_str("no member can be loaded now, and it is the first"),
            Reason::Weight { weight, sum } => {
                write!(f, "it gets {weight} of {sum} parts of the conversations")
            }
            Reason::Order => f.write_str("it is the next in the order"),
            Reason::Rule(number) => write!(f, "rule {number} matches"),
        }
    }
}

/// Chooses among `candidates`, which are in the order of the members. `outlook` takes the place of a candidate that is not ready. An
/// `any_of` calls it only without a ready candidate. `number` divides requests without a conversation. Returns `None` if no
/// candidate is left or no rule matches.
pub fn choose(
    model: &VirtualModel,
    candidates: &[Candidate],
    facts: &RequestFacts,
    number: u64,
    mut outlook: impl FnMut(usize) -> Outlook,
) -> Option<Choice> {
    match &model.rule {
        Rule::AnyOf => any_of(candidates, outlook),
        Rule::Split(weights) => split(model, candidates, weights, facts, number),
        Rule::Fallback { .. } => {
            let usable = |nth: &usize| {
                let candidate = &candidates[*nth];
                candidate.ready.is_some() || !outlook(*nth).is_blocked
            };
            let first = (0..candidates.len()).find(usable);
            let candidate = first.or((!candidates.is_empty()).then_some(0))?;
            Some(Choice {
                candidate,
                reason: Reason::Order,
            })
        }
        Rule::By(conditions) => {
            let matching = conditions.iter().enumerate().filter(|(_, rule)| {
                rule.vision.is_none_or(|vision| vision == facts.has_image)
                    && rule.tools.is_none_or(|tools| tools == facts.has_tools)
                    && rule.context_above.is_none_or(|least| facts.tokens > least)
            });
            let mut matching = matching.filter_map(|(nth, rule)| {
                let mut members = candidates.iter().map(|candidate| candidate.member);
                let candidate = members.position(|member| member == rule.member)?;
                Some(Choice {
                    candidate,
                    reason: Reason::Rule(nth + 1),
                })
            });
            matching.next()
        }
    }
}

/// The first ready member with a free seat: requests stay together, and a second model gets some only when the first is full. No
/// member is loaded while one is ready.
fn any_of(candidates: &[Candidate], mut outlook: impl FnMut(usize) -> Outlook) -> Option<Choice> {
    let ready = candidates.iter().enumerate();
    let ready = ready.filter_map(|(nth, candidate)| Some((nth, candidate.ready?)));
    if let Some((candidate, _)) = ready.clone().find(|(_, ready)| ready.has_room) {
        let reason = Reason::Ready;
        return Some(Choice { candidate, reason });
    }
    if let Some((candidate, ready)) = ready.min_by_key(|(nth, ready)| (ready.in_flight, *nth)) {
        let reason = Reason::FewestInFlight(ready.in_flight);
        return Some(Choice { candidate, reason });
    }
    let cold = (0..candidates.len()).map(|nth| (outlook(nth), nth));
    let (best, candidate) = cold.min()?;
    let reason = if best.is_blocked {
        Reason::Blocked
    } else {
        Reason::ShortestWait(best.wait)
    };
    Some(Choice { candidate, reason })
}

/// The candidate with the largest score: each gets its part of the conversations, and the conversations of a member that leaves are
/// divided among the others (weighted rendezvous hashing).
fn split(
    model: &VirtualModel,
    candidates: &[Candidate],
    weights: &[f64],
    facts: &RequestFacts,
    number: u64,
) -> Option<Choice> {
    let conversation = facts.conversation.unwrap_or_else(|| mixed(number));
    let score = |candidate: &Candidate| {
        let member = candidate.member;
        let hash = mixed(conversation ^ model.members[member].hash);
        // In (0, 1): 53 bits and a half.
        let part = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        weights[member] / -part.ln()
    };
    let scores = candidates.iter().map(score).enumerate();
    let (candidate, _) = scores.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let sum = candidates.iter().map(|one| weights[one.member]).sum();
    let weight = weights[candidates[candidate].member];
    let reason = Reason::Weight { weight, sum };
    Some(Choice { candidate, reason })
}

/// SplitMix64's mixing function.
fn mixed(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
