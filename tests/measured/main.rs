//! Measurements that need an idle machine: the program at rest, time and memory of requests from strangers, what a token
//! costs, growth, a long history, open pages, a full disk, a storm of kills, the policy on recorded traces, and the
//! simulator's forecast beside what happened. One test at a time.

mod at_rest;
mod dialects;
mod forecast;
mod full_disk;
mod growth;
mod hostile_bodies;
mod kill_storm;
mod long_history;
mod open_pages;
mod policy;

use tokio::sync::Mutex;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());
