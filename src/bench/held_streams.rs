//! Opens streams and holds them open, to measure their cost at the endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::BodyExt;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::client::Client;
use super::response::RequestError;

/// Number of streams to open concurrently.
const OPENING: usize = 64;
/// File descriptors that this program needs in addition to its connections.
const FILES_BESIDE: u64 = 64;

/// Raises the limit on open files for this many connections.
pub fn allow_files(connections: u64) -> Result<(), String> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let wanted = connections + FILES_BESIDE;
    let limits = getrlimit(Resource::RLIMIT_NOFILE);
    let (soft, hard) = limits.map_err(|error| format!("the limit of open files: {error}"))?;
    if soft >= wanted {
        return Ok(());
    }
    if hard < wanted {
        return Err(format!(
            "{connections} connections need {wanted} open files, but this user's limit is {hard}; raise it with `ulimit -Hn` as root, or open at most {}",
            hard.saturating_sub(FILES_BESIDE)
        ));
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
        .map_err(|error| format!("the limit of open files cannot be raised to {wanted}: {error}"))
}

/// The state of the held streams.
#[derive(Default)]
pub struct HeldStreams {
    pub open: AtomicU64,
    /// Streams that could not be opened or ended early, by label.
    faults: std::sync::Mutex<BTreeMap<String, (u64, String)>>,
    settled: AtomicU64,
    changed: Notify,
}

impl HeldStreams {
    pub fn faults(&self) -> BTreeMap<String, (u64, String)> {
        crate::locking::locked(&self.faults).clone()
    }

    fn failed(&self, fault: RequestError) {
        let mut faults = crate::locking::locked(&self.faults);
        faults.entry(fault.label).or_insert((0, fault.message)).0 += 1;
    }

    fn settle(&self) {
        self.settled.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits until this many streams are open or have failed.
    pub async fn all_settled(&self, streams: usize) {
        while self.settled.load(Ordering::Relaxed) < streams as u64 {
            self.changed.notified().await;
        }
    }
}

/// Opens the streams and reads them while they last. Dropping the future closes them all.
pub async fn hold(client: Arc<Client>, streams: usize, held: Arc<HeldStreams>) {
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut tasks = JoinSet::new();
    for nth in 0..streams as u64 {
        let (client, held, opening) =
            (Arc::clone(&client), Arc::clone(&held), Arc::clone(&opening));
        tasks.spawn(async move {
            let seat = opening.acquire_owned().await;
            let opened = client.open_stream(nth).await;
            drop(seat);
            let (mut connection, mut body) = match opened {
                Ok(opened) => opened,
                Err(fault) => {
                    held.failed(fault);
                    return held.settle();
                }
            };
            held.open.fetch_add(1, Ordering::Relaxed);
            held.settle();
            while let Some(Ok(_)) = connection.during(body.frame()).await {}
            held.open.fetch_sub(1, Ordering::Relaxed);
            held.failed(RequestError::new(
                "ended",
                "the stream ended while it was held",
            ));
        });
    }
    while tasks.join_next().await.is_some() {}
}
