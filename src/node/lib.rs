//! A node, a machine of a pool: joins a controller, carries out its orders with the same guardian, drivers and inventory that the
//! controller uses locally, and reports the results. It has no pool and no catalogue. Its only decision is when to end: on a
//! signal, on the controller's order, or when it has had no controller for too long. Another process can continue its work, with the
//! same engines.

mod engines;
mod generation;
mod identity;
mod life;
mod machine;
mod outbox;
mod peer_body;
mod peer_client;
mod peer_server;
mod readings;
mod relay;
mod relay_pair;
mod session;
mod settings;
mod target;
mod weights;

pub use identity::check_takeover;
pub use life::{Node, NodeEnd, longest_stop};
pub use settings::Settings;
pub use target::Target;
pub use weights::WeightsSettings;
