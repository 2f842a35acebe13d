//! The member of a virtual model that serves a request, and the next one after a failure.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderName;
use axum::response::Response;

use crate::inference::admission::{self, RequestContext};
use crate::inference::request::failed::{self, Failed};
use crate::state::App;
use crate::virtual_models::attempts::Attempts;
use crate::virtual_models::causes::{Cause, cause};
use crate::virtual_models::request_facts::RequestFacts;
use crate::virtual_models::selection::{SelectionError, select};
use crate::virtual_table::table::{Rule, VirtualModel};
use api_types::error::Failure;
use catalog::Recipe;
use controller::Route;
use dialect::{Teller, TranslatedRequest};
use edge::header_text::header_text;
use edge::record;

/// The response header that names the member.
const MODEL: HeaderName = HeaderName::from_static("x-model-pool-model");

/// A request that another member may serve, as it was received.
pub(crate) type Spare = Option<Box<TranslatedRequest<Teller>>>;

/// Keeps the request if it may name a virtual model with a fallback.
pub(crate) fn spare(
    app: &App,
    context: &RequestContext,
    translated: &TranslatedRequest<Teller>,
) -> Spare {
    let has_fallback = app.virtual_models.table(&app.config()).has_fallback;
    let may_repeat = has_fallback && context.user.batch.is_none();
    may_repeat.then(|| {
        context.attempts.set_may_repeat();
        Box::new(translated.clone())
    })
}

/// Chooses the member for the request, and names it in the response. `body` is the request's, if it is JSON. Returns the member's
/// name and route.
pub(crate) async fn choose(
    app: &App,
    context: &RequestContext,
    model: Arc<VirtualModel>,
    body: Option<&Bytes>,
) -> Result<(String, Arc<Route>), Failure> {
    if context.user.batch.is_some() {
        let message = format!(
            "{} is a virtual model, and requests of a batch name the model itself; replace it by one of its members",
            model.name
        );
        return Err(Failure::invalid("model".to_owned(), message));
    }
    // A reload between two attempts changes nothing for the request.
    let earlier = context
        .attempts
        .with(|attempts| Some(Arc::clone(&attempts.as_ref()?.model)));
    let model = earlier.unwrap_or(model);
    let facts = match (&model.rule, body) {
        (Rule::Split(_) | Rule::By(_), Some(body)) => {
            let (bytes, body) = (body.len(), body.clone());
            let read = move || Ok(RequestFacts::read(&body));
            app.reading.run(bytes, read).await?
        }
        _ => RequestFacts::default(),
    };
    let number = app.virtual_models.next_number();
    let bytes = body.map_or(0, Bytes::len);
    let (user, name) = (&context.user, Arc::clone(&model.name));
    let chosen = context.attempts.with(|attempts| {
        // A second attempt continues with the members of the first.
        let mut next = attempts.take().unwrap_or_else(|| {
            Box::new(Attempts {
                model: Arc::clone(&model),
                member: 0,
                tried: 0,
                has_next: false,
                kept: None,
            })
        });
        let has_tried = |member| next.has_tried(member);
        let selected = select(
            &app.handle,
            &user.sight,
            &model,
            (&facts, number),
            has_tried,
        )?;
        let has_next = selected.others > 0 && context.attempts.may_repeat();
        // The engine gets a separate body, so the copy takes memory in addition.
        next.begin(selected.member, has_next, || app.edge.copy_memory(bytes));
        *attempts = Some(next);
        Ok(selected)
    });
    let selected = chosen.map_err(|error: SelectionError| {
        let unknown = || Failure::unknown_model(&name, &admission::closest(app, user, &name));
        error.failure(&name).unwrap_or_else(unknown)
    })?;
    let member = selected.name(&model);
    context.tell(|head| head.insert(MODEL, header_text(&*member)));
    record::note(|facts| facts.virtual_model = Some(Arc::clone(&name)));
    tracing::debug!(
        virtual_model = &*name,
        model = &*member,
        "member chosen: {}",
        selected.reason
    );
    Ok((member.to_string(), selected.route))
}

/// Returns true if another member may serve the request after a failure.
pub(crate) fn may_fall_back(context: &RequestContext) -> bool {
    context.attempts.with(|attempts| {
        attempts
            .as_ref()
            .is_some_and(|attempts| attempts.may_fall_back())
    })
}

/// The cause for which another member serves the request; `None` if the response is final. Counts the failure for its model.
pub(crate) fn cause_to_fall_back(
    app: &App,
    context: &RequestContext,
    ended: &Result<Response, Failed>,
) -> Option<Cause> {
    let attempts = context
        .attempts
        .with(|attempts| attempts.as_deref().cloned())?;
    if !attempts.may_fall_back() {
        return None;
    }
    let name = &attempts.model.members[attempts.member].name;
    let route = app.handle.route(name);
    let is_remote = route.is_some_and(|route| matches!(route.entry.recipe, Recipe::Remote(_)));
    let cause = cause(ended, is_remote)?;
    let Rule::Fallback { on, .. } = &attempts.model.rule else {
        return None;
    };
    if let Cause::Of(cause) = cause
        && !on.contains(&cause)
    {
        return None;
    }
    if let Err((Some(model), failure)) = ended {
        failed::note(failure);
        app.metrics.request(model, failure.status().as_u16());
    }
    context.forget_seat();
    tracing::info!(
        virtual_model = &*attempts.model.name,
        model = &**name,
        cause = cause.name(),
        "the next member serves the request"
    );
    Some(cause)
}
