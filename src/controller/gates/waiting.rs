//! Callers that wait for the loop: requests for a seat, orders for their outcome.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::gate::Lease;
use super::seat_user::SeatUser;
use super::unload_orders::UnloadOrders;
use pool::{Command, KeyId, ModelId, OrderId, Outcome, Refusal, Span, Ticket, Time, WaitRange};

/// Maximum number of orders whose senders are remembered.
const GIVERS_MAX: usize = 4096;

/// Requests that wait for a seat.
pub(crate) type SeatRequests = BTreeMap<Ticket, SeatRequest>;

pub(crate) struct SeatRequest {
    pub model: ModelId,
    pub user: SeatUser,
    pub came: Time,
    /// The first forecast of its wait.
    pub forecast: Option<FirstForecast>,
    pub reply: oneshot::Sender<Result<Lease, Refusal>>,
}

/// The forecast of a wait, for the comparison with the wait.
#[derive(Debug)]
pub(crate) struct FirstForecast {
    pub expected: Span,
    /// The number of loads that were expected to begin before its seat.
    pub loads: u32,
    pub range: Option<WaitRange>,
    /// The number of orders before the forecast.
    pub orders: u64,
}

#[derive(Debug)]
struct Replies {
    accepted: Option<oneshot::Sender<()>>,
    settled: oneshot::Sender<Outcome>,
}

/// An order whose caller can be notified, once readers see its effects and its history is on disk (D1).
#[derive(Debug)]
pub(crate) struct SettledOrder {
    replies: Replies,
    outcome: Outcome,
}

impl SettledOrder {
    pub fn respond(self) {
        // A caller that waits only for the acceptance must find the outcome.
        let _ = self.replies.settled.send(self.outcome);
        if let Some(accepted) = self.replies.accepted {
            let _ = accepted.send(());
        }
    }
}

/// The sender of an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Giver {
    pub key: KeyId,
    pub by_mcp: bool,
}

impl Giver {
    /// The end of the reasons in the history.
    pub fn origin(self) -> &'static str {
        if self.by_mcp { " (by MCP)" } else { "" }
    }
}

#[derive(Default)]
pub(crate) struct Orders {
    replies: BTreeMap<OrderId, Replies>,
    /// Senders of the latest orders: their effects may be recorded long after they are settled.
    givers: BTreeMap<OrderId, Giver>,
    /// Orders settled in this turn.
    settled: Vec<SettledOrder>,
    unloads: UnloadOrders,
}

impl Orders {
    pub fn begin(
        &mut self,
        order: OrderId,
        command: &Command,
        giver: Option<Giver>,
        accepted: oneshot::Sender<()>,
        settled: oneshot::Sender<Outcome>,
    ) {
        self.unloads.order(command);
        if let Some(giver) = giver {
            self.givers.insert(order, giver);
            if self.givers.len() > GIVERS_MAX {
                self.givers.pop_first();
            }
        }
        let accepted = Some(accepted);
        self.replies.insert(order, Replies { accepted, settled });
    }

    /// Returns true if an order since the start has unloaded the model.
    pub fn have_unloaded(&self, model: ModelId) -> bool {
        self.unloads.has(model)
    }

    /// The sender of the order, if remembered.
    pub fn giver(&self, order: OrderId) -> Option<Giver> {
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
        if let Some(replies) = self.replies.remove(&order) {
            self.settled.push(SettledOrder { replies, outcome });
        }
    }

    pub fn take_settled(&mut self) -> Vec<SettledOrder> {
        std::mem::take(&mut self.settled)
    }
}
