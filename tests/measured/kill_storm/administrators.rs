//! An administrator of models: loads, unloads, priorities, keep-hot times, leases, cleanups. Records acknowledged changes, and
//! compares them with the service after each start and takeover.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::service::ADMIN_MODELS;
use super::world::{World, add};

/// Time limit for a requested model to be ready again.
const READY_MAX: Duration = Duration::from_secs(40);
/// The precision with which a lease's end is known from outside.
const SLACK_MS: i64 = 3_000;

/// The values that the service may report: the acknowledged value, and the values of requests without a response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PossibleValues<T> {
    known: T,
    perhaps: Vec<T>,
}

impl<T: Clone + PartialEq> PossibleValues<T> {
    pub fn known(&self) -> &T {
        &self.known
    }

    pub fn is_known(&self) -> bool {
        self.perhaps.is_empty()
    }

    pub fn asked(&mut self, new: T) {
        self.perhaps.push(new);
    }

    pub fn acknowledged(&mut self, new: T) {
        self.known = new;
        self.perhaps.clear();
    }

    /// The last request had no effect; earlier ones may have had.
    pub fn refused(&mut self) {
        self.perhaps.pop();
    }

    /// Returns true if this value is possible, and records it as the known one.
    pub fn settles(&mut self, is: impl Fn(&T) -> bool) -> bool {
        let perhaps = std::mem::take(&mut self.perhaps);
        if is(&self.known) {
            return true;
        }
        let found = perhaps.into_iter().rev().find(is);
        let may_be = found.is_some();
        self.known = found.unwrap_or_else(|| self.known.clone());
        may_be
    }
}

#[derive(Default)]
struct Book {
    /// The model's override, as the API shows it.
    over: PossibleValues<Value>,
    wished: PossibleValues<bool>,
    /// Start of the last acknowledged load request, as Unix time in milliseconds. A request without a response may have had no
    /// effect, so an eviction before it also ends the acknowledged load.
    loaded_at: i64,
}

/// The remaining time of the override's lease, in milliseconds.
fn left_of(over: &Value) -> Option<i64> {
    let text = over["expires_at"].as_str()?;
    let end = chrono::DateTime::parse_from_rfc3339(text).ok()?;
    Some(end.timestamp_millis() - chrono::Utc::now().timestamp_millis())
}

/// Returns true if the service shows this override. The end of a lease removes all of it.
fn is_override(expected: &Value, shown: &Value) -> bool {
    let left = left_of(expected);
    let same = match (
        expected["expires_at"].as_str(),
        shown["expires_at"].as_str(),
    ) {
        // Without a response, its end is unknown.
        (Some("unknown"), Some(_)) => {
            expected["priority"] == shown["priority"]
                && expected["keep_hot_ms"] == shown["keep_hot_ms"]
        }
        _ => expected == shown,
    };
    match left {
        Some(left) if left < -SLACK_MS => shown.is_null(),
        Some(left) if left < SLACK_MS => same || shown.is_null(),
        _ => same || (expected["expires_at"] == "unknown" && shown.is_null()),
    }
}

pub fn change_until_the_end(world: &World, mut random: StdRng) {
    let mut books: Vec<Book> = ADMIN_MODELS.iter().map(|_| Book::default()).collect();
    let mut seen = 0;
    while !world.is_over() && world.is_whole() {
        if world.quiet.load(Ordering::SeqCst) {
            add(&world.waiting);
            while world.quiet.load(Ordering::SeqCst) && !world.is_over() {
                world.pause(20);
            }
            world.waiting.fetch_sub(1, Ordering::SeqCst);
            // A cleanup has removed every load.
            books
                .iter_mut()
                .for_each(|book| book.wished.acknowledged(false));
        }
        let serving = world.serving.load(Ordering::SeqCst);
        if seen != serving && compares(world, &mut books) {
            seen = serving;
            add(&world.tally.compared);
        }
        let nth = random.random_range(0..ADMIN_MODELS.len());
        match random.random_range(0..20) {
            0..9 => sets(world, nth, &mut books[nth], &mut random),
            9..14 => loads(world, nth, &mut books[nth], &mut random),
            14..19 => unloads(world, nth, &mut books[nth]),
            _ => cleans(world, &mut books),
        }
        world.pause(random.random_range(1..150));
    }
    // Changes until the end are also compared, once the last process serves.
    if world.is_whole() && !compares(world, &mut books) {
        world.lost("the last comparison was not answered".to_owned());
    }
}

