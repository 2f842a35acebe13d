//! Tests of `unary_routes.rs`.

use super::*;

#[test]
fn a_rerank_request_is_translated_to_teis_form_and_back() {
    let received = json!({"model": "m", "query": "q", "documents": ["a", {"text": "b"}]});
    let sent = to_tei(&received.to_string().into()).unwrap();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(
        (&sent["query"], &sent["texts"]),
        (&json!("q"), &json!(["a", "b"]))
    );
    let ranks = json!([{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}]);
    assert_eq!(top_n(br#"{"top_n": 1}"#).unwrap(), 1);
    let one = from_tei("m", ranks.clone(), 1);
    assert_eq!(one["results"].as_array().unwrap().len(), 1);
    let response = from_tei("m", ranks, top_n(b"{}").unwrap());
    assert_eq!(
        response["results"][0],
        json!({"index": 1, "relevance_score": 0.9})
    );
    for (body, param) in [
        (json!({"query": "q"}), "documents"),
        (json!({"query": "q", "documents": []}), "documents"),
        (json!({"documents": ["a"]}), "query"),
    ] {
        let failure = to_tei(&body.to_string().into()).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(param));
    }
}
