//! `model-pool run` in scripts: its output, requests and exit statuses.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::net::stub;
use support::servers::{ScriptedServer, dead_url, http};
use support::service::Pool;
use support::terminal::piped;

use super::{body_of, err, out, piece, raw_stream, reasoning, streaming};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn only_the_response_is_written_to_standard_output() {
    let pool = Pool::with_models(&[stub("m", &[])], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let output = piped(folder.path(), &["run", "m", "Hello"], &env, b"");
    assert_eq!(out(&output), "Hello from m and goodbye\n");
    assert_eq!(err(&output), "");
    assert_eq!(output.status.code(), Some(0));
    let words = ["run", "m", "Hello", "--no-stream", "--verbose"];
    let output = piped(folder.path(), &words, &env, b"");
    assert_eq!(out(&output), "Hello from m and goodbye\n");
    let figures = err(&output);
    for part in ["first token after", "5 tokens", "prompt of 3 tokens"] {
        assert!(figures.contains(part), "{figures}");
    }
}

#[test]
fn standard_input_precedes_the_prompt_and_options_reach_the_request() {
    let server = streaming(&[piece("ok")]);
    let folder = folder();
    let words = [
        "run",
        "m",
        "Summarize",
        "this",
        "--system",
        "Be short.",
        "--temperature",
        "0.2",
        "--max-tokens",
        "9",
        "--server",
        &server.url(""),
        "--key",
        "mp-mine",
    ];
    let output = piped(folder.path(), &words, &[], "Ä text\n".as_bytes());
    assert_eq!(
        (out(&output).as_str(), output.status.code()),
        ("ok\n", Some(0))
    );
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(
        asked[0].starts_with("POST /llm/v1/chat/completions "),
        "{asked:?}"
    );
    assert!(
        asked[0]
            .to_lowercase()
            .contains("authorization: bearer mp-mine"),
        "{asked:?}"
    );
    let body = body_of(&asked[0]);
    assert_eq!(
        body["messages"],
        json!([{"role": "system", "content": "Be short."}, {"role": "user", "content": "Ä text\n Summarize this"}])
    );
    assert_eq!(
        (&body["temperature"], &body["max_tokens"]),
        (&json!(0.2), &json!(9))
    );
}

#[test]
fn json_prints_the_complete_response_and_a_refusal_unchanged() {
    let pool = Pool::with_models(&[stub("m", &[])], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let output = piped(folder.path(), &["run", "m", "Hello", "--json"], &env, b"");
    let response: Value = serde_json::from_str(&out(&output)).expect("one object");
    assert_eq!(
        response["choices"][0]["message"]["content"],
        "Hello from m and goodbye"
    );
    assert_eq!(response["usage"]["completion_tokens"], 5);
    let output = piped(folder.path(), &["run", "n", "Hello", "--json"], &env, b"");
    let refusal: Value = serde_json::from_str(&out(&output)).expect("one object");
    assert_eq!(refusal["error"]["code"], "model_not_found");
    assert!(
        err(&output).contains("no model is called n"),
        "{}",
        err(&output)
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_unknown_model_is_refused_with_the_nearest_names() {
    let pool = Pool::with_models(&[stub("tiny-chat", &[])], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let output = piped(folder.path(), &["run", "tiny-chta", "Hello"], &env, b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("the closest is tiny-chat"),
        "{}",
        err(&output)
    );
    let output = piped(folder.path(), &["run", "org/nowhere", "Hello"], &env, b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("MODEL_POOL_ADMIN_KEY"),
        "{}",
        err(&output)
    );
}

#[test]
fn an_unreachable_server_exits_with_3_and_advice() {
    let folder = folder();
    let url = dead_url();
    let output = piped(
        folder.path(),
        &["run", "m", "Hello", "--server", &url],
        &[],
        b"",
    );
    assert_eq!(output.status.code(), Some(3));
    let text = err(&output);
    assert!(
        text.contains("cannot reach the server") && text.contains("model-pool serve"),
        "{text}"
    );
}

#[test]
fn a_refused_key_is_reported_with_the_place_it_was_read_from() {
    let pool = Pool::with_models(&[stub("m", &[])], "auth: {inference: key}\n");
    let folder = folder();
    let run = |env: &[(&str, &str)]| {
        let mut all = vec![("MODEL_POOL_SERVER", pool.address())];
        all.extend(env);
        piped(folder.path(), &["run", "m", "Hello"], &all, b"")
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("No key was sent. Set MODEL_POOL_KEY"),
        "{}",
        err(&output)
    );
    let output = run(&[("MODEL_POOL_KEY", "mp-wrong")]);
    assert_eq!(output.status.code(), Some(1));
    let text = err(&output);
    assert!(text.contains("--key or MODEL_POOL_KEY was sent"), "{text}");
    assert!(!text.contains("mp-wrong"), "{text}");
    let output = run(&[("MODEL_POOL_KEY", &pool.admin_key())]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn a_model_that_never_fits_is_refused_with_its_numbers() {
    let (name, text) = stub("huge", &[]);
    let text = text.replace("memory_gib: 0.5", "memory_gib: 400");
    let pool = Pool::with_models(&[(name, text)], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let output = piped(folder.path(), &["run", "huge", "Hello"], &env, b"");
    assert_eq!(output.status.code(), Some(1));
    let text = err(&output);
    assert!(
        text.contains("400") && text.contains("smaller model"),
        "{text}"
    );
    assert_eq!(out(&output), "");
}

#[test]
fn a_cut_stream_keeps_the_output_so_far_and_fails() {
    let folder = folder();
    let error = json!({"error": {"message": "preempted by big", "code": "preempted"}});
    let cases = [
        (
            format!("data: {}\n\ndata: {error}\n\n", piece("Half an")),
            "preempted by big",
        ),
        (
            format!("data: {}\n\n", piece("Half an")),
            "closed the connection",
        ),
    ];
    for (body, expected) in cases {
        let server = raw_stream(body);
        let words = ["run", "m", "Hello", "--server", &server.url("")];
        let output = piped(folder.path(), &words, &[], b"");
        assert_eq!(out(&output), "Half an\n");
        assert!(err(&output).contains(expected), "{}", err(&output));
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn no_escape_sequence_of_a_model_or_a_server_is_printed() {
    let folder = folder();
    let server = streaming(&[
        reasoning("secret thoughts"),
        piece("red \x1b[31mtext\x1b"),
        piece("]0;title\x07 \u{9b}2J end\r\n"),
    ]);
    let words = ["run", "m", "Hello", "--server", &server.url("")];
    let output = piped(folder.path(), &words, &[], b"");
    assert_eq!(out(&output), "red ␛[31mtext␛]0;title␇ \u{fffd}2J end\n");
    let refusal = json!({"error": {"message": "no \x1b[2Jway", "code": "x"}});
    let server = ScriptedServer::server(move |_| http("400 Bad Request", "", &refusal.to_string()));
    let words = ["run", "m", "Hello", "--server", &server.url("")];
    let output = piped(folder.path(), &words, &[], b"");
    assert!(err(&output).contains("no ␛[2Jway"), "{}", err(&output));
}

#[test]
fn a_server_that_is_not_a_pool_is_reported_as_such() {
    let folder = folder();
    let server =
        ScriptedServer::server(|_| http("200 OK", "content-type: text/html\r\n", "<html>"));
    let words = ["run", "m", "Hello", "--server", &server.url("")];
    let output = piped(folder.path(), &words, &[], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("is not a model pool"),
        "{}",
        err(&output)
    );
}

#[test]
fn wrong_usage_exits_with_status_2_before_any_request() {
    let folder = folder();
    let server = streaming(&[piece("never")]);
    let url = server.url("");
    let run = |words: &[&str], input: &[u8]| {
        let mut all = vec!["run", "m", "--server", &url];
        all.extend(words);
        piped(folder.path(), &all, &[], input)
    };
    let cases: [(&[&str], &[u8], &str); 4] = [
        (&[], b" \n", "no prompt is given"),
        (&["Hello"], b"caf\xe9", "byte 4 (line 1)"),
        (&["Hello", "--temperature", "hot"], b"", "such as 0.7"),
        (&["Hello", "--max-tokens", "0"], b"", "max-tokens"),
    ];
    for (words, input, expected) in cases {
        let output = run(words, input);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", err(&output));
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
    let output = piped(
        folder.path(),
        &["run", "m", "Hello", "--server", "ftp://h"],
        &[],
        b"",
    );
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(server.asked().is_empty());
}

#[test]
fn a_prompt_of_one_megabyte_is_sent_completely() {
    let folder = folder();
    let server = streaming(&[piece("ok")]);
    let text = "0123456789abcde\n".repeat(1 << 16);
    let words = ["run", "m", "--server", &server.url("")];
    let output = piped(folder.path(), &words, &[], text.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let body = body_of(&server.asked()[0]);
    assert_eq!(body["messages"][0]["content"], json!(text));
}

#[test]
fn a_closed_output_pipe_is_not_a_failure() {
    let folder = folder();
    let events: Vec<Value> = (0..20_000).map(|_| piece("many words ")).collect();
    let server = streaming(&events);
    let mut child = Command::new(support::program())
        .args(["run", "m", "Hello", "--server", &server.url("")])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut first = [0; 4];
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut first).expect("the beginning");
    drop(stdout);
    let output = child.wait_with_output().expect("its end");
    assert_eq!(
        (&first, output.status.code()),
        (b"many", Some(0)),
        "{}",
        err(&output)
    );
    assert_eq!(err(&output), "");
}

#[test]
fn the_local_configuration_provides_the_server_address() {
    let pool = Pool::with_models(&[stub("m", &[])], "");
    let folder = folder();
    let config = folder.path().join("own.yaml");
    let text = format!("server: {{listen: \"{}\"}}\n", pool.address());
    std::fs::write(&config, text).expect("written");
    let file = config.to_str().expect("a path");
    let output = piped(
        folder.path(),
        &["run", "m", "Hello", "--config", file],
        &[],
        b"",
    );
    assert_eq!(
        out(&output),
        "Hello from m and goodbye\n",
        "{}",
        err(&output)
    );
    let output = piped(
        folder.path(),
        &["run", "m", "Hello", "--config", "none.yaml"],
        &[],
        b"",
    );
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("none.yaml"), "{}", err(&output));
}
