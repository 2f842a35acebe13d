//! The pool as it is now, and what changed since: what pages that stay open are sent.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::devices::{DeviceView, QueueView};
use super::models::ModelView;
use super::values::rfc3339;
use config::Config;

/// The whole picture, the first event of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LiveView {
    /// The pool's own clock.
    #[schema(example = "2026-01-31T20:15:00.123Z")]
    pub at: String,
    pub models: Vec<ModelView>,
    pub devices: Vec<DeviceView>,
    pub queue: QueueView,
    pub evening: EveningView,
    pub store: StoreView,
}

/// What is not the same any more; what is absent is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LiveChange {
    #[schema(example = "2026-01-31T20:15:00.323Z")]
    pub at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ChangedModels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<ChangedDevices>,
    /// The whole queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evening: Option<EveningView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChangedModels {
    /// New ones, and those of which anything changed.
    pub changed: Vec<ModelView>,
    /// By name.
    pub gone: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChangedDevices {
    pub changed: Vec<DeviceView>,
    /// By name.
    pub gone: Vec<String>,
}

/// The evening cleanup, and whether always-hot models are protected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct EveningView {
    /// Between the cleanup and the reopening: always-hot models are not protected (E2).
    pub is_evening: bool,
    /// The pool's zone.
    #[schema(example = "Europe/Berlin")]
    pub timezone: String,
    /// null: there is none.
    pub next_cleanup_at: Option<String>,
    pub next_reopen_at: Option<String>,
}

/// Whether changes can be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StoreView {
    pub writable: bool,
    /// What is wrong, and what to do about it.
    pub trouble: Option<String>,
    /// Records of the history that could not be stored since the start.
    pub history_lost: u64,
}

impl EveningView {
    pub fn of(config: &Config, night: bool, now: DateTime<Utc>) -> EveningView {
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
    /// What of `newer` is not here; nothing if that is nothing. `with_times` compares also how long requests have waited,
    /// which changes by itself.
    pub fn change_to(&self, newer: &LiveView, with_times: bool) -> Option<LiveChange> {
        let name = |it: &ModelView| it.model.clone();
        let (changed, gone) =
            compared(&self.models, &newer.models, name, |one, other| one == other);
        let models = ChangedModels { changed, gone };
        let device = |it: &DeviceView| it.device.clone();
        let (changed, gone) = compared(&self.devices, &newer.devices, device, same_device);
        let devices = ChangedDevices { changed, gone };
        let is_same_queue = match with_times {
            true => self.queue == newer.queue,
            false => without_times(&self.queue) == without_times(&newer.queue),
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

    /// This, as those know it who were sent the change to `newer`.
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

/// Devices that count as unchanged stay as they were sent.
fn merged_devices(
    old: &[DeviceView],
    newer: Vec<DeviceView>,
    change: &LiveChange,
) -> Vec<DeviceView> {
    let changed = change.devices.iter().flat_map(|it| &it.changed);
    let changed: Vec<&str> = changed.map(|it| it.device.as_str()).collect();
    let kept = |it: DeviceView| match changed.contains(&it.device.as_str()) {
        true => it,
        false => {
            let before = old.iter().find(|old| old.device == it.device);
            before.cloned().unwrap_or(it)
        }
    };
    newer.into_iter().map(kept).collect()
}

/// What is new or another one, and the names of what is gone.
fn compared<T: Clone>(
    old: &[T],
    newer: &[T],
    name: impl Fn(&T) -> String,
    is_same: impl Fn(&T, &T) -> bool,
) -> (Vec<T>, Vec<String>) {
    let mut before: BTreeMap<String, &T> = old.iter().map(|it| (name(it), it)).collect();
    let mut changed = Vec::new();
    for it in newer {
        let known = before.remove(&name(it));
        if known.is_none_or(|known| !is_same(known, it)) {
            changed.push(it.clone());
        }
    }
    (changed, before.into_keys().collect())
}

/// A device is read every second or more often; if only that changes, it is sent every ten seconds.
fn same_device(one: &DeviceView, other: &DeviceView) -> bool {
    const TENS_OF_SECONDS: usize = "2026-01-31T20:15:0".len();
    let about = |it: &DeviceView| {
        let read_at = it.read_at.as_deref().unwrap_or_default();
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
    for it in &mut queue.waiting {
        (it.waited_ms, it.expected_ms) = (0, 0);
    }
    for it in &mut queue.orders {
        it.since_ms = 0;
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
            models: ModelList::of(&snapshot).models,
            devices: DeviceList::of(&snapshot).devices,
            queue: QueueView::of(&snapshot, &|key| key.to_string()),
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
    fn a_change_has_what_is_another_one_and_a_view_that_takes_it_is_the_newer_one() {
        let mut pool = pool(&[("a", 0, 10), ("b", 0, 5)]);
        let mut shown = view(&pool);
        assert_eq!(shown.change_to(&view(&pool), true), None);
        pool.load("a");
        let newer = view(&pool);
        let change = shown.change_to(&newer, false).expect("a is loaded");
        let models = change.models.as_ref().expect("one changed");
        let names: Vec<&str> = models.changed.iter().map(|it| it.model.as_str()).collect();
        assert_eq!((names, models.gone.len()), (vec!["a"], 0));
        assert!(change.devices.is_some() && change.queue.is_none());
        shown.take(newer.clone(), &change);
        assert_eq!(shown, newer);
        let mut without = newer.clone();
        without.models.retain(|it| it.model != "b");
        let change = newer.change_to(&without, false).expect("b is gone");
        assert_eq!(change.models.expect("gone").gone, ["b"]);
    }

    #[test]
    fn reading_a_device_again_is_no_change_for_ten_seconds() {
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
