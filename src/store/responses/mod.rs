//! Stored responses, background responses, conversations, and votes for the best of several responses.

mod background;
mod elo;
mod forget;
mod named;
mod reads;
mod stored;
mod totals;
mod votes;

pub use background::{BackgroundBounds, BackgroundHead, BackgroundLimit, BackgroundResponse};
pub use elo::{MOST_PER_GAME, START};
pub use named::{AddedItems, ItemPage, NamedConversation};
pub use reads::{ChainBounds, ItemPlace, StoredLink};
pub use stored::{ResponseBounds, StoredItem, StoredResponse};
pub use votes::{NewVote, Rating, VoteResult};
