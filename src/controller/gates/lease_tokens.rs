//! The tokens of one request: counted from the pieces of its response until the engine reports them, and handed over in batches, so
//! a token usually costs one addition.

use std::sync::atomic::{AtomicU32, Ordering};

use pool::{Span, Tokens};

/// The piece that holds the first token. Many engines send an empty piece with the role before they compute anything.
pub(super) const FIRST_TOKEN: u64 = 2;
/// The number of tokens that are handed over together.
const BATCH: u64 = 64;
/// A request counts in the account of device time with at most this many times the expected tokens, plus `SURPLUS`, whatever its
/// engine reports.
const TIMES_EXPECTED_MAX: u64 = 16;
const SURPLUS: u64 = 1 << 16;
/// Responses in fewer pieces do not show the time of their first token.
const PIECES_MIN: u64 = 8;

/// Only one task writes it at a time; it is atomic because a task moves between threads. Small, because it is part of each request's
/// future. Counts saturate.
#[derive(Debug, Default)]
pub(super) struct LeaseTokens {
    pieces: AtomicU32,
    /// As reported; 0 if unknown.
    prompt: AtomicU32,
    output: AtomicU32,
    /// Handed over so far.
    handed_prompt: AtomicU32,
    handed_output: AtomicU32,
    /// Milliseconds since the request took its seat, plus one; 0 if there was none yet.
    first: AtomicU32,
    last: AtomicU32,
}

fn get(counter: &AtomicU32) -> u64 {
    u64::from(counter.load(Ordering::Relaxed))
}

fn set(counter: &AtomicU32, value: u64) {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    counter.store(value, Ordering::Relaxed);
}

impl LeaseTokens {
    /// Counts a piece. Returns the number of pieces if there is something to do for this one.
    pub fn piece(&self) -> Option<u64> {
        let pieces = get(&self.pieces) + 1;
        set(&self.pieces, pieces);
        (pieces == FIRST_TOKEN || pieces.is_multiple_of(BATCH)).then_some(pieces)
    }

    /// The first token has arrived, this long after the request took its seat.
    pub fn began(&self, after: Span) {
        set(&self.first, after.0 + 1);
    }

    /// Takes the counts of the request so far, reported this long after it took its seat. Returns true if enough has come to be handed
    /// over.
    pub fn reported(&self, tokens: Tokens, after: Span) -> bool {
        set(&self.prompt, tokens.prompt.max(get(&self.prompt)));
        set(&self.output, tokens.output.max(get(&self.output)));
        set(&self.last, after.0 + 1);
        get(&self.handed_prompt) < get(&self.prompt)
            || get(&self.output) >= get(&self.handed_output).saturating_add(BATCH)
    }

    fn total(&self) -> Tokens {
        Tokens {
            prompt: get(&self.prompt),
            output: match get(&self.output) {
                0 => get(&self.pieces),
                output => output,
            },
        }
    }

    fn handed(&self) -> Tokens {
        Tokens {
            prompt: get(&self.handed_prompt),
            output: get(&self.handed_output),
        }
    }

    /// Takes the tokens since the last call, and the part of them that had been expected.
    pub fn take(&self, expected: Tokens) -> (Tokens, Tokens) {
        let (before, total) = (self.handed(), self.total());
        // Pieces without a token may have been handed over.
        let after = before + total.less(before);
        set(&self.handed_prompt, after.prompt);
        set(&self.handed_output, after.output);
        let fulfilled = expected.less(before).less(expected.less(after));
        (after.less(before), fulfilled)
    }

    /// The tokens with which the request counts in the account of device time: the tokens handed over, and while it runs also the
    /// tokens that are still expected. At least one, because each request takes a seat.
    pub fn weight(&self, expected: Tokens, is_running: bool) -> u64 {
        let sum = |tokens: Tokens| tokens.prompt.saturating_add(tokens.output);
        let handed = self.handed();
        let all = if is_running {
            handed + expected.less(handed)
        } else {
            handed
        };
        let most = sum(expected).saturating_mul(TIMES_EXPECTED_MAX);
        sum(all).clamp(1, most.saturating_add(SURPLUS))
    }

