//! The aims of the gateway bench next to the results, as a table for docs/internals/benchmarks.md and as JSON.

use serde_json::{Value, json};

use crate::parts::{OPEN_RATE, PLAIN_CONNECTIONS, PLAIN_TOKENS, STREAM_CONNECTIONS, number};

/// The aims of the parts that ran. Comparisons with nginx require nginx.
pub fn aims(told: &Value) -> Value {
    let mut all: Vec<Value> = Vec::new();
    let mut table = "| | found | aim | |\n|---|---:|---:|---|\n".to_owned();
    let mut aim = |what: String, found: f64, most: f64| {
        if found.is_nan() {
            return;
        }
        let met = if found <= most { "met" } else { "missed" };
        table.push_str(&format!("| {what} | {found:.2} | {most} | {met} |\n"));
        all.push(json!({"aim": what, "found": found, "most": most, "met": found <= most}));
    };
    // Relative to nginx, in the same run.
    let over = |path: &str, name: &str| {
        let of = |place: &str| number(told, &format!("/{path}/{place}/{name}"));
        of("gateway") / of("nginx")
    };
    for (tokens, most) in PLAIN_TOKENS.into_iter().zip([2.0, 1.5]) {
        for connections in PLAIN_CONNECTIONS {
            aim(
                format!(
                    "plain, {tokens} tokens, {connections} connections: processor time of a request over nginx's"
                ),
                over(&format!("plain/{tokens}x{connections}"), "cpu_per_request"),
                most,
            );
        }
    }
    for (what, name) in [
        ("processor time of a request", "cpu_per_request"),
        ("added p99", "added_p99"),
    ] {
        aim(
            format!("plain, 16 tokens, {OPEN_RATE} a second in an open loop: {what} over nginx's"),
            over("plain/open", name),
            2.0,
        );
    }
    aim(
        "plain, 16 tokens, 1 connection: added p50 over nginx's".to_owned(),
        over("plain/16x1", "added_p50"),
        2.0,
    );
    for connections in STREAM_CONNECTIONS {
        aim(
            format!(
                "streams, {connections} connections: added time to first token p99 over nginx's"
            ),
            over(&format!("streams/{connections}"), "added_first_token_p99"),
            1.5,
        );
    }
    for (kind, most) in [("paced", 1.2), ("flood", 1.3)] {
        aim(
            format!("{kind} streams: processor time of a token over nginx's"),
            over(&format!("tokens/{kind}"), "cpu_per_token"),
            most,
        );
    }
    aim(
        "1,000 streams of 50 tokens a second: added p99 of a token, ms".to_owned(),
        number(told, "/paced/gateway/added_p99") / 1000.0,
        2.0,
    );
    aim(
        "one connection that streams: p99.9, ms".to_owned(),
        number(told, "/streams/1/gateway/p99_9") / 1000.0,
        40.0,
    );
    aim(
        "memory with idle streams, MiB".to_owned(),
        number(told, "/idle/gateway/resident_mib"),
        250.0,
    );
    aim(
        "at rest: resident memory, MB".to_owned(),
        number(told, "/rest/gateway/resident_mb"),
        30.0,
    );
    aim(
        "at rest: processor time, %".to_owned(),
        number(told, "/rest/gateway/cpu_percent"),
        0.1,
    );
    println!("{table}");
    Value::Array(all)
}
