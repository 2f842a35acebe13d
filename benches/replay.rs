//! Measures the speed of a replay: a day of a million requests for 400 models on 64 devices, with the production core, with and
//! without its shadows, with another system's rule, and with the lower bound. A plain program, because the promise is about a run
//! of known length: `cargo bench --bench replay [requests]`.

use std::time::Instant;

use model_pool::pool::{
    Bytes, DeviceId, DeviceReading, KeyId, Loader, LoaderId, ModelId, ModelSpec, NodeId, Part,
    Policy, Span, Time,
};
use model_pool::sim::Random;
use model_pool::sim::replay::{Arrival, Lru, Options, Report, Scenario, bound, run, run_baseline};

const DEVICES: u32 = 64;
const MODELS: u32 = 400;
const DAY_MS: u64 = 86_400_000;

fn scenario() -> Scenario {
    let mut random = Random::new(1);
    let device = |nth: u32| {
        let reading = DeviceReading {
            name: format!("gpu{nth}"),
            node: NodeId(nth / 8),
            total: Bytes(80 * Bytes::GIB),
            headroom: Bytes(2 * Bytes::GIB),
            ..DeviceReading::default()
        };
        (DeviceId(nth), reading)
    };
    let model = |nth: u32| {
        let gibibytes = random.between(2, 60);
        let reload = Span(2_000 + gibibytes * 500);
        let loader = LoaderId(0);
        ModelSpec {
            name: format!("org/model-{nth}"),
            bytes_per_device: Bytes(gibibytes * Bytes::GIB),
            seats_per_replica: 64,
            reload,
            loader: Some(Loader {
                loader,
                takes: reload,
            }),
            ..ModelSpec::default()
        }
    };
    Scenario {
        devices: (0..DEVICES).map(device).collect(),
        models: (0..MODELS).map(model).collect(),
        stop_takes: Span(500),
        ..Scenario::default()
    }
}

/// Requests spread over a day. The nth model is requested 1/n² as often as the first, so most requests find their model ready.
fn arrivals(requests: u64) -> impl Iterator<Item = Arrival> {
    let mut random = Random::new(2);
    let mut sums = Vec::new();
    let mut sum = 0;
    for nth in 1..=u64::from(MODELS) {
        sum += 1_000_000_000 / (nth * nth);
        sums.push(sum);
    }
    let gap_us = DAY_MS * 1_000 / requests.max(1);
    let mut at_us = 0;
    (0..requests).map(move |_| {
        at_us += random.below(2 * gap_us + 1);
        let drawn = random.below(sum);
        let model = sums.partition_point(|sum| *sum <= drawn) as u32;
        Arrival {
            at: Time(at_us / 1_000),
            model: ModelId(model),
            key: KeyId(random.below(20)),
            service: Span(random.between(200, 6_000)),
        }
    })
}

fn main() {
    let requests = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .next()
        .unwrap_or(1_000_000);
    let scenario = scenario();
    let options = Options::default();
    let timed = |name: &str, work: &dyn Fn() -> String| {
        #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
        let began = Instant::now();
        let found = work();
        let took = began.elapsed().as_secs_f64();
        let each = took * 1e6 / requests.max(1) as f64;
        println!("{name}: {took:.2} s, {each:.2} us per request; {found}");
        took
    };
    let told = |report: Report| {
        let all = report.all;
        format!(
            "{} served, {} loads of {} s, mean wait {}",
            all.served,
            all.loads,
            all.reload.0 / 1000,
            all.waits.mean
        )
    };
    let replay = |scenario: &Scenario| {
        let nothing = &mut |_, _| {};
        told(run(scenario, arrivals(requests), &options, nothing))
    };
    let mut alone = scenario.clone();
    alone.limits.policy = Policy::ADAPTIVE.without(Part::Shadows);
    // The minimum of three alternating runs, to cancel out other load on the machine.
    let (mut with, mut without) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        with = with.min(timed("model-pool", &|| replay(&scenario)));
        without = without.min(timed("model-pool, no shadows", &|| replay(&alone)));
    }
    println!("with shadows by without: {:.3}", with / without);
    timed("lru", &|| {
        let nothing = &mut |_, _| {};
        told(run_baseline(
            &scenario,
            Lru,
            arrivals(requests),
            &options,
            nothing,
        ))
    });
    timed("bound", &|| {
        let found = bound(&scenario, arrivals(requests));
        let seconds = found.reload.0 / 1000;
        format!("{seconds} s of loads for {} intervals", found.intervals)
    });
}
