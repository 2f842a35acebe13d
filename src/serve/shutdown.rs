//! Ends the service: in order after a signal, or by leaving its engines to the process that takes over.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::lock::StateLock;
use super::starting::deposed;
use super::stop_time::{self, CONNECTIONS_WITHIN};
use super::takeover::{Successor, TakeoverSocket};
use super::telemetry::{self, Telemetry};
use super::{evening, limits, notify, seats, tasks};
use crate::stop_signal::stop_signal;
use access::limits::Limits;
use config::{Config, LiveConfig};
use controller::Handle;
use engine::Guardians;
use http::{KeyUsages, StoredResponses};
use pool::Command;
use schedule::Schedule;
use store::Store;

/// Time limit for the loop to end, including its last writes.
const LOOP_WITHIN: Duration = Duration::from_secs(20);
/// Time that requests waiting for a load may delay a takeover.
const WAITERS_WITHIN: Duration = Duration::from_secs(10);

/// The parts of a running service. Without an orderly end, they are dropped in this order: the part started last comes first.
pub(super) struct Serving {
    pub server: JoinHandle<()>,
    /// Runs batches and background responses until `stop` fires.
    pub batching: AbortOnDropHandle<()>,
    pub storing: AbortOnDropHandle<()>,
    pub counting: AbortOnDropHandle<()>,
    pub usages: Arc<KeyUsages>,
    pub responses: Arc<StoredResponses>,
    /// Fires when unfinished responses have to end.
    pub ending: CancellationToken,
    pub takeover_socket: TakeoverSocket,
    /// Fires when no further connections are accepted.
    pub stop: CancellationToken,
    pub cleaning: AbortOnDropHandle<()>,
    pub follow: AbortOnDropHandle<()>,
    pub noted: AbortOnDropHandle<()>,
    pub upkeep: AbortOnDropHandle<()>,
    pub schedule: Arc<Schedule>,
    pub limits: Arc<Limits>,
    /// The controller's loop.
    pub controller: JoinHandle<()>,
    pub handle: Handle,
    pub telemetry: Option<Telemetry>,
    pub guardians: Arc<Guardians>,
    pub store: Arc<Store>,
    /// The configuration at the start.
    pub config: Arc<Config>,
    pub live: LiveConfig,
    pub runtime_dir: PathBuf,
}

impl Serving {
    /// Leaves the engines and the state to the process that takes over. Returns after the streams in progress have ended.
    pub async fn hand_over(self, successor: Successor, lock: StateLock) -> Result<(), String> {
        let Serving {
            runtime_dir,
            live,
            config,
            store,
            guardians,
            telemetry,
            handle,
            mut controller,
            limits,
            schedule,
            upkeep,
            noted,
            follow,
            cleaning,
            stop,
            takeover_socket,
            ending,
            responses,
            usages,
            counting: _counting,
            storing: _storing,
            batching,
            mut server,
        } = self;
        tracing::info!(
            "process {} takes over; streams that have begun continue here",
            successor.pid
        );
        stop.cancel();
        // The successor continues the batches.
        let _ = tokio::time::timeout(CONNECTIONS_WITHIN, batching).await;
        if let Err(error) = schedule.stop().await {
            tracing::warn!(%error, "the schedule did not stop cleanly");
        }
        let _ = tokio::time::timeout(WAITERS_WITHIN, queue_is_empty(&handle)).await;
        guardians.leave_to_successor(Duration::from_millis(config.pool.adopt_within.0.0));
        let _ = handle.hand_over();
        if tokio::time::timeout(LOOP_WITHIN, &mut controller)
            .await
            .is_err()
        {
            // The locks end with this process, so the new one can start without its message.
            return Err(
                "the controller did not end in time; the new process continues without it"
                    .to_owned(),
            );
        }
        // Stop before the new process deploys: this process would remove its applications.
        drop((upkeep, noted, follow));
        tasks::end(cleaning).await;
        limits::save(&limits, &store).await;
        evening::note_up(&live, &store).await;
        responses.write_all().await;
        usages.write_all().await;
        store.close_for_successor().await;
        // Before the new process may start, because it has to know which streams continue here.
        let reports = seats::tell(&runtime_dir, handle.clone());
        let _reports = reports.map(|reports| AbortOnDropHandle::new(tasks::start(reports)));
        drop((takeover_socket, lock));
        let finish = Duration::from_millis(live.get().unload_drain().0);
        let finished = async {
            let finished = tokio::time::timeout(finish, &mut server).await;
            if finished.is_err() {
                ending.cancel();
                let _ = tokio::time::timeout(CONNECTIONS_WITHIN, &mut server).await;
            }
            responses.write_all().await;
            usages.write_all().await;
            telemetry::finish(telemetry).await;
        };
        let served = async {
            let served = successor.free().await;
            if served.is_err() {
                // No process serves now: streams in progress must not delay a restart by the service manager.
                ending.cancel();
            }
            served
        };
        tokio::select! {
            (served, ()) = async { tokio::join!(served, finished) } => return served,
            () = stop_signal() => tracing::warn!("ending immediately"),
        }
        ending.cancel();
        let _ = tokio::time::timeout(CONNECTIONS_WITHIN, server).await;
        Ok(())
    }

    /// Lets the requests in flight finish and the engines end. A second signal ends the service immediately.
    pub async fn stop(self, lock: StateLock) -> Result<(), String> {
        let Serving {
            live,
            store,
            guardians,
            telemetry,
            handle,
            controller,
            limits,
            schedule,
            upkeep: _upkeep,
            noted,
            follow: _follow,
            cleaning,
            stop,
            takeover_socket,
            ending,
            responses,
            usages,
            counting,
            storing,
            batching,
            server,
            ..
        } = self;
        notify::stopping();
        tracing::info!(
            "stopping: no new requests, engines drain and stop; a second signal ends the service immediately"
        );
        if let Err(error) = schedule.stop().await {
            tracing::warn!(%error, "the schedule did not stop cleanly");
        }
        let drained = async {
            if let Ok(order) = handle.order(
                Command::Shutdown {
                    drain: live.get().unload_drain(),
                },
                None,
            ) {
                let _ = order.settled().await;
            }
            let _ = controller.await;
        };
        tokio::select! {
            () = drained => {}
            () = stop_signal() => {
                tracing::warn!("ending immediately");
                ending.cancel();
            }
            why = store.deposed() => return Err(deposed(&guardians, &why)),
        }
        stop.cancel();
        let _ = tokio::time::timeout(CONNECTIONS_WITHIN, batching).await;
        let _ = tokio::time::timeout(CONNECTIONS_WITHIN, server).await;
        // The next leader may deploy as soon as the store is closed.
        tasks::end(cleaning).await;
        stop_time::last_writes(async {
            limits::save(&limits, &store).await;
            drop((noted, storing, counting));
            responses.write_all().await;
            usages.write_all().await;
            evening::note_up(&live, &store).await;
            store.close().await;
        })
        .await;
        telemetry::finish(telemetry).await;
        drop((takeover_socket, lock));
        Ok(())
    }
}

/// Returns when no request waits for a load. A request that has just arrived may not be in the queue yet, so the queue is checked
/// three times.
async fn queue_is_empty(handle: &Handle) {
    const PAUSE: Duration = Duration::from_millis(25);
    let mut empty = 0;
    while empty < 3 {
        tokio::time::sleep(PAUSE).await;
        empty = match handle.waiting().await {
            Ok(0) => empty + 1,
            Ok(_) => 0,
            // The loop has ended, and with it the queue.
            Err(_) => return,
        };
    }
}
