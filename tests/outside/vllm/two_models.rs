//! Two models of the real engine that exclude each other in one pool: the model of higher priority evicts the other, which finishes
//! its streams first and then exits on its own within its grace period. The second has a different name in its engine.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::service::Pool;

use super::requests;
use super::rig::*;

const GRACE: Duration = Duration::from_secs(10);

#[test]
fn a_model_of_higher_priority_waits_for_the_others_streams_and_replaces_it() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let folder = demo();
    let of = |name, priority: u32, engine| {
        let more = format!("priority: {priority}, stop_grace: {}s", GRACE.as_secs());
        let model = RealModel {
            memory_gib: 3.3,
            pool: &more,
            engine,
            ..RealModel::new(&environment, name, &folder)
        };
        model.file()
    };
    let pool = pool(&[of("low", 0, ""), of("high", 1, "served_model_name: guide")]);
    println!("low loaded in {:?}", load(&pool, "low"));
    let stream = pool.stream(CHAT, &long("low", true));
    wait_long("its first token", WITHIN, || {
        stream.text().contains("\"delta\"")
    });
    let began = SystemTime::now();
    order_load(&pool, "high");
    wait_long("the stream to end", WITHIN, || {
        stream.text().contains("[DONE]")
    });
    assert!(!stream.text().contains("\"error\""), "{}", stream.text());
    println!("its stream ended after {:?}", began.elapsed());
    wait_long("its processes to be gone", WITHIN, || {
        state(&pool, "low") == "cold"
    });
    println!("it was gone after {:?}", began.elapsed());
    ended_by_itself(&pool, "low");
    wait_long("the other to be ready", WITHIN * 8, || {
        state(&pool, "high") == "ready"
    });
    println!("the other was ready after {:?}", began.elapsed());
    requests::names(&pool, "high", "guide");
    let evicted = admin(&pool, "GET", "/llm/admin/events?kind=evict", &Value::Null);
    let evicted = evicted.to_string();
    assert!(
        evicted.contains("preempted by high: priority 1 over 0 (P2)"),
        "{evicted}"
    );
    // A request does not bring the lower-priority model back: it waits, and reports the reason.
    let plan = admin(
        &pool,
        "POST",
        "/llm/admin/plan",
        &serde_json::json!({"model": "low"}),
    );
    assert!(plan.to_string().contains("high"), "{plan}");
}

/// SIGTERM was sufficient: the pool has recorded the stop time, and did not kill the engine.
fn ended_by_itself(pool: &Pool, model: &str) {
    let path = format!("/llm/admin/events?kind=gone&model={model}");
    let mut took = None;
    wait_long("the record of its end", WITHIN, || {
        let gone = admin(pool, "GET", &path, &Value::Null);
        took = gone["events"][0]["took_ms"].as_u64();
        took.is_some()
    });
    let took = took.map(Duration::from_millis).expect("it was recorded");
    println!("{model} ended {took:?} after SIGTERM; stop_grace is {GRACE:?}");
    let log = pool.log();
    let is_about_kills = |line: &&str| {
        line.contains("did not end on SIGTERM") || line.contains("cannot kill processes")
    };
    let kills: Vec<&str> = log.lines().filter(is_about_kills).collect();
    assert!(kills.is_empty(), "{kills:#?}");
    assert!(took < GRACE, "{took:?}");
}
