//! The client against a scripted server: its requests, its output and its exit status.

#[path = "cli/keys.rs"]
mod keys;
#[path = "cli/loads.rs"]
mod loads;
#[path = "cli/server.rs"]
mod server;

use serde_json::{Value, json};

use server::{Reply, Server, run};

/// Asserts that all of `parts` occur in `text` in this order.
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part:?} is missing or too early in:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

fn one(line: &'static str, status: u16, body: Value) -> Server {
    Server::start(vec![(line, vec![Reply::json(status, body)])])
}

/// A route that always succeeds with this body.
fn ok(line: &'static str, body: Value) -> (&'static str, Vec<Reply>) {
    (line, vec![Reply::json(200, body)])
}

#[test]
fn an_unreachable_server_is_exit_status_3_with_advice() {
    // The system does not assign this port to a process that requests any free port. A port that was free a little earlier could be
    // assigned.
    let port = "127.0.0.1:1";
    let dir = tempfile::tempdir().expect("a directory");
    let run = run(&format!("http://{port}"), "models", dir.path(), &[]);
    assert_eq!(run.status, 3, "{run:?}");
    in_order(&run.stderr, &[port, "Is it running?", "model-pool serve"]);
}

#[test]
fn wrong_usage_is_exit_status_2() {
    let server = Server::start(Vec::new());
    for arguments in [
        "",
        "lod m",
        "load",
        "set m",
        "load m --lease soon",
        "models --server ftp://x",
        "register none.yaml",
    ] {
        let run = server.client(arguments);
        assert_eq!(run.status, 2, "{arguments}: {run:?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn an_unknown_model_shows_the_servers_closest_names() {
    let body = json!({"error": {"message": "there is no model \"org/n\"", "type": "not_found", "code": "model_not_found",
        "closest": ["org/m"]}});
    let run = one("GET /llm/admin/models?model=org%2Fn", 404, body).client("show org/n");
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.stderr.contains("closest names: org/m"), "{run:?}");
}

#[test]
fn a_page_of_another_server_is_reported_as_a_wrong_base_path() {
    let server = Server::start(vec![(
        "GET /llm/admin/queue",
        vec![Reply::other(404, "text/html", "<h1>nginx</h1>")],
    )]);
    let run = server.client("queue");
    assert_eq!(run.status, 1, "{run:?}");
    in_order(&run.stderr, &["404", "<h1>nginx</h1>", "base path"]);
}

#[test]
fn a_proxy_is_not_used_for_a_server_on_this_machine() {
    let server = one("GET /llm/admin/queue", 200, json!({}));
    let dir = tempfile::tempdir().expect("a directory");
    let proxy = [
        ("HTTP_PROXY", "http://127.0.0.1:1"),
        ("http_proxy", "http://127.0.0.1:1"),
    ];
    let run = run(&server.address, "queue", dir.path(), &proxy);
    assert_eq!(
        (run.status, run.stdout.as_str()),
        (0, "No requests are waiting.\n")
    );
}

#[test]
fn catalogue_commands_send_the_given_options() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = "engine_config:\n  model_id: org/m\n";
    std::fs::write(dir.path().join("m.yaml"), file).expect("written");
    for (words, line, sent, shown) in [
        (
            "register org/m --engine vllm --gpus 2 --priority 1 --context 8192",
            "PUT /llm/admin/models",
            r#"{"engine_config":{"model_id":"org/m","type":"VLLMEngine","hf_model_id":"org/m","max_total_tokens":8192},"pool_config":{"gpus_per_replica":2,"priority":1}}"#,
            "registered",
        ),
        // The server chooses the engine of a model of the hub.
        (
            "register org/m-GGUF:Q4_K_M",
            "PUT /llm/admin/models?model=org%2Fm-GGUF%3AQ4_K_M",
            "",
            "registered",
        ),
        (
            "register m.yaml",
            "PUT /llm/admin/models",
            r#"{"engine_config":{"model_id":"org/m"}}"#,
            "registered",
        ),
        (
            "set org/m --priority 3 --keep-hot none",
            "PATCH /llm/admin/models?model=org%2Fm",
            r#"{"priority":3,"keep_hot":null}"#,
            "3 always-hot",
        ),
    ] {
        let view = json!({"model": "org/m", "state": "cold", "source": "registered", "priority": 3, "always_hot": true});
        let server = one(line, 200, view);
        let run = run(&server.address, words, dir.path(), &[]);
        assert_eq!(run.status, 0, "{words}: {run:?}");
        in_order(&run.stdout, &["org/m", shown]);
        assert_eq!(server.request(line).body, sent, "{words}");
    }
}

