//! The results of `cordon` and `uncordon` as text. Pure.

use crate::render::fold::{item, name, painted, sentence};
use crate::render::quantity::{Clock, bytes, count};
use crate::responses::{Cordon, CordonResponse, UncordonResponse};
use crate::style::{Style, Tint, clean};

/// The cordon, the replicas that have left, and the replicas that still drain.
pub fn cordoned(response: &CordonResponse, clock: Clock, style: Style) -> String {
    let device = name(&response.device, style);
    let mut out = painted(
        &format!("{device} is cordoned"),
        &[(Tint::Strong, device.as_str()), (Tint::Warning, "cordoned")],
        style,
    );
    if let Some(cordon) = &response.cordon {
        out.push_str(&item("why     ", None, &why(cordon, clock), style));
    }
    match response.left.as_slice() {
        [] if response.draining.is_empty() => {
            out.push_str(&item("empty   ", None, "no replica was on it", style));
        }
        [] => {}
        left => out.push_str(&item("left    ", None, &clean(&left.join(", ")), style)),
    }
    for replica in &response.draining {
        let in_flight = usize::try_from(replica.in_flight).unwrap_or(usize::MAX);
        let text = format!(
            "{} of {} ({}, {} in flight)",
            clean(&replica.replica),
            name(&replica.model, style),
            bytes(replica.bytes),
            count(in_flight, "request"),
        );
        let state = format!("{:<8}", name(replica.state.as_str(), style));
        out.push_str(&item(&state, None, &text, style));
    }
    if let Some(at) = &response.cut_at {
        let at = clock.stamp(at);
        let text = format!("  requests still in flight at {at} are cut");
        out.push_str(&sentence(&text, style));
    }
    let text = format!("`admin-client uncordon {device}` puts it back into service");
    out.push_str(&sentence(&text, style));
    out
}

pub fn uncordoned(response: &UncordonResponse, style: Style) -> String {
    let device = name(&response.device, style);
    let tints = [
        (Tint::Strong, device.as_str()),
        (Tint::Good, "back in service"),
    ];
    painted(&format!("{device} is back in service"), &tints, style)
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
    fn a_cordon_lists_stopped_and_draining_replicas_and_its_end() {
        let response: CordonResponse = serde_json::from_value(json!({
            "device": "gpu3",
            "cordon": {"reason": "new fan", "since_at": "2026-11-21T12:00:00Z", "until_at": "2026-11-21T14:00:00Z", "failed": false},
            "left": ["r1"],
            "draining": [{"replica": "r3", "model": "org/m", "state": "draining", "in_flight": 2, "bytes": 1u64 << 30}],
            "cut_at": "2026-11-21T12:10:00Z", "order": "o5", "took_ms": 3}))
        .expect("a response");
        assert_eq!(
            cordoned(&response, noon(), Style::PLAIN),
            "gpu3 is cordoned\n\
             \x20 why      new fan, since 2026-11-21 12:00:00, until 2026-11-21 14:00:00\n\
             \x20 left     r1\n\
             \x20 draining r3 of org/m (1.0 GiB, 2 requests in flight)\n\
             \x20 requests still in flight at 2026-11-21 12:10:00 are cut\n\
             `admin-client uncordon gpu3` puts it back into service\n"
        );
    }

    #[test]
    fn an_empty_device_is_reported_as_empty() {
        let response: CordonResponse =
            serde_json::from_value(json!({"device": "gpu0"})).expect("a response");
        let text = cordoned(&response, noon(), Style::PLAIN);
        assert!(text.contains("no replica was on it"), "{text}");
        let back: UncordonResponse =
            serde_json::from_value(json!({"device": "gpu0"})).expect("a response");
        assert_eq!(uncordoned(&back, Style::PLAIN), "gpu0 is back in service\n");
    }
}
