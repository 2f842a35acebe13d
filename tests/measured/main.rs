//! Measurements that need an idle machine: the idle program, time and memory of strangers' requests, the cost of a token, growth, a
//! long history, a year of the ledger, open pages, a full disk, a storm of kills, the policy on recorded traces, shares of groups, and
//! the simulator's forecast compared with the outcome. Tests run one at a time.

mod dialects;
mod forecast;
mod full_disk;
mod growth;
mod hostile_bodies;
mod idle;
mod kill_storm;
mod ledger_year;
mod long_history;
mod open_pages;
mod policy;
mod shares;

use tokio::sync::Mutex;

/// Held by the running test.
static ALONE: Mutex<()> = Mutex::const_new(());
