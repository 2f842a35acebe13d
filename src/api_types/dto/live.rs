//! The state of the pool and its changes, as sent to open pages.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::devices::{DeviceView, QueueView};
use super::models::ModelView;
use super::values::rfc3339;
use config::Config;

/// The complete state: the first event of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LiveView {
    /// Server time.
    #[schema(example = "2026-01-31T20:15:00.123Z")]
    pub at: String,
    pub models: Vec<ModelView>,
    pub devices: Vec<DeviceView>,
    pub queue: QueueView,
    pub evening: EveningView,
    pub store: StoreView,
}

/// Changes since the previous event. Absent fields are unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LiveChange {
    #[schema(example = "2026-01-31T20:15:00.323Z")]
    pub at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ChangedModels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<ChangedDevices>,
    /// The complete queue, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evening: Option<EveningView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChangedModels {
    /// New and changed models.
    pub changed: Vec<ModelView>,
    /// Names of removed models.
    pub gone: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChangedDevices {
    pub changed: Vec<DeviceView>,
    /// Names of removed devices.
    pub gone: Vec<String>,
}

/// The evening cleanup and the protection of always-hot models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct EveningView {
    /// True between cleanup and reopening, when always-hot models are not protected (E2).
    pub is_evening: bool,
    /// Time zone of the pool.
    #[schema(example = "Europe/Berlin")]
    pub timezone: String,
    /// Time of the next cleanup; null if none is scheduled.
    pub next_cleanup_at: Option<String>,
    pub next_reopen_at: Option<String>,
}

/// State of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoreView {
    pub writable: bool,
    /// The problem and its remedy. Null if changes can be stored.
    pub trouble: Option<String>,
    /// History records lost since the start because they could not be stored.
    pub history_lost: u64,
}

impl EveningView {
    pub fn from_config(config: &Config, night: bool, now: DateTime<Utc>) -> EveningView {
        let zone = config.zone();
        let next =
            |cron: Option<&config::CronExpression>| Some(rfc3339(cron?.next_after(now, zone)?));
        EveningView {
            is_evening: night,
            timezone: zone.name().to_owned(),
            next_cleanup_at: next(config.evening.cleanup.as_ref()),
            next_reopen_at: next(config.evening.reopen.as_ref()),
        }
    }
}

impl LiveView {
    /// Returns the changes that lead to `newer`, or `None` if there are none. `with_times` also compares waiting times, which
    /// change constantly.
    pub fn change_to(&self, newer: &LiveView, with_times: bool) -> Option<LiveChange> {
        let name = |model: &ModelView| model.model.clone();
        let (changed, gone) =
            compared(&self.models, &newer.models, name, |one, other| one == other);
        let models = ChangedModels { changed, gone };
        let device = |device: &DeviceView| device.device.clone();
        let (changed, gone) = compared(&self.devices, &newer.devices, device, same_device);
        let devices = ChangedDevices { changed, gone };
        let is_same_queue = if with_times {
            self.queue == newer.queue
        } else {
            without_times(&self.queue) == without_times(&newer.queue)
        };
        let change = LiveChange {
            at: newer.at.clone(),
            models: (!models.changed.is_empty() || !models.gone.is_empty()).then_some(models),
            devices: (!devices.changed.is_empty() || !devices.gone.is_empty()).then_some(devices),
            queue: (!is_same_queue).then(|| newer.queue.clone()),
            evening: (self.evening != newer.evening).then(|| newer.evening.clone()),
            store: (self.store != newer.store).then(|| newer.store.clone()),
        };
        let has_any = change.models.is_some()
            || change.devices.is_some()
            || change.queue.is_some()
            || change.evening.is_some()
            || change.store.is_some();
        has_any.then_some(change)
    }

    /// Applies `change`, as its recipients do; `newer` is the state it was computed from.
    pub fn take(&mut self, newer: LiveView, change: &LiveChange) {
        let devices = match change.devices {
            Some(_) => merged_devices(&self.devices, newer.devices, change),
            None => std::mem::take(&mut self.devices),
        };
        let queue = match change.queue {
            Some(_) => newer.queue,
            None => std::mem::replace(&mut self.queue, QueueView::empty()),
        };
        *self = LiveView {
            devices,
            queue,
            ..newer
        };
    }
}

