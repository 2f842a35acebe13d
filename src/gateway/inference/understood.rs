//! The second stage of a chat or completion: finds the model, as all inference requests do, validates the request against it, and
//! writes the body for the engine. Requests that the model cannot serve are refused here, before anything is loaded for them.

use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use memchr::memmem::Finder;
use serde_json::value::RawValue;

use crate::auth::User;
use crate::conversation;
use crate::inference::adapters;
use crate::inference::admission::{self, RequestContext};
use crate::inference::member;
use crate::inference::request::engine_routes::check_generates;
use crate::inference::request::failed::Failed;
use crate::inference::request::hub_registration;
use crate::inference::request::outgoing::{Outgoing, Wishes, outgoing};
use crate::inference::request::request_fields;
use crate::inference::request::sequences;
use crate::inference::request::service_class::ServiceWish;
use crate::inference::request::validation;
use crate::state::App;
use api_types::error::Failure;
use catalog::{Ask, Entry, ReasoningWish, Recipe};
use config::UnknownFields;
use controller::{AdapterFound, KeepHotOverride, Route};
use dialect::CHAT;
use dialect::body::{Fields, Scanned};
use dialect::ollama::bare_name;
use dialect::{Hints, ReasoningRequest, Teller, TranslatedRequest, refuse_unknown};
use edge::record;
use pool::ServiceClass;

/// A validated request, ready for its engine.
pub(crate) struct Understood {
    pub scanned: Scanned,
    pub route: Arc<Route>,
    /// The dynamic adapter that the request names, if any.
    pub adapter: Option<Arc<AdapterFound>>,
    /// The model's name in the catalogue.
    pub model: Arc<str>,
    /// The name written to `outgoing`.
    pub served_name: Arc<str>,
    /// The length of the client's body.
    pub bytes: usize,
    pub outgoing: Outgoing,
    /// The number of sequences that the engine may generate.
    pub responses: usize,
    /// The number of choices in the client's request.
    pub choices: usize,
    /// The body sent to the engine.
    pub body: Bytes,
    /// Hash of the conversation, which routes its requests to the same replica.
    pub conversation: Option<u64>,
    pub teller: Teller,
    pub keep: Option<KeepHotOverride>,
    /// The class and limit of the request.
    pub wish: ServiceWish,
}

