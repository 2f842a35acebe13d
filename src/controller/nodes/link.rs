//! Serves the connection of one node, outside the loop: greets the node, passes its reports on, and writes orders, heartbeats and
//! signs of its engines' activity. The loop decides whether a node is accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::greeting::check;
use crate::clock::Clock;
use crate::messages::node_messages::not_now;
use crate::messages::{JoiningNode, Message, NodeLink, NodeLogs, NodeMessage, NodePeer};
use crate::view::Snapshot;
use engine::{ActivityReport, LogLine, LogStream};
use node_link::{
    FrameError, FromController, FromNode, Hello, LogLineForm, NodeAcceptance, NodeRefusal, Order,
    read_frame, write_frame,
};
use pool::{NodeId, ReplicaId, Time, reading_interval};
use store::{NodePass, Store, StoreError, generate_key};

const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// Interval at which the connection checks for messages to send.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Number of reports that the loop may lag behind before the connection stops reading.
const BEHIND_MAX: u64 = 4096;

/// Serves connections of nodes.
#[derive(Clone)]
pub(crate) struct NodeConnections {
    pub inbox: mpsc::UnboundedSender<Message>,
    pub store: Arc<Store>,
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub clock: Clock,
}

/// The reason a connection ended, for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkEnd {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("it did not greet")]
    NoGreeting,
    #[error("{}", .0.message)]
    Refused(NodeRefusal),
    #[error("it sent a frame out of turn")]
    OutOfTurn,
    #[error("the controller gave it up")]
    GivenUp,
    #[error("this controller is no longer the leader")]
    Deposed,
}

