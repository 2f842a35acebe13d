//! Checks everything that tests of the program send and receive against the OpenAPI document: accepted requests and their
//! responses, event by event, must be valid.

use std::sync::OnceLock;

use serde_json::Value;

use crate::schema::Document;
use crate::service::Pool;

/// Longer bodies test limits and are not checked.
const BODY_MAX: usize = 64 << 10;

/// The document is the same for every pool, except for the routes of older systems, which are not checked here.
fn document(pool: &Pool) -> &'static Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let (status, text, _) = pool.request_unchecked("GET", "/llm/openapi.json", "");
        assert_eq!(status, 200, "{text}");
        Document::read(&text)
    })
}

/// Other test programs count or measure requests.
fn is_checked() -> bool {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("program-")
}

/// # Panics
/// If the document does not describe the exchange.
pub fn check(pool: &Pool, path: &str, body: &str, (status, response, head): (u16, &str, &str)) {
    let route = path.strip_prefix("/llm").unwrap_or(path);
    let is_small = body.len() <= BODY_MAX && response.len() <= BODY_MAX;
    if status != 200 || !route.starts_with("/v1/") || !is_small || !is_checked() {
        return;
    }
    let document = document(pool);
    let Some(request) = document.request("post", route, "application/json") else {
        return;
    };
    if let Ok(sent) = serde_json::from_str::<Value>(body)
        && let Err(problem) = document.check(request, &sent)
    {
        panic!("the service accepts what its document does not: {route}: {problem}\n{body}");
    }
    let events = head.contains("content-type: text/event-stream");
    let kind = if events {
        "text/event-stream"
    } else {
        "application/json"
    };
    let Some(schema) = document.response_schema("post", route, status, kind) else {
        return;
    };
    // The data of an event is a string with its own content schema.
    let data = ["/properties/data", "/properties/data/anyOf/0"];
    let of_data = data
        .iter()
        .find_map(|at| schema.pointer(at)?.get("contentSchema"));
    let schema = of_data.filter(|_| events).unwrap_or(schema);
    let texts: Vec<&str> = if events {
        response
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect()
    } else {
        vec![response]
    };
    for text in texts {
        // A broken stream ends with an error object instead of a chunk.
        let is_other = |value: &Value| events && value.get("error").is_some_and(Value::is_object);
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            continue;
        };
        if let Err(problem) = document.check(schema, &value)
            && !is_other(&value)
        {
            panic!("the service answers what its document does not: {route}: {problem}\n{text}");
        }
    }
}
