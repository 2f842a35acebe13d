//! Tests of results: their format, and recovery from torn lines.

mod crashes;
mod full_disk;

use serde_json::value::RawValue;
use tempfile::TempDir;

use super::*;

const ID: &str = "batch-1";
const SUFFIX: u64 = 0xabc;

fn open(dir: &TempDir, requests: u64) -> Results {
    Results::open(dir.path(), ID, requests, SUFFIX).expect("opened")
}

fn path(dir: &TempDir, kind: ResultKind) -> PathBuf {
    let suffix = match kind {
        ResultKind::Output => OUTPUT,
        ResultKind::Error => ERRORS,
    };
    paths::path_of(dir.path(), ID, suffix).expect("a path")
}

fn add<F: LineStore>(
    results: &mut Results<F>,
    request: u64,
    kind: ResultKind,
    text: &str,
) -> io::Result<bool> {
    let body = format!("{{\r\n \"text\":\"{text}\"}}");
    let body = RawValue::from_string(body).expect("JSON");
    let custom_id = format!("\"{request}\"");
    let line = match kind {
        ResultKind::Output => ResultLine {
            custom_id: &custom_id,
            response: Some(Response {
                status_code: 200,
                request_id: "r",
                body: &body,
            }),
            error: None,
        },
        ResultKind::Error => ResultLine {
            custom_id: &custom_id,
            response: None,
            error: Some(ResultError {
                code: "batch_expired",
                message: text,
            }),
        },
    };
    results.write(request, kind, &line)
}

fn text(dir: &TempDir, kind: ResultKind) -> String {
    std::fs::read_to_string(path(dir, kind)).expect("read")
}

/// Returns the requests of both files by the ids in their lines.
fn stored(dir: &TempDir) -> Vec<u64> {
    let text = text(dir, ResultKind::Output) + &text(dir, ResultKind::Error);
    assert!(text.is_empty() || text.ends_with('\n'));
    let numbers = text.lines().map(|line| {
        let parsed: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let id = parsed["id"].as_str().expect("an id");
        let number = u64::from_str_radix(&id[10..18], 16).expect("a number");
        assert_eq!(parsed["custom_id"], format!("\"{number}\""));
        number
    });
    numbers.collect()
}

#[test]
fn the_length_counts_buffered_results_and_is_that_of_the_files_after_a_flush() {
    let dir = TempDir::new().expect("a folder");
    let mut results = open(&dir, 3);
    assert_eq!(results.bytes(), 0);
    add(&mut results, 0, ResultKind::Output, "a").expect("written");
    let one = results.bytes();
    add(&mut results, 0, ResultKind::Output, "a").expect("known");
    assert_eq!(results.bytes(), one, "a repeated result is not written");
    add(&mut results, 1, ResultKind::Error, "late").expect("written");
    results.flush().expect("flushed");
    let kinds = [ResultKind::Output, ResultKind::Error];
    let on_disk: usize = kinds.iter().map(|kind| text(&dir, *kind).len()).sum();
    assert_eq!(results.bytes(), on_disk as u64);
    drop(results);
    assert_eq!(open(&dir, 3).bytes(), on_disk as u64);
}

#[test]
fn lines_have_the_format_of_openai_and_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut results = open(&dir, 300);
    assert!(add(&mut results, 299, ResultKind::Output, "hi").expect("written"));
    assert!(add(&mut results, 0, ResultKind::Error, "late").expect("written"));
    for request in [0, 299] {
        assert!(!add(&mut results, request, ResultKind::Output, "again").expect("refused"));
    }
    let outside = add(&mut results, 300, ResultKind::Output, "x").expect_err("outside");
    assert_eq!(outside.kind(), ErrorKind::InvalidInput);
    results.sync().expect("synced");
    let in_use = Results::open(dir.path(), ID, 300, SUFFIX).expect_err("open");
    assert_eq!(in_use.kind(), ErrorKind::WouldBlock);
    drop(results);
    assert_eq!(
        text(&dir, ResultKind::Output),
        concat!(
            r#"{"id":"batch_req_0000012b0000000000000abc","custom_id":"\"299\"","response":"#,
            r#"{"status_code":200,"request_id":"r","body":{   "text":"hi"}},"error":null}"#,
            "\n"
        )
    );
    assert_eq!(
        text(&dir, ResultKind::Error),
        concat!(
            r#"{"id":"batch_req_000000000000000000000abc","custom_id":"\"0\"","response":null,"#,
            r#""error":{"code":"batch_expired","message":"late"}}"#,
            "\n"
        )
    );
    let results = open(&dir, 300);
    assert_eq!(
        (results.completed(), results.failed(), results.done()),
        (1, 1, 2)
    );
    assert!(results.has(0) && results.has(299) && !results.has(1));
    assert_eq!(results.next_undone(0), Some(1));
    assert_eq!(results.next_undone(299), None);
    assert_eq!(*results.recovered(), RecoveredResults::default());
}

