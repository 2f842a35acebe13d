//! The loop's state and its turns: events go to the pool, and its actions are carried out.

mod accounting;
mod actions;
mod background;
pub(crate) mod cluster_nodes;
pub(crate) mod devices;
mod engines;
mod forecasts;
mod heartbeat;
mod launcher;
mod ledger;
pub(crate) mod model_needs;
pub(crate) mod models;
pub(crate) mod nodes;
mod parts;
mod publication;
mod read_ahead;
mod restore;
mod returning_gangs;
mod state;
mod timers;
mod token_costs;
mod usage;

pub use heartbeat::Heartbeat;
pub(crate) use launcher::watch;
pub use model_needs::{FirstFigures, first_figures};
pub use nodes::NODES_MAX;
pub(crate) use nodes::{ExpectedNode, FIRST_NUMBER, MARGIN, Node};
pub use parts::Parts;
pub(crate) use state::Control;
