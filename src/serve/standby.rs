//! The start of one of two services on one PostgreSQL (D4): it listens, stands by while the other one leads, and returns with
//! the store when it leads itself. Its socket stays open all the while, so that no connection is refused.
//!
//! ```text
//! listens ─▶ stands by: answers of itself, passes requests on ─▶ leads: connections wait in the socket until it serves
//!               │ looks every second (store::Candidate)
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
use super::signals::stop_signal;
use super::starting::{LOOK_WITHIN, OPEN_WITHIN, Progress};
use super::stop_time::CONNECTIONS_WITHIN;
use super::takeover::Inherited;
use super::tasks::start;
use config::{Config, StandbySection};
use controller::Clock;
use http::{Edge, Listener, Standby};
use store::{Advertised, Candidate, Leader, Standing, Store};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same reason is logged again after so many looks.
const SAY_AGAIN: u32 = 30;

/// How the wait has ended.
pub(super) enum Ended {
    Leads(Led),
    /// A signal ended it.
    Stopped,
}

/// The store, and what is left of the time before.
pub(super) struct Led {
    pub store: Arc<Store>,
    /// Fires at a signal to stop: one that comes while the leader starts must not be missed.
    pub stopped: CancellationToken,
    /// Answers of that time that have not ended, and what hears signals. Dropped, they are cut.
    pub left: Vec<AbortOnDropHandle<()>>,
    /// It has stood by: another process may have led before, whose streams are unknown here.
    pub has_followed: bool,
}

impl Led {
    /// Without a time before.
    pub fn alone(store: Store) -> Led {
        Led {
            store: Arc::new(store),
            stopped: CancellationToken::new(),
            left: Vec::new(),
            has_followed: false,
        }
    }
}

/// Returns when this process leads. `inherited`: the process that it takes over from, which has left the lock to it; that one
/// ends as soon as this one stands by.
pub(super) async fn until_leader(
    config: &Config,
    section: &StandbySection,
    listener: &Listener,
    edge: &Arc<Edge>,
    clock: Clock,
    progress: &Progress,
    inherited: &mut Option<Inherited>,
) -> Result<Ended, String> {
    let own = Advertised {
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
        answers: None,
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
            // A look that hangs ends the signs of life, and so would a stop of this loop.
            progress.step("looking who leads", LOOK_WITHIN);
            match candidate.look().await.map_err(line)? {
                Standing::MayLead => {
                    progress.step("opening the database", OPEN_WITHIN);
                    match candidate.lead().await.map_err(line)? {
                        Ok(store) => return Ok::<Arc<Store>, String>(Arc::new(store)),
                        Err(why) => wait.leaderless(&why),
                    }
                }
                Standing::Follows(leader) => wait.follow(&leader),
                Standing::Leaderless(why) => wait.leaderless(&why),
            }
            wait.serve(listener)?;
            if let Some(inherited) = inherited.take() {
                inherited.serving();
            }
        }
    };
    // By default it would end the process; what is reloaded is read at the start of a leader anyway.
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
            return Ok(Ended::Stopped);
        }
        () = hangups => return Err("signals cannot be received".to_owned()),
    };
    let store = looked?;
    tracing::info!("this controller leads");
    let mut left = vec![hearing];
    let has_followed = wait.answers.is_some();
    left.extend(wait.leads());
    Ok(Ended::Leads(Led {
        store,
        stopped,
        left,
        has_followed,
    }))
}

/// What stands by.
struct Wait {
    front: Standby,
    has_tls: bool,
    /// The server, once it is there, and what stops it.
    answers: Option<(AbortOnDropHandle<()>, CancellationToken)>,
    /// What was logged last, and how many looks ago.
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

    /// Listens, if it does not yet. Before the first look it is not known whether it stands by at all.
    fn serve(&mut self, listener: &Listener) -> Result<(), String> {
        if self.answers.is_some() {
            return Ok(());
        }
        // The same socket: what waits in it when this one stops is accepted by the leader's server.
        let own = listener.try_clone().map_err(line)?;
        let stop = CancellationToken::new();
        let server = start(self.front.clone().serve(own, stop.clone()));
        self.answers = Some((AbortOnDropHandle::new(server), stop));
        let scheme = if self.has_tls { "https" } else { "http" };
        let address = listener.shown(scheme).map_err(line)?;
        tracing::info!("serving {address}/v1 for the one that leads: this controller stands by");
        notify::ready();
        Ok(())
    }

    /// Connections wait in the socket from now on; answers that have begun go on in what is returned.
    fn leads(self) -> Option<AbortOnDropHandle<()>> {
        self.front.leads();
        let (server, stop) = self.answers?;
        stop.cancel();
        Some(server)
    }

    async fn finish(self) {
        if let Some((server, stop)) = self.answers {
            stop.cancel();
            let _ = tokio::time::timeout(CONNECTIONS_WITHIN, server).await;
        }
    }
}
