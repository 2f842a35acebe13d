//! Clients that wait for a response before their next request: a closed loop, in which a slow pool gets fewer requests. Only
//! decides when the next request comes; `run` does the replay.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::report::Report;
use super::run::{Options, Play, Response};
use super::scenario::{Arrival, Scenario};
use pool::{KeyId, ModelId, Span, Time};

/// Identical clients of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    /// The key of all requests. No other clients have it.
    pub key: KeyId,
    pub count: u32,
    /// The time each client sends its first request.
    pub from: Time,
    /// The model of each request and the time it occupies its seat. After the last one the first one follows.
    pub requests: Vec<(ModelId, Span)>,
    /// The time between a response and the next request. A refusal is a response too. At least 1 ms, to let time pass for clients
    /// of a full queue.
    pub think: Span,
    /// `(n, delay)`: every n-th request of the key is late by the delay, as on a busy machine. 0 disables delays.
    pub late: (u64, Span),
}

/// Lets clients send requests to the production core until a time, then answers the waiting ones. A client whose request is cut
/// sends the next one when that request would have been served. `watch` sees every response in the order of seats.
pub fn run_clients(
    scenario: &Scenario,
    clients: &[Clients],
    until: Time,
    options: &Options,
    watch: &mut dyn FnMut(Response),
) -> Report {
    let mut play = Play::new(scenario, options);
    play.responses = Some(Vec::new());
    let of_key: BTreeMap<KeyId, usize> = clients.iter().map(|of| of.key).zip(0..).collect();
    let mut sent: Vec<usize> = vec![0; clients.len()];
    let mut responded: Vec<u64> = vec![0; clients.len()];
    let mut sends: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    for (nth, members) in clients.iter().enumerate() {
        sends.extend((0..members.count).map(|_| Reverse((members.from, nth))));
    }
    loop {
        let responses = play.responses.as_mut().map(core::mem::take);
        for response in responses.unwrap_or_default() {
            watch(response);
            let nth = of_key[&response.key];
            let think = Span(clients[nth].think.0.max(1));
            let (every, late) = clients[nth].late;
            responded[nth] += 1;
            let is_late = responded[nth].checked_rem(every) == Some(0);
            let late = if is_late { late } else { Span::ZERO };
            let ended = response.seated + response.service;
            sends.push(Reverse((ended + think + late, nth)));
        }
        let send = sends.peek().map(|Reverse((at, _))| *at);
        let send = send.filter(|at| *at <= until);
        match (send, play.next()) {
            // An event before the next request may cause an earlier one.
            (send, Some(next)) if next <= send.unwrap_or(until) => play.until(next),
            (Some(at), _) => {
                let Some(Reverse((_, nth))) = sends.pop() else {
                    break;
                };
                let Clients { key, requests, .. } = &clients[nth];
                let (model, service) = requests[sent[nth] % requests.len()];
                sent[nth] += 1;
                play.until(at);
                play.arrives(Arrival {
                    at,
                    model,
                    key: *key,
                    service,
                });
            }
            (None, _) => break,
        }
    }
    play.finish()
}
