//! Stored responses, and votes for the best of several responses.

mod elo;
mod reads;
mod stored;
mod votes;

pub use elo::{MOST_PER_GAME, START};
pub use reads::{ChainBounds, ItemPlace, StoredLink};
pub use stored::{ResponseBounds, StoredItem, StoredResponse};
pub use votes::{NewVote, Rating, VoteResult};
