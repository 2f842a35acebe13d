//! How a node ends: what it says to its controller, and how long streams, engines and that goodbye may take.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{ENDING_WITHIN, GOODBYE_WITHIN, Node};
use node_link::NodeReport;

/// No byte for so long means that no stream runs.
const QUIET: Duration = Duration::from_secs(2);
/// How often it is looked whether the engines have gone, and whether the controller has heard the goodbye.
const LOOK_EVERY: Duration = Duration::from_millis(25);

impl Node {
    pub(super) fn leave(&self, why: String) {
        let machine = &self.engines.machine;
        if machine.lock().leaving.replace(why.clone()).is_none() {
            machine.report(NodeReport::Leaving { why });
            machine.fewer.notify_waiters();
        }
    }

    /// Waits until the node is to leave and the controller has had its engines end, at most as long as a drain takes;
    /// then ends the rest, says goodbye, and returns.
    pub(super) async fn leaving(&self) {
        let machine = &self.engines.machine;
        let why = loop {
            let changed = machine.fewer.notified();
            if let Some(why) = machine.lock().leaving.clone() {
                break why;
            }
            changed.await;
        };
        let drain = self.agreement().drain;
        let drained = async {
            loop {
                let changed = machine.fewer.notified();
                if !machine.has_engines() {
                    return;
                }
                changed.await;
            }
        };
        if timeout(drain, drained).await.is_err() {
            tracing::warn!("its engines have not drained within {} s", drain.as_secs());
        }
        self.end_engines().await;
        machine.report(NodeReport::Goodbye { why });
        // A controller that has heard it closes the connection.
        let heard = async {
            while machine.lock().is_connected {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(GOODBYE_WITHIN, heard).await.is_err() {
            tracing::warn!("the controller has not heard the goodbye; it will notice the silence");
        }
        tracing::info!("node {} has ended", self.settings.name);
    }

    /// Until no stream has moved for a moment, at most as long as a drain takes.
    pub(super) async fn finish_streams(&self) {
        let quiet = async {
            let mut before = self.relay.moved.load(Ordering::Relaxed);
            loop {
                sleep(QUIET).await;
                let moved = self.relay.moved.load(Ordering::Relaxed);
                if moved == before {
                    return;
                }
                before = moved;
            }
        };
        let _ = timeout(self.agreement().drain, quiet).await;
    }

    /// Each with its own grace period. Returns when all are gone.
    pub(super) async fn end_engines(&self) {
        let machine = &self.engines.machine;
        machine.stop_all(false);
        let longest = {
            let inner = machine.lock();
            let graces = inner.engines.values().map(|it| it.kept.stop_grace_ms);
            Duration::from_millis(graces.max().unwrap_or(0))
        };
        let gone = async {
            while machine.has_engines() {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(longest + ENDING_WITHIN, gone).await.is_err() {
            tracing::error!("engines do not end; their guardians kill them when this process ends");
        }
    }
}
