//! The first stage of a chat or completion: translates the request from its API into OpenAI's form, together with the stored
//! responses that it refers to.

use axum::body::Bytes;

use crate::inference::admission::RequestContext;
use crate::inference::request::failed::Failed;
use crate::state::App;
use api_types::error::Failure;
use dialect::stored::{Desk, Wanted};
use dialect::{Dialect, Reading, Teller, TranslatedRequest};
use edge::record;

/// Translates the body, already read within its size limit, from its API into OpenAI's form.
pub(super) async fn receive(
    app: &App,
    context: &RequestContext,
    body: Bytes,
    dialect: Dialect,
) -> Result<TranslatedRequest<Teller>, Failed> {
    if !dialect.reads(&body) {
        // Keeps the share: nothing has been allocated in addition to the body.
        return Ok(TranslatedRequest::plain(body, Teller::Plain));
    }
    let reading = match dialect {
        // Boxed because it is rare, and large within each request's future.
        Dialect::Responses => Box::pin(reading(app, context, &body, dialect)).await?,
        Dialect::OpenAi | Dialect::Anthropic => context.reading(app),
    };
    let earlier = reading.desk.as_ref().map_or(0, |desk| desk.earlier().bytes);
    let (bytes, share) = (body.len() + earlier, record::share());
    let early = |failure: Failure| (None, failure);
    let translate = move || dialect.read(body, &reading);
    let translated = app.reading.run(bytes, translate).await;
    let mut translated = translated.map_err(early)?;
    translated.body = share.charge(translated.body);
    Ok(translated)
}

/// Collects the input that the dialect needs in addition to the body.
pub(crate) async fn reading(
    app: &App,
    context: &RequestContext,
    body: &Bytes,
    dialect: Dialect,
) -> Result<Reading, Failed> {
    let mut reading = context.reading(app);
    if dialect == Dialect::Responses && app.responses.is_on() {
        let desk = desk(app, context, body).await;
        reading.desk = Some(desk.map_err(|failure| (None, failure))?);
    }
    Ok(reading)
}

/// The store for the response, with the stored responses that the request refers to.
async fn desk(app: &App, context: &RequestContext, body: &Bytes) -> Result<Desk, Failure> {
    let (bytes, copy) = (body.len(), body.clone());
    let wanted = app
        .reading
        .run(bytes, move || Ok(Wanted::new(&copy)))
        .await?;
    let most = app.config().server.body_limit.0.0;
    let holder = context.user.account.id();
    Desk::open(&app.responses, &holder, wanted, most, |bytes| {
        app.edge.more_memory(bytes)
    })
    .await
}