/// Sends a change and returns its response, or `None` if its process was killed or replaced.
pub fn change(world: &World, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let span = world.begins();
    world.changing.store(true, Ordering::SeqCst);
    let response = world.admin(method, path, &body.to_string());
    world.changing.store(false, Ordering::SeqCst);
    match response {
        Ok((503, _)) => {
            add(&world.tally.without_response);
            None
        }
        Ok((status @ (200 | 202), response)) => {
            add(&world.tally.wishes);
            Some((status, response))
        }
        Ok((status @ 400..500, response)) => Some((status, response)),
        Ok((status, response)) => {
            if !world.excuses(span) {
                world.lost(format!("{method} {path} {body}: {status} {response}"));
            }
            None
        }
        Err(error) => {
            add(&world.tally.without_response);
            if !world.excuses(span) {
                world.lost(format!("{method} {path} {body}: {error}"));
            }
            None
        }
    }
}

fn sets(world: &World, nth: usize, book: &mut Book, random: &mut StdRng) {
    // The value before a change must be known.
    if !book.over.is_known() {
        return;
    }
    match left_of(&book.over.known) {
        Some(left) if left.abs() < SLACK_MS => return,
        Some(left) if left < 0 => book.over.acknowledged(Value::Null),
        _ => {}
    }
    let mut patch = json!({});
    match random.random_range(0..4) {
        0 => patch["priority"] = json!(random.random_range(1..4)),
        1 => patch["keep_hot"] = json!(["20m", "40m", "2h"][random.random_range(0..3)]),
        2 => {
            patch["priority"] = json!(random.random_range(1..4));
            patch["lease"] = json!(["2s", "10m"][random.random_range(0..2)]);
        }
        _ => patch = json!({"priority": null, "keep_hot": null, "lease": null}),
    }
    let mut merged = match &book.over.known {
        Value::Null => json!({}),
        known => known.clone(),
    };
    for (field, value) in patch.as_object().into_iter().flatten() {
        let (field, value) = match field.as_str() {
            "keep_hot" => ("keep_hot_ms", milliseconds(value)),
            "lease" if !value.is_null() => ("expires_at", json!("unknown")),
            "lease" => ("expires_at", Value::Null),
            field => (field, value.clone()),
        };
        if value.is_null() {
            drop(merged.as_object_mut().map(|fields| fields.remove(field)))
        } else {
            merged[field] = value
        }
    }
    if merged == json!({}) {
        merged = Value::Null;
    }
    book.over.asked(merged);
    let path = format!("/llm/admin/models?model={}", ADMIN_MODELS[nth]);
    match change(world, "PATCH", &path, &patch) {
        Some((200, response)) => book.over.acknowledged(response["override"].clone()),
        Some((status, response)) => {
            book.over.refused();
            world.lost(format!("PATCH {path} {patch}: {status} {response}"));
        }
        None => {}
    }
}

fn milliseconds(length: &Value) -> Value {
    match length.as_str() {
        Some("20m") => json!(20 * 60_000),
        Some("40m") => json!(40 * 60_000),
        Some("2h") => json!(120 * 60_000),
        _ => Value::Null,
    }
}

fn loads(world: &World, nth: usize, book: &mut Book, random: &mut StdRng) {
    let waits = random.random_bool(0.5);
    let body = json!({"model": ADMIN_MODELS[nth], "wait": waits});
    book.wished.asked(true);
    let started_at = chrono::Utc::now().timestamp_millis();
    match change(world, "POST", "/llm/admin/load", &body) {
        Some((200 | 202, _)) => {
            book.wished.acknowledged(true);
            book.loaded_at = started_at;
        }
        Some((409, response)) if !waits && only_loads_are_in_the_way(&response) => {
            book.wished.refused();
            add(&world.tally.refused_behind_loads);
        }
        Some((status, response)) => {
            book.wished.refused();
            world.lost(format!(
                "a load that always has room was refused: {status} {response}"
            ));
        }
        None => {}
    }
}

