//! Nodes and their tokens as text. Pure.

use crate::render::quantity::Clock;
use crate::render::table::{Cell, Column, column, table};
use crate::responses::{DrainNodeResponse, NodeList};
use crate::style::{Style, clean};

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
    let rows: Vec<Vec<Cell>> = list
        .nodes
        .iter()
        .map(|node| {
            let since = node.since.as_deref().map(|at| clock.stamp(at));
            let ends = node.ends_at.as_deref().map(|at| clock.stamp(at));
            vec![
                Cell::from(node.node.as_str()),
                Cell::from(node.state.as_str()),
                Cell::from(since.unwrap_or_else(|| "-".to_owned())),
                Cell::from(ends.unwrap_or_else(|| "-".to_owned())),
                Cell::from(node.devices.join(", ")),
                Cell::from(match node.replicas.len() {
                    0 => "-".to_owned(),
                    _ => node.replicas.join(", "),
                }),
                Cell::from(node.reason.clone().unwrap_or_default()),
            ]
        })
        .collect();
    let mut out = table(&NODES, &rows, "No nodes.", style);
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
    let valid = list.tokens.iter().filter(|token| token.state == "valid");
    let rows: Vec<Vec<Cell>> = valid
        .map(|token| {
            let used = token.used_at.as_deref().map(|at| clock.stamp(at));
            vec![
                Cell::from(token.id.as_str()),
                Cell::from(format!("{}…", token.prefix)),
                Cell::from(token.state.as_str()),
                Cell::from(clock.stamp(&token.expires_at)),
                Cell::from(used.unwrap_or_else(|| "never".to_owned())),
            ]
        })
        .collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(&TOKENS, &rows, "", style));
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
