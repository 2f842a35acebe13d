//! The groups with their present requests and their use in the current month, for administrators, members and `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::state::App;
use api_types::dto::{GroupFigures, GroupList};
use config::{Config, GroupsSection};
use pool::{KeyId, Span, Time};

/// The time for which a list is shown again. Every member may request it, and it covers all groups.
const KEPT: Span = Span(500);

/// The last list.
#[derive(Debug, Default)]
pub struct LastGroups(Mutex<Option<MadeList>>);

/// A list, and its time and groups.
#[derive(Debug)]
struct MadeList {
    at: Time,
    section: Arc<GroupsSection>,
    list: Arc<GroupList>,
}

/// All groups of the configuration in force.
pub fn list(app: &App) -> Arc<GroupList> {
    let (section, now) = (app.keys.groups().section(), app.handle.clock().now());
    let mut last = app
        .last_groups
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = &*last
        && Arc::ptr_eq(&made.section, &section)
        && now.since(made.at) < KEPT
    {
        return Arc::clone(&made.list);
    }
    let list = Arc::new(fresh(app, &app.config(), &section));
    *last = Some(MadeList {
        at: now,
        section,
        list: Arc::clone(&list),
    });
    list
}

fn fresh(app: &App, config: &Config, section: &GroupsSection) -> GroupList {
    let groups = app.keys.groups();
    let mut figures: BTreeMap<String, GroupFigures> = BTreeMap::new();
    for name in section.keys() {
        let sum = groups.spending().total(name).sum();
        let figure = figures.entry(name.clone()).or_default();
        (figure.tokens, figure.device_ms) = (sum.tokens, sum.device_ms);
    }
    let members = groups.members();
    for name in members.values() {
        if let Some(figure) = figures.get_mut(&**name) {
            figure.members += 1;
        }
    }
    let mut others = 0;
    let mut count = |key: KeyId, of: fn(&mut GroupFigures) -> &mut usize| {
        let name = members.get(&key);
        match name.and_then(|name| figures.get_mut(&**name)) {
            Some(figure) => *of(figure) += 1,
            None => others += 1,
        }
    };
    for request in &app.handle.snapshot().pool.waiting {
        count(request.key, |figure| &mut figure.waiting);
    }
    for key in app.usages.running_keys() {
        count(key, |figure| &mut figure.running);
    }
    let wall = app.handle.clock().wall();
    GroupList::new((config, section), wall, &figures, others)
}
