//! A machine of a pool: it joins a controller, carries out its orders with guardian, drivers and inventory as the
//! controller does on its own machine, and reports what happens. It has no pool and no catalogue, and decides nothing
//! but when it ends: on a signal, on the controller's order, or when no controller has been there for long.

mod engines;
mod generation;
mod life;
mod machine;
mod outbox;
mod readings;
mod relay;
mod session;
mod target;

pub use life::{Settings, run};
pub use target::Target;