impl NodeConnections {
    /// Serves one connection until it ends.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        peer: NodePeer,
        pass: NodePass,
    ) -> Result<(), LinkEnd> {
        let hello = match timeout(GREETING_WITHIN, read_frame(&mut stream)).await {
            Ok(Ok(Some(FromNode::Hello(hello)))) => hello,
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(_)) | Err(_) => return Err(LinkEnd::NoGreeting),
        };
        let joined = match check(&hello, &pass, self.store.generation()) {
            Ok(()) => self.join(&hello, peer, &pass).await?,
            Err(refused) => Err(refused),
        };
        let joined = match joined {
            Ok(joined) => joined,
            Err(refused) => {
                write_frame(&mut stream, &FromController::Refused(refused.clone())).await?;
                return Err(LinkEnd::Refused(refused));
            }
        };
        let JoinedNode {
            node,
            generation,
            link,
            orders,
            accepted,
        } = joined;
        let received = accepted.received;
        let pumped = async {
            write_frame(&mut stream, &FromController::Accepted(Box::new(accepted))).await?;
            let (from, mut to) = tokio::io::split(stream);
            // A frame is read in two steps, and usually arrives in one packet.
            let mut from = BufReader::new(from);
            tokio::select! {
                ended = self.read(&mut from, &link, (node, generation), received) => ended,
                ended = self.write(&mut to, &link, node, orders) => ended,
                () = link.closed.cancelled() => Err(LinkEnd::GivenUp),
            }
        };
        let ended = pumped.await;
        let _ = self.inbox.send(Message::Node(NodeMessage::Disconnected {
            node,
            generation,
        }));
        ended
    }

    async fn join(
        &self,
        hello: &Hello,
        peer: NodePeer,
        pass: &NodePass,
    ) -> Result<Result<JoinedNode, NodeRefusal>, LinkEnd> {
        let names: Vec<String> = hello
            .devices
            .iter()
            .map(|device| device.name.clone())
            .collect();
        let now = self.clock.now();
        let numbers = self.store.node_numbers(&hello.name, &names, now).await?;
        let (orders, waiting) = mpsc::unbounded_channel();
        let (reply, response) = oneshot::channel();
        let link = Arc::new(NodeLink {
            orders,
            heard: AtomicU64::new(now.0),
            taken: AtomicU64::new(0),
            reading_waits: AtomicBool::new(false),
            logs: NodeLogs::default(),
            closed: CancellationToken::new(),
        });
        let joining = JoiningNode {
            name: hello.name.clone(),
            epoch: hello.epoch,
            place: hello.place.clone(),
            version: hello.version.clone(),
            relay: hello.relay.clone(),
            provider: hello.provider,
            devices: hello.devices.clone(),
            demand: hello.demand,
            runs_members: hello.runs_members,
            process: hello.process,
            peer,
            numbers,
            link: Arc::clone(&link),
            reply,
        };
        let _ = self
            .inbox
            .send(Message::Node(NodeMessage::Hello(Box::new(joining))));
        let admitted = match response.await {
            Ok(Ok(admitted)) => admitted,
            Ok(Err(refused)) => return Ok(Err(refused)),
            Err(_) => return Ok(Err(not_now("the controller is stopping"))),
        };
        // A node that returns keeps its credential: a new one might not reach it.
        let mut credential = None;
        if *pass == NodePass::Token {
            let fresh = generate_key()?;
            self.store
                .save_node_credential(&hello.name, Some(&fresh))
                .await?;
            credential = Some(fresh.reveal().to_owned());
        }
        Ok(Ok(JoinedNode {
            node: admitted.node,
            generation: admitted.generation,
            link,
            orders: waiting,
            accepted: NodeAcceptance {
                credential,
                generation: self.store.generation(),
                ..admitted.accepted
            },
        }))
    }

    /// Passes the node's messages on. `received` is the number of the last report from an earlier connection.
    async fn read(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        link: &NodeLink,
        (node, generation): (NodeId, u64),
        mut received: u64,
    ) -> Result<(), LinkEnd> {
        let send = |message: NodeMessage| {
            let _ = self.inbox.send(Message::Node(message));
        };
        while let Some(frame) = read_frame(from).await? {
            link.heard.store(self.clock.now().0, Ordering::Relaxed);
            match frame {
                FromNode::Hello(_) => return Err(LinkEnd::OutOfTurn),
                FromNode::Beat => {}
                FromNode::Running(running) => send(NodeMessage::Running {
                    node,
                    generation,
                    running,
                }),
                // A duplicate or late report.
                FromNode::Report { number, .. } if number <= received => {}
                FromNode::Report { number, report } => {
                    received = number;
                    send(NodeMessage::Report {
                        node,
                        generation,
                        number,
                        report,
                    });
                    while received.saturating_sub(link.taken.load(Ordering::Acquire)) > BEHIND_MAX {
                        tokio::time::sleep(LOOK_EVERY / 20).await;
                    }
                }
                FromNode::Readings(readings) => {
                    if !link.reading_waits.swap(true, Ordering::AcqRel) {
                        send(NodeMessage::Readings {
                            node,
                            generation,
                            readings,
                        });
                    }
                }
                // Log lines bypass the loop.
                FromNode::Log { replica, lines } => {
                    let lines = lines.into_iter().map(log_line);
                    link.logs.relay(ReplicaId(replica), lines);
                }
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        link: &NodeLink,
        node: NodeId,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) -> Result<(), LinkEnd> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = (Time(0), 0, Vec::new());
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    // Checked as late as possible: another controller may have taken over while this process or the connection was
                    // suspended (D4).
                    Some(_) if !self.store.leads() => return Err(LinkEnd::Deposed),
                    Some(order) => write_frame(to, &FromController::Order(order)).await?,
                    None => return Ok(()),
                },
                _ = looks.tick() => {
                    let (at, taken) = (self.clock.now(), link.taken.load(Ordering::Acquire));
                    let (activity, read_every) = self.activity(node);
                    let is_news = taken != last.1
                        || activity != last.2
                        || activity.iter().any(|(_, report)| report.spoke)
                        || at.since(last.0).0 >= BEAT_EVERY.as_millis() as u64;
                    if is_news {
                        last = (at, taken, activity.clone());
                        write_frame(to, &FromController::Beat {
                            at: at.0,
                            received: taken,
                            read_every_ms: read_every,
                            activity,
                        }).await?;
                    }
                }
            }
        }
    }

    /// The activity of the node's engines, and the interval in which its devices should be read.
    fn activity(&self, node: NodeId) -> (Vec<(u64, ActivityReport)>, u64) {
        let snapshot = self.snapshot.load();
        let activity = |replica: &ReplicaId| {
            let process = snapshot.processes.get(replica)?;
            Some((replica.0, process.activity.report()))
        };
        let own = snapshot.replicas_on(node).iter();
        let activity = own.filter_map(activity).collect();
        // Memory awaited on another node does not speed up readings of this one.
        let settles = snapshot
            .on_nodes
            .get(&node)
            .is_some_and(|on_node| on_node.settles);
        (activity, reading_interval(settles, true).0)
    }
}

fn log_line(form: LogLineForm) -> LogLine {
    LogLine {
        sequence: form.sequence,
        at: std::time::UNIX_EPOCH + Duration::from_millis(form.at_ms),
        stream: if form.is_stderr {
            LogStream::Stderr
        } else {
            LogStream::Stdout
        },
        text: form.text.into(),
    }
}

struct JoinedNode {
    node: NodeId,
    generation: u64,
    link: Arc<NodeLink>,
    orders: mpsc::UnboundedReceiver<Order>,
    accepted: NodeAcceptance,
}
