//! `model-pool chat`: prompts, commands and requests, with pipes and at a terminal.

use serde_json::{Value, json};
use support::net::stub;
use support::servers::ScriptedServer;
use support::service::Pool;
use support::terminal::{Terminal, piped};

use super::{body_of, err, out, piece, streaming};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The contents of the messages of each request.
fn prompts(server: &ScriptedServer) -> Vec<Vec<String>> {
    let asked = server.asked();
    let posts = asked.iter().filter(|request| request.starts_with("POST"));
    posts
        .map(|request| {
            let body = body_of(request);
            let messages = body["messages"].as_array().expect("messages").clone();
            let text = |message: Value| message["content"].as_str().expect("a text").to_owned();
            messages.into_iter().map(text).collect()
        })
        .collect()
}

fn chat(server: &ScriptedServer, input: &str) -> std::process::Output {
    let folder = folder();
    let words = ["chat", "m", "--server", &server.url("")];
    piped(folder.path(), &words, &[], input.as_bytes())
}

#[test]
fn a_script_chats_line_by_line_and_only_responses_are_printed() {
    let server = streaming(&[piece("A"), piece("1")]);
    let output = chat(&server, "one\n\ntwo");
    assert_eq!(out(&output), "A1\nA1\n");
    assert_eq!(err(&output), "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(prompts(&server), [vec!["one"], vec!["one", "A1", "two"]]);
}

#[test]
fn chat_commands_change_the_requests_that_are_sent() {
    let server = streaming(&[piece("A")]);
    let script = "/system Be short.\n/set temperature 0.2\n/set num_predict 7\none\n/retry\n/clear\n\
        /system \"\"\"\nLine one.\nLine two.\n\"\"\"\n/set temperature none\n/model other\n\"\"\"two\n/clear\n\"\"\"\n/etc/hosts?\n/exit\nnever\n";
    let output = chat(&server, script);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(
        prompts(&server),
        [
            vec!["Be short.", "one"],
            vec!["Be short.", "one"],
            vec!["Line one.\nLine two.", "two\n/clear"],
            vec!["Line one.\nLine two.", "two\n/clear", "A", "/etc/hosts?"],
        ]
    );
    let asked = server.asked();
    let bodies: Vec<Value> = asked
        .iter()
        .filter(|request| request.starts_with("POST"))
        .map(|request| body_of(request))
        .collect();
    assert_eq!(
        (&bodies[0]["temperature"], &bodies[0]["max_tokens"]),
        (&json!(0.2), &json!(7))
    );
    assert_eq!(
        (&bodies[2]["temperature"], &bodies[2]["model"]),
        (&Value::Null, &json!("other"))
    );
}

#[test]
fn a_conversation_is_saved_as_markdown_and_as_a_request() {
    let server = streaming(&[piece("A")]);
    let folder = folder();
    std::fs::write(folder.path().join("kept.md"), "mine").expect("written");
    let words = ["chat", "m", "--server", &server.url("")];
    let script = "one\n/save c.md\n/save c.md\n/save c.json\n/save kept.md\n";
    let output = piped(folder.path(), &words, &[], script.as_bytes());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    assert_eq!(
        read("c.md"),
        "# Conversation with m\n\n## user\n\none\n\n## assistant\n\nA\n"
    );
    let request: Value = serde_json::from_str(&read("c.json")).expect("JSON");
    assert_eq!(
        request["messages"][1],
        json!({"role": "assistant", "content": "A"})
    );
    assert_eq!(read("kept.md"), "mine");
    assert!(
        err(&output).contains("kept.md is there already"),
        "{}",
        err(&output)
    );
    assert_eq!(
        output.status.code(),
        Some(2),
        "a script ends with its first failure"
    );
}

#[test]
fn a_mistake_in_a_script_ends_it_with_a_status_and_a_suggestion() {
    let server = streaming(&[piece("A")]);
    for (script, expected) in [
        ("/sytem x\n", "did you mean /system?"),
        ("/set temprature 1\n", "did you mean temperature?"),
        ("/set temperature hot\n", "a number such as 0.7"),
        ("/retry\n", "no earlier prompt to repeat"),
        ("\"\"\"one\n", "end it with \"\"\""),
    ] {
        let output = chat(&server, script);
        assert_eq!(output.status.code(), Some(2), "{script}: {}", err(&output));
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
    assert_eq!(prompts(&server), Vec::<Vec<String>>::new());
    let folder = folder();
    let words = ["chat", "m", "--server", &server.url("")];
    let output = piped(folder.path(), &words, &[], b"one\ntw\xffo\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("line 2"), "{}", err(&output));
}

#[test]
fn an_unknown_model_is_reported_before_the_first_prompt() {
    let pool = Pool::with_models(&[stub("tiny-chat", &[])], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let terminal = Terminal::start(folder.path(), &["chat", "tiny-caht"], &env, 80);
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(1), "{shown}");
    assert!(shown.contains("the closest is tiny-chat"), "{shown}");
    let mut terminal = Terminal::start(folder.path(), &["chat", "tiny-chat"], &env, 80);
    terminal.wait_for(">>> ");
    terminal.keys("/model tiny-caht\r");
    terminal.wait_for("the closest is");
    terminal.keys("/model\r");
    terminal.wait_for("* tiny-chat");
    terminal.keys("still here\r");
    terminal.wait_for("Hello from tiny-chat and goodbye");
    terminal.wait_for_prompt();
    terminal.keys("\x04");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn ctrl_c_stops_the_response_and_not_the_program() {
    let flags = ["--token-ms", "20", "--tokens", "100000"];
    let pool = Pool::with_models(&[stub("m", &flags)], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let mut terminal = Terminal::start(folder.path(), &["chat", "m"], &env, 80);
    terminal.wait_for(">>> ");
    terminal.keys("one\r");
    terminal.wait_for("goodbye hello");
    terminal.keys("\x03");
    terminal.wait_for("Stopped.");
    terminal.keys("\x03");
    terminal.wait_for("Ctrl-D or /exit ends the conversation.");
    terminal.keys("two\r");
    terminal.wait_for_times("Hello from m", 2);
    terminal.keys("\x03");
    terminal.wait_for_times("Stopped.", 2);
    terminal.wait_for_prompt();
    terminal.keys("\x04");
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    support::service::wait_for("the engine to be left alone", || {
        let stats = support::net::stats(&support::net::engine(&pool, "m"));
        stats["running"] == 0 && stats["abandoned"] == 2
    });
}

#[test]
fn earlier_prompts_are_recalled_in_the_next_conversation_unless_history_is_off() {
    let server = streaming(&[piece("A")]);
    let folder = folder();
    let words = ["chat", "m", "--server", &server.url("")];
    let mut terminal = Terminal::start(folder.path(), &words, &[], 80);
    terminal.wait_for(">>> ");
    terminal.keys("from before\r");
    terminal.wait_for("A\r\n");
    terminal.wait_for_prompt();
    terminal.keys("\x04");
    assert_eq!(terminal.end().0, Some(0));
    let file = folder.path().join(".local/state/model-pool/chat_history");
    let text = std::fs::read_to_string(&file).expect("the history");
    assert!(text.contains("from before"), "{text}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("it").permissions());
    assert_eq!(mode & 0o077, 0, "for its owner alone");
    let mut terminal = Terminal::start(folder.path(), &words, &[], 80);
    terminal.wait_for(">>> ");
    // The key up, and return.
    terminal.keys("\x1b[A\r");
    terminal.wait_for("A\r\n");
    terminal.wait_for_prompt();
    terminal.keys("/bye\r");
    assert_eq!(terminal.end().0, Some(0));
    assert_eq!(prompts(&server), [["from before"], ["from before"]]);
    std::fs::remove_file(&file).expect("removed");
    let words = ["chat", "m", "--no-history", "--server", &server.url("")];
    let mut terminal = Terminal::start(folder.path(), &words, &[], 80);
    terminal.wait_for(">>> ");
    terminal.keys("secret\r");
    terminal.wait_for("A\r\n");
    terminal.wait_for_prompt();
    terminal.keys("\x04");
    assert_eq!(terminal.end().0, Some(0));
    assert!(!file.exists());
}

#[test]
fn run_without_a_prompt_at_a_terminal_starts_a_chat() {
    let server = streaming(&[piece("A")]);
    let folder = folder();
    let words = ["run", "m", "--server", &server.url("")];
    let mut terminal = Terminal::start(folder.path(), &words, &[], 80);
    terminal.wait_for(">>> ");
    // Typed ahead, with a final command completed by Tab.
    terminal.keys("\"\"\"one\rtwo\"\"\"\r");
    terminal.wait_for("A\r\n");
    terminal.keys("/exi\t\r");
    assert_eq!(terminal.end().0, Some(0));
    assert_eq!(prompts(&server), [["one\ntwo"]]);
}
