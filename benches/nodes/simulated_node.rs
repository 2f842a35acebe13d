//! A simulated node. It connects as `model-pool node` does, with a token and then with its credential, and serves the connection
//! until it ends. It reconnects if the connection ends unexpectedly.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use config::Provider;
use node_link::{
    FrameError, FromController, FromNode, Hello, NodeAcceptance, PROTOCOL, RelayForm, UPGRADE,
    read_frame, write_frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

use super::fleet::FleetSettings;
use super::machine::{self, Machine};

const BEAT_EVERY: Duration = Duration::from_secs(1);
const GREETING_WITHIN: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The head of the response to the upgrade, and of a refusal.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The state that the bench imposes on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Here,
    /// Its process is frozen: its socket stays open, but nothing is read or written.
    Frozen,
    /// Its process has ended, and its socket with it.
    Ended,
}

pub struct SimulatedNode {
    pub name: String,
    nth: u32,
    shared: Arc<FleetSettings>,
    machine: Machine,
    epoch: u64,
    agreed: Mutex<SessionParameters>,
    pub presence: watch::Sender<Presence>,
}

/// The parameters sent by the controller.
#[derive(Clone, Default)]
struct SessionParameters {
    controller: Option<u64>,
    credential: Option<String>,
}

/// The reason why a connection ended.
enum End {
    /// The bench ended it.
    Ordered,
    Lost(String),
}

impl SimulatedNode {
    pub fn new(nth: u32, shared: Arc<FleetSettings>) -> SimulatedNode {
        SimulatedNode {
            name: format!("played-{nth:04}"),
            nth,
            machine: Machine::new(nth, shared.load),
            shared,
            epoch: rand::random(),
            agreed: Mutex::default(),
            presence: watch::Sender::new(Presence::Here),
        }
    }

