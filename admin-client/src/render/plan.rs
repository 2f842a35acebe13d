//! Plans as text: placement, victims and reasons, or the obstacles. Pure.

use crate::render::fold::{item, name, painted};
use crate::render::quantity::{bytes, count, milliseconds, seconds};
use crate::render::table::{Column, column, list};
use crate::responses::{Candidate, Loading, Needs, Plan, Victim};
use crate::style::{Style, Tint, clean, clean_line};
use terminal::row;

/// A plan, or its obstacles if it is not feasible.
pub fn plan(plan: &Plan, style: Style) -> String {
    if !plan.feasible {
        return obstacles(plan, style);
    }
    let state = match (plan.already_loaded, &plan.loading) {
        (true, _) => "is already loaded".to_owned(),
        (false, Some(loading)) => format!("is loading already, {}", since(loading)),
        (false, None) => "can be loaded".to_owned(),
    };
    let model = name(&plan.model, style);
    let text = format!("{model}{} {state}", priority(plan));
    let mut out = painted(&text, &[(Tint::Strong, model.as_str())], style);
    out.push_str(&why(plan, style));
    if let Some(wanted) = &plan.needs {
        out.push_str(&item("needs", None, &needs(wanted), style));
    }
    let changes = !plan.already_loaded && plan.loading.is_none();
    for share in &plan.placement {
        let text = format!("{} on {}", bytes(share.bytes), clean(&share.device));
        out.push_str(&item("place", None, &text, style));
    }
    for victim in &plan.victims {
        let text = evicted(victim);
        out.push_str(&item("evict", Some(Tint::Warning), &text, style));
    }
    if plan.victims.is_empty() && changes {
        out.push_str("  evict   nothing\n");
    }
    for wait in &plan.waits_for {
        out.push_str(&item("wait", None, &clean(wait), style));
    }
    if let Some(cost) = plan.cost.as_ref().filter(|_| !plan.victims.is_empty()) {
        let mut parts = vec![bytes(cost.evicted_bytes)];
        parts.extend(
            cost.highest_victim_priority
                .map(|priority| format!("highest victim priority {priority}")),
        );
        parts.push(format!("{} busy", cost.busy_victims));
        parts.extend(
            cost.expected_reload_ms
                .map(|ms| format!("expected reload {}", milliseconds(ms))),
        );
        out.push_str(&item("cost", None, &parts.join(" · "), style));
    }
    if let Some(expected) = plan.expected_seconds.filter(|_| !plan.already_loaded) {
        let text = format!("in about {}", seconds(expected));
        out.push_str(&item("ready", None, &text, style));
    }
    if plan.candidates.len() > 1 {
        out.push_str("  candidate placements:\n");
        out.push_str(&places(&plan.candidates, 4, style));
    }
    out
}

/// `for 12.3 s (order o5)`.
fn since(loading: &Loading) -> String {
    let why = clean_line(&loading.why);
    if why.is_empty() {
        format!("for {}", milliseconds(loading.for_ms))
    } else {
        format!("for {} ({why})", milliseconds(loading.for_ms))
    }
}

/// The refusal of a load: the reason, the memory it needs, and the verdict on each placement.
pub fn obstacles(plan: &Plan, style: Style) -> String {
    const REFUSED: &str = "cannot be loaded now";
    let model = name(&plan.model, style);
    let tints = [(Tint::Strong, model.as_str()), (Tint::Bad, REFUSED)];
    let mut out = painted(
        &format!("{model}{} {REFUSED}", priority(plan)),
        &tints,
        style,
    );
    out.push_str(&why(plan, style));
    out.push_str(&needs_and_places(plan, style));
    out
}

/// The memory that a refused load needs, and the verdict on each placement.
pub fn needs_and_places(plan: &Plan, style: Style) -> String {
    let mut out = String::new();
    if let Some(wanted) = &plan.needs {
        out.push_str(&item("needs", None, &needs(wanted), style));
    }
    out.push_str(&places(&plan.candidates, 2, style));
    for wait in &plan.waits_for {
        out.push_str(&item("waits for", None, &clean(wait), style));
    }
    out
}

const PLACES: [Column; 2] = [
    column("PLACE").shortens_to(12),
    column("VERDICT").goes_below(),
];

/// One line per placement, with its verdict.
fn places(candidates: &[Candidate], indent: usize, style: Style) -> String {
    let row = |candidate: &Candidate| row![&candidate.place, &candidate.verdict];
    list(&PLACES, candidates.iter().map(row), indent, style)
}

/// `r1 of org/m (priority 0, 8.0 GiB, busy, reload 3.2 s): why`.
pub fn evicted(victim: &Victim) -> String {
    let mut parts = Vec::new();
    parts.extend(
        victim
            .priority
            .map(|priority| format!("priority {priority}")),
    );
    parts.push(bytes(victim.bytes));
    if victim.busy {
        parts.push("busy".to_owned());
    }
    parts.extend(
        victim
            .reload_ms
            .map(|ms| format!("reload {}", milliseconds(ms))),
    );
    let why = victim
        .reason
        .as_deref()
        .map_or_else(String::new, |reason| format!(": {}", clean(reason)));
    format!(
        "{} of {} ({}){why}",
        clean(&victim.replica),
        clean(&victim.model),
        parts.join(", ")
    )
}

