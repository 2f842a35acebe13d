//! Tests of refused and cleaned texts, and of the messages about them.

use super::*;
use catalog::{Reference, Source};
use config::Config;
use dialect::COMPLETIONS;
use serde_json::json;

fn entry(validation: Value) -> Entry {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/models/tiny-chat");
    let document = json!({
        "engine_config": {"model_id": "m", "type": "CandleEngine", "model_path": folder},
        "pool_config": {"validation": validation},
    });
    let (config, reference) = (Config::default(), Reference::default());
    let read = Entry::from_document(&document, Source::Registered, &config, &reference);
    read.unwrap().0
}

fn wanted(rule: Value, path: &'static str, body: &str) -> Result<(Value, Vec<String>), Failure> {
    let entry = entry(rule);
    let file = entry.tokenizer_file();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let (body, cleaned) = check(
        &body,
        path,
        entry.validation.as_ref().unwrap(),
        file.as_deref(),
    )?;
    Ok((serde_json::from_slice(&body).unwrap(), cleaned.0))
}

fn refusal(rule: Value, path: &'static str, body: &Value) -> (String, Option<String>) {
    let failure = wanted(rule, path, &body.to_string()).unwrap_err();
    assert_eq!(failure.status().as_u16(), 400);
    assert_eq!(failure.body.error.code, Some("text_not_allowed"));
    (failure.body.error.message, failure.body.error.param)
}

fn old() -> Value {
    json!({"min_characters": 1, "max_characters": 20, "pattern": "[a-zA-Z0-9 ?',.-]"})
}

fn found(text: &str) -> Value {
    json!({"model": "m", "messages": [
        {"role": "system", "content": "$$$ not a user's, and far longer than twenty"},
        {"role": "user", "content": text},
    ]})
}

#[test]
fn a_refusal_names_the_message_the_count_and_the_first_wrong_character() {
    let (message, param) = refusal(old(), CHAT, &found("What is 5 $ in euros, and *why*?"));
    assert_eq!(
        message,
        "messages[1]: has 32 characters; allowed: 1 to 20; character 11 is `$` (U+0024), which is not allowed; allowed: [a-zA-Z0-9 ?',.-]"
    );
    assert_eq!(param.as_deref(), Some("messages"));
    let (message, _) = refusal(old(), CHAT, &found("hi\n"));
    assert!(message.contains("character 3 is U+000A"), "{message}");
    let (message, _) = refusal(old(), CHAT, &found(""));
    assert!(
        message.contains("has 0 characters; allowed: 1 to 20"),
        "{message}"
    );
    let prompts = json!({"prompt": ["fine", "no!"]});
    let (message, param) = refusal(old(), COMPLETIONS, &prompts);
    assert!(
        message.starts_with("prompt[1]: character 3 is `!`"),
        "{message}"
    );
    assert_eq!(param.as_deref(), Some("prompt"));
    assert!(
        wanted(
            old(),
            CHAT,
            &found("It is fine, isn't it?")
                .to_string()
                .replace("isn't it", "is")
        )
        .is_ok()
    );
}

#[test]
fn cleaning_removes_disallowed_characters_and_then_truncates() {
    let mut rule = old();
    rule["on_violation"] = json!("clean");
    let (body, done) = wanted(
        rule.clone(),
        CHAT,
        &found("What is 5 $ in *euros*, and why?").to_string(),
    )
    .unwrap();
    assert_eq!(body["messages"][1]["content"], "What is 5  in euros,");
    assert_eq!(done, ["messages[1]: 3 characters left out, 9 cut off"]);
    let whole = found("all is well").to_string();
    let (body, done) = wanted(rule.clone(), CHAT, &whole).unwrap();
    assert_eq!((body.to_string(), done.len()), (whole, 0));
    let (message, _) = refusal(rule, CHAT, &found("$$$"));
    assert!(
        message
            .contains("has 0 characters; allowed: 1 to 20 (once cleaned: 3 characters left out)"),
        "{message}"
    );
}