/// The second stage: finds the model and checks the request. Takes the request out of `translated`.
pub(crate) async fn understand(
    app: &App,
    context: &RequestContext,
    path: &'static str,
    translated: &mut TranslatedRequest<Teller>,
) -> Result<Understood, Failed> {
    let share = record::share();
    let body = std::mem::take(&mut translated.body);
    let (scanned, route) = find(app, context, body).await?;
    let model = Arc::clone(&route.name);
    let mut teller = std::mem::replace(&mut translated.teller, Teller::Plain);
    if context.attempts.is_virtual() {
        // Other APIs would repeat the name in the request.
        teller.set_model(&scanned.model);
    }
    let fail = |failure: Failure| (Some(model.to_string()), failure);
    // Refuses impossible requests before anything is loaded for them.
    check_generates(&route, path).map_err(fail)?;
    let adapter = adapters::find(app, &context.user, &route.entry, &scanned.model);
    let adapter = adapter.await.map_err(fail)?;
    let Hints {
        reasoning,
        unknown,
        names,
    } = std::mem::take(&mut *translated.hints);
    if route.entry.unknown_fields == UnknownFields::Refuse {
        refuse_unknown(&unknown).map_err(fail)?;
    }
    let mut scanned = validation::checked(app, scanned, path, &route.entry, context)
        .await
        .map_err(fail)?;
    let named = route.entry.adapter(&scanned.model);
    let served_name = named.or(route.entry.recipe.served_model_name());
    let other = served_name.filter(|name| **name != *model);
    let served_name = other.map_or_else(|| Arc::clone(&model), Arc::from);
    let several = route.has_several();
    let most = app.config().server.sequences_max;
    let (body, name, entry) = (
        std::mem::take(&mut scanned.body),
        Arc::clone(&served_name),
        Arc::clone(&route.entry),
    );
    let requested_name: Arc<str> = if *scanned.model == *model {
        Arc::clone(&model)
    } else {
        scanned.model.as_str().into()
    };
    let bytes = body.len();
    // Other APIs translate the response event by event.
    let is_plain = !scanned.stream
        && match entry.plain_requests {
            Some(is_plain) => is_plain,
            None => matches!(teller, Teller::Plain) && entry.recipe.takes_plain_requests(),
        };
    let may_need_template = needs_template(&entry, path, &body);
    let is_remote = matches!(entry.recipe, Recipe::Remote(_));
    // Without groups, everyone may use the tiers of a remote endpoint.
    let tier_max = if is_remote && !app.keys.groups().is_empty() {
        context.user.class(ServiceClass::Priority)
    } else {
        ServiceClass::Priority
    };
    let written = move || {
        let fields = Fields::read(&body)?;
        let refuses_tools = may_need_template && refuses_tools(&entry);
        let requested = sequences::check(&fields, path, most)?;
        let wish = ServiceWish::read(&fields)?;
        // The tier is written into a response that the pool assembles.
        let is_plain = is_plain && (!wish.shows_tier || entry.plain_requests == Some(true));
        let responses = if names_a_number(&entry, &requested_name) {
            most
        } else {
            requested
        };
        let conversation = several.then(|| conversation::hash(&body)).flatten();
        let outgoing = outgoing_of(
            &fields,
            path,
            &name,
            &requested_name,
            &entry,
            (reasoning, is_plain, refuses_tools),
            tier_max,
        )?;
        Ok((outgoing, conversation, (responses, requested), wish))
    };
    let written = app
        .reading
        .run_apart_if(may_need_template, bytes, written)
        .await;
    let (mut outgoing, conversation, (responses, requested), wish) = written.map_err(fail)?;
    for field in &mut outgoing.ignored {
        if let Some((_, own)) = names.iter().find(|(name, _)| name == field) {
            *field = (*own).to_owned();
        }
    }
    outgoing.ignored.append(&mut translated.ignored);
    outgoing.ignored.extend(unknown);
    // Takes over the memory share of the client's body, which has been dropped.
    let body = share.charge(std::mem::take(&mut outgoing.body));
    Ok(Understood {
        scanned,
        route,
        adapter,
        model,
        served_name,
        bytes,
        outgoing,
        responses: usize::try_from(responses).unwrap_or(usize::MAX),
        choices: usize::try_from(requested).unwrap_or(usize::MAX),
        body,
        conversation,
        teller,
        keep: translated.keep,
        wish,
    })
}

/// Scans the body for routing and finds its model.
///
/// For a virtual model, the result is the member that serves the request, and the scanned name is the member's.
pub async fn find(
    app: &App,
    context: &RequestContext,
    body: Bytes,
) -> Result<(Scanned, Arc<Route>), Failed> {
    let scanned = app.reading.run(body.len(), || Scanned::read(body)).await;
    let mut scanned = scanned.map_err(|failure| (None, failure))?;
    if let Some(real) = real_name(app, &scanned.model) {
        scanned.model = real.to_owned();
    }
    if let Some(route) = app.handle.route(&scanned.model) {
        let allowed = admission::allowed(app, &context.user, &scanned.model, &route.entry);
        allowed.map_err(|failure| (None, failure))?;
        return Ok((scanned, route));
    }
    if let Some(named) = app.virtual_models.named(&app.config(), &scanned.model) {
        // Boxed because few requests name a virtual model.
        let chosen = Box::pin(member::choose(app, context, named, Some(&scanned.body)));
        let (name, route) = chosen.await.map_err(|failure| (None, failure))?;
        scanned.model = name;
        return Ok((scanned, route));
    }
    let route = registered(app, &context.user, &scanned.model).await?;
    Ok((scanned, route))
}

