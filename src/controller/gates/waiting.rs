//! Callers that wait for the loop: requests for a seat, orders for their outcome.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::gate::Lease;
use pool::{KeyId, ModelId, OrderId, Outcome, Refusal, Ticket, Time};

/// Maximum number of orders whose senders are remembered.
const GIVERS_MAX: usize = 4096;

/// Requests that wait for a seat.
pub(crate) type SeatRequests = BTreeMap<Ticket, SeatRequest>;

pub(crate) struct SeatRequest {
    pub model: ModelId,
    pub came: Time,
    pub reply: oneshot::Sender<Result<Lease, Refusal>>,
}

struct Replies {
    accepted: Option<oneshot::Sender<()>>,
    settled: oneshot::Sender<Outcome>,
}

#[derive(Default)]
pub(crate) struct Orders {
    replies: BTreeMap<OrderId, Replies>,
    /// Senders of the latest orders: their effects may be recorded long after they are settled.
    givers: BTreeMap<OrderId, KeyId>,
    /// Orders settled in this turn. Callers are notified after readers can see the effects.
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

    /// The sender of the order, if remembered.
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

    /// Sends the outcomes of settled orders to their callers.
    pub fn respond_to_settled(&mut self) {
        for (order, outcome) in std::mem::take(&mut self.settled) {
            if let Some(replies) = self.replies.remove(&order) {
                // A caller that waits only for the acceptance must find the outcome.
                let _ = replies.settled.send(outcome);
                if let Some(accepted) = replies.accepted {
                    let _ = accepted.send(());
                }
            }
        }
    }
}
