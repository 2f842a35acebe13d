//! The results of a benchmark, as a table and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::tally::{Tally, Times};

/// The load and its results.
pub struct Report {
    pub url: String,
    pub model: String,
    pub load: String,
    pub stream: bool,
    /// Requests had scheduled times.
    pub open_loop: bool,
    /// From the first request to the last response.
    pub took: Duration,
    pub connections_opened: u64,
    /// Requests that were running when the benchmark was interrupted.
    pub cut: u64,
    pub tally: Tally,
}

const PERCENTILES: [(&str, f64); 4] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

impl Report {
    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn times(&self) -> impl Iterator<Item = (&'static str, &'static str, &Times)> {
        let tally = &self.tally;
        let all = [
            ("latency", "latency_us", &tally.latency),
            ("first token", "first_token_us", &tally.first_token),
            ("between tokens", "between_tokens_us", &tally.between_tokens),
            ("sent late", "late_us", &tally.late),
        ];
        let is_open = self.open_loop;
        let shown =
            move |name: &str, times: &Times| times.count() > 0 && (is_open || name != "sent late");
        all.into_iter()
            .filter(move |(name, _, times)| shown(name, times))
    }

    pub fn table(&self) -> String {
        let tally = &self.tally;
        let mut out = String::new();
        let kind = if self.stream { ", streams" } else { "" };
        let seconds = self.took.as_secs_f64();
        let _ = writeln!(
            out,
            "{}, model {}, {}{kind}, {seconds:.2} s",
            self.url, self.model, self.load
        );
        let mut counted = |name: &str, count: u64, more: String| {
            let _ = writeln!(out, "{name:<16}{count:>12}{more}");
        };
        let rate = |count: u64| format!("{:>14.1}/s", self.per_second(count));
        counted("requests", tally.succeeded, rate(tally.succeeded));
        counted("failed", tally.failures(), String::new());
        if self.cut > 0 {
            counted("cut", self.cut, "  running at the end".to_owned());
        }
        if tally.prompt_tokens > 0 {
            counted(
                "prompt tokens",
                tally.prompt_tokens,
                rate(tally.prompt_tokens),
            );
        }
        if tally.tokens > 0 {
            counted("answer tokens", tally.tokens, rate(tally.tokens));
        }
        counted("bytes received", tally.bytes, rate(tally.bytes));
        counted("connections", self.connections_opened, String::new());
        if tally.succeeded > 0 {
            let _ = write!(out, "{:<16}", "");
            for name in ["mean", "p50", "p90", "p99", "p99.9", "longest"] {
                let _ = write!(out, "{name:>12}");
            }
            out.push('\n');
            for (name, _, times) in self.times() {
                let _ = write!(out, "{name:<16}{:>12}", short(times.mean()));
                for (_, percent) in PERCENTILES {
                    let _ = write!(out, "{:>12}", short(times.percentile(percent)));
                }
                let _ = writeln!(out, "{:>12}", short(times.longest()));
            }
        }
        for (label, failed) in &tally.failed {
            let message: String = failed.message.chars().take(200).collect();
            let _ = writeln!(out, "failed {} times: {label}: {message}", failed.count);
        }
        out
    }

    pub fn json(&self) -> Value {
        let tally = &self.tally;
        let mut all = Map::new();
        let mut put = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
        put("url", json!(self.url));
        put("model", json!(self.model));
        put("load", json!(self.load));
        put("stream", json!(self.stream));
        put("seconds", json!(self.took.as_secs_f64()));
        put("requests", json!(tally.succeeded + tally.failures()));
        put("succeeded", json!(tally.succeeded));
        put("failed", json!(tally.failures()));
        put("cut", json!(self.cut));
        put(
            "requests_per_second",
            json!(self.per_second(tally.succeeded)),
        );
        put("prompt_tokens", json!(tally.prompt_tokens));
        put("tokens", json!(tally.tokens));
        put("tokens_per_second", json!(self.per_second(tally.tokens)));
        put("bytes", json!(tally.bytes));
        put("connections_opened", json!(self.connections_opened));
        for (_, name, times) in self.times() {
            put(name, json_of(times));
        }
        let errors = tally.failed.iter().map(|(label, failed)| {
            let failure = json!({"count": failed.count, "message": failed.message});
            (label.clone(), failure)
        });
        put("errors", Value::Object(errors.collect()));
        Value::Object(all)
    }
}

fn json_of(times: &Times) -> Value {
    let us = |time: Duration| json!(time.as_nanos() as f64 / 1000.0);
    let mut all = Map::new();
    all.insert("count".to_owned(), json!(times.count()));
    all.insert("mean".to_owned(), us(times.mean()));
    for (name, percent) in PERCENTILES {
        all.insert(name.to_owned(), us(times.percentile(percent)));
    }
    all.insert("max".to_owned(), us(times.longest()));
    Value::Object(all)
}

/// Formats a time in a unit that keeps it short.
pub fn short(time: Duration) -> String {
    match time.as_nanos() as f64 {
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::{RequestError, RequestResult};

    fn report() -> Report {
        let mut tally = Tally::default();
        for nth in 1..=10 {
            tally.count(RequestResult {
                took: Duration::from_millis(nth),
                bytes: 100,
                tokens: 5,
                fault: (nth == 10).then(|| RequestError::new("503 no_room", "come back")),
                ..RequestResult::default()
            });
        }
        Report {
            url: "http://a/v1/completions".to_owned(),
            model: "m".to_owned(),
            load: "2 connections".to_owned(),
            stream: false,
            open_loop: false,
            took: Duration::from_secs(3),
            connections_opened: 2,
            cut: 1,
            tally,
        }
    }

    #[test]
    fn the_table_shows_counts_rates_times_and_reasons_for_failures() {
        let table = report().table();
        for expected in [
            "requests                   9           3.0/s",
            "failed                     1",
            "cut                        1",
            "answer tokens             45          15.0/s",
            "bytes received          1000",
            "failed 1 times: 503 no_room: come back",
        ] {
            assert!(table.contains(expected), "{expected} is not in\n{table}");
        }
        assert!(
            table
                .lines()
                .any(|line| line.starts_with("latency") && line.contains("5.00 ms"))
        );
        assert!(!table.contains("first token"), "there were no streams");
    }

    #[test]
    fn the_json_report_has_the_same_figures_with_units() {
        let json = report().json();
        assert_eq!(
            (&json["requests"], &json["succeeded"]),
            (&json!(10), &json!(9))
        );
        assert_eq!(json["errors"]["503 no_room"]["count"], 1);
        let p50 = json["latency_us"]["p50"].as_f64().unwrap();
        assert!((p50 / 5000.0 - 1.0).abs() < 0.002, "{p50}");
    }
}
