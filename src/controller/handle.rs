//! The controller's interface for the HTTP layer and the schedule: takes seats, gives orders and reads snapshots.
//! One file because every caller of the controller goes through this handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::client_plans::ClientPlans;
use crate::clock::Clock;
use crate::gates::seat_counts::guests_of;
use crate::gates::{BatchRoom, EarlierSeats, Gate, Lease, Route, Routes, SeatCounts, SeatUser};
use crate::lookups::{AdapterError, AdapterFound, AdapterLookups, HubLookups, LookupCaller};
use crate::messages::{ChangeError, Message, NodePeer, OrderTerms, Terms};
use crate::nodes::{LinkEnd, NodeConnections};
use crate::view::{ComparedWaits, LoadPath, LoadTimeline, Snapshot, WaitForecasts};
use crate::what_if::{Assumptions, WhatIf, what_if};
use catalog::{BrokenModel, Changes, Entry, Warning};
use config::Config;
use pool::{
    BatchDemand, BatchHour, BatchOutlook, BatchWork, Command, GroupId, Groups, KeyId, LoadOrder,
    ModelId, OrderId, Outcome, Plan, Pool, Refusal, Span, Ticket, Time,
};
use store::{NodePass, Store, StoredRecord};

/// The controller is shutting down or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerBusy;

/// Result of a request for a seat.
#[derive(Debug)]
pub enum Seat {
    /// The model was ready.
    Now(Lease),
    /// The model is not ready; the request waits in the queue.
    Wait(QueueEntry),
}

/// A place in a model's queue. Dropping it leaves the queue (Q3).
#[derive(Debug)]
pub struct QueueEntry {
    pub ticket: Ticket,
    response: oneshot::Receiver<Result<Lease, Refusal>>,
    inbox: mpsc::UnboundedSender<Message>,
    responded: bool,
}

impl QueueEntry {
    /// Waits for the seat, or for the reason it is refused. Cancel safe.
    pub async fn seat(&mut self) -> Result<Lease, Refusal> {
        let response = (&mut self.response).await;
        self.responded = true;
        response.unwrap_or(Err(Refusal::ShuttingDown))
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        // A seat that has been granted in the meantime is dropped with the channel, and so given back.
        if !self.responded {
            let _ = self.inbox.send(Message::Left {
                ticket: self.ticket,
            });
        }
    }
}

/// An order that the loop has received.
#[derive(Debug)]
pub struct PendingOrder {
    pub order: OrderId,
    accepted: oneshot::Receiver<()>,
    settled: oneshot::Receiver<Outcome>,
}

impl PendingOrder {
    /// Waits until the order is stored or already settled (D1). An error means the controller is gone and the state of the order is
    /// unknown.
    pub async fn accepted(&mut self) -> Result<(), ControllerBusy> {
        (&mut self.accepted).await.map_err(|_| ControllerBusy)
    }

    pub async fn settled(mut self) -> Result<Outcome, ControllerBusy> {
        self.outcome().await
    }

    /// Like [`PendingOrder::settled`]. A call that is dropped before the outcome can be repeated.
    pub async fn outcome(&mut self) -> Result<Outcome, ControllerBusy> {
        (&mut self.settled).await.map_err(|_| ControllerBusy)
    }

    /// The outcome, if it is known already.
    pub fn try_settled(&mut self) -> Option<Outcome> {
        self.settled.try_recv().ok()
    }
}

#[derive(Clone)]
pub struct Handle {
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) routes: Arc<ArcSwap<Routes>>,
    pub(super) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(super) numbers: Arc<AtomicU64>,
    pub(super) events: broadcast::Sender<Arc<StoredRecord>>,
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    pub(super) load_path: Arc<ArcSwap<LoadPath>>,
    pub(super) published: watch::Sender<u64>,
    pub(super) load_timeline: LoadTimeline,
    pub(super) wait_forecasts: Arc<WaitForecasts>,
    pub(super) earlier_seats: EarlierSeats,
    pub(super) batch_room: Arc<BatchRoom>,
    pub(super) hub_lookups: Arc<HubLookups>,
    pub(super) client_plans: Arc<ClientPlans>,
    pub(super) adapter_lookups: Arc<AdapterLookups>,
}

