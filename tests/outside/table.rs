//! The table in docs/guides/clients.md with the features of each client over each API. The client tests determine the features and
//! print rows of JSON, which are compared with the document here. UPDATE=1 writes them.

use std::fs;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::clients::root;

const DOCUMENT: &str = "docs/guides/clients.md";
const BEGIN: &str = "<!-- clients: written by `UPDATE=1 cargo test --test outside -- client_libraries:: agents::` -->\n";
const END: &str = "<!-- clients: end -->";
const COLUMNS: [&str; 7] = [
    "chat",
    "stream",
    "tools",
    "second turn",
    "structured",
    "reasoning",
    "error",
];

/// All rows produced by tests, in the order of the table.
const ROWS: [(&str, &str); 36] = [
    ("Codex CLI", "responses"),
    ("Codex CLI, --oss", "responses"),
    ("Claude Code", "messages"),
    ("OpenCode", "chat"),
    ("OpenCode", "responses"),
    ("OpenCode", "messages"),
    ("aider", "chat"),
    ("AI SDK, openai", "chat"),
    ("AI SDK, openai", "responses"),
    ("AI SDK, openai-compatible", "chat"),
    ("AI SDK, anthropic", "messages"),
    ("openai (PyPI)", "chat"),
    ("openai (PyPI)", "responses"),
    ("openai (npm)", "chat"),
    ("openai (npm)", "responses"),
    ("anthropic (PyPI)", "messages"),
    ("LangChain", "chat"),
    ("LangChain", "responses"),
    ("LlamaIndex", "chat"),
    ("pydantic-ai", "chat"),
    ("pydantic-ai", "responses"),
    ("pydantic-ai", "messages"),
    ("instructor, TOOLS", "chat"),
    ("instructor, TOOLS_STRICT", "chat"),
    ("instructor, JSON", "chat"),
    ("instructor, JSON_SCHEMA", "chat"),
    ("instructor, RESPONSES_TOOLS", "responses"),
    ("outlines", "chat"),
    ("inspect-ai, openai", "responses"),
    ("inspect-ai, openai-api", "chat"),
    ("inspect-ai, batch", "responses"),
    ("inspect-ai, batch", "chat"),
    ("lm-eval", "chat"),
    ("lm-eval", "completions"),
    ("aiperf", "chat"),
    ("aiperf", "responses"),
];

/// Serializes updates: tests of several clients run simultaneously.
static TURN: Mutex<()> = Mutex::new(());

/// A line of the table, by its beginning.
fn head(client: &str, wire: &str) -> String {
    format!("| {client} | {wire} |")
}

fn line(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().unwrap_or("–").to_owned();
    let cells: Vec<String> = COLUMNS.iter().map(|column| text(column)).collect();
    format!(
        "{} {} |",
        head(&text("client"), &text("wire")),
        cells.join(" | ")
    )
}

/// The lines of the table in the document, without its head.
fn lines_of(document: &str) -> Vec<String> {
    let table = document.split_once(BEGIN).map_or("", |(_, rest)| rest);
    let table = table.split_once(END).map_or(table, |(table, _)| table);
    let lines = table.lines().filter(|line| line.starts_with("| "));
    lines.skip(1).map(str::to_owned).collect()
}

fn written(document: &str, lines: &[String]) -> String {
    let (before, rest) = document.split_once(BEGIN).expect("where the table begins");
    let (_, after) = rest.split_once(END).expect("where the table ends");
    let columns = COLUMNS.join(" | ");
    let rule = "|---".repeat(COLUMNS.len() + 2);
    let table = lines.join("\n");
    format!("{before}{BEGIN}\n| client | wire | {columns} |\n{rule}|\n{table}\n\n{END}{after}")
}

/// Compares the rows in a script's output with the document.
pub fn check(output: &str) {
    let rows = output.lines().filter_map(|line| line.strip_prefix("row: "));
    let rows: Vec<Value> = rows
        .map(|row| serde_json::from_str(row).expect("a row is JSON"))
        .collect();
    assert!(!rows.is_empty(), "no rows: {output}");
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path).unwrap();
    let mut lines = lines_of(&document);
    for row in &rows {
        let pair = (
            row["client"].as_str().unwrap(),
            row["wire"].as_str().unwrap(),
        );
        assert!(ROWS.contains(&pair), "{pair:?} is not in ROWS");
        lines.retain(|line| !line.starts_with(&head(pair.0, pair.1)));
        lines.push(line(row));
    }
    let place = |line: &String| {
        let is_it = |(client, wire): &(&str, &str)| line.starts_with(&head(client, wire));
        ROWS.iter().position(is_it)
    };
    lines.sort_by_key(place);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, written(&document, &lines)).unwrap();
        return;
    }
    assert_eq!(
        lines,
        lines_of(&document),
        "the table in {DOCUMENT} is not what the clients do; write it with UPDATE=1"
    );
}

#[test]
fn the_table_of_clients_matches_the_rows_reported_by_tests() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let lines = lines_of(&document);
    let heads: Vec<String> = ROWS
        .iter()
        .map(|(client, wire)| head(client, wire))
        .collect();
    assert_eq!(lines.len(), heads.len(), "{lines:#?}");
    for (line, head) in lines.iter().zip(&heads) {
        assert!(
            line.starts_with(head),
            "{line} stands where {head} … should"
        );
    }
}