#[test]
fn the_text_parts_of_a_message_are_validated_as_one_text() {
    let rule = json!({"max_characters": 8, "on_violation": "clean"});
    let parts = json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "Hello "}, {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "text", "text": "world"}, {"type": "text", "text": "!"},
    ]}]});
    let (body, done) = wanted(rule, CHAT, &parts.to_string()).unwrap();
    let part = |nth: usize| body["messages"][0]["content"][nth]["text"].clone();
    assert_eq!(
        (part(0), part(2), part(3)),
        (json!("Hello "), json!("wo"), json!(""))
    );
    assert_eq!(done, ["messages[0]: 4 characters cut off"]);
}

#[test]
fn token_limits_use_the_models_own_tokenizer() {
    let long = found(&"What is a priority? ".repeat(20));
    let (message, _) = refusal(json!({"max_tokens": 12}), CHAT, &long);
    assert!(message.contains("tokens; allowed: at most 12"), "{message}");
    let (message, _) = refusal(json!({"min_tokens": 5}), CHAT, &found("a"));
    assert!(
        message.contains("has 1 token; allowed: 5 and more"),
        "{message}"
    );
    let rule = json!({"max_tokens": 12, "on_violation": "clean"});
    let (body, done) = wanted(rule, CHAT, &long.to_string()).unwrap();
    let left = body["messages"][1]["content"].as_str().unwrap();
    assert!(
        !left.is_empty() && left.len() < 100 && long.to_string().contains(left),
        "{left}"
    );
    assert!(done[0].ends_with("cut off"), "{done:?}");
    let ids = json!({"prompt": [[1, 2, 3], [4]]});
    assert!(wanted(json!({"max_tokens": 3}), COMPLETIONS, &ids.to_string()).is_ok());
    let (message, _) = refusal(json!({"max_tokens": 2}), COMPLETIONS, &ids);
    assert!(message.starts_with("prompt[0]: has 3 tokens"), "{message}");
    let (message, _) = refusal(old(), COMPLETIONS, &ids);
    assert!(message.contains("is a list of tokens"), "{message}");
}

#[test]
fn a_text_under_a_duplicate_key_does_not_bypass_validation() {
    let body =
        r#"{"model":"m","seed":1e3,"messages":[{"role":"user","content":"$$","content":"fine"}]}"#;
    let entry = entry(old());
    let body = Bytes::copy_from_slice(body.as_bytes());
    let (sent, _) = check(&body, CHAT, entry.validation.as_ref().unwrap(), None).unwrap();
    let expected = r#"{"model":"m","seed":1e3,"messages":[{"role":"user","content":"fine"}]}"#;
    assert_eq!(sent, expected);
}

#[test]
fn an_invalid_message_list_is_refused_and_a_missing_one_is_left_to_the_engine() {
    for body in [
        json!({"messages": "x"}),
        json!({"messages": [{"role": "user", "content": 3}]}),
    ] {
        assert!(wanted(old(), CHAT, &body.to_string()).is_err(), "{body}");
    }
    assert!(wanted(old(), COMPLETIONS, r#"{"prompt":{"x":1}}"#).is_err());
    assert!(wanted(old(), CHAT, "{}").is_ok());
}

#[test]
fn the_header_lists_a_few_cleaned_texts_and_counts_the_rest() {
    let all = (0..10).map(|nth| format!("prompt[{nth}]: 1 character left out"));
    let mut head = HeaderMap::new();
    note(&mut head, &Cleaned::default());
    assert!(head.is_empty());
    note(&mut head, &Cleaned(all.collect()));
    let header = head["x-model-pool-cleaned"].to_str().unwrap();
    assert!(
        header.starts_with("prompt[0]: 1") && header.ends_with("; 2 more"),
        "{header}"
    );
}
