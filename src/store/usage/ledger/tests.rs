//! Tests of the stored ledger.

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
        byte_seconds: device_ms * 3,
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
            ("gpu0", "used", 3_000),
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
