//! Keys: where the client finds its own, and `keys revoke`.

use serde_json::json;

use super::server::{Reply, Run, Server, run};
use super::{in_order, ok, one};

#[test]
fn the_key_is_read_from_the_flag_then_the_environment_then_a_file() {
    let line = "GET /llm/admin/queue";
    let server = one(line, 200, json!({"waiting": []}));
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("data")).expect("made");
    std::fs::write(dir.path().join("data/admin.key"), "from-default\n").expect("written");
    std::fs::write(dir.path().join("other.key"), "from-file\n").expect("written");
    type Case = (
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static str,
    );
    const KEY: &str = "MODEL_POOL_ADMIN_KEY";
    const FILE: &str = "MODEL_POOL_ADMIN_KEY_FILE";
    const CASES: [Case; 4] = [
        (
            "queue --key from-flag",
            &[(KEY, "from-variable"), (FILE, "other.key")],
            "from-flag",
        ),
        (
            "queue",
            &[(KEY, "from-variable"), (FILE, "other.key")],
            "from-variable",
        ),
        ("queue", &[(FILE, "other.key"), (KEY, "")], "from-file"),
        ("queue", &[], "from-default"),
    ];
    for (arguments, variables, _) in CASES {
        let Run { status, stderr, .. } = run(&server.address, arguments, dir.path(), variables);
        assert_eq!(status, 0, "{stderr}");
    }
    let sent: Vec<String> = server
        .requests()
        .iter()
        .filter_map(|request| request.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(sent, CASES.map(|(_, _, key)| format!("Bearer {key}")));
    let missing = run(&server.address, "queue", dir.path(), &[(FILE, "no.key")]);
    assert_eq!(missing.status, 2);
    assert!(missing.stderr.contains("no.key"), "{missing:?}");
}

#[test]
fn a_refused_key_names_the_sources_of_keys_and_never_the_key() {
    let server = one(
        "GET /llm/admin/queue",
        401,
        json!({"error": {"message": "an admin key is needed"}}),
    );
    let run = server.client("queue");
    assert_eq!(run.status, 1);
    in_order(
        &run.stderr,
        &[
            "an admin key is needed",
            "No key was sent",
            "MODEL_POOL_ADMIN_KEY_FILE",
            "data/admin.key",
        ],
    );
    let run = server.client("queue --key mp-secret");
    assert!(
        run.stderr.contains("--key") && !run.stderr.contains("mp-secret"),
        "{run:?}"
    );
}

#[test]
fn a_key_revokes_itself_only_with_the_yes_flag() {
    let message = "k1: it is the key of this request; k2 (ops) is the only other valid admin key";
    let body =
        json!({"error": {"message": message, "type": "invalid_request_error", "code": "own_key"}});
    let server = Server::start(vec![
        ("DELETE /llm/admin/keys?id=k1", vec![Reply::json(409, body)]),
        ok(
            "DELETE /llm/admin/keys?id=k1&confirm=true",
            json!({"id": "k1", "revoked": true}),
        ),
    ]);
    let run = server.client("keys revoke k1");
    assert_eq!(run.status, 2, "a script does not answer questions: {run:?}");
    in_order(&run.stderr, &["k2 (ops)", "Nothing changed", "--yes"]);
    let run = server.client("keys revoke k1 --yes");
    assert_eq!(
        (run.status, run.stdout.as_str()),
        (0, "key k1 is revoked\n")
    );
    assert_eq!(server.requests().len(), 2);
}
