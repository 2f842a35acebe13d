//! The cost of a request before it gets a seat: on every route and in every dialect, seeded bodies that are as expensive to read as
//! possible. Processor time and memory are proportional to the body's bytes with a small factor, memory is returned, and the
//! service serves other requests in this time.

mod bodies;
mod grammars;
mod scene;
use support::stub as stub_program;

use std::time::Duration;

use bodies::{ROUTES, Route, hostile, plain};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use scene::{Cost, Watch, measure, pool, resident_bytes, send, stub};
use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const SEED: u64 = 0x6d6f_6465_6c70_6f6f;
const MIB: u64 = 1 << 20;
/// Length of every body but the largest ones.
const BYTES: usize = 512 << 10;
/// `server.body_limit`, less room for the enclosing object.
const LARGEST_BYTES: usize = (10 << 20) - (64 << 10);
/// Permitted multiple of the time for plain text of the same length.
const TIMES_PLAIN: u32 = 5;
/// Always permitted cost per MiB: plain text takes one clock tick.
const FLOOR_PER_MIB: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 600 } else { 30 });
const TIMES_BYTES: u64 = 8;
/// Additional permitted memory growth, for the allocator.
const GROWTH_FREE: u64 = 48 * MIB;
const KEPT_FREE: u64 = 96 * MIB;
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Nine of ten health checks finish within this time.
const WELL_WITHIN: Duration = Duration::from_millis(50);
/// Time limit of every health check, for a busy machine.
const WELL_ALWAYS: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 1500 } else { 500 });

fn per_mib(cost: &Cost, bytes: usize) -> Duration {
    cost.processor.mul_f64(MIB as f64 / bytes as f64)
}

/// The time of a plain text on this route: the median of three.
fn plain_per_mib(pool: &Pool, watch: &Watch, route: &Route, key: &str, bytes: usize) -> Duration {
    let body = plain(route, bytes);
    let mut taken: Vec<Duration> = (0..3)
        .map(|_| per_mib(&measure(pool, watch, route, key, &body), body.len()))
        .collect();
    taken.sort();
    taken[1]
}

/// The excess in the cost of a body, if any.
fn flaw(cost: &Cost, bytes: usize, most_per_mib: Duration) -> Option<String> {
    let per_mib = per_mib(cost, bytes);
    let most_growth = TIMES_BYTES * bytes as u64 + GROWTH_FREE;
    if !(200..500).contains(&cost.status) {
        return Some(format!(
            "is answered with {}: {}",
            cost.status, cost.message
        ));
    }
    if cost.status >= 400 && cost.response_bytes > RESPONSE_BYTES_MAX {
        return Some(format!("is refused in {} bytes", cost.response_bytes));
    }
    if per_mib > most_per_mib {
        return Some(format!(
            "takes {per_mib:?} of a processor for each MiB; allowed: {most_per_mib:?}"
        ));
    }
    (cost.growth_bytes > most_growth).then(|| {
        format!(
            "takes {} KiB of memory; allowed: {} KiB",
            cost.growth_bytes >> 10,
            most_growth >> 10
        )
    })
}

/// Sends all hostile bodies of one route; returns the faults.
fn tried(
    pool: &Pool,
    watch: &Watch,
    route: &Route,
    bytes: usize,
    chance: &mut Pcg64,
) -> Vec<String> {
    let key = pool.admin_key();
    let most = plain_per_mib(pool, watch, route, &key, bytes) * TIMES_PLAIN;
    let most = most.max(FLOOR_PER_MIB);
    let mut wrong = Vec::new();
    for (kind, body) in hostile(route, bytes, chance) {
        let once = || {
            let cost = measure(pool, watch, route, &key, &body);
            if std::env::var_os("HOSTILE_SHOW").is_some() {
                println!(
                    "{:>4} {:>6} ms {:>7} KiB {:>6} KiB sent  {} {kind}",
                    cost.status,
                    cost.processor.as_millis(),
                    cost.growth_bytes >> 10,
                    body.len() >> 10,
                    route.path
                );
            }
            flaw(&cost, body.len().max(bytes), most)
        };
        // A busy machine may be slow; a real fault repeats.
        if let Some(flaw) = once().and_then(|_| once()).and_then(|_| once()) {
            wrong.push(format!("{} {}: {kind}: {flaw}", route.method, route.path));
        }
    }
    wrong
}

