//! The complete life of a real engine under the pool: requests of every kind, clients that disconnect, new controllers by adoption
//! and by takeover, a thousand requests within its reservation, and its eviction for a model of higher priority.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::service::{Pool, wait_for};
use support::vllm_script;

use super::requests;
use super::rig::*;

/// The demo model with a template for tools in Hermes format.
fn with_tools(folder: &Path) {
    copy_folder(&demo(), folder);
    let template = "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}{% endfor %} Answer with <tool_call>{\"name\": …, \"arguments\": …}</tool_call><|im_end|>\n{% endif %}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    std::fs::write(folder.join("chat_template.jinja"), template).expect("written");
}

#[test]
fn vllm_serves_in_the_pool_as_documented() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    with_tools(folder.path());
    let mut pool = pool(&[
        RealModel {
            pool: "keep_hot: 1h",
            ..RealModel::new(&environment, "real", folder.path())
        }
        .file(),
        embedded("embedded", &demo(), 512, "memory_gib: 0.06"),
        embedded("urgent", &demo(), 512, "memory_gib: 3, priority: 1"),
    ]);
    println!("loaded in {:?}", load(&pool, "real"));
    let at_start = resident(&pool);
    let mut parts = Parts::default();
    parts.run("stages", || stages(&pool));
    load(&pool, "embedded");
    parts.run("same text", || same_text(&pool));
    parts.run("script", || vllm_script::run(&pool, "real"));
    requests::run(&pool, "real", &mut parts);
    parts.run("seats", || its_seats(&pool));
    parts.run("leaving", || leaving(&pool));
    parts.run("a thousand requests", || {
        a_thousand_requests(&pool, at_start)
    });
    parts.run("adopted", || adopted(&mut pool));
    parts.run("taken over", || taken_over(&mut pool));
    parts.run("evicted", || evicted(&pool));
}

fn evicted(pool: &Pool) {
    // The pool has 5 GiB, so one model must be evicted.
    let began = std::time::SystemTime::now();
    ask(pool, CHAT, &short("urgent"));
    println!("evicted and answered in {:?}", began.elapsed());
    let path = "/llm/admin/events?kind=evict";
    let evicted = admin(pool, "GET", path, &Value::Null).to_string();
    assert!(
        evicted.contains("preempted by urgent: priority 1 over 0 (P2)"),
        "{evicted}"
    );
    wait_long("its processes to be gone", WITHIN, || {
        pool.engine_pids().len() <= 2
    });
}

/// The engine's log determined the stages of the load, and the weights were counted to the last.
fn stages(pool: &Pool) {
    let log = admin(
        pool,
        "GET",
        "/llm/admin/logs?model=real&tail=500",
        &Value::Null,
    );
    let lines = log["lines"].as_array().into_iter().flatten();
    let lines: Vec<&str> = lines.filter_map(|line| line["line"].as_str()).collect();
    let engine = model_pool::catalog::find_engine("VLLMEngine").expect("vLLM");
    let stages: Vec<_> = lines.iter().copied().filter_map(engine.stage).collect();
    let mut names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
    names.dedup();
    println!("stages of a load: {names:?}");
    for name in [
        "reading weights",
        "making the cache",
        "warming up",
        "starting the server",
    ] {
        assert!(names.contains(&name), "no {name} in {names:?}: {lines:#?}");
    }
    let percents_of = |name: &str| -> Vec<u8> {
        let of_stage = stages.iter().filter(|stage| stage.name == name);
        of_stage.filter_map(|stage| stage.percent).collect()
    };
    for name in &names {
        let percents = percents_of(name);
        assert!(percents.is_sorted(), "{name} fell: {percents:?}");
    }
    let read = percents_of("reading weights");
    println!("reading weights, in per cent: {read:?}");
    assert_eq!(read.first(), Some(&0), "{lines:#?}");
    assert_eq!(read.last(), Some(&100), "{lines:#?}");
}

/// With greedy decoding, the first tokens of both engines are equal.
fn same_text(pool: &Pool) {
    for (path, asked) in [
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "What is keep-hot?"}]}),
        ),
        ("/v1/completions", json!({"prompt": "A model pool is"})),
    ] {
        let text = |model: &str| {
            let mut body = asked.clone();
            for (key, value) in [
                ("model", json!(model)),
                ("max_tokens", json!(24)),
                ("temperature", json!(0)),
            ] {
                body[key] = value;
            }
            let response = ask(pool, path, &body);
            let choice = &response["choices"][0];
            let content = [&choice["message"]["content"], &choice["text"]];
            let content = content.into_iter().find_map(Value::as_str);
            (
                content.unwrap_or_default().to_owned(),
                response["usage"]["completion_tokens"].clone(),
            )
        };
        assert_eq!(text("real"), text("embedded"), "{path}");
    }
}

