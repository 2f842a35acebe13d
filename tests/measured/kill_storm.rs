//! A stress test of the real program: it is killed with `kill -9` and taken over at random and chosen times, under load, while
//! administrators change things. Acknowledged changes hold after each start, streams break only with their process, evenings are
//! finished, and nothing is left behind.
//!
//! Seeded and bounded: half a minute of storm, or `MODEL_POOL_STORM_SECONDS`; the seed is printed, and set by
//! `MODEL_POOL_STORM_SEED`. Thread timing is not seeded: a seed repeats the same orders and kills, though not at the
//! same microseconds.

mod administrators;
mod keyrings;
mod service;
mod users;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use service::Service;

/// Duration of the storm, without some seconds for start and end.
const SECONDS: u64 = 30;
const USERS: u64 = 3;
const STREAMERS: u64 = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn acknowledged_changes_survive_a_kill_or_takeover_at_any_time() {
    let _alone = super::ALONE.blocking_lock();
    let seed =
        number("MODEL_POOL_STORM_SEED").unwrap_or_else(|| rand::rng().random_range(0..1 << 32));
    let seconds = number("MODEL_POOL_STORM_SECONDS").unwrap_or(SECONDS);
    println!("MODEL_POOL_STORM_SEED={seed} MODEL_POOL_STORM_SECONDS={seconds}");
    let until = SystemTime::now() + Duration::from_secs(seconds);
    let mut random = StdRng::seed_from_u64(seed);
    let (mut service, world) = Service::start();
    thread::scope(|scope| {
        let world = &world;
        let mut seeds = StdRng::seed_from_u64(seed + 1);
        let mut next = move || StdRng::seed_from_u64(seeds.random());
        for _ in 0..USERS {
            let random = next();
            scope.spawn(move || users::ask_until_the_end(world, random));
        }
        for _ in 0..STREAMERS {
            let random = next();
            scope.spawn(move || users::stream_until_the_end(world, random));
        }
        let (of_models, of_keys) = (next(), next());
        scope.spawn(move || administrators::change_until_the_end(world, of_models));
        scope.spawn(move || keyrings::change_until_the_end(world, of_keys));
        let blows = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut nth = 0;
            while SystemTime::now() < until && world.is_whole() {
                world.pause(random.random_range(300..2_000));
                service.blow(world, &mut random, nth);
                nth += 1;
            }
        }));
        world.over.store(true, Ordering::SeqCst);
        if let Err(panic) = blows {
            std::panic::resume_unwind(panic);
        }
    });
    service.end(&world);
    println!("{}", world.tally);
    let lost = world.found();
    assert!(
        lost.is_empty(),
        "seed {seed}:\n{}\nlogs: {}",
        lost.join("\n"),
        service.keep_logs()
    );
    println!("nothing lost");
    drop(Arc::clone(&world));
}
