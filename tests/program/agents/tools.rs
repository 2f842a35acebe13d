//! Tools other than functions: custom tools in each API's form, and tools in namespaces under separate names.

use serde_json::{Value, json};

use super::{CHAT, RESPONSES, ask, chat, echoed, pool, response, stream};

const PATCH: &str = r#"{"input": "*** Begin Patch\n+é\n*** End Patch\n"}"#;
const TEXT: &str = "*** Begin Patch\n+é\n*** End Patch\n";

fn custom() -> Value {
    let grammar = "start: \"*** Begin Patch\" LF line+ \"*** End Patch\" LF\nline: \"+\" /.*/ LF\n%import common.LF";
    json!([{"type": "custom", "name": "apply_patch", "description": "Edits files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": grammar}}])
}

#[test]
fn a_response_calls_a_custom_tool_and_continues_with_its_output() {
    let one = pool(&["--arguments", PATCH]);
    let tools = json!({"tools": custom()});
    let (status, reply, ignored) = ask(&one, RESPONSES, &response(&tools));
    assert_eq!((status, ignored.as_str()), (200, "tools.format"), "{reply}");
    let call = &reply["output"][0];
    assert_eq!(
        (&call["type"], &call["name"], &call["input"]),
        (
            &json!("custom_tool_call"),
            &json!("apply_patch"),
            &json!(TEXT)
        )
    );
    assert_eq!(reply["tools"], custom());
    let (_, events, _) = stream(&one, RESPONSES, &response(&tools));
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.custom_tool_call_input.delta");
    let input: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(input, TEXT);
    let done = events
        .iter()
        .find(|event| event["type"] == "response.custom_tool_call_input.done");
    assert_eq!(done.unwrap()["input"], TEXT);
    let input = json!([{"role": "user", "content": "Edit."}, call,
        {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Done!"}]);
    let body = response(&json!({"tools": custom(), "input": input}));
    let (status, reply, _) = ask(&one, RESPONSES, &body);
    assert_eq!(
        (status, &reply["output"][0]["type"]),
        (200, &json!("message")),
        "{reply}"
    );
    let echo = pool(&["--echo"]);
    let (_, reply, _) = ask(&echo, RESPONSES, &body);
    let got = echoed(&reply);
    let sent: Value = serde_json::from_str(
        got["messages"][1]["tool_calls"][0]["function"]["arguments"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(sent, json!({"input": TEXT}));
    assert_eq!(got["messages"][2]["content"], "Done!");
}

#[test]
fn a_chat_returns_custom_tool_calls_in_the_custom_format() {
    let pool = pool(&["--arguments", PATCH]);
    let tools = json!({"tools": [{"type": "custom", "custom": {"name": "apply_patch"}}]});
    let (status, response, _) = ask(&pool, CHAT, &chat(&tools));
    assert_eq!(status, 200, "{response}");
    let call = &response["choices"][0]["message"]["tool_calls"][0];
    let wanted = json!({"id": "call_stub", "type": "custom", "custom": {"name": "apply_patch", "input": TEXT}});
    assert_eq!(*call, wanted);
    let (_, chunks, _) = stream(&pool, CHAT, &chat(&tools));
    let calls = chunks.iter().filter_map(|chunk| {
        chunk["choices"][0]["delta"]["tool_calls"][0]["custom"]["input"].as_str()
    });
    assert_eq!(calls.collect::<String>(), TEXT);
    let messages = json!([{"role": "user", "content": "Edit."}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_stub", "content": "Done!"}]);
    let body = chat(&json!({"tools": tools["tools"], "messages": messages}));
    let (status, response, _) = ask(&pool, CHAT, &body);
    assert_eq!(status, 200, "{response}");
    assert!(response["choices"][0]["message"]["content"].is_string());
}

#[test]
fn a_namespaced_function_is_called_with_its_namespace() {
    let pool = pool(&["--arguments", "{}"]);
    let inner = json!([{"type": "function", "name": "wait", "parameters": {"type": "object"}}]);
    let tools = json!([{"type": "namespace", "name": "agents", "tools": inner},
        {"type": "function", "name": "wait", "parameters": {"type": "object"}}]);
    let (status, reply, _) = ask(&pool, RESPONSES, &response(&json!({"tools": tools})));
    assert_eq!(status, 200, "{reply}");
    let call = &reply["output"][0];
    assert_eq!(
        (&call["name"], &call["namespace"]),
        (&json!("wait"), &json!("agents"))
    );
    let input = json!([{"role": "user", "content": "a"}, call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}]);
    let (status, reply, _) = ask(
        &pool,
        RESPONSES,
        &response(&json!({"tools": tools, "input": input})),
    );
    assert_eq!(status, 200, "{reply}");
}

#[test]
fn a_grammar_is_enforced_or_reported_and_an_invalid_one_is_refused() {
    let pool = pool(&["--echo"]);
    let tool = |syntax: &str, definition: &str| {
        json!({"tools": [{"type": "custom", "name": "t",
            "format": {"type": "grammar", "syntax": syntax, "definition": definition}}]})
    };
    for (syntax, definition, named, pattern) in [
        ("regex", "(?:a|b)+", "", json!("^((a|b)+)$")),
        ("regex", "(?=a)a", "tools.format", Value::Null),
        ("lark", "start: \"a\"+", "tools.format", Value::Null),
    ] {
        let body = response(&tool(syntax, definition));
        let (status, reply, ignored) = ask(&pool, RESPONSES, &body);
        assert_eq!((status, ignored.as_str()), (200, named), "{reply}");
        let function = &echoed(&reply)["tools"][0]["function"];
        let about = function["description"].as_str().unwrap();
        assert!(about.contains(definition), "{about}");
        assert_eq!(function["strict"], named.is_empty());
        assert_eq!(
            function["parameters"]["properties"]["input"]["pattern"],
            pattern
        );
    }
    let (status, reply, _) = ask(&pool, RESPONSES, &response(&tool("regex", "(")));
    assert_eq!(
        (status, &reply["error"]["param"]),
        (400, &json!("tools[0].format.definition"))
    );
}
