//! Responses that are stored for later turns, for their own key alone: in memory until they are on disk, or for a while
//! where a request has no `store`. Writing never delays a token: only the end of an answer waits for the disk, for a second at
//! most, where its client asked for that. Nothing here knows a route.

mod earlier;
mod memory;
mod service;
mod ticket;
mod wanted;

pub(crate) use earlier::{Desk, Earlier, no_item, not_stored, unreadable};
pub use service::StoredResponses;
pub(crate) use ticket::{Ticket, Unwritten};
pub(crate) use wanted::Wanted;