/// Devices that count as unchanged keep the values sent last.
fn merged_devices(
    old: &[DeviceView],
    newer: Vec<DeviceView>,
    change: &LiveChange,
) -> Vec<DeviceView> {
    let changed = change.devices.iter().flat_map(|devices| &devices.changed);
    let changed: Vec<&str> = changed.map(|device| device.device.as_str()).collect();
    let kept = |device: DeviceView| {
        if changed.contains(&device.device.as_str()) {
            device
        } else {
            let before = old.iter().find(|old| old.device == device.device);
            before.cloned().unwrap_or(device)
        }
    };
    newer.into_iter().map(kept).collect()
}

/// Returns the new and changed entries, and the names of the removed ones.
fn compared<T: Clone>(
    old: &[T],
    newer: &[T],
    name: impl Fn(&T) -> String,
    is_same: impl Fn(&T, &T) -> bool,
) -> (Vec<T>, Vec<String>) {
    let mut before: BTreeMap<String, &T> = old.iter().map(|item| (name(item), item)).collect();
    let mut changed = Vec::new();
    for item in newer {
        let known = before.remove(&name(item));
        if known.is_none_or(|known| !is_same(known, item)) {
            changed.push(item.clone());
        }
    }
    (changed, before.into_keys().collect())
}

/// Compares devices. Devices are measured every second or more often; if only the time of measurement changed, it is sent every ten
/// seconds.
fn same_device(one: &DeviceView, other: &DeviceView) -> bool {
    const TENS_OF_SECONDS: usize = "2026-01-31T20:15:0".len();
    let about = |device: &DeviceView| {
        let read_at = device.read_at.as_deref().unwrap_or_default();
        read_at.get(..TENS_OF_SECONDS).map(str::to_owned)
    };
    about(one) == about(other)
        && DeviceView {
            read_at: None,
            ..one.clone()
        } == DeviceView {
            read_at: None,
            ..other.clone()
        }
}

fn without_times(queue: &QueueView) -> QueueView {
    let mut queue = queue.clone();
    for request in &mut queue.waiting {
        (request.waited_ms, request.expected_ms) = (0, 0);
        (request.expected_ms_min, request.expected_ms_max) = (None, None);
    }
    for order in &mut queue.orders {
        order.since_ms = 0;
    }
    queue
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dto::snapshots::{of_pool, pool};
    use crate::dto::{DeviceList, ModelList};

    fn view(rig: &crate::dto::snapshots::Rig) -> LiveView {
        let snapshot = of_pool(rig);
        LiveView {
            at: "now".to_owned(),
            models: ModelList::from_snapshot(&snapshot).models,
            devices: DeviceList::from_snapshot(&snapshot).devices,
            queue: QueueView::from_snapshot(&snapshot, &|key| key.to_string(), &|_| None),
            evening: EveningView {
                is_evening: false,
                timezone: "UTC".to_owned(),
                next_cleanup_at: None,
                next_reopen_at: None,
            },
            store: StoreView {
                writable: true,
                trouble: None,
                history_lost: 0,
            },
        }
    }

    #[test]
    fn a_change_contains_only_differences_and_applying_it_yields_the_newer_view() {
        let mut pool = pool(&[("a", 0, 10), ("b", 0, 5)]);
        let mut shown = view(&pool);
        assert_eq!(shown.change_to(&view(&pool), true), None);
        pool.load("a");
        let newer = view(&pool);
        let change = shown.change_to(&newer, false).expect("a is loaded");
        let models = change.models.as_ref().expect("one changed");
        let names: Vec<&str> = models
            .changed
            .iter()
            .map(|model| model.model.as_str())
            .collect();
        assert_eq!((names, models.gone.len()), (vec!["a"], 0));
        assert!(change.devices.is_some() && change.queue.is_none());
        shown.take(newer.clone(), &change);
        assert_eq!(shown, newer);
        let mut without = newer.clone();
        without.models.retain(|model| model.model != "b");
        let change = newer.change_to(&without, false).expect("b is gone");
        assert_eq!(change.models.expect("gone").gone, ["b"]);
    }

    #[test]
    fn a_new_reading_of_an_unchanged_device_is_not_a_change_within_ten_seconds() {
        let pool = pool(&[]);
        let mut one = view(&pool);
        let mut other = one.clone();
        one.devices[0].read_at = Some("2026-01-31T20:15:01.000Z".to_owned());
        other.devices[0].read_at = Some("2026-01-31T20:15:09.000Z".to_owned());
        assert_eq!(one.change_to(&other, true), None);
        other.devices[0].read_at = Some("2026-01-31T20:15:10.000Z".to_owned());
        assert!(one.change_to(&other, true).is_some());
    }
}
