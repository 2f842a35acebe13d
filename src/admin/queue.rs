//! Waiting requests and unfinished orders.

use axum::Json;
use axum::extract::State;

use api_types::dto::QueueView;
use controller::Snapshot;
use gateway::auth::Reader;
use gateway::auth::sight::{ANOTHER_KEY, Sight};
use gateway::fields::{Nothing, Params};
use gateway::openapi::AdminErrors;
use gateway::state::App;

/// Show the queues
///
/// The requests that wait for a model, and unfinished orders of administrators. A key whose group restricts its models does not see the
/// names of keys of other groups.
///
/// Administrators and viewers only.
#[utoipa::path(
    get, path = "/admin/queue", tag = "admin: pool", operation_id = "show_queue", security(("admin_key" = [])),
    responses(
        (status = 200, description = "Waiting requests and orders", body = QueueView, example = json!({
            "waiting": [{"ticket": "t17", "model": "tiny-chat", "key": "course 4711", "group": "physics/lab", "position": 1,
                "waited_ms": 2100, "expected_ms": 6100, "expected_ms_min": 4000, "expected_ms_max": 12000, "stage": "loading"}],
            "orders": [{"order": "o5", "what": "load", "model": "tiny-chat", "since_ms": 2300}]
        })),
        AdminErrors,
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    reader: Reader,
    _: Params<Nothing>,
) -> Json<QueueView> {
    let mut queue = queue(&app, &app.handle.snapshot());
    hide_keys(&mut queue, &reader.sight);
    Json(queue)
}

/// Replaces the names of keys that the reader may not see.
pub(crate) fn hide_keys(queue: &mut QueueView, sight: &Sight) {
    for waiting in &mut queue.waiting {
        if !sight.has_members_of(waiting.group.as_deref()) {
            ANOTHER_KEY.clone_into(&mut waiting.key);
            waiting.group = None;
        }
    }
}

/// Builds the queue view, including the names of keys and people.
pub(crate) fn queue(app: &App, snapshot: &Snapshot) -> QueueView {
    let keys = app.keys.all();
    let name = |id| {
        let key = keys.iter().find(|key| key.id == id);
        let person = || app.oidc.as_ref().and_then(|oidc| oidc.name_of(id));
        key.map(|key| key.name.clone())
            .or_else(person)
            .unwrap_or_else(|| id.to_string())
    };
    let callers = snapshot.pool.waiting.iter().map(|request| request.key);
    let paths = app.keys.groups().paths_of(callers);
    QueueView::from_snapshot(snapshot, &name, &|key| {
        paths.get(&key).map(|path| path.to_string())
    })
}
