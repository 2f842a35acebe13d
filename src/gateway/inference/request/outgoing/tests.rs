//! Tests of the request body that an engine receives.

use super::*;

fn sent(
    generation: &Generation,
    path: &'static str,
    body: &str,
) -> Result<(Value, Outgoing), Failure> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let fate = |name: &str, _: &RawValue| match name {
        "store" | "best_of" => Ok(Fate::Ignored),
        "reasoning_effort" | "thinking" => Ok(Fate::Reasoning),
        _ => Ok(Fate::Goes),
    };
    let room = Some(json!(512));
    let fields = Fields::read(&body)?;
    let outgoing = outgoing(&fields, path, "served", generation, room, fate, wishes())?;
    Ok((serde_json::from_slice(&outgoing.body).unwrap(), outgoing))
}

/// An engine with reasoning levels and switches, and without a budget.
fn wishes() -> Wishes<'static> {
    Wishes {
        reasoning: ReasoningRequest::default(),
        fields_of: &|wish| {
            let mut shown = unmet(wish);
            shown.unmet.retain(|part| *part == WishPart::Budget);
            if let Some(effort) = wish.effort {
                shown
                    .fields
                    .push(("reasoning_effort", json!(effort.word())));
            }
            if let Some(thinks) = wish.thinks {
                shown.switches.push(("enable_thinking", json!(thinks)));
            }
            shown
        },
        continuous_usage: true,
        plain: false,
        refuses_tools: false,
        parses_calls: false,
        plain_prompts: false,
        tier_max: ServiceClass::Priority,
    }
}

