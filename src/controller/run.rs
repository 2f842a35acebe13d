//! Starts the loop and runs it on a dedicated thread. It waits for the next message or the next due time, and awaits nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;

use crate::control::{Control, Heartbeat, Parts};
use crate::engines::{EarlierApplications, earlier_applications};
use crate::gates::{GateReport, Giver, Minute, SeatRequest, SeatUser};
use crate::handle::Handle;
use crate::journal::keeper;
use crate::lookups::{AdapterLookups, HubLookups};
use crate::messages::Message;
use crate::tasks::dedicated_thread::spawn_on_own_thread;
use crate::tasks::{WatchInputs, inventory_task, watch_task};
use crate::view::remote_device;
use config::OnRestart;
use inventory::Inventory;
use pool::{Event, ServiceClass, Span, Tokens};

/// Interval at which gates are read while requests are inside, to keep readers up to date.
const READ_GATES_EVERY: Span = Span(250);
/// Number of records that a slow subscriber of events may lag behind.
const EVENTS_MAX: usize = 4096;

/// The name of the loop's thread.
const THREAD: &str = "pool";

/// Time limit for the cluster at shutdown.
pub const CLUSTER_WITHIN: Duration = Duration::from_secs(20);
/// Time limit for the loop's last writes, however many there are.
pub const KEEPER_WITHIN: Duration = Duration::from_secs(20);

/// Starts the loop. The join handle ends when the pool has finished its shutdown and all writes are done, or [`KEEPER_WITHIN`] has
/// passed.
#[expect(clippy::disallowed_methods, reason = "the keeper; joined by the loop")]
pub fn spawn(parts: Parts) -> (Handle, JoinHandle<()>) {
    let (inbox, messages) = mpsc::unbounded_channel();
    let (jobs, todo) = mpsc::unbounded_channel();
    let (events, _) = broadcast::channel(EVENTS_MAX);
    let names = remote_device::names_with_it(parts.inventory.devices());
    let keeper = tokio::spawn(keeper::run(
        Arc::clone(&parts.store),
        todo,
        inbox.downgrade(),
        events.clone(),
        names,
        keeper::Trimming::new(parts.clock, parts.config.clone()),
    ));
    let numbers = Arc::new(AtomicU64::new(parts.last_order + 1));
    let (mut control, start) = Control::new(parts, inbox, jobs, &numbers);
    let follower = control.follow_cluster();
    // Accepts no request before the initial state is known.
    let inventory = control.begin(start);
    let handle = Handle {
        inbox: control.background.inbox(),
        routes: Arc::clone(&control.publishing.routes),
        snapshot: Arc::clone(&control.publishing.snapshot),
        numbers,
        events,
        store: control.journal.store(),
        clock: control.clock,
        load_path: Arc::clone(&control.publishing.load_path),
        published: control.publishing.published.clone(),
        load_timeline: control.load_timeline.clone(),
        wait_forecasts: Arc::clone(&control.forecasts.compared),
        earlier_seats: control.earlier_seats.clone(),
        batch_room: control.engines.batch_room(),
        adapter_lookups: Arc::new(AdapterLookups::new(Arc::clone(&control.fetches.sources))),
        client_plans: Arc::default(),
        hub_lookups: Arc::new(HubLookups::new(
            Arc::clone(&control.fetches.sources),
            control.live.clone(),
        )),
    };
    let task = spawn_on_own_thread(THREAD, async move {
        control.run(messages, inventory).await;
        // Requests for nodes that the pool has withdrawn are withdrawn in the cluster too.
        if let Some(follower) = follower
            && tokio::time::timeout(CLUSTER_WITHIN, follower)
                .await
                .is_err()
        {
            tracing::warn!(
                "the cluster does not respond; `model-pool cluster status` shows what is still requested"
            );
        }
        end_of_keeper(keeper, KEEPER_WITHIN).await;
    });
    (handle, task)
}

/// Waits for the last writes. Writes that are not done in time are lost: a service manager would otherwise kill the process.
async fn end_of_keeper(mut keeper: JoinHandle<()>, within: Duration) {
    match tokio::time::timeout(within, &mut keeper).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the keeper of the store ended badly"),
        Err(_) => {
            keeper.abort();
            tracing::error!(
                "the last writes took longer than {within:?}: records of the history and changes that the pool made on its own may be lost"
            );
        }
    }
}

