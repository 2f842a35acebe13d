//! Writes the pool's wishes and events to the store in their original order: the later of two wishes for one model stays. While
//! nothing can be written, wishes of orders are refused and the rest waits here. Keys, audit, registrations and the evening's times
//! are written by their own modules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ticks::Ticks;
use tokio::sync::{broadcast, mpsc};

pub(crate) use super::trimming::Trimming;
use super::unwritten_jobs::UnwrittenJobs;
use crate::gates::SettledOrder;
use crate::messages::Message;
use pool::{Cordon, DeviceId, LoadWish, OrderId, Override, Record, Time};
use store::{
    Circumstances, LedgerBatch, Measurement, Store, StoreError, StoredRecord, UsageMinute,
};

#[derive(Debug)]
pub(crate) enum Job {
    /// Usage by minute and model.
    Usage(Vec<UsageMinute>),
    /// Parts of the time of devices.
    Ledger(LedgerBatch),
    Wish {
        order: Option<OrderId>,
        wish: NamedWish,
    },
    Record(Record),
    Measurement {
        of: Circumstances,
        measurement: Measurement,
    },
    Remembered {
        model: String,
        numbers: Vec<u64>,
    },
    /// Names of devices that came with a node, for the records that follow.
    DeviceNames(BTreeMap<DeviceId, String>),
    /// Orders whose callers are notified once all earlier jobs are written, or cannot be.
    Settled(Vec<SettledOrder>),
}

/// A wish with the model's name in the store.
#[derive(Clone, Debug)]
pub(crate) enum NamedWish {
    Override {
        model: String,
        over: Override,
    },
    Load {
        model: String,
        wish: Option<LoadWish>,
    },
    LoadAndOverride {
        model: String,
        wish: LoadWish,
        over: Override,
    },
    ForgetLoads {
        before: Option<Time>,
    },
    /// The device's UUID or name.
    Cordon {
        device: String,
        cordon: Option<Cordon>,
    },
}

/// Maximum number of records written in one transaction.
const BATCH_MAX: usize = 256;

/// Maximum number of parts of the ledger written in one transaction. Each takes two statements, and up to six for new names, within the
/// time limit for a write.
const PARTS_MAX: usize = 256;

/// Maximum number of records that wait while nothing can be written. Beyond that, the oldest are lost and counted.
const RECORDS_MAX: usize = 4096;

/// Interval at which writing is tried again after a failure.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Writes jobs one after the other.
struct Keeper {
    store: Arc<Store>,
    inbox: mpsc::WeakUnboundedSender<Message>,
    events: broadcast::Sender<Arc<StoredRecord>>,
    device_names: BTreeMap<DeviceId, String>,
    waiting: UnwrittenJobs,
    /// The reason the last attempt failed, kept until the next probe. On PostgreSQL an attempt may take seconds, so orders are
    /// refused without another attempt while it is set.
    failed: Option<String>,
    /// The number of the last batch of the ledger. Begins with the time of the start, so no other controller uses it.
    ledger_number: u128,
}

/// Ends when every sender of jobs is gone and all jobs are done.
pub(crate) async fn run(
    store: Arc<Store>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    inbox: mpsc::WeakUnboundedSender<Message>,
    events: broadcast::Sender<Arc<StoredRecord>>,
    device_names: BTreeMap<DeviceId, String>,
    mut trimming: Trimming,
) {
    let mut keeper = Keeper {
        store,
        inbox,
        events,
        device_names,
        waiting: UnwrittenJobs::default(),
        failed: None,
        ledger_number: u128::from(trimming.wall().0) << 64,
    };
    let mut next = Vec::new();
    let mut probe = Ticks::every(PROBE_EVERY);
    loop {
        tokio::select! {
            biased;
            // Polled first: jobs may arrive so fast that no other branch would get a turn. Another task may have found that nothing
            // can be written, such as a change of the keys.
            _ = probe.tick() => {
                keeper.looks_again().await;
                // The pause starts here: a probe slower than the pause would otherwise be due again immediately.
                probe.reset();
            }
            count = jobs.recv_many(&mut next, BATCH_MAX) => {
                if count == 0 {
                    break;
                }
                for job in next.drain(..) {
                    keeper.takes(job).await;
                }
                keeper.append().await;
            }
            () = trimming.due() => trimming.turn(&keeper.store).await,
        }
    }
    keeper.ends().await;
}