impl Handle {
    /// The catalogue's entry and the replicas of a model, by its name or an alias.
    pub fn route(&self, name: &str) -> Option<Arc<Route>> {
        self.routes.load().get(name)
    }

    /// The entries of all models, by name.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.routes.load().entries()
    }

    /// The counts of requests with a target, by model: in time, and late.
    pub fn first_tokens(&self) -> Vec<(Arc<str>, (u64, u64))> {
        let routes = self.routes.load();
        let entries = routes.entries().into_iter();
        let counts = entries.filter_map(|entry| {
            let route = routes.get(&entry.name)?;
            Some((Arc::clone(&route.name), route.first_tokens.counts()))
        });
        counts.collect()
    }

    /// Forecasts of waits compared with the waits, since the start of the service.
    pub fn compared_waits(&self) -> ComparedWaits {
        self.wait_forecasts.read()
    }

    /// Names similar to this one.
    pub fn closest(&self, name: &str) -> Vec<String> {
        self.routes.load().catalog.closest(name)
    }

    /// Model files that cannot be used, with the names of their models.
    pub fn broken(&self) -> Vec<BrokenModel> {
        self.routes.load().catalog.broken().to_vec()
    }

    /// The model that this name probably means, if its file is broken and the model is not served.
    pub fn broken_model(&self, name: &str) -> Option<BrokenModel> {
        self.routes.load().catalog.broken_model(name).cloned()
    }

    /// Takes a seat on a ready replica, or a place in the queue.
    ///
    /// - `conversation` identifies the prefix that the request continues: among several replicas, the one that has computed it is
    ///   preferred.
    /// - `adapter` is the adapter that the request uses: replicas that have loaded it come first, then replicas with room for it.
    /// - `gives_up` is the time at which the client is expected to leave.
    pub fn seat(
        &self,
        route: &Route,
        user: SeatUser,
        conversation: Option<u64>,
        adapter: Option<&str>,
        gives_up: Option<Time>,
    ) -> Result<Seat, ControllerBusy> {
        if let Some(lease) = self.seat_now(route, &user, conversation, adapter) {
            return Ok(Seat::Now(lease));
        }
        let ticket = Ticket(self.number());
        let (reply, response) = oneshot::channel();
        let message = Message::Seat {
            ticket,
            model: route.model,
            user,
            gives_up,
            reply,
        };
        self.inbox.send(message).map_err(|_| ControllerBusy)?;
        Ok(Seat::Wait(QueueEntry {
            ticket,
            response,
            inbox: self.inbox.clone(),
            responded: false,
        }))
    }

    /// Takes a seat if one is free now. Queues no request and loads nothing.
    pub fn seat_now(
        &self,
        route: &Route,
        user: &SeatUser,
        conversation: Option<u64>,
        adapter: Option<&str>,
    ) -> Option<Lease> {
        let lease = route.enter(user, conversation, adapter)?;
        route.arrivals.came(self.clock.now());
        Some(lease)
    }

    /// Takes room for a batch request on a ready replica, if interactive requests leave some. `cut` fires when the room is lost; the
    /// request must then end.
    pub fn batch_seat(
        &self,
        route: &Route,
        user: &SeatUser,
        cut: &CancellationToken,
    ) -> Option<Lease> {
        route.enter_batch(user, cut)
    }

    /// The signal that room for batch requests may have appeared.
    pub fn batch_room(&self) -> &BatchRoom {
        &self.batch_room
    }

    /// Sets the batch requests that wait, by model, which replace the earlier ones.
    pub fn set_batches(&self, demands: Vec<BatchDemand>) -> Result<(), ControllerBusy> {
        self.inbox
            .send(Message::Batches(demands))
            .map_err(|_| ControllerBusy)
    }

    /// Notes in the history that a batch is expected to miss its deadline.
    pub fn warn_of_batch(&self, model: ModelId, message: String) -> Result<(), ControllerBusy> {
        self.inbox
            .send(Message::BatchWarned { model, message })
            .map_err(|_| ControllerBusy)
    }

    /// The forecasts of batches, made on a copy of the pool. `works` is in the order in which the batches of a model run; `hours`
    /// begins with the present.
    pub async fn batch_outlook(
        &self,
        works: Vec<BatchWork>,
        hours: Vec<BatchHour>,
        deadline_evicts: bool,
    ) -> Result<BatchOutlook, ControllerBusy> {
        let clock = self.clock;
        self.in_copy(move |pool| pool.batch_outlook(clock.now(), &works, &hours, deadline_evicts))
            .await
    }

    /// Looks for an adapter that the model's file does not list, below the model's adapter path.
    pub async fn adapter(
        &self,
        entry: &Arc<Entry>,
        name: &str,
        caller: &LookupCaller,
    ) -> Result<Arc<AdapterFound>, AdapterError> {
        let clock = self.clock;
        self.adapter_lookups
            .find(entry, name, caller, move || clock.now())
            .await
    }

    /// Adapters of the model that were found recently or that a replica has loaded.
    pub fn known_adapters(&self, route: &Route) -> Vec<String> {
        let looked = self
            .adapter_lookups
            .known(&route.entry.name, self.clock.now());
        let mut names: std::collections::BTreeSet<String> = looked.into_iter().collect();
        names.extend(route.adapters());
        names.into_iter().collect()
    }

    /// Hands an order to the loop, which carries it out even if no caller waits for the outcome. `by`: the key or person whom the
    /// history names.
    pub fn order(
        &self,
        command: Command,
        by: Option<KeyId>,
    ) -> Result<PendingOrder, ControllerBusy> {
        let terms = OrderTerms {
            by,
            ..OrderTerms::default()
        };
        self.order_on(command, terms)
    }

    /// Like [`Handle::order`], on these terms.
    pub fn order_on(
        &self,
        command: Command,
        terms: OrderTerms,
    ) -> Result<PendingOrder, ControllerBusy> {
        let order = OrderId(self.number());
        let (accept, accepted) = oneshot::channel();
        let (settle, settled) = oneshot::channel();
        let message = Message::Order {
            order,
            command,
            terms,
            accepted: accept,
            settled: settle,
        };
        self.inbox.send(message).map_err(|_| ControllerBusy)?;
        Ok(PendingOrder {
            order,
            accepted,
            settled,
        })
    }

    /// The decision for a load, with the expected time until it has ended. Made on a copy of the pool.
    pub async fn plan(
        &self,
        load: LoadOrder,
    ) -> Result<Option<(Plan, Option<Span>)>, ControllerBusy> {
        let clock = self.clock;
        self.in_copy(move |pool| {
            let (preview, expected) = pool.preview_with_forecast(clock.now(), &load)?;
            Some((preview.plan, expected))
        })
        .await
    }

    /// Computes with a copy of the pool, on a thread that may block: with thousands of devices it takes many milliseconds.
    pub(super) async fn in_copy<T: Send + 'static>(
        &self,
        work: impl FnOnce(Pool) -> T + Send + 'static,
    ) -> Result<T, ControllerBusy> {
        let (reply, response) = oneshot::channel();
        self.inbox
            .send(Message::Copy { reply })
            .map_err(|_| ControllerBusy)?;
        let pool = response.await.map_err(|_| ControllerBusy)?;
        let worked = tokio::task::spawn_blocking(move || work(*pool)).await;
        worked.map_err(|_| ControllerBusy)
    }

    /// Sets the groups of callers with their members. Requests that wait or run stay, and count for the new group of their key (F6).
    pub fn set_groups(&self, groups: Groups) -> Result<(), ControllerBusy> {
        self.inbox
            .send(Message::Groups(groups))
            .map_err(|_| ControllerBusy)
    }

    /// Sets the group of a person, before the person's next request.
    pub fn set_member(&self, key: KeyId, group: Option<GroupId>) -> Result<(), ControllerBusy> {
        self.inbox
            .send(Message::Member { key, group })
            .map_err(|_| ControllerBusy)
    }

    /// The number of requests that wait for a seat, counted after all earlier messages. An error means the controller is gone.
    pub async fn waiting(&self) -> Result<usize, ControllerBusy> {
        let (reply, response) = oneshot::channel();
        self.inbox
            .send(Message::Waiting { reply })
            .map_err(|_| ControllerBusy)?;
        response.await.map_err(|_| ControllerBusy)
    }

    /// Serves the connection of a node until it ends, and logs the reason.
    pub async fn serve_node(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        peer: NodePeer,
        pass: NodePass,
    ) {
        let connections = NodeConnections {
            inbox: self.inbox.clone(),
            store: Arc::clone(&self.store),
            snapshot: Arc::clone(&self.snapshot),
            clock: self.clock,
        };
        let ended = connections.serve(stream, peer, pass).await;
        let peer = peer.address;
        match ended {
            Ok(()) => tracing::info!(%peer, "a node has closed its connection"),
            // The reason has been logged already.
            Err(LinkEnd::GivenUp) => tracing::debug!(%peer, "the connection of a node was closed"),
            Err(end) => tracing::warn!(%peer, "the connection of a node has ended: {end}"),
        }
    }

    /// The pool's decisions under these assumptions, made on a copy of the pool.
    pub async fn what_if(&self, assumptions: Assumptions) -> Result<WhatIf, ControllerBusy> {
        let clock = self.clock;
        self.in_copy(move |pool| what_if(pool, clock.now(), &assumptions))
            .await
    }

    /// Registers a model, or replaces its registration. Returns after it is stored (D1).
    pub async fn register(&self, document: serde_json::Value) -> Result<Vec<Warning>, ChangeError> {
        self.register_under(document, Terms::Any).await
    }

    pub(super) async fn register_under(
        &self,
        document: serde_json::Value,
        terms: Terms,
    ) -> Result<Vec<Warning>, ChangeError> {
        let (reply, response) = oneshot::channel();
        self.inbox
            .send(Message::Register {
                document,
                terms,
                reply,
            })
            .map_err(|_| ChangeError::Gone)?;
        response.await.map_err(|_| ChangeError::Gone)?
    }

    /// Removes a registered model from the catalogue; its replicas drain.
    pub async fn remove(&self, name: &str) -> Result<(), ChangeError> {
        let (reply, response) = oneshot::channel();
        let name = name.to_owned();
        self.inbox
            .send(Message::Remove { name, reply })
            .map_err(|_| ChangeError::Gone)?;
        response.await.map_err(|_| ChangeError::Gone)?
    }

    /// Reads the catalogue's files again as this configuration names them, and applies only the differences. If they can be read,
    /// the configuration is in force on return; otherwise nothing has changed.
    pub async fn reload(
        &self,
        config: Arc<Config>,
    ) -> Result<(Changes, Vec<Warning>), ChangeError> {
        let (reply, response) = oneshot::channel();
        self.inbox
            .send(Message::Reload { config, reply })
            .map_err(|_| ChangeError::Gone)?;
        response.await.map_err(|_| ChangeError::Gone)?
    }

    /// Ends the loop without a shutdown: the guardians expect another controller. Requests that still wait are refused.
    pub fn hand_over(&self) -> Result<(), ControllerBusy> {
        self.inbox
            .send(Message::HandOver)
            .map_err(|_| ControllerBusy)
    }

    /// Seats taken through this controller, per replica. Available after its loop has ended, too.
    pub fn seats_taken(&self) -> Vec<SeatCounts> {
        let seats = |gate: &Arc<Gate>| {
            let reading = gate.reading();
            SeatCounts {
                replica: reading.replica,
                in_flight: reading.in_flight.saturating_sub(gate.guests()),
                last_end: reading.last_end,
            }
        };
        self.routes.load().gates().iter().map(seats).collect()
    }

    /// Takes the reports of earlier controllers about their requests. A request that is not reported has ended.
    pub fn seats_of_earlier_controllers(&self, seats: &[SeatCounts]) {
        // Replicas adopted later read the reports from there.
        self.earlier_seats.report(seats, || {
            for gate in self.routes.load().gates() {
                gate.set_guests(guests_of(gate.replica, seats));
            }
        });
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Changes with each new snapshot.
    pub fn published(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// The state of the load path: whether loads finish, as of at most a second ago.
    pub fn load_path(&self) -> Arc<LoadPath> {
        self.load_path.load_full()
    }

    /// The stages of the latest loads.
    pub fn load_timeline(&self) -> &LoadTimeline {
        &self.load_timeline
    }

    /// New records of the history, after they are stored.
    pub fn follow(&self) -> broadcast::Receiver<Arc<StoredRecord>> {
        self.events.subscribe()
    }

    /// The store: history, keys and small facts.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Numbers follow the order of arrival, for requests and orders alike.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
