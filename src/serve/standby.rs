//! Starts a service that shares its PostgreSQL with another (D4): listens, stands by while the other leads, and returns with the
//! store when it leads itself. Its socket stays open throughout: no connection is refused.
//!
//! ```text
//! listens ─▶ stands by: serves routes about itself, passes others on ─▶ leads: connections wait in the socket until it serves
//!               │ checks every second (store::Candidate)
//!               └ a signal ends it
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::notify;
use super::opening::line;
use super::starting::{LOOK_WITHIN, OPEN_WITHIN, Progress};
use super::stop_time::CONNECTIONS_WITHIN;
use super::takeover::InheritedSocket;
use super::tasks::start;
use crate::stop_signal::stop_signal;
use config::{Config, StandbySection};
use controller::Clock;
use http::{Edge, Listener, Standby};
use store::{Candidate, CandidateStatus, Leader, LeaderAddress, Store};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of checks after which the same reason is logged again.
const SAY_AGAIN: u32 = 30;

/// Result of the wait.
pub(super) enum StandbyResult {
    Leads(LeaderStore),
    /// Ended by a signal.
    Stopped,
}

/// The store, with the remaining tasks of the standby time.
pub(super) struct LeaderStore {
    pub store: Arc<Store>,
    /// Fires on a signal to stop: a signal during the leader's start must not be missed.
    pub stopped: CancellationToken,
    /// Unfinished responses of the standby time, and the task that receives signals. Dropping cuts them.
    pub left: Vec<AbortOnDropHandle<()>>,
    /// True after a standby time: another process may have led before, whose streams are unknown to this one.
    pub has_followed: bool,
}

impl LeaderStore {
    /// A leader without a standby time.
    pub fn alone(store: Store) -> LeaderStore {
        LeaderStore {
            store: Arc::new(store),
            stopped: CancellationToken::new(),
            left: Vec::new(),
            has_followed: false,
        }
    }
}

/// Returns when this process leads. `inherited` is the process it takes over from, which has left the lock to it; that process ends
/// as soon as this one stands by.
pub(super) async fn until_leader(
    config: &Config,
    section: &StandbySection,
    listener: &Listener,
    edge: &Arc<Edge>,
    clock: Clock,
    progress: &Progress,
    inherited: &mut Option<InheritedSocket>,
) -> Result<StandbyResult, String> {
    let own = LeaderAddress {
        address: section.advertise.trim_end_matches('/').to_owned(),
        fingerprint: section.fingerprint.clone(),
    };
    let mut candidate = Candidate::new(&config.database_url().reveal(), own).map_err(line)?;
    if inherited.is_some() {
        candidate.takes_over();
    }
    let mut wait = Wait {
        front: Standby::new(Arc::clone(edge), clock, config.server.base_path.as_str()),
        has_tls: config.server.tls.is_some(),
        responses: None,
        logged: None,
    };
    let stopped = CancellationToken::new();
    let stops = stopped.clone();
    let hearing = AbortOnDropHandle::new(start(async move {
        stop_signal().await;
        stops.cancel();
    }));
    let looking = async {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            // A check that hangs ends the heartbeats, as a hang of this loop would.
            progress.step("looking who leads", LOOK_WITHIN);
            match candidate.look().await.map_err(line)? {
                CandidateStatus::MayLead => {
                    progress.step("opening the database", OPEN_WITHIN);
                    match candidate.lead().await.map_err(line)? {
                        Ok(store) => return Ok::<Arc<Store>, String>(Arc::new(store)),
                        Err(why) => wait.leaderless(&why),
                    }
                }
                CandidateStatus::Follows(leader) => wait.follow(&leader),
                CandidateStatus::Leaderless(why) => wait.leaderless(&why),
            }
            wait.serve(listener)?;
            if let Some(inherited) = inherited.take() {
                inherited.serving();
            }
        }
    };
    // The signal would end the process by default. A leader reads the configuration at its start anyway.
    let hangups = async {
        if let Ok(mut hangup) = signal(SignalKind::hangup()) {
            while hangup.recv().await.is_some() {
                tracing::info!(
                    "this controller stands by: it reads its configuration again when it is restarted"
                );
            }
        }
        std::future::pending::<()>().await;
    };
    let looked: Result<Arc<Store>, String> = tokio::select! {
        looked = looking => looked,
        () = stopped.cancelled() => {
            notify::stopping();
            tracing::info!("stopping: this controller stood by");
            wait.finish().await;
            return Ok(StandbyResult::Stopped);
        }
        () = hangups => return Err("signals cannot be received".to_owned()),
    };
    let store = looked?;
    let mut left = vec![hearing];
    let has_followed = wait.responses.is_some();
    left.extend(wait.leads());
    tracing::info!("this controller leads");
    Ok(StandbyResult::Leads(LeaderStore {
        store,
        stopped,
        left,
        has_followed,
    }))
}

/// The state of a standby.
struct Wait {
    front: Standby,
    has_tls: bool,
    /// The server, once it runs, and the token that stops it.
    responses: Option<(AbortOnDropHandle<()>, CancellationToken)>,
    /// The last logged reason, and the number of checks since.
    logged: Option<(String, u32)>,
}

impl Wait {
    fn follow(&mut self, leader: &Leader) {
        let at = &leader.at;
        match self.front.follow(&at.address, at.fingerprint.as_deref()) {
            Ok(true) => {
                self.logged = None;
                tracing::info!(
                    "standing by: {} leads ({}), and requests are passed on to it",
                    at.address,
                    leader.holder
                );
            }
            Ok(false) => {}
            Err(why) => self.say(&why),
        }
    }

    fn leaderless(&mut self, why: &str) {
        self.front.wait(why);
        self.say(why);
    }

    fn say(&mut self, why: &str) {
        let is_news = match &mut self.logged {
            Some((before, looks)) if before == why => {
                *looks += 1;
                *looks >= SAY_AGAIN
            }
            _ => true,
        };
        if is_news {
            tracing::warn!("standing by: {why}");
            self.logged = Some((why.to_owned(), 0));
        }
    }

    /// Starts to listen, if it has not yet. Before the first check, it is unknown whether this process stands by at all.
    fn serve(&mut self, listener: &Listener) -> Result<(), String> {
        if self.responses.is_some() {
            return Ok(());
        }
        // The same socket: connections that wait in it when this server stops are accepted by the leader's server.
        let own = listener.try_clone().map_err(line)?;
        let stop = CancellationToken::new();
        let server = start(self.front.clone().serve(own, stop.clone()));
        self.responses = Some((AbortOnDropHandle::new(server), stop));
        let scheme = if self.has_tls { "https" } else { "http" };
        let address = listener.shown(scheme).map_err(line)?;
        tracing::info!("serving {address}/v1 for the leading controller: this one stands by");
        notify::ready();
        Ok(())
    }

    /// From now on connections wait in the socket. Responses in progress continue in the returned task.
    fn leads(self) -> Option<AbortOnDropHandle<()>> {
        self.front.leads();
        let (server, stop) = self.responses?;
        stop.cancel();
        Some(server)
    }

    async fn finish(self) {
        if let Some((server, stop)) = self.responses {
            stop.cancel();
            let _ = tokio::time::timeout(CONNECTIONS_WITHIN, server).await;
        }
    }
}
