//! The stream of the pool's state for open pages: a complete view, then changes; bounded, and ended when the permission to see it
//! ends.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::net::memory_kib;
use support::service::{Pool, wait_for};

use crate::permissions::{admin, key};

fn model(name: &str, more: &str) -> (String, String) {
    let flags = ["--model", name, "--tokens", "2"];
    support::stub::model(name, &flags, &format!("memory_gib: 10{more}"))
}

fn pool() -> Pool {
    Pool::with_models(&[model("a", ""), model("b", ", priority: 1")], "")
}

/// A page that follows the stream.
struct Page(BufReader<TcpStream>);

impl Page {
    fn open(pool: &Pool, bearer: &str) -> Page {
        Page::open_at(pool, "/llm/admin/live", bearer)
    }

    fn open_at(pool: &Pool, path: &str, bearer: &str) -> Page {
        let mut socket = TcpStream::connect(pool.address()).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {bearer}\r\n\r\n",
            pool.address()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut page = Page(BufReader::new(socket));
        let status = page.line().unwrap();
        assert!(status.contains(" 200 "), "{status}");
        page
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).unwrap_or(0);
        (count > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event with its data; `None` at the end of the stream.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut name = None;
        loop {
            let line = self.line()?;
            if let Some(event) = line.strip_prefix("event: ") {
                name = Some(event.to_owned());
            }
            if let (Some(name), Some(data)) = (&name, line.strip_prefix("data: ")) {
                return Some((name.clone(), serde_json::from_str(data).unwrap()));
            }
        }
    }
}

fn by_name(list: &Value, key: &str) -> std::collections::BTreeMap<String, Value> {
    let items = list.as_array().unwrap().iter();
    items
        .map(|item| (item[key].as_str().unwrap().to_owned(), item.clone()))
        .collect()
}

/// Applies a change, as a page does.
fn take(view: &mut Value, change: &Value) {
    for (part, key) in [("models", "model"), ("devices", "device")] {
        let Some(of_part) = change.get(part) else {
            continue;
        };
        let mut known = by_name(&view[part], key);
        for gone in of_part["gone"].as_array().unwrap() {
            known.remove(gone.as_str().unwrap());
        }
        known.extend(by_name(&of_part["changed"], key));
        view[part] = known.into_values().collect();
    }
    for part in ["queue", "evening", "store"] {
        if let Some(newer) = change.get(part) {
            view[part] = newer.clone();
        }
    }
}

#[test]
fn a_page_that_applies_every_change_matches_the_admin_routes() {
    let pool = pool();
    let mut page = Page::open(&pool, &pool.admin_key());
    let (name, mut view) = page.next().unwrap();
    assert_eq!(name, "view");
    assert_eq!(view["models"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&view["store"]["writable"], &view["evening"]["is_evening"]),
        (&json!(true), &json!(false))
    );
    assert!(view["evening"]["timezone"].is_string(), "{view}");
    let (status, _) = admin(
        &pool,
        &pool.admin_key(),
        "POST",
        "/load",
        &json!({"model": "a", "wait": true}),
    );
    assert_eq!(status, 200);
    loop {
        let (name, change) = page.next().unwrap();
        assert_eq!(name, "change");
        let changed = &change["models"]["changed"];
        // The load of a teaches the pool how long b may take; nothing else happens to b.
        for model in changed.as_array().into_iter().flatten() {
            assert!(
                model["model"] != "b" || model["state"] == "cold",
                "{change}"
            );
        }
        take(&mut view, &change);
        if by_name(&view["models"], "model")["a"]["state"] == "ready" {
            break;
        }
    }
    let (_, listed) = admin(&pool, &pool.admin_key(), "GET", "/devices", &Value::Null);
    let holds = |device: &Value| -> Vec<(Value, Value)> {
        let owners = device["owners"].as_array().unwrap().iter();
        owners
            .map(|owner| (owner["replica"].clone(), owner["bytes"].clone()))
            .collect()
    };
    let devices = by_name(&listed["devices"], "device");
    for (name, device) in by_name(&view["devices"], "device") {
        assert_eq!(holds(&device), holds(&devices[&name]), "{name}");
    }
}

#[test]
fn a_stream_ends_when_its_key_is_revoked_and_shows_only_the_keys_models() {
    let pool = pool();
    let (status, made) = admin(
        &pool,
        &pool.admin_key(),
        "POST",
        "/keys",
        &json!({"name": "wall", "role": "viewer"}),
    );
    assert_eq!(status, 200, "{made}");
    let mut page = Page::open(&pool, made["key"].as_str().unwrap());
    assert_eq!(page.next().unwrap().0, "view");
    let some = key(&pool, json!({"role": "admin", "models": ["a"]}));
    let (_, view) = Page::open(&pool, &some).next().unwrap();
    let names = by_name(&view["models"], "model");
    assert_eq!(names.into_keys().collect::<Vec<_>>(), ["a"]);
    let path = format!("/keys?id={}", made["id"].as_str().unwrap());
    assert_eq!(
        admin(&pool, &pool.admin_key(), "DELETE", &path, &Value::Null).0,
        200
    );
    while page.next().is_some() {}
}

