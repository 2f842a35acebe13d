//! Tests of `reservations.rs`: parallel requests of one holder against a real store.

use std::path::Path;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::*;
use crate::open_batches::figures::FILES_OF_BATCH;
use crate::open_batches::{BatchRecord, BatchState, Running};
use batch::RequestFileSummary;
use config::{Config, LiveConfig, Size};
use controller::Clock;
use pool::Time;
use store::{Store, StoredFile};

const FILES_MAX: u32 = 10;
const REQUESTS: usize = 40;
const HOLDER: &str = "key:1";

/// Batches with room for ten files of 1,000 bytes per holder.
async fn batches(folder: &Path) -> Arc<Batches> {
    let url = format!("sqlite://{}/state.db", folder.display());
    let store = Arc::new(Store::open(&url).await.expect("a store"));
    let mut config = Config::default();
    config.batch.per_key = FILES_MAX;
    config.batch.per_key_size = Size(Bytes(10_000));
    let config = LiveConfig::new(config);
    Arc::new(Batches::new(folder, store, config, Clock::start()))
}

fn files(files: u64) -> HolderTotals {
    HolderTotals {
        files,
        ..HolderTotals::default()
    }
}

fn one_batch(models: usize) -> HolderTotals {
    HolderTotals {
        files: FILES_OF_BATCH,
        open_batches: 1,
        open_models: models,
        ..HolderTotals::default()
    }
}

fn file(id: &str, holder: &str, bytes: u64) -> StoredFile {
    StoredFile {
        id: id.to_owned(),
        holder: holder.to_owned(),
        purpose: "batch".to_owned(),
        name: "prompts.jsonl".to_owned(),
        stored_as: id.to_owned(),
        bytes: Bytes(bytes),
        created: Time(1),
        expires: None,
        summary: None,
        bucket: None,
    }
}

fn batch(id: &str) -> BatchRecord {
    let summary = RequestFileSummary {
        bytes: 0,
        requests: 0,
        models: Vec::new(),
        endpoints: Vec::new(),
    };
    BatchRecord {
        id: id.to_owned(),
        holder: HOLDER.to_owned(),
        created: Time(1),
        state: BatchState {
            endpoint: "/v1/completions".to_owned(),
            input_file: "f".to_owned(),
            input_stored_as: "f".to_owned(),
            completion_window: "24h".to_owned(),
            ..BatchState::new(summary, Uuid::nil(), Time(1))
        },
    }
}

fn is_over(batches: &Batches) -> bool {
    batches.reservations.with(|holders| holders.is_empty())
}

