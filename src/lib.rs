//! model-pool: one OpenAI-compatible endpoint for all the models of a lab, on GPU memory that is
//! always too small. This package is the program: it combines the crates of `src/` and re-exports
//! them for the tests. docs/architecture.md describes each crate.

pub use {
    access, catalog, config, controller, engine, guardian, http, inventory, pool, schedule, sim,
    simulate, source, store,
};

pub mod check;
pub mod cli;
pub mod serve;
