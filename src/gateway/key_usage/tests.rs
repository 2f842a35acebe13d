//! Tests of the use of keys: counted, written, and read back.

use super::*;
use config::LimitsSection;

async fn usages(folder: &std::path::Path, now: Arc<AtomicU64>) -> Arc<KeyUsages> {
    let url = format!("sqlite://{}/state.db", folder.display());
    let store = Arc::new(Store::open(&url).await.expect("a store"));
    let clock = move || Time(now.load(Ordering::Relaxed));
    let limits = Limits::new(LimitsSection::default(), chrono_tz::UTC, clock).expect("limits");
    let own = (Metrics::since(Time(0)), Clock::start());
    let usages = KeyUsages::new(store, Arc::new(limits), Arc::default(), own);
    Arc::new(usages)
}

fn request(key: u64, model: &str) -> RunningRequest {
    RunningRequest {
        key: KeyId(key),
        model: model.into(),
        arrived_at: Time(1),
        seated_at: Time(2),
        is_batch: false,
    }
}

fn sums(rows: &[KeyUsage]) -> Vec<(i64, &str, u64, u64, u64)> {
    let row = |usage: &KeyUsage| {
        (
            usage.day,
            usage.requests,
            usage.prompt_tokens,
            usage.completion_tokens,
        )
    };
    let with_model = rows.iter().map(|usage| (row(usage), usage.model.as_str()));
    with_model
        .map(|((a, b, c, d), m)| (a, m, b, c, d))
        .collect()
}

#[tokio::test]
async fn a_key_reads_its_own_usage_including_unwritten_rows() {
    const DAY: u64 = 86_400_000;
    let folder = tempfile::tempdir().expect("a folder");
    let now = Arc::new(AtomicU64::new(DAY + 5));
    let usages = usages(folder.path(), Arc::clone(&now)).await;
    let first = usages.begin(request(3, "a"));
    let other = usages.begin(request(4, "a"));
    let without_key = usages.begin(request(0, "a"));
    assert_eq!(usages.running(KeyId(3)), [request(3, "a")]);
    assert!(usages.running(KeyId(0)).is_empty());
    first.ended(None, None, Some((10, 5)), Time(9));
    other.ended(None, None, Some((7, 7)), Time(9));
    without_key.ended(None, None, Some((1, 1)), Time(9));
    drop(first);
    assert!(usages.running(KeyId(3)).is_empty());
    let (rows, today) = usages.of_key(KeyId(3), 30, 100).await.expect("read");
    assert_eq!((sums(&rows), today), (vec![(1, "a", 1, 10, 5)], 1));
    usages.write_all().await;
    assert_eq!(
        usages.of_key(KeyId(3), 30, 100).await.expect("read").0,
        rows
    );
    usages
        .begin(request(3, "a"))
        .ended(None, None, Some((1, 2)), Time(9));
    usages
        .begin(request(3, "b"))
        .ended(None, None, Some((3, 4)), Time(9));
    let (rows, _) = usages.of_key(KeyId(3), 30, 100).await.expect("read");
    assert_eq!(sums(&rows), [(1, "a", 2, 11, 7), (1, "b", 1, 3, 4)]);
    usages.write_all().await;
    now.store(2 * DAY, Ordering::Relaxed);
    usages
        .begin(request(3, "b"))
        .ended(None, None, Some((1, 1)), Time(9));
    let (rows, today) = usages.of_key(KeyId(3), 30, 100).await.expect("read");
    let days = [(1, "a", 2, 11, 7), (1, "b", 1, 3, 4), (2, "b", 1, 1, 1)];
    assert_eq!((sums(&rows), today), (days.to_vec(), 2));
    let (rows, _) = usages.of_key(KeyId(3), 1, 100).await.expect("read");
    assert_eq!(sums(&rows), [(2, "b", 1, 1, 1)]);
}

#[tokio::test]
async fn requests_of_batches_are_a_part_of_the_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let usages = usages(folder.path(), Arc::new(AtomicU64::new(0))).await;
    let of_batch = RunningRequest {
        is_batch: true,
        ..request(3, "a")
    };
    let ends = |request, tokens| {
        let counted = usages.begin(request);
        counted.ended(None, None, Some(tokens), Time(9));
    };
    ends(of_batch.clone(), (10, 5));
    ends(request(3, "a"), (7, 7));
    usages.write_all().await;
    ends(of_batch, (1, 1));
    let (rows, _) = usages.of_key(KeyId(3), 30, 100).await.expect("read");
    assert_eq!(sums(&rows), [(0, "a", 3, 18, 13)]);
    let batches = BatchUsage {
        requests: 2,
        prompt_tokens: 11,
        completion_tokens: 6,
    };
    assert_eq!(rows[0].batches, batches);
}

#[tokio::test]
async fn usage_the_store_cannot_take_is_kept_within_a_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let usages = usages(folder.path(), Arc::new(AtomicU64::new(0))).await;
    let mut unwritten = BTreeMap::new();
    let used = Used {
        requests: 1,
        ..Used::default()
    };
    for nth in 0..UNWRITTEN_MAX as u64 + 5 {
        add(&mut unwritten, (KeyId(nth + 1), "a".into()), used);
    }
    add(&mut unwritten, (KeyId(1), "a".into()), used);
    assert_eq!(unwritten.len(), UNWRITTEN_MAX);
    assert_eq!(unwritten[&(KeyId(1), Arc::<str>::from("a"))].requests, 2);
    *locked(&usages.unwritten) = unwritten;
    usages.write_all().await;
    assert!(locked(&usages.unwritten).is_empty());
}
