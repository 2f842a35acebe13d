//! The audit log: its entries are stored before the response, contain no keys, and survive a restart.

use std::io::{Read, Write};
use std::net::TcpStream;

use model_pool::pool::{KeyId, Span, Time};
use model_pool::store::{AuditEntry, AuditQuery, Retention, Store};
use serde_json::{Map, Value, json};

use support::service::{Pool, wait_for};

fn entry(at: u64, key: Option<u64>, path: &str) -> AuditEntry {
    let what = json!({"model": "org/m", "lease": null, "priority": 2});
    AuditEntry {
        at: Time(at),
        key: key.map(KeyId),
        subject: key.is_none().then(|| "4711".to_owned()),
        name: Some("ann".to_owned()),
        group: None,
        key_group: None,
        client: "127.0.0.1".to_owned(),
        method: "POST".to_owned(),
        path: path.to_owned(),
        what: what.as_object().unwrap().clone(),
        status: 200,
        request: "req-1".to_owned(),
    }
}

#[tokio::test]
async fn audit_rows_are_read_back_in_pages_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/state.db", folder.path().display());
    let rows = [
        entry(1, Some(1), "/admin/load"),
        entry(2, None, "/admin/load"),
        entry(3, Some(12), "/admin/devices/cordon"),
        entry(4, Some(1), "/admin/devices/uncordon"),
    ];
    {
        let store = Store::open(&url).await.unwrap();
        for row in &rows {
            store.add_audit(row).await.unwrap();
        }
    }
    let store = Store::open(&url).await.unwrap();
    let found = async |query: AuditQuery| {
        let page = store.audit(query).await.unwrap();
        page.into_iter().map(|row| row.entry).collect::<Vec<_>>()
    };
    let all = AuditQuery {
        limit: 100,
        ..AuditQuery::default()
    };
    assert_eq!(found(all.clone()).await, rows);
    let newest = AuditQuery {
        limit: 2,
        ..all.clone()
    };
    assert_eq!(found(newest.clone()).await, rows[2..]);
    let before = Some(3);
    assert_eq!(found(AuditQuery { before, ..newest }).await, rows[..2]);
    let of = |key: &str, path: &str| AuditQuery {
        key: Some(key.to_owned()).filter(|key| !key.is_empty()),
        path: Some(path.to_owned()).filter(|path| !path.is_empty()),
        ..all.clone()
    };
    assert_eq!(
        found(of("k1", "")).await,
        [rows[0].clone(), rows[3].clone()]
    );
    assert_eq!(found(of("4711", "")).await, [rows[1].clone()]);
    assert_eq!(found(of("", "/admin/devices")).await, rows[2..]);
    assert_eq!(found(of("k1", "/admin/load")).await, [rows[0].clone()]);
    assert_eq!(found(of("%", "%")).await, []);
}

#[tokio::test]
async fn old_rows_are_deleted_by_age_and_by_count_and_ids_are_not_reused() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/state.db", folder.path().display());
    let store = Store::open(&url).await.unwrap();
    for at in 1..=10 {
        store
            .add_audit(&entry(at * 1000, Some(1), "/admin/load"))
            .await
            .unwrap();
    }
    let keep = Retention {
        age: Span(5_000),
        rows: 100,
    };
    assert_eq!(store.forget_audit(Time(8_000), keep).await.unwrap(), 2);
    let keep = Retention {
        rows: 3,
        age: Span(u64::MAX),
    };
    assert_eq!(store.forget_audit(Time(8_000), keep).await.unwrap(), 5);
    let keep = Retention { rows: 0, ..keep };
    assert_eq!(store.forget_audit(Time(8_000), keep).await.unwrap(), 3);
    let next = store.add_audit(&entry(1, Some(1), "/admin/load")).await;
    assert_eq!(next.unwrap(), 11);
}

