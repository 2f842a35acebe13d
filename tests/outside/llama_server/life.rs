//! The real llama-server while its controller is killed or replaced, and while it is stopped.

use std::time::Duration;

use nix::sys::signal::Signal;
use support::service::{Pool, wait_for};

use super::ONLY_MODEL;
use super::disconnects::{computed, endless, endless_pool, engine};
use crate::vllm::rig::*;

fn adopting(files: &[(String, String)]) -> Pool {
    Pool::that_adopts_on_devices(files, ONLY_MODEL, "2m")
}

/// An endless response that has begun.
fn begun(pool: &Pool) -> support::service::Stream {
    let stream = pool.stream(CHAT, &endless(true).to_string());
    wait_long("its first token", WITHIN, || {
        stream.text().contains("\"content\":\"")
    });
    stream
}

#[test]
fn after_a_controller_is_killed_the_next_one_adopts_llama_server_and_old_streams_end() {
    let Some((mut pool, _folder)) = endless_pool(adopting) else {
        return;
    };
    let before = pool.engine_pids();
    let stream = begun(&pool);
    pool.kill();
    pool.restart();
    wait_for("the adoption", || state(&pool, "real") == "ready");
    assert_eq!(pool.engine_pids(), before);
    let text = stream.text();
    assert!(
        !text.contains("[DONE]"),
        "its controller was killed: {text}"
    );
    wait_long("the engine to stop", WITHIN, || computed(&pool) == 0.0);
    ask(&pool, CHAT, &short("real"));
}

#[test]
fn a_llama_server_stream_continues_while_another_controller_takes_over() {
    let Some((mut pool, _folder)) = endless_pool(adopting) else {
        return;
    };
    let before = pool.engine_pids();
    let stream = begun(&pool);
    let mut old = pool.take_over();
    ask(&pool, CHAT, &short("real"));
    let length = stream.text().len();
    wait_long("more of the stream", WITHIN, || {
        let text = stream.text();
        assert!(!text.contains("\"error\""), "{text}");
        text.len() > length
    });
    assert_eq!(pool.engine_pids(), before);
    // The old process serves it until its client disconnects.
    drop(stream);
    wait_long("the old one to end", Duration::from_secs(60), || {
        old.try_wait().expect("its status").is_some()
    });
    wait_long("the engine to stop", WITHIN, || computed(&pool) == 0.0);
    ask(&pool, CHAT, &short("real"));
}

#[test]
fn a_frozen_llama_server_is_found_by_its_silence_and_replaced() {
    let Some((pool, _folder)) = endless_pool(|files| Pool::with_devices(files, ONLY_MODEL)) else {
        return;
    };
    let streamed = begun(&pool);
    let plain = pool.stream(CHAT, &endless(false).to_string());
    wait_long("both to be computed", WITHIN, || computed(&pool) >= 2.0);
    let stopped = engine(&pool);
    signal(stopped, Signal::SIGSTOP);
    wait_long("the stream to end", WITHIN, || {
        streamed.text().contains("\"error\"")
    });
    assert!(!streamed.text().contains("[DONE]"));
    wait_long("the plain request to end", WITHIN, || {
        plain.text().contains("\"error\"")
    });
    wait_long("its processes to be gone", WITHIN, || {
        !pool.engine_pids().contains(&stopped)
    });
    // Administrators need not wait for the cool-down.
    load(&pool, "real");
    ask(&pool, CHAT, &short("real"));
}