/// `max_ongoing_requests` is the number of sequences that it computes simultaneously.
fn its_seats(pool: &Pool) {
    assert_eq!(
        argument(server(pool), "--max-num-seqs").as_deref(),
        Some("4")
    );
    let streams: Vec<_> = (0..6)
        .map(|_| pool.stream(CHAT, &long("real", true)))
        .collect();
    // The gate has four seats, which makes the others wait in the pool's queue instead of the engine's.
    wait_long("four to be computed and two to wait", WITHIN, || {
        let queue = admin(pool, "GET", "/llm/admin/queue", &Value::Null).to_string();
        queue.contains("\"real\"") && running(pool) >= 4.0
    });
    assert_eq!(number(pool, "vllm:num_requests_waiting"), 0.0);
    drop(streams);
    wait_long("the engine to stop", WITHIN, || running(pool) == 0.0);
}

/// A client that disconnects leaves no work behind, plain or streamed.
fn leaving(pool: &Pool) {
    for stream in [true, false] {
        // On a fast machine a response may end before its counter has been read often enough.
        let seen = (0..5).any(|_| leaves_while_it_is_computed(pool, stream));
        assert!(seen, "each answer was over too soon");
    }
}

/// Returns false if the response ended before its client could disconnect.
fn leaves_while_it_is_computed(pool: &Pool, stream: bool) -> bool {
    let generated = || number(pool, "vllm:generation_tokens_total");
    let before = generated();
    let response = pool.stream(CHAT, &long("real", stream));
    let is_over = || response.text().contains("\"usage\"") || response.text().contains("[DONE]");
    wait_long("the engine to compute it", WITHIN, || {
        is_over() || running(pool) >= 1.0
    });
    // The counter that shows the pool the progress of a request without a stream.
    let mut steps = std::collections::BTreeSet::new();
    wait_long("its counter to move token by token", WITHIN, || {
        steps.insert((generated() - before) as u64);
        is_over() || steps.len() >= 4
    });
    let left = !is_over();
    drop(response);
    wait_long("the engine to stop", WITHIN, || running(pool) == 0.0);
    left
}

/// It uses no more than its reservation, and after a thousand requests not much more than after a hundred.
fn a_thousand_requests(pool: &Pool, at_start: u64) {
    let reserved = 4_u64 << 30;
    let ask_many = |count: usize| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..count / 4 {
                        ask(pool, CHAT, &short("real"));
                    }
                });
            }
        });
        resident(pool)
    };
    let early = ask_many(100);
    let late = ask_many(900);
    let mebibytes = |bytes: u64| bytes >> 20;
    println!(
        "memory in MiB: {} reserved, {} at the start, {} after 100 requests, {} after 1,000",
        mebibytes(reserved),
        mebibytes(at_start),
        mebibytes(early),
        mebibytes(late)
    );
    assert!(late <= reserved, "{late} bytes of {reserved}");
    assert!(late <= early + early / 20, "it grew from {early} to {late}");
}

/// A killed controller leaves the engine to the next one, which serves immediately. Its streams end, and the engine stops computing
/// them.
fn adopted(pool: &mut Pool) {
    let before = pool.engine_pids();
    let processes = [server(pool), core(pool)];
    let stream = pool.stream(CHAT, &long("real", true));
    wait_long("its first token", WITHIN, || {
        stream.text().contains("\"delta\"")
    });
    // A fast machine would end the stream before its controller is gone, so all processes of the engine are stopped, including
    // the sending process.
    for process in processes {
        signal(process, Signal::SIGSTOP);
    }
    pool.kill();
    for process in processes {
        signal(process, Signal::SIGCONT);
    }
    let began = std::time::SystemTime::now();
    pool.restart();
    wait_for("the adoption", || state(pool, "real") == "ready");
    println!("adopted after {:?}", began.elapsed());
    assert_eq!(pool.engine_pids(), before);
    let text = stream.text();
    assert!(
        !text.contains("[DONE]"),
        "its controller was killed: {text}"
    );
    wait_long("the engine to stop", WITHIN, || running(pool) == 0.0);
    ask(pool, CHAT, &short("real"));
}

/// A new controller takes over while the old one continues a stream to its end.
fn taken_over(pool: &mut Pool) {
    let before = pool.engine_pids();
    let stream = pool.stream(CHAT, &long("real", true));
    wait_long("its first token", WITHIN, || {
        stream.text().contains("\"delta\"")
    });
    let mut old = pool.take_over();
    ask(pool, CHAT, &short("real"));
    wait_long("the stream to end", WITHIN, || {
        stream.text().contains("[DONE]")
    });
    let text = stream.text();
    assert!(!text.contains("\"error\""), "{text}");
    assert!(text.contains("\"finish_reason\":\"length\""), "{text}");
    assert_eq!(pool.engine_pids(), before);
    wait_long("the old one to end", Duration::from_secs(60), || {
        old.try_wait().expect("its status").is_some()
    });
}
