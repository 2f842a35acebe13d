//! The content of the live view: the lists of models and devices and the queue, restricted to what the caller may see.

use super::models::all;
use super::queue::{hide_keys, queue};
use api_types::dto::{self, DeviceList, EveningView, LiveView, StoreView};
use gateway::auth::sight::{ANOTHER, Sight};
use gateway::live::Source;
use gateway::state::App;

/// The source of views for callers with this sight.
pub(crate) fn source(app: &App, sight: &Sight) -> Source {
    let (published, clock) = (app.handle.published(), app.handle.clock());
    let (app, sight) = (app.clone(), sight.clone());
    Source {
        look: Box::new(move || look(&app, &sight)),
        published,
        clock,
    }
}

/// The current view, restricted to this sight.
fn look(app: &App, sight: &Sight) -> LiveView {
    let snapshot = app.handle.snapshot();
    let now = app.handle.clock().now();
    let store = app.handle.store();
    let trouble = store.trouble();
    let mut view = LiveView {
        at: dto::at(now),
        models: all(app, &snapshot).models,
        devices: DeviceList::from_snapshot(&snapshot).devices,
        queue: queue(app, &snapshot),
        evening: EveningView::from_config(&app.config(), snapshot.pool.night, dto::moment(now)),
        store: StoreView {
            writable: trouble.is_none(),
            trouble: trouble.map(|trouble| trouble.reason.clone()),
            history_lost: store.history_lost_total(),
        },
    };
    if sight.is_bounded() {
        restrict(&mut view, sight);
        hide_keys(&mut view.queue, sight);
    }
    view
}

/// Removes hidden models. Memory used by hidden models stays, without their names.
fn restrict(view: &mut LiveView, sight: &Sight) {
    view.models.retain(|model| {
        sight.has(&model.model) || model.aliases.iter().any(|name| sight.has(name))
    });
    let names: Vec<&str> = view
        .models
        .iter()
        .map(|model| model.model.as_str())
        .collect();
    for device in &mut view.devices {
        for owner in &mut device.owners {
            if !names.contains(&owner.model.as_str()) {
                ANOTHER.clone_into(&mut owner.model);
            }
        }
    }
    let has = |name: &str| names.contains(&name);
    view.queue.waiting.retain(|waiter| has(&waiter.model));
    view.queue
        .orders
        .retain(|order| order.model.as_deref().is_none_or(has));
}
