//! Sends the requests: a closed loop of connections, or an open loop that keeps its schedule regardless of the
//! endpoint.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand_distr::{Distribution, Exp1};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::client::{Client, now};
use super::connection::Connection;
use super::plan::{Load, StopCondition};
use super::response::RequestResult;
use super::tally::Tally;
use crate::args::Arrivals;

/// Pause of a closed loop after a failed connection attempt; otherwise it would retry thousands of times per second.
const AFTER_NO_CONNECTION: Duration = Duration::from_millis(100);

/// Label of responses that the model does not exist. If the first requests have it, all would.
const UNKNOWN_MODEL: &str = "404 model_not_found";

/// One phase of the load, with its counts.
pub struct Drive {
    pub client: Arc<Client>,
    pub tally: Mutex<Tally>,
    /// Requests that have started in this phase.
    pub begun: AtomicU64,
    /// Requests that have ended.
    pub ended: AtomicU64,
    /// Continue even if the model does not exist.
    ignores_errors: bool,
    /// The endpoint responded that the model does not exist, before any request succeeded.
    unknown_model: AtomicBool,
    load: Load,
    until: StopCondition,
    seed: u64,
}

impl Drive {
    pub fn new(
        client: Arc<Client>,
        load: Load,
        until: StopCondition,
        seed: u64,
        ignores_errors: bool,
    ) -> Arc<Drive> {
        Arc::new(Drive {
            ignores_errors,
            unknown_model: AtomicBool::new(false),
            client,
            tally: Mutex::default(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            load,
            until,
            seed,
        })
    }

    pub fn until(&self) -> StopCondition {
        self.until
    }

    /// Returns true if the endpoint responded that the model does not exist, which stops further requests.
    pub fn is_model_unknown(&self) -> bool {
        self.unknown_model.load(Ordering::Relaxed)
    }

    /// Runs until the last request has ended. Dropping the future cancels running requests.
    pub async fn run(self: &Arc<Drive>) {
        match self.load {
            Load::Closed { connections } => self.closed(connections).await,
            Load::Open {
                per_second,
                arrivals,
                at_once,
            } => self.open(per_second, arrivals, at_once).await,
            Load::Held { .. } => {}
        }
    }

    async fn closed(self: &Arc<Drive>, connections: usize) {
        let began = now();
        let mut lanes = JoinSet::new();
        for _ in 0..connections {
            let drive = Arc::clone(self);
            lanes.spawn(async move {
                let mut connection = None;
                while let Some(nth) = drive.next(now() - began) {
                    let response = drive.ask(nth, now(), &mut connection).await;
                    let unconnected = connection.is_none() && response.fault.is_some();
                    drive.count(response);
                    if unconnected {
                        tokio::time::sleep(AFTER_NO_CONNECTION).await;
                    }
                }
                connection
                    .into_iter()
                    .for_each(|connection| drive.client.give_back(connection));
            });
        }
        while lanes.join_next().await.is_some() {}
    }

    /// Returns the number of the next request, or `None` at the end of the load.
    fn next(&self, passed: Duration) -> Option<u64> {
        if self.is_model_unknown() {
            return None;
        }
        let nth = self.begun.fetch_add(1, Ordering::Relaxed);
        let goes_on = match self.until {
            StopCondition::Requests(most) => nth < most,
            StopCondition::Passed(time) => passed < time,
            StopCondition::Interrupted => true,
        };
        if !goes_on {
            self.begun.fetch_sub(1, Ordering::Relaxed);
        }
        goes_on.then_some(nth)
    }

    async fn open(self: &Arc<Drive>, per_second: f64, arrivals: Arrivals, at_once: usize) {
        let (due, mut dues) = mpsc::unbounded_channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let _stop = StopAtDrop(Arc::clone(&stopped));
        let pace = Pace::new(per_second, arrivals, self.until, self.seed);
        // A separate thread, because the runtime's timers have a resolution of a millisecond.
        std::thread::spawn(move || pace.tell(&due, &stopped));
        let seats = Arc::new(Semaphore::new(at_once));
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                due = dues.recv() => {
                    let Some(due) = due.filter(|_| !self.is_model_unknown()) else {
                        break;
                    };
                    let nth = self.begun.fetch_add(1, Ordering::Relaxed);
                    let (drive, seats) = (Arc::clone(self), Arc::clone(&seats));
                    running.spawn(async move {
                        let _seat = seats.acquire_owned().await;
                        let mut connection = None;
                        let response = drive.ask(nth, due, &mut connection).await;
                        drive.count(response);
                        connection.into_iter().for_each(|connection| drive.client.give_back(connection));
                    });
                }
                Some(_) = running.join_next(), if !running.is_empty() => {}
            }
        }
        while running.join_next().await.is_some() {}
    }

    async fn ask(
        &self,
        nth: u64,
        due: Instant,
        connection: &mut Option<Connection>,
    ) -> RequestResult {
        self.client.ask(nth, due, connection).await
    }

    fn count(&self, response: RequestResult) {
        let mut tally = crate::locking::locked(&self.tally);
        let fault = response.fault.as_ref();
        let is_unknown = fault.is_some_and(|fault| fault.label == UNKNOWN_MODEL);
        // After a success, either the model was removed or some of several endpoints lack it: the other responses count.
        if !self.ignores_errors && is_unknown && tally.succeeded == 0 {
            self.unknown_model.store(true, Ordering::Relaxed);
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        tally.count(response);
    }
}

