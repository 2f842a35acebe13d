//! `model-pool evaluate`: several models, prompts from a file, and the output.

use serde_json::{Value, json};
use support::net::stub;
use support::servers::{ScriptedServer, dead_url, http};
use support::service::Pool;
use support::terminal::piped;

use super::{body_of, err, out, piece, streaming};

fn folder_with(name: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), text).expect("written");
    folder
}

#[test]
fn the_responses_of_models_are_shown_side_by_side_with_their_sums() {
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
    let responses = &value["prompts"][0]["answers"];
    assert_eq!(
        (&responses[0]["model"], &responses[1]["model"]),
        (&json!("one"), &json!("two"))
    );
    assert_eq!(responses[1]["text"], "Hello from two and goodbye");
    assert_eq!(responses[1]["completion_tokens"], 5);
    assert!(
        responses[1]["first_token_ms"].is_u64() && responses[1]["whole_ms"].is_u64(),
        "{value}"
    );
    assert_eq!(value["models"][0]["answers"], 1);
}

#[test]
fn broken_lines_are_reported_and_nothing_is_sent_unless_they_are_skipped() {
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
        "no request was sent",
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
    let asked = server.asked();
    let prompted = asked.iter().filter(|request| request.starts_with("POST"));
    let bodies: Vec<Value> = prompted.map(|request| body_of(request)).collect();
    let prompts: Vec<&Value> = bodies
        .iter()
        .map(|body| &body["messages"][1]["content"])
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
fn a_failing_model_is_listed_in_the_table_and_sets_the_exit_status() {
    let refusing = stub("refusing", &["--status", "400"]);
    let pool = Pool::with_models(&[stub("one", &[]), refusing], "");
    let folder = folder_with("q.txt", "Hello\n");
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let words = ["evaluate", "one", "onne", "--file", "q.txt"];
    let output = piped(folder.path(), &words, &env, b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        out(&output).is_empty() && err(&output).contains("no model is called onne"),
        "no model answers in vain: {}{}",
        out(&output),
        err(&output)
    );
    let words = ["evaluate", "one", "refusing", "--file", "q.txt"];
    let output = piped(folder.path(), &words, &env, b"");
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("Hello from one") && text.contains("(no answer: "),
        "{text}"
    );
    assert!(
        err(&output).contains("model-pool: 1 of 2 answers are missing"),
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
fn escape_sequences_in_answers_are_not_sent_to_the_terminal() {
    let server = ScriptedServer::server(|_| {
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

/// A server whose models respond with their names; `verdict` computes the ranking of `judge` from its request.
fn judged(verdict: impl Fn(&str) -> String + Send + Sync + 'static) -> ScriptedServer {
    ScriptedServer::server(move |request| {
        if request.starts_with("GET") {
            return http("200 OK", "content-type: application/json\r\n", "{}");
        }
        let body = body_of(request);
        let model = body["model"].as_str().unwrap_or_default();
        let messages = body["messages"].as_array().expect("messages");
        let question = messages.last().expect("one")["content"]
            .as_str()
            .unwrap_or_default();
        let text = match model {
            "judge" => verdict(question),
            model => format!("I am sure, says {model}."),
        };
        let event = json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]});
        http(
            "200 OK",
            "content-type: text/event-stream\r\n",
            &format!("data: {event}\n\ndata: [DONE]\n\n"),
        )
    })
}

/// The letters, starting with the response that contains this text.
fn favouring(part: &str, question: &str) -> String {
    let mut letters: Vec<&str> = question.split("<answer letter=\"").skip(1).collect();
    letters.sort_by_key(|response| !response.contains(part));
    let letters: Vec<String> = letters
        .iter()
        .map(|letter| letter[..1].to_owned())
        .collect();
    format!(
        "I compare them.\n{}",
        json!({"reason": format!("{} is right."
        , letters[0]), "ranking": letters})
    )
}

#[test]
fn a_judge_model_ranks_anonymous_responses() {
    let server = judged(|question| favouring("says two", question));
    let folder = folder_with("q.txt", "First?\nSecond?\nThird?\n");
    let url = server.url("");
    let words = [
        "evaluate",
        "one",
        "two",
        "three",
        "--file",
        "q.txt",
        "--judge",
        "judge",
        "--criteria",
        "polite",
        "--at-once",
        "1",
        "--server",
        &url,
    ];
    let output = piped(folder.path(), &words, &[], b"");
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(&output));
    assert_eq!(text.matches("judged: 1. two, ").count(), 3, "{text}");
    assert!(text.contains("is right.)"), "{text}");
    let sums = text
        .lines()
        .rfind(|line| line.starts_with("two "))
        .expect("its sums");
    let figures: Vec<&str> = sums.split_whitespace().rev().take(3).collect();
    assert_eq!(
        figures,
        ["1.00", "3", "3"],
        "mean rank, first, judged: {text}"
    );
    let mut asked = server.asked();
    asked.retain(|request| request.starts_with("POST"));
    let questions: Vec<Value> = asked
        .iter()
        .map(|request| body_of(request))
        .filter(|body| body["model"] == "judge")
        .collect();
    assert_eq!((asked.len(), questions.len()), (12, 3));
    // In three prompts, each model is listed first once.
    let mut firsts = Vec::new();
    for question in &questions {
        assert_eq!(question["temperature"], 0.0);
        let text = question["messages"][0]["content"]
            .as_str()
            .expect("a question");
        assert!(text.contains("most polite"), "{text}");
        let (_, rest) = text
            .split_once("letter=\"A\">\nI am sure, says ")
            .expect("the first answer");
        firsts.push(rest.split('.').next().expect("a name").to_owned());
    }
    firsts.sort();
    assert_eq!(firsts, ["one", "three", "two"]);
    let words = [&words[..], &["--json"]].concat();
    let value: Value =
        serde_json::from_str(&out(&piped(folder.path(), &words, &[], b""))).expect("JSON");
    assert_eq!(value["judge"], "judge");
    assert_eq!(value["prompts"][0]["verdict"]["ranking"][0], "two");
    assert_eq!(
        (
            &value["models"][1]["first_places"],
            &value["models"][1]["mean_rank"]
        ),
        (&json!(3), &json!(1.0))
    );
}

#[test]
fn a_judge_without_a_verdict_is_reported_and_sets_the_exit_status() {
    let server = judged(|question| {
        if question.contains("First?") {
            "Both are fine.".to_owned()
        } else {
            favouring("says one", question)
        }
    });
    let folder = folder_with("q.txt", "First?\nSecond?\n");
    let url = server.url("");
    let words = [
        "evaluate", "one", "two", "--file", "q.txt", "--judge", "judge", "--server", &url,
    ];
    let output = piped(folder.path(), &words, &[], b"");
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("(not judged: the judge wrote no JSON object"),
        "{text}"
    );
    assert!(text.contains("judged: 1. one, 2. two ("), "{text}");
    assert!(
        err(&output).contains("1 of 2 verdicts are missing"),
        "{}",
        err(&output)
    );
    for (words, problem) in [
        (
            vec!["one", "--judge", "judge"],
            "a judge compares 2 to 26 different models, and 1 is named",
        ),
        (vec!["one", "one", "--judge", "judge"], "and 1 is named"),
        (vec!["one", "two", "--criteria", "short"], "--judge <MODEL>"),
    ] {
        let words = [
            &["evaluate", "--file", "q.txt", "--server", &url],
            &words[..],
        ]
        .concat();
        let before = server.asked().len();
        let output = piped(folder.path(), &words, &[], b"");
        assert!(
            output.status.code() == Some(2) && err(&output).contains(problem),
            "{}",
            err(&output)
        );
        assert_eq!(server.asked().len(), before, "no request is sent");
    }
}
