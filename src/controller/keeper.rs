//! The one task that writes the store. Jobs are done in the order they were given, so that of two
//! wishes for one model the later one stays. It never decides what is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{broadcast, mpsc};

use super::handle::Message;
use crate::pool::{Cordon, DeviceId, LoadWish, OrderId, Override, Record, Time};
use crate::store::{Circumstances, Measurement, Store, StoreFault, StoredRecord, UsageMinute};

#[derive(Debug)]
pub(super) enum Job {
    /// What was asked for, by minute and model.
    Usage(Vec<UsageMinute>),
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
}

/// A wish with the name that the store knows the model by.
#[derive(Debug)]
pub(super) enum NamedWish {
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
    /// By the device's own name or UUID.
    Cordon {
        device: String,
        cordon: Option<Cordon>,
    },
}

/// Records written in one transaction.
const BATCH_MAX: usize = 256;

/// Ends when every sender of jobs is gone and all jobs are done.
pub(super) async fn run(
    store: Arc<Store>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    inbox: mpsc::WeakUnboundedSender<Message>,
    events: broadcast::Sender<Arc<StoredRecord>>,
    device_names: BTreeMap<DeviceId, String>,
) {
    let name = |device: DeviceId| {
        device_names
            .get(&device)
            .cloned()
            .unwrap_or_else(|| device.to_string())
    };
    let mut next = Vec::new();
    while jobs.recv_many(&mut next, BATCH_MAX).await > 0 {
        let mut records = Vec::new();
        for job in next.drain(..) {
            match job {
                Job::Record(record) => records.push(record),
                other => {
                    append(&store, &mut records, &name, &events).await;
                    keep(&store, other, &inbox).await;
                }
            }
        }
        append(&store, &mut records, &name, &events).await;
    }
}

async fn append(
    store: &Store,
    records: &mut Vec<Record>,
    name: &(dyn Fn(DeviceId) -> String + Sync),
    events: &broadcast::Sender<Arc<StoredRecord>>,
) {
    if records.is_empty() {
        return;
    }
    match store.append(records, &|device| name(device)).await {
        Ok(stored) => {
            for record in stored {
                // Nobody may be listening.
                let _ = events.send(Arc::new(record));
            }
        }
        Err(fault) => {
            tracing::error!(%fault, lost = records.len(), "the history could not be written")
        }
    }
    records.clear();
}

async fn keep(store: &Store, job: Job, inbox: &mpsc::WeakUnboundedSender<Message>) {
    let (order, result): (Option<OrderId>, Result<(), StoreFault>) = match job {
        Job::Wish { order, wish } => (
            order,
            match &wish {
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
        ),
        Job::Measurement { of, measurement } => {
            (None, store.save_measurement(&of, measurement).await)
        }
        Job::Remembered { model, numbers } => (None, store.save_remembered(&model, &numbers).await),
        Job::Usage(minutes) => (None, store.add_usage(&minutes).await),
        Job::Record(_) => (None, Ok(())),
    };
    let failure = result.err().map(|fault| fault.to_string());
    if let Some(message) = &failure {
        tracing::error!(%message, "the store could not keep something");
    }
    if let (Some(order), Some(inbox)) = (order, inbox.upgrade()) {
        let _ = inbox.send(Message::Saved { order, failure });
    }
}