/// `2 devices with 40.0 GiB each (measured)`.
pub fn needs(needs: &Needs) -> String {
    let source = match needs.source.as_deref() {
        None => String::new(),
        Some("unfetched") => " (a guess until its weights are fetched)".to_owned(),
        Some("unseen") => " (the pool does not see its memory)".to_owned(),
        Some(source) => format!(" ({})", clean(source)),
    };
    let each = if needs.devices > 1 { " each" } else { "" };
    let by_place = needs.by_place.as_deref();
    let by_place = by_place.map_or_else(String::new, |places| format!("; {}", clean(places)));
    format!(
        "{} with {}{each}{source}{by_place}",
        count(needs.devices as usize, "device"),
        bytes(needs.bytes_per_device)
    )
}

fn priority(plan: &Plan) -> String {
    plan.priority
        .map_or_else(String::new, |priority| format!(" (priority {priority})"))
}

fn why(plan: &Plan, style: Style) -> String {
    let mut text = String::new();
    if let Some(choice) = &plan.virtual_choice {
        let chosen = format!(
            "{} ({}) takes {}: {}",
            clean(&choice.name),
            clean(&choice.kind),
            clean(&choice.member),
            clean(&choice.reason)
        );
        text.push_str(&item("member", None, &chosen, style));
    }
    if let Some(reason) = plan.reason.as_deref().filter(|reason| !reason.is_empty()) {
        text.push_str(&item("why", None, &clean(reason), style));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: serde_json::Value) -> Plan {
        serde_json::from_value(value).expect("a plan")
    }

    #[test]
    fn a_plan_shows_victims_reasons_and_cost() {
        let shown = plan(
            &read(json!({
                "model": "org/m", "priority": 1, "feasible": true, "already_loaded": false,
                "reason": "fits after one eviction",
                "needs": {"devices": 1, "bytes_per_device": 40u64 << 30, "source": "measured"},
                "placement": [{"device": "gpu0", "bytes": 40u64 << 30}],
                "victims": [{"replica": "r1", "model": "small", "priority": 0, "busy": true,
                    "bytes": 8u64 << 30, "reload_ms": 3200, "reason": "lower priority"}],
                "waits_for": ["r1 to drain, at most 30 s"],
                "cost": {"highest_victim_priority": 0, "busy_victims": 1, "expected_reload_ms": 1600, "evicted_bytes": 8u64 << 30},
                "candidates": [], "expected_seconds": 12.3})),
            Style::PLAIN,
        );
        assert_eq!(
            shown,
            "org/m (priority 1) can be loaded\n\
             \x20 why     fits after one eviction\n\
             \x20 needs   1 device with 40.0 GiB (measured)\n\
             \x20 place   40.0 GiB on gpu0\n\
             \x20 evict   r1 of small (priority 0, 8.0 GiB, busy, reload 3.2 s): lower priority\n\
             \x20 wait    r1 to drain, at most 30 s\n\
             \x20 cost    8.0 GiB · highest victim priority 0 · 1 busy · expected reload 1.6 s\n\
             \x20 ready   in about 12.3 s\n"
        );
    }

    #[test]
    fn a_refusal_shows_what_was_found_at_each_place() {
        let shown = plan(
            &read(json!({
                "model": "m", "feasible": false, "reason": "no device has room",
                "needs": {"devices": 2, "bytes_per_device": 1u64 << 30, "source": "estimate",
                    "host_bytes": 3u64 << 30,
                    "by_place": "1.0 GiB and 0.5 GiB on the GPUs, 3.0 GiB on the host: --cpu-moe"},
                "candidates": [{"place": "gpu0", "verdict": "held by r2 (priority 3, always-hot)"},
                    {"place": "gpu10", "verdict": "600.0 MiB free"}]})),
            Style::PLAIN,
        );
        assert_eq!(
            shown,
            "m cannot be loaded now\n\
             \x20 why     no device has room\n\
             \x20 needs   2 devices with 1.0 GiB each (estimate); 1.0 GiB and 0.5 GiB on the GPUs, \
             3.0 GiB on the host: --cpu-moe\n\
             \x20 gpu0   held by r2 (priority 3, always-hot)\n\
             \x20 gpu10  600.0 MiB free\n"
        );
    }

    #[test]
    fn a_plan_with_only_the_required_fields_is_shown() {
        assert_eq!(
            plan(&read(json!({"model": "m", "feasible": true})), Style::PLAIN),
            "m can be loaded\n  evict   nothing\n"
        );
        assert_eq!(
            plan(
                &read(json!({"model": "m", "feasible": true, "already_loaded": true})),
                Style::PLAIN
            ),
            "m is already loaded\n"
        );
    }

    #[test]
    fn a_load_in_progress_is_not_called_loaded() {
        let loading = json!({"model": "m", "feasible": true,
            "loading": {"replicas": 1, "for_ms": 12_300, "why": "order o5"}, "expected_seconds": 14.0});
        assert_eq!(
            plan(&read(loading), Style::PLAIN),
            "m is loading already, for 12.3 s (order o5)\n  ready   in about 14.0 s\n"
        );
    }
}
