//! The figures of a running batch, for `GET /metrics`, `GET /memory` and the bound on waiting requests.

use super::schedule::Schedule;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counters written by the batch and read by the routes.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Requests that have not started.
    waiting: AtomicUsize,
    running: AtomicUsize,
    pages_held: AtomicUsize,
    preemptions: AtomicU64,
    known_tokens: AtomicU64,
    steps: AtomicU64,
    computed_tokens: AtomicU64,
    sampled_tokens: AtomicU64,
    draft_tokens: AtomicU64,
    accepted_tokens: AtomicU64,
}

impl Gauges {
    /// Counts one more waiting request and returns true, unless `most` are waiting already.
    pub fn begin_waiting(&self, most: usize) -> bool {
        let one_more = |waiting: usize| (waiting < most).then_some(waiting + 1);
        self.waiting
            .fetch_update(Relaxed, Relaxed, one_more)
            .is_ok()
    }

    pub fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    pub fn pages_held(&self) -> usize {
        self.pages_held.load(Relaxed)
    }

    #[cfg(test)]
    pub fn preemptions(&self) -> u64 {
        self.preemptions.load(Relaxed)
    }

    #[cfg(test)]
    pub fn known_tokens(&self) -> u64 {
        self.known_tokens.load(Relaxed)
    }

    /// Number of proposed tokens, and how many of them were accepted.
    #[cfg(test)]
    pub fn drafts(&self) -> (u64, u64) {
        let [drafts, accepted] = [&self.draft_tokens, &self.accepted_tokens];
        (drafts.load(Relaxed), accepted.load(Relaxed))
    }

    #[cfg(test)]
    pub fn sampled_tokens(&self) -> u64 {
        self.sampled_tokens.load(Relaxed)
    }

    /// Records the start of a step with `rows` rows, `proposed` of them for proposed tokens.
    pub(super) fn stepped(&self, rows: usize, proposed: usize) {
        self.steps.fetch_add(1, Relaxed);
        self.computed_tokens.fetch_add(rows as u64, Relaxed);
        self.draft_tokens.fetch_add(proposed as u64, Relaxed);
    }

    /// Records `tokens` chosen tokens after which a request continues; `accepted` of them had been proposed.
    pub(super) fn sampled(&self, tokens: usize, accepted: usize) {
        self.sampled_tokens.fetch_add(tokens as u64, Relaxed);
        self.accepted_tokens.fetch_add(accepted as u64, Relaxed);
    }

    pub(super) fn note(&self, schedule: &Schedule) {
        let counts = schedule.counts();
        self.running.store(schedule.running(), Relaxed);
        self.pages_held.store(schedule.held_pages(), Relaxed);
        self.preemptions.store(counts.preemptions, Relaxed);
        self.known_tokens.store(counts.known_tokens, Relaxed);
    }

    /// Renders the figures in the Prometheus text format.
    pub fn text(&self, pages: usize, page_bytes: u64) -> String {
        let mut text = String::new();
        let mut add = |name: &str, kind: &str, help: &str, value: f64| {
            let name = format!("candle_engine_{name}");
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
            );
        };
        let count = |value: &AtomicUsize| value.load(Relaxed) as f64;
        let (gauge, counter) = ("gauge", "counter");
        add(
            "requests_running",
            gauge,
            "Running requests.",
            count(&self.running),
        );
        add(
            "requests_waiting",
            gauge,
            "Waiting requests.",
            count(&self.waiting),
        );
        add("cache_pages", gauge, "Pages of the KV cache.", pages as f64);
        add(
            "cache_used_ratio",
            gauge,
            "Fraction of the pages held by requests.",
            count(&self.pages_held) / pages.max(1) as f64,
        );
        add(
            "cache_pages_held",
            gauge,
            "Pages held by requests.",
            count(&self.pages_held),
        );
        add(
            "cache_page_bytes",
            gauge,
            "Size of one page in bytes.",
            page_bytes as f64,
        );
        for (name, help, value) in [
            ("steps_total", "Passes through the network.", &self.steps),
            (
                "computed_tokens_total",
                "Rows computed in all steps.",
                &self.computed_tokens,
            ),
            (
                "sampled_tokens_total",
                "Chosen tokens after which a request continued.",
                &self.sampled_tokens,
            ),
            (
                "spec_decode_draft_tokens_total",
                "Proposed tokens that were computed.",
                &self.draft_tokens,
            ),
            (
                "spec_decode_accepted_tokens_total",
                "Proposed tokens that were accepted.",
                &self.accepted_tokens,
            ),
            (
                "known_prompt_tokens_total",
                "Prompt tokens reused from the cache.",
                &self.known_tokens,
            ),
            (
                "preemptions_total",
                "Requests that lost their pages and were restarted.",
                &self.preemptions,
            ),
        ] {
            add(name, counter, help, value.load(Relaxed) as f64);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_waiting_requests_is_limited() {
        let gauges = Gauges::default();
        assert!(gauges.begin_waiting(2) && gauges.begin_waiting(2));
        assert!(!gauges.begin_waiting(2));
        gauges.end_waiting();
        assert!(gauges.begin_waiting(2));
    }

    #[test]
    fn every_metric_has_a_type_and_a_value() {
        let gauges = Gauges::default();
        gauges.pages_held.store(2, Relaxed);
        let text = gauges.text(5, 1024);
        let numbers = text.lines().filter(|line| !line.starts_with('#'));
        for line in numbers {
            let (name, value) = line.split_once(' ').expect("a name and a number");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(text.contains(&format!("# TYPE {name} ")), "{line}");
        }
        assert!(text.contains("\ncandle_engine_cache_pages 5\n"));
        assert!(text.contains("\ncandle_engine_cache_used_ratio 0.4\n"));
    }
}
