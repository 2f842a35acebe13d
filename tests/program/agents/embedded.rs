//! The embedded engine behind the pool: OpenAI's messages, tokens of tools, response formats under every name, and template
//! variables.

use std::ops::Deref;

use serde_json::{Value, json};
use support::service::Pool;
use tempfile::TempDir;

use super::{CHAT, MESSAGES, RESPONSES, ask, stream};

const TEMPLATE: &str = "{% if tools %}<tools>{% for tool in tools %}{{ tool.function.name }} {% endfor %}</tools>Call in <tool_call></tool_call>.{% endif %}\
    {% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}\
    {% for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}\
    <|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}";

/// A pool and the folder of its model.
struct Thinker {
    pool: Pool,
    _folder: TempDir,
}

impl Deref for Thinker {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

/// A demo model with a template that supports tools and reasoning.
fn pool(more: &str) -> Thinker {
    let folder = tempfile::tempdir().unwrap();
    let demo = support::root().join("demo/models/tiny-chat");
    for (name, bytes) in support::folder::files_of(&demo) {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    std::fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).unwrap();
    let text = format!(
        "engine_config:\n  model_id: thinker\n  type: CandleEngine\n  model_path: {:?}\n  max_total_tokens: 512\n  engine_kwargs: {{device: cpu, concurrency: 2}}\npool_config: {{priority: 0{more}}}\n",
        folder.path().display().to_string()
    );
    Thinker {
        pool: Pool::with_models(&[("thinker.yaml".to_owned(), text)], ""),
        _folder: folder,
    }
}

fn chat(more: &Value) -> Value {
    super::with(
        json!({"model": "thinker", "temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]}),
        more,
    )
}

#[test]
fn a_response_is_accepted_back_unchanged_and_cache_hints_are_accepted_anywhere() {
    let pool = pool("");
    let response = json!({"role": "assistant", "content": "Hello", "annotations": null, "audio": null, "function_call": null,
        "reasoning_content": "I greet.", "refusal": null, "tool_calls": null});
    let part = json!({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}});
    let messages =
        json!([{"role": "user", "content": [part]}, response, {"role": "user", "content": "And?"}]);
    let (status, response, _) = ask(&pool, CHAT, &chat(&json!({"messages": messages})));
    assert_eq!(status, 200, "{response}");
}

#[test]
fn structured_outputs_use_their_newer_name_and_are_accepted_next_to_a_call() {
    let pool = pool("");
    let choice = json!({"structured_outputs": {"choice": ["yes", "no"]}});
    let (status, response, _) = ask(&pool, CHAT, &chat(&choice));
    assert_eq!(status, 200, "{response}");
    let said = response["choices"][0]["message"]["content"]
        .as_str()
        .unwrap();
    assert!(["yes", "no"].contains(&said), "{said}");
    let beside = json!({"max_tokens": 200, "tool_choice": "required", "parallel_tool_calls": false,
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}]});
    let (status, response, _) = ask(&pool, CHAT, &chat(&beside));
    assert_eq!(status, 200, "{response}");
    assert_eq!(
        response["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "now"
    );
}

#[test]
fn a_required_custom_tool_call_follows_its_grammar() {
    let pool = pool("");
    let grammar = json!({"type": "grammar", "syntax": "regex", "definition": "(ab|c[0-9])!"});
    let body = json!({"model": "thinker", "input": "Go.", "max_output_tokens": 200, "temperature": 1.5,
        "tools": [{"type": "custom", "name": "edit", "format": grammar}],
        "tool_choice": {"type": "custom", "name": "edit"}, "parallel_tool_calls": false});
    for _ in 0..3 {
        let (status, response, _) = ask(&pool, RESPONSES, &body);
        assert_eq!(status, 200, "{response}");
        let call = &response["output"][0];
        assert_eq!(call["type"], "custom_tool_call", "{response}");
        let input = call["input"].as_str().unwrap();
        let is_digit = |text: &str| text.len() == 1 && text.as_bytes()[0].is_ascii_digit();
        let body = input.strip_suffix('!').unwrap_or_default();
        assert!(
            body == "ab" || body.strip_prefix('c').is_some_and(is_digit),
            "{input}"
        );
    }
}

#[test]
fn an_unsatisfiable_grammar_is_refused_immediately() {
    let pool = pool("");
    for definition in ["[^\\s\\S]", "ab[^\\s\\S]"] {
        let grammar = json!({"type": "grammar", "syntax": "regex", "definition": definition});
        let body = json!({"model": "thinker", "input": "Go.", "max_output_tokens": 200,
            "tools": [{"type": "custom", "name": "edit", "format": grammar}],
            "tool_choice": {"type": "custom", "name": "edit"}, "parallel_tool_calls": false});
        let (status, response, _) = ask(&pool, RESPONSES, &body);
        let message = response["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(status, 400, "{response}");
        assert!(message.contains("'input' is unsatisfiable"), "{message}");
    }
}

#[test]
fn an_optional_strict_tool_does_not_change_a_text_response() {
    let pool = pool("");
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools = |strict: bool| {
        json!({"max_tokens": 20, "tools": [{"type": "function",
            "function": {"name": "now", "parameters": schema, "strict": strict}}]})
    };
    let said = |strict: bool| {
        let (status, response, ignored) = ask(&pool, CHAT, &chat(&tools(strict)));
        assert_eq!((status, ignored.as_str()), (200, ""), "{response}");
        response["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(said(true), said(false));
    let unheld = json!({"tools": [{"type": "function",
        "function": {"name": "now", "parameters": {"not": {"type": "string"}}, "strict": true}}]});
    let (status, response, ignored) = ask(&pool, CHAT, &chat(&unheld));
    assert_eq!(
        (status, ignored.as_str()),
        (200, "tools.strict"),
        "{response}"
    );
}

#[test]
fn tools_are_included_in_the_token_count_of_a_prompt() {
    let pool = pool("");
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let count = |body: Value, path: &str, place: &str| {
        let (status, response, _) = ask(&pool, path, &body);
        assert_eq!(status, 200, "{response}");
        response[place].as_u64().unwrap()
    };
    let tools = json!([{"type": "function", "function": {"name": "weather"}}]);
    let plain = count(
        json!({"model": "thinker", "messages": messages}),
        "/v1/tokenize",
        "count",
    );
    let more = count(
        json!({"model": "thinker", "messages": messages, "tools": tools}),
        "/v1/tokenize",
        "count",
    );
    assert!(more > plain, "{more} {plain}");
    let tools = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
    let path = format!("{MESSAGES}/count_tokens");
    let plain = count(
        json!({"model": "thinker", "messages": messages}),
        &path,
        "input_tokens",
    );
    let more = count(
        json!({"model": "thinker", "messages": messages, "tools": tools}),
        &path,
        "input_tokens",
    );
    assert!(more > plain, "{more} {plain}");
}

#[test]
fn an_unknown_field_gets_the_nearest_name_unless_the_models_file_drops_it() {
    let body = chat(&json!({"temprature": 0.5}));
    let strict = pool("");
    let (status, response, _) = ask(&strict, CHAT, &body);
    let error = &response["error"];
    assert_eq!(
        (status, &error["param"]),
        (400, &json!("temprature")),
        "{response}"
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("did you mean temperature"),
        "{response}"
    );
    let lenient = pool(", unknown_fields: drop");
    let (status, response, ignored) = ask(&lenient, CHAT, &body);
    assert_eq!(
        (status, ignored.as_str()),
        (200, "temprature"),
        "{response}"
    );
}

#[test]
fn thinking_settings_reach_the_template_and_unread_ones_are_reported() {
    let pool = pool("");
    let thinking = |kind: &str| {
        json!({"model": "thinker", "max_tokens": 8, "temperature": 0, "thinking": {"type": kind},
            "messages": [{"role": "user", "content": "Hi"}]})
    };
    let (status, response, ignored) = ask(&pool, MESSAGES, &thinking("enabled"));
    assert_eq!((status, ignored.as_str()), (200, ""), "{response}");
    assert_eq!(response["content"][0]["type"], "thinking", "{response}");
    let (_, response, _) = ask(&pool, MESSAGES, &thinking("disabled"));
    assert_eq!(response["content"][0]["type"], "text", "{response}");
    let (_, response, ignored) = ask(&pool, CHAT, &chat(&json!({"reasoning_effort": "low"})));
    assert_eq!(ignored, "reasoning_effort", "it has a switch and no levels");
    assert!(
        response["choices"][0]["message"]["reasoning_content"].is_string(),
        "{response}"
    );
    let (_, chunks, ignored) = stream(&pool, CHAT, &chat(&json!({"reasoning_effort": "none"})));
    assert_eq!(ignored, "");
    assert!(chunks.iter().all(|chunk| {
        chunk["choices"][0]["delta"]
            .get("reasoning_content")
            .is_none()
    }));
}

#[test]
fn the_embedded_engine_sends_usage_with_every_chunk_on_request() {
    let pool = pool("");
    let options =
        json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let (_, chunks, ignored) = stream(&pool, CHAT, &chat(&options));
    assert_eq!(ignored, "");
    let counts: Vec<u64> = chunks
        .iter()
        .filter_map(|chunk| chunk["usage"]["completion_tokens"].as_u64())
        .collect();
    assert_eq!(counts.len(), chunks.len());
    assert!(
        counts.is_sorted() && counts.first() < counts.last(),
        "{counts:?}"
    );
}

#[test]
fn a_prompt_that_is_too_long_is_refused_with_the_code_that_clients_expect() {
    let pool = pool("");
    let long = "word ".repeat(600);
    let messages = json!([{"role": "user", "content": long}]);
    let (status, response, _) = ask(&pool, CHAT, &chat(&json!({"messages": messages})));
    let error = &response["error"];
    assert_eq!(
        (status, &error["code"]),
        (400, &json!("context_length_exceeded")),
        "{response}"
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("maximum context length is 512 tokens"),
        "{message}"
    );
    let body = json!({"model": "thinker", "max_tokens": 8, "messages": messages});
    let (status, response, _) = ask(&pool, MESSAGES, &body);
    let message = response["error"]["message"].as_str().unwrap();
    assert!(
        status == 400
            && message.starts_with("prompt is too long: ")
            && message.ends_with("> 512 maximum"),
        "{message}"
    );
}
