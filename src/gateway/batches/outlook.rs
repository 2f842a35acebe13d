//! The forecasts of open batches, made on a copy of the pool with the speeds that were measured, and the warning before a miss.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::runner::Runner;
use crate::inference::understood::real_name;
use crate::open_batches::{BatchRecord, OpenBatch, Running, Status};
use crate::state::App;
use pool::{BatchEnd, BatchHour, BatchWork, ModelId, Span, Time};

/// The time between two forecasts of all batches.
const LOOK_EVERY: Span = Span::from_secs(30);
/// A new batch gets its forecast later if the forecasts of others take longer than this.
const NEW_WITHIN: Duration = Duration::from_secs(1);
/// The milliseconds of a thousand requests at a rate of one in 1,000 seconds.
const THOUSAND_AT_RATE_1: u64 = 1_000_000_000;

/// The forecasts of batches, by their ids, with times of the machine's clock.
pub(super) struct Outlook {
    ends: BTreeMap<String, BatchEnd>,
    must_begin: BTreeMap<ModelId, Time>,
}

/// The forecast of a batch that is being created; `None` if it comes later.
pub(super) async fn of_new(app: &App, record: &BatchRecord) -> Option<BatchEnd> {
    let open = open_batches(app, Some(record));
    let turn = app.batches.looking.lock();
    let _turn = tokio::time::timeout(NEW_WITHIN, turn).await.ok()?;
    let mut outlook = make(app, &open).await?;
    outlook.ends.remove(&record.id)
}

/// The batches that run or may run, with a new one: by rank, then by age.
fn open_batches(app: &App, new: Option<&BatchRecord>) -> Vec<OpenBatch> {
    let may_run = |batch: &&OpenBatch| {
        let state = &batch.record.state;
        state.status == Status::InProgress && !state.is_paused
    };
    let mut open: Vec<OpenBatch> = app
        .batches
        .with_open(|open| open.values().filter(may_run).cloned().collect());
    open.extend(new.map(|record| OpenBatch::new(record.clone(), Running::default())));
    open.sort_by_key(|batch| {
        let record = &batch.record;
        (
            Reverse(record.state.rank),
            record.created,
            record.id.clone(),
        )
    });
    open
}

/// Makes the forecasts of these batches. `None` if the controller is gone.
async fn make(app: &App, open: &[OpenBatch]) -> Option<Outlook> {
    let clock = app.handle.clock();
    let (now, wall) = (clock.now(), clock.wall());
    let from_wall = |at: Time| now + at.since(wall);
    let works = works(app, open, from_wall);
    let (hours, evicts) = {
        let config = app.config();
        let changes = config.batch_hours_ahead(wall).into_iter();
        let hours: Vec<BatchHour> = changes
            .map(|(at, may_evict)| BatchHour {
                from: from_wall(at),
                may_evict,
            })
            .collect();
        (hours, config.batch.deadline_evicts)
    };
    let outlook = app.handle.batch_outlook(works, hours, evicts);
    let outlook = outlook.await.ok()?;
    let to_wall = |at: Time| wall + at.since(now);
    let named = outlook.ends.into_iter().filter_map(|(nth, end)| {
        let batch = open.get(usize::try_from(nth).ok()?)?;
        let end = match end {
            BatchEnd::At { expected, latest } => BatchEnd::At {
                expected: to_wall(expected),
                latest: to_wall(latest),
            },
            other => other,
        };
        Some((batch.record.id.clone(), end))
    });
    Some(Outlook {
        ends: named.collect(),
        must_begin: outlook.must_begin,
    })
}

/// The open requests of these batches by model, with the measured speeds.
fn works(app: &App, open: &[OpenBatch], from_wall: impl Fn(Time) -> Time) -> Vec<BatchWork> {
    let speeds = app.batches.speeds().clone();
    let mut works = Vec::new();
    for (nth, batch) in (0..).zip(open) {
        let state = &batch.record.state;
        for (count, lines) in state.models.iter().zip(&batch.left) {
            let name = real_name(app, &count.name).unwrap_or(&count.name);
            let Some(route) = app.handle.route(name) else {
                continue;
            };
            let engine = route.entry.recipe.engine();
            let speed = speeds.get(name).filter(|speed| speed.engine == engine);
            let takes = speed.map(|speed| Span(THOUSAND_AT_RATE_1 / speed.rate.max(1)));
            works.push(BatchWork {
                batch: nth,
                model: route.model,
                lines: *lines,
                thousand_takes: takes,
                deadline: from_wall(Time(state.deadline)),
            });
        }
    }
    works
}

impl Runner {
    /// Takes new forecasts, and has the next ones made when they are due.
    pub async fn look_ahead(&mut self) {
        if let Some(Ok(Some(outlook))) = self.outlook.try_join_next() {
            self.take_outlook(outlook).await;
        }
        let now = self.app.handle.clock().now();
        let is_due = self
            .looked_at
            .is_none_or(|last| now.since(last) >= LOOK_EVERY);
        if self.active.is_empty() {
            self.must_begin.clear();
        } else if is_due && self.outlook.is_empty() {
            self.looked_at = Some(now);
            let app = self.app.clone();
            self.outlook.spawn(async move {
                let _turn = app.batches.looking.lock().await;
                let open = open_batches(&app, None);
                make(&app, &open).await
            });
        }
    }

    async fn take_outlook(&mut self, outlook: Outlook) {
        self.must_begin = outlook.must_begin;
        let wall = self.app.handle.clock().wall();
        let missed: Vec<OpenBatch> = self.app.batches.with_open(|open| {
            for (id, batch) in open.iter_mut() {
                batch.running.forecast = outlook.ends.get(id).copied();
            }
            let missed = open.values_mut().filter_map(|batch| {
                let end = batch.running.forecast?;
                let window = (batch.record.created, Time(batch.record.state.deadline));
                let is_due = batch.running.watch.is_due(end, wall, window);
                (is_due && batch.record.state.warning.is_none()).then(|| batch.clone())
            });
            missed.collect()
        });
        for batch in missed {
            self.warn(&batch).await;
        }
    }

    /// Warns once that a batch is expected to miss its window.
    async fn warn(&self, batch: &OpenBatch) {
        let (id, state) = (&batch.record.id, &batch.record.state);
        let wall = self.app.handle.clock().wall();
        let left: u64 = batch.left.iter().sum();
        let takes = match batch.running.forecast {
            Some(BatchEnd::At { expected, .. }) => {
                format!("are expected to take {}", expected.since(wall))
            }
            _ => "may never run".to_owned(),
        };
        let window = Time(state.deadline).since(wall);
        let warning =
            format!("{left} requests are left, which {takes}, and the window ends in {window}");
        tracing::warn!(batch = id, "a batch may miss its window: {warning}");
        let noted = self.app.batches.change(id, |record| {
            record.state.warning.get_or_insert(warning.clone());
        });
        match noted.await {
            Ok(true) => {}
            Ok(false) => return,
            Err(fault) => {
                tracing::warn!(batch = id, %fault, "the state of a batch cannot be stored");
                return;
            }
        }
        let unfinished = state.models.iter().zip(&batch.left);
        let model = unfinished
            .filter(|(_, left)| **left > 0)
            .find_map(|(model, _)| {
                let name = real_name(&self.app, &model.name).unwrap_or(&model.name);
                Some(self.app.handle.route(name)?.model)
            });
        if let Some(model) = model {
            // The history ends with the controller.
            let _ = self
                .app
                .handle
                .warn_of_batch(model, format!("{id}: {warning}"));
        }
    }
}
