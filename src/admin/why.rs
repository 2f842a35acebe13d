//! Explanations: the decision that was stored with an event of the history (D3).

use axum::Json;
use axum::extract::State;
use utoipa::IntoParams;

use super::events::{model_with_history, unreadable};
use super::history_filters::name_of;
use api_types::dto::WhyView;
use api_types::error::Failure;
use gateway::auth::Reader;
use gateway::fields::{Fields, Params, Strict};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use gateway::virtual_models::preview;
use pool::KeyId;
use store::{StoredDecision, StoredRecord};

/// The kinds of events that answer a question about a model: evictions, refusals, loads and losses.
const TELLING: [&str; 8] = [
    "evict",
    "refuse",
    "load",
    "drain",
    "unload",
    "load_failed",
    "crash",
    "fetch_failed",
];

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyQuery {
    /// The id of an event in the history. Set either this or `model`.
    #[param(minimum = 1)]
    event: Option<i64>,
    /// A model: explains its last load, eviction, unload or refusal, whichever came last. A virtual model stands for the member that
    /// the next request would get.
    #[param(min_length = 1, example = "tiny-chat")]
    model: Option<String>,
}

impl Strict for WhyQuery {
    fn read(fields: &mut Fields) -> Result<WhyQuery, Failure> {
        let event = fields.integer("event", 1..=i64::MAX.unsigned_abs())?;
        let query = WhyQuery {
            event: event.map(|event| i64::try_from(event).unwrap_or(i64::MAX)),
            model: fields.text("model")?,
        };
        match (&query.event, &query.model) {
            (None, None) | (Some(_), Some(_)) => Err(Failure::invalid(
                Some("event".to_owned()),
                "set either event or model: ?event=118, or ?model=tiny-chat",
            )),
            _ => Ok(query),
        }
    }
}

/// Explain a decision
///
/// The decision behind an event of the history: the caller, the replicas that were compared and their sort keys, the replicas that
/// left, and the memory before and after. Events of older versions say that their decision was not stored.
///
/// Administrators and viewers only.
#[utoipa::path(
    get, path = "/admin/why", tag = "admin: history", operation_id = "show_why", security(("admin_key" = [])),
    params(WhyQuery),
    responses(
        (status = 200, description = "The decision", body = WhyView, example = json!({
            "event": 118, "at": "2026-01-31T20:15:00.123Z", "model": "tiny-code", "what": "evict",
            "reason": "preempted by tiny-chat: priority 1 over 0 (P2); 0 in flight", "asked_by": "course 4711", "group": "physics/lab", "decided_by": null,
            "candidates": [{"replica": "r1", "model": "tiny-code", "device": "gpu0", "priority": 0, "idle_seconds": 120.0,
                "reload_seconds": 20.0, "memory_bytes": 17179869184_u64, "chosen": true,
                "words": "leaves: priority 0, idle for 2.0 min, about 20.0 s to load again, 16.0 GiB held"}],
            "memory": [{"device": "gpu0", "before_bytes": 17179869184_u64, "after_bytes": 17179869184_u64}],
            "words": ["tiny-chat, priority 1, needs 16.0 GiB on 1 device"]
        })),
        AdminErrors,
    )
)]
pub(crate) async fn show(
    State(app): State<App>,
    _: Reader,
    Params(query): Params<WhyQuery>,
) -> Result<Json<WhyView>, Failure> {
    let store = app.handle.store();
    let chosen = query
        .model
        .as_deref()
        .and_then(|name| preview::named(&app, name));
    let choice = chosen.transpose()?.map(|(_, choice)| choice);
    let event = match (query.event, query.model) {
        (Some(id), _) => store.event(id).await.map_err(unreadable)?.ok_or_else(|| {
            Failure::not_found(format!(
                "event {id} does not exist or is no longer kept; GET {}/admin/events lists the events",
                app.base()
            ))
        })?,
        (None, name) => {
            let name = choice.as_ref().map(|choice| choice.member.clone()).or(name);
            let name = model_with_history(&app, name.unwrap_or_default()).await?;
            let newest = store.newest_of(&name, &TELLING, None, i64::MAX).await;
            newest.map_err(unreadable)?.ok_or_else(|| {
                let chosen = choice.as_ref().map_or_else(String::new, |choice| {
                    format!(
                        "{} ({}) takes {} now, because {}; ",
                        choice.name, choice.kind, choice.member, choice.reason
                    )
                });
                Failure::not_found(format!(
                    "{chosen}the history has no load, eviction or refusal of {name}"
                ))
            })?
        }
    };
    let own = store.decision(event.id).await.map_err(unreadable)?;
    let (decider, decision) = match own {
        Some(own) => (None, Some(own)),
        None => behind(&app, &event).await?,
    };
    let asker = decider.as_ref().unwrap_or(&event).asked_by.as_ref();
    let asker = asker.or(event.asked_by.as_ref());
    let asked_by = asker.map(|id| name_of(&app, id));
    let mut why = WhyView::new(&event, decider.as_ref(), decision.as_ref(), asked_by);
    let key = asker.and_then(|id| id.strip_prefix('k')?.parse().ok());
    let paths = app.keys.groups().paths_of(key.map(KeyId).into_iter());
    // Events of older versions have no group.
    why.group = why
        .group
        .or_else(|| paths.values().next().map(|path| path.to_string()));
    why.virtual_choice = choice;
    Ok(Json(why))
}

/// The decision that led to a later event of a replica: its eviction or its load.
async fn behind(
    app: &App,
    event: &StoredRecord,
) -> Result<(Option<StoredRecord>, Option<StoredDecision>), Failure> {
    let kinds: &[&str] = match event.kind.as_str() {
        "gone" | "sleep" => &["evict", "drain", "unload"],
        "ready" => &["load"],
        _ => return Ok((None, None)),
    };
    let replica = event.replica.as_deref().and_then(|id| id.get(1..));
    let number = replica.and_then(|digits| digits.parse().ok());
    let (Some(model), Some(number)) = (&event.model, number) else {
        return Ok((None, None));
    };
    let store = app.handle.store();
    let found = store
        .newest_of(model, kinds, Some(number), event.id)
        .await
        .map_err(unreadable)?;
    let Some(found) = found else {
        return Ok((None, None));
    };
    let decision = store.decision(found.id).await.map_err(unreadable)?;
    Ok((Some(found), decision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_an_event_or_a_model_must_be_given() {
        let read = |json: &str| WhyQuery::read(&mut Fields::parse(json.as_bytes()).unwrap());
        assert_eq!(read(r#"{"event":5}"#).unwrap().event, Some(5));
        assert!(read(r#"{"model":"a"}"#).is_ok());
        for wrong in ["{}", r#"{"event":5,"model":"a"}"#, r#"{"event":0}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
