//! Tests of `request.rs`.

use super::*;
use catalog::{Effort, Reference, Source};
use config::Config;

fn entry(engine: &str) -> Arc<Entry> {
    let document =
        json!({"engine_config": {"model_id": "m", "type": engine, "model_path": "/m.gguf"}});
    let (config, reference) = (Config::default(), Reference::default());
    let read = Entry::from_document(&document, Source::Registered, &config, &reference);
    Arc::new(read.unwrap().0)
}

fn fields(ask: Ask, body: Value) -> Result<OllamaRequest, Failure> {
    with_engine("VLLMEngine", ask, body)
}

fn with_engine(engine: &str, ask: Ask, body: Value) -> Result<OllamaRequest, Failure> {
    let entry = entry(engine);
    let entry_of = |name: &str| (name == "m" || name == "m:7b").then(|| Arc::clone(&entry));
    read(&body.to_string().into(), ask, &entry_of)
}

fn sent(fields: &OllamaRequest) -> (&'static str, Value) {
    match &fields.work {
        Work::Answer { path, body } => (path, serde_json::from_slice(body).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn param(ask: Ask, more: Value) -> String {
    let mut body = json!({"model": "m"});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    let failure = fields(ask, body).unwrap_err();
    failure.body.error.param.unwrap_or_default()
}

#[test]
fn an_ollama_chat_is_translated_and_streams_by_default() {
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let body = json!({"model": "m:latest", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool],
        "format": "json", "think": "low", "logprobs": true, "top_logprobs": 2, "options": {"num_predict": 3}});
    let fields = fields(Ask::Chat, body).unwrap();
    let (path, sent) = sent(&fields);
    let wanted = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool],
        "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true},
        "response_format": {"type": "json_object"},
        "logprobs": true, "top_logprobs": 2});
    assert_eq!((path, sent), (CHAT, wanted));
    assert_eq!(
        (fields.named.as_str(), fields.model.as_str()),
        ("m:latest", "m")
    );
    assert_eq!(fields.ignored, Vec::<String>::new());
    assert_eq!(fields.reasoning.wish.effort, Some(Effort::Low));
}

#[test]
fn a_prompt_becomes_a_one_turn_chat_and_a_raw_prompt_is_sent_unchanged() {
    let body = json!({"model": "m:7b", "prompt": "Hi", "system": "Be brief.", "stream": false,
        "images": ["iVBORw0KGgo="], "template": "", "context": []});
    let chat_form = fields(Ask::Generate, body).unwrap();
    let (path, chat) = sent(&chat_form);
    assert_eq!((path, chat["model"].as_str()), (CHAT, Some("m:7b")));
    assert_eq!(
        chat["messages"][0],
        json!({"role": "system", "content": "Be brief."})
    );
    assert_eq!(chat["messages"][1]["content"][1]["type"], "image_url");
    assert_eq!(chat.get("stream"), None);
    let schema = json!({"type": "object"});
    let body = json!({"model": "m", "prompt": "A", "raw": true, "format": schema, "stream": false});
    let raw = with_engine("CandleEngine", Ask::Generate, body).unwrap();
    let (path, text) = sent(&raw);
    assert_eq!((path, &text["prompt"]), (COMPLETIONS, &json!("A")));
    assert_eq!(text["max_tokens"], 1_000_000);
    assert_eq!(text["response_format"]["json_schema"]["schema"], schema);
    let body = json!({"model": "m", "prompt": "A", "suffix": "B", "options": {"num_predict": 5}});
    let filled = fields(Ask::Generate, body).unwrap();
    let (path, text) = sent(&filled);
    assert_eq!(
        (path, &text["suffix"], &text["max_tokens"]),
        (COMPLETIONS, &json!("B"), &json!(5))
    );
}