/// Loads the models, and warms up the pools of threads, buffers and connections.
fn warmed(bytes: usize) -> Pool {
    let pool = pool();
    let key = pool.admin_key();
    for model in ["talker", "ruled", "tiny"] {
        let body = json!({"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]});
        let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
        assert_eq!(status, 200, "{text}");
    }
    for route in ROUTES {
        send(&pool, route, &key, &plain(route, bytes));
    }
    pool
}

fn stays_well(watch: &Watch, plain: Duration) {
    let waits = watch.waits();
    assert!(waits.len() > 20, "only {} health checks", waits.len());
    let (most, last) = (waits[waits.len() * 9 / 10], waits[waits.len() - 1]);
    println!(
        "{} health checks, nine of ten within {most:?}, all within {last:?}",
        waits.len()
    );
    assert!(
        most <= WELL_WITHIN.max(plain * 3),
        "nine of ten within {most:?}; plain texts: {plain:?}"
    );
    assert!(last <= WELL_ALWAYS, "not well for {last:?}");
}

/// 90th percentile of health check times while plain texts are read.
fn well_with_plain(pool: &Pool, watch: &Watch, bytes: usize) -> Duration {
    let (key, body) = (pool.admin_key(), plain(&ROUTES[0], bytes));
    watch.waits();
    for _ in 0..10 {
        measure(pool, watch, &ROUTES[0], &key, &body);
    }
    let waits = watch.waits();
    waits[waits.len() * 9 / 10]
}

fn comes_back(pool: &Pool, before: u64) {
    let mut kept = 0;
    let mut tries = 0;
    wait_for("the memory to come back", || {
        kept = resident_bytes(pool.pid()).saturating_sub(before);
        tries += 1;
        kept <= KEPT_FREE || tries > 500
    });
    println!("{} KiB more than before are kept", kept >> 10);
    assert!(kept <= KEPT_FREE, "{} KiB more than before", kept >> 10);
    let log = pool.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn every_route_uses_at_most_a_few_times_the_memory_of_a_plain_text_body() {
    let _alone = super::ALONE.blocking_lock();
    let pool = warmed(BYTES);
    let before = resident_bytes(pool.pid());
    let watch = Watch::new(&pool);
    let plain = well_with_plain(&pool, &watch, BYTES);
    let mut chance = Pcg64::seed_from_u64(SEED);
    let wrong: Vec<String> = ROUTES
        .iter()
        .flat_map(|route| tried(&pool, &watch, route, BYTES, &mut chance))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of them:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    stays_well(&watch, plain);
    drop(watch);
    comes_back(&pool, before);
}

#[test]
fn many_largest_bodies_together_use_at_most_a_few_times_their_size() {
    let _alone = super::ALONE.blocking_lock();
    let pool = warmed(LARGEST_BYTES);
    let (before, key) = (resident_bytes(pool.pid()), pool.admin_key());
    let watch = Watch::new(&pool);
    let plain = well_with_plain(&pool, &watch, LARGEST_BYTES);
    let mut chance = Pcg64::seed_from_u64(SEED);
    for path in ["/v1/messages", "/v1/embeddings"] {
        let route = ROUTES
            .iter()
            .find(|route| route.path == path)
            .expect("a route");
        let all = hostile(route, LARGEST_BYTES, &mut chance).into_iter();
        // Half of them, because each takes a second without optimisation.
        let all: Vec<_> = all.step_by(2).collect();
        for together in all.chunks(4) {
            let resident = watch.forget_peak(pool.pid());
            std::thread::scope(|scope| {
                for (kind, body) in together {
                    let (pool, key) = (&pool, &key);
                    scope.spawn(move || {
                        let (status, response) = send(pool, route, key, body);
                        let shown = String::from_utf8_lossy(&response[..response.len().min(600)]);
                        assert!(
                            (200..500).contains(&status),
                            "{path} {kind}: {status} {shown}"
                        );
                    });
                }
            });
            let bytes: usize = together.iter().map(|(_, body)| body.len()).sum();
            let most = TIMES_BYTES * bytes as u64 + GROWTH_FREE;
            let grown = watch.peak().saturating_sub(resident);
            let kinds: Vec<&str> = together.iter().map(|(kind, _)| *kind).collect();
            assert!(
                grown <= most,
                "{path} {kinds:?}: {} KiB; allowed: {} KiB",
                grown >> 10,
                most >> 10
            );
        }
    }
    stays_well(&watch, plain);
    drop(watch);
    comes_back(&pool, before);
}

#[test]
fn the_number_of_answers_in_one_request_is_limited() {
    let _alone = super::ALONE.blocking_lock();
    let pool = pool();
    let prompts = vec!["Hi"; 64];
    for model in ["talker", "tiny"] {
        let body = json!({"model": model, "prompt": prompts, "best_of": 20, "max_tokens": 1});
        let (status, text) = pool.post("/v1/completions", &body.to_string());
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!(
            (status, &error["error"]["param"]),
            (400, &json!("best_of")),
            "{text}"
        );
        assert!(
            text.contains("1280 answers") && text.contains("may ask for 256"),
            "{text}"
        );
    }
}

#[test]
fn an_endless_engine_event_is_an_error_and_uses_bounded_memory() {
    let _alone = super::ALONE.blocking_lock();
    let endless = stub("endless", ", \"--raw\", \"endless-event\"", "");
    let pool = Pool::with_models(&[endless], "");
    let watch = Watch::new(&pool);
    let before = watch.forget_peak(pool.pid());
    for stream in [false, true] {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let body = json!({"model": "endless", "stream": stream, "messages": messages});
        let (_, text) = pool.post("/v1/chat/completions", &body.to_string());
        assert!(
            text.contains("the engine sent an event longer than 8 MiB"),
            "{text}"
        );
    }
    let grown = watch.peak().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} KiB", grown >> 10);
}

#[test]
fn a_clients_schema_is_followed_or_refused_and_is_never_an_engine_error() {
    let _alone = super::ALONE.blocking_lock();
    let pool = pool();
    let wide = |count: usize| {
        let property = |nth: usize| (format!("property_{nth}"), json!({"type": "integer"}));
        json!({"type": "object", "properties": (0..count).map(property).collect::<serde_json::Map<_, _>>()})
    };
    for (name, schema) in [
        ("500", wide(500)),
        ("1500", wide(1500)),
        ("2000", wide(2000)),
        ("9000", wide(9000)),
    ] {
        let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let body = json!({"model": "tiny", "messages": messages, "response_format": format, "max_tokens": 40});
        let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
        assert!([200, 400].contains(&status), "{name}: {status} {text}");
        assert!(status == 200 || text.contains("at most"), "{name}: {text}");
    }
}
