//! Clients that wait for a response before their next request: a closed loop, in which a slow pool gets fewer requests. Only
//! decides when the next request comes; `run` does the replay.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::report::Report;
use super::run::{Options, Play};
use super::scenario::{Arrival, Scenario};
use pool::{KeyId, ModelId, Span, Time};

/// Identical clients of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    /// An index into `Scenario::models`.
    pub model: ModelId,
    pub count: u32,
    /// The time each client sends its first request.
    pub from: Time,
    /// The time a request occupies its seat.
    pub service: Span,
    /// The time between a response and the next request. A refusal is a response too. At least 1 ms, to let time pass for clients
    /// of a full queue.
    pub think: Span,
    /// `(n, delay)`: every n-th request of the group is late by the delay, as on a busy machine. 0 disables delays.
    pub late: (u64, Span),
}

/// Lets clients send requests to the production core until a time, then answers the waiting ones. A client whose request is cut
/// sends the next one when that request would have been served.
pub fn run_clients(
    scenario: &Scenario,
    clients: &[Clients],
    until: Time,
    options: &Options,
) -> Report {
    let mut play = Play::new(scenario, options);
    play.responses = Some(Vec::new());
    // Groups of clients of one model may differ. Each response goes to the group with the most waiting requests.
    let mut out: Vec<u32> = vec![0; clients.len()];
    let mut responded: Vec<u64> = vec![0; clients.len()];
    let mut sends: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    for (group, members) in clients.iter().enumerate() {
        sends.extend((0..members.count).map(|_| Reverse((members.from, group))));
    }
    loop {
        for (model, at) in play
            .responses
            .as_mut()
            .map(core::mem::take)
            .unwrap_or_default()
        {
            let waits = |group: &usize| clients[*group].model == model && out[*group] > 0;
            let group = (0..clients.len())
                .filter(waits)
                .max_by_key(|group| out[*group]);
            if let Some(group) = group {
                out[group] -= 1;
                let think = Span(clients[group].think.0.max(1));
                let (every, late) = clients[group].late;
                responded[group] += 1;
                let is_late = responded[group].checked_rem(every) == Some(0);
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