#[test]
fn a_lost_event_stream_continues_after_the_last_event() {
    let line = "GET /llm/admin/events?kind=evicted&follow=true";
    let event = |id: u32| {
        let body = format!(
            ": hello\nid: {id}\nevent: evicted\ndata: {{\"id\":{id},\"kind\":\"evicted\"}}\n\n"
        );
        Reply::other(200, "text/event-stream", &body)
    };
    let stop = Reply::json(503, json!({"error": {"message": "shutting down"}}));
    let server = Server::start(vec![(line, vec![event(7), event(8), stop])]);
    let run = server.client("events --follow --kind evicted --json");
    assert_eq!(run.status, 1, "{run:?}");
    in_order(
        &run.stdout,
        &[
            "{\"id\":7,\"kind\":\"evicted\"}\n",
            "{\"id\":8,\"kind\":\"evicted\"}\n",
        ],
    );
    let asked_after: Vec<Option<String>> = server
        .requests()
        .iter()
        .map(|request| request.header("last-event-id").map(str::to_owned))
        .collect();
    assert_eq!(
        asked_after,
        [None, Some("7".to_owned()), Some("8".to_owned())]
    );
}

#[test]
fn past_events_and_logs_are_printed_line_by_line() {
    let server = Server::start(vec![
        ok(
            "GET /llm/admin/events?model=m&limit=5",
            json!({"events": [{"id": 1, "kind": "loaded", "model": "m", "reason": "asked"}]}),
        ),
        ok(
            "GET /llm/admin/logs?model=m&tail=2",
            json!({"model": "m", "lines": [{"replica": "r1", "stream": "stdout", "line": "up"}]}),
        ),
        (
            "GET /llm/admin/logs?model=m&tail=100&follow=true",
            vec![Reply::other(
                200,
                "text/event-stream",
                "data: {\"replica\":\"r1\",\"line\":\"more\"}\n\n",
            )],
        ),
    ]);
    assert_eq!(
        server.client("events --model m --limit 5").stdout,
        "loaded        m  asked  (event 1)\n"
    );
    assert_eq!(server.client("logs m --tail 2").stdout, "r1 | up\n");
    assert_eq!(server.client("logs m --follow").stdout, "r1 | more\n");
}

#[test]
fn a_cleanup_preview_unloads_nothing_and_a_script_is_not_prompted() {
    let line = "POST /llm/admin/cleanup";
    let body = json!({"preview": true, "replicas": [{"replica": "r1", "model": "m", "bytes": 5}], "unloaded": ["r1"],
        "reopen_at": "2026-11-20T12:00:00Z"});
    let server = one(line, 200, body);
    let closed = "always-hot models are loaded on request only until ";
    let preview = server.client("cleanup --preview --mode idle");
    assert_eq!(preview.status, 0);
    in_order(&preview.stdout, &["REPLICA", "r1", "m", closed]);
    assert_eq!(
        server.request(line).json(),
        json!({"preview": true, "mode": "idle"})
    );
    let done = server.client("cleanup --yes");
    let shown = format!("unloaded r1; {closed}");
    assert!(done.stdout.contains(&shown), "{done:?}");
    let last = server.requests().pop().expect("a request");
    assert_eq!(last.json(), json!({"mode": "all"}));
}