/// Runs this many requests that begin together, and returns the number that succeed.
async fn together<T: Future<Output = bool> + Send + 'static>(
    count: usize,
    request: impl Fn(usize) -> T,
) -> usize {
    let barrier = Arc::new(Barrier::new(count));
    let mut requests = JoinSet::new();
    for nth in 0..count {
        let (barrier, request) = (Arc::clone(&barrier), request(nth));
        requests.spawn(async move {
            barrier.wait().await;
            request.await
        });
    }
    let done = requests.join_all().await;
    done.into_iter().filter(|done| *done).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_uploads_of_a_holder_store_exactly_its_number_of_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let batches = batches(folder.path()).await;
    let stored = together(REQUESTS, |nth| {
        let batches = Arc::clone(&batches);
        async move {
            let Ok(reservation) = Reservation::new(&batches, HOLDER, files(1)).await else {
                return false;
            };
            // The file arrives.
            tokio::task::yield_now().await;
            let file = file(&format!("f{nth}"), HOLDER, 1);
            let saved = reservation.store(batches.store.add_file(&file)).await;
            saved.is_ok()
        }
    });
    assert_eq!(stored.await, FILES_MAX as usize);
    let totals = batches.totals(HOLDER).await.expect("read");
    assert_eq!(totals.files, u64::from(FILES_MAX));
    let refused = Reservation::new(&batches, HOLDER, files(1)).await;
    let Err(SpaceError::Full(shortage)) = refused else {
        panic!("{refused:?}");
    };
    let (count, most) = (shortage.count, shortage.most);
    assert_eq!((shortage.limit, count, most), (SpaceLimit::Files, 10, 10));
    drop(
        Reservation::new(&batches, "key:2", files(1))
            .await
            .expect("another holder"),
    );
    assert!(is_over(&batches), "no reservation is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_uploads_of_a_holder_take_exactly_its_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let batches = batches(folder.path()).await;
    let size = Bytes(4_000);
    let stored = together(8, |nth| {
        let batches = Arc::clone(&batches);
        async move {
            let reservation = Reservation::new(&batches, HOLDER, files(1)).await;
            let mut reservation = reservation.expect("files are left");
            let granted = reservation.reserve_bytes(size).await.expect("read");
            if granted < size {
                return false;
            }
            let file = file(&format!("f{nth}"), HOLDER, granted.0);
            let saved = reservation.store(batches.store.add_file(&file)).await;
            saved.is_ok()
        }
    });
    // Of 10,000 bytes, each upload takes 4,000.
    assert_eq!(stored.await, 2);
    let totals = batches.totals(HOLDER).await.expect("read");
    assert_eq!(totals.bytes, Bytes(8_000));
    assert!(is_over(&batches), "no reservation is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_batches_of_a_holder_leave_room_for_their_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let batches = batches(folder.path()).await;
    let created = together(REQUESTS, |nth| {
        let batches = Arc::clone(&batches);
        async move {
            let Ok(reservation) = Reservation::new(&batches, HOLDER, one_batch(1)).await else {
                return false;
            };
            let add = batches.add(batch(&format!("batch_{nth}")), Running::default());
            reservation.store(add).await.is_ok()
        }
    });
    assert_eq!(created.await, 5, "two files each, of ten");
    let totals = batches.totals(HOLDER).await.expect("read");
    assert_eq!((totals.open_batches, totals.files), (5, 10));
    let error = Reservation::new(&batches, HOLDER, one_batch(1)).await;
    let failure = error.expect_err("full").for_batch();
    assert_eq!(failure.body.error.code, Some("too_many_batches"));
    assert!(is_over(&batches), "no reservation is left");
}

#[tokio::test]
async fn a_request_that_fails_or_whose_client_leaves_frees_its_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let batches = batches(folder.path()).await;
    let mut uploads = JoinSet::new();
    let (sender, mut begun) = tokio::sync::mpsc::channel(1);
    for _ in 0..FILES_MAX {
        let (batches, sender) = (Arc::clone(&batches), sender.clone());
        uploads.spawn(async move {
            let reservation = Reservation::new(&batches, HOLDER, files(1)).await;
            let _reservation = reservation.expect("room");
            sender.send(()).await.expect("received");
            std::future::pending::<()>().await;
        });
    }
    for _ in 0..FILES_MAX {
        begun.recv().await.expect("begun");
    }
    assert!(Reservation::new(&batches, HOLDER, files(1)).await.is_err());
    uploads.shutdown().await;
    assert!(is_over(&batches), "the clients have left");
    let mut last = Reservation::new(&batches, HOLDER, files(10))
        .await
        .expect("room");
    let more = last.grow(files(1)).await;
    assert!(matches!(more, Err(SpaceError::Full(_))), "{more:?}");
    assert_eq!(last.space, files(10), "a refused growth changes nothing");
}

#[test]
fn the_limits_of_batches_count_stored_and_reserved_ones() {
    let section = Config::default().batch;
    let of = |stored: HolderTotals, reserved: HolderTotals, wanted: HolderTotals| {
        shortage(&stored, &reserved, &wanted, &section).map(|shortage| shortage.limit)
    };
    let open = |open_batches: usize, open_models: usize| HolderTotals {
        open_batches,
        open_models,
        ..HolderTotals::default()
    };
    let none = HolderTotals::default();
    assert_eq!(of(open(9_999, 0), none, open(1, 0)), None);
    let too_many = Some(SpaceLimit::OpenBatches);
    assert_eq!(of(open(9_999, 0), open(1, 0), open(1, 0)), too_many);
    assert_eq!(of(open(1, 19_990), none, open(1, 10)), None);
    let too_many = Some(SpaceLimit::OpenModels);
    assert_eq!(of(open(1, 19_990), none, open(1, 11)), too_many);
    let full = HolderTotals {
        bytes: section.per_key_size.0,
        ..none
    };
    assert_eq!(of(full, none, open(1, 1)), Some(SpaceLimit::Bytes));
    assert_eq!(
        of(none, full, open(1, 1)),
        None,
        "an upload may end smaller"
    );
}
