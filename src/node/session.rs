//! One connection to the controller, from the greeting to its end: sends the outbox, carries out orders, and gives up after a time
//! of silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::engines::Engines;
use super::machine::now;
use node_link::{
    FrameError, FromController, FromNode, Hello, NodeAcceptance, NodeRefusal, Order, read_frame,
    write_frame,
};

const GREETING_WITHIN: Duration = Duration::from_secs(10);
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of log lines in one frame.
const LINES_MAX: usize = 256;

/// The end of a connection.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// Another attempt may succeed.
    Broken(String),
    Refused(NodeRefusal),
    /// The controller ordered the node to leave.
    Leave(String),
}

/// A connection whose greeting was accepted.
pub(super) struct Session<S> {
    stream: S,
    pub accepted: NodeAcceptance,
}

/// Greets the controller and waits for its reply.
pub(super) async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    hello: Hello,
) -> Result<Session<S>, SessionEnd> {
    let broken = |error: FrameError| SessionEnd::Broken(error.to_string());
    let greeting = async {
        write_frame(&mut stream, &FromNode::Hello(Box::new(hello))).await?;
        read_frame(&mut stream).await
    };
    match timeout(GREETING_WITHIN, greeting).await {
        Err(_) => Err(SessionEnd::Broken(
            "the controller did not answer the greeting".to_owned(),
        )),
        Ok(Ok(Some(FromController::Accepted(accepted)))) => Ok(Session {
            stream,
            accepted: *accepted,
        }),
        Ok(Ok(Some(FromController::Refused(refused)))) => Err(SessionEnd::Refused(refused)),
        Ok(Ok(Some(_))) => Err(SessionEnd::Broken(
            "the controller's first frame is not a reply to the greeting".to_owned(),
        )),
        Ok(Ok(None)) => Err(SessionEnd::Broken(
            "the controller closed the connection".to_owned(),
        )),
        Ok(Err(error)) => Err(broken(error)),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Serves the connection until it ends.
    pub async fn run(self, engines: &Arc<Engines>) -> SessionEnd {
        let (mut from, mut to) = tokio::io::split(self.stream);
        let silent_after = Duration::from_millis(self.accepted.silent_after_ms).max(BEAT_EVERY);
        let heard = LastMessageTime::new();
        let generation = self.accepted.generation;
        let reading = async {
            loop {
                match read_frame(&mut from).await {
                    Ok(Some(frame)) => {
                        heard.now();
                        if let Some(ended) = obey(engines, generation, frame).await {
                            return ended;
                        }
                    }
                    Ok(None) => {
                        return SessionEnd::Broken(
                            "the controller closed the connection".to_owned(),
                        );
                    }
                    Err(error) => return SessionEnd::Broken(error.to_string()),
                }
            }
        };
        let silence = async {
            loop {
                let until = heard.at() + silent_after;
                if until <= now() {
                    return SessionEnd::Broken(format!(
                        "the controller has been silent for {} s",
                        silent_after.as_secs()
                    ));
                }
                sleep_until(until).await;
            }
        };
        let writing = async {
            let done = write(engines, &mut to, self.accepted.received).await;
            SessionEnd::Broken(done.to_string())
        };
        tokio::select! {
            ended = reading => ended,
            ended = writing => ended,
            ended = silence => ended,
        }
    }
}

/// Time of the controller's last message.
struct LastMessageTime {
    start: Instant,
    after_ms: AtomicU64,
}

impl LastMessageTime {
    fn new() -> LastMessageTime {
        LastMessageTime {
            start: now(),
            after_ms: AtomicU64::new(0),
        }
    }

    fn now(&self) {
        let passed = now().saturating_duration_since(self.start).as_millis();
        self.after_ms
            .store(u64::try_from(passed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn at(&self) -> Instant {
        self.start + Duration::from_millis(self.after_ms.load(Ordering::Relaxed))
    }
}

/// Writes until the connection breaks. `received` is the number of the last report that has arrived.
async fn write(engines: &Engines, to: &mut (impl AsyncWrite + Unpin), received: u64) -> FrameError {
    match try_write(engines, to, received).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn try_write(
    engines: &Engines,
    to: &mut (impl AsyncWrite + Unpin),
    received: u64,
) -> Result<std::convert::Infallible, FrameError> {
    let machine = &engines.machine;
    let mut sent = received;
    let mut is_listed = false;
    let mut beats = interval(BEAT_EVERY);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Sends the reports that the controller lacks before the list of engines, so the list is the newest message.
        loop {
            let next = {
                let mut inner = machine.lock();
                match inner.outbox.after(sent) {
                    Some((number, report)) => {
                        sent = number;
                        Some(FromNode::Report { number, report })
                    }
                    None if !is_listed => {
                        is_listed = true;
                        inner.is_connected = true;
                        Some(FromNode::Running(inner.running()))
                    }
                    None => match inner.outbox.take_lines(LINES_MAX) {
                        Some((replica, lines)) => Some(FromNode::Log { replica, lines }),
                        None => inner.outbox.readings.take().map(FromNode::Readings),
                    },
                }
            };
            match next {
                Some(frame) => write_frame(to, &frame).await?,
                None => break,
            }
        }
        tokio::select! {
            () = machine.news.notified() => {}
            _ = beats.tick() => write_frame(to, &FromNode::Beat).await?,
        }
    }
}

async fn obey(
    engines: &Arc<Engines>,
    generation: Option<u64>,
    frame: FromController,
) -> Option<SessionEnd> {
    let machine = &engines.machine;
    if matches!(frame, FromController::Order(_)) && machine.lock().is_replaced {
        // Lost, like an order to a node without a connection: the next process lists its engines, and the pool orders again.
        return None;
    }
    if matches!(frame, FromController::Order(_))
        && let Err(why) = engines.generations.check(generation)
    {
        return Some(SessionEnd::Broken(why));
    }
    match frame {
        FromController::Order(Order::Start(start)) => engines.start(*start).await,
        FromController::Order(Order::Stop { replica, grace_ms }) => {
            machine.stop(replica, Duration::from_millis(grace_ms));
        }
        FromController::Order(Order::Command {
            replica,
            sleep,
            words,
            deadline_ms,
        }) => {
            let deadline = Duration::from_millis(deadline_ms);
            engines.command(replica, sleep, words, deadline).await;
        }
        FromController::Order(Order::Leave { why }) => return Some(SessionEnd::Leave(why)),
        FromController::Beat {
            at,
            received,
            read_every_ms,
            activity,
        } => {
            machine.hear_beat(at);
            {
                let mut inner = machine.lock();
                inner.outbox.acknowledged(received);
                let read_every = Duration::from_millis(read_every_ms);
                let sooner = inner.read_every.is_none_or(|before| read_every < before);
                inner.read_every = Some(read_every);
                if sooner {
                    machine.look.notify_one();
                }
            }
            let changes = machine.mirror(activity);
            // After a takeover the journal belongs to the next process.
            if !machine.lock().is_replaced {
                engines.note_use(changes).await;
            }
        }
        FromController::Refused(refused) => return Some(SessionEnd::Refused(refused)),
        FromController::Accepted(_) => {
            return Some(SessionEnd::Broken("the controller greets twice".to_owned()));
        }
    }
    None
}
