//! A scripted day in the simulator, written to the history as by the service, and counted by the report: both must agree on every
//! model, also per hour.

use std::collections::BTreeMap;

use model_pool::pool::{
    Bytes, DeviceId, DeviceReading, KeyId, ModelId, ModelSpec, Priority, Span, Time,
};
use model_pool::sim::Random;
use model_pool::sim::replay::{Arrival, Options, Report, Scenario, run};
use model_pool::store::{EventCount, Store};

const HOUR: u64 = 3_600_000;
const MIDNIGHT: Time = Time(1_800_000_000_000);

/// Seven models on three devices, an evening and a morning, and two priorities that change at noon.
fn scenario() -> Scenario {
    let device = |nth: u32| {
        let reading = DeviceReading {
            name: format!("gpu{nth}"),
            total: Bytes(24 * Bytes::GIB),
            ..DeviceReading::default()
        };
        (DeviceId(nth), reading)
    };
    let models = [14, 9, 20, 6, 11, 17, 5].iter().enumerate();
    let models = models.map(|(nth, gibibytes)| ModelSpec {
        name: format!("lab/model-{nth}"),
        bytes_per_device: Bytes(gibibytes * Bytes::GIB),
        reload: Span::from_secs(10 + 5 * nth as u64),
        keep_hot: Span::from_secs(600),
        priority: Priority(u32::from(nth == 2)),
        ..ModelSpec::default()
    });
    Scenario {
        devices: (0..3).map(device).collect(),
        models: models.collect(),
        stop_takes: Span::from_secs(1),
        evenings: vec![MIDNIGHT + Span(21 * HOUR)],
        mornings: vec![MIDNIGHT + Span(7 * HOUR)],
        sets: vec![
            (MIDNIGHT + Span(12 * HOUR), ModelId(1), Priority(2)),
            (MIDNIGHT + Span(12 * HOUR), ModelId(4), Priority(1)),
        ],
        ..Scenario::default()
    }
}

/// Most requests come by day, and some models are more popular.
fn arrivals() -> Vec<Arrival> {
    let mut random = Random::new(20_270_115);
    let mut list: Vec<Arrival> = (0..6_000)
        .map(|_| {
            let hour = 6 + random.below(10) + random.below(8);
            let at = MIDNIGHT + Span(hour * HOUR + random.below(HOUR));
            let model = random.below(7).min(random.below(7));
            Arrival {
                at,
                model: ModelId(u32::try_from(model).unwrap()),
                key: KeyId(1 + random.below(3)),
                service: Span(500 + random.below(8_000)),
            }
        })
        .collect();
    list.sort_by_key(|event| event.at);
    list
}

/// By model, from the history.
fn of_kind(events: &[EventCount], kinds: &[&str]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut found: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for event in events
        .iter()
        .filter(|event| kinds.contains(&event.kind.as_str()))
    {
        let (model, cause) = (
            event.model.clone().unwrap(),
            event.cause.clone().unwrap_or_default(),
        );
        *found.entry(model).or_default().entry(cause).or_default() += event.count;
    }
    found
}

/// By model, from the simulator.
fn of_day<T>(
    day: &Report,
    of: impl Fn(&model_pool::sim::replay::Tally) -> T,
) -> BTreeMap<String, T> {
    let models = day.by_model.iter();
    models
        .map(|(model, tally)| (format!("lab/model-{}", model.0), of(tally)))
        .collect()
}

#[tokio::test]
async fn a_simulated_day_and_its_report_agree() {
    let options = Options {
        records: true,
        check_every: 1,
        ..Options::default()
    };
    let day = run(&scenario(), arrivals(), &options, &mut |_, _| {});
    assert_eq!(day.broken, Vec::<String>::new());
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/state.db", folder.path().display());
    let store = Store::open(&url).await.unwrap();
    for page in day.records.chunks(500) {
        store
            .append(page, &|device| format!("gpu{}", device.0))
            .await
            .unwrap();
    }
    let to = MIDNIGHT + Span(48 * HOUR);
    let events = store.count_events(MIDNIGHT, to).await.unwrap();

    // A load that was decided but not started is in the history, and does not count as a load.
    let loads: BTreeMap<String, u64> = of_kind(&events, &["ready"])
        .into_iter()
        .map(|(model, causes)| (model, causes.values().sum()))
        .collect();
    assert!(day.all.loads > 100, "{}", day.all.loads);
    assert_eq!(loads, of_day(&day, |totals| totals.loads));

    let left = of_kind(&events, &["evict", "drain", "unload"]);
    assert!(day.all.evictions.len() >= 3, "{:?}", day.all.evictions);
    assert_eq!(left, of_day(&day, |totals| totals.evictions.clone()));

    let took = |kind: &str| {
        events
            .iter()
            .filter(|event| event.kind == kind)
            .map(|event| event.took_ms)
            .sum::<u64>()
    };
    assert_eq!(took("ready"), day.all.reload.0, "the time of all loads");

    // A day equals the sum of its hours.
    let mut sums: BTreeMap<(String, Option<String>, Option<String>), u64> = BTreeMap::new();
    for hour in 0..48 {
        let begin = MIDNIGHT + Span(hour * HOUR);
        for row in store.count_events(begin, begin + Span(HOUR)).await.unwrap() {
            *sums.entry((row.kind, row.model, row.cause)).or_default() += row.count;
        }
    }
    let of_whole = events.into_iter();
    let of_whole = of_whole
        .map(|row| ((row.kind, row.model, row.cause), row.count))
        .collect();
    assert_eq!(sums, of_whole);
}
