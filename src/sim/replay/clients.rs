//! Clients that wait for an answer before their next request: a closed loop, where a slow pool gets fewer requests.
//! Only decides when the next request comes; `run` does the replay.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::report::Report;
use super::run::{Options, Play};
use super::scenario::{Arrival, Scenario};
use pool::{KeyId, ModelId, Span, Time};

/// Identical clients of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    /// An index into `Scenario::models`.
    pub model: ModelId,
    pub count: u32,
    /// When each of them sends its first request.
    pub from: Time,
    /// How long a request occupies its seat.
    pub service: Span,
    /// Between an answer and the next request. A refusal is an answer too; at least 1 ms, so that time passes for
    /// clients of a full queue.
    pub think: Span,
    /// `(n, delay)`: each n-th request of the group comes later by the delay, as on a busy machine; with 0 none does.
    pub late: (u64, Span),
}

/// Lets clients send requests to the production core until a time, then answers those that wait. A client whose
/// request is cut sends the next one when it would have been served.
pub fn run_clients(
    scenario: &Scenario,
    clients: &[Clients],
    until: Time,
    options: &Options,
) -> Report {
    let mut play = Play::new(scenario, options);
    play.answers = Some(Vec::new());
    // Groups of clients of one model may differ: each answer goes to the group with the most waiting requests.
    let mut out: Vec<u32> = vec![0; clients.len()];
    let mut answered: Vec<u64> = vec![0; clients.len()];
    let mut sends: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    for (group, it) in clients.iter().enumerate() {
        sends.extend((0..it.count).map(|_| Reverse((it.from, group))));
    }
    loop {
        for (model, at) in play
            .answers
            .as_mut()
            .map(core::mem::take)
            .unwrap_or_default()
        {
            let waits = |group: &usize| clients[*group].model == model && out[*group] > 0;
            let group = (0..clients.len()).filter(waits).max_by_key(|it| out[*it]);
            if let Some(group) = group {
                out[group] -= 1;
                let think = Span(clients[group].think.0.max(1));
                let (every, late) = clients[group].late;
                answered[group] += 1;
                let is_late = answered[group].checked_rem(every) == Some(0);
                let late = if is_late { late } else { Span::ZERO };
                sends.push(Reverse((at + think + late, group)));
            }
        }
        let send = sends.peek().map(|Reverse((at, _))| *at);
        let send = send.filter(|at| *at <= until);
        match (send, play.next()) {
            // An event before the next request may cause an earlier one.
            (send, Some(next)) if next <= send.unwrap_or(until) => play.until(next),
            (Some(at), _) => {
                let Some(Reverse((_, group))) = sends.pop() else {
                    break;
                };
                out[group] += 1;
                let Clients { model, service, .. } = clients[group];
                play.until(at);
                play.arrives(Arrival {
                    at,
                    model,
                    key: KeyId(group as u64),
                    service,
                });
            }
            (None, _) => break,
        }
    }
    play.finish()
}
