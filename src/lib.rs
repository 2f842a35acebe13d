//! model-pool: one OpenAI-compatible endpoint for all the models of a lab, on GPU memory that is
//! always too small. This package is the program: it puts the crates of `src/` together, and gives them
//! to the tests under one name. docs/architecture.md says what each crate is for.

pub use {
    access, catalog, config, controller, engine, guardian, http, inventory, pool, schedule, sim,
    simulate, source, store,
};

pub mod check;
pub mod cli;
pub mod serve;