#[test]
fn every_other_command_calls_its_route_and_succeeds() {
    let cases = [
        (
            "unload m --now",
            "POST /llm/admin/unload",
            json!({"model": "m", "unloaded": ["r1"]}),
            "unloaded r1",
        ),
        (
            "remove m",
            "DELETE /llm/admin/models?model=m",
            json!({"model": "m", "removed": true}),
            "m is removed",
        ),
        (
            "models",
            "GET /llm/admin/models",
            json!({"models": []}),
            "catalogue is empty",
        ),
        (
            "devices",
            "GET /llm/admin/devices",
            json!({"devices": [{"device": "gpu0"}]}),
            "gpu0",
        ),
        (
            "reset --yes",
            "POST /llm/admin/reset",
            json!({"unloaded": []}),
            "failures are cleared",
        ),
        (
            "reload",
            "POST /llm/admin/reload",
            json!({"added": ["m"]}),
            "added: m",
        ),
        (
            "config",
            "GET /llm/admin/config",
            json!({"server": {"listen": "x"}}),
            "\"listen\": \"x\"",
        ),
        (
            "keys list",
            "GET /llm/admin/keys",
            json!({"keys": []}),
            "No keys. Create one",
        ),
        (
            "keys create ann --role user",
            "POST /llm/admin/keys",
            json!({"id": "k1", "key": "mp-1"}),
            "mp-1",
        ),
        (
            "audit --limit 5 --of k3 --path /admin/keys",
            "GET /llm/admin/audit?limit=5&of=k3&path=%2Fadmin%2Fkeys",
            json!({"entries": [{"id": 57, "at": "2026-11-21T11:00:00Z", "key": "k3", "name": "ann", "client": "10.0.0.7",
                "method": "DELETE", "path": "/admin/keys", "what": {"id": "k1"}, "status": 200}], "next_before": 57}),
            "DELETE /admin/keys  id=k1  done",
        ),
        (
            "keys revoke k1",
            "DELETE /llm/admin/keys?id=k1",
            json!({"id": "k1", "revoked": true}),
            "k1 is revoked",
        ),
        (
            "leaderboard",
            "GET /llm/leaderboard",
            json!({"models": [{"rank": 1, "model": "org/m", "rating": 1015.6, "comparisons": 3, "wins": 1, "losses": 0, "ties": 2,
                "win_ratio": 1000, "voted_at": "2026-11-21T11:00:00Z"}], "start": 1000.0, "most_per_game": 32.0}),
            "    1  org/m    1016    1     0     2       1000  ",
        ),
    ];
    for (arguments, line, body, expected) in cases {
        let server = one(line, 200, body.clone());
        let run = server.client(arguments);
        assert_eq!(run.status, 0, "{arguments}: {run:?}");
        assert!(run.stdout.contains(expected), "{arguments}: {run:?}");
        assert_eq!(server.requests().len(), 1, "{arguments}");
        let run = server.client(&format!("{arguments} --json"));
        assert_eq!(
            (run.status, run.stdout),
            (0, format!("{body}\n")),
            "{arguments} --json"
        );
    }
}

#[test]
fn top_without_a_terminal_prints_one_screen_or_one_json_line() {
    let server = Server::start(vec![
        ok(
            "GET /llm/admin/devices",
            json!({"devices": [{"device": "gpu0"}]}),
        ),
        ok(
            "GET /llm/admin/models",
            json!({"models": [{"model": "m", "state": "cold"}]}),
        ),
        ok("GET /llm/admin/queue", json!({"waiting": []})),
    ]);
    let run = server.client("top");
    assert_eq!(run.status, 0, "{run:?}");
    in_order(&run.stdout, &["gpu0", "cold", "No requests are waiting."]);
    assert!(!run.stdout.contains('\x1b'), "{run:?}");
    let json = server.client("top --json --times 2").stdout;
    assert_eq!(json.lines().count(), 2, "{json}");
    for line in json.lines() {
        let screen: Value = serde_json::from_str(line).expect("one object per line");
        assert_eq!(screen["models"]["models"][0]["model"], "m");
    }
}

#[test]
fn completions_need_no_server() {
    let dir = tempfile::tempdir().expect("a directory");
    for shell in ["bash", "zsh", "fish"] {
        let run = run(
            "not an address",
            &format!("completions {shell}"),
            dir.path(),
            &[],
        );
        assert_eq!(run.status, 0, "{run:?}");
        assert!(run.stdout.contains("keep-hot"), "{shell}");
    }
}
