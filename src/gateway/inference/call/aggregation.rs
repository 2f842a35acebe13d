//! Collects an engine's stream for a client that did not request one.

use std::sync::Arc;

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use serde_json::json;

use super::Call;
use crate::inference::in_flight::{InFlightRequest, JSON, why};
use crate::inference::response::first_event::Refusal;
use crate::inference::response::stream;
use crate::reading::AT_ONCE_BYTES;
use crate::upstream::proxy::Incoming;
use crate::upstream::remote;
use api_types::error::Failure;
use dialect::Teller;
use dialect::assembler::{ANSWER_MAX, Assembler};

impl Call {
    /// Collects the engine's stream for a client that did not request a stream.
    pub(super) async fn aggregate(
        &mut self,
        served: InFlightRequest,
        mut upstream: Incoming,
    ) -> Result<Response, Failure> {
        let cut = served.lease.cut();
        let mut cut = std::pin::pin!(cut.cancelled());
        let ending = served.ending.clone();
        let mut ending = std::pin::pin!(ending.cancelled());
        let mut assembled = Assembler::new(self.as_chat(), self.request.responses);
        let (mut size, mut has_begun) = (0, false);
        loop {
            let frame = tokio::select! {
                biased;
                frame = upstream.frame(), if served.lease.why().is_none() => frame,
                () = &mut cut => return Err(why(&served).await),
                () = &mut ending => return Err(Failure::ending(&self.request.model)),
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    size += data.len();
                    if size > ANSWER_MAX {
                        return Err(Failure::engine(
                            &self.request.model,
                            format!("more than {ANSWER_MAX} bytes; set \"stream\": true"),
                        ));
                    }
                    let bytes = assembled.bytes_read_with(&data);
                    let pushed = if bytes <= AT_ONCE_BYTES {
                        assembled.push(&data)
                    } else {
                        // Large pushes run on another thread to keep this one free for other requests.
                        let mut whole = assembled;
                        let work = move || {
                            let pushed = whole.push(&data);
                            Ok((whole, pushed))
                        };
                        let (whole, pushed) = Box::pin(self.app.reading.apart(bytes, work)).await?;
                        assembled = whole;
                        pushed
                    };
                    if pushed.map_err(|damaged| Failure::engine(&self.request.model, damaged))? {
                        served.token();
                    }
                    if !has_begun && assembled.has_begun() {
                        has_begun = true;
                        self.begun(&served);
                    }
                    if assembled.done {
                        // Most engines send the end of the body together with the last event.
                        let next = upstream.frame().now_or_never();
                        if !matches!(next, Some(None | Some(Err(_)))) {
                            let rest = async { while let Some(Ok(_)) = upstream.frame().await {} };
                            // Boxed because the timer would be part of each request's future.
                            let _ = Box::pin(tokio::time::timeout(stream::OPEN_MAX, rest)).await;
                        }
                        break;
                    }
                }
                Some(Err(_)) => {
                    served.lease.worked(false);
                    return Err(why(&served).await);
                }
                None => {
                    let ended = if size <= AT_ONCE_BYTES {
                        assembled.end()
                    } else {
                        let mut whole = assembled;
                        let work = move || {
                            let ended = whole.end();
                            Ok((whole, ended))
                        };
                        let (whole, ended) = Box::pin(self.app.reading.apart(size, work)).await?;
                        assembled = whole;
                        ended
                    };
                    if let Err(damaged) = ended {
                        served.lease.worked(false);
                        return Err(Failure::engine(&self.request.model, damaged));
                    }
                    break;
                }
            }
        }
        if !has_begun && assembled.has_begun() {
            self.begun(&served);
        }
        if let Some(error) = assembled.error.take() {
            // The engine may detect an invalid request only after it has begun its response.
            let refusal = Refusal::from_error(error);
            if self.ends(&refusal) {
                return Err(self.ended(&served).await);
            }
            served.responded(refusal.status.as_u16());
            return Ok(refusal.into_response());
        }
        if !assembled.done {
            served.lease.worked(false);
            return Err(why(&served).await);
        }
        if let Some(usage) = assembled.usage() {
            served.tokens(usage);
        }
        let is_remote = remote::of_lease(&served.lease).is_some();
        let tier = self.tier;
        if matches!(self.request.teller, Teller::Plain) && !is_remote && tier.is_none() {
            let body = if size <= AT_ONCE_BYTES {
                assembled.into_bytes()
            } else {
                let written = move || Ok(assembled.into_bytes());
                Box::pin(self.app.reading.apart(size, written)).await?
            };
            let body =
                body.ok_or_else(|| Failure::engine(&self.request.model, "an empty stream"))?;
            served.responded(200);
            return Ok(([(header::CONTENT_TYPE, JSON)], body).into_response());
        }
        let (model, teller) = (Arc::clone(&self.request.model), self.request.teller.clone());
        let translated = move || {
            let response = assembled.finish();
            let mut response =
                response.ok_or_else(|| Failure::engine(&model, "an empty stream"))?;
            if is_remote {
                response["model"] = json!(&*model);
            }
            if let Some(tier) = tier {
                tier.set(&mut response);
            }
            teller.respond(response)
        };
        // Boxed because its captured state would be part of each request's future several times.
        let mut response = Box::pin(self.app.reading.run(size, translated)).await?;
        served.responded(200);
        // Frees the seat for other requests while the response is written.
        drop(served);
        if self.request.teller.stored().await.is_err() {
            response["store"] = json!(false);
            self.request.outgoing.ignored.push("store".to_owned());
        }
        let written = move || Ok(Json(response).into_response());
        Box::pin(self.app.reading.run(size, written)).await
    }
}
