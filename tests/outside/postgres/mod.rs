//! The state in a real PostgreSQL, which `.ci/postgres` installs; without it these tests report that they were skipped. The store's
//! contents are tested by the same files as for SQLite.

mod database_open;
mod locked_tables;
mod migration;
mod one_writer;
mod outage;
mod slow_reads;
mod speed;
mod standby;
mod state;
#[path = "../../plain/store.rs"]
mod store;
#[path = "../../plain/store_votes.rs"]
mod store_votes;
