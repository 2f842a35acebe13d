//! model-pool: one OpenAI-compatible endpoint for all the models of a lab, on GPU memory that is
//! always too small. This package is the program: it combines the crates of `src/` and re-exports
//! them for the tests. docs/internals/architecture.md describes each crate.

pub use {
    access, catalog, cluster, config, controller, engine, guardian, http, inventory, pool,
    schedule, sim, simulate, source, store,
};

pub mod admin_key;
pub mod backup;
pub mod check;
pub mod cli;
pub mod cluster_command;
mod cuda;
mod devices;
mod fetch_settings;
mod file_owner;
pub mod import_command;
mod job_gpus;
pub mod local_server;
pub mod migrate_store;
pub mod node_command;
pub mod pull;
pub mod serve;
pub mod simulate_command;
pub mod stop_signal;
