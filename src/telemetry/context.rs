//! W3C Trace Context: parsing of `traceparent` and `tracestate`, and ids of new traces and spans.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A longer `tracestate` is dropped, as the specification allows.
const STATE_BYTES_MAX: usize = 512;
const SAMPLED: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A span of another program. Displays as the value of `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: TraceId,
    pub span: SpanId,
    pub is_sampled: bool,
}

impl TraceParent {
    /// Returns `None` if the text is not valid, in which case a new trace begins.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.trim().split('-');
        let version = hex::<1>(parts.next()?)?[0];
        let trace = hex(parts.next()?)?;
        let span = hex(parts.next()?)?;
        let flags = hex::<1>(parts.next()?)?[0];
        // Later versions may have more parts; 255 is forbidden.
        let is_known = version != 0xff && (version > 0 || parts.next().is_none());
        let has_ids = trace != [0; 16] && span != [0; 8];
        (is_known && has_ids).then_some(TraceParent {
            trace: TraceId(trace),
            span: SpanId(span),
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", self.trace, self.span)
    }
}

/// Parses lower-case hexadecimal digits of exactly this many bytes.
fn hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The trace context in a client's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentContext {
    pub parent: TraceParent,
    /// The `tracestate`, passed on unchanged.
    pub state: Option<String>,
}

impl ParentContext {
    /// `states` is all `tracestate` headers, in order.
    pub fn parse<'a>(
        parent: Option<&str>,
        states: impl Iterator<Item = &'a str>,
    ) -> Option<ParentContext> {
        let parent = TraceParent::parse(parent?)?;
        let states: Vec<&str> = states
            .map(str::trim)
            .filter(|state| !state.is_empty())
            .collect();
        let state = states.join(",");
        let is_plain = state.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let is_kept = !state.is_empty() && state.len() <= STATE_BYTES_MAX && is_plain;
        Some(ParentContext {
            parent,
            state: is_kept.then_some(state),
        })
    }
}

/// Generates ids: random by the seeds of the standard library's hasher, which cost no system call each.
#[derive(Debug, Default)]
pub struct Ids {
    seeds: RandomState,
    count: AtomicU64,
}

impl Ids {
    pub fn trace(&self) -> TraceId {
        let (high, low) = (self.next(), self.next());
        TraceId((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }

    pub fn span(&self) -> SpanId {
        SpanId(self.next().to_be_bytes())
    }

    /// Never returns 0, which stands for a missing id.
    fn next(&self) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        self.seeds.hash_one(count).max(1)
    }
}

/// Returns true if a new trace is sampled. Depends only on its id, so every program with the same ratio decides alike.
pub fn ratio_keeps(trace: TraceId, ratio: f64) -> bool {
    let low = u128::from_be_bytes(trace.0) as u64 >> 1;
    // A ratio of 1 keeps all traces, although the product is rounded.
    ratio >= 1.0 || (low as f64) < ratio * (1_u64 << 63) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_the_same() {
        let parsed = TraceParent::parse(VALID).unwrap();
        assert!(parsed.is_sampled);
        assert_eq!(parsed.to_string(), VALID);
        let unsampled = VALID.replace("-01", "-00");
        assert!(!TraceParent::parse(&unsampled).unwrap().is_sampled);
        // A later version may have more parts.
        let later = VALID.replacen("00-", "01-", 1) + "-more";
        assert_eq!(TraceParent::parse(&later), Some(parsed));
    }

    #[test]
    fn an_invalid_traceparent_begins_a_new_trace() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        ] {
            assert_eq!(TraceParent::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_tracestate_is_kept_unless_it_is_too_long_or_has_no_traceparent() {
        let parse =
            |parent, states: &[&'static str]| ParentContext::parse(parent, states.iter().copied());
        let found = parse(Some(VALID), &["a=1", " b=2 "]).unwrap();
        assert_eq!(found.state.as_deref(), Some("a=1,b=2"));
        assert_eq!(parse(None, &["a=1"]), None);
        let long: &'static str = "x".repeat(513).leak();
        assert_eq!(parse(Some(VALID), &[long]).unwrap().state, None);
        assert_eq!(parse(Some(VALID), &["a=\u{e9}"]).unwrap().state, None);
    }

    #[test]
    fn trace_ids_are_unique_and_the_sampling_ratio_is_respected() {
        let ids = Ids::default();
        let traces: Vec<TraceId> = (0..10_000).map(|_| ids.trace()).collect();
        let unique: std::collections::BTreeSet<[u8; 16]> =
            traces.iter().map(|trace| trace.0).collect();
        assert_eq!(unique.len(), traces.len());
        let kept = |ratio| {
            traces
                .iter()
                .filter(|trace| ratio_keeps(**trace, ratio))
                .count()
        };
        assert_eq!((kept(0.0), kept(1.0)), (0, 10_000));
        assert!((2_200..2_800).contains(&kept(0.25)), "{}", kept(0.25));
    }
}
