//! The events of a streamed background response over kills of the program.

use serde_json::json;
use support::service::wait_for;

use super::ends::response_of;
use super::{RESPONSES, body, events, get, path, pool};

#[test]
fn a_client_that_reconnects_after_kills_sees_each_number_once_and_without_gaps() {
    let mut pool = pool(&["--tokens", "30", "--token-ms", "50"], "");
    let stream = pool.stream(RESPONSES, &body(json!({"stream": true})).to_string());
    wait_for("some words", || {
        stream.text().matches("output_text.delta").count() > 2
    });
    pool.kill();
    let text = stream.whole();
    // The kill may cut an event.
    let complete = text.rfind("\n\n").expect("an event");
    let (text, response) = (&text[..complete], response_of(&text));
    let mut seen = events(text);
    pool.restart();
    // Its events in the second process are read in the third one.
    wait_for("the response to run again", || {
        get(&pool, None, &response)["status"] == "in_progress"
    });
    pool.kill_and_restart();
    let after = seen.last().expect("an event").0;
    let rest = format!("{}?stream=true&starting_after={after}", path(&response));
    let mut text = String::new();
    wait_for("the events to be read", || {
        let (status, found, _) = pool.request("GET", &rest, "", None);
        text = found;
        assert!(status == 200 || text.contains("not_read"), "{text}");
        status == 200
    });
    seen.extend(events(&text));
    let numbers: Vec<u64> = seen.iter().map(|(number, _)| *number).collect();
    let expected: Vec<u64> = (0..numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "each number once, in order");
    let last = seen.last().expect("an event").clone();
    assert_eq!(last.1, "response.completed");
    let begun = seen.iter().filter(|(_, kind)| kind == "response.created");
    assert!(begun.count() >= 2, "{seen:?}");
    let (_, text, _) = pool.request("GET", &rest, "", None);
    assert_eq!(events(&text), [last]);
    let left = std::fs::read_dir(pool.data().join("background_events")).unwrap();
    assert_eq!(left.count(), 0, "a file of a response that has ended");
}