    /// The part of the expected tokens that has not been handed over.
    pub fn unfulfilled(&self, expected: Tokens) -> Tokens {
        expected.less(self.handed())
    }

    /// The reported tokens with the time to the first one and from there to the last; `None` if they are unknown.
    pub fn measured(&self) -> Option<(Tokens, Span, Span)> {
        let (first, last) = (get(&self.first), get(&self.last));
        let is_known = get(&self.output) > 0 && get(&self.pieces) >= PIECES_MIN;
        let is_known = is_known && first > 0 && last >= first;
        is_known.then(|| (self.total(), Span(first - 1), Span(last - first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Tokens = tokens(50, 100);

    const fn tokens(prompt: u64, output: u64) -> Tokens {
        Tokens { prompt, output }
    }

    #[test]
    fn pieces_count_until_the_engine_reports_and_every_token_counts_once() {
        let counts = LeaseTokens::default();
        let due: Vec<u64> = (0..130).filter_map(|_| counts.piece()).collect();
        assert_eq!(due, [FIRST_TOKEN, BATCH, 2 * BATCH]);
        assert_eq!(counts.take(EXPECTED), (tokens(0, 130), tokens(0, 100)));
        assert!(
            counts.reported(tokens(40, 131), Span(5)),
            "the prompt is new"
        );
        assert_eq!(counts.take(EXPECTED), (tokens(40, 1), tokens(40, 0)));
        assert_eq!(counts.unfulfilled(EXPECTED), tokens(10, 0));
        assert!(!counts.reported(tokens(40, 140), Span(6)));
        assert!(counts.reported(tokens(40, 131 + BATCH), Span(7)));
        assert_eq!(counts.take(EXPECTED), (tokens(0, BATCH), Tokens::ZERO));
    }

    #[test]
    fn a_request_weighs_its_tokens_and_while_it_runs_those_expected() {
        let counts = LeaseTokens::default();
        let weights = || [true, false].map(|is_running| counts.weight(EXPECTED, is_running));
        assert_eq!(weights(), [150, 1]);
        (0..64).for_each(|_| _ = counts.piece());
        counts.take(EXPECTED);
        assert_eq!(weights(), [150, 64]);
        counts.reported(tokens(60, 90), Span(1));
        counts.take(EXPECTED);
        assert_eq!(weights(), [160, 150]);
    }

    #[test]
    fn absurd_counts_of_an_engine_weigh_a_bounded_multiple_of_those_expected() {
        for expected in [Tokens::ZERO, EXPECTED, tokens(u64::MAX, u64::MAX)] {
            let counts = LeaseTokens::default();
            counts.reported(tokens(u64::MAX, u64::MAX), Span(1));
            counts.take(expected);
            let most = expected.prompt.saturating_add(expected.output);
            let most = most.saturating_mul(16).saturating_add(65_536);
            let largest = 2 * u64::from(u32::MAX);
            assert_eq!(counts.weight(expected, false), most.min(largest));
        }
    }

    #[test]
    fn pieces_without_a_token_are_not_taken_back_twice() {
        let counts = LeaseTokens::default();
        (0..64).for_each(|_| _ = counts.piece());
        assert_eq!(counts.take(EXPECTED).0, tokens(0, 64));
        counts.reported(tokens(9, 60), Span(1));
        assert_eq!(counts.take(EXPECTED).0, tokens(9, 0));
        counts.reported(tokens(9, 70), Span(1));
        assert_eq!(counts.take(EXPECTED).0, tokens(0, 6));
    }

    #[test]
    fn times_are_measured_only_for_streams_whose_engine_reports_tokens() {
        let counts = LeaseTokens::default();
        counts.piece();
        counts.piece();
        counts.began(Span(100));
        assert_eq!(counts.measured(), None);
        (0..8).for_each(|_| _ = counts.piece());
        assert_eq!(counts.measured(), None);
        counts.reported(tokens(20, 9), Span(500));
        let measured = (tokens(20, 9), Span(100), Span(400));
        assert_eq!(counts.measured(), Some(measured));
    }
}
