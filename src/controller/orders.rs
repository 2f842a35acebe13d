//! Callers that wait for the loop: requests for their seat, orders for their outcome.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::gate::Lease;
use pool::{KeyId, ModelId, OrderId, Outcome, Refusal, Ticket, Time};

/// Orders whose givers are remembered.
const GIVERS_MAX: usize = 4096;

/// Requests that wait for a seat.
pub(super) type SeatRequests = BTreeMap<Ticket, SeatRequest>;

pub(super) struct SeatRequest {
    pub model: ModelId,
    pub came: Time,
    pub reply: oneshot::Sender<Result<Lease, Refusal>>,
}

struct Replies {
    accepted: Option<oneshot::Sender<()>>,
    settled: oneshot::Sender<Outcome>,
}

#[derive(Default)]
pub(super) struct Orders {
    replies: BTreeMap<OrderId, Replies>,
    /// Who gave the latest orders: what they cause may be recorded long after they are settled.
    givers: BTreeMap<OrderId, KeyId>,
    /// Settled in this turn; their callers hear of it when readers can see what came of them.
    settled: Vec<(OrderId, Outcome)>,
}

impl Orders {
    pub fn begin(
        &mut self,
        order: OrderId,
        by: Option<KeyId>,
        accepted: oneshot::Sender<()>,
        settled: oneshot::Sender<Outcome>,
    ) {
        if let Some(by) = by {
            self.givers.insert(order, by);
            if self.givers.len() > GIVERS_MAX {
                self.givers.pop_first();
            }
        }
        let accepted = Some(accepted);
        self.replies.insert(order, Replies { accepted, settled });
    }

    /// Whose order it is, as far as anybody knows.
    pub fn giver(&self, order: OrderId) -> Option<KeyId> {
        self.givers.get(&order).copied()
    }

    pub fn is_open(&self, order: OrderId) -> bool {
        self.replies.contains_key(&order)
    }

    pub fn accept(&mut self, order: OrderId) {
        let replies = self.replies.get_mut(&order);
        if let Some(accepted) = replies.and_then(|replies| replies.accepted.take()) {
            let _ = accepted.send(());
        }
    }

    pub fn settle(&mut self, order: OrderId, outcome: Outcome) {
        self.settled.push((order, outcome));
    }

    pub fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    pub fn answer_settled(&mut self) {
        for (order, outcome) in std::mem::take(&mut self.settled) {
            if let Some(replies) = self.replies.remove(&order) {
                // A caller that learns of the acceptance alone must find the outcome.
                let _ = replies.settled.send(outcome);
                if let Some(accepted) = replies.accepted {
                    let _ = accepted.send(());
                }
            }
        }
    }
}