#[test]
fn a_request_without_a_prompt_loads_or_unloads_the_model() {
    for (ask, more) in [
        (Ask::Generate, json!({})),
        (Ask::Generate, json!({"prompt": "", "system": "x"})),
        (Ask::Chat, json!({"messages": []})),
        (Ask::Chat, json!({"messages": null})),
    ] {
        for (keep_alive, unloads) in [(json!(null), false), (json!(0), true), (json!("5m"), false)]
        {
            let mut body = more.clone();
            body["model"] = json!("m");
            body["keep_alive"] = keep_alive;
            let work = fields(ask, body).unwrap().work;
            assert_eq!(matches!(work, Work::Unload), unloads, "{work:?}");
            assert_eq!(matches!(work, Work::Load), !unloads, "{work:?}");
        }
    }
}

#[test]
fn ollama_fields_without_effect_are_reported() {
    let body = json!({"model": "m", "prompt": "x", "truncate": true, "shift": false, "width": 64, "shiny": "",
        "options": {"num_ctx": 4096}, "think": false});
    let ignored = with_engine("CandleEngine", Ask::Generate, body)
        .unwrap()
        .ignored;
    assert_eq!(ignored, ["options.num_ctx", "truncate", "width"]);
    let body = json!({"model": "m", "prompt": "x", "raw": true, "think": true});
    assert_eq!(fields(Ask::Generate, body).unwrap().ignored, ["think"]);
    let body = json!({"model": "m", "prompt": "x", "think": false});
    let wish = fields(Ask::Generate, body).unwrap().reasoning.wish;
    assert_eq!(wish.thinks, Some(false));
}

#[test]
fn invalid_or_unsupported_ollama_fields_are_refused_by_name() {
    for (more, named) in [
        (json!({"model": null}), "model"),
        (json!({"model": 3}), "model"),
        (json!({"prompt": 3}), "prompt"),
        (json!({"prompt": "x", "messages": [{}]}), "messages"),
        (
            json!({"prompt": "x", "template": "{{ .Prompt }}"}),
            "template",
        ),
        (json!({"prompt": "x", "context": [1, 2]}), "context"),
        (json!({"prompt": "x", "raw": true, "system": "y"}), "system"),
        (
            json!({"prompt": "x", "raw": true, "images": ["iVBOR"]}),
            "images",
        ),
        (
            json!({"prompt": "x", "raw": true, "logprobs": true}),
            "logprobs",
        ),
        (json!({"prompt": "x", "raw": "yes"}), "raw"),
        (json!({"prompt": "x", "stream": "no"}), "stream"),
        (json!({"prompt": "x", "format": "xml"}), "format"),
        (json!({"prompt": "x", "format": ["json"]}), "format"),
        (json!({"prompt": "x", "think": 3}), "think"),
        (json!({"prompt": "x", "top_logprobs": 21}), "top_logprobs"),
        (json!({"prompt": "x", "keep_alive": "abc"}), "keep_alive"),
        (
            json!({"prompt": "x", "options": {"top_p": "x"}}),
            "options.top_p",
        ),
        (
            json!({"prompt": "x", "images": ["no picture"]}),
            "images[0]",
        ),
        (
            json!({"prompt": "x", "_debug_render_only": true}),
            "_debug_render_only",
        ),
    ] {
        assert_eq!(param(Ask::Generate, more.clone()), named, "{more}");
    }
    for (more, named) in [
        (json!({"messages": [], "prompt": "x"}), "prompt"),
        (json!({"messages": "x"}), "messages"),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "tools": [{}]}),
            "tools[0].function",
        ),
        (
            json!({"messages": [], "tools": [{"function": {}}]}),
            "tools[0].function.name",
        ),
    ] {
        assert_eq!(param(Ask::Chat, more.clone()), named, "{more}");
    }
}

#[test]
fn an_unknown_model_name_keeps_its_tag() {
    let unknown = fields(Ask::Chat, json!({"name": "other:latest"})).unwrap();
    assert_eq!(unknown.model, "other:latest");
}
