//! The connection of one node, beside the loop: greets the node, passes its reports on, and writes orders, beats and
//! what requests show of its engines. It decides nothing; whether a node is accepted is the loop's answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::message::Message;
use super::node_messages::{Joining, NodeLink, NodeMessage, never, not_now};
use super::snapshot::Snapshot;
use engine::{ActivityReport, LogLine, LogStream};
use node_link::{
    Accepted, FrameError, FromController, FromNode, Hello, LogLineForm, Order, PROTOCOL, Refused,
    check_node_name, read_frame, write_frame,
};
use pool::{NodeId, ReplicaId, Time};
use store::{NodePass, Store, StoreFault, generate_key};

const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether there is something to say.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Reports that the loop may lag behind; then the connection is not read further.
const BEHIND_MAX: u64 = 4096;
const DEVICES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 200;

/// Serves connections of nodes.
#[derive(Clone)]
pub(super) struct NodeConnections {
    pub inbox: mpsc::UnboundedSender<Message>,
    pub store: Arc<Store>,
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub clock: Clock,
}

/// Why a connection is over, for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnd {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Store(#[from] StoreFault),
    #[error("it did not greet")]
    NoGreeting,
    #[error("{}", .0.message)]
    Refused(Refused),
    #[error("it sent a frame out of turn")]
    OutOfTurn,
    #[error("the controller gave it up")]
    GivenUp,
    #[error("this controller does not lead any more")]
    Deposed,
}

impl NodeConnections {
    /// Serves one connection to its end.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        peer: SocketAddr,
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
        let Joined {
            node,
            generation,
            link,
            orders,
            accepted,
        } = joined;
        let received = accepted.received;
        let pumped = async {
            write_frame(&mut stream, &FromController::Accepted(Box::new(accepted))).await?;
            let (mut from, mut to) = tokio::io::split(stream);
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
        peer: SocketAddr,
        pass: &NodePass,
    ) -> Result<Result<Joined, Refused>, LinkEnd> {
        let names: Vec<String> = hello.devices.iter().map(|it| it.name.clone()).collect();
        let now = self.clock.now();
        let numbers = self.store.node_numbers(&hello.name, &names, now).await?;
        let (orders, waiting) = mpsc::unbounded_channel();
        let (reply, answer) = oneshot::channel();
        let link = Arc::new(NodeLink {
            orders,
            heard: AtomicU64::new(now.0),
            taken: AtomicU64::new(0),
            reading_waits: AtomicBool::new(false),
            closed: CancellationToken::new(),
        });
        let joining = Joining {
            name: hello.name.clone(),
            epoch: hello.epoch,
            place: hello.place.clone(),
            version: hello.version.clone(),
            relay: hello.relay.clone(),
            provider: hello.provider,
            devices: hello.devices.clone(),
            demand: hello.demand,
            peer,
            numbers,
            link: Arc::clone(&link),
            reply,
        };
        let _ = self
            .inbox
            .send(Message::Node(NodeMessage::Hello(Box::new(joining))));
        let admitted = match answer.await {
            Ok(Ok(admitted)) => admitted,
            Ok(Err(refused)) => return Ok(Err(refused)),
            Err(_) => return Ok(Err(not_now("the controller is stopping"))),
        };
        // One that comes back keeps what it came with: a new one might not reach it.
        let mut credential = None;
        if *pass == NodePass::Token {
            let fresh = generate_key()?;
            self.store
                .save_node_credential(&hello.name, Some(&fresh))
                .await?;
            credential = Some(fresh.reveal().to_owned());
        }
        Ok(Ok(Joined {
            node: admitted.node,
            generation: admitted.generation,
            link,
            orders: waiting,
            accepted: Accepted {
                credential,
                generation: self.store.generation(),
                ..admitted.accepted
            },
        }))
    }

