//! Measures the time that a model's tokens take: of a seat before the first token per token of the prompt, and after it per token of
//! output. Requests add their figures when they end, without the loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pool::{Span, TokenCosts, Tokens};

/// The number of latest requests that count.
const SAMPLES: usize = 64;
/// The minimum number of requests for a measurement.
const SAMPLES_MIN: usize = 8;
/// The time of a request counts up to this many times the median, which bounds the effect of one slow start.
const TIMES_MEDIAN_MAX: u64 = 4;
/// The output of a request of a model that has not served any.
const OUTPUT_USUAL: u64 = 256;
/// A request is expected to take at most this many times the usual output, whatever limit it sets.
const OUTPUT_TIMES_MAX: u64 = 4;

/// The tokens of one request, and the times to the first token and from there to the last.
#[derive(Clone, Copy, Debug)]
struct Sample {
    tokens: Tokens,
    first: Span,
    rest: Span,
}

#[derive(Debug, Default)]
pub struct TokenMeter {
    samples: Mutex<Ring>,
    /// The usual output of a request; 0 if unknown.
    usual_output: AtomicU64,
}

#[derive(Debug, Default)]
struct Ring {
    samples: Vec<Sample>,
    next: usize,
    /// The number of requests since the start.
    count: u64,
}

impl TokenMeter {
    /// The output that a request with this limit is expected to take.
    pub fn expected_output(&self, limit: Option<u64>) -> u64 {
        let usual = match self.usual_output.load(Ordering::Relaxed) {
            0 => OUTPUT_USUAL,
            usual => usual,
        };
        let most = usual.saturating_mul(OUTPUT_TIMES_MAX);
        limit.map_or(usual, |limit| limit.min(most))
    }

    /// Continues from the usual output that an earlier process measured.
    pub(crate) fn remember(&self, usual_output: u64) {
        self.usual_output.store(usual_output, Ordering::Relaxed);
    }

    /// Adds a request that has ended. `first` is the time from its seat to its first token, `rest` the time from there to the last.
    /// Returns true if the costs should be taken: often at first, then ever less.
    pub(crate) fn add(&self, tokens: Tokens, first: Span, rest: Span) -> bool {
        let sample = Sample {
            tokens,
            first,
            rest,
        };
        let mut ring = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.samples.len() < SAMPLES {
            ring.samples.push(sample);
        } else {
            let next = ring.next;
            ring.samples[next] = sample;
        }
        ring.next = (ring.next + 1) % SAMPLES;
        ring.count += 1;
        // The median of all samples changes little from one request to the next.
        if ring.count.is_multiple_of(SAMPLES_MIN as u64) {
            let usual = ring.usual_output().unwrap_or(0);
            self.usual_output.store(usual, Ordering::Relaxed);
        }
        ring.count >= SAMPLES_MIN as u64 && ring.count.is_power_of_two()
    }

    /// The measured costs and the usual output; `None` before enough requests have ended.
    pub(crate) fn costs(&self) -> Option<(TokenCosts, u64)> {
        let ring = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = ring.samples.iter();
        let prompt = rate(samples.clone().map(|one| (one.first, one.tokens.prompt)))?;
        let after_first = |one: &Sample| one.tokens.output.saturating_sub(1);
        let output = rate(samples.map(|one| (one.rest, after_first(one))))?;
        Some((TokenCosts::new(prompt, output), ring.usual_output()?))
    }
}

impl Ring {
    fn usual_output(&self) -> Option<u64> {
        median(self.samples.iter().map(|sample| sample.tokens.output))
    }
}

/// Microseconds for each token.
fn rate(parts: impl Iterator<Item = (Span, u64)>) -> Option<u64> {
    let parts: Vec<(Span, u64)> = parts.filter(|(_, tokens)| *tokens > 0).collect();
    let median = median(parts.iter().map(|(span, _)| span.0))?;
    let most = median.saturating_mul(TIMES_MEDIAN_MAX);
    let time: u64 = parts.iter().map(|(span, _)| span.0.min(most)).sum();
    let tokens: u64 = parts.iter().map(|(_, tokens)| *tokens).sum();
    Some(time.saturating_mul(1_000) / tokens.max(1))
}

/// `None` for fewer than `SAMPLES_MIN` values.
fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    if values.len() < SAMPLES_MIN {
        return None;
    }
    let middle = values.len() / 2;
    Some(*values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(prompt: u64, output: u64) -> Tokens {
        Tokens { prompt, output }
    }

    #[test]
    fn costs_are_the_rates_of_the_latest_requests() {
        let meter = TokenMeter::default();
        for _ in 0..SAMPLES_MIN - 1 {
            let is_due = meter.add(tokens(100, 51), Span(10), Span(1_000));
            assert!(!is_due);
        }
        assert_eq!(meter.costs(), None, "too few");
        assert!(meter.add(tokens(100, 51), Span(900_000), Span(1_000)));
        let (costs, usual) = meter.costs().expect("enough");
        assert_eq!((costs.output_us(), usual), (20_000, 51));
        assert!(
            costs.prompt_us() < 150,
            "one slow start counts little: {costs:?}"
        );
        for nth in 0..SAMPLES as u64 {
            // Long prompts weigh more than short ones.
            let (prompt, first) = if nth % 2 == 0 { (10, 5) } else { (1_990, 15) };
            meter.add(tokens(prompt, 11), Span(first), Span(10));
        }
        assert_eq!(meter.costs(), Some((TokenCosts::new(10, 1_000), 11)));
    }

    #[test]
    fn models_without_output_are_not_measured() {
        let meter = TokenMeter::default();
        for _ in 0..SAMPLES {
            meter.add(tokens(300, 1), Span(50), Span(0));
        }
        assert_eq!(meter.costs(), None);
        assert_eq!(meter.expected_output(None), 1);
    }

    #[test]
    fn a_limit_far_above_the_usual_output_is_not_believed() {
        let meter = TokenMeter::default();
        assert_eq!(meter.expected_output(None), OUTPUT_USUAL);
        assert_eq!(meter.expected_output(Some(1_000_000)), 4 * OUTPUT_USUAL);
        for _ in 0..SAMPLES_MIN {
            meter.add(tokens(10, 30), Span(1), Span(1));
        }
        assert_eq!(meter.expected_output(Some(1_000_000)), 120);
        assert_eq!(meter.expected_output(Some(7)), 7);
    }
}