impl Keeper {
    async fn takes(&mut self, job: Job) {
        match job {
            Job::Record(record) => {
                self.waiting.records.push_back(record);
                if self.waiting.records.len() > RECORDS_MAX {
                    self.waiting.records.pop_front();
                    self.waiting.lost += 1;
                    self.store.history_lost(1);
                }
            }
            Job::DeviceNames(names) => {
                // Earlier records belong to devices with the previous names.
                self.append().await;
                self.device_names.extend(names);
            }
            Job::Settled(orders) => {
                self.append().await;
                orders.into_iter().for_each(SettledOrder::respond);
            }
            Job::Ledger(batch) => {
                self.append().await;
                self.keeps_ledger(batch).await;
            }
            other => {
                self.append().await;
                self.keeps(other).await;
            }
        }
    }

    /// Writes the waiting records. While nothing can be written, stops instead of trying each.
    async fn append(&mut self) {
        while !self.waiting.records.is_empty() && self.store.trouble().is_none() {
            let count = self.waiting.records.len().min(BATCH_MAX);
            let records: Vec<Record> = self.waiting.records.iter().take(count).cloned().collect();
            let names = &self.device_names;
            let name = |device: DeviceId| {
                let known = names.get(&device).cloned();
                known.unwrap_or_else(|| device.to_string())
            };
            match self.store.append(&records, &name).await {
                Ok(stored) => {
                    self.waiting.records.drain(..count);
                    for record in stored {
                        // There may be no listener.
                        let _ = self.events.send(Arc::new(record));
                    }
                    let lost = std::mem::take(&mut self.waiting.lost);
                    if lost > 0 {
                        tracing::warn!(
                            "{lost} records of the history were lost while it could not be written"
                        );
                    }
                }
                // The store has logged this fault, and the write is tried again.
                Err(error) if error.is_logged_by_the_store() => return self.remembers(&error),
                Err(error) => {
                    tracing::error!(%error, lost = count, "the history could not be written");
                    self.waiting.records.drain(..count);
                    self.store.history_lost(count as u64);
                }
            }
        }
    }

    /// Writes one job. An order is tried even during a failure, since its sender waits for the result; on PostgreSQL at most once
    /// between two probes.
    async fn keeps(&mut self, job: Job) {
        let order = match &job {
            Job::Wish { order, .. } => *order,
            _ => None,
        };
        if let (Some(order), Some(why)) = (order, &self.failed) {
            return self.respond(order, Some(why.clone()));
        }
        if order.is_none() && self.store.trouble().is_some() {
            return self.waiting.takes(job);
        }
        // Waiting jobs are older and must be written first.
        let (job, result) = match self.catches_up().await {
            Ok(()) => {
                let job = self.numbered(job);
                let result = write(&self.store, &job).await;
                (job, result)
            }
            Err(error) => (job, Err(error)),
        };
        if let Err(error) = &result {
            self.remembers(error);
        }
        if let Some(order) = order {
            let failure = result.as_ref().err().map(ToString::to_string);
            self.respond(order, failure);
        }
        match result {
            Err(error) if !error.is_logged_by_the_store() => {
                tracing::error!(%error, "the store could not keep something");
            }
            Err(_) if order.is_none() => self.waiting.takes(job),
            _ => {}
        }
    }

    /// Writes parts of the ledger in transactions of a limited size: parts of a long failure keep what has succeeded.
    async fn keeps_ledger(&mut self, batch: LedgerBatch) {
        for some in batch.divided(PARTS_MAX) {
            self.keeps(Job::Ledger(some)).await;
        }
    }

