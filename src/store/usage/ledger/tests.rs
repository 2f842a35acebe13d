//! Tests of the stored ledger.

use super::super::ledger_batch::{LedgerKey, UNKNOWN};
use super::*;
use crate::testing::stores;

fn key(hour: i64, device: &str, model: &str, payer: &str, state: &str) -> LedgerKey {
    LedgerKey {
        hour,
        day: hour / 24,
        device: device.to_owned(),
        model: model.to_owned(),
        payer: payer.to_owned(),
        state: state.to_owned(),
    }
}

fn amount(device_ms: u64) -> LedgerAmount {
    LedgerAmount {
        device_ms,
        byte_seconds: u128::from(device_ms) * 3,
        energy_mj: device_ms * 2,
        energy_ms: device_ms / 2,
    }
}

#[tokio::test]
async fn parts_are_summed_by_payer_device_and_hour() {
    for store in stores().await {
        let mut batch = LedgerBatch::default();
        batch.add(key(50, "gpu0", "a", "k1", "used"), amount(1_000));
        batch.add(key(51, "gpu0", "a", "k1", "used"), amount(500));
        batch.add(key(51, "gpu1", "a", "k1", "used"), amount(100));
        batch.add(key(51, "gpu1", "", "", "free"), amount(40));
        batch.add(key(80, "gpu1", "", "", "free"), amount(7));
        batch.see("gpu0", Time(5_000));
        store.add_ledger(&batch).await.expect("written");
        store.add_ledger(&batch).await.expect("written again");
        let found = store.ledger_by_payer(2, 2).await.expect("read");
        let found: Vec<_> = found
            .iter()
            .map(|sum| (sum.model.as_str(), sum.payer.as_str(), sum.amount))
            .collect();
        assert_eq!(found, [("", "", amount(80)), ("a", "k1", amount(3_200))]);
        let own = store.ledger_of_payer("k1", 1..=3).await.expect("read");
        let own: Vec<_> = own
            .iter()
            .map(|sum| (sum.model.as_str(), sum.amount))
            .collect();
        assert_eq!(own, [("a", amount(3_200))]);
        let mut batch = LedgerBatch::default();
        batch.add(key(51, "gpu0", "a", "physics/lab/k1", "used"), amount(8));
        batch.add(key(51, "gpu0", "a", "physics/lab/k11", "used"), amount(9));
        store.add_ledger(&batch).await.expect("written");
        let own = store.ledger_of_payer("k1", 1..=3).await.expect("read");
        assert_eq!(own[0].amount, amount(3_208), "with all its groups");
        let none = store.ledger_of_payer("k2", 1..=3).await.expect("read");
        assert_eq!(none, []);
        let found = store.ledger_by_device(2, 3).await.expect("read");
        let found: Vec<_> = found
            .iter()
            .map(|sum| {
                (
                    sum.device.as_str(),
                    sum.state.as_str(),
                    sum.amount.device_ms,
                )
            })
            .collect();
        let expected = [
            ("gpu0", "used", 3_017),
            ("gpu1", "free", 94),
            ("gpu1", "used", 200),
        ];
        assert_eq!(found, expected);
        let found = store.ledger_by_hour(51, 80).await.expect("read");
        let hours: Vec<_> = found.iter().map(|sum| sum.period).collect();
        assert_eq!(hours, [51, 51, 80]);
        let seen = store.ledger_seen().await.expect("read");
        assert_eq!(seen, BTreeMap::from([("gpu0".to_owned(), Time(5_000))]));
    }
}

#[tokio::test]
async fn old_hours_and_days_are_deleted() {
    for store in stores().await {
        let mut batch = LedgerBatch::default();
        for hour in [24, 48, 1_000] {
            batch.add(key(hour, "gpu0", "a", "k1", "used"), amount(1));
        }
        store.add_ledger(&batch).await.expect("written");
        let gone = store.forget_ledger(1_000, 2).await.expect("deleted");
        assert_eq!(gone, 3, "two hours and a day");
        assert_eq!(store.forget_ledger(1_000, 2).await.expect("deleted"), 0);
        let days = store.ledger_by_payer(0, 100).await.expect("read");
        assert_eq!(days[0].amount.device_ms, 2);
        let hours = store.ledger_by_hour(0, 2_000).await.expect("read");
        assert_eq!(hours.len(), 1);
    }
}

#[tokio::test]
async fn a_numbered_batch_that_is_written_twice_counts_once() {
    for store in stores().await {
        let mut batch = LedgerBatch::default();
        batch.add(key(50, "gpu0", "a", "k1", "used"), amount(1_000));
        batch.see("gpu0", Time(5_000));
        let expected = [(1, 1_000), (1, 1_000), (2, 2_000), (2, 2_000), (3, 3_000)];
        for (number, device_ms) in expected {
            let batch = batch.clone().numbered(number);
            store.add_ledger(&batch).await.expect("written");
            let found = store.ledger_by_payer(2, 2).await.expect("read");
            assert_eq!(found[0].amount, amount(device_ms), "batch {number}");
        }
    }
}