    /// Passes on what the node says. `received`: the last report that has arrived before.
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
                // A doubled or late report.
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
                FromNode::Log { replica, lines } => self.log(node, ReplicaId(replica), lines),
            }
        }
        Ok(())
    }

    /// Lines go past the loop. Those of a replica on another node are dropped.
    fn log(&self, node: NodeId, replica: ReplicaId, lines: Vec<LogLineForm>) {
        let snapshot = self.snapshot.load();
        let Some(process) = snapshot
            .processes
            .get(&replica)
            .filter(|it| it.node == node)
        else {
            return;
        };
        for line in lines {
            process.log.relay(LogLine {
                sequence: line.sequence,
                at: std::time::UNIX_EPOCH + Duration::from_millis(line.at_ms),
                stream: match line.is_stderr {
                    true => LogStream::Stderr,
                    false => LogStream::Stdout,
                },
                text: line.text.into(),
            });
        }
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
                    // Looked at as late as can be: another controller may have begun to order while this process, or the
                    // connection, stood still (D4).
                    Some(_) if !self.store.leads() => return Err(LinkEnd::Deposed),
                    Some(order) => write_frame(to, &FromController::Order(order)).await?,
                    None => return Ok(()),
                },
                _ = looks.tick() => {
                    let (at, taken) = (self.clock.now(), link.taken.load(Ordering::Acquire));
                    let (activity, read_every) = self.activity(node);
                    let is_news = taken != last.1
                        || activity != last.2
                        || activity.iter().any(|(_, it)| it.spoke)
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

    /// What requests show of the node's engines, and how soon its devices should be read.
    fn activity(&self, node: NodeId) -> (Vec<(u64, ActivityReport)>, u64) {
        let snapshot = self.snapshot.load();
        let own = snapshot.processes.iter().filter(|(_, it)| it.node == node);
        let activity = own.map(|(replica, it)| (replica.0, it.activity.report()));
        (activity.collect(), snapshot.pool.next_reading_in(true).0)
    }
}

struct Joined {
    node: NodeId,
    generation: u64,
    link: Arc<NodeLink>,
    orders: mpsc::UnboundedReceiver<Order>,
    accepted: Accepted,
}

/// What can be answered without the loop. `own`: the generation of this controller.
fn check(hello: &Hello, pass: &NodePass, own: Option<u64>) -> Result<(), Refused> {
    if hello.protocol != PROTOCOL {
        let own = env!("CARGO_PKG_VERSION");
        let (newer, older) = match hello.protocol > PROTOCOL {
            true => ("controller", "node"),
            false => ("node", "controller"),
        };
        return Err(never(format!(
            "this controller (version {own}) speaks protocol {PROTOCOL} with nodes, and the node (version {}) speaks {}: upgrade the {newer} to the version of the {older}",
            printable(&hello.version),
            hello.protocol
        )));
    }
    if let (Some(own), Some(obeyed)) = (own, hello.generation)
        && own < obeyed
    {
        return Err(not_now(format!(
            "this controller does not lead any more: the node has obeyed one of generation {obeyed}, and this one has {own} (D4)"
        )));
    }
    check_node_name(&hello.name).map_err(never)?;
    if let NodePass::Credential { node } = pass
        && *node != hello.name
    {
        return Err(never(format!(
            "it comes with what node {node} came back with; start it with a token of its own"
        )));
    }
    let names = || hello.devices.iter().map(|it| &it.name);
    let is_bad = |name: &String| {
        name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control)
    };
    if hello.devices.len() > DEVICES_MAX || names().any(is_bad) {
        return Err(never(format!(
            "it has {} devices; allowed are {DEVICES_MAX}, each with a name of at most {NAME_BYTES_MAX} bytes",
            hello.devices.len()
        )));
    }
    Ok(())
}

fn printable(text: &str) -> String {
    let plain = text.chars().filter(|it| it.is_ascii_graphic());
    plain.take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Provider;
    use node_link::RelayForm;

    fn hello(generation: Option<u64>) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: "9.9.9".to_owned(),
            name: "gpu-2".to_owned(),
            epoch: 1,
            place: "here".to_owned(),
            controller: None,
            relay: RelayForm {
                address: SocketAddr::from(([127, 0, 0, 1], 7)),
                secret: String::new(),
                fingerprint: None,
            },
            provider: Provider::Fixed,
            devices: Vec::new(),
            demand: None,
            generation,
        }
    }

    #[test]
    fn d4_a_node_that_has_obeyed_a_later_controller_is_refused_by_an_earlier_one() {
        for (own, obeyed, is_accepted) in [
            (Some(6), Some(7), false),
            (Some(7), Some(7), true),
            (Some(8), Some(7), true),
            // An earlier version of either side, or a state that one process has alone.
            (Some(6), None, true),
            (None, Some(7), true),
        ] {
            let checked = check(&hello(obeyed), &NodePass::Token, own);
            assert_eq!(checked.is_ok(), is_accepted, "{own:?} {obeyed:?}");
        }
    }

    #[test]
    fn d4_a_node_of_an_earlier_version_has_no_generation_and_is_understood() {
        let mut sent = serde_json::to_value(hello(Some(7))).expect("a greeting");
        let _ = sent.as_object_mut().map(|it| it.remove("generation"));
        let read: Hello = serde_json::from_value(sent).expect("understood");
        assert_eq!(read.generation, None);
    }
}
