//! What is measured while nothing else runs: time and memory of what strangers send, what grows, a full disk, and
//! a storm of kills. One test at a time.

mod full_disk;
mod growth;
mod hostile_bodies;
mod kill_storm;

use tokio::sync::Mutex;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());
