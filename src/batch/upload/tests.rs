//! Tests of uploads: any split gives the same files, and each fault its message.

mod limits;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;

use flate2::Compression;
use flate2::write::GzEncoder;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::Endpoint;
use crate::request_file::RequestFile;

const ID: &str = "file-1";
const LIMITS: UploadLimits = UploadLimits {
    bytes_max: 1 << 20,
    line_bytes_max: 1000,
    lines_max: 1000,
    models_max: 3,
};

fn line(nth: usize) -> String {
    let model = nth % 3;
    format!(r#"{{"custom_id":"{nth}","url":"/v1/messages","body":{{"model":"m{model}","x":"é"}}}}"#)
}

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |text, nth| text + &line(nth) + "\n")
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("in memory");
    encoder.finish().expect("in memory")
}

/// A stored upload: its summary, its lines and its index.
type Stored = (RequestFileSummary, Vec<u8>, Vec<u8>);

/// Uploads the chunks. A failed upload leaves no file.
fn upload<'a>(
    limits: UploadLimits,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Stored, UploadError> {
    let dir = tempfile::tempdir().expect("a folder");
    let mut upload = Upload::create(dir.path(), ID, limits).expect("created");
    let written = chunks.into_iter().try_for_each(|chunk| upload.write(chunk));
    let finished = match written {
        Ok(()) => upload.finish(),
        Err(error) => {
            let stopped = upload.write(b"x").expect_err("it has failed");
            assert!(matches!(stopped, UploadError::Stopped));
            let stopped = upload.finish().expect_err("it has failed");
            assert!(matches!(stopped, UploadError::Stopped));
            Err(error)
        }
    };
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    let Ok(summary) = finished else {
        assert!(names.is_empty(), "{names:?}");
        return Err(finished.expect_err("failed"));
    };
    assert_eq!(names, ["file-1.index", "file-1.jsonl"]);
    let [index, data] = names.as_slice() else {
        unreachable!()
    };
    let read = |name| std::fs::read(dir.path().join(name)).expect("read");
    Ok((summary, read(data), read(index)))
}

fn error(text: &[u8]) -> String {
    upload(LIMITS, [text]).expect_err("refused").to_string()
}

/// Splits at random places, often into single bytes.
fn split<'a>(mut text: &'a [u8], random: &mut Pcg64Mcg) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    let len_max = [2, 10, 200][random.random_range(0..3)];
    while !text.is_empty() {
        let (chunk, rest) = text.split_at(random.random_range(0..len_max).min(text.len()));
        chunks.push(chunk);
        text = rest;
    }
    chunks
}

#[test]
fn any_split_of_any_encoding_gives_the_same_files() {
    let plain = lines(40);
    let (summary, data, index) = upload(LIMITS, [plain.as_bytes()]).expect("stored");
    assert_eq!(data, plain.as_bytes());
    assert_eq!((summary.bytes, summary.requests), (plain.len() as u64, 40));
    assert_eq!(summary.endpoints, [(Endpoint::Messages, 40)]);
    let models = summary
        .models
        .iter()
        .map(|model| (model.name.as_str(), model.requests));
    assert_eq!(
        models.collect::<Vec<_>>(),
        [("m0", 14), ("m1", 13), ("m2", 13)]
    );

    let windows = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
    let spaced = format!("\n \r\n\t{}", plain.replace('\n', " \n\n"));
    let two_members = [
        gzip(&plain.as_bytes()[..777]),
        gzip(b""),
        gzip(&plain.as_bytes()[777..]),
    ]
    .concat();
    let same = [
        plain.trim_end().as_bytes().to_vec(),
        gzip(windows.trim_end().as_bytes()),
        gzip(spaced.as_bytes()),
        windows.into_bytes(),
        spaced.into_bytes(),
        two_members,
    ];
    let mut random = Pcg64Mcg::seed_from_u64(7);
    for (nth, text) in same.iter().enumerate() {
        for _ in 0..30 {
            let stored = upload(LIMITS, split(text, &mut random)).expect("stored");
            assert!(
                stored == (summary.clone(), data.clone(), index.clone()),
                "text {nth}"
            );
        }
    }
}

