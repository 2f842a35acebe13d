//! The events and objects of a background response outside of its runs: accepted, ended and cancelled.

use serde_json::{Value, json};

use super::super::background_run::EVENTS_BEFORE;
use super::super::translation::write_event;

/// The events that announce a response, before its first run. `response` is the queued object.
pub fn announcement(response: &Value) -> [String; EVENTS_BEFORE as usize] {
    let event = |kind: &str, number: u64| named_event(kind, number, response);
    [event("response.created", 0), event("response.queued", 1)]
}

/// The last event of a response, by the status of the object.
pub fn last_event(response: &Value, number: u64) -> String {
    let kind = match response["status"].as_str() {
        Some("completed") => "response.completed",
        Some("incomplete") => "response.incomplete",
        Some("cancelled") => "response.cancelled",
        _ => "response.failed",
    };
    named_event(kind, number, response)
}

fn named_event(kind: &str, number: u64, response: &Value) -> String {
    let mut event = String::new();
    let data = json!({"type": kind, "sequence_number": number, "response": response});
    write_event(&mut event, kind, &data);
    event
}

/// A response object with the status and error of a response that an engine did not complete.
pub fn ended(mut response: Value, status: &str, error: Option<(&str, &str)>) -> Value {
    response["status"] = json!(status);
    response["error"] = error.map_or(
        Value::Null,
        |(code, message)| json!({"code": code, "message": message}),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_names_the_status_of_the_response() {
        let queued = json!({"id": "resp_1", "status": "queued", "error": null});
        let [created, waiting] = announcement(&queued);
        assert!(
            created.starts_with("event: response.created\n"),
            "{created}"
        );
        assert!(waiting.contains("\"sequence_number\":1"), "{waiting}");
        let failed = ended(queued, "failed", Some(("server_error", "no luck")));
        assert_eq!(failed["error"]["message"], "no luck");
        let last = last_event(&failed, 7);
        assert!(last.starts_with("event: response.failed\n"), "{last}");
        let cancelled = ended(failed, "cancelled", None);
        assert_eq!(cancelled["error"], Value::Null);
        assert!(last_event(&cancelled, 8).starts_with("event: response.cancelled\n"));
    }
}
