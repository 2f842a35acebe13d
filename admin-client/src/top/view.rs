//! The pool as `top` shows it: the first picture of a stream, and the changes after it. Pure.

use std::collections::{BTreeSet, VecDeque};

use serde::Deserialize;
use serde_json::Value;

use crate::render::quantity::label;
use crate::responses::{DeviceView, EventView, ModelView, QueueView};

/// Limit of events on the screen.
const EVENTS_MAX: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct View {
    pub models: Vec<ModelView>,
    pub devices: Vec<DeviceView>,
    pub queue: QueueView,
    pub evening: Evening,
    pub store: Store,
    /// The newest first. Filled by a separate stream.
    #[serde(skip)]
    pub events: VecDeque<EventView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Evening {
    pub is_evening: bool,
    pub next_cleanup_at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Store {
    pub trouble: Option<String>,
}

/// The parts of the view that have changed. Absent parts have not.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Change {
    models: ChangeSet<ModelView>,
    devices: ChangeSet<DeviceView>,
    queue: Option<QueueView>,
    evening: Option<Evening>,
    store: Option<Store>,
}

#[derive(Debug, Deserialize)]
struct ChangeSet<T> {
    #[serde(default = "Vec::new")]
    changed: Vec<T>,
    #[serde(default)]
    gone: BTreeSet<String>,
}

impl<T> Default for ChangeSet<T> {
    fn default() -> ChangeSet<T> {
        ChangeSet {
            changed: Vec::new(),
            gone: BTreeSet::new(),
        }
    }
}

impl<T> ChangeSet<T> {
    fn apply(self, list: &mut Vec<T>, name: impl Fn(&T) -> &str) {
        list.retain(|item| !self.gone.contains(name(item)));
        for newer in self.changed {
            match list.iter_mut().find(|item| name(item) == name(&newer)) {
                Some(place) => *place = newer,
                None => list.push(newer),
            }
        }
    }
}

impl View {
    /// Replaces everything but the events.
    pub fn replace(&mut self, newer: View) {
        let events = std::mem::take(&mut self.events);
        *self = View { events, ..newer };
        self.sort();
    }

    pub fn apply(&mut self, change: Change) {
        change.models.apply(&mut self.models, |model| &model.model);
        change
            .devices
            .apply(&mut self.devices, |device| &device.device);
        self.queue = change.queue.unwrap_or(std::mem::take(&mut self.queue));
        self.evening = change.evening.unwrap_or(std::mem::take(&mut self.evening));
        self.store = change.store.unwrap_or(std::mem::take(&mut self.store));
        self.sort();
    }

    /// Adds events, oldest first. Ignores known events: a reopened stream may repeat them.
    pub fn add_events(&mut self, events: Vec<EventView>) {
        for event in events {
            let is_known = |known: &EventView| known.id.is_some() && known.id == event.id;
            if !self.events.iter().any(is_known) {
                self.events.push_front(event);
            }
        }
        self.events.truncate(EVENTS_MAX);
    }

    pub fn model(&self, name: &str) -> Option<&ModelView> {
        self.models.iter().find(|model| model.model == name)
    }

    fn sort(&mut self) {
        self.models.sort_by(|a, b| a.model.cmp(&b.model));
        // gpu2 before gpu10.
        self.devices.sort_by(|a, b| {
            let key = |device: &DeviceView| {
                (
                    device.node.clone(),
                    device.device.len(),
                    device.device.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
    }
}

/// The id of an event.
pub fn event_id(event: &EventView) -> String {
    label(event.id.as_ref().unwrap_or(&Value::Null))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_replaces_adds_and_removes_by_name_and_leaves_the_rest() {
        let mut view = View::default();
        let first = json!({"models": [{"model": "b", "state": "cold"}, {"model": "a", "state": "cold"}, {"model": "c"}],
            "queue": {"waiting": [{"ticket": "t1", "model": "a"}]}, "evening": {"is_evening": true}});
        view.replace(serde_json::from_value(first).expect("a view"));
        let change = json!({"at": "now", "models": {"changed": [{"model": "a", "state": "ready"}, {"model": "d"}], "gone": ["c"]}});
        view.apply(serde_json::from_value(change).expect("a change"));
        let names: Vec<&str> = view
            .models
            .iter()
            .map(|model| model.model.as_str())
            .collect();
        assert_eq!(names, ["a", "b", "d"]);
        assert_eq!(view.models[0].state.as_str(), "ready");
        assert_eq!(view.queue.waiting.len(), 1);
        assert!(view.evening.is_evening);
        view.apply(serde_json::from_value(json!({"queue": {"waiting": []}})).expect("a change"));
        assert!(view.queue.waiting.is_empty());
    }

    #[test]
    fn repeated_events_are_shown_once_and_the_newest_is_first() {
        let mut view = View::default();
        let event =
            |id: u32| serde_json::from_value(json!({"id": id, "kind": "load"})).expect("an event");
        view.add_events(vec![event(1), event(2)]);
        view.add_events(vec![event(2), event(3)]);
        let ids: Vec<String> = view.events.iter().map(event_id).collect();
        assert_eq!(ids, ["3", "2", "1"]);
        view.add_events((4..1000).map(event).collect());
        assert_eq!(view.events.len(), EVENTS_MAX);
    }
}