    /// Runs until the bench is over.
    pub async fn live(&self) {
        let mut presence = self.presence.subscribe();
        let mut pause = PAUSE_MIN;
        loop {
            while *presence.borrow_and_update() != Presence::Here {
                if presence.changed().await.is_err() {
                    return;
                }
            }
            match self.join().await {
                Ok((stream, accepted)) => {
                    pause = PAUSE_MIN;
                    let end = self.serve(stream, accepted, &mut presence).await;
                    if let End::Lost(why) = end {
                        self.shared.lost(&self.name, &why);
                    }
                }
                Err(why) => {
                    self.shared.not_joined(&self.name, &why);
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// A connection that the controller has accepted.
    async fn join(&self) -> Result<(TcpStream, NodeAcceptance), String> {
        // A person or a cluster starts a thousand machines within minutes, not simultaneously.
        let _turn = self.shared.joining.acquire().await;
        let joining = async {
            let mut stream = self.connect().await?;
            let hello = FromNode::Hello(Box::new(self.hello()));
            let words = |error: FrameError| error.to_string();
            write_frame(&mut stream, &hello).await.map_err(words)?;
            let response: Option<FromController> = read_frame(&mut stream).await.map_err(words)?;
            match response {
                Some(FromController::Accepted(accepted)) => Ok((stream, *accepted)),
                Some(FromController::Refused(refused)) => Err(refused.message),
                Some(_) => Err("the controller's first frame is not a response".to_owned()),
                None => Err("the controller closed the connection".to_owned()),
            }
        };
        let joined = timeout(GREETING_WITHIN, joining).await;
        let (stream, accepted) = joined.map_err(|_| "the greeting took too long".to_owned())??;
        let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        agreed.controller = Some(accepted.controller);
        if accepted.credential.is_some() {
            agreed.credential.clone_from(&accepted.credential);
        }
        Ok((stream, accepted))
    }

    /// Upgrades an HTTP/1.1 request.
    async fn connect(&self) -> Result<TcpStream, String> {
        let words = |error: std::io::Error| error.to_string();
        let address = &self.shared.controller;
        let mut stream = TcpStream::connect(address).await.map_err(words)?;
        stream.set_nodelay(true).map_err(words)?;
        let credential = self.agreed().credential;
        let credential = credential.as_ref().unwrap_or(&self.shared.token);
        let request = format!(
            "GET /llm/node/connect HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: {UPGRADE}\r\nauthorization: Bearer {credential}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(words)?;
        // The controller sends nothing after the head until it is greeted.
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            let count = stream.read_buf(&mut head).await.map_err(words)?;
            if count == 0 || head.len() > HEAD_BYTES_MAX {
                return Err("the controller's answer to the upgrade broke off".to_owned());
            }
        }
        if head.starts_with(b"HTTP/1.1 101") {
            Ok(stream)
        } else {
            Err(String::from_utf8_lossy(&head).into_owned())
        }
    }

    fn agreed(&self) -> SessionParameters {
        let agreed = self.agreed.lock();
        agreed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.name.clone(),
            epoch: self.epoch,
            place: format!("{} {}", std::process::id(), self.nth),
            controller: self.agreed().controller,
            relay: RelayForm {
                address: self.shared.relay,
                secret: "0".repeat(64),
                fingerprint: None,
            },
            provider: Provider::Nvml,
            devices: machine::devices(self.nth),
            demand: None,
            generation: None,
            runs_members: false,
            process: self.epoch,
        }
    }

    async fn serve(
        &self,
        stream: TcpStream,
        accepted: NodeAcceptance,
        presence: &mut watch::Receiver<Presence>,
    ) -> End {
        let silent_after = Duration::from_millis(accepted.silent_after_ms).max(BEAT_EVERY);
        let (from, to) = stream.into_split();
        let mut reading = pin!(self.read(from, silent_after));
        let mut writing = pin!(self.write(to, accepted.received));
        loop {
            tokio::select! {
                biased;
                changed = presence.changed() => {
                    if changed.is_err() {
                        return End::Ordered;
                    }
                    // Both reading and writing stop.
                    while *presence.borrow_and_update() == Presence::Frozen {
                        if presence.changed().await.is_err() {
                            return End::Ordered;
                        }
                    }
                    if *presence.borrow() == Presence::Ended {
                        return End::Ordered;
                    }
                }
                why = &mut reading => return End::Lost(why),
                why = &mut writing => return End::Lost(why),
            }
        }
    }

    /// Reads until the connection ends; returns the reason.
    async fn read(&self, from: OwnedReadHalf, silent_after: Duration) -> String {
        let mut from = BufReader::new(from);
        loop {
            match timeout(silent_after, read_frame(&mut from)).await {
                Ok(Ok(Some(frame))) => {
                    self.shared.heard.fetch_add(1, Ordering::Relaxed);
                    if let Err(why) = self.machine.hear(frame, now()) {
                        return why;
                    }
                }
                Ok(Ok(None)) => return "the controller closed the connection".to_owned(),
                Ok(Err(error)) => return error.to_string(),
                Err(_) => {
                    return format!(
                        "nothing has been heard of the controller for {} s",
                        silent_after.as_secs()
                    );
                }
            }
        }
    }

    async fn write(&self, mut to: OwnedWriteHalf, received: u64) -> String {
        let _joined = self.shared.join();
        match self.try_write(&mut to, received).await {
            Ok(never) => match never {},
            Err(error) => error.to_string(),
        }
    }

    async fn try_write(
        &self,
        to: &mut OwnedWriteHalf,
        received: u64,
    ) -> Result<Infallible, FrameError> {
        let (mut sent, mut is_listed) = (received, false);
        // Nodes started at random times beat and read at random times.
        let begin = now() + BEAT_EVERY.mul_f64(f64::from(self.nth * 37 % 100) / 100.0);
        let mut beats = interval_at(begin, BEAT_EVERY);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut read_at = begin;
        loop {
            let ready = self.machine.go_on(now());
            self.shared.ready.fetch_add(ready, Ordering::Relaxed);
            while let Some(frame) = self.machine.next_frame(&mut sent, &mut is_listed, now()) {
                self.send(to, &frame).await?;
            }
            let reads_at = self.machine.reads_at(read_at);
            let next = self.machine.due().into_iter().chain([reads_at]).min();
            tokio::select! {
                () = self.machine.news.notified() => {}
                _ = beats.tick() => {
                    self.machine.memory_changes();
                    self.send(to, &FromNode::Beat).await?;
                }
                () = sleep_until(next.unwrap_or(reads_at)) => {
                    if reads_at <= now() {
                        read_at = now();
                        self.send(to, &self.machine.read()).await?;
                    }
                }
            }
        }
    }

    async fn send(&self, to: &mut OwnedWriteHalf, frame: &FromNode) -> Result<(), FrameError> {
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        write_frame(to, frame).await
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn now() -> Instant {
    Instant::now()
}
