//! What an open page is shown of the pool: what the lists of models and devices and the queue show, as far as the caller
//! may see it.

use super::models::all;
use super::queue::queue;
use crate::auth::sight::{ANOTHER, Sight};
use crate::dto::{self, DeviceList, EveningView, LiveView, StoreView};
use crate::live::Source;
use crate::state::App;

/// For those who see this.
pub fn source(app: &App, sight: &Sight) -> Source {
    let (published, clock) = (app.handle.published(), app.handle.clock());
    let (app, sight) = (app.clone(), sight.clone());
    Source {
        look: Box::new(move || look(&app, &sight)),
        published,
        clock,
    }
}

/// The view of this moment, with what they may see.
fn look(app: &App, sight: &Sight) -> LiveView {
    let snapshot = app.handle.snapshot();
    let now = app.handle.clock().now();
    let store = app.handle.store();
    let trouble = store.trouble();
    let mut view = LiveView {
        at: dto::at(now),
        models: all(app, &snapshot).models,
        devices: DeviceList::of(&snapshot).devices,
        queue: queue(app, &snapshot),
        evening: EveningView::of(&app.config(), snapshot.pool.night, dto::moment(now)),
        store: StoreView {
            writable: trouble.is_none(),
            trouble: trouble.map(|trouble| trouble.reason.clone()),
            history_lost: store.history_lost_total(),
        },
    };
    if sight.is_bounded() {
        restrict(&mut view, sight);
    }
    view
}

/// Takes out what is not for them. Memory that others hold stays, without their names.
fn restrict(view: &mut LiveView, sight: &Sight) {
    view.models
        .retain(|it| sight.has(&it.model) || it.aliases.iter().any(|name| sight.has(name)));
    let names: Vec<&str> = view.models.iter().map(|it| it.model.as_str()).collect();
    for device in &mut view.devices {
        for owner in &mut device.owners {
            if !names.contains(&owner.model.as_str()) {
                ANOTHER.clone_into(&mut owner.model);
            }
        }
    }
    let has = |name: &str| names.contains(&name);
    view.queue.waiting.retain(|it| has(&it.model));
    view.queue
        .orders
        .retain(|it| it.model.as_deref().is_none_or(has));
}
