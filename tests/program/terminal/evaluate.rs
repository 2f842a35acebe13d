//! `model-pool evaluate`: several models, the prompts of a file, and what is printed of them.

use serde_json::{Value, json};
use support::net::stub;
use support::servers::{Written, dead_url, http};
use support::terminal::piped;
use support::whole::Pool;

use super::{body_of, err, out, piece, streaming};

fn folder_with(name: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), text).expect("written");
    folder
}

#[test]
fn the_answers_of_models_stand_beside_each_other_with_their_sums() {
    let pool = Pool::with_models(&[stub("one", &[]), stub("two", &[])], "");
    let folder = folder_with("questions.txt", "Hello\n\nAnd you?\n");
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let words = ["evaluate", "one", "two", "--file", "questions.txt"];
    let output = piped(folder.path(), &words, &env, b"");
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(&output));
    for part in [
        "── line 1: Hello\n",
        "── line 3: And you?\n",
        "Hello from one and goodbye",
        "│ Hello from two and goodbye",
        "first token after",
        "prompt tokens",
    ] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    let sums = text
        .lines()
        .find(|line| line.starts_with("two "))
        .expect("its sums");
    let figures: Vec<&str> = sums.split_whitespace().take(5).collect();
    assert_eq!(figures, ["two", "2", "0", "6", "10"]);
    let words = ["evaluate", "one", "two", "--file", "-", "--json"];
    let output = piped(folder.path(), &words, &env, b"Hello\n");
    let value: Value = serde_json::from_str(&out(&output)).expect("JSON");
    assert_eq!(value["prompts"][0]["prompt"], "Hello");
    let answers = &value["prompts"][0]["answers"];
    assert_eq!(
        (&answers[0]["model"], &answers[1]["model"]),
        (&json!("one"), &json!("two"))
    );
    assert_eq!(answers[1]["text"], "Hello from two and goodbye");
    assert_eq!(answers[1]["completion_tokens"], 5);
    assert!(
        answers[1]["first_token_ms"].is_u64() && answers[1]["whole_ms"].is_u64(),
        "{value}"
    );
    assert_eq!(value["models"][0]["answers"], 1);
}

#[test]
fn broken_lines_are_named_and_nothing_is_asked_unless_they_are_left_out() {
    let server = streaming(&[piece("ok")]);
    let text = "{\"prompt\": \"one\"}\nno JSON\n{\"text\": \"x\"}\n{\"user_input\": \"two\"}\n";
    let folder = folder_with("questions.jsonl", text);
    let url = server.url("");
    let words = [
        "evaluate",
        "m",
        "--file",
        "questions.jsonl",
        "--server",
        &url,
    ];
    let output = piped(folder.path(), &words, &[], b"");
    assert_eq!(output.status.code(), Some(2));
    let told = err(&output);
    for part in [
        "questions.jsonl: line 2: is not JSON",
        "questions.jsonl: line 3: has no text `prompt` or `user_input`",
        "no model was asked",
        "--skip-broken",
    ] {
        assert!(told.contains(part), "`{part}` is missing in {told}");
    }
    assert!(server.asked().is_empty());
    let words = [
        &words[..],
        &[
            "--skip-broken",
            "--system",
            "Be short.",
            "--max-tokens",
            "9",
            "--at-once",
            "1",
        ],
    ]
    .concat();
    let output = piped(folder.path(), &words, &[], b"");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let bodies: Vec<Value> = server.asked().iter().map(|it| body_of(it)).collect();
    let prompts: Vec<&Value> = bodies
        .iter()
        .map(|it| &it["messages"][1]["content"])
        .collect();
    assert_eq!(prompts, [&json!("one"), &json!("two")]);
    assert_eq!(
        (
            &bodies[0]["max_tokens"],
            &bodies[0]["messages"][0]["content"]
        ),
        (&json!(9), &json!("Be short."))
    );
}

#[test]
fn a_model_that_refuses_is_in_the_table_and_the_status_says_so() {
    let pool = Pool::with_models(&[stub("one", &[])], "");
    let folder = folder_with("q.txt", "Hello\n");
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let output = piped(
        folder.path(),
        &["evaluate", "one", "nobody", "--file", "q.txt"],
        &env,
        b"",
    );
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("Hello from one") && text.contains("(no answer: "),
        "{text}"
    );
    assert!(
        err(&output).contains("1 of 2 answers did not come"),
        "{}",
        err(&output)
    );
    let url = dead_url();
    let words = ["evaluate", "one", "--file", "q.txt", "--server", &url];
    assert_eq!(
        piped(folder.path(), &words, &[], b"").status.code(),
        Some(3)
    );
    let words = ["evaluate", "one", "--file", "none.txt", "--server", &url];
    let output = piped(folder.path(), &words, &[], b"");
    assert!(
        output.status.code() == Some(2) && err(&output).contains("none.txt"),
        "{}",
        err(&output)
    );
}

#[test]
fn what_a_model_writes_cannot_control_the_terminal() {
    let server = Written::server(|_| {
        let event =
            json!({"choices": [{"delta": {"content": "\u{1b}[2Jgone"}, "finish_reason": "stop"}]});
        http(
            "200 OK",
            "content-type: text/event-stream\r\n",
            &format!("data: {event}\n\ndata: [DONE]\n\n"),
        )
    });
    let folder = folder_with("q.txt", "Hello\n");
    let url = server.url("");
    let words = ["evaluate", "m", "--file", "q.txt", "--server", &url];
    let text = out(&piped(folder.path(), &words, &[], b""));
    assert!(
        text.contains("␛[2Jgone") && !text.contains('\u{1b}'),
        "{text:?}"
    );
}