fn entries(pool: &Pool, query: &str) -> Vec<Value> {
    let path = format!("/llm/admin/audit{query}");
    let (status, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    assert_eq!(status, 200, "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    list["entries"].as_array().unwrap().clone()
}

/// The named fields of each entry.
fn seen(entries: &[Value], fields: &[&str]) -> Vec<Value> {
    let chosen = |entry: &Value| {
        let pairs = fields.iter();
        let pairs = pairs.map(|field| ((*field).to_owned(), entry[*field].clone()));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    entries.iter().map(chosen).collect()
}

#[test]
fn every_change_is_audited_with_sender_and_outcome_and_survives_kill_9() {
    let mut pool = Pool::demo();
    let admin = pool.admin_key();
    let ask = |method: &str, path: &str, body: &str, key: Option<&str>| {
        let (status, text, head) = pool.request(method, path, body, key);
        let id = head.split_once("x-request-id: ").unwrap().1;
        let id = id.lines().next().unwrap().trim().to_owned();
        (status, text, id)
    };
    let load = r#"{"model":"tiny-chat","lease":"2h"}"#;
    let (status, text, load_id) = ask("POST", "/llm/admin/load", load, Some(&admin));
    assert_eq!(status, 200, "{text}");
    let path = "/llm/admin/models?model=tiny-chat";
    assert_eq!(
        ask(
            "PATCH",
            path,
            r#"{"priority":1,"lease":null}"#,
            Some(&admin)
        )
        .0,
        200
    );
    let (status, made, _) = ask(
        "POST",
        "/llm/admin/keys",
        r#"{"name":"course 4711","role":"user"}"#,
        Some(&admin),
    );
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let user = made["key"].as_str().unwrap().to_owned();
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(ask("POST", "/llm/admin/load", load, Some(&user)).0, 403);
    assert_eq!(ask("GET", "/llm/admin/models", "", Some(&admin)).0, 200);
    let revoke = format!("/llm/admin/keys?id={id}");
    assert_eq!(ask("DELETE", &revoke, "", Some(&admin)).0, 200);
    assert_eq!(
        ask("POST", "/llm/admin/load", load, Some(&user)).0,
        403,
        "revoked"
    );
    assert_eq!(ask("POST", "/llm/admin/reset", "{}", None).0, 401);
    // A key in place of a name, and fields that the audit log does not record.
    let odd = json!({"model": admin, "reason": "x", "key": user}).to_string();
    assert_eq!(ask("POST", "/llm/admin/unload", &odd, Some(&admin)).0, 400);

    let all = entries(&pool, "");
    let fields = ["key", "name", "method", "path", "what", "status"];
    let (first, course) = ("first admin key", "course 4711");
    let row = |key: Value, name: Value, action: &str, what: Value, status: u16| {
        let (method, path) = action.split_once(' ').unwrap();
        json!({"key": key, "name": name, "method": method, "path": path, "what": what, "status": status})
    };
    let wish = json!({"model": "tiny-chat", "lease": "2h"});
    let expected = [
        row(
            "k1".into(),
            first.into(),
            "POST /admin/load",
            wish.clone(),
            200,
        ),
        row(
            "k1".into(),
            first.into(),
            "PATCH /admin/models",
            json!({"model": "tiny-chat", "priority": 1, "lease": null}),
            200,
        ),
        row(
            "k1".into(),
            first.into(),
            "POST /admin/keys",
            json!({"name": course, "role": "user"}),
            200,
        ),
        row(
            id.as_str().into(),
            course.into(),
            "POST /admin/load",
            wish.clone(),
            403,
        ),
        row(
            "k1".into(),
            first.into(),
            "DELETE /admin/keys",
            json!({"id": id}),
            200,
        ),
        row(Value::Null, Value::Null, "POST /admin/load", wish, 403),
        row(
            Value::Null,
            Value::Null,
            "POST /admin/reset",
            json!({}),
            401,
        ),
        row(
            "k1".into(),
            first.into(),
            "POST /admin/unload",
            json!({"model": "(hidden)"}),
            400,
        ),
    ];
    assert_eq!(seen(&all, &fields), expected);
    assert_eq!(all[0]["request"], load_id.as_str());
    assert!(all.iter().all(|entry| entry["client"] == "127.0.0.1"));
    let text = serde_json::to_string(&all).unwrap();
    for secret in [&admin, &user] {
        assert!(!text.contains(&secret[..12]), "{text}");
    }

    let page = entries(&pool, "?limit=2&before=5");
    assert_eq!(page, all[2..4]);
    assert_eq!(entries(&pool, &format!("?of={id}")), all[3..4]);
    assert_eq!(entries(&pool, "?path=/llm/admin/keys").len(), 2);
    for (query, field) in [
        ("?limit=0", "limit"),
        ("?before=x", "before"),
        ("?after=1", "after"),
    ] {
        let path = format!("/llm/admin/audit{query}");
        let (status, text, _) = pool.request("GET", &path, "", Some(&admin));
        assert!(status == 400 && text.contains(field), "{text}");
    }
    let (status, _, _) = pool.request("GET", "/llm/admin/audit", "", Some(&user));
    assert_eq!(status, 403);

    pool.kill_and_restart();
    assert_eq!(entries(&pool, ""), all);
}

#[test]
fn a_change_is_audited_even_if_the_client_disconnects_before_the_response() {
    let file = support::stub::model("slow", &["--ready-after-ms", "60000"], "memory_gib: 1");
    let pool = Pool::with_models(&[file], "");
    let body = r#"{"model":"slow"}"#;
    let mut socket = TcpStream::connect(pool.address()).unwrap();
    write!(
        socket,
        "POST /llm/admin/load HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        pool.address(),
        pool.admin_key(),
        body.len()
    )
    .unwrap();
    wait_for("the load to begin", || {
        let (_, text, _) = pool.request("GET", "/llm/admin/queue", "", Some(&pool.admin_key()));
        text.contains(r#""what":"load""#)
    });
    assert_eq!(entries(&pool, ""), [] as [Value; 0], "it has not ended yet");
    drop(socket);
    wait_for("the entry", || !entries(&pool, "").is_empty());
    let fields = ["name", "path", "what", "status"];
    assert_eq!(
        seen(&entries(&pool, ""), &fields),
        [
            json!({"name": "first admin key", "path": "/admin/load", "what": {"model": "slow"}, "status": 499})
        ]
    );
}

#[test]
fn attempts_without_a_key_do_not_fill_the_audit() {
    let pool = Pool::demo();
    // On one connection, which keeps all requests within a minute.
    let mut socket = TcpStream::connect(pool.address()).unwrap();
    let request = format!(
        "POST /llm/admin/reset HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
        pool.address()
    );
    for _ in 0..300 {
        socket.write_all(request.as_bytes()).unwrap();
        let mut response = [0; 4096];
        let count = socket.read(&mut response).unwrap();
        let head = String::from_utf8_lossy(&response[..count]).into_owned();
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    }
    let kept = entries(&pool, "?limit=1000").len();
    // A new minute may have begun in between.
    assert!((120..=240).contains(&kept), "{kept}");
    wait_for("the log to say so", || {
        pool.log().contains("more than 120 attempts")
    });
    let (status, _, _) = pool.request(
        "POST",
        "/llm/admin/cleanup",
        r#"{"preview":true}"#,
        Some(&pool.admin_key()),
    );
    assert_eq!(status, 200);
    assert_eq!(entries(&pool, "?limit=1")[0]["path"], "/admin/cleanup");
}

#[test]
fn entries_name_the_group_of_the_changed_key_and_are_found_by_it() {
    let pool = Pool::with_models(
        &[support::stub::model("one", &[], "memory_gib: 1")],
        "groups: {physics: {}, lab: {parent: physics}, chemistry: {}}\n",
    );
    let create = |name: &str, group: &str| {
        let body = json!({"name": name, "role": "user", "group": group});
        let (status, key) = pool.admin("POST", "/llm/admin/keys", &body);
        assert_eq!(status, 200, "{key}");
        key["id"].as_str().expect("an id").to_owned()
    };
    let ann = create("ann", "lab");
    create("bob", "chemistry");
    let path = format!("/llm/admin/keys?id={ann}");
    let (status, response) = pool.admin("PATCH", &path, &json!({"name": "ann b."}));
    assert_eq!(status, 200, "{response}");
    let found = |group: &str| {
        let path = format!("/llm/admin/audit?group={group}");
        let (status, audit) = pool.admin("GET", &path, &Value::Null);
        assert_eq!(status, 200, "{audit}");
        audit["entries"].as_array().expect("a list").clone()
    };
    let of_physics = found("physics");
    assert_eq!(of_physics.len(), 2, "{of_physics:?}");
    for entry in &of_physics {
        assert_eq!(entry["key_group"], "physics/lab", "{entry}");
        assert_eq!(entry["group"], Value::Null, "the sender has no group");
    }
    assert_eq!(found("chemistry").len(), 1);
    assert_eq!(found("none").len(), 0);
}