#[test]
fn any_split_gives_the_same_error() {
    let long = format!("{}{}", lines(3), "x".repeat(1001));
    let texts = [
        lines(3).replace("é", "\\ud800").into_bytes(),
        [lines(2).as_bytes(), b"\xff\n", lines(1).as_bytes()].concat(),
        long.into_bytes(),
        lines(1001).into_bytes(),
        b"\x1f".to_vec(),
        b"\x1fx".to_vec(),
        gzip(&b"{}\n".repeat(50)),
    ];
    let mut random = Pcg64Mcg::seed_from_u64(8);
    for text in &texts {
        let expected = error(text);
        for _ in 0..10 {
            let refused = upload(LIMITS, split(text, &mut random)).expect_err("refused");
            assert_eq!(refused.to_string(), expected);
        }
    }
}

#[test]
fn bad_lines_are_named_by_their_numbers_in_the_upload() {
    let text = format!(
        "\u{feff}\r\n{}\r\n\r\n{{}}\r\n{}\nnull",
        line(0),
        line(1).replace("model", "m")
    );
    let expected = "line 4: `custom_id` is missing\n\
        line 5: `body.model` is missing\n\
        line 6: the line must be a JSON object";
    assert_eq!(error(text.as_bytes()), expected);
    let not_utf8 = [line(0).as_bytes(), b"\n{\"\xc3\x28"].concat();
    assert_eq!(
        error(&not_utf8),
        "line 2: the line is not valid UTF-8 at column 3"
    );
}

#[test]
fn an_upload_stops_after_twenty_bad_lines_and_checks_the_lines_between() {
    let bad = format!("{}[]\n", lines(1)).repeat(30);
    let Err(UploadError::Lines(found)) = upload(LIMITS, [bad.as_bytes()]) else {
        panic!("refused");
    };
    assert_eq!(found.len(), BAD_LINES_MAX);
    assert_eq!(found[19].line, 40);
    let few = format!("{}[]\n", lines(1)).repeat(3);
    let expected = "line 2: the line must be a JSON object\n\
        line 3: `custom_id` is the same as in line 1\n\
        line 4: the line must be a JSON object\n\
        line 5: `custom_id` is the same as in line 1\n\
        line 6: the line must be a JSON object";
    assert_eq!(error(few.as_bytes()), expected);
}

#[test]
fn a_repeated_id_is_refused_even_with_another_spelling() {
    let text = format!(
        "{}\n{}",
        lines(300),
        line(65).replace("\"65\"", r#""\u0036\u0035""#)
    );
    assert_eq!(
        error(text.as_bytes()),
        "line 302: `custom_id` is the same as in line 66"
    );
}

#[test]
fn files_are_private_and_never_replaced() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut upload = Upload::create(dir.path(), ID, LIMITS).expect("created");
    Upload::create(dir.path(), ID, LIMITS).expect_err("it is being written");
    upload.write(lines(1).as_bytes()).expect("written");
    upload.finish().expect("stored");
    for entry in std::fs::read_dir(dir.path()).expect("a folder") {
        let data = entry.expect("an entry").metadata().expect("there");
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
    }
    Upload::create(dir.path(), ID, LIMITS).expect_err("it is there");
    let kept = RequestFile::open(dir.path(), ID).expect("opened");
    assert_eq!(kept.read(0).expect("read"), line(0).as_bytes());
    Upload::create(dir.path(), "../file", LIMITS).expect_err("outside");
}

#[test]
fn a_summary_is_read_back_from_its_json() {
    let (summary, ..) = upload(LIMITS, [lines(5).as_bytes()]).expect("stored");
    let json = serde_json::to_string(&summary).expect("JSON");
    assert!(
        json.contains(r#""endpoints":[["/v1/messages",5]]"#),
        "{json}"
    );
    let read: RequestFileSummary = serde_json::from_str(&json).expect("a summary");
    assert_eq!(read, summary);
}
