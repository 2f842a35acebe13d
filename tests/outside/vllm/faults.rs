//! The real engine's processes are killed or stopped during requests.

use nix::sys::signal::Signal;
use serde_json::Value;
use support::service::Pool;

use super::rig::*;

fn one_engine(environment: &std::path::Path) -> Pool {
    let folder = demo();
    let model = RealModel {
        pool: "keep_hot: 1h",
        ..RealModel::new(environment, "real", &folder)
    };
    watchful_pool(&[model.file()])
}

#[test]
fn a_killed_core_is_detected_and_requests_are_retried_or_refused_with_the_reason() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let pool = one_engine(&environment);
    load(&pool, "real");
    let body = short("real").to_string();
    let asked = pool.stream(CHAT, &long("real", true));
    wait_long("the first token", WITHIN, || {
        asked.text().contains("\"delta\"")
    });
    let core = core(&pool);
    // A stopped engine accepts a request without a response; then it exits.
    signal(core, Signal::SIGSTOP);
    let waiting = pool.stream(CHAT, &body);
    wait_long("the second request to be there", WITHIN, || {
        admin(&pool, "GET", "/llm/admin/models?model=real", &Value::Null)
            .to_string()
            .contains("\"in_flight\":2")
    });
    signal(core, Signal::SIGKILL);
    wait_long("the stream to end", WITHIN, || {
        asked.text().contains("\"error\"")
    });
    assert!(!asked.text().contains("[DONE]"), "{}", asked.text());
    wait_long("the crash to be logged", WITHIN, || {
        pool.log().contains("crash real (r1)")
    });
    // It crashed soon after it was ready and cools down, so the request cannot be placed again.
    wait_long("the other request to end", WITHIN, || {
        !waiting.text().is_empty()
    });
    let text = waiting.text();
    assert!(text.contains("engine_crashed"), "{text}");
    assert!(!text.contains("See stack trace"), "{text}");
    // Every line of the log comes from the service.
    for line in pool.log().lines() {
        assert!(line.starts_with("20") || line.trim().is_empty(), "{line}");
    }
    let (status, text, head) = pool.request("POST", CHAT, &body, None);
    assert!(
        status == 503 && head.contains("retry-after:"),
        "{status} {head} {text}"
    );
    nothing_is_left(&pool);
    // Administrators need not wait for the cool-down.
    load(&pool, "real");
    ask(&pool, CHAT, &short("real"));
}

#[test]
fn a_frozen_core_and_a_frozen_server_are_found_by_their_silence() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    for stopped in ["core", "server"] {
        let pool = one_engine(&environment);
        load(&pool, "real");
        let streamed = pool.stream(CHAT, &long("real", true));
        let plain = pool.stream(CHAT, &long("real", false));
        wait_long("both to be computed", WITHIN, || running(&pool) >= 2.0);
        wait_long("the first token", WITHIN, || {
            streamed.text().contains("\"delta\"")
        });
        let began = std::time::SystemTime::now();
        signal(
            match stopped {
                "core" => core(&pool),
                _ => server(&pool),
            },
            Signal::SIGSTOP,
        );
        wait_long("the stream to end", WITHIN, || {
            streamed.text().contains("\"error\"")
        });
        println!("{stopped} stopped: found after {:?}", began.elapsed());
        wait_long("the plain request to end", WITHIN, || {
            !plain.text().is_empty()
        });
        let text = plain.text();
        assert!(text.contains("\"error\""), "{stopped}: {text}");
        nothing_is_left(&pool);
        let log = pool.log();
        assert!(
            !log.contains("cannot kill"),
            "{stopped}: a process was not reached: {log}"
        );
    }
}

fn nothing_is_left(pool: &Pool) {
    wait_long("its processes to be gone", WITHIN, || {
        pool.engine_pids().is_empty()
    });
}