#[test]
fn a_remote_endpoint_gets_the_tier_that_the_caller_may_use() {
    let sent = |tier: &str, tier_max| {
        let body = format!(r#"{{"model":"m","messages":[],"service_tier":"{tier}"}}"#);
        let fields = Fields::read(body.as_bytes()).unwrap();
        let wishes = Wishes {
            tier_max,
            ..wishes()
        };
        let generation = Generation::default();
        let fate = |_: &str, _: &RawValue| Ok(Fate::Goes);
        let outgoing = outgoing(&fields, CHAT, "served", &generation, None, fate, wishes).unwrap();
        let body: Value = serde_json::from_slice(&outgoing.body).unwrap();
        (body["service_tier"].clone(), outgoing.ignored)
    };
    let none: Vec<String> = Vec::new();
    let most = ServiceClass::Default;
    let all = ServiceClass::Priority;
    assert_eq!(sent("priority", all), (json!("priority"), none.clone()));
    assert_eq!(sent("priority", most), (json!("default"), none.clone()));
    assert_eq!(sent("flex", most), (json!("flex"), none));
    let dropped = (Value::Null, vec!["service_tier".to_owned()]);
    assert_eq!(sent("scale", most), dropped);
}

#[test]
fn a_non_streaming_body_can_be_rewritten_as_a_streaming_one() {
    let body = br#"{"model":"m","messages":[],"stream":false,"stream_options":null,"top_k":1}"#;
    let written = |plain| {
        let fields = Fields::read(body).unwrap();
        let wishes = Wishes { plain, ..wishes() };
        let generation = Generation::default();
        let fate = |_: &str, _: &RawValue| Ok(Fate::Goes);
        outgoing(&fields, CHAT, "served", &generation, None, fate, wishes).unwrap()
    };
    let (plain, stream) = (written(true), written(false));
    assert!(plain.is_plain && !stream.is_plain);
    let text = r#"{"messages":[],"top_k":1,"model":"served"}"#;
    assert_eq!(plain.body, text.as_bytes());
    assert_eq!(streamed(&plain.body), stream.body);
}

#[test]
fn reasoning_settings_are_translated_to_the_engines_fields() {
    let none = Generation::default();
    let text = r#"{"messages":[],"thinking":{"type":"enabled","budget_tokens":9},"reasoning_effort":"low",
        "chat_template_kwargs":{"enable_thinking":false}}"#;
    let (body, outgoing) = sent(&none, CHAT, text).unwrap();
    assert_eq!(body["reasoning_effort"], "low");
    assert_eq!(
        body["chat_template_kwargs"],
        json!({"enable_thinking": false})
    );
    assert_eq!(
        (body.get("thinking"), outgoing.ignored),
        (None, vec!["thinking.budget_tokens".to_owned()])
    );
    let text = r#"{"messages":[],"thinking":{"type":"disabled"}}"#;
    let (body, _) = sent(&none, CHAT, text).unwrap();
    assert_eq!(
        body["chat_template_kwargs"],
        json!({"enable_thinking": false})
    );
    let (body, _) = sent(&none, CHAT, r#"{"messages":[]}"#).unwrap();
    assert_eq!(body.get("chat_template_kwargs"), None);
    let wrong = r#"{"messages":[],"thinking":{"type":"enabled","budget_tokens":-1}}"#;
    let failure = sent(&none, CHAT, wrong).unwrap_err();
    assert_eq!(
        failure.body.error.param.as_deref(),
        Some("thinking.budget_tokens")
    );
}

#[test]
fn usage_is_requested_and_continuous_usage_only_on_demand() {
    let none = Generation::default();
    for (options, wanted) in [
        ("null", json!({"include_usage": true})),
        (
            "{\"continuous_usage_stats\":true}",
            json!({"include_usage": true, "continuous_usage_stats": true}),
        ),
        (
            "{\"continuous_usage_stats\":false}",
            json!({"include_usage": true}),
        ),
    ] {
        let text = format!("{{\"messages\":[],\"stream_options\":{options}}}");
        let (body, _) = sent(&none, CHAT, &text).unwrap();
        assert_eq!(body["stream_options"], wanted);
    }
}

fn with_defaults() -> Generation {
    Generation {
        defaults: json!({"temperature": 0.4, "max_tokens": 100})
            .as_object()
            .unwrap()
            .clone(),
        stops: vec!["</s>".to_owned(), "USER:".to_owned()],
        stop_tokens: vec![json!(2)],
        ..Generation::default()
    }
}

#[test]
fn only_fields_that_must_change_are_rewritten() {
    let body =
        r#"{"model":"a","messages":[{"content":"{\"x\": \u00e9}"}],"seed": 1e3,"stream":false}"#;
    let body = Bytes::copy_from_slice(body.as_bytes());
    let none = Generation::default();
    let goes = |_: &str, _: &RawValue| Ok(Fate::Goes);
    let fields = Fields::read(&body).unwrap();
    let outgoing = outgoing(&fields, CHAT, "served", &none, None, goes, wishes()).unwrap();
    assert_eq!(
        String::from_utf8(outgoing.body).unwrap(),
        r#"{"messages":[{"content":"{\"x\": \u00e9}"}],"seed":1e3,"model":"served","stream":true,"stream_options":{"include_usage":true}}"#
    );
    assert_eq!((outgoing.path, outgoing.serves_chat), (CHAT, false));
}

#[test]
fn defaults_from_the_model_file_apply_to_absent_and_null_fields() {
    let (body, _) = sent(
        &with_defaults(),
        CHAT,
        r#"{"messages":[],"temperature":null}"#,
    )
    .unwrap();
    assert_eq!(body["temperature"], 0.4);
    assert_eq!(body["max_tokens"], 100);
    let (body, _) = sent(
        &with_defaults(),
        CHAT,
        r#"{"messages":[],"temperature":0,"max_completion_tokens":7}"#,
    )
    .unwrap();
    assert_eq!(body["temperature"], 0);
    assert_eq!(
        (&body["max_completion_tokens"], body.get("max_tokens")),
        (&json!(7), None)
    );
}

#[test]
fn stops_of_file_and_request_are_merged_without_duplicates_up_to_eight() {
    let generation = with_defaults();
    let (body, _) = sent(&generation, COMPLETIONS, r#"{"stop":["x","</s>"]}"#).unwrap();
    assert_eq!(body["stop"], json!(["x", "</s>", "USER:"]));
    assert_eq!(body["stop_token_ids"], json!([2]));
    let (body, _) = sent(&generation, COMPLETIONS, r#"{"stop":"one"}"#).unwrap();
    assert_eq!(body["stop"], json!(["one", "</s>", "USER:"]));
    let failure = sent(
        &generation,
        COMPLETIONS,
        r#"{"stop":["1","2","3","4","5","6"]}"#,
    )
    .unwrap_err();
    assert!(failure.body.error.message.contains("9 stops in total"));
    let (again, _) = sent(&generation, COMPLETIONS, "{}").unwrap();
    assert_eq!(
        again["stop"],
        json!(["</s>", "USER:"]),
        "the stops of the previous request do not stay"
    );
}

#[test]
fn fields_the_engine_ignores_are_removed_and_reported_if_they_have_an_effect() {
    let none = Generation::default();
    let text = r#"{"messages":[],"store":true,"best_of":1,"seed":3}"#;
    let (body, outgoing) = sent(&none, CHAT, text).unwrap();
    assert_eq!(outgoing.ignored, ["store"]);
    assert_eq!((body.get("store"), body.get("best_of")), (None, None));
    assert_eq!(body["seed"], 3);
}

#[test]
fn a_completion_only_model_refuses_chats_and_names_the_completions_route() {
    let generation = Generation {
        prompt: Prompt::Disabled,
        ..Generation::default()
    };
    let failure = sent(&generation, CHAT, r#"{"messages":[]}"#).unwrap_err();
    assert_eq!(failure.status().as_u16(), 400);
    assert!(failure.body.error.message.contains("/v1/completions"));
    assert!(sent(&generation, COMPLETIONS, r#"{"prompt":"x"}"#).is_ok());
}

#[test]
fn optional_tools_are_dropped_for_engines_without_tools() {
    let generation = Generation::default();
    let sent = |choice: &str, refuses_tools: bool| {
        let body = format!(
            r#"{{"messages":[],"tools":[{{"type":"function"}}],"tool_choice":{choice},"parallel_tool_calls":true}}"#
        );
        let fields = Fields::read(body.as_bytes()).unwrap();
        let wishes = Wishes {
            refuses_tools,
            ..wishes()
        };
        let fate = |_: &str, _: &RawValue| Ok(Fate::Goes);
        let written = outgoing(&fields, CHAT, "served", &generation, None, fate, wishes).unwrap();
        let body: Value = serde_json::from_slice(&written.body).unwrap();
        (body.get("tools").is_some(), written.ignored.join(", "))
    };
    for choice in ["null", "\"auto\"", "\"none\""] {
        assert_eq!(sent(choice, true), (false, "tools".to_owned()), "{choice}");
        assert_eq!(sent(choice, false), (true, String::new()), "{choice}");
    }
    for choice in ["\"required\"", r#"{"type":"function"}"#] {
        assert_eq!(sent(choice, true), (true, String::new()), "{choice}");
    }
}
