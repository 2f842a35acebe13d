//! The waits between the tries of work that cannot be done at present.

use std::hash::{DefaultHasher, Hash, Hasher};

use pool::Span;

/// Longest first wait, in milliseconds.
const FIRST_MAX_MS: u64 = 100;
/// Longest wait without `Retry-After`.
const WAIT_MAX: Span = Span::from_secs(60);
/// Longest `Retry-After` that is honoured.
const RETRY_AFTER_MAX: Span = Span::from_secs(300);

/// The wait after this number of tries that failed one after the other. It doubles from 0.1 s to 60 s. The second half of it is spread
/// by `id`, which keeps work that failed together from returning together. A `retry_after` of up to 5 minutes is the least wait.
pub(crate) fn wait(tries: u32, id: &str, retry_after: Option<Span>) -> Span {
    let longest = WAIT_MAX
        .0
        .min(FIRST_MAX_MS << tries.saturating_sub(1).min(10));
    let half = longest / 2;
    let mut hasher = DefaultHasher::new();
    (id, tries).hash(&mut hasher);
    let spread = hasher.finish() % (half + 1);
    let retry_after = retry_after.unwrap_or(Span::ZERO).min(RETRY_AFTER_MAX);
    Span(half.max(retry_after.0) + spread)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_differ_between_pieces_of_work() {
        for (tries, longest) in [
            (0, 100),
            (1, 100),
            (2, 200),
            (4, 800),
            (10, 51_200),
            (11, 60_000),
            (u32::MAX, 60_000),
        ] {
            let ids = (0..100).map(|nth| format!("resp_{nth}"));
            let waits: BTreeSet<u64> = ids.map(|id| wait(tries, &id, None).0).collect();
            assert!(waits.len() > 30, "{tries}: {} different waits", waits.len());
            let range = longest / 2..=longest;
            assert!(waits.iter().all(|wait| range.contains(wait)), "{tries}");
        }
    }

    #[test]
    fn retry_after_is_honoured_within_its_bound() {
        for (given, least) in [(0, 50), (1, 1_000), (10, 10_000), (100_000, 300_000)] {
            let waited = wait(1, "resp_1", Some(Span::from_secs(given))).0;
            assert!((least..=least + 50).contains(&waited), "{given}: {waited}");
        }
    }
}
