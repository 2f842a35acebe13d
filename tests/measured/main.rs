//! Measurements that need an idle machine: time and memory of requests from strangers, what a token costs, growth, a
//! long history, open pages, a full disk, and a storm of kills. One test at a time.

mod dialects;
mod full_disk;
mod growth;
mod hostile_bodies;
mod kill_storm;
mod long_history;
mod open_pages;

use tokio::sync::Mutex;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());
