//! The program at rest: one loaded model and no requests. Measures its memory and processor time, compared with nginx.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::parts::MeasuredServer;
use crate::servers::{Server, cpu_of, memory_of};

/// The time after the start until start-up work has ended.
const SETTLES: Duration = Duration::from_secs(5);
const WATCHED: Duration = Duration::from_secs(20);

/// Must be the first part, because requests leave memory behind. Watches all places simultaneously.
pub fn rest(places: &[MeasuredServer]) -> Value {
    println!(
        "at rest, one loaded model and no requests, {} s:",
        WATCHED.as_secs()
    );
    std::thread::sleep(SETTLES);
    let servers: Vec<&Server> = places
        .iter()
        .filter_map(|place| place.server.as_ref())
        .collect();
    let spent = |server: &&Server| {
        let guardians = server.guardians().into_iter().map(cpu_of);
        server.cpu() + guardians.sum::<Duration>()
    };
    let before: Vec<Duration> = servers.iter().map(spent).collect();
    std::thread::sleep(WATCHED);
    let after: Vec<Duration> = servers.iter().map(spent).collect();
    let mut all = Map::new();
    for (nth, server) in servers.iter().enumerate() {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let resident = megabytes(server.resident_bytes());
        let anonymous = megabytes(server.anonymous_bytes());
        let guardians = server.guardians();
        let beside = guardians.iter().map(|pid| memory_of(*pid, "VmRSS:")).sum();
        let beside = megabytes(beside);
        let cpu = after[nth].saturating_sub(before[nth]).as_secs_f64();
        let percent = cpu / WATCHED.as_secs_f64() * 100.0;
        println!(
            "  {:<9}  {resident:.1} MB resident, of which {anonymous:.1} MB are anonymous; {} guardians {beside:.1} MB; {percent:.3} % of a processor in all",
            server.name,
            guardians.len()
        );
        let found = json!({
            "resident_mb": resident,
            "anonymous_mb": anonymous,
            "guardians_mb": beside,
            "cpu_percent": percent,
        });
        all.insert(server.name.clone(), found);
    }
    Value::Object(all)
}
