//! Records when a request arrived, got its seat and received its first output, for the durations in its response (in nanoseconds).

use std::sync::OnceLock;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::super::chunk::{Timings, Tokens};
use api_types::dto;
use controller::Clock;

/// Timestamps shared by all tasks that handle the request.
#[derive(Debug)]
pub struct Marks {
    clock: Clock,
    began: Instant,
    seated: OnceLock<Instant>,
    first: OnceLock<Instant>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "lengths of time that are sent to the client and decide nothing"
)]
fn now() -> Instant {
    Instant::now()
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

impl Marks {
    pub fn begin(clock: Clock) -> Marks {
        Marks {
            clock,
            began: now(),
            seated: OnceLock::new(),
            first: OnceLock::new(),
        }
    }

    pub fn seated(&self) {
        self.seated.get_or_init(now);
    }

    /// Records the first output.
    pub fn begun(&self) {
        self.first.get_or_init(now);
    }

    pub fn created_at(&self) -> String {
        dto::at(self.clock.now())
    }

    /// Writes `total_duration`, and `load_duration` if the request has a seat.
    pub fn until_now(&self, fields: &mut Map<String, Value>) {
        self.until(now(), fields);
    }

    fn until(&self, end: Instant, fields: &mut Map<String, Value>) {
        let total = nanoseconds(self.began, end);
        fields.insert("total_duration".to_owned(), json!(total));
        if let Some(seated) = self.seated.get() {
            let load = nanoseconds(self.began, *seated);
            fields.insert("load_duration".to_owned(), json!(load));
        }
    }

    /// Writes all durations at the end of a response. The engine's measurements take precedence over those taken here.
    pub(crate) fn of_response(
        &self,
        fields: &mut Map<String, Value>,
        tokens: Option<Tokens>,
        measured: Option<Timings>,
    ) {
        let end = now();
        self.until(end, fields);
        let first = self.first.get();
        let from_here =
            |from: Option<&Instant>, to: Option<Instant>| Some(nanoseconds(*from?, to?));
        let by_engine = |ms: f64| (ms * 1e6) as u64;
        let prompt = match measured {
            Some(measured) => Some(by_engine(measured.prompt_ms)),
            None => from_here(self.seated.get(), first.copied()),
        };
        let response = match measured {
            Some(measured) => Some(by_engine(measured.predicted_ms)),
            None => from_here(first, Some(end)),
        };
        for (name, value) in [
            ("prompt_eval_count", tokens.map(|tokens| tokens.prompt)),
            ("prompt_eval_duration", prompt),
            ("eval_count", tokens.map(|tokens| tokens.completion)),
            ("eval_duration", response),
        ] {
            if let Some(value) = value {
                fields.insert(name.to_owned(), json!(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_durations_are_reported_and_the_parts_fit_in_the_total() {
        let marks = Marks::begin(Clock::start());
        let mut fields = Map::new();
        marks.of_response(&mut fields, None, None);
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["total_duration"]);
        marks.seated();
        marks.begun();
        let tokens = Tokens {
            prompt: 7,
            completion: 3,
            ..Tokens::default()
        };
        let mut fields = Map::new();
        marks.of_response(&mut fields, Some(tokens), None);
        let number = |name: &str| fields[name].as_u64().unwrap();
        let parts = ["load_duration", "prompt_eval_duration", "eval_duration"];
        let sum: u64 = parts.map(number).iter().sum();
        assert!(sum <= number("total_duration"), "{fields:?}");
        assert_eq!((number("prompt_eval_count"), number("eval_count")), (7, 3));
        let measured = Timings {
            prompt_ms: 1.5,
            predicted_ms: 2.0,
        };
        let mut fields = Map::new();
        marks.of_response(&mut fields, None, Some(measured));
        assert_eq!(fields["prompt_eval_duration"], 1_500_000);
        assert_eq!(fields["eval_duration"], 2_000_000);
        assert_eq!(fields.get("eval_count"), None);
    }
}