/// Returns true if every replica of lower priority that holds the memory is loading. No load is interrupted (P5), and a load that
/// does not wait is refused.
fn only_loads_are_in_the_way(refusal: &Value) -> bool {
    let soon = "not now, but soon and automatically: ";
    let reason = refusal["plan"]["reason"].as_str().unwrap_or_default();
    let Some((_, held)) = reason
        .strip_prefix(soon)
        .and_then(|text| text.split_once("frees enough; "))
    else {
        return false;
    };
    let lower = held
        .split("; ")
        .filter(|place| place.contains("priority 0)"));
    let lower = lower.collect::<Vec<_>>();
    !lower.is_empty() && lower.iter().all(|place| place.ends_with(": loading (P5)"))
}

fn unloads(world: &World, nth: usize, book: &mut Book) {
    let body = json!({"model": ADMIN_MODELS[nth]});
    book.wished.asked(false);
    match change(world, "POST", "/llm/admin/unload", &body) {
        Some((200, _)) => book.wished.acknowledged(false),
        // There was nothing to unload.
        Some(_) => book.wished.refused(),
        None => {}
    }
}

fn cleans(world: &World, books: &mut [Book]) {
    books.iter_mut().for_each(|book| book.wished.asked(false));
    let response = change(world, "POST", "/llm/admin/cleanup", &json!({}));
    for book in books {
        match &response {
            Some((200, _)) => book.wished.acknowledged(false),
            Some(_) => book.wished.refused(),
            None => {}
        }
    }
}

/// Returns true if the history contains an eviction of the model since then, which ends the request to have it loaded. This occurs
/// while a device is cordoned and users' models are loaded onto the other one, where requested models are not protected (P3, P5).
/// Returns `None` if the history could not be read because the service went down again.
fn has_yielded(world: &World, name: &str, since_ms: i64) -> Option<bool> {
    let since = chrono::DateTime::from_timestamp_millis(since_ms).unwrap_or_default();
    let since = since.format("%Y-%m-%dT%H:%M:%S%.3fZ");
    let path = format!("/llm/admin/events?model={name}&since={since}&limit=1000");
    let span = world.begins();
    match world.admin("GET", &path, "") {
        Ok((200, response)) => {
            let events = response["events"].as_array();
            Some(events.is_some_and(|events| events.iter().any(|event| event["kind"] == "evict")))
        }
        other => {
            if !world.excuses(span) {
                world.lost(format!("GET {path}: {other:?}"));
            }
            None
        }
    }
}

/// Returns true if everything could be compared. Otherwise the service went down again, and the next process is compared.
fn compares(world: &World, books: &mut [Book]) -> bool {
    let began = SystemTime::now();
    for (name, book) in ADMIN_MODELS.iter().zip(books) {
        loop {
            let span = world.begins();
            let path = format!("/llm/admin/models?model={name}");
            let shown = match world.admin("GET", &path, "") {
                Ok((200, shown)) => shown["models"][0].clone(),
                other => {
                    if !world.excuses(span) {
                        world.lost(format!("GET {path}: {other:?}"));
                    }
                    return false;
                }
            };
            let over = shown["override"].clone();
            let before = book.over.clone();
            if !book.over.settles(|expected| is_override(expected, &over)) {
                world.lost(format!(
                    "the override of {name} is {over}, and was {before:?}"
                ));
            }
            // An expired lease is gone.
            if over.is_null() {
                book.over.acknowledged(Value::Null);
            }
            let wished = shown["wished_replicas"] == 1;
            let before = book.wished.clone();
            if !book.wished.settles(|expected| *expected == wished) {
                let yielded = if wished {
                    Some(false)
                } else {
                    has_yielded(world, name, book.loaded_at)
                };
                match yielded {
                    Some(true) => add(&world.tally.yielded),
                    Some(false) => world.lost(format!(
                        "whether {name} is wished is {wished}, and was {before:?}, last loaded at {} ms: {shown}",
                        book.loaded_at
                    )),
                    None => return false,
                }
                book.wished.acknowledged(wished);
            }
            if !wished || shown["state"] == "ready" {
                break;
            }
            if began.elapsed().unwrap_or_default() > READY_MAX {
                world.lost(format!(
                    "{name} is wished and does not become ready: {shown}"
                ));
                break;
            }
            world.pause(50);
            if world.is_over() {
                break;
            }
        }
    }
    true
}
