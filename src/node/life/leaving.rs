//! Ends a node: announces it to the controller, and limits the time for streams, engines and the goodbye.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{ENDING_WITHIN, GOODBYE_WITHIN, Node};
use node_link::NodeReport;

/// Time without any byte after which no stream counts as running.
const QUIET: Duration = Duration::from_secs(2);
/// Interval at which the end of engines and of the connection is checked.
const LOOK_EVERY: Duration = Duration::from_millis(25);

impl Node {
    pub(super) fn leave(&self, why: String) {
        let machine = &self.engines.machine;
        if machine.lock().leaving.replace(why.clone()).is_none() {
            // The controller places nothing more on this node: a later process joins as a new one.
            self.forget();
            machine.report(NodeReport::Leaving { why });
            machine.fewer.notify_waiters();
        }
    }

    /// Waits until the node is to leave and the controller has ended its engines, at most for the drain time. Then ends the
    /// remaining engines, says goodbye, and returns.
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
        // The controller closes the connection after it has received the goodbye.
        let heard = async {
            while machine.lock().is_connected {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(GOODBYE_WITHIN, heard).await.is_err() {
            tracing::warn!(
                "the controller has not received the goodbye; it will notice the silence"
            );
        }
        tracing::info!("node {} has ended", self.settings.name);
    }

    /// Waits until no stream moves, at most for the drain time.
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

    /// Ends all engines, each with its own grace period, and returns when they are gone.
    pub(super) async fn end_engines(&self) {
        let machine = &self.engines.machine;
        machine.stop_all(false);
        let longest = {
            let inner = machine.lock();
            let graces = inner
                .engines
                .values()
                .map(|engine| engine.kept.stop_grace_ms);
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