/// Resolves a name with Ollama's tag to the model's name: Ollama's clients use the names that its API lists on all routes.
pub(crate) fn real_name<'a>(app: &App, name: &'a str) -> Option<&'a str> {
    let bare = bare_name(name);
    let is_tagged = bare.len() < name.len() && app.config().compat.ollama;
    if !is_tagged || app.handle.route(name).is_some() {
        return None;
    }
    let is_known = || {
        let virtual_model = || app.virtual_models.named(&app.config(), bare);
        app.handle.route(bare).is_some() || virtual_model().is_some()
    };
    // Names on the hub have no tags.
    (bare.contains('/') || is_known()).then_some(bare)
}

/// The model with this name, if it is in the catalogue and the user may use it.
pub fn known(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failure> {
    let name = real_name(app, name).unwrap_or(name);
    let route = app.handle.route(name);
    let route = route.ok_or_else(|| admission::unknown(app, user, name))?;
    admission::allowed(app, user, name, &route.entry)?;
    Ok(route)
}

/// The model with this name, if the user may use it: for a virtual model a member, chosen without the body. Registers a model from
/// the hub if allowed.
pub async fn model(app: &App, context: &RequestContext, name: &str) -> Result<Arc<Route>, Failed> {
    let early = |failure: Failure| (None, failure);
    let name = real_name(app, name).unwrap_or(name);
    if let Some(route) = app.handle.route(name) {
        admission::allowed(app, &context.user, name, &route.entry).map_err(early)?;
        return Ok(route);
    }
    if let Some(named) = app.virtual_models.named(&app.config(), name) {
        let chosen = Box::pin(member::choose(app, context, named, None));
        let (_, route) = chosen.await.map_err(early)?;
        return Ok(route);
    }
    registered(app, &context.user, name).await
}

/// Registers a model from the hub if allowed, or refuses its name.
async fn registered(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failed> {
    let early = |failure: Failure| (None, failure);
    // Boxed because it is rare, and large within each request's future.
    let route = Box::pin(hub_registration::of_user(app, user, name)).await;
    let route = route.map_err(early)?;
    admission::allowed(app, user, name, &route.entry).map_err(early)?;
    Ok(route)
}

/// Returns true if the model's chat template decides about the request's tools and must be read.
fn needs_template(entry: &Entry, path: &str, body: &[u8]) -> bool {
    static TOOLS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"tools\""));
    let Recipe::Server(server) = &entry.recipe else {
        return false;
    };
    path == CHAT && server.refuses_tools_without_parser() && TOOLS.find(body).is_some()
}

/// Reads the chat template; blocks.
fn refuses_tools(entry: &Entry) -> bool {
    matches!(&entry.recipe, Recipe::Server(server) if !server.may_call_tools())
}

/// Returns true if the model's defaults set the number of choices for requests that do not.
fn names_a_number(entry: &Entry, requested_name: &str) -> bool {
    let defaults = &entry.generation_of(requested_name).defaults;
    ["n", "best_of"]
        .into_iter()
        .any(|field| defaults.contains_key(field))
}

fn outgoing_of(
    fields: &Fields<'_>,
    path: &'static str,
    served_name: &str,
    requested_name: &str,
    entry: &Entry,
    (reasoning, plain, refuses_tools): (ReasoningRequest, bool, bool),
    tier_max: ServiceClass,
) -> Result<Outgoing, Failure> {
    let room = entry.room_for_responses();
    let ask = match path {
        CHAT => Ask::Chat,
        _ => Ask::Completion,
    };
    let fate = |name: &str, value: &RawValue| request_fields::fate(entry, ask, name, value);
    let wishes = Wishes {
        reasoning,
        fields_of: &|wish: &ReasoningWish| entry.recipe.reasoning(wish),
        continuous_usage: entry.recipe.has_continuous_usage(),
        plain,
        plain_prompts: entry.plain_requests == Some(true),
        refuses_tools,
        tier_max,
        parses_calls: matches!(entry.recipe, Recipe::Server(_)),
    };
    let generation = entry.generation_of(requested_name);
    outgoing(fields, path, served_name, generation, room, fate, wishes)
}
