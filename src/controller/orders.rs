//! Callers that wait for the loop: requests for their seat, orders for their outcome.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::gate::Lease;
use pool::{OrderId, Outcome, Refusal, Ticket};

/// Requests that wait for a seat.
pub(super) type SeatRequests = BTreeMap<Ticket, oneshot::Sender<Result<Lease, Refusal>>>;

struct Replies {
    accepted: Option<oneshot::Sender<()>>,
    settled: oneshot::Sender<Outcome>,
}

#[derive(Default)]
pub(super) struct Orders {
    replies: BTreeMap<OrderId, Replies>,
    /// Settled in this turn; their callers hear of it when readers can see what came of them.
    settled: Vec<(OrderId, Outcome)>,
}

impl Orders {
    pub fn begin(
        &mut self,
        order: OrderId,
        accepted: oneshot::Sender<()>,
        settled: oneshot::Sender<Outcome>,
    ) {
        let accepted = Some(accepted);
        self.replies.insert(order, Replies { accepted, settled });
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
            self.accept(order);
            if let Some(replies) = self.replies.remove(&order) {
                let _ = replies.settled.send(outcome);
            }
        }
    }
}
