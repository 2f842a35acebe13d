//! Keeps the node connected to a controller: tries the controllers in turn until one accepts it, and again when the connection
//! breaks.

use std::net::IpAddr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{Agreement, Node};
use crate::engines::{instant_at, unix_ms};
use crate::machine::now;
use crate::session::{SessionEnd, greet};
use crate::settings::Settings;
use crate::target::{DialError, Target};
use node_link::{Hello, NodeDevice, NodeRefusalKind, NodeReport, PROTOCOL, RelayForm};

/// The first pause between attempts; doubles with each.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Minimum time for the attempts of a node whose engines have been without a controller. Much shorter than the controller's margin
/// before it gives up a node.
const TRIES_FOR: Duration = Duration::from_secs(10);
/// Interval at which the same trouble is logged again.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Result of an attempt to connect to a controller.
enum Attempt {
    /// The connection was accepted and has ended.
    Lost(String),
    Failed(String),
    Refused {
        message: String,
        is_final: bool,
    },
    /// The node's work has been given to others.
    Fenced(String),
}

impl Node {
    /// Returns the reason when there has been no controller for too long. Errors are final.
    pub(super) async fn connect_again_and_again(&self) -> Result<String, String> {
        let (begin, agreement) = (now(), self.agreement());
        let mut contact = agreement.alone_since_ms.map_or(begin, instant_at);
        // A continued node gets a short time for its first attempts, within the controller's margin.
        let mut tries_until = agreement
            .alone_since_ms
            .map(|_| (begin + TRIES_FOR).min(contact + agreement.orphan_after + TRIES_FOR));
        // Without engines, a node that continues an earlier one has nothing to lose, and ends like a new one if it is refused.
        let mut has_joined = agreement.controller.is_some() && self.engines.machine.has_engines();
        let mut is_new = agreement.controller.is_none();
        let mut pause = PAUSE_MIN;
        let mut last_trouble: Option<(String, Instant)> = None;
        // Problems reported by the controllers in this round.
        let mut troubles: Vec<String> = Vec::new();
        loop {
            let agreement = self.agreement();
            let ends = contact + agreement.orphan_after;
            let ends = tries_until.map_or(ends, |until| ends.max(until));
            let alone = async {
                sleep_until(ends).await;
                // The attempt lasts as long as its connection. When that ends, the time limit starts again.
                if self.engines.machine.lock().is_connected {
                    std::future::pending::<()>().await;
                }
            };
            let trouble = tokio::select! {
                ended = self.attempt(&agreement, has_joined) => match ended {
                    Attempt::Lost(why) => {
                        (contact, tries_until, has_joined) = (now(), None, true);
                        self.change(|agreement| agreement.alone_since_ms = Some(unix_ms()));
                        self.record();
                        pause = PAUSE_MIN;
                        // Tries the next controller first: a controller that still leads is found through it immediately, while a
                        // silent one would cost seconds.
                        self.turn.fetch_add(1, Ordering::Relaxed);
                        why
                    }
                    Attempt::Failed(why) => {
                        self.turn.fetch_add(1, Ordering::Relaxed);
                        why
                    }
                    Attempt::Refused { message, is_final } => {
                        if !has_joined && is_final {
                            return Err(message);
                        }
                        self.turn.fetch_add(1, Ordering::Relaxed);
                        message
                    }
                    Attempt::Fenced(message) if !has_joined && !is_new => {
                        is_new = true;
                        self.begin_anew();
                        message
                    }
                    Attempt::Fenced(message) => {
                        self.engines.machine.stop_all(true);
                        self.end_engines().await;
                        return Err(message);
                    }
                },
                () = alone => {
                    let why = format!(
                        "there has been no controller for {} s",
                        agreement.orphan_after.as_secs_f64()
                    );
                    return if has_joined { Ok(why) } else { Err(match last_trouble {
                        Some((trouble, _)) => format!("{why}: {trouble}"),
                        None => why,
                    }) };
                }
            };
            if self.engines.machine.lock().is_replaced {
                // The next process has the connection.
                std::future::pending::<()>().await;
            }
            troubles.push(trouble);
            // Another controller may lead, so the next attempt follows without a pause.
            if troubles.len() < self.settings.controllers.len() {
                continue;
            }
            let trouble = std::mem::take(&mut troubles).join("; ");
            let is_news = last_trouble
                .as_ref()
                .is_none_or(|(before, at)| *before != trouble || *at + SAY_AGAIN <= now());
            if is_news {
                tracing::warn!("{trouble}; trying again");
                last_trouble = Some((trouble, now()));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The controller to try now.
    fn controller(&self) -> &Target {
        let all = &self.settings.controllers;
        &all[self.turn.load(Ordering::Relaxed) % all.len()]
    }

    async fn attempt(&self, agreement: &Agreement, has_joined: bool) -> Attempt {
        let machine = &self.engines.machine;
        let controller = self.controller();
        let is_only = self.settings.controllers.len() == 1;
        let connected = match controller.connect(&agreement.credential, is_only).await {
            Ok(connected) => connected,
            Err(DialError::Unreachable(why) | DialError::Standby(why)) => {
                return Attempt::Failed(why);
            }
            Err(DialError::Refused { message, is_final }) => {
                // A controller that no longer knows the credential may accept the token.
                let is_final = is_final && agreement.credential == self.settings.token;
                self.change(|agreement| agreement.credential.clone_from(&self.settings.token));
                return Attempt::Refused { message, is_final };
            }
        };
        if machine.lock().is_replaced {
            // A greeting would take the connection from the next process.
            return Attempt::Failed("another process has taken over".to_owned());
        }
        let greeted = greet(connected.io, self.hello(agreement, connected.local)).await;
        let session = match greeted {
            Ok(session) => session,
            Err(SessionEnd::Refused(refused)) => {
                let message = format!("{controller} refuses this node: {}", refused.message);
                return match refused.kind {
                    NodeRefusalKind::Fenced => Attempt::Fenced(message),
                    NodeRefusalKind::Never => Attempt::Refused {
                        message,
                        is_final: true,
                    },
                    NodeRefusalKind::NotNow => Attempt::Refused {
                        message,
                        is_final: !has_joined,
                    },
                };
            }
            Err(SessionEnd::Broken(why) | SessionEnd::Leave(why)) => return Attempt::Failed(why),
        };
        let accepted = &session.accepted;
        machine.lock().outbox.continue_after(accepted.received);
        if let Err(why) = self.engines.generations.admit(accepted.generation) {
            return Attempt::Failed(format!("{controller}: {why}"));
        }
        if agreement.controller != Some(accepted.controller) {
            let mut inner = machine.lock();
            // Drops the reports of engines, and keeps those for any controller.
            let leaving = inner.leaving.clone();
            inner.outbox.forget_reports();
            if let Some(why) = leaving {
                inner.outbox.push(NodeReport::Leaving { why }, true);
            }
            tracing::info!("node {}: joined {controller}", self.settings.name);
        } else {
            tracing::info!("node {}: connected again", self.settings.name);
        }
        self.change(|agreement| {
            agreement.controller = Some(accepted.controller);
            agreement.alone_since_ms = None;
            if let Some(credential) = &accepted.credential {
                agreement.credential.clone_from(credential);
            }
            agreement.orphan_after = Duration::from_millis(accepted.orphan_after_ms);
            agreement.drain = Duration::from_millis(accepted.drain_ms);
        });
        self.record();
        let ended = session.run(&self.engines).await;
        machine.disconnected();
        match ended {
            SessionEnd::Broken(why) => Attempt::Lost(why),
            SessionEnd::Refused(refused) if refused.kind == NodeRefusalKind::Fenced => {
                Attempt::Fenced(refused.message)
            }
            SessionEnd::Refused(refused) => Attempt::Lost(refused.message),
            SessionEnd::Leave(why) => {
                self.leave(why.clone());
                Attempt::Lost(why)
            }
        }
    }

    fn hello(&self, agreement: &Agreement, local: IpAddr) -> Hello {
        let Settings {
            name,
            inventory,
            demand,
            version,
            ..
        } = &*self.settings;
        let (epoch, place) = {
            let kept = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
            (kept.epoch, kept.place.clone())
        };
        let mut address = self.relay.address;
        if address.ip().is_unspecified() {
            // The local address of the connection to the controller works for the reverse direction, unless both are behind NAT.
            address.set_ip(local);
        }
        Hello {
            protocol: PROTOCOL,
            version: (*version).to_owned(),
            name: name.clone(),
            epoch,
            place,
            controller: agreement.controller,
            relay: RelayForm {
                address,
                secret: self.relay.secret.reveal().to_owned(),
                fingerprint: self.relay.fingerprint.map(|print| print.to_string()),
            },
            provider: inventory.provider(),
            devices: NodeDevice::all(inventory.devices()),
            demand: *demand,
            generation: self.engines.generations.highest(),
            runs_members: true,
            process: self.process,
        }
    }
}
