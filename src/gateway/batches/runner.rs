//! Runs the requests of all batches: one task that takes room at gates, starts requests, writes results, and reports to the pool which
//! models the batches wait for. Only one process at a time runs the batches of a folder.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::finish;
use super::job::Job;
use super::line::LineEnd;
use super::outlook::Outlook;
use super::result_files::PlacedResults;
use super::speed::Speeds;
use super::transfers::Transfers;
use crate::inference::understood::real_name;
use crate::open_batches::{BatchPerson, BatchRecord, LearnedSpeed, Outcome, Status};
use crate::runner_lock;
use crate::state::App;
use batch::{Response, ResultError, ResultKind, ResultLine};
use pool::{BatchDemand, ModelId, Time};

/// The time between two turns, which write results to disk and states to the store.
const TURN_EVERY: Duration = Duration::from_secs(1);

/// A request that has ended.
pub(super) struct Ended {
    pub job: String,
    pub model: usize,
    pub request: u64,
    pub custom_id: String,
    pub request_id: HeaderValue,
    pub had_seat: bool,
    pub end: LineEnd,
}

/// A batch whose requests may begin.
#[derive(Clone, Debug)]
pub(super) struct ActiveBatch {
    pub id: String,
    pub holder: String,
    pub person: Option<BatchPerson>,
    pub endpoint: String,
}

impl ActiveBatch {
    fn new(record: &BatchRecord) -> ActiveBatch {
        ActiveBatch {
            id: record.id.clone(),
            holder: record.holder.clone(),
            person: record.state.person.clone(),
            endpoint: record.state.endpoint.clone(),
        }
    }
}

/// The batches of a folder, in the hands of this process.
pub(super) struct Runner {
    pub app: App,
    pub jobs: BTreeMap<String, Job>,
    /// The batches whose requests may begin: by rank, then by age.
    pub active: Vec<ActiveBatch>,
    pub lines: JoinSet<Ended>,
    /// The times until which no request of a batch is started for the nth of its models.
    pub pauses: BTreeMap<(String, usize), Time>,
    /// Batches that were closed because no request could run, with the times until which others go first.
    pub resting: BTreeMap<String, Time>,
    pub speeds: Speeds,
    demands: Vec<BatchDemand>,
    /// The times by which loads have to begin for deadlines (B7).
    pub must_begin: BTreeMap<ModelId, Time>,
    /// The forecasts that are being made, and the time of the last ones.
    pub outlook: JoinSet<Option<Outlook>>,
    pub looked_at: Option<Time>,
    /// Requests that run without a seat.
    pub seatless: u64,
    /// The last time at which expired files were looked for.
    pub forgot_at: Time,
    /// Results on their way to a bucket, by batch.
    pub result_puts: Transfers<PlacedResults>,
    /// Requests on their way from a bucket, by the name of their file on disk.
    pub fetches: Transfers<()>,
    /// The deletion of unused objects. Its value is false if an object could not be deleted.
    pub deletions: JoinSet<bool>,
    /// Deletions in a row that failed, and the time of the next one.
    pub failed_deletions: u32,
    pub deletes_at: Time,
}

/// Runs batches until `ending` fires.
pub async fn run(app: App, ending: CancellationToken) {
    // Held until the task ends.
    let _locked = tokio::select! {
        locked = runner_lock::take(&app, "runner.lock", "batches", TURN_EVERY) => locked,
        () = ending.cancelled() => return,
    };
    let batches = Arc::clone(&app.batches);
    let mut runner = Runner::new(app.clone());
    runner.open_all().await;
    batches.remove_orphans().await;
    let mut turns = tokio::time::interval(TURN_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // From here on, no room is overlooked.
        app.handle.batch_room().await_signal();
        runner.start_requests();
        tokio::select! {
            biased;
            () = ending.cancelled() => break,
            _ = turns.tick() => runner.turn().await,
            () = app.batches.changed.notified() => runner.turn().await,
            Some(ended) = runner.lines.join_next(), if !runner.lines.is_empty() => {
                runner.ended(ended);
                while let Some(ended) = runner.lines.try_join_next() {
                    runner.ended(ended);
                }
            }
            () = app.handle.batch_room().appears() => {}
        }
    }
    // The next process runs the requests again that have not ended.
    runner.lines.shutdown().await;
    runner.jobs.values().for_each(Job::sync);
}

impl Runner {
    fn new(app: App) -> Runner {
        Runner {
            app,
            jobs: BTreeMap::new(),
            active: Vec::new(),
            lines: JoinSet::new(),
            pauses: BTreeMap::new(),
            resting: BTreeMap::new(),
            speeds: Speeds::default(),
            demands: Vec::new(),
            must_begin: BTreeMap::new(),
            outlook: JoinSet::new(),
            looked_at: None,
            seatless: 0,
            forgot_at: Time::default(),
            result_puts: Transfers::new(
                "the results of a batch cannot be put into their bucket; trying again",
                false,
            ),
            fetches: Transfers::new(
                "the requests of a batch cannot be fetched from their bucket",
                true,
            ),
            deletions: JoinSet::new(),
            failed_deletions: 0,
            deletes_at: Time::default(),
        }
    }

    /// Continues the batches of an earlier process.
    async fn open_all(&self) {
        while let Err(fault) = self.app.batches.load().await {
            tracing::warn!(%fault, "the open batches cannot be read; trying again");
            tokio::time::sleep(TURN_EVERY).await;
        }
    }

