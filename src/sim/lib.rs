//! The simulator: the same pool under a virtual clock. Stories are scenarios as text; storms are seeded random worlds
//! with faults, checked by a referee that trusts nothing the pool reports about itself. Nothing here reads a clock or
//! does I/O.

#![no_std]

#[macro_use]
extern crate alloc;

mod keeping;
mod narration;
mod node_lines;
mod random;
mod referee;
pub mod replay;
mod stage;
mod storm;
mod story;
mod words;
mod world;

pub use keeping::{WishReport, WishStorm};
pub use random::Random;
pub use referee::Referee;
pub use storm::{Fault, Storm, StormReport};
pub use story::{StoryError, play};
pub use world::World;
