//! Tests that need no built program: files that are read, decisions from them, the store, the simulator, and the house
//! rules.

mod book;
mod config;
mod engine_claims;
mod engine_keys;
mod estimates;
mod gpus;
mod inventory;
mod model_files;
mod node_storms;
mod old_generation;
mod old_keys;
mod parsers;
mod schedule;
mod schedule_real;
mod schedule_start;
mod sources;
mod store;
mod store_backup;
mod store_open;
mod store_plans;
mod store_votes;
mod stories;
mod storms;
mod tidy;
mod wishes;
