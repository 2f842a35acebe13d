//! A year of the account of device time, of 64 devices, 200 payers and 500 models: the size of the database, and the time of a
//! month's report. Each device has eight models a day, with ten payers each.

use std::time::{Duration, Instant};

use model_pool::store::{LedgerAmount, LedgerBatch, LedgerKey, Store};

use crate::ALONE;

const DAYS: i64 = 365;
const DEVICES: usize = 64;
const MODELS: usize = 500;
const PAYERS: usize = 200;
const MODELS_A_DAY: usize = 8;
const PAYERS_OF_MODEL: usize = 10;
/// Hours have fewer models and payers than the day.
const MODELS_AN_HOUR: usize = 3;
const PAYERS_AN_HOUR: usize = 4;
/// The days whose hours are kept.
const HOURLY_DAYS: i64 = 14;

const MIB: u64 = 1 << 20;
const SIZE_MAX: u64 = 200 * MIB;
/// Without optimizations, the rows alone take a good part of a second.
const REPORT_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 2 } else { 1 });

/// The parts of a period in which each device has this many models, with this many payers each.
fn parts(batch: &mut LedgerBatch, hour: i64, day: i64, (models, payers): (usize, usize), ms: u64) {
    for device in 0..DEVICES {
        let mut add = |model: String, payer: String, state: &str, ms: u64| {
            let key = LedgerKey {
                hour,
                day,
                device: format!("gpu{device}"),
                model,
                payer,
                state: state.to_owned(),
            };
            let amount = LedgerAmount {
                device_ms: ms,
                byte_seconds: u128::from(ms) * 80_000_000,
                energy_mj: ms * 300,
                energy_ms: ms,
            };
            batch.add(key, amount);
        };
        let each = ms / (models * payers) as u64;
        for nth in 0..models {
            let model = (device * 7 + nth * 61 + day as usize * 13) % MODELS;
            let name = format!("org/model-{model}");
            for place in 0..payers {
                let payer = format!("k{}", (model * 3 + place * 17 + day as usize) % PAYERS);
                add(name.clone(), payer.clone(), "used", each / 2);
                if place % 3 == 0 {
                    add(name.clone(), payer, "idle", each / 3);
                }
            }
            add(name, "administrator".to_owned(), "loading", each / 7);
        }
        for (state, ms) in [("free", ms), ("foreign", ms / 9), ("not_known", ms / 9)] {
            add(String::new(), String::new(), state, ms);
        }
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
async fn a_year_of_64_devices_takes_at_most_200_mib_and_a_month_one_second() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.db");
    let url = format!("sqlite://{}", file.display());
    let store = Store::open(&url).await.unwrap();
    let mut rows = 0;
    for day in 0..DAYS {
        let mut batch = LedgerBatch::default();
        // The hour of old days is deleted below.
        parts(
            &mut batch,
            0,
            day,
            (MODELS_A_DAY, PAYERS_OF_MODEL),
            86_400_000,
        );
        rows += batch.len();
        store.add_ledger(&batch).await.unwrap();
        if day >= DAYS - HOURLY_DAYS {
            for hour in 0..24 {
                let mut batch = LedgerBatch::default();
                let size = (MODELS_AN_HOUR, PAYERS_AN_HOUR);
                parts(&mut batch, day * 24 + hour, day, size, 3_600_000);
                store.add_ledger(&batch).await.unwrap();
            }
        }
    }
    while store.forget_ledger(DAYS * 24, 0).await.unwrap() > 0 {}
    while store.give_space_back().await.unwrap() {}
    let (first, last) = (DAYS - 40, DAYS - 10);
    // As the report reads them. The best of three: other programs run on the same processors.
    let mut took = Duration::MAX;
    let (mut by_payer, mut by_device, mut by_hour) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let began = Instant::now();
        (by_payer, by_device, by_hour) = tokio::try_join!(
            store.ledger_by_payer(first, last),
            store.ledger_by_device(first, last),
            store.ledger_by_hour(first * 24, last * 24),
        )
        .unwrap();
        took = took.min(began.elapsed());
    }
    let began = Instant::now();
    let own = store.ledger_of_payer("k7", last - 99..=last).await.unwrap();
    let took_own = began.elapsed();
    store.close().await;
    let size = std::fs::metadata(&file).unwrap().len();
    println!(
        "{rows} rows of days, {} MiB; a month of {} rows by payer, {} by device and {} hours in {} ms; {} rows of one payer in {} ms",
        size / MIB,
        by_payer.len(),
        by_device.len(),
        by_hour.len(),
        took.as_millis(),
        own.len(),
        took_own.as_millis()
    );
    assert!(by_payer.len() > 10_000 && by_device.len() >= DEVICES * 5 && !own.is_empty());
    assert!(size <= SIZE_MAX, "{size} bytes");
    assert!(took <= REPORT_MAX, "{took:?}");
}
