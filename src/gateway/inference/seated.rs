//! The fourth stage of a chat or completion: takes a seat at a replica of the model, immediately or after waiting in its queue.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;

use crate::inference::admission;
use crate::inference::admission::RequestContext;
use crate::inference::call::Call;
use crate::inference::request::failed::Failed;
use crate::inference::request::ignored::note;
use crate::inference::understood::Understood;
use crate::state::App;
use access::limits::Admission;
use api_types::error::Failure;
use controller::{Lease, Seat};
use edge::record;

/// The result of taking a seat.
#[expect(
    clippy::large_enum_variant,
    reason = "destructured immediately; a box would cost an allocation per request"
)]
pub(crate) enum Seated {
    Now(Call, Lease),
    /// The wait became too long to withhold the status; the stream has begun and waits for the seat.
    Streaming(Response),
}

pub(crate) async fn seat(
    app: &App,
    context: &RequestContext,
    request: Understood,
    admitted: Admission,
) -> Result<Seated, Failed> {
    let (deadlines, sight) = (context.patience(), &context.user.sight);
    let (route, model) = (Arc::clone(&request.route), Arc::clone(&request.model));
    let fail = |failure: Failure| (Some(model.to_string()), failure);
    let was_ready = route.is_ready();
    let now = app.handle.clock().now();
    let adapter = request
        .adapter
        .as_ref()
        .map(|adapter| adapter.name.as_str());
    let seat = match deadlines.seat {
        Some(Duration::ZERO) => match app.handle.seat_now(&route, request.conversation, adapter) {
            Some(lease) => Ok(Seat::Now(lease)),
            None => return Err(fail(admission::not_ready(app, sight, &route).await)),
        },
        _ => {
            if !was_ready {
                app.handle.look_for_program(&route).await;
            }
            let gives_up = deadlines.gives_up(now);
            let (key, conversation) = (context.user.key, request.conversation);
            app.handle
                .seat(&route, key, conversation, adapter, gives_up)
        }
    };
    let seat = seat.map_err(|busy| fail(busy.into()))?;
    let call = Call {
        app: app.clone(),
        request,
        admitted,
        deadlines,
        sight: sight.clone(),
        key: context.user.key,
        received: context.arrived_at,
        kept: None,
        is_plain: false,
    };
    let lease = match seat {
        Seat::Now(lease) => lease,
        Seat::Wait(mut waiting) => {
            record::trace(|trace| trace.queued(&model, now));
            // For a short time an error can still set the status; then the stream begins.
            let every = app.config().server.keep_alive_comment.duration();
            let every = call.request.scanned.stream.then_some(every);
            let until = [every, deadlines.seat].into_iter().flatten().min();
            let until = until.unwrap_or(Duration::MAX);
            match tokio::time::timeout(until, waiting.seat()).await {
                Ok(seat) => {
                    seat.map_err(|refusal| fail(Failure::refused(&model, &sight.refusal(refusal))))?
                }
                Err(_) if deadlines.seat == Some(until) => {
                    return Err(fail(admission::not_ready(app, sight, &route).await));
                }
                Err(_) => {
                    let ignored = call.request.outgoing.ignored.clone();
                    let response = call.stream_while_waiting(waiting, until);
                    return Ok(Seated::Streaming(note(response, &ignored)));
                }
            }
        }
    };
    admission::seated(context, app, &route, &lease, was_ready);
    Ok(Seated::Now(call, lease))
}