#[test]
fn a_line_torn_at_any_byte_is_cut_and_its_request_has_no_result() {
    for kind in [ResultKind::Output, ResultKind::Error] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut results = open(&dir, 3);
        for request in 0..2 {
            add(&mut results, request, kind, "hi").expect("written");
        }
        results.sync().expect("synced");
        drop(results);
        let complete = text(&dir, kind);
        let first = complete.find('\n').expect("two lines") + 1;
        for kept in first..complete.len() {
            std::fs::write(path(&dir, kind), &complete[..kept]).expect("written");
            let mut results = open(&dir, 3);
            assert_eq!(results.recovered().cut_bytes, (kept - first) as u64);
            assert!(results.has(0) && !results.has(1));
            assert!(add(&mut results, 1, kind, "hi").expect("written"));
            results.sync().expect("synced");
            assert_eq!(text(&dir, kind), complete);
        }
    }
}

#[test]
fn zeros_after_a_power_failure_are_cut() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut results = open(&dir, 3);
    add(&mut results, 0, ResultKind::Output, "hi").expect("written");
    results.sync().expect("synced");
    drop(results);
    let complete = text(&dir, ResultKind::Output);
    let torn = format!("{complete}{}\n{complete}", "\0".repeat(100));
    std::fs::write(path(&dir, ResultKind::Output), torn).expect("written");
    assert_eq!(
        open(&dir, 3).recovered().cut_bytes,
        101 + complete.len() as u64
    );
    assert_eq!(text(&dir, ResultKind::Output), complete);
}

#[test]
fn a_process_killed_between_the_two_files_keeps_the_lines_of_the_first() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut results = open(&dir, 4);
    add(&mut results, 0, ResultKind::Output, "hi").expect("written");
    add(&mut results, 1, ResultKind::Error, "late").expect("written");
    results.output.flush().expect("flushed");
    drop(results);
    let mut results = open(&dir, 4);
    assert!(results.has(0) && !results.has(1));
    assert!(add(&mut results, 1, ResultKind::Output, "hi").expect("written"));
    results.sync().expect("synced");
    assert_eq!(stored(&dir), [0, 1]);
}

#[test]
fn a_second_result_of_a_request_is_reported_and_the_first_counts() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut results = open(&dir, 4);
    add(&mut results, 2, ResultKind::Output, "hi").expect("written");
    results.sync().expect("synced");
    drop(results);
    let line = text(&dir, ResultKind::Output);
    std::fs::write(path(&dir, ResultKind::Output), line.repeat(2)).expect("written");
    std::fs::write(path(&dir, ResultKind::Error), &line).expect("written");
    let results = open(&dir, 4);
    assert_eq!(results.recovered().duplicates, [2, 2]);
    assert_eq!((results.completed(), results.failed()), (1, 0));
    assert_eq!(text(&dir, ResultKind::Output), line.repeat(2));
}

#[test]
fn a_line_that_is_not_a_result_of_the_batch_is_invalid() {
    let dir = tempfile::tempdir().expect("a folder");
    let good = r#"{"id":"batch_req_000000000000000000000abc","custom_id":"a"}"#;
    let bad = [
        (String::new(), "line 2: it does not start"),
        ("x".repeat(99), "line 2: it does not start"),
        (
            good.replace("000abc", "000ABC"),
            "line 2: it does not start",
        ),
        (good.replace("000abc", "00abc"), "line 2: it does not start"),
        (
            good.replacen("00000000", "00000004", 1),
            "line 2: request 4 of 4 is not there",
        ),
    ];
    for (line, message) in bad {
        std::fs::write(path(&dir, ResultKind::Error), format!("{good}\n{line}\n"))
            .expect("written");
        let error = Results::open(dir.path(), ID, 4, SUFFIX).expect_err(&line);
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let expected = format!("batch-1.errors.jsonl: {message}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}