#[tokio::test]
async fn names_of_devices_that_ended_are_forgotten_with_their_days() {
    const NODES: i64 = 40;
    for store in stores().await {
        // A node of a cluster lives for a day, and its name is not used again.
        for day in 0..NODES {
            let mut batch = LedgerBatch::default();
            let device = format!("node-{day}/gpu0");
            batch.add(key(day * 24, &device, "a", "k1", "used"), amount(1_000));
            let until = day * 24 * HOUR_MS;
            batch.see(&device, Time(from_integer(until)));
            store.add_ledger(&batch).await.expect("written");
        }
        let kept = 5;
        while store
            .forget_ledger(NODES * 24, NODES - kept)
            .await
            .expect("deleted")
            > 0
        {}
        let names = query("SELECT name FROM ledger_names ORDER BY name")
            .fetch_all(&store.readers)
            .await
            .expect("read");
        let names: Vec<String> = names.iter().map(|row| row.get("name")).collect();
        // The hours of two weeks still use their names.
        let nodes = names.iter().filter(|name| name.starts_with("node-"));
        assert_eq!(nodes.count(), 14, "{names:?}");
        assert!(names.contains(&"used".to_owned()) && names.contains(&"k1".to_owned()));
        let seen = store.ledger_seen().await.expect("read");
        assert_eq!(seen.len(), 32, "{seen:?}");
        let days = store.ledger_by_device(0, NODES).await.expect("read");
        assert_eq!(days.len(), 5, "{days:?}");
    }
}

#[tokio::test]
async fn a_sum_may_exceed_an_integer() {
    const DEVICES: u128 = 64;
    const DAY_MS: u64 = 86_400_000;
    let day = LedgerAmount {
        device_ms: DAY_MS,
        byte_seconds: u128::from(DAY_MS) / 1_000 * (80 << 30),
        energy_mj: u64::try_from(i64::MAX).expect("positive"),
        energy_ms: DAY_MS,
    };
    for store in stores().await {
        for nth in 0..31 {
            let mut batch = LedgerBatch::default();
            for device in 0..DEVICES {
                let key = key(nth * 24, &format!("gpu{device}"), "", "", "free");
                batch.add(key, day);
            }
            store.add_ledger(&batch).await.expect("written");
        }
        let all = DEVICES * 31;
        let sums = [
            store.ledger_by_payer(0, 30).await.expect("by payer"),
            store.ledger_of_payer("", 0..=30).await.expect("of payer"),
        ];
        for sums in sums {
            let found = sums[0].amount;
            assert_eq!(found.byte_seconds, day.byte_seconds * all);
            assert!(found.byte_seconds > u128::from(day.energy_mj));
            assert_eq!(u128::from(found.device_ms), u128::from(DAY_MS) * all);
            assert_eq!(found.energy_mj, u64::MAX);
        }
        let devices = store.ledger_by_device(0, 30).await.expect("by device");
        let of_device = devices.iter().map(|sum| sum.amount.byte_seconds);
        assert!(of_device.eq([day.byte_seconds * 31; DEVICES as usize]));
        let hours = store.ledger_by_hour(0, 30 * 24).await.expect("by hour");
        let of_hour = hours.iter().map(|sum| sum.amount.byte_seconds);
        assert!(of_hour.eq([day.byte_seconds * DEVICES; 31]));
    }
}

#[test]
fn a_divided_batch_has_the_same_parts_and_the_time_of_a_device_with_its_last_part() {
    let mut batch = LedgerBatch::default();
    for nth in 0..1_000_u32 {
        let device = format!("gpu{}", nth % 3);
        let payer = format!("k{nth}");
        let key = key(i64::from(nth % 5), &device, "a", &payer, "used");
        batch.add(key, amount(u64::from(nth)));
    }
    for device in ["gpu0", "gpu1", "gpu2", "without parts"] {
        batch.see(device, Time(5_000));
    }
    let divided = batch.clone().divided(256);
    assert_eq!(divided.len(), 4);
    assert!(divided.iter().all(|one| (1..=256).contains(&one.len())));
    for (nth, one) in divided.iter().enumerate() {
        let later = divided[nth + 1..].iter().flat_map(|one| one.parts.keys());
        let later: Vec<&str> = later.map(|key| key.device.as_str()).collect();
        let is_early = |device: &String| later.contains(&device.as_str());
        assert!(!one.seen.keys().any(is_early), "{:?}", one.seen);
    }
    let mut merged = LedgerBatch::default();
    for one in divided {
        merged.merge(one, usize::MAX);
    }
    assert_eq!(merged, batch);
    assert!(LedgerBatch::default().divided(256).is_empty());
}

#[test]
fn parts_beyond_the_limit_keep_their_time_without_details() {
    let mut waiting = LedgerBatch::default();
    for nth in 0..10 {
        let mut later = LedgerBatch::default();
        later.add(key(1, "gpu0", "a", &format!("k{nth}"), "used"), amount(10));
        waiting.merge(later, 3);
    }
    assert_eq!(waiting.len(), 4);
    let all: u64 = waiting.parts.values().map(|part| part.device_ms).sum();
    assert_eq!(all, 100);
    let unknown = &waiting.parts[&key(1, "gpu0", "", "", UNKNOWN)];
    assert_eq!(unknown.device_ms, 70);
}
