//! The controller's interface for the HTTP layer and the schedule: take a seat, give an order, read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::adapter_lookups::{AdapterError, AdapterFound, AdapterLookups};
use super::caller_share::LookupCaller;
use super::catalog_change::{ChangeError, Terms};
use super::clock::Clock;
use super::earlier_seats::EarlierSeats;
use super::gate::{Gate, Lease};
use super::hub_lookups::HubLookups;
use super::load_timeline::LoadTimeline;
use super::message::Message;
use super::node_link::{LinkEnd, NodeConnections};
use super::node_messages::NodePeer;
use super::routing::{Route, Routes};
use super::seats_taken::{SeatsTaken, guests_of};
use super::snapshot::Snapshot;
use super::watch::LoadPath;
use super::what_if::{Assumptions, WhatIf, what_if};
use catalog::{BrokenModel, Changes, Entry, Warning};
use config::Config;
use pool::{Command, KeyId, LoadOrder, OrderId, Outcome, Plan, Refusal, Ticket, Time};
use store::{NodePass, Store, StoredRecord};

/// The controller is shutting down or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// What asking for a seat gives.
#[derive(Debug)]
pub enum Seat {
    /// The model was ready.
    Now(Lease),
    /// It is not; this is the place in the queue.
    Wait(Waiting),
}

/// A place in a model's queue. Dropping it leaves the queue (Q3).
#[derive(Debug)]
pub struct Waiting {
    pub ticket: Ticket,
    answer: oneshot::Receiver<Result<Lease, Refusal>>,
    inbox: mpsc::UnboundedSender<Message>,
    answered: bool,
}

impl Waiting {
    /// The seat, or why there is none. May be polled again after a timeout around it.
    pub async fn seat(&mut self) -> Result<Lease, Refusal> {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or(Err(Refusal::ShuttingDown))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A seat that was granted meanwhile lies in the channel and is given back with it.
        if !self.answered {
            let _ = self.inbox.send(Message::Left {
                ticket: self.ticket,
            });
        }
    }
}

/// An order that was handed over.
#[derive(Debug)]
pub struct Ordered {
    pub order: OrderId,
    accepted: oneshot::Receiver<()>,
    settled: oneshot::Receiver<Outcome>,
}

impl Ordered {
    /// Kept in the store, or settled already (D1). An error: unknown, the controller is gone.
    pub async fn accepted(&mut self) -> Result<(), Busy> {
        (&mut self.accepted).await.map_err(|_| Busy)
    }

    pub async fn settled(self) -> Result<Outcome, Busy> {
        self.settled.await.map_err(|_| Busy)
    }

    /// The outcome, if it is there already.
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
    pub(super) earlier_seats: EarlierSeats,
    pub(super) hub_lookups: Arc<HubLookups>,
    pub(super) adapter_lookups: Arc<AdapterLookups>,
}

impl Handle {
    /// The catalogue's entry and the replicas of a model, by its name or an alias.
    pub fn route(&self, name: &str) -> Option<Arc<Route>> {
        self.routes.load().get(name)
    }