struct StopAtDrop(Arc<AtomicBool>);

impl Drop for StopAtDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The schedule of an open loop, as times from its start.
struct Pace {
    per_second: f64,
    arrivals: Arrivals,
    until: StopCondition,
    random: rand_pcg::Pcg64Mcg,
    scheduled: u64,
    /// In seconds as a float, which keeps precision over millions of gaps.
    at: f64,
}

impl Pace {
    fn new(per_second: f64, arrivals: Arrivals, until: StopCondition, seed: u64) -> Pace {
        Pace {
            per_second,
            arrivals,
            until,
            random: crate::random::seeded(seed),
            scheduled: 0,
            at: 0.0,
        }
    }

    fn next(&mut self) -> Option<Duration> {
        let at = match self.arrivals {
            Arrivals::Constant => self.scheduled as f64 / self.per_second,
            Arrivals::Poisson => {
                let gap: f64 = Exp1.sample(&mut self.random);
                self.at += gap / self.per_second;
                self.at
            }
        };
        let at = Duration::from_secs_f64(at);
        let goes_on = match self.until {
            StopCondition::Requests(most) => self.scheduled < most,
            StopCondition::Passed(time) => at < time,
            StopCondition::Interrupted => true,
        };
        self.scheduled += 1;
        goes_on.then_some(at)
    }

    /// Sends the scheduled time of each request when it is due.
    fn tell(mut self, due: &mpsc::UnboundedSender<Instant>, stopped: &AtomicBool) {
        // Otherwise the kernel may wake this thread 50 microseconds late.
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_timerslack(1);
        let began = now();
        while let Some(at) = self.next() {
            loop {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let left = (began + at).saturating_duration_since(now());
                if left.is_zero() {
                    break;
                }
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
            if due.send(began + at).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arrivals: Arrivals, until: StopCondition, seed: u64) -> Vec<Duration> {
        let mut pace = Pace::new(100.0, arrivals, until, seed);
        std::iter::from_fn(|| pace.next()).collect()
    }

    #[test]
    fn constant_arrivals_have_equal_gaps() {
        let times = all(
            Arrivals::Constant,
            StopCondition::Passed(Duration::from_secs(1)),
            0,
        );
        assert_eq!(times.len(), 100);
        assert_eq!(
            (times[0], times[50]),
            (Duration::ZERO, Duration::from_millis(500))
        );
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_the_spread_of_an_exponential() {
        let times = all(Arrivals::Poisson, StopCondition::Requests(20_000), 7);
        assert_eq!(times.len(), 20_000);
        let seconds = times.last().unwrap().as_secs_f64();
        assert!((seconds - 200.0).abs() < 6.0, "{seconds}");
        let gaps = times.windows(2).map(|two| (two[1] - two[0]).as_secs_f64());
        let variance = gaps.map(|gap| (gap - 0.01).powi(2)).sum::<f64>() / 20_000.0;
        assert!((variance.sqrt() - 0.01).abs() < 0.0005, "{variance}");
        assert_eq!(
            times,
            all(Arrivals::Poisson, StopCondition::Requests(20_000), 7)
        );
        assert_ne!(
            times,
            all(Arrivals::Poisson, StopCondition::Requests(20_000), 8)
        );
    }
}
