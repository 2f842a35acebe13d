//! Starts requests of batches for all room that interactive requests leave.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::line::{Line, LineEnd};
use super::owner;
use super::runner::{ActiveBatch, Ended, Runner};
use crate::auth::User;
use crate::batch_seat::BatchSeat;
use crate::inference::understood::real_name;
use batch::RequestLine;
use controller::{CutSignal, Route, SeatUser};
use edge::header_text::header_text;
use pool::{ServiceClass, Span, Tokens};

/// The wait before a request runs again that the pool could not serve.
const LATER: Span = Span(5_000);
/// Requests at the same time that fail before they need a seat.
const SEATLESS_MAX: u64 = 16;
/// The tokens of a prompt before it is read.
const PROMPT_TOKENS: u64 = 256;

/// The reason why no more requests of a batch begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Another batch may use the rest of the room.
    NoMoreRequests,
    NoMoreRoom,
}

impl Runner {
    /// Starts requests for all free room: the model with the most requests first, and its batches by rank and age.
    pub fn start_requests(&mut self) {
        let now = self.app.handle.clock().now();
        self.pauses.retain(|_, until| *until > now);
        let mut left: BTreeMap<String, u64> = BTreeMap::new();
        for batch in &self.active {
            let models = self.jobs.get(&batch.id).map(|job| &job.models);
            for work in models.into_iter().flatten() {
                if work.left > work.in_flight {
                    *left.entry(work.name.clone()).or_default() += work.left;
                }
            }
        }
        let mut models: Vec<(String, u64)> = left.into_iter().collect();
        models.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        let active = std::mem::take(&mut self.active);
        for (name, _) in models {
            if let Some(batch) = active.iter().find(|batch| self.has_suspects(batch, &name)) {
                // Alone on the model, which finds the request that ends its engine.
                if self.in_flight(&name) == 0 {
                    self.start_requests_of(batch, &name, 1);
                }
                continue;
            }
            for batch in &active {
                if self.start_requests_of(batch, &name, usize::MAX) == End::NoMoreRoom {
                    break;
                }
            }
        }
        self.active = active;
    }

    fn has_suspects(&self, batch: &ActiveBatch, name: &str) -> bool {
        let job = self.jobs.get(&batch.id);
        job.is_some_and(|job| job.has_suspects(name))
    }

    /// The requests of all batches that run for a model.
    fn in_flight(&self, name: &str) -> u64 {
        let models = self.jobs.values().flat_map(|job| &job.models);
        let models = models.filter(|work| work.name == name);
        models.map(|work| work.in_flight).sum()
    }

    fn start_requests_of(&mut self, batch: &ActiveBatch, name: &str, most: usize) -> End {
        let job = self.jobs.get(&batch.id);
        let model = job.and_then(|job| job.models.iter().position(|work| work.name == name));
        // A batch whose holder has lost its rights is ended in the next turn.
        let person = batch.person.as_ref();
        let user = owner::user_of(&batch.holder, person, &batch.endpoint, &self.app);
        let (Some(model), Ok(user)) = (model, user) else {
            return End::NoMoreRequests;
        };
        if self.pauses.contains_key(&(batch.id.clone(), model)) {
            return End::NoMoreRequests;
        }
        let name = real_name(&self.app, name).unwrap_or(name);
        let route = self.app.handle.route(name);
        let route = route.filter(|route| user.sight.may_use(&route.entry, name));
        for _ in 0..most {
            let has_room = match &route {
                Some(route) => route.has_batch_room(),
                None => self.seatless < SEATLESS_MAX,
            };
            // Looking for the next request may read the index.
            if !has_room {
                return End::NoMoreRoom;
            }
            let Some(job) = self.jobs.get_mut(&batch.id) else {
                return End::NoMoreRequests;
            };
            let request = match job.next(model) {
                Ok(Some(request)) => request,
                Ok(None) => return End::NoMoreRequests,
                Err(error) => {
                    tracing::warn!(batch = batch.id, %error, "the index of a batch cannot be read");
                    self.pause(&batch.id, model);
                    return End::NoMoreRequests;
                }
            };
            let cut = CancellationToken::new();
            let Some((seat, seat_cut)) = self.seat(route.as_deref(), &user, &cut) else {
                if let Some(job) = self.jobs.get_mut(&batch.id) {
                    job.put_back(model, request);
                }
                return End::NoMoreRoom;
            };
            let Some(job) = self.jobs.get_mut(&batch.id) else {
                return End::NoMoreRequests;
            };
            let text = match job.requests.read(request) {
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(batch = batch.id, %error, "a request of a batch cannot be read");
                    job.put_back(model, request);
                    self.pause(&batch.id, model);
                    return End::NoMoreRequests;
                }
            };
            let had_seat = seat_cut.is_some();
            self.seatless += u64::from(!had_seat);
            let user = User {
                batch: Some(seat),
                ..user.clone()
            };
            self.start(batch, (model, request), text, (user, cut, seat_cut));
        }
        End::NoMoreRequests
    }

    /// A seat for a request, or none for a request that fails because its model does not exist for its holder. `None` without room.
    fn seat(
        &self,
        route: Option<&Route>,
        user: &User,
        cut: &CancellationToken,
    ) -> Option<(BatchSeat, Option<CutSignal>)> {
        let Some(route) = route else {
            return (self.seatless < SEATLESS_MAX).then(|| (BatchSeat::default(), None));
        };
        let seat_user = SeatUser {
            key: user.key,
            class: ServiceClass::Flex,
            expected: Tokens {
                prompt: PROMPT_TOKENS,
                output: route.tokens.expected_output(None),
            },
            is_batch: true,
        };
        let lease = self.app.handle.batch_seat(route, &seat_user, cut)?;
        let seat_cut = lease.cut();
        Some((BatchSeat::new(lease), Some(seat_cut)))
    }

    fn start(
        &mut self,
        batch: &ActiveBatch,
        (model, request): (usize, u64),
        text: Vec<u8>,
        (user, cut, seat_cut): (User, CancellationToken, Option<CutSignal>),
    ) {
        let had_seat = seat_cut.is_some();
        let custom_id = custom_id(&text);
        let request_id = header_text(format_args!("{}-{request}", batch.id));
        let line = Line {
            app: self.app.clone(),
            user,
            text,
            request_id: request_id.clone(),
            cut,
            seat_cut,
        };
        let job = batch.id.clone();
        self.lines.spawn(async move {
            let end = AssertUnwindSafe(line.run()).catch_unwind().await;
            Ended {
                job,
                model,
                request,
                custom_id,
                request_id,
                had_seat,
                end: end.unwrap_or_else(|_| LineEnd::Failed {
                    code: "internal_error",
                    message: "internal error; see the server log".to_owned(),
                }),
            }
        });
    }

    /// Starts no request of this batch for the nth of its models for a while.
    pub fn pause(&mut self, id: &str, model: usize) {
        let until = self.app.handle.clock().now() + LATER;
        self.pauses.insert((id.to_owned(), model), until);
    }
}

fn custom_id(text: &[u8]) -> String {
    let text = std::str::from_utf8(text).unwrap_or_default();
    RequestLine::parse(text).map_or_else(|_| String::new(), |line| line.custom_id.into_owned())
}
