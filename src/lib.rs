//! model-pool: one OpenAI-compatible endpoint for all the models of a lab, on GPU memory that is
//! always too small. A module imports only from layers below its own; `tests/tidy.rs` holds that.
//!
//! | layer | modules                                   |
//! |-------|-------------------------------------------|
//! | 0     | `pool`: decides, purely                    |
//! | 1     | `config`, `catalog`: what was written down |
//! | 2     | `engine`, `inventory`, `limits`, `oidc`, `source`, `store`: drivers |
//! | 3     | `controller`: the loop; `sim`: its double  |
//! | 4     | `http`, `schedule`: thin surfaces          |
//! | 5     | `serve`, `check`, `simulate`, `bench`, `cli`, `fuzzing` |

pub mod pool;

pub mod catalog;
pub mod config;

pub mod guardian;

pub mod engine;
pub mod inventory;
pub mod limits;
pub mod oidc;
pub mod source;
pub mod store;

pub mod controller;
pub mod sim;

pub mod http;
pub mod schedule;

pub mod bench;
pub mod check;
pub mod cli;
#[doc(hidden)]
pub mod fuzzing;
pub mod serve;
pub mod simulate;
