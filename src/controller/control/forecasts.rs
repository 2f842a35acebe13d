//! Forecasts of waits. While requests wait, they are made again and again in copies of the pool, outside of the loop, and compared with
//! the waits once the requests have their seats.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::Control;
use crate::gates::{FirstForecast, SeatRequest};
use crate::messages::Message;
use crate::view::WaitForecasts;
use pool::{
    Forecast, ForecastErrors, ModelId, Refusal, Span, Ticket, Time, WaitRange, WaitingView,
};

/// Minimum pause between forecasts.
const EVERY: Span = Span(250);
/// Maximum pause, however long a forecast takes.
const AT_LEAST_EVERY: Span = Span::from_secs(60);
/// At most this part of the loop's time goes into copies of the pool.
const PART_OF_COPIES: u64 = 100;
/// At most this part of a processor's time goes into forecasts.
const PART_OF_WORK: u64 = 10;

/// The expected seats of waiting requests.
#[derive(Default)]
pub(crate) struct Forecasts {
    seats: BTreeMap<Ticket, Forecast>,
    /// The first seat of each model.
    first: BTreeMap<ModelId, Time>,
    errors: ForecastErrors,
    /// The comparison with real waits, for readers.
    pub compared: Arc<WaitForecasts>,
    in_progress: bool,
    /// The time from which the next forecasts may be made.
    next: Time,
    /// The number of orders so far. An order can change every wait.
    orders: u64,
}

impl Forecasts {
    /// An administrator or the schedule has given an order.
    pub fn ordered(&mut self) {
        self.orders += 1;
    }

    fn range(&self, forecast: Forecast, expected: Span) -> Option<WaitRange> {
        self.errors.range(forecast.loads, expected)
    }

    /// Takes new forecasts. The first one for a request is kept for the comparison.
    pub fn take(
        &mut self,
        seats: BTreeMap<Ticket, Forecast>,
        took: Span,
        requests: &mut BTreeMap<Ticket, SeatRequest>,
        now: Time,
    ) {
        self.in_progress = false;
        let pause = took.0.saturating_mul(PART_OF_WORK);
        self.next = self.next.max(now + Span(pause).min(AT_LEAST_EVERY));
        self.first.clear();
        for (ticket, forecast) in &seats {
            let Some(request) = requests.get_mut(ticket) else {
                continue;
            };
            let first = self.first.entry(request.model).or_insert(forecast.at);
            *first = forecast.at.min(*first);
            if request.forecast.is_none() {
                let expected = forecast.at.since(request.came);
                request.forecast = Some(FirstForecast {
                    expected,
                    loads: forecast.loads,
                    range: self.range(*forecast, expected),
                    orders: self.orders,
                });
            }
        }
        self.seats = seats;
    }

    /// Compares the first forecast of a request that got its seat, unless an order has come in between.
    pub fn seated(&mut self, ticket: Ticket, request: &SeatRequest, now: Time) {
        self.seats.remove(&ticket);
        let same = |first: &&FirstForecast| first.orders == self.orders;
        if let Some(first) = request.forecast.as_ref().filter(same) {
            let wait = now.since(request.came);
            self.errors.add(first.loads, first.expected, wait);
            self.compared.add(first.expected, first.range, wait);
        }
    }

    /// Puts the latest forecasts into the view of the waiting requests.
    pub fn show(&self, waiting: &mut [WaitingView], now: Time) {
        for request in waiting {
            if let Some(forecast) = self.seats.get(&request.ticket) {
                request.expected = forecast.at.since(now);
                request.range = self.range(*forecast, request.expected);
            }
        }
    }

    /// The time after which a refused client may try again: once the first waiting request for the model has its seat.
    pub fn retry(&self, model: ModelId, refusal: Refusal, now: Time) -> Refusal {
        let first = self.first.get(&model).filter(|at| **at > now);
        let Some(after) = first.map(|at| at.since(now)) else {
            return refusal;
        };
        match refusal {
            Refusal::QueueFull { limit, .. } => Refusal::QueueFull {
                limit,
                retry: after,
            },
            Refusal::TimedOut { waited, stall, .. } => Refusal::TimedOut {
                waited,
                retry: after,
                stall,
            },
            other => other,
        }
    }
}

impl Control {
    /// Makes forecasts if requests wait. Copying the pool takes the loop a part of a millisecond, or tens of them with thousands of
    /// devices.
    pub(crate) fn foresee(&mut self) {
        let now = self.clock.now();
        let is_due = !self.forecasts.in_progress && self.forecasts.next <= now;
        if self.seats.is_empty() || !is_due {
            return;
        }
        let pool = Box::new(self.pool.clone());
        let clock = self.clock;
        let copied = clock.now().since(now);
        let pause = Span(copied.0.saturating_mul(PART_OF_COPIES));
        self.forecasts.in_progress = true;
        self.forecasts.next = now + pause.clamp(EVERY, AT_LEAST_EVERY);
        let inbox = self.background.inbox();
        self.background.spawn(async move {
            let work = move || {
                let began = clock.now();
                let seats = pool.forecasts(now);
                let took = clock.now().since(began);
                Message::Forecasts { seats, took }
            };
            let made = tokio::task::spawn_blocking(work).await;
            let made = made.unwrap_or_else(|error| {
                tracing::error!(%error, "the waits of requests cannot be forecast");
                Message::Forecasts {
                    seats: BTreeMap::new(),
                    took: AT_LEAST_EVERY,
                }
            });
            // The loop may have ended.
            drop(inbox.send(made));
        });
    }
}