impl Control {
    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>, inventory: Inventory) {
        self.background.spawn(inventory_task::run(
            inventory,
            Arc::clone(&self.publishing.snapshot),
            self.background.inbox(),
            self.clock,
            self.devices.look(),
        ));
        self.background.spawn(watch_task::run(WatchInputs {
            snapshot: Arc::clone(&self.publishing.snapshot),
            routes: Arc::clone(&self.publishing.routes),
            inbox: self.background.inbox(),
            responded: Arc::clone(&self.publishing.responded),
            clock: self.clock,
            load_path: Arc::clone(&self.publishing.load_path),
            serve_writers: Arc::clone(self.launcher.serve_writers()),
        }));
        self.background
            .spawn(earlier_applications::run(EarlierApplications {
                writers: Arc::clone(self.launcher.serve_writers()),
                routes: Arc::clone(&self.publishing.routes),
                seats: self.earlier_seats.clone(),
                inbox: self.background.inbox(),
                clock: self.clock,
                keep: self.config.pool.on_restart == OnRestart::Adopt,
            }));
        let mut minute = Minute::from_time(self.clock.now());
        while !self.finished {
            if !self.journal.leads() {
                // From here on nothing is decided or ordered, not even the end of an engine: `serve` ends this process (D4).
                std::future::pending::<()>().await;
            }
            let publish = self.publishing.due();
            let busy = self.engines.is_busy();
            let read = busy.then(|| self.timers.turned() + READ_GATES_EVERY);
            let next = self
                .timers
                .wake()
                .into_iter()
                .chain(publish)
                .chain(read)
                .chain(self.heartbeat.as_ref().map(Heartbeat::next))
                .chain(self.nodes.next_look())
                .chain([minute.end()]);
            let next = next.min();
            let sleep = tokio::time::sleep_until(self.clock.instant(next.unwrap_or_default()));
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    // The leadership may have been lost while the loop waited or was suspended.
                    Some(message) if self.journal.leads() => self.hear(message),
                    Some(_) => continue,
                    None => break,
                },
                () = sleep, if next.is_some() => {
                    let now = self.clock.now();
                    let is_due = self.timers.wake().into_iter().chain(read).any(|at| at <= now);
                    if is_due && self.journal.leads() {
                        self.turn(Event::TimerFired);
                    }
                }
            }
            self.background.reap();
            if self.journal.leads() {
                self.follow_wall_clock();
            }
            let now = self.clock.now();
            if let Some(heart) = &mut self.heartbeat {
                heart.beat(now);
            }
            self.look_at_nodes(now);
            if let Some(ended) = minute.ended(now) {
                if self.journal.leads() && !self.finished {
                    // Counts requests since the last reading of the gates in their own minute.
                    self.turn(Event::TimerFired);
                }
                if self.publishing.due().is_some() {
                    self.publish();
                }
                self.remember();
                self.keep_usage(ended);
                self.keep_ledger(ended);
                if self.config.parking.read_ahead {
                    let next = self.reader.choose(&self.pool, &self.models, now);
                    self.read_ahead(next);
                }
                self.look_for_missing_programs();
            }
            if self.publishing.due().is_some_and(|at| at <= now) {
                self.publish();
            }
        }
        self.publish();
        self.record_final_sums();
        // Engines that still run then are left to the next process.
        self.background.shutdown().await;
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Seat {
                ticket,
                model,
                user,
                gives_up,
                reply,
            } => {
                let came = self.clock.now();
                let request = SeatRequest {
                    model,
                    user,
                    came,
                    forecast: None,
                    reply,
                };
                self.seats.insert(ticket, request);
                let SeatUser {
                    key,
                    class,
                    expected,
                    is_batch: _,
                } = user;
                let mut events = vec![Event::RequestArrived { ticket, model, key }];
                if (class, expected) != (ServiceClass::Default, Tokens::ZERO) {
                    events.push(Event::RequestDescribed {
                        ticket,
                        class,
                        expected,
                    });
                }
                events.extend(gives_up.map(|at| Event::RequestGivesUp { ticket, at }));
                self.turn_all(events);
            }
            Message::Left { ticket } => {
                self.seats.remove(&ticket);
                self.turn(Event::RequestLeft { ticket });
            }
            Message::Batches(demands) => self.turn(Event::BatchesSet { demands }),
            Message::BatchWarned { model, message } => {
                self.turn(Event::BatchWarned { model, message });
            }
            Message::Groups(groups) => self.turn(Event::GroupsSet { groups }),
            Message::Member { key, group } => self.turn(Event::MemberSet { key, group }),
            Message::Gate(GateReport::Measured { replica }) => {
                if let Some(model) = self.engines.get(replica).map(|facts| facts.model) {
                    self.measure_tokens(model);
                }
            }
            Message::Gate(report) => self.turn(match report {
                GateReport::Drained { replica } => Event::Drained { replica },
                GateReport::SeatFreed | GateReport::Measured { .. } => Event::TimerFired,
                GateReport::KeptAlive { replica, keep } => Event::KeptAlive { replica, keep },
            }),
            Message::Sign { requested } => self
                .publishing
                .responded
                .store(requested.0, Ordering::Relaxed),
            Message::Order {
                order,
                command,
                terms,
                accepted,
                settled,
            } => {
                self.forecasts.ordered();
                let by_mcp = terms.by_mcp;
                let giver = terms.by.map(|key| Giver { key, by_mcp });
                self.orders.begin(order, &command, giver, accepted, settled);
                let priority_max = terms.priority_max;
                self.turn(match (terms.planned, priority_max) {
                    (Some(effect), priority_max) => Event::PlannedOrderReceived {
                        order,
                        command,
                        priority_max,
                        effect,
                    },
                    (None, None) => Event::OrderReceived { order, command },
                    (None, Some(priority_max)) => Event::GroupOrderReceived {
                        order,
                        command,
                        priority_max,
                    },
                });
            }
            Message::Waiting { reply } => {
                // The caller may have left.
                let _ = reply.send(self.seats.len());
            }
            Message::Forecasts { seats, took } => {
                let now = self.clock.now();
                self.forecasts.take(seats, took, &mut self.seats, now);
                self.publishing.outdated();
            }
            Message::Copy { reply } => {
                self.turn(Event::TimerFired);
                // The caller may have left.
                let _ = reply.send(Box::new(self.pool.clone()));
            }
            Message::Saved { order, failure } => {
                // A failure settles the order first: no client gets `accepted` for an order that was not stored.
                self.turn(match failure {
                    None => Event::Saved { order },
                    Some(message) => Event::SaveFailed { order, message },
                });
                if self.orders.is_open(order) {
                    // Callers that are notified of the acceptance must be able to see its effects.
                    self.publish();
                }
                self.orders.accept(order);
            }
            Message::Report { replica, report } => self.report(replica, report),
            Message::Applications(found) => self.take_late(found),
            Message::Readings(readings) => self.readings(readings),
            Message::DeviceTrouble(event) => self.device_trouble(event),
            Message::LoadsFrom {
                replica,
                tier,
                weights,
            } => {
                self.turn(Event::LoadsFrom { replica, tier });
                if let Some(weights) = weights {
                    self.weights_differ(replica, weights);
                }
            }
            Message::FetchProgressed { model } => self.fetch_progressed(model),
            Message::FetchEnded {
                model,
                nth,
                outcome,
            } => self.fetch_ended(model, nth, outcome),
            Message::ReadAheadEnded { model, end } => {
                self.reader.ended(model, &self.models.name(model), end);
            }
            Message::Parked(parked) => self.parked(parked),
            change @ (Message::Register { .. }
            | Message::Remove { .. }
            | Message::Figure { .. }
            | Message::FigureForDevices
            | Message::Reload { .. }) => {
                self.models.queue(change);
                self.next_change();
            }
            Message::Figured(figured) => self.figured(*figured),
            Message::Node(message) => self.node_message(message),
            Message::Cluster(news) => self.cluster_news(news),
            Message::HandOver => self.finished = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn final_writes_that_do_not_finish_are_abandoned() {
        let written = Arc::new(());
        let held = Arc::clone(&written);
        #[expect(clippy::disallowed_methods, reason = "given up by what is tested")]
        let keeper = tokio::spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        end_of_keeper(keeper, Duration::from_millis(1)).await;
        while Arc::strong_count(&written) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
