//! Tests of the events that are kept in memory and in the file of the next process.

use super::*;
use http_body_util::BodyExt;

const LONG: Duration = Duration::from_secs(3600);

async fn text(body: Body) -> String {
    let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("read");
    String::from_utf8(bytes.to_vec()).expect("a text")
}

#[tokio::test]
async fn a_reader_gets_the_events_after_its_number_and_those_that_follow() {
    let log = Arc::new(EventLog::default());
    for number in 0..3 {
        log.push(number, format!("{number};").into());
    }
    assert_eq!(log.next_number(0), 3);
    let ending = CancellationToken::new();
    let body = Arc::clone(&log).body(Some(0), LONG, ending.clone());
    let more = async {
        log.push(7, "7;".into());
        log.end();
    };
    let (read, ()) = tokio::join!(text(body), more);
    assert_eq!(read, "1;2;7;");
    let again = Arc::clone(&log).body(None, LONG, ending.clone());
    assert_eq!(text(again).await, "0;1;2;7;");
    assert_eq!(text(log.body(Some(9), LONG, ending)).await, "");
}

#[test]
fn a_response_is_announced_once() {
    let log = EventLog::default();
    let queued = || ["0;".to_owned(), "1;".to_owned()];
    log.announce(queued());
    log.push(2, "2;".into());
    log.announce(queued());
    assert_eq!(log.next_number(0), 3);
    assert_eq!(log.after(Some(1)), Next::Event(2, "2;".into()));
}

#[tokio::test]
async fn the_last_event_has_the_next_number_although_the_run_adds_events_meanwhile() {
    let log = Arc::new(EventLog::default());
    let ending = CancellationToken::new();
    let event = |number: u64| Bytes::from(format!("{number};"));
    for number in 0..3 {
        log.push(number, event(number));
    }
    // Two cancellations at the same time, of which one cannot be stored.
    assert_eq!((log.hold(0), log.hold(0)), (3, 3));
    log.push(3, event(3));
    log.push(4, event(4));
    assert_eq!(
        log.after(Some(2)),
        Next::Later,
        "the end may take its place"
    );
    log.release();
    assert_eq!(log.after(Some(2)), Next::Later);
    log.finish(3, "cancelled".into());
    log.push(5, event(5));
    log.release();
    log.finish(6, "completed".into());
    assert_eq!(log.next_number(0), 4);
    let read = text(Arc::clone(&log).body(None, LONG, ending)).await;
    assert_eq!(read, "0;1;2;cancelled");
}

#[test]
fn the_end_in_another_process_has_the_next_number_unless_this_process_stores_an_end() {
    let log = EventLog::default();
    assert_eq!(log.number_of_end(None), Some(0));
    for number in 0..3 {
        log.push(number, "x".into());
    }
    for (stored, expected) in [(None, 3), (Some(1), 3), (Some(3), 3), (Some(7), 7)] {
        assert_eq!(log.number_of_end(stored), Some(expected), "{stored:?}");
    }
    log.hold(0);
    assert_eq!(log.number_of_end(Some(3)), None);
    log.release();
    assert_eq!(log.number_of_end(None), Some(3));
}

#[test]
fn readers_continue_after_an_end_that_could_not_be_stored_and_a_result_wins_over_a_hold() {
    let log = EventLog::default();
    // After a restart, a run or an end continues with greater numbers.
    assert_eq!((log.next_number(1_000_000), log.hold(2)), (1_000_000, 2));
    log.release();
    log.push(0, "0;".into());
    assert_eq!(log.hold(0), 1);
    log.push(1, "1;".into());
    log.release();
    assert_eq!(log.after(Some(0)), Next::Event(1, "1;".into()));
    assert_eq!(log.hold(0), 2);
    log.push(2, "2;".into());
    log.finish(3, "completed".into());
    log.release();
    assert_eq!(log.after(Some(1)), Next::Event(2, "2;".into()));
    assert_eq!(log.after(Some(2)), Next::Event(3, "completed".into()));
    assert_eq!(log.after(Some(3)), Next::Over);
}

#[tokio::test]
async fn the_next_process_continues_with_the_events_in_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.events");
    let ids = std::collections::BTreeSet::from(["a".to_owned()]);
    let next = || {
        let kept = event_file::load(folder.path(), &ids).remove("a");
        EventLog::new(Some(path.clone()), kept.unwrap_or_default())
    };
    let event = |number: u64| Bytes::from(format!("{number};"));
    let first = next();
    first.announce(["0;".to_owned(), "1;".to_owned()]);
    first.save().await;
    first.record(2, event(2)).await;
    // A run that is stopped during a write loses the open file.
    first.locked().file = FileState::Closed;
    first.save().await;
    first.record(3, event(3)).await;
    let second = next();
    second.announce(["0;".to_owned(), "1;".to_owned()]);
    assert_eq!(second.next_number(1_000_000), 4);
    assert_eq!(second.after(Some(2)), Next::Event(3, event(3)));
    second.save().await;
    second.record(4, event(4)).await;
    // More than the file and the log keep.
    let long = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
    for number in 5..12 {
        second.record(number, long.clone()).await;
    }
    let size = std::fs::metadata(&path).expect("a file").len();
    assert!(size <= FILE_BYTES_MAX + BYTES_MAX as u64, "{size}");
    let third = Arc::new(next());
    assert_eq!(third.next_number(0), 12);
    assert_eq!(third.after(Some(4)), Next::Lost);
    assert_eq!(third.after(Some(10)), Next::Event(11, long));
    third.save().await;
    third.finish(12, "12;".into());
    assert!(!path.exists());
    // A run that has not noticed the end leaves no file.
    third.record(13, event(13)).await;
    third.save().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn without_a_writable_file_the_events_stay_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let log = EventLog::new(Some(file.join("a.events")), KeptEvents::default());
    log.save().await;
    log.record(0, "0;".into()).await;
    assert!(matches!(log.locked().file, FileState::Failed));
    assert_eq!(log.after(None), Next::Event(0, "0;".into()));
}

#[tokio::test]
async fn dropped_events_end_a_reader_that_needs_them_with_a_comment() {
    let log = Arc::new(EventLog::default());
    let piece = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
    for number in 0..4 {
        log.push(number, piece.clone());
    }
    log.end();
    assert_eq!(log.after(None), Next::Lost);
    assert_eq!(log.after(Some(0)), Next::Lost);
    assert_eq!(log.after(Some(1)), Next::Event(2, piece));
    let ending = CancellationToken::new();
    assert_eq!(text(log.body(None, LONG, ending)).await, LOST);
}

#[tokio::test]
async fn silence_has_comments_and_the_end_of_the_process_ends_a_reader() {
    let log = Arc::new(EventLog::default());
    let ending = CancellationToken::new();
    let mut body = log.body(None, Duration::from_millis(1), ending.clone());
    let first = body.frame().await.expect("a piece").expect("read");
    assert_eq!(first.into_data().expect("data"), COMMENT);
    ending.cancel();
    assert!(body.frame().await.is_none());
}
