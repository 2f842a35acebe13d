//! Tests of positioned reads, and of files that do not match.

use super::*;
use crate::upload::{Upload, UploadLimits};

const ID: &str = "file-1";

fn line(nth: usize) -> String {
    let (model, filler) = (nth % 3, "x".repeat(nth % 7));
    format!(
        r#"{{"custom_id":"{nth}","url":"/v1/embeddings","body":{{"model":"m{model}","input":"{filler}"}}}}"#
    )
}

fn stored(dir: &Path, requests: usize) {
    let limits = UploadLimits {
        bytes_max: 1 << 30,
        line_bytes_max: 1000,
        lines_max: 1 << 30,
        models_max: 3,
    };
    let mut upload = Upload::create(dir, ID, limits).expect("created");
    for nth in 0..requests {
        upload
            .write(format!("{}\n", line(nth)).as_bytes())
            .expect("written");
    }
    upload.finish().expect("stored");
}

#[test]
fn requests_are_read_by_number_and_listed_by_model() {
    let dir = tempfile::tempdir().expect("a folder");
    let requests = 2 * BLOCK_RECORDS + 100;
    stored(dir.path(), requests);
    let file = RequestFile::open(dir.path(), ID).expect("opened");
    assert_eq!(file.requests(), requests as u64);
    for nth in [0, 1, 4095, 4096, requests - 1] {
        assert_eq!(file.read(nth as u64).expect("read"), line(nth).as_bytes());
        assert_eq!(
            file.place(nth as u64).expect("a place").model,
            (nth % 3) as u32
        );
    }
    let error = file.read(requests as u64).expect_err("not there");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for (model, from, max) in [
        (0, 0, usize::MAX),
        (1, 4095, 2000),
        (2, 8191, 3),
        (1, 9999, 9),
        (7, 0, 9),
        (0, 0, 0),
    ] {
        let expected: Vec<u64> = (from..requests as u64)
            .filter(|nth| nth % 3 == u64::from(model))
            .take(max)
            .collect();
        assert_eq!(file.of_model(model, from, max).expect("read"), expected);
    }
}

#[test]
fn a_file_that_does_not_match_its_index_is_invalid() {
    let dir = tempfile::tempdir().expect("a folder");
    stored(dir.path(), 10);
    let data = paths::path_of(dir.path(), ID, DATA).expect("a path");
    let index = paths::path_of(dir.path(), ID, INDEX).expect("a path");
    let (lines, records) = (
        std::fs::read(&data).expect("read"),
        std::fs::read(&index).expect("read"),
    );
    let refused = |part: &str| {
        let error = RequestFile::open(dir.path(), ID).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{part}");
        assert!(error.to_string().contains("file-1.index"), "{error}");
    };
    for kept in 0..records.len() {
        std::fs::write(&index, &records[..kept]).expect("written");
        refused("a cut index");
    }
    std::fs::write(&index, &records).expect("written");
    for kept in 0..lines.len() {
        std::fs::write(&data, &lines[..kept]).expect("written");
        refused("cut lines");
    }
    std::fs::write(&data, &lines).expect("written");
    let mut wrong = records.clone();
    wrong[8] += 1;
    wrong[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&index, &wrong).expect("written");
    let file = RequestFile::open(dir.path(), ID).expect("its end is right");
    for (nth, name) in [(0, "file-1.jsonl"), (1, "file-1.index")] {
        let error = file.read(nth).expect_err("wrong");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains(name), "{error}");
    }
    std::fs::write(&index, b"").expect("written");
    let error = file.of_model(0, 0, 1).expect_err("cut while it is open");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}
