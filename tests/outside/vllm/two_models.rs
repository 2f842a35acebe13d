//! Two models of the real engine that exclude each other in one pool: the one of higher priority evicts the other, which
//! ends what it streams first.

use std::time::SystemTime;

use serde_json::Value;

use super::rig::*;

#[test]
fn the_model_of_higher_priority_waits_for_the_streams_of_the_other_and_takes_its_place() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let folder = demo();
    let of = |name, priority| {
        RealModel {
            memory_gib: 3.3,
            pool: priority,
            ..RealModel::new(&environment, name, &folder)
        }
        .file()
    };
    let pool = pool(&[of("low", "priority: 0"), of("high", "priority: 1")]);
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
    wait_long("the other to be ready", WITHIN * 8, || {
        state(&pool, "high") == "ready"
    });
    println!("the other was ready after {:?}", began.elapsed());
    ask(&pool, CHAT, &short("high"));
    let evicted = admin(&pool, "GET", "/llm/admin/events?kind=evict", &Value::Null);
    let evicted = evicted.to_string();
    assert!(
        evicted.contains("preempted by high: priority 1 over 0 (P2)"),
        "{evicted}"
    );
    // The lower one does not come back for a request: it waits, and says for what.
    let plan = admin(
        &pool,
        "POST",
        "/llm/admin/plan",
        &serde_json::json!({"model": "low"}),
    );
    assert!(plan.to_string().contains("high"), "{plan}");
}
