//! Background responses that another process on the same database ends while they run here.

use std::time::{SystemTime, UNIX_EPOCH};

use model_pool::config::ResponsesSection;
use model_pool::pool::Time;
use model_pool::store::{ResponseBounds, Store, StoredResponse};
use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::ends::{last_of_all, response_of};
use super::{RESPONSES, body, get, path, pool, queued};

/// Ends responses as another process does: the first by a cancellation, and the second by a deletion.
fn end_in_the_store(pool: &Pool, [cancelled, deleted]: [&Value; 2]) {
    let url = format!("sqlite://{}", pool.data().join("model-pool.db").display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let other = Store::open_beside(&url).await.unwrap();
        let heads = other.background_heads().await.unwrap();
        let holder = heads.first().expect("a response").holder.clone();
        let mut response = cancelled.clone();
        response["status"] = json!("cancelled");
        let result = StoredResponse {
            id: cancelled["id"].as_str().expect("an id").to_owned(),
            holder: holder.clone(),
            previous: None,
            conversation: None,
            last_event: None,
            response: response.to_string(),
            input: Vec::new(),
            output: Vec::new(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = Time(u64::try_from(now.as_millis()).unwrap());
        let bounds = ResponseBounds::from_config(&ResponsesSection::default());
        assert!(other.end_background(&result, now, bounds).await.unwrap());
        let id = deleted["id"].as_str().expect("an id");
        assert!(other.delete_background(&holder, id).await.unwrap());
        other.close().await;
    });
}

#[test]
fn a_run_stops_when_another_process_has_ended_its_response() {
    let pool = pool(&["--tokens", "4000", "--token-ms", "50"], "");
    let stream = pool.stream(RESPONSES, &body(json!({"stream": true})).to_string());
    wait_for("some words", || {
        stream.text().matches("output_text.delta").count() > 2
    });
    let cancelled = response_of(&stream.text());
    let deleted = queued(&pool, None, json!({}));
    wait_for("the second response to run", || {
        get(&pool, None, &deleted)["status"] == "in_progress"
    });
    end_in_the_store(&pool, [&cancelled, &deleted]);
    // Long before the 200 s that the engine needs for each.
    wait_for("both requests to be gone", || {
        let (_, view) = pool.admin("GET", "/llm/admin/models?model=writer", &json!(null));
        let one = view["models"].get(0).unwrap_or(&view);
        one["replicas"][0]["in_flight"] == 0
    });
    assert_eq!(last_of_all(&stream.whole()).1, "response.cancelled");
    assert_eq!(get(&pool, None, &cancelled)["status"], "cancelled");
    let (status, _) = pool.call(None, "GET", &path(&deleted), &json!(null));
    assert_eq!(status, 404);
}
