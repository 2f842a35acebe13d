//! The simulator: the production pool under a virtual clock. Stories are scenarios as text. Storms are seeded random worlds with
//! faults, checked by a referee that trusts nothing the pool reports about itself. The crate reads no clock and does no I/O.

#![no_std]

#[macro_use]
extern crate alloc;

mod args;
mod batch_lines;
mod batch_world;
mod gang_storm;
mod gate_keys;
mod group_lines;
mod group_referee;
mod group_storm;
mod key_storm;
mod narration;
mod node_lines;
mod node_storm;
mod persistence;
mod plan_check;
mod random;
mod referee;
pub mod replay;
mod return_storm;
mod storm;
mod story;
mod story_setup;
mod timeline;
mod world;

pub use batch_world::{BatchTotals, BatchWorld};
pub use gang_storm::{GangFault, GangStorm, GangStormReport};
pub use group_storm::{GroupFault, GroupStorm, GroupStormReport};
pub use key_storm::{KeyClients, KeyStorm, KeyStormReport};
pub use node_storm::{NodeFault, NodeStorm, NodeStormReport};
pub use persistence::{WishReport, WishStorm};
pub use plan_check::PlansCompared;
pub use random::Random;
pub use referee::Referee;
pub use return_storm::{ReturnFault, ReturnStorm, ReturnStormReport};
pub use storm::{Fault, Storm, StormReport};
pub use story::{StoryError, play};
pub use world::World;
