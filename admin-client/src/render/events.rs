//! Events and engine output, one line each. Pure.

use crate::answers::{EventView, LogLine};
use crate::render::quantity::{Clock, bytes_or_dash, milliseconds};
use crate::screen::{Style, Tint, clean};

/// `2026-11-21 12:00:00  evicted  org/m r3  why  (3.2 s; gpu0 1.0 GiB → 0 B)`, without a line end.
pub fn event(event: &EventView, clock: Clock, style: Style) -> String {
    let mut subject: Vec<String> = Vec::new();
    subject.extend(event.model.as_deref().map(clean));
    subject.extend(event.replica.as_deref().map(clean));
    subject.extend(
        event
            .order
            .as_deref()
            .map(|order| format!("[{}]", clean(order))),
    );
    let mut details = Vec::new();
    details.extend(event.took_ms.map(milliseconds));
    for change in event.memory.iter().flatten() {
        details.push(format!(
            "{} {} → {}",
            clean(&change.device),
            bytes_or_dash(change.before_bytes),
            bytes_or_dash(change.after_bytes)
        ));
    }
    let at = event
        .at
        .as_deref()
        .map_or_else(String::new, |at| clock.stamp(at));
    let mut parts = vec![
        style.paint(Tint::Faint, &at),
        style.paint(
            kind_tint(&event.kind),
            &format!("{:<12}", clean(&event.kind)),
        ),
        subject.join(" "),
    ];
    parts.extend(
        event
            .reason
            .as_deref()
            .map(|reason| clean(reason).replace('\n', " | ")),
    );
    if !details.is_empty() {
        parts.push(style.paint(Tint::Faint, &format!("({})", details.join("; "))));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("  ").trim_end().to_owned()
}

fn kind_tint(kind: &str) -> Tint {
    let has = |word: &str| kind.contains(word);
    if has("fail") || has("refus") || has("crash") || has("quarantin") {
        Tint::Bad
    } else if has("evict") || has("unload") || has("drain") || has("stop") {
        Tint::Warning
    } else if has("ready") || has("load") {
        Tint::Good
    } else {
        Tint::Strong
    }
}

/// `r3 | text`, with standard error of the engine in another shade and without a line end.
pub fn log_line(line: &LogLine, style: Style) -> String {
    let text = clean(&line.line);
    let text = match line.stream.as_deref() {
        Some("stderr") => style.paint(Tint::Faint, &text),
        _ => text,
    };
    format!("{} | {text}", clean(&line.replica))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line_with_its_reason_and_what_it_cost() {
        let view: EventView = serde_json::from_value(json!({
            "id": 7, "at": "2026-11-21T11:59:00Z", "kind": "evicted", "model": "org/m", "replica": "r3", "order": "o5",
            "reason": "room for big\n(priority 1)", "priority": 0, "placement": null, "candidates": [],
            "memory": [{"device": "gpu0", "before_bytes": 1u64 << 30, "after_bytes": 0}], "took_ms": 3200}))
        .expect("an event");
        assert_eq!(
            event(&view, noon(), Style::PLAIN),
            "2026-11-21 11:59:00  evicted       org/m r3 [o5]  room for big | (priority 1)  (3.2 s; gpu0 1.0 GiB → 0 B)"
        );
    }

    #[test]
    fn an_event_of_an_unknown_kind_with_nothing_else_is_still_a_line() {
        let view: EventView = serde_json::from_value(json!({"kind": "novel"})).expect("an event");
        assert_eq!(event(&view, noon(), Style::PLAIN), "novel");
    }

    #[test]
    fn an_engines_colours_are_taken_out_of_its_lines() {
        let line: LogLine = serde_json::from_value(
            json!({"replica": "r1", "stream": "stderr", "line": "\u{1b}[32mINFO\u{1b}[0m up"}),
        )
        .expect("a line");
        assert_eq!(log_line(&line, Style::PLAIN), "r1 | INFO up");
    }
}
