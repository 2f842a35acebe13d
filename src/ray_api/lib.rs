//! Client of Ray's dashboard: calls with its token, and the applications of Ray Serve as the pool reads and writes them. Callers
//! decide what to run there, and when.

mod applications;
mod cleanup_schedule;
mod client;
mod error;
mod ledger;
mod merge;
mod shared_state;
mod state;
mod sweep;
mod text;
mod uncertain_writes;
mod writer;

pub use applications::{Application, Deployment, Listing, Replica};
pub use client::{RayAccess, RayClient};
pub use error::RayError;
pub use ledger::{KeepRays, Ledger, RayWrite, UsedRay};
pub use shared_state::{Hold, ServeShared, SparedReason, WaitingLoad};
pub use state::{ApplicationState, state_of};
pub use text::{last_line, plain};
pub use writer::{Removal, ServeWriter};