#[test]
fn no_stream_outlives_the_key_that_opened_it_whether_busy_or_idle() {
    let pool = pool();
    let viewer = json!({"name": "wall", "role": "viewer"});
    let (status, made) = admin(&pool, &pool.admin_key(), "POST", "/keys", &viewer);
    assert_eq!(status, 200, "{made}");
    let bearer = made["key"].as_str().unwrap();
    let pages: Vec<(&str, Page)> = [
        "/llm/admin/live?events=true",
        "/llm/admin/events?follow=true",
        "/llm/admin/logs?model=a&follow=true",
    ]
    .map(|path| (path, Page::open_at(&pool, path, bearer)))
    .into();
    let path = format!("/keys?id={}", made["id"].as_str().unwrap());
    let (status, _) = admin(&pool, &pool.admin_key(), "DELETE", &path, &Value::Null);
    assert_eq!(status, 200);
    let ended = std::sync::atomic::AtomicUsize::new(0);
    let all = pages.len();
    std::thread::scope(|scope| {
        for (path, mut page) in pages {
            let ended = &ended;
            scope.spawn(move || {
                let began = SystemTime::now();
                while page.line().is_some() {
                    let went = began.elapsed().unwrap_or_default();
                    assert!(went < Duration::from_secs(20), "{path} continues");
                }
                ended.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        // Changes keep occurring during the test.
        for nth in 0.. {
            if ended.load(std::sync::atomic::Ordering::Relaxed) == all || nth == 5000 {
                break;
            }
            let patch = json!({"priority": nth % 2});
            admin(&pool, &pool.admin_key(), "PATCH", "/models?model=a", &patch);
        }
    });
    assert_eq!(ended.into_inner(), all);
}

#[test]
fn a_page_gets_the_view_and_every_decision_over_one_connection() {
    let pool = pool();
    let mut page = Page::open_at(&pool, "/llm/admin/live?events=true", &pool.admin_key());
    assert_eq!(page.next().unwrap().0, "view");
    for nth in 0..50 {
        let patch = json!({"priority": nth});
        let (status, _) = admin(&pool, &pool.admin_key(), "PATCH", "/models?model=a", &patch);
        assert_eq!(status, 200);
    }
    let (mut ids, mut priority) = (Vec::new(), Value::Null);
    while ids.len() < 50 || priority != 49 {
        let (name, data) = page.next().expect("the stream continues");
        match name.as_str() {
            "record" if data["kind"] == "set" => ids.push(data["id"].as_i64().unwrap()),
            // From priority 2 on, the model is also loaded.
            "record" => {}
            "change" => {
                let changed = data["models"]["changed"].as_array().cloned();
                for model in changed.into_iter().flatten() {
                    if model["model"] == "a" {
                        priority = model["priority"].clone();
                    }
                }
            }
            other => panic!("{other}: {data}"),
        }
    }
    assert!(ids.is_sorted() && ids.len() == 50, "{ids:?}");
    let (_, list, _) = pool.request(
        "GET",
        "/llm/admin/events?kind=set&limit=50",
        "",
        Some(&pool.admin_key()),
    );
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut kept: Vec<_> = list["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["id"].as_i64().unwrap())
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, ids, "as the history has them");
}

#[test]
fn pages_that_never_read_use_no_memory_and_block_no_other_page() {
    let pool = pool();
    let asleep: Vec<Page> = (0..50)
        .map(|_| Page::open_at(&pool, "/llm/admin/live?events=true", &pool.admin_key()))
        .collect();
    let before = memory_kib(pool.pid());
    let mut awake = Page::open(&pool, &pool.admin_key());
    assert_eq!(awake.next().unwrap().0, "view");
    for nth in 0..40 {
        let patch = json!({"priority": nth % 2});
        let (status, _) = admin(&pool, &pool.admin_key(), "PATCH", "/models?model=a", &patch);
        assert_eq!(status, 200);
        wait_for("the change on the page", || {
            awake.next().is_some_and(|(_, change)| {
                let changed = change["models"]["changed"].as_array().cloned();
                changed
                    .into_iter()
                    .flatten()
                    .any(|model| model["priority"] == nth % 2)
            })
        });
    }
    let grown = memory_kib(pool.pid()).saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB for {} pages", asleep.len());
}
