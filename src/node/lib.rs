//! A machine of a pool: it joins a controller, carries out its orders with guardian, drivers and inventory as the
//! controller does on its own machine, and reports what happens. It has no pool and no catalogue, and decides nothing
//! but when it ends: on a signal, on the controller's order, or when no controller has been there for long.

mod engines;
mod generation;
mod life;
mod machine;
mod outbox;
mod peer_body;
mod peer_client;
mod peer_server;
mod readings;
mod relay;
mod relay_pair;
mod relay_sides;
mod relay_threads;
mod session;
mod target;
mod weights;

pub use life::{Settings, longest_stop, run};
pub use target::Target;
pub use weights::WeightsSettings;