    /// Numbers a batch of the ledger before its first write.
    fn numbered(&mut self, job: Job) -> Job {
        match job {
            Job::Ledger(batch) => {
                self.ledger_number += 1;
                Job::Ledger(batch.numbered(self.ledger_number))
            }
            job => job,
        }
    }

    fn remembers(&mut self, error: &StoreError) {
        let is_slow = self.store.path().is_none();
        if is_slow && error.is_logged_by_the_store() {
            self.failed = Some(error.to_string());
        }
    }

    fn respond(&self, order: OrderId, failure: Option<String>) {
        if let Some(inbox) = self.inbox.upgrade() {
            let _ = inbox.send(Message::Saved { order, failure });
        }
    }

    /// Writes the waiting jobs, oldest first.
    async fn catches_up(&mut self) -> Result<(), StoreError> {
        while let Some((place, job)) = self.waiting.places.pop_first() {
            match write(&self.store, &job).await {
                Err(error) if error.is_logged_by_the_store() => {
                    self.waiting.places.insert(place, job);
                    return Err(error);
                }
                Err(error) => tracing::error!(%error, "the store could not keep something"),
                Ok(()) => {}
            }
        }
        if let Some(batch) = self.waiting.tried_ledger.take() {
            match self.store.add_ledger(&batch).await {
                Err(error) if error.is_logged_by_the_store() => {
                    self.waiting.tried_ledger = Some(batch);
                    return Err(error);
                }
                Err(error) => tracing::error!(%error, "the store could not keep something"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Resumes as soon as writing works again. A lost lock is the first sign that PostgreSQL is unavailable while nothing else is
    /// written.
    async fn looks_again(&mut self) {
        self.failed = None;
        let is_doubtful = self.store.trouble().is_some() || self.store.has_lost_its_lock();
        if is_doubtful && let Err(error) = self.store.probe().await {
            return self.remembers(&error);
        }
        if self.catches_up().await.is_err() {
            return;
        }
        if !self.waiting.minutes.is_empty() {
            let minutes = std::mem::take(&mut self.waiting.minutes);
            self.keeps(Job::Usage(minutes)).await;
        }
        // The ledger of a long failure takes many writes, so the history comes first.
        self.append().await;
        let batch = std::mem::take(&mut self.waiting.ledger);
        self.keeps_ledger(batch).await;
    }

    /// The last attempt, at shutdown.
    async fn ends(&mut self) {
        if !self.waiting.is_empty() {
            self.looks_again().await;
        }
        let lost = self.waiting.records.len() as u64 + self.waiting.lost;
        if !self.waiting.is_empty() || lost > 0 {
            tracing::error!(
                "the state could not be written until the end: {lost} records of the history are lost, and {} changes that the pool made on its own",
                self.waiting.places.len()
            );
        }
    }
}

async fn write(store: &Store, job: &Job) -> Result<(), StoreError> {
    match job {
        Job::Wish { wish, .. } => match wish {
            NamedWish::Override { model, over } => store.save_override(model, over).await,
            NamedWish::Load { model, wish } => store.save_load(model, wish.as_ref()).await,
            NamedWish::LoadAndOverride { model, wish, over } => {
                store.save_load_and_override(model, wish, over).await
            }
            NamedWish::ForgetLoads { before: None } => store.forget_loads().await,
            NamedWish::ForgetLoads {
                before: Some(before),
            } => store.forget_loads_before(*before).await,
            NamedWish::Cordon { device, cordon } => {
                store.save_cordon(device, cordon.as_ref()).await
            }
        },
        Job::Measurement { of, measurement } => store.save_measurement(of, *measurement).await,
        Job::Remembered { model, numbers } => store.save_remembered(model, numbers).await,
        Job::Usage(minutes) => store.add_usage(minutes).await,
        Job::Ledger(batch) => store.add_ledger(batch).await,
        Job::Record(_) | Job::DeviceNames(_) | Job::Settled(_) => Ok(()),
    }
}