    /// Every model's entry, by name.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.routes.load().entries()
    }

    /// Names that look like this one.
    pub fn closest(&self, name: &str) -> Vec<String> {
        self.routes.load().catalog.closest(name)
    }

    /// Model files that cannot be used, by the name of the model.
    pub fn broken(&self) -> Vec<BrokenModel> {
        self.routes.load().catalog.broken().to_vec()
    }

    /// The model that this name probably means, if its file is broken and it is not served.
    pub fn broken_model(&self, name: &str) -> Option<BrokenModel> {
        self.routes.load().catalog.broken_model(name).cloned()
    }

    /// A seat on a ready replica, or a place in the queue. `conversation` stands for what the request goes on
    /// with: of several replicas it prefers the one that has computed that before.
    /// `adapter` is one that the request is for: replicas that have it come first, then those that have room.
    /// `gives_up`: when its client goes away by itself.
    pub fn seat(
        &self,
        route: &Route,
        key: KeyId,
        conversation: Option<u64>,
        adapter: Option<&str>,
        gives_up: Option<Time>,
    ) -> Result<Seat, Busy> {
        if let Some(lease) = self.seat_now(route, conversation, adapter) {
            return Ok(Seat::Now(lease));
        }
        let ticket = Ticket(self.number());
        let (reply, answer) = oneshot::channel();
        let message = Message::Seat {
            ticket,
            model: route.model,
            key,
            gives_up,
            reply,
        };
        self.inbox.send(message).map_err(|_| Busy)?;
        Ok(Seat::Wait(Waiting {
            ticket,
            answer,
            inbox: self.inbox.clone(),
            answered: false,
        }))
    }

    /// A seat if there is one at this moment; no request is queued, and nothing is loaded.
    pub fn seat_now(
        &self,
        route: &Route,
        conversation: Option<u64>,
        adapter: Option<&str>,
    ) -> Option<Lease> {
        let lease = route.enter(conversation, adapter)?;
        route.arrivals.came(self.clock.now());
        Some(lease)
    }

    /// The adapter of this name, which the model does not list: looked for below its path.
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

    /// The names of a model's adapters that were found lately or that a replica has.
    pub fn known_adapters(&self, route: &Route) -> Vec<String> {
        let looked = self
            .adapter_lookups
            .known(&route.entry.name, self.clock.now());
        let mut names: std::collections::BTreeSet<String> = looked.into_iter().collect();
        names.extend(route.adapters());
        names.into_iter().collect()
    }

    /// Hands an order over. It is carried out whether or not anybody waits for its outcome.
    pub fn order(&self, command: Command) -> Result<Ordered, Busy> {
        self.order_of(command, None)
    }

    /// The same for a key or a person, whom the history names.
    pub fn order_by(&self, command: Command, by: KeyId) -> Result<Ordered, Busy> {
        self.order_of(command, Some(by))
    }

    fn order_of(&self, command: Command, by: Option<KeyId>) -> Result<Ordered, Busy> {
        let order = OrderId(self.number());
        let (accept, accepted) = oneshot::channel();
        let (settle, settled) = oneshot::channel();
        let message = Message::Order {
            order,
            command,
            by,
            accepted: accept,
            settled: settle,
        };
        self.inbox.send(message).map_err(|_| Busy)?;
        Ok(Ordered {
            order,
            accepted,
            settled,
        })
    }

    /// The decision for a load, not carried out, with its candidates in words.
    pub async fn plan(&self, load: LoadOrder) -> Result<Option<(Plan, Vec<String>)>, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox
            .send(Message::Plan { load, reply })
            .map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }

    /// How many requests wait for a seat, after all that came before. An error: the controller is gone.
    pub async fn waiting(&self) -> Result<usize, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox
            .send(Message::Waiting { reply })
            .map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }

    /// Serves the connection of a node, until it ends. Why it did is in the log.
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
            // The log has the reason already.
            Err(LinkEnd::GivenUp) => tracing::debug!(%peer, "the connection of a node was closed"),
            Err(end) => tracing::warn!(%peer, "the connection of a node has ended: {end}"),
        }
    }

    /// What the pool would do under the assumptions, decided on a copy of it: nothing changes.
    pub async fn what_if(&self, assumptions: &Assumptions) -> Result<WhatIf, Busy> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Message::Copy { reply }).map_err(|_| Busy)?;
        let pool = answer.await.map_err(|_| Busy)?;
        Ok(what_if(*pool, self.clock.now(), assumptions))
    }

    /// Registers a model, or replaces a registered one; kept in the store before this returns (D1).
    pub async fn register(&self, document: serde_json::Value) -> Result<Vec<Warning>, ChangeError> {
        self.register_under(document, Terms::Any).await
    }

    pub(super) async fn register_under(
        &self,
        document: serde_json::Value,
        terms: Terms,
    ) -> Result<Vec<Warning>, ChangeError> {
        let (reply, answer) = oneshot::channel();
        self.inbox
            .send(Message::Register {
                document,
                terms,
                reply,
            })
            .map_err(|_| ChangeError::Gone)?;
        answer.await.map_err(|_| ChangeError::Gone)?
    }

    /// Takes a registered model out of the catalogue; its replicas drain.
    pub async fn remove(&self, name: &str) -> Result<(), ChangeError> {
        let (reply, answer) = oneshot::channel();
        let name = name.to_owned();
        self.inbox
            .send(Message::Remove { name, reply })
            .map_err(|_| ChangeError::Gone)?;
        answer.await.map_err(|_| ChangeError::Gone)?
    }

    /// Reads the catalogue's files again, as this configuration names them, and changes only what changed. If they
    /// can be read, the configuration is in force when this returns, and otherwise nothing has changed.
    pub async fn reload(
        &self,
        config: Arc<Config>,
    ) -> Result<(Changes, Vec<Warning>), ChangeError> {
        let (reply, answer) = oneshot::channel();
        self.inbox
            .send(Message::Reload { config, reply })
            .map_err(|_| ChangeError::Gone)?;
        answer.await.map_err(|_| ChangeError::Gone)?
    }

    /// Ends the loop without a shutdown: the guardians know that another controller comes.
    /// Requests that still wait are refused.
    pub fn hand_over(&self) -> Result<(), Busy> {
        self.inbox.send(Message::HandOver).map_err(|_| Busy)
    }

    /// Who is inside each engine by this controller, also when its loop has ended.
    pub fn seats_taken(&self) -> Vec<SeatsTaken> {
        let seats = |gate: &Arc<Gate>| {
            let reading = gate.reading();
            SeatsTaken {
                replica: reading.replica,
                in_flight: reading.in_flight.saturating_sub(gate.guests()),
                last_end: reading.last_end,
            }
        };
        self.routes.load().gates().iter().map(seats).collect()
    }

    /// Takes what controllers before this one report of their requests; a request that is not named has ended.
    pub fn seats_of_earlier_controllers(&self, seats: &[SeatsTaken]) {
        // A replica that is adopted later reads them there.
        self.earlier_seats.report(seats, || {
            for gate in self.routes.load().gates() {
                gate.set_guests(guests_of(gate.replica, seats));
            }
        });
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Changes whenever there is a newer snapshot.
    pub fn published(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// Whether loads come to an end, as of a second ago.
    pub fn load_path(&self) -> Arc<LoadPath> {
        self.load_path.load_full()
    }

    /// What the latest loads went through.
    pub fn load_timeline(&self) -> &LoadTimeline {
        &self.load_timeline
    }

    /// New records of the history, as they are kept.
    pub fn follow(&self) -> broadcast::Receiver<Arc<StoredRecord>> {
        self.events.subscribe()
    }

    /// History, keys and small facts.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Numbers are the order of arrival, for requests and orders alike.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
