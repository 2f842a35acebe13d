//! Turns the pieces of an engine's response into the events that the client receives: in the client's API, without those it did not
//! request, and completed if the engine omits the end.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;

use crate::inference::in_flight::{InFlightRequest, why};
use crate::inference::response::kept::{Progress, announces_end, keep};
use crate::inference::response::tier::Tier;
use crate::reading::AT_ONCE_BYTES;
use crate::state::App;
use crate::upstream::remote;
use api_types::error::Failure;
use dialect::as_stream;
use dialect::assembler::ANSWER_MAX;
use dialect::events::{BodyForm, Unended, event_end_from, is_whole};
use dialect::{Teller, Telling};

/// Options for the stream that the client receives.
#[derive(Clone, Copy)]
pub struct Show {
    /// Sends the usage as the last chunk.
    pub usage: bool,
    /// Interval of keep-alives while the engine sends nothing, in dialects that have them.
    pub(crate) pause_every: Duration,
    /// Substrings of an engine's error that announce its exit. The client gets the cause instead.
    pub exit_messages: &'static [&'static str],
    /// The number of requested choices.
    pub choices: usize,
    /// The tier to write into chunks, if the request set one.
    pub tier: Option<Tier>,
}

/// The events of one response.
pub struct Events<'a> {
    app: &'a App,
    served: &'a InFlightRequest,
    show: Show,
    telling: &'a mut Telling,
    /// The client's API repeats the text at the end, which requires keeping it.
    keeps: bool,
    /// Events are rewritten.
    changes: bool,
    /// `None` before the first piece.
    form: Option<BodyForm>,
    length: usize,
    /// The response of an engine that does not stream.
    json: Vec<u8>,
    unended: Unended,
    /// The missing last line end was added.
    is_completed: bool,
    progress: Progress,
}

/// The complete events of a piece.
pub struct Taken {
    pub bytes: Bytes,
    /// The next event announces the engine's exit.
    pub(crate) announces_exit: bool,
}

