//! The results of `cordon` and `uncordon` as text. Pure.

use std::fmt::Write as _;

use crate::answers::{Cordon, CordonAnswer, UncordonAnswer};
use crate::render::quantity::{Clock, bytes, count};
use crate::screen::{Style, Tint, clean};

/// The cordon, the replicas that have left, and those that still drain.
pub fn cordoned(answer: &CordonAnswer, clock: Clock, style: Style) -> String {
    let device = style.paint(Tint::Strong, &clean(&answer.device));
    let why = answer
        .cordon
        .as_ref()
        .map_or_else(String::new, |cordon| format!(" ({})", why(cordon, clock)));
    let mut out = format!(
        "{device} is {}{why}\n",
        style.paint(Tint::Warning, "cordoned")
    );
    let _ = match answer.left.as_slice() {
        [] if answer.draining.is_empty() => {
            writeln!(out, "  empty    the pool had nothing on it")
        }
        [] => Ok(()),
        left => writeln!(out, "  left     {}", clean(&left.join(", "))),
    };
    for replica in &answer.draining {
        let _ = writeln!(
            out,
            "  {:<8} {} of {} ({}, {} in flight)",
            clean(&replica.state),
            clean(&replica.replica),
            clean(&replica.model),
            bytes(replica.bytes),
            count(
                usize::try_from(replica.in_flight).unwrap_or(usize::MAX),
                "request"
            ),
        );
    }
    if let Some(at) = &answer.cut_at {
        let _ = writeln!(
            out,
            "  at {} the requests still in flight are cut",
            clock.stamp(at)
        );
    }
    let _ = writeln!(
        out,
        "`admin-client uncordon {}` puts it back into service",
        clean(&answer.device)
    );
    out
}

pub fn uncordoned(answer: &UncordonAnswer, style: Style) -> String {
    format!(
        "{} {}\n",
        style.paint(Tint::Strong, &clean(&answer.device)),
        style.paint(Tint::Good, "is back in service")
    )
}

/// `new fan, until 2026-11-21 14:00:00`.
pub fn why(cordon: &Cordon, clock: Clock) -> String {
    let until = cordon
        .until_at
        .as_deref()
        .map_or_else(String::new, |at| format!(", until {}", clock.stamp(at)));
    let since = cordon
        .since_at
        .as_deref()
        .map_or_else(String::new, |at| format!(", since {}", clock.stamp(at)));
    let failed = if cordon.failed {
        "device failure: "
    } else {
        ""
    };
    format!("{failed}{}{since}{until}", clean(&cordon.reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    #[test]
    fn a_cordon_tells_what_left_what_drains_and_when_it_ends() {
        let answer: CordonAnswer = serde_json::from_value(json!({
            "device": "gpu3",
            "cordon": {"reason": "new fan", "since_at": "2026-11-21T12:00:00Z", "until_at": "2026-11-21T14:00:00Z", "failed": false},
            "left": ["r1"],
            "draining": [{"replica": "r3", "model": "org/m", "state": "draining", "in_flight": 2, "bytes": 1u64 << 30}],
            "cut_at": "2026-11-21T12:10:00Z", "order": "o5", "took_ms": 3}))
        .expect("an answer");
        assert_eq!(
            cordoned(&answer, noon(), Style::PLAIN),
            "gpu3 is cordoned (new fan, since 2026-11-21 12:00:00, until 2026-11-21 14:00:00)\n\
             \x20 left     r1\n\
             \x20 draining r3 of org/m (1.0 GiB, 2 requests in flight)\n\
             \x20 at 2026-11-21 12:10:00 the requests still in flight are cut\n\
             `admin-client uncordon gpu3` puts it back into service\n"
        );
    }

    #[test]
    fn an_empty_device_says_that_nothing_was_on_it() {
        let answer: CordonAnswer =
            serde_json::from_value(json!({"device": "gpu0"})).expect("an answer");
        let text = cordoned(&answer, noon(), Style::PLAIN);
        assert!(text.contains("the pool had nothing on it"), "{text}");
        let back: UncordonAnswer =
            serde_json::from_value(json!({"device": "gpu0"})).expect("an answer");
        assert_eq!(uncordoned(&back, Style::PLAIN), "gpu0 is back in service\n");
    }
}
