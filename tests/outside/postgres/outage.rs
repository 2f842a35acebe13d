//! The real program with its state in PostgreSQL, while PostgreSQL is unavailable: models are served, administrators' changes are
//! refused with the reason, acknowledged changes hold, and the service recovers automatically.

use std::fs;
use std::time::Duration;

use support::family::{Family, asks, chat, reasons, shown, stub};
use support::postgres::{PASSWORD, Server};
use support::service::{Pool, wait_for};

/// Time limit of a write.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

fn pool_on(url: &str) -> Pool {
    let talk = ["--tokens", "400", "--token-ms", "20"];
    let models = [stub("a", &[]), stub("b", &talk), stub("c", &[])];
    let env = [("MODEL_POOL__STATE__DATABASE_URL", url)];
    Pool::with_env(&models, "pool: {keep_hot: 5m}\n", &env)
}

/// All files in the service's folder, and the environments of its engines.
fn written(pool: &Pool) -> String {
    let mut text = pool.log();
    let mut folders = vec![pool.data()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => text += &String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()),
            }
        }
    }
    for pid in Family::new(pool).alive() {
        for part in ["environ", "cmdline"] {
            let bytes = fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
            text += &String::from_utf8_lossy(&bytes);
        }
    }
    text
}

#[test]
fn while_postgresql_is_down_models_are_served_and_acknowledged_changes_are_kept() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let mut pool = pool_on(&url);
    let old = pool.new_key("old").1;
    assert!(pool.accepts(&old));
    assert_eq!(pool.set_priority("a", 1).0, 200);
    assert_eq!(asks(&pool, "a").0, 200);
    let stream = pool.stream("/v1/chat/completions", &chat("b", true));
    wait_for("the first chunk", || stream.text().contains("data: "));

    server.crash();
    wait_for("it to be noticed", || pool.ready().0 == 503);
    // A cold model is also loaded: no request needs the store.
    for _ in 0..20 {
        assert_eq!(asks(&pool, "a").0, 200);
    }
    assert_eq!(asks(&pool, "c").0, 200);
    let (status, refused) = pool.new_key("lost");
    assert_eq!(status, 503, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("check that PostgreSQL runs at"),
        "{message}"
    );
    let (status, text) = pool.set_priority("a", 2);
    assert_eq!(status, 503, "{text}");
    assert_eq!(text["error"]["code"], "not_saved", "{text}");
    assert_eq!(shown(&pool, "a")["priority"], 1);
    let path = format!("/llm/admin/keys?id={}", old["id"].as_str().unwrap());
    assert_eq!(pool.admin_text("DELETE", &path, "").0, 503);
    assert_eq!(pool.admin_text("GET", "/llm/admin/events", "").0, 503);
    assert!(pool.accepts(&old), "it was not revoked");
    assert!(stream.whole().contains("[DONE]"), "{}", stream.text());

    server.run();
    wait_for("it to recover automatically", || pool.ready().0 == 200);
    let log = pool.log();
    assert_eq!(
        log.matches("the state cannot be written").count(),
        1,
        "{log}"
    );
    assert_eq!(
        log.matches("the state can be written again").count(),
        1,
        "{log}"
    );
    let (status, new) = pool.new_key("new");
    assert_eq!(status, 200, "{new}");
    assert_eq!(pool.set_priority("a", 3).0, 200);
    wait_for("the events of that time to be in the history", || {
        !reasons(&pool, "load").is_empty() && !reasons(&pool, "set").is_empty()
    });
    let loads = |model: &str| {
        let path = format!("/llm/admin/events?kind=load&model={model}");
        let (_, events) = pool.admin_text("GET", &path, "");
        events["events"].as_array().map_or(0, Vec::len)
    };
    wait_for("the load of that time to be in the history", || {
        loads("c") == 1
    });

    let text = written(&pool);
    assert!(
        text.contains("the state cannot be written"),
        "the log is among it"
    );
    assert!(!text.contains(PASSWORD), "the password was written");
    let (_, config) = pool.admin_text("GET", "/llm/admin/config", "");
    assert!(config.to_string().contains("pool:…@"), "{config}");
    assert!(!config.to_string().contains(PASSWORD), "{config}");

    pool.kill_and_restart();
    assert!(pool.accepts(&new) && pool.accepts(&old));
    assert_eq!(shown(&pool, "a")["priority"], 3);
    assert_eq!(asks(&pool, "a").0, 200);
    // A takeover on the same machine transfers the lock.
    let mut old_process = pool.take_over();
    assert_eq!(asks(&pool, "a").0, 200);
    assert_eq!(pool.set_priority("a", 4).0, 200);
    wait_for("the old process to end", || {
        old_process.try_wait().unwrap().is_some()
    });
    assert!(!pool.log().contains("cannot be written"), "{}", pool.log());
}

#[test]
fn a_start_without_postgresql_names_the_problem_and_a_second_service_is_refused() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let pool = pool_on(&url);
    let (status, log) = Pool::refused(&format!(
        "server: {{listen: \"127.0.0.1:0\"}}\nstate: {{dir: {:?}, database_url: \"{url}\"}}\n",
        pool.folder().join("other")
    ));
    assert_eq!(status, Some(1), "{log}");
    assert!(
        log.contains("is in use by another model-pool (model-pool "),
        "{log}"
    );
    assert!(!log.contains(PASSWORD), "{log}");
    drop(pool);
    server.crash();
    let folder = tempfile::tempdir().unwrap();
    let (status, log) = Pool::refused(&format!(
        "server: {{listen: \"127.0.0.1:0\"}}\nstate: {{dir: {:?}, database_url: \"{url}\"}}\n",
        folder.path().join("data")
    ));
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("check that PostgreSQL runs there"), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
}

#[test]
fn no_request_fails_during_a_short_postgresql_outage() {
    let Some(server) = Server::start() else {
        return;
    };
    let seconds: u64 = std::env::var("POSTGRES_AWAY_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(15);
    let pool = pool_on(&server.database());
    assert_eq!(asks(&pool, "a").0, 200);
    assert_eq!(pool.set_priority("a", 1).0, 200);
    server.freeze();
    let began = std::time::SystemTime::now();
    let (mut responded, mut slowest) = (0_u32, Duration::ZERO);
    while began.elapsed().unwrap() < Duration::from_secs(seconds) {
        let asked = std::time::SystemTime::now();
        assert_eq!(asks(&pool, "a").0, 200);
        slowest = slowest.max(asked.elapsed().unwrap());
        responded += 1;
    }
    // No request waits longer than two writes may take, and requests that wait together are refused together.
    let asked = std::time::SystemTime::now();
    let refused = std::thread::scope(|scope| {
        let orders: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| pool.set_priority("a", 2)))
            .collect();
        orders
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let refused_after = asked.elapsed().unwrap();
    for (status, text) in &refused {
        assert_eq!(*status, 503, "{text}");
        assert_eq!(text["error"]["code"], "not_saved", "{text}");
    }
    assert!(refused_after < WRITE_WITHIN * 2, "{refused_after:?}");
    server.thaw();
    let thawed = std::time::SystemTime::now();
    wait_for("it to recover automatically", || {
        pool.ready().0 == 200 && pool.set_priority("a", 3).0 == 200
    });
    println!(
        "PostgreSQL stood still for {seconds} s: {responded} requests answered, 0 lost, the slowest {slowest:.1?}; \
         five orders were refused after {refused_after:.1?}; orders were taken again {:.1?} after it went on",
        thawed.elapsed().unwrap()
    );
    assert_eq!(shown(&pool, "a")["priority"], 3);
    assert!(!pool.log().contains(PASSWORD));
}
