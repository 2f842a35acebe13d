//! The loop's state and its turns: events go to the pool, and its actions are carried out.

mod actions;
pub(crate) mod cluster_nodes;
pub(crate) mod devices;
mod engines;
mod heartbeat;
pub(crate) mod model_needs;
mod models;
pub(crate) mod nodes;
mod parts;
mod publication;
mod reader;
mod restore;
mod returning_gangs;
mod state;
mod timers;
mod unload_orders;

pub use heartbeat::Heartbeat;
pub use model_needs::{FirstFigures, first_figures};
pub use nodes::NODES_MAX;
pub(crate) use nodes::{ExpectedNode, FIRST_NUMBER, MARGIN, Node};
pub use parts::Parts;
pub(crate) use state::Control;
