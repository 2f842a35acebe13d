//! Responses stored for later turns, visible to their own key only: in memory until they are on disk, or for a limited time if the
//! request has no `store`. Writing never delays tokens; only the end of a response waits for the disk, for at most a second, if the
//! client requested storage. Independent of routes.

mod earlier;
mod memory;
mod service;
mod ticket;
mod wanted;

pub use earlier::{Desk, Earlier, no_conversation, no_item, not_stored, unreadable};
pub use service::StoredResponses;
pub use ticket::{Ticket, Unwritten};
pub use wanted::Wanted;
