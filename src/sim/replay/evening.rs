//! The evening of a replay: cleanups and reopenings as the orders that the production schedule gives (E1, E2).

use super::run::Play;
use pool::{CleanupScope, Command, Event, OrderId};

impl Play<'_> {
    pub(super) fn cleans_up(&mut self) {
        let order = self.next_order();
        self.cleanup = Some(order);
        let scope = if self.scenario.cleanups_spare_busy {
            CleanupScope::Idle
        } else {
            CleanupScope::All
        };
        let drain = self.scenario.limits.unload_drain;
        let begun = None;
        self.order(
            order,
            Command::Cleanup {
                scope,
                drain,
                begun,
            },
        );
    }

    /// An order has ended. Without a configured morning, the pool reopens after its cleanup.
    pub(super) fn settled(&mut self, order: OrderId) -> Option<Event> {
        self.cleanup.take_if(|cleanup| *cleanup == order)?;
        if !self.scenario.mornings.is_empty() {
            return None;
        }
        let order = self.next_order();
        let command = Command::Reopen;
        Some(Event::OrderReceived { order, command })
    }
}
