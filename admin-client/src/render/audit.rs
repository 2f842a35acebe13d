//! The audit as a table: when, who, from where, what, and the result. Pure.

use serde_json::Value;

use crate::render::quantity::Clock;
use crate::render::table::{Cell, Column, column, table};
use crate::responses::{AuditEntry, AuditList};
use crate::style::{Style, Tint};
use terminal::row;

const COLUMNS: [Column; 6] = [
    column("WHEN").leaves(2),
    column("WHO").shortens_to(10),
    column("FROM").leaves(1),
    column("ACTION").shortens_to(14),
    column("WHAT").goes_below(),
    column("END").shortens_to(8),
];

/// Oldest first, as the server sends them.
pub fn audit(list: &AuditList, clock: Clock, style: Style) -> String {
    let rows = list.entries.iter().map(|entry| {
        row![
            entry.at.as_deref().map(|at| clock.stamp(at)),
            who(entry),
            &entry.client,
            format!("{} {}", entry.method, entry.path),
            what(entry),
            Cell::tinted(end(entry.status), tint(entry.status)),
        ]
    });
    table(&COLUMNS, rows, "No changes yet.", style)
}

/// `ann (k3)`; only the name for single sign-on, where the subject would be long.
fn who(entry: &AuditEntry) -> String {
    match (&entry.name, &entry.key) {
        (Some(name), Some(key)) => format!("{name} ({key})"),
        (Some(name), None) => name.clone(),
        (None, _) => "unknown".to_owned(),
    }
}

/// `model=org/m priority=1`.
fn what(entry: &AuditEntry) -> String {
    let field = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    let fields: Vec<String> = entry.what.iter().map(field).collect();
    fields.join(" ")
}

fn end(status: u16) -> String {
    match status {
        200..300 => "done".to_owned(),
        401 | 403 => format!("{status} not allowed"),
        499 => "client disconnected".to_owned(),
        _ => format!("{status} refused"),
    }
}

fn tint(status: u16) -> Option<Tint> {
    match status {
        200..300 => None,
        401 | 403 => Some(Tint::Bad),
        _ => Some(Tint::Warning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::quantity::tests::noon;
    use serde_json::json;

    #[test]
    fn the_audit_log_shows_requester_action_and_result_per_line() {
        let entry = |key: Value, name: Value, what: Value, status: u16| {
            json!({"id": 1, "at": "2026-11-21T11:59:00Z", "key": key, "subject": null, "name": name,
                "client": "10.0.0.7", "method": "POST", "path": "/admin/load", "what": what, "status": status,
                "request": "req-1"})
        };
        let none = Value::Null;
        let list = json!({"entries": [
            entry("k3".into(), "ann".into(), json!({"model": "org/m", "priority": 1, "lease": null}), 200),
            entry(none.clone(), "bob".into(), json!({"model": "org/m"}), 403),
            entry(none.clone(), none.clone(), json!({}), 401),
            entry("k3".into(), "ann".into(), json!({}), 499),
            entry("k3".into(), "ann".into(), json!({}), 409),
        ], "next_before": 1});
        let list: AuditList = serde_json::from_value(list).expect("an audit");
        assert_eq!(
            audit(&list, noon(), Style::PLAIN),
            "WHEN                 WHO       FROM      ACTION            WHAT                               END\n\
             2026-11-21 11:59:00  ann (k3)  10.0.0.7  POST /admin/load  model=org/m priority=1 lease=null  done\n\
             2026-11-21 11:59:00  bob       10.0.0.7  POST /admin/load  model=org/m                        403 not allowed\n\
             2026-11-21 11:59:00  unknown   10.0.0.7  POST /admin/load                                     401 not allowed\n\
             2026-11-21 11:59:00  ann (k3)  10.0.0.7  POST /admin/load                                     client disconnected\n\
             2026-11-21 11:59:00  ann (k3)  10.0.0.7  POST /admin/load                                     409 refused\n"
        );
    }

    #[test]
    fn an_empty_audit_log_is_reported_in_a_sentence() {
        let text = audit(&AuditList::default(), noon(), Style::PLAIN);
        assert_eq!(text, "No changes yet.\n");
    }
}
