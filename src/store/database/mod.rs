//! The open database: how it is opened, who may write to it, and the schema. Nothing here knows what the tables mean.

mod candidate;
mod leadership;
pub(crate) mod migrations;
pub(crate) mod open;
mod open_postgres;
mod store;
mod tenure;
mod writer;

pub use candidate::{Candidate, CandidateStatus, Leader};
pub use leadership::LeaderAddress;
pub(crate) use open::BUSY_TIMEOUT;
pub use store::Store;
