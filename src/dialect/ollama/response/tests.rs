//! Tests of `response.rs`.

use super::*;
use controller::Clock;

fn respond(ask: Ask) -> Answer {
    Answer::new(
        ask,
        "m:latest".to_owned(),
        Arc::new(Marks::begin(Clock::start())),
    )
}

fn chunk(delta: Value, finish: Option<&str>) -> Chunk {
    Chunk::of_event(&json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
}

fn lines(output: &str) -> Vec<Value> {
    assert!(output.is_empty() || output.ends_with('\n'));
    output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_stream_has_one_line_per_piece_and_a_last_line_with_durations() {
    let mut response = respond(Ask::Chat);
    response.seated();
    let mut output = String::new();
    response.chunk(
        chunk(json!({"role": "assistant", "content": ""}), None),
        &mut output,
    );
    assert_eq!(output, "", "a piece without text writes no line");
    response.chunk(chunk(json!({"reasoning_content": "hm"}), None), &mut output);
    response.chunk(chunk(json!({"content": "Hel"}), None), &mut output);
    response.chunk(chunk(json!({"content": "lo"}), Some("length")), &mut output);
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
    response.chunk(Chunk::of_event(&usage), &mut output);
    response.end(&mut output);
    response.end(&mut output);
    let lines = lines(&output);
    let messages: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
    let text = |text: &str| json!({"role": "assistant", "content": text});
    let thought = json!({"role": "assistant", "content": "", "thinking": "hm"});
    assert_eq!(messages, [&thought, &text("Hel"), &text("lo"), &text("")]);
    let done: Vec<&Value> = lines.iter().map(|line| &line["done"]).collect();
    assert_eq!(done, [false, false, false, true]);
    let last = &lines[3];
    assert_eq!(
        (&last["done_reason"], &last["model"]),
        (&json!("length"), &json!("m:latest"))
    );
    assert_eq!(
        (&last["prompt_eval_count"], &last["eval_count"]),
        (&json!(5), &json!(2))
    );
    for name in [
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
    ] {
        assert!(last[name].is_u64(), "{name}: {last}");
    }
}

#[test]
fn streamed_tool_calls_are_returned_in_one_piece_with_object_arguments() {
    let piece = |text: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
    let begin = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]});
    let mut response = respond(Ask::Chat);
    let mut output = String::new();
    for delta in [begin, piece("{\"city\":"), piece(" \"Ulm\"}")] {
        response.chunk(chunk(delta, None), &mut output);
    }
    assert_eq!(output, "");
    response.chunk(chunk(json!({}), Some("tool_calls")), &mut output);
    response.end(&mut output);
    let lines = lines(&output);
    let call =
        json!({"id": "c", "function": {"index": 0, "name": "f", "arguments": {"city": "Ulm"}}});
    assert_eq!(lines[0]["message"]["tool_calls"], json!([call]));
    assert_eq!((lines.len(), &lines[1]["done_reason"]), (2, &json!("stop")));
}

#[test]
fn invalid_arguments_are_an_error_unless_the_response_was_truncated() {
    let call =
        json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{\"a\""}}]});
    for (finish, is_error) in [("tool_calls", true), ("length", false)] {
        let mut streamed = respond(Ask::Chat);
        let mut output = String::new();
        streamed.chunk(chunk(call.clone(), Some(finish)), &mut output);
        streamed.end(&mut output);
        let lines = lines(&output);
        assert_eq!(
            (lines.len(), lines[0].get("error").is_some()),
            (1, is_error)
        );
        let body = json!({"choices": [{"message": call, "finish_reason": finish}]});
        let whole = respond(Ask::Chat).respond(Chunk::of_response(&body));
        assert_eq!(whole.is_err(), is_error);
    }
}

#[test]
fn a_complete_response_is_one_object_and_generate_puts_its_text_in_response() {
    let body = json!({"choices": [{"message": {"content": "Hi", "reasoning_content": "hm"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    let output = respond(Ask::Generate)
        .respond(Chunk::of_response(&body))
        .unwrap();
    assert_eq!(
        (&output["response"], &output["thinking"]),
        (&json!("Hi"), &json!("hm"))
    );
    assert_eq!(
        (&output["done"], &output["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    assert_eq!(output.get("message"), None);
    let text = json!({"choices": [{"text": "raw"}]});
    let output = respond(Ask::Generate)
        .respond(Chunk::of_response(&text))
        .unwrap();
    assert_eq!(output["response"], "raw");
    assert_eq!(
        output.get("prompt_eval_count"),
        None,
        "no count was reported"
    );
    let loaded = respond(Ask::Chat).without_text("load");
    assert_eq!(
        loaded["message"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(
        (&loaded["done"], &loaded["done_reason"]),
        (&json!(true), &json!("load"))
    );
}

#[test]
fn an_error_is_the_last_line_of_the_stream() {
    let mut response = respond(Ask::Generate);
    let mut output = String::new();
    response.chunk(chunk(json!({"content": "a"}), None), &mut output);
    response.failed(&json!({"message": "out of memory"}), &mut output);
    response.end(&mut output);
    assert_eq!(
        lines(&output).last(),
        Some(&json!({"error": "out of memory"}))
    );
}

#[test]
fn too_many_tool_calls_end_an_ollama_stream_with_an_error() {
    let mut response = respond(Ask::Chat);
    let mut output = String::new();
    let calls: Vec<Value> = (0..CALLS_MAX + 9)
        .map(|index| json!({"index": index, "function": {"name": "f"}}))
        .collect();
    response.chunk(chunk(json!({"tool_calls": calls}), None), &mut output);
    response.end(&mut output);
    let lines = lines(&output);
    assert_eq!(lines.len(), 1, "{output}");
    let error = lines[0]["error"].as_str().unwrap();
    assert!(error.contains("tool calls"), "{error}");
}