impl<'a> Events<'a> {
    pub fn new(
        app: &'a App,
        served: &'a InFlightRequest,
        show: Show,
        telling: &'a mut Telling,
    ) -> Events<'a> {
        let keeps = telling.changes();
        let is_remote = remote::of_lease(&served.lease).is_some();
        // The translations to other APIs name the tier on their own, if the API has one.
        let show = Show {
            tier: show.tier.filter(|_| telling.is_chat()),
            ..show
        };
        Events {
            app,
            served,
            show,
            telling,
            keeps,
            changes: keeps || is_remote || show.tier.is_some(),
            form: None,
            length: 0,
            json: Vec::new(),
            unended: Unended::default(),
            is_completed: false,
            progress: Progress::new(show.choices),
        }
    }

    /// Returns true once the client has the complete response.
    pub fn is_done(&self) -> bool {
        self.progress.done
    }

    /// Returns true if the last event waits until the response is on disk.
    pub fn is_held(&self) -> bool {
        self.telling.is_held()
    }

    /// The event that reports a failure in the client's API.
    pub fn failed(&mut self, failure: &Failure) -> String {
        self.telling.failed(failure)
    }

    /// Takes a piece. Returns `None` if the client receives nothing before the engine's body ends.
    pub async fn take(&mut self, data: &Bytes) -> Result<Option<Taken>, Failure> {
        self.length += data.len();
        if self.form.is_none() {
            self.form = BodyForm::read(data);
        }
        let is_json = self.form == Some(BodyForm::Json);
        if (self.keeps || is_json) && self.length > ANSWER_MAX {
            let why = format!("more than {ANSWER_MAX} bytes without an end; set max_tokens");
            return Err(Failure::engine(&self.served.model, why));
        }
        if is_json {
            self.served.token();
            self.json.extend_from_slice(data);
            return Ok(None);
        }
        self.complete_events(data).await.map(Some)
    }

    async fn complete_events(&mut self, data: &Bytes) -> Result<Taken, Failure> {
        let in_buffer = !self.unended.is_empty();
        let (bytes, mut from) = if in_buffer {
            self.unended.with(data)
        } else {
            (&data[..], 0)
        };
        let mut used = 0;
        let mut announces_exit = false;
        // Allocates only if events are rewritten.
        let mut written = self.changes.then(Vec::new);
        while let Some(length) = event_end_from(&bytes[used..], std::mem::take(&mut from)) {
            let event = &bytes[used..used + length];
            announces_exit = announces_end(event, self.show.exit_messages);
            if announces_exit {
                break;
            }
            let kept = keep(event, self.show.usage, self.served, &mut self.progress);
            match (&mut written, kept) {
                (None, true) | (Some(_), false) => {}
                (None, false) => written = Some(bytes[..used].to_vec()),
                (Some(written), true) if self.changes => {
                    let event = if event.len() <= AT_ONCE_BYTES {
                        self.telling.event(event.to_vec())
                    } else {
                        Box::pin(translated(self.app, self.telling, event.to_vec())).await?
                    };
                    let event = match self.show.tier {
                        Some(tier) => tier.set_in(event),
                        None => event,
                    };
                    let (lease, model) = (&self.served.lease, &self.served.model);
                    written.extend(remote::renamed(lease, model, event));
                }
                (Some(written), true) => written.extend_from_slice(event),
            }
            used += length;
            // Ignores bytes after a complete response.
            if self.progress.done {
                break;
            }
        }
        let ready = match written {
            Some(written) => written.into(),
            None if in_buffer => Bytes::copy_from_slice(&bytes[..used]),
            None => data.slice(..used),
        };
        let bounded = if in_buffer {
            self.unended.used(used)
        } else {
            self.unended.with(&data[used..]);
            self.unended.used(0)
        };
        if let Err(long) = bounded {
            self.served.lease.worked(false);
            return Err(Failure::engine(&self.served.model, long));
        }
        Ok(Taken {
            bytes: ready,
            announces_exit,
        })
    }

    /// Handles the end of the engine's body. Returns what completes the response, or an error if it is not complete.
    pub async fn end(&mut self) -> Result<Bytes, Failure> {
        if self.form == Some(BodyForm::Json) {
            self.form = Some(BodyForm::Events);
            self.length = 0;
            let json = std::mem::take(&mut self.json);
            let written = Box::pin(written_as_events(self.app, &self.served.model, json)).await;
            return written.inspect_err(|_| self.served.lease.worked(false));
        }
        let bytes = self.unended.bytes();
        // A body may lack the last line end.
        if !self.unended.is_empty() && !self.is_completed && is_whole(bytes) {
            let is_line = bytes.ends_with(b"\n");
            self.is_completed = true;
            return Ok(Bytes::from_static(if is_line { b"\n" } else { b"\n\n" }));
        }
        // All choices are finished, and only `[DONE]` is missing.
        if self.unended.is_empty() && self.progress.is_finished() {
            return Ok(Bytes::from_static(b"data: [DONE]\n\n"));
        }
        Err(self.broken().await)
    }

    /// The error for a body that ended too early.
    pub async fn broken(&self) -> Failure {
        self.served.lease.worked(false);
        why(self.served).await
    }
}

/// Translates a long event on another thread to keep this one free for other requests.
async fn translated(app: &App, telling: &mut Telling, event: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let mut own = std::mem::replace(telling, Telling::new(None, Teller::Plain));
    let bytes = event.len();
    let work = move || {
        let event = own.event(event);
        Ok((own, event))
    };
    let (own, event) = app.reading.apart(bytes, work).await?;
    *telling = own;
    Ok(event)
}

/// Converts a complete response from an engine that cannot stream into events.
async fn written_as_events(app: &App, model: &Arc<str>, json: Vec<u8>) -> Result<Bytes, Failure> {
    let (bytes, model) = (json.len(), Arc::clone(model));
    let choices_max = usize::try_from(app.config().server.sequences_max).unwrap_or(usize::MAX);
    let work = move || {
        as_stream::events(&json, choices_max)
            .map(Bytes::from)
            .map_err(|damaged| Failure::engine(&model, damaged))
    };
    app.reading.run(bytes, work).await
}
