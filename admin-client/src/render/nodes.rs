//! Nodes and their tokens as text. Pure.

use crate::render::quantity::Clock;
use crate::render::table::{Column, Row, column, table};
use crate::responses::{DrainNodeResponse, NodeList, NodeTokenView};
use crate::style::{Style, clean};
use terminal::row;

const NODES: [Column; 7] = [
    column("NODE"),
    column("STATE"),
    column("SINCE").leaves(1),
    column("ENDS").leaves(2),
    column("DEVICES").shortens_to(12),
    column("REPLICAS"),
    column("WHY").goes_below(),
];

const TOKENS: [Column; 5] = [
    column("TOKEN"),
    column("BEGINS"),
    column("STATE"),
    column("EXPIRES"),
    column("LAST USED").leaves(1),
];

/// The nodes, followed by the valid tokens.
pub fn nodes(list: &NodeList, clock: Clock, style: Style) -> String {
    let stamp = |at: &Option<String>| at.as_deref().map(|at| clock.stamp(at));
    let rows = list.nodes.iter().map(|node| {
        row![
            &node.node,
            &node.state,
            stamp(&node.since),
            stamp(&node.ends_at),
            node.devices.join(", "),
            (!node.replicas.is_empty()).then(|| node.replicas.join(", ")),
            node.reason.as_deref().unwrap_or_default(),
        ]
    });
    let mut out = table(&NODES, rows, "No nodes.", style);
    if let Some(coming) = &list.requested {
        let since = clock.stamp(&coming.since);
        let (shape, model) = (clean(&coming.shape), clean(&coming.model));
        let line = format!("one more node of size {shape} is requested for {model} since {since}");
        out.push_str(&if coming.reason.is_empty() {
            format!("{line}\n")
        } else {
            format!("{line}: {}\n", clean(&coming.reason))
        });
    }
    let is_open = |state: &str| ["valid", "not_yet_valid"].contains(&state);
    let valid = list.tokens.iter().filter(|token| is_open(&token.state));
    let row = |token: &NodeTokenView| {
        row![
            &token.id,
            format!("{}…", token.prefix),
            &token.state,
            clock.stamp(&token.expires_at),
            stamp(&token.used_at).unwrap_or_else(|| "never".to_owned()),
        ]
    };
    let rows: Vec<Row> = valid.map(row).collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(&TOKENS, rows, "", style));
    }
    out
}

/// The replicas that have left a draining node, and the replicas that have not.
pub fn drained(response: &DrainNodeResponse) -> String {
    let node = clean(&response.node);
    let left = match response.left.len() {
        0 => String::new(),
        _ => format!("; left: {}", clean(&response.left.join(", "))),
    };
    let draining = match response.draining.len() {
        0 => String::new(),
        _ => format!("; still there: {}", clean(&response.draining.join(", "))),
    };
    format!(
        "{node} takes no new replicas{left}{draining}\n`admin-client nodes undrain {node}` puts it back into service\n"
    )
}