    /// The records of the open batches: by rank, then by age.
    fn records(&self) -> Vec<BatchRecord> {
        let mut records: Vec<BatchRecord> = self.app.batches.with_open(|open| {
            let open = open.values();
            open.map(|batch| batch.record.clone()).collect()
        });
        records.sort_by_key(|record| {
            let rank = Reverse(record.state.rank);
            (rank, record.created, record.id.clone())
        });
        records
    }

    /// Everything that is due each second: new batches, results to disk, batches that end, and the demand for models.
    async fn turn(&mut self) {
        let records = self.records();
        self.close_idle(&records);
        self.open_some(&records).await;
        finish::sync_and_end(self, &records).await;
        let records = self.records();
        self.active = records
            .iter()
            .filter(|record| record.state.status == Status::InProgress && !record.state.is_paused)
            .filter(|record| self.jobs.contains_key(&record.id))
            .map(ActiveBatch::new)
            .collect();
        self.look_ahead().await;
        self.report_demand();
    }

    /// Takes the end of a request: its result, or another run.
    fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let Ended {
            job: id,
            model,
            request,
            custom_id,
            request_id,
            had_seat,
            end,
        } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "a request of a batch panicked");
                return;
            }
        };
        self.seatless -= u64::from(!had_seat);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let name = real_name(&self.app, &job.models[model].name);
        let name = name.unwrap_or(&job.models[model].name).to_owned();
        let request_id = request_id.to_str().unwrap_or_default();
        let result = |kind, response, error| {
            let line = ResultLine {
                custom_id: &custom_id,
                response,
                error,
            };
            (kind, line)
        };
        let crash;
        let (kind, line) = match &end {
            LineEnd::LostSeat if had_seat => return job.runs_again(model, request),
            LineEnd::LostSeat | LineEnd::Later => {
                job.runs_again(model, request);
                return self.pause(&id, model);
            }
            LineEnd::Crashed { message } => {
                if job.crashed(model, request) {
                    return;
                }
                crash = format!("the engine ended twice while it ran this request: {message}");
                let error = ResultError {
                    code: "engine_crashed",
                    message: &crash,
                };
                result(ResultKind::Error, None, Some(error))
            }
            LineEnd::Failed { code, message } => {
                let error = ResultError { code, message };
                result(ResultKind::Error, None, Some(error))
            }
            LineEnd::Responded { status, body } => {
                let kind = if *status < 400 {
                    ResultKind::Output
                } else {
                    ResultKind::Error
                };
                let response = Response {
                    status_code: *status,
                    request_id,
                    body,
                };
                result(kind, Some(response), None)
            }
        };
        let bytes = match job.finishes(model, request, kind, &line) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(batch = id, %error, "a result of a batch cannot be written; the request runs again");
                job.has_trouble();
                return;
            }
        };
        if bytes > 0 {
            let outcome = match kind {
                ResultKind::Output => Outcome::Completed,
                ResultKind::Error => Outcome::Failed,
            };
            let now = self.app.handle.clock().now();
            self.app.batches.counts.add(outcome, bytes, now);
        }
        if self.app.handle.route(&name).is_some() {
            self.speeds.of_model(&name).ended();
        }
    }

    /// Reports the models with requests that wait to the pool, if they have changed, and measures the speeds of the models.
    fn report_demand(&mut self) {
        let now = self.app.handle.clock().now();
        let may_evict = self
            .app
            .config()
            .is_within_batch_hours(self.app.handle.clock().wall());
        let mut lines: BTreeMap<ModelId, u64> = BTreeMap::new();
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        for batch in &self.active {
            let models = self.jobs.get(&batch.id).map(|job| &job.models);
            let models = models.into_iter().flatten();
            for work in models.filter(|work| work.left > 0) {
                let name = real_name(&self.app, &work.name).unwrap_or(&work.name);
                if let Some(route) = self.app.handle.route(name) {
                    *lines.entry(route.model).or_default() += work.left;
                    *names.entry(name).or_default() += work.in_flight;
                }
            }
        }
        for (name, in_flight) in names {
            let route = self.app.handle.route(name);
            let engine = route.map_or("", |route| route.entry.recipe.engine());
            let mut learned = self.app.batches.speeds();
            let speed = self.speeds.of_model(name);
            if let Some(known) = learned.get(name).filter(|known| known.engine == engine) {
                speed.begin_with(known.rate);
            }
            speed.tick(now, in_flight);
            if let Some(rate) = speed.rate() {
                let engine = engine.to_owned();
                learned.insert(name.to_owned(), LearnedSpeed { engine, rate });
            }
        }
        let must_begin = &self.must_begin;
        let deadline_evicts = self.app.config().batch.deadline_evicts;
        let demand = |(model, lines)| BatchDemand {
            model,
            lines: rounded(lines),
            may_evict,
            must_begin: must_begin.get(&model).copied(),
            deadline_evicts,
        };
        let demands: Vec<BatchDemand> = lines.into_iter().map(demand).collect();
        if demands != self.demands && self.app.handle.set_batches(demands.clone()).is_ok() {
            self.demands = demands;
        }
    }
}

/// Keeps the four highest bits, because the pool needs only the order of the lists.
fn rounded(lines: u64) -> u64 {
    let shift = (u64::BITS - lines.leading_zeros()).saturating_sub(4);
    (lines >> shift) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_rounded_down_to_four_bits_and_never_to_zero() {
        for (lines, expected) in [
            (1, 1),
            (15, 15),
            (17, 16),
            (1_000, 960),
            (u64::MAX, 15 << 60),
        ] {
            assert_eq!(rounded(lines), expected, "{lines}");
        }
    }
}
