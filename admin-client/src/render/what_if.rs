//! The effect of assumptions as text: the replicas that would leave, the loads, and the plans for the next requests. Pure.

use crate::render::fold::{item, name, painted, sentence};
use crate::render::plan;
use crate::render::quantity::{bytes, count};
use crate::style::{Style, Tint, clean};
use crate::what_if::{WhatIf, WhatIfReplica};

pub fn what_if(response: &WhatIf, assumed: &str, style: Style) -> String {
    let mut out = sentence(&format!("If {}:", clean(assumed)), style);
    for replica in &response.leaving {
        let id = replica.replica.as_deref().unwrap_or("a replica");
        let text = format!("{} of {}", clean(id), described(replica, style));
        out.push_str(&item("leaves", Some(Tint::Warning), &text, style));
    }
    for replica in &response.loads {
        out.push_str(&item(
            "loads ",
            Some(Tint::Good),
            &described(replica, style),
            style,
        ));
    }
    if response.leaving.is_empty() && response.loads.is_empty() {
        out.push_str(&painted(
            "  no replica would leave, and no model would be loaded",
            &[],
            style,
        ));
    }
    if !response.next.is_empty() {
        out.push_str(&sentence("The next request for each model:", style));
    }
    for next in &response.next {
        out.push_str(&plan::plan(next, style));
    }
    out.push_str(&sentence("Nothing was changed.", style));
    out
}

/// `org/m (priority 1, 8.0 GiB on gpu0, 2 requests in flight): why`.
fn described(replica: &WhatIfReplica, style: Style) -> String {
    let place = replica.devices.iter();
    let place = place.map(|share| format!("{} on {}", bytes(share.bytes), clean(&share.device)));
    let mut facts = vec![format!("priority {}", replica.priority)];
    facts.extend(place);
    if replica.in_flight > 0 {
        let in_flight = usize::try_from(replica.in_flight).unwrap_or(usize::MAX);
        facts.push(format!("{} in flight", count(in_flight, "request")));
    }
    let (model, facts) = (name(&replica.model, style), facts.join(", "));
    format!("{model} ({facts}): {}", clean(&replica.reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_what_if_shows_stopped_replicas_and_loads_with_their_reasons() {
        let response: WhatIf = serde_json::from_value(json!({
            "leaving": [{"replica": "r1", "model": "hot", "priority": 2, "in_flight": 1,
                "devices": [{"device": "gpu1", "bytes": 1_073_741_824}], "reason": "device gpu1 is cordoned (M7)"}],
            "loads": [{"replica": null, "model": "hot", "priority": 2, "in_flight": 0,
                "devices": [{"device": "gpu0", "bytes": 1_073_741_824}], "reason": "always-hot, priority 2 (P4)"}],
            "next": [{"model": "big", "feasible": false, "reason": "does not fit"}]
        }))
        .expect("a response");
        let text = what_if(&response, "gpu1 were cordoned", Style::PLAIN);
        for part in [
            "If gpu1 were cordoned:",
            "r1 of hot (priority 2, 1.0 GiB on gpu1, 1 request in flight): device gpu1",
            "hot (priority 2, 1.0 GiB on gpu0): always-hot",
            "cannot be loaded now",
            "Nothing was changed.",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let nothing = what_if(&WhatIf::default(), "x had priority 0", Style::PLAIN);
        assert!(nothing.contains("no replica would leave"), "{nothing}");
    }
}
